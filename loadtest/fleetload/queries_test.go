package fleetload

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/storage"

	"muster.dev/muster/alerting/rules"
	"muster.dev/muster/health/defaults"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/regional/engine"
)

// BenchmarkHealthQueries: what a regional's engine pays for the queries of the shipped
// health policy and of the shipped rules, over 200 sites of 500 series with 11 minutes of
// samples: processor time for asking each once, by PromQL and compiled, and with -v the
// dearest. Every third time all sites have pushed once more before, which is not counted but
// told of its own.
func BenchmarkHealthQueries(b *testing.B) {
	const sites, rounds = 200, 45
	e, err := engine.New(engine.Options{Name: engine.Edge, Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	ps, err := newPayloads(500, 1, 15*time.Second, 0.01)
	if err != nil {
		b.Fatal(err)
	}
	p := ps[0]
	end := time.Now().Truncate(15 * time.Second)
	raw := slices.Clone(p.raw)
	known := map[string][]storage.SeriesRef{}
	push := func(at time.Time) {
		for i := range sites {
			name := fmt.Sprintf("load-%05d", i)
			p.fill(raw, seedOf(name), at)
			d := remotewrite.Decoder{}
			d.Reset(raw, true, remotewrite.Limits{})
			app, refs := e.Storage().Appender(context.Background()), known[name]
			for n := 0; d.Next(); n++ {
				var ls labels.Labels
				if n == len(refs) {
					pairs := append(slices.Clone(d.Pairs()), fleet.SeriesTenant, "acme", fleet.SeriesSite, name, fleet.SeriesRegion, "eu")
					for j := range pairs {
						pairs[j] = strings.Clone(pairs[j])
					}
					ls, refs = labels.FromStrings(pairs...), append(refs, 0)
				}
				if refs[n], err = app.Append(refs[n], ls, d.Samples[0].T, d.Samples[0].V); err != nil {
					b.Fatal(err)
				}
			}
			if err := app.Commit(); err != nil {
				b.Fatal(err)
			}
			known[name] = refs
		}
	}
	for round := range rounds {
		push(end.Add(time.Duration(round-rounds+1) * 15 * time.Second))
	}
	var signals, shipped []string
	names := map[string]string{}
	for _, sig := range defaults.HealthPolicy().Spec.Signals {
		signals, names[sig.Query] = append(signals, sig.Query), sig.Name
	}
	groups, errs := rulefmt.Parse(rules.Shipped(engine.Edge).Content, false, model.UTF8Validation)
	if len(errs) > 0 {
		b.Fatal(errs)
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			shipped, names[r.Expr] = append(shipped, r.Expr), r.Alert+r.Record
		}
	}
	for what, queries := range map[string][]string{"signals": signals, "rules": shipped} {
		for _, how := range []string{"promql", "compiled"} {
			b.Run(what+"/"+how, func(b *testing.B) {
				asked := 0
				ask := func(q string) {
					if asked++; how == "promql" { // what is asked once is not compiled
						q = fmt.Sprintf("%s # %s %d", q, b.Name(), asked)
					}
					if _, err := e.Query(b.Context(), q, end); err != nil {
						b.Fatal(err)
					}
				}
				for range 2 {
					for _, q := range queries {
						ask(q)
					}
				}
				costs := map[string]time.Duration{}
				var asking, pushing time.Duration
				n, pushes := 0, 0
				for b.Loop() {
					if n++; n%3 == 0 {
						end, pushes = end.Add(15*time.Second), pushes+1
						at := testkit.CPUTime(b)
						push(end)
						pushing += testkit.CPUTime(b) - at
					}
					for _, q := range queries {
						at := testkit.CPUTime(b)
						ask(q)
						took := testkit.CPUTime(b) - at
						costs[q] += took
						asking += took
					}
				}
				b.ReportMetric(asking.Seconds()*1000/float64(n), "cpu-ms/all")
				b.ReportMetric(pushing.Seconds()*1e9/float64(max(1, pushes)*sites*500), "push-ns/sample")
				dearest := slices.SortedFunc(maps.Keys(costs), func(x, y string) int { return cmp.Compare(costs[y], costs[x]) })
				for _, q := range dearest[:min(12, len(dearest))] {
					b.Logf("%-28s %8.2f ms", names[q], costs[q].Seconds()*1000/float64(n))
				}
			})
		}
	}
}
