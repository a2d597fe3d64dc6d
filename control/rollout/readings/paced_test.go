package readings_test

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"k8s.io/apimachinery/pkg/api/resource"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/control/rollout/readings"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/promexpr"
)

// scraped puts what sites send, each at its interval, the last scrape just before the next is due.
func (w *world) scraped(now time.Time, intervals map[string]time.Duration) (paces map[string]time.Duration) {
	paces = map[string]time.Duration{}
	at := map[time.Time][]string{}
	for site, every := range intervals {
		if p := fleet.Slow(every); p > 0 {
			paces[site] = p
		}
		for t := now.Add(5*time.Second - every); now.Sub(t) < 2*time.Hour; t = t.Add(-every) {
			at[t] = append(at[t], site)
		}
	}
	for _, t := range slices.SortedFunc(maps.Keys(at), time.Time.Compare) {
		for _, site := range at[t] {
			w.put("load", site, 7, t)
			w.put("errors_total", site, 3*float64(t.Unix()), t)
		}
	}
	return paces
}

// What gates' own queries give of a site is known however seldom it is scraped, and is what a quick one gives; of what
// is too old nothing is known, as ever.
func TestQueriesAtSitesThatAreScrapedSeldom(t *testing.T) {
	w := newWorld(t)
	now := time.Now().Truncate(time.Second)
	intervals := map[string]time.Duration{"quick": 15 * time.Second, "each-30s": 30 * time.Second, "each-1m": time.Minute, "each-2m": 2 * time.Minute, "each-5m": 5 * time.Minute, "each-10m": 10 * time.Minute}
	paces := w.scraped(now, intervals)
	w.put("load", "gone", 7, now.Add(-2*time.Minute))
	w.put("load", "long-gone", 7, now.Add(-30*time.Minute))
	paces["long-gone"] = 10 * time.Minute
	changed := []string{"quick", "each-30s", "each-1m", "gone", "long-gone"}
	peers := []string{"each-2m", "each-5m", "each-10m"}
	gate := func(name, query string) v1alpha1.RolloutGate {
		return v1alpha1.RolloutGate{Name: name, Peers: &v1alpha1.GateChange{Query: query}}
	}
	want := map[string]float64{"gauge": 7, "rate": 3, "total": 180, "held": 7}
	gates := []v1alpha1.RolloutGate{gate("gauge", "sum by (site) (load)"), gate("rate", "sum by (site) (rate(errors_total[2m]))"), gate("total", "sum by (site) (increase(errors_total[1m]))"), gate("held", "max by (site) (min_over_time(load[1m]))")}
	q := readings.Question{Tenant: tenant, Gates: gates, Changed: changed, Peers: peers, Paces: paces}
	a := w.Read(t.Context(), q)
	if len(a.Outside) != 0 {
		t.Fatalf("%+v", a.Outside)
	}
	before := map[string]map[string]float64{}
	var sites []readings.Subject
	for site := range intervals {
		sites = append(sites, readings.Subject{Name: site, Pace: paces[site], Born: now.Add(-2 * time.Hour)})
	}
	w.QueriesAt(t.Context(), tenant, gates, sites, now, before)
	for site := range intervals {
		for name, v := range want {
			for what, got := range map[string]map[string]float64{"now": a.Sites[site].Measures, "before": before[site]} {
				if x, known := got[name]; !known || math.Abs(x-v) > v/10 {
					t.Errorf("%s, %s, %s: %v, %v; want %v", site, name, what, x, known, v)
				}
			}
		}
	}
	for _, site := range []string{"gone", "long-gone"} {
		if len(a.Sites[site].Measures) > 0 {
			t.Errorf("%s: %v", site, a.Sites[site].Measures)
		}
	}
	// A site that was registered within what the query looks back at its pace has nothing of its own.
	for i := range sites {
		sites[i].Born = now.Add(-15 * time.Minute)
	}
	clear(before)
	w.QueriesAt(t.Context(), tenant, gates, sites, now, before)
	if _, has := before["each-10m"]["rate"]; has || before["quick"]["rate"] == 0 || before["each-1m"]["rate"] == 0 {
		t.Errorf("young sites: %v", before)
	}
}

// One value in all has each changed site in it: it is asked as the slowest of them needs it.
func TestOneValueOfSlowSites(t *testing.T) {
	w := newWorld(t)
	now := time.Now().Truncate(time.Second)
	paces := w.scraped(now, map[string]time.Duration{"quick": 15 * time.Second, "slow": 10 * time.Minute, "peer": 10 * time.Minute})
	most := resource.MustParse("8")
	gate := v1alpha1.RolloutGate{Name: "errors", Query: &v1alpha1.GateQuery{Query: "sum(rate(errors_total[2m]))", Max: &most}}
	ask := func(changed, peers []string) decide.Outside {
		w.Readings = func() *readings.Readings { r, err := readings.New(w.options); must(t, err); return r }()
		return w.Read(t.Context(), readings.Question{Tenant: tenant, Gates: []v1alpha1.RolloutGate{gate}, Changed: changed, Peers: peers, Paces: paces}).Outside["errors"]
	}
	if got := ask([]string{"quick", "slow"}, []string{"peer"}); got.Verdict != v1alpha1.GateFail {
		t.Errorf("three sites have three errors a second each: %+v", got)
	}
	if got := ask([]string{"quick"}, []string{"peer"}); got.Verdict != v1alpha1.GatePass || got.Value[0] != '3' && got.Value[0] != '2' {
		t.Errorf("of quick ones: %+v", got)
	}
}

// What decide adds to how far a query looks back (four scrapes) is no less than what it looks back at slow sites.
func TestReachOfSlowSites(t *testing.T) {
	for _, expr := range []string{"load", "rate(errors_total[1m])", "increase(errors_total[30m])", "sum by (site) (max_over_time(load[1m]))", "max_over_time(load[10m]) - load"} {
		quick := readings.Reach([]v1alpha1.RolloutGate{{Name: "x", Query: &v1alpha1.GateQuery{Query: expr}}})["x"]
		for _, pace := range []time.Duration{time.Minute, 5 * time.Minute, 10 * time.Minute} {
			parsed, err := parser.ParseExpr(expr)
			must(t, err)
			if slow := promexpr.Reach(promexpr.Paced(parsed, pace), fleet.TwoScrapes(pace)); slow > quick+fleet.RateWindow(pace) {
				t.Errorf("%s at %s: looks back %s, of quick ones with a minute for collecting %s", expr, pace, slow, quick)
			}
		}
	}
}
