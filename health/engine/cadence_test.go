package engine

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/health"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/wire"
)

// paced is an engine above one regional that ticks when the test says so.
type paced struct {
	t   testing.TB
	e   *Engine
	reg *regional
	inv *shelf

	known map[string]bool // sites that have values
}

// A fast signal, a slow one, a critical one that looks back as far, and a pack.
const (
	fastQuery     = "max by (tenant, site) (temperature)"
	slowQuery     = "max by (tenant, site) (temperature - min_over_time(temperature[10m]))"
	criticalQuery = "max by (tenant, site) (max_over_time(fire[10m]))"
	mixedQuery    = "max by (tenant, site) (max_over_time(lock[10m]) - min_over_time(lock[1m]))"
	daysQuery     = "max by (tenant, site) (lock)"
	packQuery     = "count by (tenant, site) (fire)"
)

func newPaced(t *testing.T, since time.Time, sites ...string) *paced {
	m, err := health.NewModel(health.Options{
		Weights: [4]float64{1, 1, 1, 1}, WorstShare: health.DefaultWorstShare, Packs: []health.Pack{{Name: "fire", Query: packQuery}},
		Signals: []health.Signal{
			{Name: "fast", Dimension: fleet.Performance, Query: fastQuery, Good: 20, Bad: 40, Weight: 1, Cap: health.NoCap},
			{Name: "slow", Dimension: fleet.Performance, Query: slowQuery, Good: 0, Bad: 10, Weight: 1, Cap: health.NoCap},
			{Name: "critical", Dimension: fleet.Reliability, Query: criticalQuery, Good: 0, Bad: 1, Weight: 1, Cap: fleet.CriticalCap, Pack: "fire"},
			{Name: "mixed", Dimension: fleet.Security, Query: mixedQuery, Good: 0, Bad: 1, Weight: 1, Cap: health.NoCap},
			{Name: "days", Dimension: fleet.Security, Query: daysQuery, Good: 1, Bad: 0, Weight: 1, Cap: health.NoCap, Unit: "days"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &paced{t: t, reg: newRegional(t, "one"), inv: &shelf{changed: make(chan struct{}, 1)}, known: map[string]bool{}}
	o := Options{Shipped: m, Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler), LiveMaxAge: time.Hour, Client: &http.Client{Transport: hosts{"one": p.reg}}, Inventory: p.inv, Status: p.inv, Regionals: []Regional{{Name: "one", URL: p.reg.url}}}
	if p.e, err = New(o); err != nil {
		t.Fatal(err)
	}
	p.set(since, sites...)
	return p
}

// set makes these the fleet.
func (p *paced) set(since time.Time, sites ...string) {
	now := time.Now()
	var list []*inventory.Site
	var live []wire.SiteLive
	for _, id := range sites {
		s := aSite(id)
		list = append(list, s)
		live = append(live, wire.SiteLive{Tenant: s.ID.Tenant, Site: s.ID.Name, Connected: true, ConnectedSince: since, LastHeartbeat: now, LastPush: now})
		if !p.known[id] {
			p.known[id] = true
			well(p.t, p.reg.prom, id)
		}
	}
	p.inv.set(list, nil, nil)
	p.e.polled(poll{regional: 0, answer: wire.LiveView{Sites: live}, at: now})
}

// tick runs a number of ticks and returns how often each query was asked.
func (p *paced) tick(n int) map[string]int {
	from := len(p.reg.asked())
	for range n {
		done := make(chan *answers, 1)
		p.e.collect(context.Background(), done)()
		p.e.pass(<-done)
	}
	out := map[string]int{}
	for _, q := range p.reg.asked()[from:] {
		out[q]++
	}
	return out
}

func (p *paced) want(what string, got, want map[string]int) {
	p.t.Helper()
	if !maps.Equal(got, want) {
		p.t.Errorf("%s: asked %v, want %v", what, got, want)
	}
}

func (p *paced) signal(site, name string) health.SignalState {
	p.t.Helper()
	tenant, s, _ := strings.Cut(site, "/")
	st := p.e.View().Find(tenant, s).State
	for i := range st.Model.Signals {
		if st.Model.Signals[i].Name == name {
			return st.Signals[i]
		}
	}
	p.t.Fatalf("no signal %s", name)
	return health.SignalState{}
}

var once = map[string]int{fastQuery: 1, slowQuery: 1, criticalQuery: 1, mixedQuery: 1, daysQuery: 1, packQuery: 1}

// TestSlowSignalsAndPacksAreHeld: what moves slowly is asked for every third tick, packs every
// fourth; between, what was said last holds. What is new is asked about at once.
func TestSlowSignalsAndPacksAreHeld(t *testing.T) {
	before := time.Now().Add(-time.Hour)
	p := newPaced(t, before, "a/paris", "b/rome")
	p.want("the first tick", p.tick(1), once)
	p.want("twelve more", p.tick(12), map[string]int{fastQuery: 12, criticalQuery: 12, mixedQuery: 12, slowQuery: 4, daysQuery: 4, packQuery: 3})

	// Values hold, and are news within three ticks.
	p.reg.put(t, "temperature", "", "a/paris", 25, 0)
	for i := range slowTicks {
		p.tick(1)
		if fast := p.signal("a/paris", "fast"); fast.Value != 25 {
			t.Errorf("tick %d: fast is %v", i, fast)
		}
		if slow := p.signal("a/paris", "slow"); !slow.Known || i == slowTicks-1 && slow.Value != 5 {
			t.Errorf("tick %d: slow is %+v", i, slow)
		}
		if s := p.signal("b/rome", "critical"); !s.Applies || !s.Known {
			t.Errorf("tick %d: the pack is gone: %+v", i, s)
		}
	}

	// The same sites in a new snapshot change nothing; another site is asked about at once.
	p.set(before, "a/paris", "b/rome")
	if n := p.tick(slowTicks)[slowQuery]; n != 1 {
		t.Errorf("a new snapshot of the same sites: asked %d times", n)
	}
	p.set(before, "a/milan", "a/paris", "b/rome")
	p.want("a new site", p.tick(1), once)
	for id, want := range map[string]float64{"a/milan": 0, "a/paris": 5, "b/rome": 0} {
		if got := p.signal(id, "slow"); !got.Known || got.Value != want {
			t.Errorf("%s: slow is %+v, want %v", id, got, want)
		}
	}
	// A place that the last tick did not ask is asked everything.
	p.e.regionals[0].ok = false
	p.tick(1)
	p.e.regionals[0].ok = true
	p.want("a regional that is back", p.tick(1), once)
}

// TestPacksOfANewSite: a site that has just connected for the first time does not wait.
func TestPacksOfANewSite(t *testing.T) {
	p := newPaced(t, time.Now().Add(-time.Second), "a/paris")
	p.tick(1)
	if n := p.tick(8)[packQuery]; n != 8 {
		t.Errorf("asked for packs in %d of 8 ticks", n)
	}
	// One that was lost and is back has packs.
	p.set(time.Now(), "a/paris")
	p.e.aligned[0].link, p.e.aligned[0].since = health.LinkUp, time.Now().Add(time.Second)
	if n := p.tick(8)[packQuery]; n != 2 {
		t.Errorf("asked for packs in %d of 8 ticks after a lost connection, want 2", n)
	}
}

// A slow query that fails is asked again in the next tick.
func TestFailedSlowQueryIsDueAgain(t *testing.T) {
	p := newPaced(t, time.Now().Add(-time.Hour), "a/paris")
	p.tick(1)
	q := slices.IndexFunc(p.e.answers.plan.queries, func(q query) bool { return q.text == slowQuery })
	p.e.answers.errs[q] = map[int32]string{0: "too slow"}
	if n := p.tick(1)[slowQuery]; n != 1 {
		t.Errorf("asked %d times after a failure", n)
	}
	if len(p.e.answers.errs[q]) != 0 {
		t.Error("the failure stays")
	}
}

// A site that has moved is not read where it was, though that still answers as before.
func TestExpectedSiteHasMoved(t *testing.T) {
	snap := inventory.NewSnapshot(1, []*inventory.Site{aSite("a/milan"), aSite("a/paris"), aSite("a/rome")}, nil, nil)
	a := &answers{}
	a.reset(&roster{Snapshot: snap}, &plan{queries: []query{{text: "x"}}, every: []int{1}}, time.Now())
	answer := []byte(`{"status":"success","data":{"resultType":"vector","result":[` +
		`{"metric":{"site":"milan","tenant":"a"},"value":[1,"1"]},{"metric":{"site":"paris","tenant":"a"},"value":[1,"2"]},{"metric":{"site":"rome","tenant":"a"},"value":[1,"3"]}]}}`)
	for i, home := range []int32{0, 0, 1} { // of paris
		a.home[0], a.home[1], a.home[2] = 0, home, 0
		clear(a.have[0])
		slow := 0
		r := answerReader{a: a, value: a.value[0], have: a.have[0], next: a.next[0], last: -1, guess: -1}
		err := decodeExpected(answer, &r, func(tenant, site []byte, v float64) error { slow++; return r.add(tenant, site, v) })
		if err != nil {
			t.Fatal(err)
		}
		if want := []bool{true, home == 0, true}; !slices.Equal(a.have[0], want) {
			t.Errorf("round %d: read %v, want %v", i, a.have[0], want)
		}
		if i == 1 && slow != 1 {
			t.Errorf("%d series were read by their labels, want the first", slow)
		}
	}
}
