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
// dearest.
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
	for round := range rounds {
		at := end.Add(time.Duration(round-rounds+1) * 15 * time.Second)
		for i := range sites {
			name := fmt.Sprintf("load-%05d", i)
			p.fill(raw, seedOf(name), at)
			d := remotewrite.Decoder{}
			d.Reset(raw, true, remotewrite.Limits{})
			app := e.Storage().Appender(context.Background())
			for d.Next() {
				pairs := append(slices.Clone(d.Pairs), fleet.SeriesTenant, "acme", fleet.SeriesSite, name, fleet.SeriesRegion, "eu")
				for j := range pairs {
					pairs[j] = strings.Clone(pairs[j])
				}
				if _, err := app.Append(0, labels.FromStrings(pairs...), d.Samples[0].T, d.Samples[0].V); err != nil {
					b.Fatal(err)
				}
			}
			if err := app.Commit(); err != nil {
				b.Fatal(err)
			}
		}
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
				began, n := testkit.CPUTime(b), 0
				for b.Loop() {
					n++
					for _, q := range queries {
						at := testkit.CPUTime(b)
						ask(q)
						costs[q] += testkit.CPUTime(b) - at
					}
				}
				b.ReportMetric((testkit.CPUTime(b)-began).Seconds()*1000/float64(n), "cpu-ms/all")
				dearest := slices.SortedFunc(maps.Keys(costs), func(x, y string) int { return cmp.Compare(costs[y], costs[x]) })
				for _, q := range dearest[:min(12, len(dearest))] {
					b.Logf("%-28s %8.2f ms", names[q], costs[q].Seconds()*1000/float64(n))
				}
			})
		}
	}
}
