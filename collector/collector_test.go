package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	remoteapi "github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
)

// receiver is Prometheus' own remote write handler over a real TSDB.
type receiver struct {
	*httptest.Server
	db     *tsdb.DB
	down   atomic.Bool
	code   atomic.Int64 // answered instead, if set
	v1Only atomic.Bool
	bytes  atomic.Int64
	v1, v2 atomic.Int64
}

func newReceiver(t testing.TB) *receiver {
	t.Helper()
	o := tsdb.DefaultOptions()
	o.OutOfOrderTimeWindow = time.Hour.Milliseconds()
	db, err := tsdb.Open(t.TempDir(), nil, nil, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	r := &receiver{db: db}
	log := slog.New(slog.DiscardHandler)
	both := remote.NewWriteHandler(log, prometheus.NewRegistry(), db, remoteapi.MessageTypes{remoteapi.WriteV1MessageType, remoteapi.WriteV2MessageType}, false, false, false)
	old := remote.NewWriteHandler(log, prometheus.NewRegistry(), db, remoteapi.MessageTypes{remoteapi.WriteV1MessageType}, false, false, false)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.bytes.Add(req.ContentLength)
		switch {
		case r.down.Load():
			http.Error(w, "down", http.StatusServiceUnavailable)
		case r.code.Load() != 0:
			http.Error(w, "no", int(r.code.Load()))
		case r.v1Only.Load():
			if strings.Contains(req.Header.Get("Content-Type"), "v2") {
				r.v2.Add(1)
			} else {
				r.v1.Add(1)
			}
			old.ServeHTTP(w, req)
		default:
			both.ServeHTTP(w, req)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

type point struct {
	t int64
	v float64
}

// series returns the stored series of a metric: labels → samples.
func (r *receiver) series(t testing.TB, name string) map[string][]point {
	t.Helper()
	q, err := r.db.Querier(math.MinInt64, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	out := map[string][]point{}
	set := q.Select(context.Background(), true, nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", name))
	for set.Next() {
		s := set.At()
		key := s.Labels().String()
		it := s.Iterator(nil)
		for vt := it.Next(); vt != chunkenc.ValNone; vt = it.Next() {
			if vt == chunkenc.ValFloat {
				at, v := it.At()
				out[key] = append(out[key], point{at, v})
			}
		}
	}
	if err := set.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// page is a metrics page that a test can change.
type page struct {
	*httptest.Server
	mu     sync.Mutex
	text   string
	down   bool
	served int // value of the counter "ticks"
}

func newPage(t testing.TB, text string) *page {
	p := &page{text: text}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *page) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		http.Error(w, "down", http.StatusInternalServerError)
		return
	}
	p.served++
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	fmt.Fprintf(w, "# TYPE ticks counter\nticks %d\n%s", p.served, p.text)
}

func (p *page) set(text string, down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text, p.down = text, down
}

func (p *page) addr() string { return strings.TrimPrefix(p.URL, "http://") }

func policy(allow ...string) fleet.CollectionPolicy {
	p := DefaultPolicy()
	p.AllowPatterns = allow
	p.Interval = time.Second
	return p
}

func static(job string, addrs ...string) string {
	return fmt.Sprintf("- job_name: %s\n  static_configs: [{targets: ['%s']}]\n", job, strings.Join(addrs, "','"))
}

type rig struct {
	*Collector
	t    testing.TB
	reg  *prometheus.Registry
	stop func()
}

// start runs a collector that pushes to r.
func start(t testing.TB, r *receiver, change func(*Options)) *rig {
	t.Helper()
	g := &rig{t: t, reg: prometheus.NewRegistry()}
	o := Options{
		Dir: t.TempDir(), Site: fleet.SiteID{Tenant: "acme", Name: "paris-07"}, Policy: policy("ticks|m.*"),
		Endpoint: func() string { return r.URL }, Registerer: g.reg, reloadEvery: 20 * time.Millisecond, Version: "1.2.3",
	}
	change(&o)
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	g.Collector = c
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	g.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(g.stop)
	return g
}

// eventually waits until ok returns "", and else says what it said last.
func eventually(t testing.TB, ok func() string) {
	t.Helper()
	testkit.Eventually(t, "the collector", func() error {
		if why := ok(); why != "" {
			return errors.New(why)
		}
		return nil
	})
}

func (g *rig) condition(typ string) Condition {
	for _, c := range g.Conditions() {
		if c.Type == typ {
			return c
		}
	}
	g.t.Fatalf("no condition %s", typ)
	return Condition{}
}

func (g *rig) waitCondition(typ, status string) Condition {
	g.t.Helper()
	var c Condition
	eventually(g.t, func() string {
		if c = g.condition(typ); c.Status != status {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
	return c
}

// TestEndToEnd scrapes real HTTP targets and in-process ones, pushes to a real
// receiver, and compares every value that arrived with what the pages said.
func TestEndToEnd(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	a, b := newPage(t, "m1{x=\"1\"} 7\nm2 8\nother 9\n"), newPage(t, "m1 70\n")
	c := start(t, r, func(o *Options) {
		o.ScrapeConfigs = []byte(static("app", a.addr(), b.addr()))
		o.Targets = []Target{{Job: "node", Instance: "paris-07", Labels: map[string]string{"rack": "4"}, Handler: newPage(t, "m3 1\n")}}
	})
	eventually(t, func() string {
		for _, p := range []*page{a, b} {
			if p.mu.Lock(); p.served < 3 {
				defer p.mu.Unlock()
				return fmt.Sprintf("%d scrapes", p.served)
			}
			p.mu.Unlock()
		}
		return ""
	})
	c.stop()
	// What was in flight at the stop comes after the next start.
	c = start(t, r, func(o *Options) { o.Dir = c.opts.Dir })
	eventually(t, func() string {
		if st := c.Status(); st.Push.HighestTimestamp == 0 || st.Spool.Pending > 1 {
			return fmt.Sprintf("%+v", st.Push)
		}
		return ""
	})
	for _, p := range []*page{a, b} {
		got := r.series(t, "ticks")[fmt.Sprintf(`{__name__="ticks", instance=%q, job="app"}`, p.addr())]
		for i, s := range got {
			if s.v != float64(i+1) || (i > 0 && s.t <= got[i-1].t) {
				t.Fatalf("%s: sample %d is %+v", p.addr(), i, s)
			}
		}
		if len(got) < p.served-1 || len(got) < 2 { // the last scrape may have been cut off by the stop
			t.Errorf("%s: %d samples of %d scrapes", p.addr(), len(got), p.served)
		}
	}
	if got := r.series(t, "m.|other"); len(got) != 4 || len(got[`{__name__="m3", instance="paris-07", job="node", rack="4"}`]) == 0 {
		t.Errorf("series: %v", got)
	}
	if got := r.series(t, "up"); len(got) != 4 {
		t.Errorf("up: %v", got)
	}
}

// TestOwnSeries: the collector's figures arrive whatever the policy says.
func TestOwnSeries(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	p := newPage(t, "m1 1\nm2 1\nother 9\n")
	c := start(t, r, func(o *Options) {
		o.Policy = policy("m.*")
		o.Policy.SeriesBudget, o.Policy.DropLabels = 1, []string{"reason", "version"}
		o.ScrapeConfigs = []byte(static("app", p.addr()))
		o.ProcessMetrics = true
	})
	eventually(t, func() string {
		got := r.series(t, "muster_.*")
		for _, want := range []string{
			`{__name__="muster_collector_samples_dropped_total", instance="muster-edge", job="muster-edge", reason="allowlist"}`,
			`{__name__="muster_collector_samples_dropped_total", instance="muster-edge", job="muster-edge", reason="budget"}`,
			`{__name__="muster_collector_samples_dropped_total", instance="muster-edge", job="muster-edge", reason="duplicate"}`,
			`{__name__="muster_collector_series", instance="muster-edge", job="muster-edge"}`,
			`{__name__="muster_collector_series_budget", instance="muster-edge", job="muster-edge"}`,
			`{__name__="muster_collector_push_delay_seconds", instance="muster-edge", job="muster-edge"}`,
			`{__name__="muster_collector_spool_bytes", instance="muster-edge", job="muster-edge"}`,
			`{__name__="muster_edge_build_info", instance="muster-edge", job="muster-edge", version="1.2.3"}`,
			`{__name__="muster_edge_build_timestamp_seconds", instance="muster-edge", job="muster-edge"}`,
			`{__name__="muster_edge_process_resident_memory_bytes", instance="muster-edge", job="muster-edge"}`,
		} {
			s := got[want]
			if len(s) == 0 {
				return want
			}
			if strings.Contains(want, "dropped") && !strings.Contains(want, "duplicate") && s[len(s)-1].v == 0 {
				return want + " is 0"
			}
		}
		return ""
	})
	cond := c.waitCondition(SeriesBudgetExceeded, "True")
	if !strings.Contains(cond.Message, "all 1 places are taken") {
		t.Errorf("%+v", cond)
	}
	if problems, err := testutil.GatherAndLint(c.reg); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

// TestOutageLosesNothing takes the receiver down and up again: every scrape of the
// time between arrives, with the time at which it was made.
func TestOutageLosesNothing(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.down.Store(true)
	p := newPage(t, "")
	c := start(t, r, func(o *Options) {
		o.ScrapeConfigs, o.rememberFailures = []byte(static("app", p.addr())), time.Millisecond
	})
	cond := c.waitCondition(PushFailing, "True")
	if !strings.Contains(cond.Message, "503") {
		t.Errorf("%+v", cond)
	}
	eventually(t, func() string {
		if st := c.Status(); st.Spool.Pending < 6 || st.PushDelay < time.Second {
			return fmt.Sprintf("%+v", st.Spool)
		}
		return ""
	})
	r.down.Store(false)
	c.waitCondition(PushFailing, "False")
	eventually(t, func() string {
		if st := c.Status(); st.Spool.Pending > 0 || st.Push.RetriedSamples == 0 {
			return fmt.Sprintf("%+v", st)
		}
		return ""
	})
	c.stop()
	for _, got := range r.series(t, "ticks") {
		want, failed := 1.0, false // failed: a scrape did, on a busy machine; what it would have brought was never had
		for i, s := range got {
			if value.IsStaleNaN(s.v) {
				failed = true
				continue
			}
			if s.v != want && (!failed || s.v < want) {
				t.Fatalf("sample %d is %v, want %v: one is missing", i, s.v, want)
			}
			want, failed = s.v+1, false
		}
		if len(got) < 3 {
			t.Errorf("%d samples", len(got))
		}
	}
}

func TestFallsBackToProtocol1(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.v1Only.Store(true)
	p := newPage(t, "")
	start(t, r, func(o *Options) { o.ScrapeConfigs = []byte(static("app", p.addr())) })
	eventually(t, func() string {
		if got := r.series(t, "ticks"); len(got) == 0 || r.v1.Load() < 3 {
			return fmt.Sprint(got)
		}
		return ""
	})
	if n := r.v2.Load(); n < 1 || n > 2 { // one for each push in flight
		t.Errorf("%d requests of 2.0", n)
	}
}

// last returns the newest sample of the one series that a metric has.
func last(t *testing.T, r *receiver, name string) (point, int) {
	var p point
	n := 0
	for _, s := range r.series(t, name) {
		p = s[len(s)-1]
		n += len(s)
	}
	return p, n
}

// TestPolicyChange: another policy applies without a restart; what it ends gets a
// stale marker; a bad one changes nothing and is reported.
func TestPolicyChange(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	p := newPage(t, "m1 1\nn1 2\n")
	c := start(t, r, func(o *Options) { o.ScrapeConfigs = []byte(static("app", p.addr())) })
	flows := func(name string, want bool) {
		t.Helper()
		_, before := last(t, r, name)
		eventually(t, func() string {
			s, n := last(t, r, name)
			if stale := value.IsStaleNaN(s.v); want && (stale || n < before+2) || !want && !stale {
				return fmt.Sprintf("%s: %d samples, stale %v", name, n, stale)
			}
			return ""
		})
	}
	flows("m1", true)
	if err := c.ApplyPolicy(policy("ticks|n.*")); err != nil {
		t.Fatal(err)
	}
	flows("n1", true)
	flows("m1", false)
	_, hash := c.Policy()
	flows("ticks", true)

	bad := policy("(")
	if err := c.ApplyPolicy(bad); err == nil || !strings.Contains(err.Error(), "allow.patterns") {
		t.Errorf("err = %v", err)
	}
	if cond := c.condition(PolicyApplied); cond.Status != "False" || !strings.Contains(cond.Message, "allow.patterns") {
		t.Errorf("%+v", cond)
	}
	if _, now := c.Policy(); now != hash {
		t.Error("a refused policy changed the hash")
	}
	flows("n1", true)
	if err := c.ApplyPolicy(policy("m.*")); err != nil {
		t.Fatal(err)
	}
	flows("m1", true)
	flows("n1", false)
	if cond := c.condition(PolicyApplied); cond.Status != "True" {
		t.Errorf("%+v", cond)
	}
}

func TestReload(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	a, b := newPage(t, "m1 1\n"), newPage(t, "m2 2\n")
	dir := t.TempDir()
	c := start(t, r, func(o *Options) { o.ScrapeConfigs = []byte(static("app", a.addr())) })
	eventually(t, func() string {
		if _, n := last(t, r, "m1"); n == 0 {
			return "no m1"
		}
		return ""
	})
	for in, want := range map[string]string{
		"x: 1":                           "want a list",
		"- job_name: muster-edge":        "muster-edge",
		"- job_name: x":                  `job "x": no static_configs`,
		static("x", "a:1") + "  nope: 1": "nope",
		static("x", "a:1") + "  tls_config: {ca_file: /does/not/exist}": "/does/not/exist",
	} {
		if err := c.Reload([]byte(in)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: err = %v", in, err)
		}
	}
	targets := filepath.Join(dir, "targets.json")
	if err := os.WriteFile(targets, []byte(fmt.Sprintf(`[{"targets": [%q]}]`, b.addr())), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.Reload([]byte(fmt.Sprintf("- job_name: files\n  file_sd_configs: [{files: [%s]}]\n", targets))); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if _, n := last(t, r, "m2"); n < 2 {
			return "no m2"
		}
		return ""
	})
	if st := c.Status(); len(st.Targets) != 2 || st.Targets[0].Job != "files" {
		t.Errorf("targets %+v", st.Targets)
	}
}

// TestStaleness: a series, then a whole target, goes away and comes back.
func TestStaleness(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	p := newPage(t, "m1 1\nm2 2\n")
	c := start(t, r, func(o *Options) { o.ScrapeConfigs = []byte(static("app", p.addr())) })
	want := func(name string, stale bool) {
		t.Helper()
		eventually(t, func() string {
			s, n := last(t, r, name)
			if n == 0 || value.IsStaleNaN(s.v) != stale {
				return fmt.Sprintf("%s: %v", name, s)
			}
			return ""
		})
	}
	want("m1", false)
	want("m2", false)
	p.set("m2 2\n", false)
	want("m1", true)
	want("m2", false)
	p.set("", true)
	want("m2", true)
	cond := c.waitCondition(ScrapeFailing, "True")
	if !strings.Contains(cond.Message, "500") {
		t.Errorf("%+v", cond)
	}
	p.set("m1 1\nm2 2\n", false)
	want("m1", false)
	want("m2", false)
	c.waitCondition(ScrapeFailing, "False")
}

// TestRestartKeepsTheQueue stops a collector that can't push and starts another
// on the same directory.
func TestRestartKeepsTheQueue(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.down.Store(true)
	p := newPage(t, "")
	c := start(t, r, func(o *Options) { o.ScrapeConfigs = []byte(static("app", p.addr())) })
	eventually(t, func() string {
		if st := c.Status(); st.Spool.Pending < 4 {
			return fmt.Sprint(st.Spool)
		}
		return ""
	})
	c.stop()
	before := p.served
	r.down.Store(false)
	c2 := start(t, r, func(o *Options) { o.Dir = c.opts.Dir })
	eventually(t, func() string {
		for _, s := range r.series(t, "ticks") {
			if len(s) >= before-1 && s[0].v == 1 {
				return ""
			}
		}
		return fmt.Sprint(c2.Status().Push)
	})
}

// TestRestartKeepsThePolicy: the last good policy holds from the first moment after
// a restart. Its caps in particular: smaller ones would cost what is queued.
func TestRestartKeepsThePolicy(t *testing.T) {
	o := Options{Dir: t.TempDir(), Endpoint: func() string { return "" }}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if p, _ := c.Policy(); !reflect.DeepEqual(p, DefaultPolicy()) {
		t.Errorf("first policy %+v", p)
	}
	want := policy("m.*")
	want.SpoolMaxBytes = 3 << 30
	if err := c.ApplyPolicy(want); err != nil {
		t.Fatal(err)
	}
	if err := c.ApplyPolicy(policy("(")); err == nil {
		t.Error("a bad policy was taken")
	}
	_, hash := c.Policy()
	for _, damage := range []bool{false, true} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if damage {
			if err := os.WriteFile(filepath.Join(o.Dir, policyFile), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, hash = "", hashOf(DefaultPolicy())
		}
		if c, err = New(o); err != nil {
			t.Fatal(err)
		}
		if _, got := c.Policy(); got != hash || !damage && c.spool.Stats().MaxBytes != 3<<30 {
			t.Errorf("damaged %v: hash %s, %+v", damage, got, c.spool.Stats())
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestMemoryOfDroppedSeries is the reason for dropping in the scrape's relabelling:
// most series of a site are dropped, and must cost little.
func TestMemoryOfDroppedSeries(t *testing.T) {
	const raw = 20_000
	r, page := newReceiver(t), bigPage(raw)
	srv := httptest.NewServer(page)
	defer srv.Close()
	before := liveHeap()
	start(t, r, func(o *Options) {
		o.Policy = policy("none")
		o.ScrapeConfigs = []byte(static("app", strings.TrimPrefix(srv.URL, "http://")))
	})
	eventually(t, func() string {
		if n := page.served.Load(); n < 3 {
			return fmt.Sprint(n)
		}
		return ""
	})
	// A scrape that is under way holds the page; between two the figure is right.
	eventually(t, func() string {
		if each := (liveHeap() - before) / raw; each > 300 {
			return fmt.Sprintf("%.0f bytes a dropped series", each)
		}
		return ""
	})
}

func TestNewRefuses(t *testing.T) {
	h := http.NotFoundHandler()
	for name, tc := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"no directory":    {func(o *Options) { o.Dir = "" }, "Dir and Endpoint"},
		"bad policy":      {func(o *Options) { o.Policy.SeriesBudget = -1 }, "seriesBudget"},
		"bad config":      {func(o *Options) { o.ScrapeConfigs = []byte("- job_name: [") }, "scrape configs"},
		"unnamed target":  {func(o *Options) { o.Targets = []Target{{Handler: h}} }, "Job and Handler"},
		"target twice":    {func(o *Options) { o.Targets = []Target{{Job: "a", Handler: h}, {Job: "a", Handler: h}} }, `"a" is taken`},
		"reserved target": {func(o *Options) { o.Targets = []Target{{Job: selfJob, Handler: h}} }, "is taken"},
	} {
		o := Options{Dir: t.TempDir(), Endpoint: func() string { return "" }, Policy: policy("a")}
		tc.change(&o)
		c, err := New(o)
		if err == nil {
			_ = c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: err = %v, want %q", name, err, tc.want)
		}
	}
}

// TestFullDisk: a spool that takes nothing is said as a condition and counted.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	c := start(t, r, func(o *Options) {})
	c.spool.SetLimits(10, 0) // no batch fits
	cond := c.waitCondition(SpoolFailing, "True")
	if cond.Reason != "WriteFailed" || c.Status().Lost == 0 {
		t.Errorf("%+v", cond)
	}
}

// TestSamplesOfTheFuture: an exporter whose clock was ahead is heard again as soon as it
// is right, and what is refused is counted and a condition.
func TestSamplesOfTheFuture(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	p := newPage(t, "")
	at := func(d time.Duration) string {
		return fmt.Sprintf("stamped 7 %d\n", time.Now().Add(d).UnixMilli())
	}
	p.set(at(5*time.Minute), false)
	c := start(t, r, func(o *Options) {
		o.ScrapeConfigs = []byte(static("app", p.addr()))
		o.Policy = policy("stamped")
	})
	values := func() (n int) {
		for _, points := range r.series(t, "stamped") {
			n += len(points)
		}
		return n
	}
	eventually(t, func() string {
		if values() == 0 {
			return "the first sample"
		}
		return ""
	})
	p.set(at(0), false)
	eventually(t, func() string {
		if values() < 2 {
			return "a sample of now, after one of the future"
		}
		return ""
	})
	if cond := c.condition(SampleTimesRefused); cond.Status != "False" {
		t.Errorf("%+v", cond)
	}
	p.set(at(time.Hour), false)
	c.waitCondition(SampleTimesRefused, "True")
	if st := c.Status(); st.Dropped["future"] == 0 {
		t.Errorf("%+v", st.Dropped)
	}
}

// TestDoubtfulSamples: garbage names its target and metric, and reaches the centre as a
// series of its own.
func TestDoubtfulSamples(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	p := newPage(t, "# TYPE level gauge\nlevel NaN\n# TYPE done counter\ndone -5\n")
	c := start(t, r, func(o *Options) {
		o.ScrapeConfigs = []byte(static("app", p.addr()))
		o.Policy = policy("level", "done")
	})
	cond := c.waitCondition(SamplesDoubtful, "True")
	if want := "app " + p.addr() + ": level: not a number"; !strings.Contains(cond.Message, want) {
		t.Errorf("%q does not say %q", cond.Message, want)
	}
	eventually(t, func() string {
		for key := range r.series(t, "muster_collector_doubtful_samples") {
			if strings.Contains(key, `metric="done"`) && strings.Contains(key, `target="`+p.addr()+`"`) && strings.Contains(key, `problem="a negative counter"`) {
				return ""
			}
		}
		return "the series of the negative counter"
	})
}

// TestHealthsSeriesComeFirst: what the health policy reads takes the places of others,
// and if there are none left that is said.
func TestHealthsSeriesComeFirst(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	p := newPage(t, "other{x=\"1\"} 1\nother{x=\"2\"} 1\n")
	c := start(t, r, func(o *Options) {
		o.ScrapeConfigs = []byte(static("app", p.addr()))
		o.Policy = policy("other", "bad")
		o.Policy.SeriesBudget, o.Policy.Reserve = 2, []string{"bad"}
	})
	c.waitCondition(SeriesBudgetFilling, "True")
	if cond := c.condition(SeriesBudgetExceeded); cond.Status != "False" {
		t.Errorf("%+v", cond)
	}
	p.set("other{x=\"1\"} 1\nother{x=\"2\"} 1\nbad 1\n", false)
	eventually(t, func() string {
		if len(r.series(t, "bad")) == 0 {
			return "the series that has a reserved place"
		}
		return ""
	})
	if cond := c.waitCondition(SeriesBudgetExceeded, "True"); cond.Reason != "NewSeriesRefused" {
		t.Errorf("%+v", cond)
	}
	p.set("bad{x=\"1\"} 1\nbad{x=\"2\"} 1\nbad{x=\"3\"} 1\n", false)
	eventually(t, func() string {
		if cond := c.condition(SeriesBudgetExceeded); cond.Reason != "HealthSeriesRefused" || !strings.Contains(cond.Message, "bad") {
			return fmt.Sprintf("that health's series are refused: %+v", cond)
		}
		return ""
	})
	eventually(t, func() string {
		for key := range r.series(t, "muster_collector_metric_series_refused") {
			if strings.Contains(key, `metric="bad"`) {
				return ""
			}
		}
		return "the refused series by metric"
	})
}

// TestInterfacesOfPodsStay on the site.
func TestInterfacesOfPodsStay(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	p := newPage(t, "node_network_up{device=\"eth0\"} 1\nnode_network_up{device=\"lxc12ab\"} 1\nnode_network_up{device=\"cali99\"} 1\nnode_disk{device=\"lxc\"} 1\n")
	start(t, r, func(o *Options) {
		o.ScrapeConfigs = []byte(static("app", p.addr()))
		o.Policy = policy("node_network_up", "node_disk")
		o.Policy.DropSeries = []fleet.SeriesDrop{{Metric: "node_network_.*", Label: "device", Values: "(lxc|veth|cali).*"}}
	})
	eventually(t, func() string {
		if len(r.series(t, "node_disk")) == 0 {
			return "the series of another metric"
		}
		return ""
	})
	got := r.series(t, "node_network_up")
	if len(got) != 1 {
		t.Errorf("%d series of interfaces left the site, want eth0's: %v", len(got), got)
	}
}

// TestTargetsOfOneJob are told apart by their instances.
func TestTargetsOfOneJob(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	start(t, r, func(o *Options) {
		for _, n := range []string{"n1", "n2"} {
			o.Targets = append(o.Targets, Target{Job: "node", Instance: n, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "m 1") })})
		}
	})
	eventually(t, func() string {
		up := r.series(t, "up")
		for _, n := range []string{"n1", "n2"} {
			if len(up[`{__name__="up", instance="`+n+`", job="node"}`]) == 0 {
				return n
			}
		}
		return ""
	})
	for _, bad := range [][]Target{
		{{Job: "a", Handler: http.NotFoundHandler()}, {Job: "a", Handler: http.NotFoundHandler()}},
		{{Job: "a", Handler: http.NotFoundHandler()}, {Job: "a", Instance: "b", Path: "/other", Handler: http.NotFoundHandler()}},
	} {
		if _, err := validateTargets(bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// TestConditionsSayTheSameWhileNothingChanges: a number that grows would be a report
// to the centre each time.
func TestConditionsSayTheSameWhileNothingChanges(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.down.Store(true)
	p := newPage(t, "a 1\n")
	c := start(t, r, func(o *Options) { o.ScrapeConfigs = []byte(static("app", p.addr())) })
	c.waitCondition(PushFailing, "True")
	first := fmt.Sprintf("%+v", c.Conditions())
	before := c.Status()
	eventually(t, func() string {
		if st := c.Status(); st.Spool.Pending < before.Spool.Pending+4 || st.Push.FailedRequests < before.Push.FailedRequests+2 {
			return fmt.Sprintf("%+v", st)
		}
		return ""
	})
	if now := fmt.Sprintf("%+v", c.Conditions()); now != first {
		t.Errorf("from\n%s\nto\n%s", first, now)
	}
}

func TestDefaultPolicyIsValid(t *testing.T) {
	if err := DefaultPolicy().Validate(); err != nil {
		t.Error(err)
	}
}
