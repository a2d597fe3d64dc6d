package cost

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit/realregional"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/gateway"
)

var (
	paris = fleet.SiteID{Tenant: "acme", Name: "paris"}
	rome  = fleet.SiteID{Tenant: "acme", Name: "rome"}
	tokyo = fleet.SiteID{Tenant: "umbrella", Name: "tokyo"}
)

// What arrives at a real gateway is what is told of each site and tenant.
func TestCostOfRealPushes(t *testing.T) {
	r := realregional.Start(t, "one", 1000)
	at := time.Now()
	now := at
	cpu := time.Duration(0)
	m, err := New(Options{Regional: "one", Sites: r.Gateway.Use, Series: r.Series, LineCPU: 40 * time.Microsecond, OtherSeries: func() int64 { return 100 }, Now: func() time.Time { return now },
		Logs: func() []Logs {
			return []Logs{{Site: rome, Lines: uint64(now.Sub(at) / time.Second), Bytes: 10 * uint64(now.Sub(at)/time.Second)}}
		},
		Process: func() Process { return Process{CPU: cpu, Memory: idleMemory + 400_000} }})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []struct {
		id fleet.SiteID
		n  int
	}{{paris, 200}, {tokyo, 100}} {
		c := r.Client(p.id)
		for i := range 3 {
			if code := r.Push(c, "node_load1", p.n, at.Add(time.Duration(i)*time.Second)); code != http.StatusNoContent {
				t.Fatalf("%s: status %d", p.id, code)
			}
		}
	}
	now, cpu = at.Add(100*time.Second), 10*time.Second
	res := httptest.NewRecorder()
	m.Handler().ServeHTTP(res, httptest.NewRequest(http.MethodGet, wire.CostPath, nil))
	got, err := wire.DecodeRegionalCost(res.Body.Bytes(), "one")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Sites) != 3 || got.Sites[0].Site != "paris" || got.Sites[1].Site != "rome" || got.Sites[2].Site != "tokyo" || got.Window != 100 {
		t.Fatalf("%+v", got)
	}
	p := got.Sites[0].Use
	if p.Series != 200 || p.SamplesPerSecond != 6 || p.PushesPerSecond != 0.03 || p.RefusedPerSecond != 0 || p.WireBytesPerSecond <= 0 || p.RawBytesPerSecond <= p.WireBytesPerSecond {
		t.Errorf("paris: %+v", p)
	}
	if q := got.Sites[1].Use; q.LogLinesPerSecond != 1 || q.LogBytesPerSecond != 10 || q.Series != 0 || q.CPUCores <= 0 {
		t.Errorf("rome: %+v", q)
	}
	// Of the memory half goes with the half of all series, and what falls on those that are
	// no tenant's is nobody's.
	if p.MemoryBytes != 200_000 || got.Sites[2].MemoryBytes != 100_000 {
		t.Errorf("memory: %v, %v", p.MemoryBytes, got.Sites[2].MemoryBytes)
	}
	var sum wire.Use
	for _, tenant := range got.Tenants {
		sum.Add(tenant.Use)
		if tenant.SeriesLimit != 1000 {
			t.Errorf("%+v", tenant)
		}
	}
	if len(got.Tenants) != 2 || got.Tenants[0].Series != 200 || sum.CPUCores <= 0 || sum.CPUCores >= got.Process.CPUCores || math.Abs(got.Process.CPUCores-0.1) > 1e-9 {
		t.Errorf("tenants %+v of %+v", got.Tenants, got.Process)
	}

	// Metrics have tenants, and no sites.
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m)
	if n, err := testutil.GatherAndCount(reg, "muster_cost_tenant_series", "muster_cost_tenant_cpu_cores"); err != nil || n != 4 {
		t.Errorf("%d metrics, %v", n, err)
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader("# HELP muster_cost_tenant_samples_per_second Samples taken of a tenant, over the last minutes.\n# TYPE muster_cost_tenant_samples_per_second gauge\nmuster_cost_tenant_samples_per_second{tenant=\"acme\"} 6\nmuster_cost_tenant_samples_per_second{tenant=\"umbrella\"} 3\n"), "muster_cost_tenant_samples_per_second"); err != nil {
		t.Error(err)
	}

	// The window moves on: what was before it counts no more.
	m.turn()
	now = now.Add(time.Minute)
	m.turn()
	now = now.Add(time.Minute)
	if s := m.Cost().Sites[0]; s.SamplesPerSecond != 0 || s.Series != 200 {
		t.Errorf("two minutes later: %+v", s)
	}
}

// A push that gets 429 is counted as one that was refused.
func TestRefusedPushesAreCounted(t *testing.T) {
	r := realregional.Start(t, "one", 0)
	c := r.Client(paris)
	refused := 0
	for i := range 400 {
		if code := r.Push(c, "node_load1", 9_000, time.Now().Add(time.Duration(i-400)*time.Second)); code == http.StatusTooManyRequests {
			if refused++; refused == 3 {
				break
			}
		}
	}
	var u gateway.SiteUse
	for _, s := range r.Gateway.Use() {
		u = s
	}
	if refused != 3 || u.Refused != 3 || u.Pushes < 4 || u.Samples == 0 || u.Work <= 0 {
		t.Errorf("%d refused, counted %+v", refused, u)
	}
}

// Counters that begin anew, because the gateway forgot the site, are no negative rates.
func TestCountersThatBeginAnew(t *testing.T) {
	old := counters{samples: 1000, wire: 1000, pushes: 10, refused: 3, work: time.Second, lines: 50, bytes: 500}
	got := counters{samples: 10, wire: 20, pushes: 1, lines: 60, bytes: 600}.since(old)
	if want := (counters{samples: 10, wire: 20, pushes: 1, lines: 10, bytes: 100}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := (counters{samples: 2000, wire: 3000, pushes: 20, lines: 1}).since(old); got.samples != 1000 || got.lines != 1 {
		t.Errorf("%+v", got)
	}
}

// What is shared out is never more than there is.
func TestPrices(t *testing.T) {
	const line = 40 * time.Microsecond
	all := counters{work: 10 * time.Second, lines: 1_000_000}
	for name, c := range map[string]struct {
		cpu         time.Duration
		memory      int64
		series      int64
		work, lines float64
	}{
		"work by the clock is more than was used": {5 * time.Second, idleMemory, 100, 0.5, 0},
		"lines take what is left":                 {20 * time.Second, idleMemory, 100, 1, 1e-5},
		"something is left for series":            {100 * time.Second, idleMemory, 100, 1, line.Seconds()},
		"less memory than an idle process":        {time.Second, 1, 100, 0.1, 0},
		"no series":                               {100 * time.Second, 2 * idleMemory, 0, 1, line.Seconds()},
		"a clock that went back":                  {-time.Second, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPrices(Process{Memory: c.memory}, c.cpu, all, c.series, line)
			if math.Abs(p.work-c.work) > 1e-9 || math.Abs(p.line-c.lines) > 1e-9 || p.memory < 0 || p.series < 0 {
				t.Errorf("%+v", p)
			}
			spent := p.work*all.work.Seconds() + p.line*float64(all.lines) + p.series*float64(c.series)
			if spent > max(c.cpu.Seconds(), 0)+1e-9 {
				t.Errorf("%v s given away of %v", spent, c.cpu)
			}
		})
	}
}

// A regional without sites says so, and nothing that is no number.
func TestNoSites(t *testing.T) {
	m, err := New(Options{Regional: "one", Sites: func() []gateway.SiteUse { return nil }, Series: gateway.NewHeadSeries(nil)})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(m.Cost())
	if err != nil {
		t.Fatal(err)
	}
	if c, err := wire.DecodeRegionalCost(b, "one"); err != nil || len(c.Sites)+len(c.Tenants) != 0 || c.Process.MemoryBytes <= 0 {
		t.Errorf("%s: %v", b, err)
	}
}

// BenchmarkCost is what one question costs with 3,000 sites.
func BenchmarkCost(b *testing.B) {
	sites := make([]gateway.SiteUse, 3000)
	series := gateway.NewHeadSeries(nil)
	for i := range sites {
		id := fleet.SiteID{Tenant: "acme", Name: fmt.Sprint("site-", i)}
		sites[i] = gateway.SiteUse{Site: id, Samples: uint64(i), Pushes: 1}
		series.PostCreation(labels.FromStrings(labels.MetricName, "up", fleet.SeriesTenant, id.Tenant, fleet.SeriesSite, id.Name))
	}
	m, err := New(Options{Regional: "one", Sites: func() []gateway.SiteUse { return sites }, Series: series})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if c := m.Cost(); len(c.Sites) != len(sites) {
			b.Fatal(len(c.Sites))
		}
	}
}
