package scenarios

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"muster.dev/muster/health"
	"muster.dev/muster/health/defaults"
	"muster.dev/muster/internal/fleet"
)

var (
	quietSites = flag.Int("quiet.sites", 4, "how many normal sites TestQuietSites plays")
	quietFor   = flag.Duration("quiet.for", 30*time.Minute, "for how long")
)

// quietAtOnce is how many of them are played side by side: their engine is in memory.
const quietAtOnce = 20

// TestQuietSites plays sites of all sizes that have nothing but normal days: every 20
// minutes one of the events of the normal scenarios. None may turn red. `make quiet` plays many
// for long.
func TestQuietSites(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute")
	}
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	var days []*Scenario
	for _, sc := range all {
		if sc.Normal && sc.Tolerates == "" && sc.Site.Exporters == nil && !sc.Site.Agentless && len(sc.Events) > 0 {
			days = append(days, sc)
		}
	}
	var list []*Scenario
	for i := range *quietSites {
		rnd := rand.New(rand.NewPCG(7, uint64(i)))
		nodes := 3 + rnd.IntN(3)
		sc := &Scenario{Name: fmt.Sprintf("quiet-%03d", i), Normal: true, For: Duration(*quietFor), Site: Shape{Nodes: nodes, Pods: 2*nodes + 14 + 5*rnd.IntN(4), Spares: 3}}
		for at := Duration(rnd.Int64N(int64(10 * time.Minute))); at+Duration(15*time.Minute) < sc.For; at += Duration(20 * time.Minute) {
			for _, e := range days[rnd.IntN(len(days))].Events {
				e.At += at
				if e.Until > 0 {
					e.Until += at
				}
				sc.Events = append(sc.Events, e)
			}
		}
		list = append(list, sc)
	}
	began := time.Now()
	reds, others, done := 0, 0, 0
	for some := range slices.Chunk(list, quietAtOnce) {
		seen := run(t, map[string]*health.Model{shipped: defaults.Model()}, some)[shipped]
		for _, sc := range some {
			v := judge(sc, seen[sc.Name])
			reds += v.reds
			others += v.changes - v.reds
			for _, o := range seen[sc.Name] {
				if o.at > 0 && o.colour != fleet.Green {
					t.Logf("%s: %s", sc.Name, o)
				}
			}
		}
		done += len(some)
		t.Logf("figure: %d normal sites, %s each, in %s: %d changes into red, %d other changes of colour", done, *quietFor, time.Since(began).Round(time.Second), reds, others)
	}
	if reds > 0 {
		t.Errorf("%d false reds", reds)
	}
}
