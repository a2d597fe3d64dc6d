package scenarios

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"muster.dev/muster/health"
	"muster.dev/muster/health/defaults"
	"muster.dev/muster/internal/fleet"
)

var (
	quietSites = flag.Int("quiet.sites", 0, "how many normal sites TestQuietSites plays; 0: it is skipped")
	quietFor   = flag.Duration("quiet.for", time.Hour, "for how long")
)

// TestQuietSites plays sites of all sizes that have nothing but normal days: every 20
// minutes one of the events of the normal scenarios. None may turn red.
func TestQuietSites(t *testing.T) {
	if *quietSites == 0 {
		t.Skip("no -quiet.sites")
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
	seen := run(t, map[string]*health.Model{shipped: defaults.Model()}, list)[shipped]
	reds, others := 0, 0
	for _, sc := range list {
		v := judge(sc, seen[sc.Name])
		reds += v.reds
		others += v.changes - v.reds
		for _, o := range seen[sc.Name] {
			if o.at > 0 && o.colour != fleet.Green {
				t.Logf("%s: %s", sc.Name, o)
			}
		}
	}
	t.Logf("%d normal sites, %s each, in %s: %d changes into red, %d other changes of colour", len(list), *quietFor, time.Since(began).Round(time.Second), reds, others)
	if reds > 0 {
		t.Errorf("%d false reds", reds)
	}
}
