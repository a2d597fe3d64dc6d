package engine

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/promql/parser"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health"
	"muster.dev/muster/internal/diskshare"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

func TestScoresAndWritesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, store := newRegional(t, "one"), newRegional(t, "two"), newCortex(t, "a", "b")
		inv := &shelf{changed: make(chan struct{}, 1)}
		inv.set([]*inventory.Site{aSite("a/paris", "shared/eu"), aSite("a/rome", "shared/eu", "shop/south"), aSite("b/paris"), aSite("a/new"), aSite("a/pending")},
			[]*inventory.VirtualSite{{Tenant: "a", Namespace: "shared", Name: "eu"}, {Tenant: "a", Namespace: "shop", Name: "south"}, {Tenant: "b", Namespace: "shared", Name: "none"}}, nil)
		inv.snap.Sites[inv.snap.Find("a", "pending")].Phase = fleet.PhasePending
		well(t, one.prom, "a/paris")
		one.connect("a/paris", true)
		well(t, two.prom, "a/rome")
		two.put(t, "temperature", `sensor="2"`, "a/rome", 30, 0)
		two.connect("a/rome", true)
		well(t, two.prom, "b/paris")
		two.put(t, "fire", `room="kitchen"`, "b/paris", 1, 0)
		two.connect("b/paris", true)
		// What rome left behind in the regional that it came from must not count.
		one.put(t, "fire", "", "a/rome", 1, time.Minute)
		one.connect("a/rome", false)
		// A site that nobody knows.
		well(t, one.prom, "a/stranger")

		r := begin(t, t.TempDir(), []*regional{one, two}, store, inv, nil)
		v := r.until("scores", func(v *View) bool { return v.Tick >= 2 })
		for id, want := range map[string]struct {
			score  float64
			colour fleet.Colour
			home   string
			phase  fleet.Phase
		}{"a/paris": {100, fleet.Green, "one", fleet.PhaseOnline}, "a/rome": {68.75, fleet.Orange, "two", fleet.PhaseOnline}, "b/paris": {37.5, fleet.Red, "two", fleet.PhaseOnline}, "a/new": {0, fleet.Grey, "", fleet.PhaseApproved}, "a/pending": {0, fleet.Grey, "", fleet.PhasePending}} {
			tenant, name, _ := strings.Cut(id, "/")
			s := v.Find(tenant, name)
			if score, _ := s.Score(); score != want.score || s.Colour() != want.colour || s.Home != want.home || s.Phase != want.phase {
				t.Errorf("%s: %v %s at %q %s, want %+v\n%s", id, score, s.Colour(), s.Home, s.Phase, want, describe(v))
			}
		}
		if got := v.Find("a", "rome").State.Reasons[0]; got.Signal != "temperature" || len(got.Objects) != 0 {
			t.Errorf("first reason %+v, want one whose series say nothing of an object", got)
		}
		if got := v.Find("b", "paris").State.Reasons[0]; got.Signal != "fire" || got.Text != "it burns" {
			t.Errorf("first reason %+v", got)
		}
		if v.Find("a", "pending").State != nil {
			t.Error("a pending site was evaluated")
		}
		eu := v.VirtualSites[0]
		if eu.Sites != 2 || eu.Mean != 84.375 || eu.WorstSite != "rome" || eu.Counts.Green != 1 {
			t.Errorf("virtual site: %+v", eu)
		}
		if len(v.Policies) != 1 || v.Policies[0].Sites != 4 || v.Policies[0].Signals[0].SitesKnown != 3 {
			t.Errorf("policies: %+v", v.Policies[0])
		}

		testkit.EventuallyTrue(t, "scores in the regionals and in Cortex", func() bool {
			return len(two.ask(t, fleet.MetricSiteScore)) == 2 && len(store.tenants["a"].ask(t, fleet.MetricSiteScore)) == 2 && len(store.tenants["b"].ask(t, fleet.MetricSiteScore)) == 1
		})
		for _, c := range []struct {
			p     *prom
			query string
			want  map[string]float64
		}{
			{one.prom, fleet.MetricSiteScore, map[string]float64{`{__name__="muster_site_health_score", region="eu", site="paris", tenant="a"}`: 100}},
			{two.prom, fleet.MetricSiteColour, map[string]float64{`{__name__="muster_site_health_colour", region="eu", site="rome", tenant="a"}`: 2, `{__name__="muster_site_health_colour", region="eu", site="paris", tenant="b"}`: 3}},
			{store.tenants["a"], fleet.MetricDimensionScore + `{site="rome",dimension="performance"}`, map[string]float64{`{__name__="muster_site_health_dimension_score", dimension="performance", region="eu", site="rome", tenant="a"}`: 50}},
			{store.tenants["a"], fleet.MetricVirtualSite + `{site="rome"}`, map[string]float64{`{__name__="muster_virtual_site_member", site="rome", tenant="a", virtual_site="shared/eu"}`: 1, `{__name__="muster_virtual_site_member", site="rome", tenant="a", virtual_site="shop/south"}`: 1}},
			{store.tenants["a"], fleet.MetricVirtualSiteScore + `{virtual_site="shared/eu"}`, map[string]float64{
				`{__name__="muster_virtual_site_health_score", stat="mean", tenant="a", virtual_site="shared/eu"}`:  84.375,
				`{__name__="muster_virtual_site_health_score", stat="p10", tenant="a", virtual_site="shared/eu"}`:   68.75,
				`{__name__="muster_virtual_site_health_score", stat="worst", tenant="a", virtual_site="shared/eu"}`: 68.75}},
			// The join that the members are for.
			{store.tenants["a"], `avg by (virtual_site) (muster_site_health_score * on (tenant, site) group_right () muster_virtual_site_member)`, map[string]float64{`{virtual_site="shared/eu"}`: 84.375, `{virtual_site="shop/south"}`: 68.75}},
		} {
			got := c.p.ask(t, c.query)
			if len(got) != len(c.want) {
				t.Errorf("%s: %v, want %v", c.query, got, c.want)
			}
			for k, x := range c.want {
				if got[k] != x {
					t.Errorf("%s: %s = %v, want %v", c.query, k, got[k], x)
				}
			}
		}

		// A membership and a site end: their series must end too, not linger.
		inv.set([]*inventory.Site{aSite("a/paris", "shared/eu"), aSite("a/rome", "shared/eu")}, []*inventory.VirtualSite{{Tenant: "a", Namespace: "shared", Name: "eu"}}, nil)
		testkit.EventuallyTrue(t, "the ended series to be gone", func() bool {
			return len(store.tenants["a"].ask(t, fleet.MetricVirtualSite)) == 2 && len(store.tenants["b"].ask(t, fleet.MetricSiteScore)) == 0 && len(two.ask(t, fleet.MetricSiteColour)) == 1 &&
				len(store.tenants["a"].ask(t, fleet.MetricVirtualSiteScore)) == 3
		})
		// A site that moves leaves no last word behind.
		well(t, one.prom, "a/rome")
		two.connect("a/rome", false)
		one.connect("a/rome", true)
		testkit.EventuallyTrue(t, "rome's series to move", func() bool {
			return len(two.ask(t, fleet.MetricSiteScore)) == 0 && len(one.ask(t, fleet.MetricSiteScore)) == 2
		})
		// Each query ran once a tick at each regional, whatever the number of tenants.
		asked := map[string]int{}
		for _, q := range one.asked() {
			asked[q]++
		}
		ticks := int(r.e.View().Tick)
		for q, n := range asked {
			if n > ticks+1 {
				t.Errorf("%d × %s in %d ticks", n, q, ticks)
			}
		}
		if strings.Contains(strings.Join(one.asked(), " "), "muster_site_connected") {
			t.Error("the uplink query was asked of a regional; its live view had the answer")
		}
	})
}

func TestUplinkShowsBetweenTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newRegional(t, "one")
		inv := &shelf{changed: make(chan struct{}, 1)}
		inv.set([]*inventory.Site{aSite("a/paris"), aSite("a/rome")}, nil, nil)
		for _, s := range []string{"a/paris", "a/rome"} {
			well(t, one.prom, s)
			one.connect(s, true)
		}
		r := begin(t, t.TempDir(), []*regional{one}, nil, inv, func(o *Options) {
			o.Tick, o.MissingGrace = time.Hour, 1500*time.Millisecond
			o.Offset = func(time.Duration) time.Duration { return 0 }
		})
		r.until("green", func(v *View) bool { return v.Find("a", "paris").Colour() == fleet.Green })
		one.connect("a/paris", false)
		v := r.until("paris red", func(v *View) bool { return v.Find("a", "paris").Colour() == fleet.Red })
		s := v.Find("a", "paris")
		if v.Tick != 1 {
			t.Errorf("it took a tick: %d", v.Tick)
		}
		if s.State.Dimensions[0].Score != 0 || !s.State.Dimensions[1].Stale || s.State.Reasons[0].Signal != health.SignalUplink || s.Phase != fleet.PhaseOffline {
			t.Errorf("%s", describe(v))
		}
		if c := v.Find("a", "rome").Colour(); c != fleet.Green {
			t.Errorf("rome is %s", c)
		}
		// One look at "not connected" is not enough: streams are re-established.
		one.connect("a/rome", false)
		one.connect("a/rome", true)
		one.connect("a/paris", true)
		r.until("paris online again", func(v *View) bool { return v.Find("a", "paris").State.Link == health.LinkUp })
		// A regional that forgot the site, as after a restart, is given time.
		one.forget("a/rome")
		began := time.Now()
		r.until("rome offline", func(v *View) bool { return v.Find("a", "rome").State.Link == health.LinkDown })
		if took := time.Since(began); took < 1200*time.Millisecond {
			t.Errorf("offline %s after its regional forgot it, want no less than the grace", took)
		}
	})
}

func TestRegionalAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, store := newRegional(t, "one"), newRegional(t, "two"), newCortex(t, "a", "b")
		inv := &shelf{changed: make(chan struct{}, 1)}
		inv.set([]*inventory.Site{aSite("a/paris"), aSite("b/paris"), aSite("b/lost"), aSite("b/other")}, nil, nil)
		for _, s := range []string{"a/paris", "b/paris", "b/lost"} {
			well(t, one.prom, s)
			one.connect(s, true)
		}
		well(t, two.prom, "b/other")
		two.connect("b/other", true)
		r := begin(t, t.TempDir(), []*regional{one, two}, store, inv, nil)
		r.until("all green", func(v *View) bool {
			for _, s := range v.Sites {
				if s.Colour() != fleet.Green {
					return false
				}
			}
			return true
		})
		// What the store knows differs, so that it shows whose word it is.
		push := float64(time.Now().Add(-40*time.Second).UnixMilli()) / 1000
		for tenant, site := range map[string]string{"a": "a/paris", "b": "b/paris"} {
			p := store.tenants[tenant]
			well(t, p, site)
			p.put(t, "temperature", `sensor="2"`, site, 25, 0)
			p.put(t, fleet.MetricSiteConnected, `regional="one"`, site, 1, 0)
			p.put(t, fleet.MetricSiteLastPush, `regional="one"`, site, push, 0)
		}
		// Another tenant's store must not speak for a site.
		store.tenants["a"].put(t, "fire", "", "b/paris", 1, 0)
		one.down.Store(true)
		// Colours follow a tick later, and a machine that stands still for a moment looks like
		// a regional that is away: so all of it is to hold in one view, not in the first.
		v := r.until("readings from the store, and the other regional's site untouched", func(v *View) bool {
			for _, id := range []string{"a", "b"} {
				if s := v.Find(id, "paris"); !s.FromStore || s.State.Dimensions[3].Score != 75 || s.State.Link != health.LinkUp || s.Colour() != fleet.Green {
					return false
				}
			}
			other := v.Find("b", "other")
			return v.Find("b", "lost").Colour() == fleet.Grey && !other.FromStore && other.Colour() == fleet.Green && !other.State.Dimensions[3].Stale
		})
		for _, id := range []string{"a", "b"} {
			age, most := v.Find(id, "paris").State.Dimensions[3].StaleSeconds(v.AsOf), v.AsOf.Unix()-int64(push)+1
			if age < 39 || age > most {
				t.Errorf("%s/paris: stale %d s, want 39 to %d s\n%s", id, age, most, describe(v))
			}
		}
		// The store says that it is not connected.
		store.tenants["a"].put(t, fleet.MetricSiteConnected, `regional="one"`, "a/paris", 0, 0)
		r.until("paris offline by the store's word", func(v *View) bool { return v.Find("a", "paris").State.Link == health.LinkDown })
		one.down.Store(false)
		r.until("the regional's own word again", func(v *View) bool {
			s := v.Find("a", "paris")
			return !s.FromStore && s.Colour() == fleet.Green && s.State.Dimensions[3].Score == 100 && !s.State.Dimensions[3].Stale && v.Find("b", "lost").Colour() == fleet.Green
		})
	})
}

func signal(name, query string) health.Signal {
	return health.Signal{Name: name, Dimension: fleet.Security, Query: query, Good: 0, Bad: 10, Weight: 1, Cap: health.NoCap}
}

func aPolicy(t *testing.T, tenant, name string, signals ...health.Signal) *policy {
	o := &v1alpha1.HealthPolicy{Spec: v1alpha1.HealthPolicySpec{Evaluations: 2}}
	for _, s := range signals {
		quantity := func(x float64) resource.Quantity { return resource.MustParse(fmt.Sprint(x)) }
		o.Spec.Signals = append(o.Spec.Signals, v1alpha1.Signal{Name: s.Name, Dimension: s.Dimension, Query: s.Query, Good: quantity(s.Good), Bad: quantity(s.Bad)})
	}
	m, err := health.FromPolicy(&o.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return &policy{Policy: &inventory.Policy{Kind: healthPolicies, Tenant: tenant, Name: name, Object: o}, model: m}
}

// An edited policy that is not valid leaves the last valid one in force, and says so;
// the first valid one of a site applies.
func TestInvalidPolicyKeepsTheLastValid(t *testing.T) {
	good, weaker := aPolicy(t, "a", "p", signal("x", "x")), aPolicy(t, "a", "weaker", signal("y", "y"))
	edited := *good.Policy
	edited.Object = &v1alpha1.HealthPolicy{Spec: v1alpha1.HealthPolicySpec{Signals: []v1alpha1.Signal{{Name: "x", Dimension: fleet.Security, Query: "x"}}}} // good as bad
	inv := &shelf{changed: make(chan struct{}, 1)}
	e := &Engine{opts: Options{Inventory: inv}, log: slog.New(slog.DiscardHandler), now: time.Now}
	e.rosters.e = e
	set := func(policies ...*inventory.Policy) *roster {
		site := aSite("a/paris")
		site.Policies = policies
		inv.set([]*inventory.Site{site, aSite("b/rome")}, nil, policies)
		return e.rosters.now()
	}
	r := set(good.Policy, weaker.Policy)
	if r.of[0] == nil || r.of[0].Name != "p" || r.of[0].err != nil || r.of[1] != nil || e.rosters.now() != r {
		t.Fatalf("%+v", r.of)
	}
	model := r.of[0].model
	for range 2 { // the second time around it is still remembered
		if r = set(&edited, weaker.Policy); r.of[0].model != model || r.of[0].err == nil {
			t.Fatalf("%+v", r.of[0])
		}
	}
	// One that was never valid is passed over.
	e.rosters = rosters{e: e}
	if r = set(&edited, weaker.Policy); r.of[0].Name != "weaker" || len(r.policies) != 2 || r.policies[0].err == nil {
		t.Fatalf("%+v", r.of[0])
	}
}

// TestFailingQueries: each way in which a query can fail makes its signal unknown
// with an error that says what to do, and touches nothing else.
func TestFailingQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newRegional(t, "one")
		bad := map[string]struct{ query, err string }{
			"dear":          {"max by (tenant, site) (sum_over_time(sum_over_time(temperature[1d:1s])[1d:1s]))", "longer step"},
			"unparsable":    {"max by (tenant, site) (", "can't be parsed"},
			"no-labels":     {"max(temperature)", "aggregate `by (tenant, site)`"},
			"no-site":       {"max by (tenant) (temperature)", "aggregate `by (tenant, site)`"},
			"two-series":    {"temperature", "more than one series for site paris"},
			"scalar":        {"1", "want an instant vector"},
			"matrix":        {"temperature[5m]", "want an instant vector"},
			"many-to-many":  {"temperature / on (tenant, site) temperature", "many-to-many"},
			"other-tenant":  {`label_replace(max by (tenant, site) (temperature), "tenant", "b", "", "")`, `tenant "b"`},
			"unknown-label": {`label_replace(max by (tenant, site) (temperature), "site", "", "", "")`, "aggregate `by (tenant, site)`"},
		}
		signals := []health.Signal{signal("fine", "max by (tenant, site) (temperature)"), signal("silent", "max by (tenant, site) (no_such_metric)")}
		for name, c := range bad {
			signals = append(signals, signal(name, c.query))
		}
		p := aPolicy(t, "a", "mixed", signals...)
		site := aSite("a/paris")
		site.Policies = []*inventory.Policy{p.Policy}
		other := aSite("b/rome")
		inv := &shelf{changed: make(chan struct{}, 1)}
		inv.set([]*inventory.Site{site, other}, nil, []*inventory.Policy{p.Policy})
		one.put(t, "temperature", `sensor="1"`, "a/paris", 5, 0)
		one.put(t, "temperature", `sensor="2"`, "a/paris", 4, 0)
		well(t, one.prom, "b/rome")
		one.connect("a/paris", true)
		one.connect("b/rome", true)
		r := begin(t, t.TempDir(), []*regional{one}, nil, inv, nil)
		v := r.until("a tick", func(v *View) bool { return v.Tick >= 1 })
		s := v.Find("a", "paris")
		for i, sig := range p.model.Signals {
			st, why := &s.State.Signals[i], s.State.NoteOf(i).Err
			switch c, isBad := bad[sig.Name]; {
			case isBad:
				if st.Known || !strings.Contains(why, c.err) {
					t.Errorf("%s: known %v, error %q, want one with %q", sig.Name, st.Known, why, c.err)
				}
				if got := v.Policies[0].Signals[i].Err; !strings.Contains(got, c.err) {
					t.Errorf("%s: the policy's error is %q", sig.Name, got)
				}
			case sig.Name == "silent":
				if st.Known || why != "" {
					t.Errorf("silent: %+v, want unknown without an error", st)
				}
			case sig.Name == "fine":
				if !st.Known || st.Value != 5 {
					t.Errorf("fine: %+v", st)
				}
			}
		}
		if s.State.Dimensions[2].Known {
			t.Error("one of twelve signals made the dimension known")
		}
		if o := v.Find("b", "rome"); o.Colour() != fleet.Green {
			t.Errorf("another tenant suffers: %s", describe(v))
		}
		testkit.EventuallyTrue(t, "the policy's report", func() bool {
			inv.mu.Lock()
			defer inv.mu.Unlock()
			return len(inv.policies) == 1 && inv.policies[0].Sites == 1 && len(inv.policies[0].Failing) == len(bad)
		})
		testkit.EventuallyTrue(t, "the metric", func() bool { return testutil.ToFloat64(r.e.metrics.failed) > 0 })
	})
}

// TestTenantsAreConfined: a tenant's own query sees its own series and no others,
// however it is written.
func TestTenantsAreConfined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newRegional(t, "one")
		for _, s := range []string{"a/paris", "b/paris", "c/paris"} {
			well(t, one.prom, s)
			one.connect(s, true)
		}
		one.put(t, "secret", "", "b/paris", 7, 0)
		p := aPolicy(t, "a", "curious",
			signal("plain", `max by (tenant, site) (secret)`),
			signal("sum", `temperature * 0 + on () group_left () sum(secret)`),
			signal("forged", `label_replace(label_replace(secret, "tenant", "a", "", ""), "site", "paris", "", "")`),
			signal("other", `max by (tenant, site) (secret{tenant="b"})`),
			signal("regex", `max by (tenant, site) ({__name__=~"sec.*"})`),
			signal("subquery", `max_over_time(max by (tenant, site) (secret)[5m:15s] offset 0s)`),
			signal("or", `max by (tenant, site) (temperature * 0 + scalar(sum(secret)))`),
			signal("count", `max by (tenant, site) (temperature) * 0 + on () group_left () count(temperature)`),
		)
		site := aSite("a/paris")
		site.Policies = []*inventory.Policy{p.Policy}
		inv := &shelf{changed: make(chan struct{}, 1)}
		inv.set([]*inventory.Site{site, aSite("b/paris"), aSite("c/paris")}, nil, []*inventory.Policy{p.Policy})
		r := begin(t, t.TempDir(), []*regional{one}, nil, inv, nil)
		v := r.until("a tick", func(v *View) bool { return v.Tick >= 1 })
		for i, sig := range p.model.Signals {
			st := v.Find("a", "paris").State.Signals[i]
			switch sig.Name {
			case "count":
				if !st.Known || st.Value != 1 {
					t.Errorf("count: %+v, want its own one series", st)
				}
			case health.SignalUplink:
			default:
				if st.Known && !math.IsNaN(st.Value) {
					t.Errorf("%s: sees another tenant's series: %v", sig.Name, st.Value)
				}
			}
		}
		for _, q := range one.asked() {
			if strings.Contains(q, "secret") && !strings.Contains(q, `tenant="a"`) {
				t.Errorf("asked without the tenant: %s", q)
			}
		}
	})
}

func TestPlanner(t *testing.T) {
	m := simple(t)
	pl, err := newPlanner(m)
	if err != nil {
		t.Fatal(err)
	}
	same := aPolicy(t, "a", "copy", health.Signal{Name: "x", Dimension: fleet.Performance, Query: "max  by(tenant,site)\n( temperature )", Good: 0, Bad: 1, Weight: 1})
	own := aPolicy(t, "a", "own", signal("y", "max by (tenant, site) (temperature + 1)"))
	twin := aPolicy(t, "a", "twin", signal("z", "max by (tenant, site) (temperature+1)"))
	other := aPolicy(t, "b", "own", signal("y", "max by (tenant, site) (temperature + 1)"))
	p := pl.plan([]*policy{nil, same, own, twin, other})
	if a, b := p.policies[same].query[0], p.shipped.query[0]; a != b {
		t.Errorf("a shipped query, written differently, is asked apart: %d %d", a, b)
	}
	if p.policies[own].query[0] != p.policies[twin].query[0] {
		t.Error("the same query of one tenant is asked twice")
	}
	if p.policies[own].query[0] == p.policies[other].query[0] {
		t.Error("two tenants share a confined query")
	}
	if q := p.queries[p.policies[other].query[0]]; q.tenant != "b" || !strings.Contains(q.text, `temperature{tenant="b"}`) {
		t.Errorf("%+v", q)
	}
	if pl.plan([]*policy{nil, same, own, twin, other}) != p {
		t.Error("the same policies made another plan")
	}
	if pl.plan([]*policy{nil, same}) == p {
		t.Error("other policies made the same plan")
	}
}

func FuzzConfine(f *testing.F) {
	for _, q := range []string{`up`, `sum by (x) (rate(a{b="c"}[5m] offset 1h)) / on() b`, `max_over_time((a or b)[5m:1m])`, `{__name__=~".+"}`, `a @ end()`, `absent(a{tenant="z"})`, `quantile_over_time(0.5, a[1m])`} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, text string) {
		expr, err := parser.ParseExpr(text)
		if err != nil {
			return
		}
		if err := confine(expr, "acme"); err != nil {
			t.Fatal(err)
		}
		again, err := parser.ParseExpr(expr.String())
		if err != nil {
			t.Skipf("not printed so that it parses: %v", err) // then it is not asked either: the regional refuses it
		}
		parser.Inspect(again, func(n parser.Node, _ []parser.Node) error {
			if vs, ok := n.(*parser.VectorSelector); ok {
				for _, m := range vs.LabelMatchers {
					if m.Name == "tenant" && m.Type.String() == "=" && m.Value == "acme" {
						return nil
					}
				}
				t.Fatalf("%q became %q: selector %s isn't confined", text, expr, vs)
			}
			return nil
		})
	})
}

func TestRestartKeepsColours(t *testing.T) {
	one, store := newRegional(t, "one"), newCortex(t, "a")
	inv := &shelf{changed: make(chan struct{}, 1)}
	sites := []*inventory.Site{aSite("a/paris", "shared/eu"), aSite("a/rome"), aSite("a/gone", "shared/eu")}
	vs := []*inventory.VirtualSite{{Tenant: "a", Namespace: "shared", Name: "eu"}}
	inv.set(sites, vs, nil)
	for _, s := range []string{"a/paris", "a/rome", "a/gone"} {
		well(t, one.prom, s)
		one.connect(s, true)
	}
	one.put(t, "fire", `room="1"`, "a/paris", 1, 0)
	dir := t.TempDir()
	r := begin(t, dir, []*regional{one}, store, inv, func(o *Options) {
		o.LiveMaxAge = time.Minute // a machine that stands still for a moment is not what this is about
	})
	r.until("colours", func(v *View) bool { return v.Tick >= 3 })
	one.connect("a/rome", false)
	before := r.until("rome offline", func(v *View) bool {
		return v.Find("a", "rome").State.Link == health.LinkDown && v.Find("a", "rome").State.Dimensions[1].Stale
	})
	testkit.EventuallyTrue(t, "the series", func() bool { return len(store.tenants["a"].ask(t, fleet.MetricVirtualSite)) == 2 })
	r.until("one more tick", func(v *View) bool { return v.Tick > before.Tick })
	r.stop()
	before = r.e.View()

	// While it was away: the fire is out, and one site is gone.
	one.put(t, "fire", `room="1"`, "a/paris", 0, 0)
	one.prom.put(t, "lock", "", "a/rome", 0, 0)
	inv.set(sites[:2], vs, nil)
	r = begin(t, dir, []*regional{one}, store, inv, nil)
	after := r.first()
	if after.Tick <= before.Tick {
		t.Errorf("ticks count from %d again, were at %d", after.Tick, before.Tick)
	}
	paris, was := after.Find("a", "paris").State, before.Find("a", "paris").State
	if paris.Colour != fleet.Red || !paris.Since.Equal(was.Since.Truncate(time.Millisecond)) || paris.Score != fleet.CriticalCap || !paris.Reasons[0].Held {
		t.Errorf("paris after the restart: %s since %s score %v; before: %s since %s", paris.Colour, paris.Since, paris.Score, was.Colour, was.Since)
	}
	rome, was := after.Find("a", "rome").State, before.Find("a", "rome").State
	if rome.Colour != fleet.Red || !rome.Since.Equal(was.Since.Truncate(time.Millisecond)) || !rome.Dimensions[2].Stale || rome.Dimensions[2].Score != 100 {
		t.Errorf("rome, offline, doesn't have its last values: %+v", rome.Dimensions)
	}
	r.until("paris green", func(v *View) bool { return v.Find("a", "paris").Colour() == fleet.Green })
	testkit.EventuallyTrue(t, "the series of the site that is gone to end", func() bool {
		return len(store.tenants["a"].ask(t, fleet.MetricVirtualSite)) == 1 && len(store.tenants["a"].ask(t, fleet.MetricSiteColour+`{site="gone"}`)) == 0
	})
}

func TestUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newRegional(t, "one")
		inv := &shelf{changed: make(chan struct{}, 1)}
		inv.set([]*inventory.Site{aSite("a/paris", "shared/eu"), aSite("a/rome")}, []*inventory.VirtualSite{{Tenant: "a", Namespace: "shared", Name: "eu"}}, nil)
		for _, s := range []string{"a/paris", "a/rome"} {
			well(t, one.prom, s)
			one.connect(s, true)
		}
		one.put(t, "temperature", `sensor="2"`, "a/rome", 30, 0)
		r := begin(t, t.TempDir(), []*regional{one}, nil, inv, nil)
		r.until("ticks", func(v *View) bool { return v.Tick >= 2 })
		sub, lazy := r.e.Subscribe(1000), r.e.Subscribe(1)
		defer sub.Close()
		u := <-sub.C
		for !u.Tick {
			u = <-sub.C
		}
		if len(u.Sites)+len(u.VirtualSites)+len(u.Removed) != 0 {
			t.Errorf("a quiet tick has changes: %+v", u)
		}
		one.put(t, "temperature", `sensor="2"`, "a/rome", 30.05, 0) // nobody would see it
		one.put(t, "fire", "", "a/paris", 1, 0)
		for len(u.Sites) == 0 {
			u = <-sub.C
		}
		if len(u.Sites) != 1 || u.Sites[0].ID.Name != "paris" || len(u.VirtualSites) != 1 || u.VirtualSites[0].Counts.Red != 1 {
			t.Errorf("%+v %+v", u.Sites, u.VirtualSites)
		}
		if len(u.Turned) != 1 || !u.Turned[0] {
			t.Errorf("it turned red: %v", u.Turned)
		}
		one.put(t, "temperature", `sensor="2"`, "a/rome", 33, 0) // a few points
		for u = <-sub.C; len(u.Sites) == 0; {
			u = <-sub.C
		}
		if len(u.Turned) != 1 || u.Turned[0] || u.Sites[0].ID.Name != "rome" {
			t.Errorf("%+v has not turned: %v", u.Sites, u.Turned)
		}
		inv.set([]*inventory.Site{aSite("a/paris")}, nil, nil)
		for len(u.Removed) == 0 {
			u = <-sub.C
		}
		if len(u.Removed) != 1 || u.Removed[0].Name != "rome" {
			t.Errorf("removed %v", u.Removed)
		}
		synctest.Wait()
		inv.mu.Lock()
		if !slices.Equal(inv.gone, u.Removed) {
			t.Errorf("what writes the status is told that %v are gone", inv.gone)
		}
		inv.mu.Unlock()
		// Who doesn't read is let go of.
		testkit.EventuallyTrue(t, "the lazy subscriber to be dropped", lazy.Dropped)
		lazy.Close()
		if sub.Dropped() {
			t.Error("the diligent one was dropped too")
		}
	})
}

func TestSlowQueriesMissTicksButNotTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newRegional(t, "one")
		inv := &shelf{changed: make(chan struct{}, 1)}
		inv.set([]*inventory.Site{aSite("a/paris")}, nil, nil)
		well(t, one.prom, "a/paris")
		one.connect("a/paris", true)
		r := begin(t, t.TempDir(), []*regional{one}, nil, inv, func(o *Options) { o.QueryTimeout = 700 * time.Millisecond })
		r.until("green", func(v *View) bool { return v.Find("a", "paris").Colour() == fleet.Green })
		one.slow.Store(int64(time.Hour))
		tick := r.e.View().Tick
		one.connect("a/paris", false)
		v := r.until("red", func(v *View) bool { return v.Find("a", "paris").Colour() == fleet.Red })
		if v.Tick > tick+1 {
			t.Errorf("it took %d ticks", v.Tick-tick)
		}
		one.connect("a/paris", true)
		v = r.until("the errors", func(v *View) bool { return v.Policies[0].Signals[0].Err != "" })
		if got := v.Policies[0].Signals[0].Err; !strings.Contains(got, "no answer within 700ms") {
			t.Errorf("error %q", got)
		}
		if testutil.ToFloat64(r.e.metrics.missed) == 0 {
			t.Error("no tick was missed")
		}
		// The model keeps the last values for a while: a query that fails is no outage.
		r.until("green again", func(v *View) bool { return v.Find("a", "paris").Colour() == fleet.Green })
	})
}

// A tenant whose own signals hang takes no other's turn, and of a tick no more time than
// one query may.
func TestSlowTenantDoesNotHoldTheTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newRegional(t, "one")
		one.stuck = `tenant="a"`
		var signals []health.Signal
		for i := range 30 {
			signals = append(signals, signal(fmt.Sprintf("s-%d", i), fmt.Sprintf("max by (tenant, site) (temperature + %d)", i)))
		}
		p := aPolicy(t, "a", "slow", signals...)
		site, other := aSite("a/paris"), aSite("b/rome")
		site.Policies = []*inventory.Policy{p.Policy}
		inv := &shelf{changed: make(chan struct{}, 1)}
		inv.set([]*inventory.Site{site, other}, nil, []*inventory.Policy{p.Policy})
		well(t, one.prom, "b/rome")
		one.connect("a/paris", true)
		one.connect("b/rome", true)
		r := begin(t, t.TempDir(), []*regional{one}, nil, inv, func(o *Options) { o.QueryTimeout = 300 * time.Millisecond })
		v := r.until("three ticks, another tenant does not suffer, and the slow one is told", func(v *View) bool {
			if v.Tick < 3 || v.Find("b", "rome").Colour() != fleet.Green {
				return false
			}
			st := v.Find("a", "paris").State
			return st.NoteOf(0).Err != "" && strings.Contains(st.NoteOf(29).Err, "together took longer")
		})
		// In fake time a query's time and all of its tenant's end at one moment, and the next one may just
		// have been asked.
		if most, all := one.stuckMost.Load(), one.stuckAll.Load(); most > 2 || uint64(all) > 2*v.Tick+2 {
			t.Errorf("%d of its 30 queries at one time, %d in %d ticks; want one that takes all of the time", most, all, v.Tick)
		}
	})
}

// The history of a tenant whom the store refuses waits on its own: the others' goes on,
// and after a restart each goes where it belongs.
func TestARefusedTenantsHistoryHoldsUpNobodyElses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, store := newRegional(t, "one"), newCortex(t, "greedy", "modest")
		store.refuses.Store("greedy", true)
		inv := &shelf{changed: make(chan struct{}, 1)}
		inv.set([]*inventory.Site{aSite("greedy/paris"), aSite("modest/paris")}, nil, nil)
		for _, s := range []string{"greedy/paris", "modest/paris"} {
			well(t, one.prom, s)
			one.connect(s, true)
		}
		dir := t.TempDir()
		r := begin(t, dir, []*regional{one}, store, inv, nil)
		written := func(tenant string) float64 {
			n := 0.0
			for _, v := range store.tenants[tenant].ask(t, "count_over_time(muster_site_health_score[1h])") {
				n += v
			}
			return n
		}
		r.until("twelve scores of the modest tenant in the store", func(*View) bool { return written("modest") >= 12 })
		if n := written("greedy"); n != 0 {
			t.Errorf("the store has %v scores of the tenant that it refuses", n)
		}
		r.stop()
		store.refuses.Clear()
		r = begin(t, dir, []*regional{one}, store, inv, nil)
		r.until("what waited in the store", func(*View) bool { return written("greedy") >= 12 })
	})
}

// On a disk that is nearly full the scores of the tenant that filled it are not kept for the store; the
// others' are.
func TestHistorySharesTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, store := newRegional(t, "one"), newCortex(t, "greedy", "modest")
		inv := &shelf{changed: make(chan struct{}, 1)}
		inv.set([]*inventory.Site{aSite("greedy/paris"), aSite("modest/paris")}, nil, nil)
		for _, s := range []string{"greedy/paris", "modest/paris"} {
			well(t, one.prom, s)
			one.connect(s, true)
		}
		var free atomic.Int64
		free.Store(200 << 20)
		disk := diskshare.New(func() (int64, int64, error) { return free.Load(), 20 << 30, nil }, nil)
		disk.Count("greedy", 1_000_000)
		disk.Look()
		r := begin(t, t.TempDir(), []*regional{one}, store, inv, func(o *Options) { o.Disk = disk })
		written := func(tenant string) bool {
			return len(store.tenants[tenant].ask(t, "muster_site_health_score")) > 0
		}
		v := r.until("scores of the modest tenant in the store", func(*View) bool { return written("modest") })
		if written("greedy") {
			t.Error("the scores of the tenant that fills the disk are kept")
		}
		if v.Find("greedy", "paris").Colour() != fleet.Green {
			t.Errorf("its site is %s: what is not kept is shown all the same", v.Find("greedy", "paris").Colour())
		}
		free.Store(10 << 30)
		disk.Look()
		r.until("scores of both, with room again", func(*View) bool { return written("greedy") })
	})
}

func TestNewRefuses(t *testing.T) {
	good := Options{Inventory: &shelf{}, Status: &shelf{}, Shipped: simple(t), Logger: begin(t, t.TempDir(), nil, nil, &shelf{changed: make(chan struct{}), snap: inventory.NewSnapshot(1, nil, nil, nil)}, nil).opts.Logger, Dir: t.TempDir()}
	for name, f := range map[string]func(*Options){
		"no inventory": func(o *Options) { o.Inventory = nil }, "no status": func(o *Options) { o.Status = nil },
		"no model":  func(o *Options) { o.Shipped = nil },
		"no dir":    func(o *Options) { o.Dir = "" },
		"no name":   func(o *Options) { o.Regionals = []Regional{{"", "http://x"}} },
		"same name": func(o *Options) { o.Regionals = []Regional{{"a", "http://x"}, {"a", "http://y"}} },
		"bad URL":   func(o *Options) { o.Regionals = []Regional{{"a", "x:1"}} },
	} {
		o := good
		f(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A reason names what is to blame, the worst first, and forgets it when it is over.
func TestReasonsNameObjects(t *testing.T) {
	one := newRegional(t, "one")
	inv := &shelf{changed: make(chan struct{}, 1)}
	inv.set([]*inventory.Site{aSite("a/paris"), aSite("b/paris")}, nil, nil)
	for _, s := range []string{"a/paris", "b/paris"} {
		well(t, one.prom, s)
		one.connect(s, true)
	}
	for node, v := range map[string]float64{"n1": 30, "n2": 36, "n3": 19} {
		one.put(t, "temperature", `node="`+node+`"`, "a/paris", v, 0)
	}
	r := begin(t, t.TempDir(), []*regional{one}, nil, inv, nil)
	v := r.until("named nodes", func(v *View) bool {
		s := v.Find("a", "paris").State
		return s != nil && len(s.Reasons) > 0 && len(s.Reasons[0].Objects) > 0
	})
	got := v.Find("a", "paris").State.Reasons[0]
	if want := "temperature is 36 degrees, threshold 20 degrees: node n2 (36 degrees), node n1 (30 degrees)"; got.Text != want {
		t.Errorf("%q, want %q", got.Text, want)
	}
	for _, q := range one.asked() {
		if strings.Contains(q, "topk") && !strings.Contains(q, `site=~"paris"`) {
			t.Errorf("asked about all sites: %s", q)
		}
	}
	if s := v.Find("b", "paris").State; len(s.Reasons) != 0 {
		t.Errorf("a healthy site has reasons: %+v", s.Reasons)
	}
	one.put(t, "temperature", `node="n2"`, "a/paris", 20, 0)
	r.until("the cooled node gone from the reason", func(v *View) bool {
		s := v.Find("a", "paris").State
		return len(s.Reasons) > 0 && len(s.Reasons[0].Objects) == 1 && s.Reasons[0].Objects[0] == "node n1 (30 degrees)"
	})
}

// An acknowledged push proves a link without a stream; a lost stream is counted.
func TestPushesProveALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newRegional(t, "one")
		inv := &shelf{changed: make(chan struct{}, 1)}
		inv.set([]*inventory.Site{aSite("a/agent"), aSite("a/stock")}, nil, nil)
		for _, s := range []string{"a/agent", "a/stock"} {
			well(t, one.prom, s)
		}
		one.connect("a/agent", true)
		push := func(site string, ago time.Duration) {
			one.mu.Lock()
			defer one.mu.Unlock()
			tenant, name, _ := strings.Cut(site, "/")
			l := one.sites[site]
			if l == nil {
				l = &wire.SiteLive{Tenant: tenant, Site: name}
				one.sites[site] = l
			}
			l.LastPush = time.Now().Add(-ago)
		}
		push("a/stock", 0) // a Prometheus in agent mode: it pushes and has no stream
		r := begin(t, t.TempDir(), []*regional{one}, nil, inv, func(o *Options) { o.Patience, o.PushPatience = 2*time.Second, 6*time.Second })
		r.until("both online", func(v *View) bool {
			return v.Find("a", "stock").Phase == fleet.PhaseOnline && v.Find("a", "agent").Phase == fleet.PhaseOnline && v.Tick > 1
		})
		one.connect("a/agent", false) // and its push is new
		tick := r.e.View().Tick
		v := r.until("some ticks without a stream", func(v *View) bool { return v.Tick > tick+4 })
		if s := v.Find("a", "agent"); s.State.Link != health.LinkUp || s.Colour() != fleet.Green {
			t.Errorf("a site whose pushes arrive is %s %s", s.State.Link, s.Colour())
		}
		r.until("offline after its patience", func(v *View) bool { return v.Find("a", "agent").Colour() == fleet.Red })
		if s := r.e.View().Find("a", "stock"); s.State.Link != health.LinkUp {
			t.Errorf("the other's push was not patient enough: %s", describe(r.e.View()))
		}
		r.until("the site without pushes is offline", func(v *View) bool { return v.Find("a", "stock").Colour() == fleet.Red })
	})
}

// Where a regional's clock is wrong its sites are no less online for it, and none of them flaps.
func TestARegionalWhoseClockIsWrong(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Minute, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			one := newRegional(t, "one")
			one.ahead = ahead
			inv := &shelf{changed: make(chan struct{}, 1)}
			inv.set([]*inventory.Site{aSite("a/agent"), aSite("a/stock")}, nil, nil)
			for _, s := range []string{"a/agent", "a/stock"} {
				well(t, one.prom, s)
			}
			one.connect("a/agent", true)
			one.sites["a/stock"] = &wire.SiteLive{Tenant: "a", Site: "stock", LastPush: time.Now()} // it pushes and has no stream
			r := begin(t, t.TempDir(), []*regional{one}, nil, inv, func(o *Options) { o.PushPatience = 6 * time.Second })
			v := r.until("some seconds", func(v *View) bool { return v.Tick > 30 })
			for _, s := range []string{"agent", "stock"} {
				if got := v.Find("a", s); got.State.Link != health.LinkUp || got.Colour() != fleet.Green {
					t.Errorf("%s: %s", ahead, describe(v))
				}
			}
			if got := testutil.ToFloat64(r.e.metrics.clockAhead.WithLabelValues("one")); got != ahead.Seconds() {
				t.Errorf("its clock is %g s ahead, want %g", got, ahead.Seconds())
			}
			r.until("silent for longer than its patience", func(v *View) bool { return v.Find("a", "stock").Colour() == fleet.Red })
			r.stop()
			if n := r.e.mem[fleet.SiteID{Tenant: "a", Name: "agent"}].reconnects(time.Now()); n != 0 {
				t.Errorf("%s: its stream was lost %d times", ahead, n)
			}
		})
	}
}

func TestReconnectsAreCounted(t *testing.T) {
	m, now := &memory{}, time.Unix(1e9, 0)
	for i, since := range []int64{1, 1, 0, 2, 3, 0, 0, 3} { // lost; another stream; lost
		at := time.Time{}
		if since > 0 {
			at = time.Unix(since, 0)
		}
		m.streamed(at, now.Add(time.Duration(i)*time.Second))
	}
	if n := m.reconnects(now.Add(10 * time.Second)); n != 3 {
		t.Errorf("%d, want 3", n)
	}
	if n := m.reconnects(now.Add(20 * time.Minute)); n != 0 {
		t.Errorf("%d after the window", n)
	}
}

// An override changes a signal at the sites that it names, until its day.
func TestOverrides(t *testing.T) {
	p := aPolicy(t, "a", "p", signal("x", "x"))
	spec := &p.Object.(*v1alpha1.HealthPolicy).Spec
	now := time.Unix(1e9, 0)
	bad := resource.MustParse("20")
	spec.Overrides = []v1alpha1.SignalOverride{{Sites: []string{"paris"}, VirtualSites: []string{"shared/eu"}, Reason: "old hardware", Until: metav1.NewTime(now.Add(time.Hour)), Signals: []v1alpha1.SignalChange{{Name: "x", Bad: &bad}}}}
	inv := &shelf{changed: make(chan struct{}, 1)}
	e := &Engine{opts: Options{Inventory: inv}, log: slog.New(slog.DiscardHandler), now: func() time.Time { return now }}
	e.rosters.e = e
	var sites []*inventory.Site
	for _, s := range []*inventory.Site{aSite("a/paris"), aSite("a/rome", "shared/eu"), aSite("a/oslo")} {
		s.Policies = []*inventory.Policy{p.Policy}
		sites = append(sites, s)
	}
	inv.set(sites, nil, []*inventory.Policy{p.Policy})
	bads := func() (out [3]float64) {
		r := e.rosters.now()
		for i, site := range r.Sites {
			out[i] = r.of[i].model.Signals[0].Bad
			if (r.of[i].base != nil) != (site.ID.Name != "oslo" && now.Unix() < 1e9+3600) {
				t.Errorf("%s: base %v", site.ID, r.of[i].base)
			}
		}
		return out
	}
	if got := bads(); got != [3]float64{10, 20, 20} { // oslo, paris, rome
		t.Errorf("bad of oslo, paris, rome: %v", got)
	}
	now = now.Add(time.Hour)
	if got := bads(); got != [3]float64{10, 10, 10} {
		t.Errorf("after its day: %v", got)
	}
	spec.Overrides[0].Signals[0].Name = "y"
	if _, err := modelOf(spec); err == nil || !strings.Contains(err.Error(), "overrides[0]") {
		t.Errorf("an unknown signal is taken: %v", err)
	}
}
