package remotewrite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"muster.dev/muster/internal/spool"
)

// receiver is an HTTP endpoint without a network, so that a test owns the time.
type receiver struct {
	mu      sync.Mutex
	answers []answer // consumed one a request; then 204
	always  *answer
	got     []received
	busy    int
	maxBusy int
	hold    time.Duration // how long a request takes
	refuse  func([]Series) *answer
	delay   func([]Series) time.Duration
}

type answer struct {
	code   int
	header http.Header
	body   string
	err    error
	plain  bool // without the headers of 2.0
}

type received struct {
	at      time.Time
	url     string
	header  http.Header
	series  []Series
	v2      bool
	attempt string
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	v2, _ := IsV2(req.Header.Get("Content-Type"))
	series, err := decodeRequest(req.Header.Get("Content-Type"), body)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.got = append(r.got, received{time.Now(), req.URL.String(), req.Header.Clone(), series, v2, req.Header.Get("Retry-Attempt")})
	a := answer{code: 204}
	if r.always != nil {
		a = *r.always
	}
	if len(r.answers) > 0 {
		a, r.answers = r.answers[0], r.answers[1:]
	}
	if a.code == 204 && r.refuse != nil {
		if bad := r.refuse(series); bad != nil {
			a = *bad
		}
	}
	hold := r.hold
	if r.delay != nil {
		hold = r.delay(series)
	}
	r.busy++
	r.maxBusy = max(r.maxBusy, r.busy)
	r.mu.Unlock()
	if hold > 0 && !sleep(req.Context(), hold) {
		a.err = req.Context().Err()
	}
	r.mu.Lock()
	r.busy--
	r.mu.Unlock()
	if a.err != nil {
		return nil, a.err
	}
	h := a.header.Clone()
	if h == nil {
		h = http.Header{}
	}
	if a.code/100 == 2 && !a.plain && v2 && h.Get("X-Prometheus-Remote-Write-Samples-Written") == "" {
		h.Set("X-Prometheus-Remote-Write-Samples-Written", fmt.Sprint(countSamples(series)))
	}
	return &http.Response{StatusCode: a.code, Status: fmt.Sprint(a.code, " ", http.StatusText(a.code)), Header: h, Body: io.NopCloser(strings.NewReader(a.body)), Request: req}, nil
}

func countSamples(series []Series) (n int) {
	for _, s := range series {
		n += len(s.Samples) + len(s.Histograms)
	}
	return n
}

func (r *receiver) setAlways(a *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.always = a
}

func (r *receiver) requests() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.got...)
}

// rig runs a sender on a real spool against a receiver, inside a synctest bubble.
type rig struct {
	*testing.T
	recv   *receiver
	spool  *spool.Spool
	sender *Sender
	reg    *prometheus.Registry
	logs   *bytes.Buffer
	stop   func()
}

func newRig(t *testing.T, change func(*SenderOptions)) *rig {
	t.Helper()
	q, err := spool.Open(spool.Options{Dir: t.TempDir(), SyncInterval: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, recv: &receiver{}, spool: q, reg: prometheus.NewRegistry(), logs: &bytes.Buffer{}}
	o := SenderOptions{
		Source: q, Endpoint: func() string { return "https://gateway/push" }, Client: func() *http.Client { return &http.Client{Transport: r.recv} },
		Logger: slog.New(slog.NewTextHandler(r.logs, nil)), Registerer: r.reg, Concurrency: 1, MaxSamples: 1,
	}
	if change != nil {
		change(&o)
	}
	r.sender = NewSender(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.sender.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	r.stop = func() {
		cancel()
		<-done
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
	return r
}

func (r *rig) push(n int) {
	r.Helper()
	for i := range n {
		if _, err := r.spool.Append(Encode("acme", uint32(i), batch(3, 1000))); err != nil {
			r.Fatal(err)
		}
	}
}

// settle lets d pass and everything that follows from it.
func settle(d time.Duration) {
	time.Sleep(d) // in a bubble: no real time passes
	synctest.Wait()
}

func (r *rig) metric(name, want string) {
	r.Helper()
	if err := testutil.GatherAndCompare(r.reg, strings.NewReader(want), "muster_remote_write_"+name); err != nil {
		r.Error(err)
	}
}

func bubble(t *testing.T, f func(t *testing.T)) { t.Helper(); synctest.Test(t, f) }

func TestSendsAndAcknowledges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *SenderOptions) {
			o.UserAgent = "muster-edge/1"
			o.Header = func(key string) http.Header { return http.Header{"X-Scope-OrgID": {key}} }
		})
		defer r.stop()
		r.push(2)
		settle(time.Second)
		got := r.recv.requests()
		if len(got) != 2 || r.spool.Stats().Pending != 0 {
			t.Fatalf("%d requests, %+v", len(got), r.spool.Stats())
		}
		for name, want := range map[string]string{
			"Content-Encoding": "snappy", "Content-Type": ContentTypeV2, "User-Agent": "muster-edge/1",
			"X-Prometheus-Remote-Write-Version": "2.0.0", "X-Scope-Orgid": "acme", "Retry-Attempt": "",
		} {
			if v := got[0].header.Get(name); v != want {
				t.Errorf("%s: %q, want %q", name, v, want)
			}
		}
		equal(t, got[0].series, batch(3, 1000))
		st := r.sender.Status()
		if st.SentSamples != 6 || st.HighestTimestamp != 1000 || st.LastSuccess.IsZero() || st.InFlight != 0 || st.LastError != "" || st.Protocol != "2.0" {
			t.Errorf("status %+v", st)
		}
		if problems, err := testutil.GatherAndLint(r.reg); err != nil || len(problems) > 0 {
			t.Error(problems, err)
		}
	})
}

func TestRetriesUntilTaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.stop()
		r.recv.answers = []answer{{code: 500, body: "boom\nline two"}, {err: errors.New("connection refused")}, {code: 503}, {code: 401}, {code: 403}, {code: 404}, {code: 429}, {code: 301}}
		r.push(1)
		settle(10 * time.Minute)
		got := r.recv.requests()
		if len(got) != 9 || got[8].attempt != "8" || r.spool.Stats().Acked != 1 {
			t.Fatalf("%d requests, %+v", len(got), r.spool.Stats())
		}
		st := r.sender.Status()
		if st.SentSamples != 3 || st.RetriedSamples != 24 || st.ConsecutiveFailures != 0 || st.FailedRequests != 8 {
			t.Errorf("status %+v", st)
		}
		if !strings.Contains(r.logs.String(), "boom line two") {
			t.Errorf("the answer's text is not in the log: %s", r.logs)
		}
		r.metric("samples_retried_total", `
# HELP muster_remote_write_samples_retried_total Samples of requests that failed and are tried again.
# TYPE muster_remote_write_samples_retried_total counter
muster_remote_write_samples_retried_total 24
`)
	})
}

// TestBackoffIsFullJitter looks at the pauses of many senders: all within the
// bound that doubles, and spread over all of it.
func TestBackoffIsFullJitter(t *testing.T) {
	const minB, maxB, senders, tries = time.Second, 20 * time.Second, 60, 7
	bubble(t, func(t *testing.T) {
		var rigs []*rig
		for range senders {
			r := newRig(t, func(o *SenderOptions) { o.MinBackoff, o.MaxBackoff = minB, maxB })
			defer r.stop()
			r.recv.always = &answer{code: 500}
			r.push(1)
			rigs = append(rigs, r)
		}
		settle(10 * time.Minute)
		for n := range tries {
			bound := min(minB<<n, maxB)
			var low, high int
			for _, r := range rigs {
				got := r.recv.requests()
				pause := got[n+1].at.Sub(got[n].at)
				if pause > bound+bound/100 { // what the request itself takes
					t.Fatalf("pause %d is %s, bound %s", n, pause, bound)
				}
				if pause < bound/2 {
					low++
				} else {
					high++
				}
			}
			if low < senders/5 || high < senders/5 {
				t.Errorf("pause %d: %d in the lower half, %d in the upper", n, low, high)
			}
		}
	})
}

func TestRetryAfterHoldsAllWorkers(t *testing.T) {
	for name, value := range map[string]func() string{
		"seconds": func() string { return "40" },
		"date":    func() string { return time.Now().Add(40 * time.Second).UTC().Format(http.TimeFormat) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, func(o *SenderOptions) { o.Concurrency = 4 })
				defer r.stop()
				r.recv.answers = []answer{{code: 429, header: http.Header{"Retry-After": {value()}}}}
				start := time.Now()
				r.push(1)
				settle(time.Second)
				r.push(5)
				settle(37 * time.Second)
				if n := len(r.recv.requests()); n != 1 {
					t.Fatalf("%d requests in the pause that the receiver asked for", n)
				}
				settle(25 * time.Second) // half as much again, at most
				got := r.recv.requests()
				if len(got) != 7 || r.spool.Stats().Pending != 0 {
					t.Fatalf("%d requests, %+v", len(got), r.spool.Stats())
				}
				if d := got[1].at.Sub(start); d < 39*time.Second {
					t.Errorf("second request after %s", d)
				}
			})
		})
	}
}

func TestRetryAfterValues(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for in, want := range map[string]time.Duration{
		"": 0, "soon": 0, "-5": 0, "7": 7 * time.Second, "99999999": maxRetryAfter, "99999999999999999999999": 0,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Fri, 02 Jan 2026 03:00:00 GMT": 0, "Fri, 01 Jan 2100 00:00:00 GMT": maxRetryAfter,
	} {
		if got := retryAfter(in, now); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestRefusedIsDroppedAndLoggedOncePerMinute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.stop()
		r.recv.always = &answer{code: 400, body: "series limit", header: http.Header{"X-Prometheus-Remote-Write-Samples-Written": {"1"}}}
		r.push(10)
		settle(10 * time.Second)
		if st := r.spool.Stats(); st.Pending != 0 {
			t.Errorf("%+v", st)
		}
		if n := strings.Count(r.logs.String(), "series limit"); n != 1 {
			t.Errorf("%d lines for one reason:\n%s", n, r.logs)
		}
		settle(time.Minute)
		r.push(1)
		settle(time.Second)
		if !strings.Contains(r.logs.String(), "alike_since_last_line=9") {
			t.Errorf("log: %s", r.logs)
		}
		r.metric("samples_failed_total", `
# HELP muster_remote_write_samples_failed_total Samples that the receiver refused for good, by status code.
# TYPE muster_remote_write_samples_failed_total counter
muster_remote_write_samples_failed_total{reason="400"} 22
`)
		if st := r.sender.Status(); st.SentSamples != 11 || st.FailedSamples != 22 || !strings.Contains(st.LastError, "series limit") {
			t.Errorf("status %+v", st)
		}
	})
}

func TestFallsBackToV1PerEndpoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var endpoint atomic.Value
		endpoint.Store("https://old/push")
		r := newRig(t, func(o *SenderOptions) {
			o.Endpoint = func() string { return endpoint.Load().(string) }
			o.V1Memory = time.Hour
		})
		defer r.stop()
		r.recv.answers = []answer{{code: 415}}
		r.push(2)
		settle(time.Second)
		versions := func() string {
			var b strings.Builder
			for _, q := range r.recv.requests() {
				fmt.Fprint(&b, map[bool]string{true: "2", false: "1"}[q.v2])
			}
			return b.String()
		}
		if v := versions(); v != "211" || r.sender.Status().Protocol != "1.0" {
			t.Fatalf("versions %s, %+v", v, r.sender.Status())
		}
		want := batch(3, 1000)
		for i := range want {
			want[i].Metadata = Metadata{}
		}
		equal(t, r.recv.requests()[1].series, want)
		if v := r.recv.requests()[1].header.Get("X-Prometheus-Remote-Write-Version"); v != "0.1.0" {
			t.Errorf("version header %q", v)
		}
		endpoint.Store("https://new/push")
		r.push(1)
		settle(time.Second)
		endpoint.Store("https://old/push")
		r.push(1)
		settle(2 * time.Hour)
		r.push(1)
		settle(time.Second)
		if v := versions(); v != "211"+"2"+"1"+"2" {
			t.Errorf("versions %s", v)
		}
		if st := r.sender.Status(); st.SentSamples != 15 || st.FailedRequests != 0 {
			t.Errorf("status %+v", st)
		}
	})
}

// TestUnconfirmed: a 1.0 receiver may take a 2.0 request for an empty one and say
// 2xx; the samples must not be lost on it.
func TestUnconfirmed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.stop()
		r.recv.always = &answer{code: 200, plain: true}
		r.push(1)
		settle(time.Second)
		got := r.recv.requests()
		if len(got) != 2 || got[1].v2 || r.spool.Stats().Pending != 0 {
			t.Fatalf("%+v", got)
		}
	})
}

func TestPartlyTaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.stop()
		r.recv.always = &answer{code: 200, header: http.Header{"X-Prometheus-Remote-Write-Samples-Written": {"2"}}}
		r.push(1)
		settle(time.Second)
		if st := r.sender.Status(); st.SentSamples != 2 || st.DroppedSamples != 1 {
			t.Errorf("status %+v", st)
		}
	})
}

func TestUndecodableRecordIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.stop()
		if _, err := r.spool.Append([]byte("garbage")); err != nil {
			t.Fatal(err)
		}
		r.push(1)
		settle(time.Second)
		if st := r.spool.Stats(); st.Pending != 0 || len(r.recv.requests()) != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestWaitsForAnEndpointAndFailsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var endpoint atomic.Value
		endpoint.Store("")
		r := newRig(t, func(o *SenderOptions) { o.Endpoint = func() string { return endpoint.Load().(string) } })
		defer r.stop()
		r.push(1)
		settle(time.Minute)
		if len(r.recv.requests()) != 0 {
			t.Fatal("sent without an endpoint")
		}
		r.recv.setAlways(&answer{err: errors.New("no route to host")})
		endpoint.Store("https://one/push")
		settle(time.Minute)
		r.recv.setAlways(nil)
		endpoint.Store("https://two/push")
		settle(time.Minute)
		got := r.recv.requests()
		if last := got[len(got)-1]; last.url != "https://two/push" || r.spool.Stats().Pending != 0 {
			t.Errorf("last %s, %+v", last.url, r.spool.Stats())
		}
	})
}

func TestParallelInFlight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *SenderOptions) { o.Concurrency = 3 })
		defer r.stop()
		r.recv.hold = time.Second
		r.push(9)
		settle(500 * time.Millisecond)
		if st := r.sender.Status(); st.InFlight != 3 {
			t.Errorf("status %+v", st)
		}
		settle(3 * time.Second)
		if r.recv.maxBusy != 3 || r.spool.Stats().Pending != 0 {
			t.Errorf("%d at once, %+v", r.recv.maxBusy, r.spool.Stats())
		}
	})
}

// TestStopLeavesTheRestQueued: what was not acknowledged stays in the spool.
func TestStopLeavesTheRestQueued(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *SenderOptions) { o.Timeout = 5 * time.Second })
		r.recv.hold = time.Hour
		r.push(2)
		settle(4 * time.Second)
		before := r.spool.Stats()
		r.stop()
		if before.Pending != 2 || before.InFlight != 2 || r.spool.Stats().Acked != 0 {
			t.Errorf("%+v", before)
		}
	})
}

func TestTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *SenderOptions) { o.Timeout = 5 * time.Second })
		defer r.stop()
		r.recv.hold = time.Hour
		r.push(1)
		settle(6 * time.Second)
		if st := r.sender.Status(); st.FailedRequests == 0 || !strings.Contains(st.LastError, "deadline") {
			t.Errorf("status %+v", st)
		}
		r.recv.mu.Lock()
		r.recv.hold = 0
		r.recv.mu.Unlock()
		settle(time.Minute)
		if r.spool.Stats().Pending != 0 {
			t.Errorf("%+v", r.spool.Stats())
		}
	})
}
