package forward

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"go.uber.org/goleak"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/spool"
	"muster.dev/muster/internal/testkit"
)

// cortexStub is a receiver that refuses one tenant for its limits, as Cortex does.
type cortexStub struct {
	mu   sync.Mutex
	got  map[string]int
	full string
}

func (s *cortexStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tenant := r.Header.Get("X-Scope-OrgID")
	if tenant == s.full {
		w.Header().Set("Retry-After", "60")
		http.Error(w, "limit", http.StatusTooManyRequests)
		return
	}
	body, err := io.ReadAll(r.Body)
	raw, derr := snappy.Decode(nil, body)
	if err != nil || derr != nil {
		http.Error(w, "body", http.StatusBadRequest)
		return
	}
	var d remotewrite.Decoder
	d.Reset(raw, true, remotewrite.Limits{})
	n := 0
	for d.Next() {
		n += len(d.Samples)
	}
	s.got[tenant] += n
	w.Header().Set("X-Prometheus-Remote-Write-Samples-Written", strconv.Itoa(n))
	w.WriteHeader(http.StatusNoContent)
}

func (s *cortexStub) count(tenant string) int { s.mu.Lock(); defer s.mu.Unlock(); return s.got[tenant] }

func batch() []remotewrite.Series {
	return []remotewrite.Series{{Labels: labels.FromStrings("__name__", "up"), Samples: []remotewrite.Sample{{T: 1000, V: 1}}}}
}

func TestARefusedTenantHoldsUpNobodyElseAndLosesNothing(t *testing.T) {
	st := &cortexStub{got: map[string]int{}, full: "greedy"}
	srv := httptest.NewServer(st)
	defer srv.Close()
	dir := t.TempDir()
	open := func() *Queues {
		q, err := Open(Options{Dir: dir, URL: srv.URL, MaxBytes: 16 << 20, OnFull: spool.RefuseNew, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	// What an earlier version left beside the tenants' folders is in nobody's way.
	if err := os.WriteFile(filepath.Join(dir, "0000000000000001.seg"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := open()
	for range 20 {
		for _, tenant := range []string{"greedy", "modest"} {
			if err := f.Append(tenant, batch()); err != nil {
				t.Fatal(err)
			}
		}
	}
	testkit.EventuallyTrue(t, "all of the other tenant's batches arrive", func() bool { return st.count("modest") == 20 })
	if n := st.count("greedy"); n != 0 {
		t.Errorf("%d batches of the refused tenant were taken", n)
	}
	if err := f.Append("../escape", batch()); err == nil {
		t.Error("a tenant that is no name was queued")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Append("late", batch()); err == nil {
		t.Error("a batch was queued after the end")
	}

	// After a restart what was refused is sent, without a new batch to wake it.
	st.mu.Lock()
	st.full = ""
	st.mu.Unlock()
	f = open()
	testkit.EventuallyTrue(t, "the refused tenant's batches arrive after a restart", func() bool { return st.count("greedy") == 20 })
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestTenantsWhoAreGoneAreRetired: their queues go with files, figures and goroutines, once
// they are empty or too old to be taken; the others stay, and whoever is back is served.
func TestTenantsWhoAreGoneAreRetired(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
	st := &cortexStub{got: map[string]int{}, full: "stuck"}
	srv := httptest.NewServer(st)
	defer srv.Close()
	dir, reg := t.TempDir(), prometheus.NewRegistry()
	var later atomic.Int64
	f, err := Open(Options{Dir: dir, URL: srv.URL, OnFull: spool.RefuseNew, Logger: slog.New(slog.DiscardHandler), Registerer: reg,
		Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"stays", "goes", "stuck"} {
		if err := f.Append(tenant, batch()); err != nil {
			t.Fatal(err)
		}
	}
	testkit.EventuallyTrue(t, "what can be sent is", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.byName["stays"].spool.Stats().Pending+f.byName["goes"].spool.Stats().Pending == 0
	})
	retire := func(want string) {
		t.Helper()
		got, err := f.Retire(func(tenant string) bool { return tenant != "stays" })
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("retired %q, want %q: %v", got, want, err)
		}
	}
	tenants := func() string {
		seen := map[string]bool{}
		mfs, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, mf := range mfs {
			for _, m := range mf.Metric {
				for _, l := range m.Label {
					if l.GetName() == "tenant" {
						seen[l.GetValue()] = true
					}
				}
			}
		}
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range files {
			names = append(names, e.Name())
		}
		return strings.Join(slices.Sorted(maps.Keys(seen)), " ") + " / " + strings.Join(names, " ")
	}
	retire("goes")
	if got := tenants(); got != "stays stuck / stays stuck" {
		t.Errorf("figures and folders are left of %s", got)
	}
	later.Store(int64(fleet.DefaultSpoolMaxAge - time.Minute))
	retire("")
	later.Store(int64(fleet.DefaultSpoolMaxAge + time.Minute))
	retire("stuck")
	if got := tenants(); got != "stays / stays" {
		t.Errorf("figures and folders are left of %s", got)
	}
	for _, tenant := range []string{"stays", "goes"} {
		if err := f.Append(tenant, batch()); err != nil {
			t.Error(err)
		}
		testkit.EventuallyTrue(t, "a second batch of "+tenant, func() bool { return st.count(tenant) == 2 })
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	srv.Client().CloseIdleConnections()
}

// TestRetiringLosesNothing retires a tenant again and again who is not gone at all.
func TestRetiringLosesNothing(t *testing.T) {
	st := &cortexStub{got: map[string]int{}}
	srv := httptest.NewServer(st)
	defer srv.Close()
	f, err := Open(Options{Dir: t.TempDir(), URL: srv.URL, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	pending := func() uint64 {
		f.mu.Lock()
		t := f.byName["back"]
		f.mu.Unlock()
		if t == nil {
			return 0
		}
		return t.spool.Stats().Pending
	}
	var taken, ended atomic.Int64
	for range 4 {
		go func() {
			defer ended.Add(1)
			for mine := 0; mine < 100; {
				for pending() > 0 { // so that there are moments when it may be retired
					runtime.Gosched()
				}
				if err := f.Append("back", batch()); err == nil {
					taken.Add(1)
					mine++
				} else if !errors.Is(err, errRetired) {
					t.Error(err)
					return
				}
			}
		}()
	}
	n := 0
	for ended.Load() < 4 {
		got, err := f.Retire(func(string) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		n += len(got)
	}
	testkit.EventuallyTrue(t, "all that was taken is sent", func() bool { return int64(st.count("back")) >= taken.Load() })
	t.Logf("%d batches taken, %d sent, the queue retired %d times", taken.Load(), st.count("back"), n)
	if n == 0 {
		t.Error("it was never retired")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestASitesSeriesKeepTheirLane has rules' results of many sites between the pushes.
func TestASitesSeriesKeepTheirLane(t *testing.T) {
	q := &Queues{opts: Options{Concurrency: 4}}
	series := func(site, name string) remotewrite.Series {
		return remotewrite.Series{Labels: labels.FromStrings("__name__", name, "site", site)}
	}
	lane := map[string]uint32{}
	for i := range 50 {
		var all []remotewrite.Series
		for j := range 40 {
			all = append(all, series(strconv.Itoa((i*7+j/3)%20), strconv.Itoa(j)))
		}
		if i%2 == 0 {
			all = all[:3]
			all[1], all[2] = all[0], all[0]
		}
		n := 0
		for l, part := range q.lanes(all) {
			n += len(part)
			for _, s := range part {
				site := s.Labels.Get("site")
				if was, ok := lane[site]; ok && was != l {
					t.Fatalf("site %s in lane %d, before in %d", site, l, was)
				}
				lane[site] = l
			}
		}
		if n != len(all) || i%2 == 0 && len(q.lanes(all)) != 1 {
			t.Fatalf("%d of %d series in %d lanes", n, len(all), len(q.lanes(all)))
		}
	}
	if len(lane) != 20 {
		t.Errorf("%d sites", len(lane))
	}
}
