package fleetload

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"muster.dev/muster/health/defaults"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/regional/engine"
)

// BenchmarkHealthQueries: what a regional's engine pays for each query of the shipped
// health policy, over 200 sites of 500 series with 11 minutes of samples: processor time
// for all signals of one tick, and with -v the dearest.
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
	type cost struct {
		name    string
		spent   time.Duration
		results int
	}
	costs := map[string]*cost{}
	policy := defaults.HealthPolicy()
	b.ResetTimer()
	began := cpu()
	n := 0
	for b.Loop() {
		n++
		for _, s := range policy.Spec.Signals {
			at := cpu()
			v, err := e.Query(context.Background(), s.Query, end)
			if err != nil {
				b.Fatal(s.Name, err)
			}
			c := costs[s.Query]
			if c == nil {
				c = &cost{name: s.Name}
				costs[s.Query] = c
			}
			c.spent += cpu() - at
			c.results = len(v)
		}
	}
	b.ReportMetric((cpu()-began).Seconds()*1000/float64(n), "cpu-ms/all")
	b.ReportMetric(float64(len(costs)), "queries")
	all := make([]*cost, 0, len(costs))
	for _, c := range costs {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *cost) int { return int(b.spent - a.spent) })
	for _, c := range all[:min(15, len(all))] {
		b.Logf("%-28s %8.2f ms, %d results", c.name, c.spent.Seconds()*1000/float64(n), c.results)
	}
}

// cpu is what this process has used so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
