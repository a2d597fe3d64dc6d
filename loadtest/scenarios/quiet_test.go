package scenarios

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
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
	quietFirst = flag.Int("quiet.first", 0, "the number of the first: other sites than another run's")
	quietSeed  = flag.Uint64("quiet.seed", 7, "of what happens to them")
	quietWhole = flag.Bool("quiet.collectors", true, "each site has a collector; without, its samples go straight to the regional, a fifth of the work")
	quietNotes = flag.String("quiet.notes", "", "also write to this file how far it is, each simulated hour")
)

// quietAtOnce of them share an engine, which is in memory. The
// next ones begin when these are through all of it, so that a run that is cut off has some
// whole ones to show.
var quietAtOnce = flag.Int("quiet.at.once", 25, "how many are played side by side")

// TestQuietSites plays sites of all sizes that have nothing but normal days: every 20
// minutes one of the events of the normal scenarios. None may turn red. `make quiet` plays many
// for long. Their exporters serve what signals read and nothing else, which halves what a site
// takes and moves no colour: how full the budget is TestSeriesOfASite says.
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
		if sc.Normal && sc.Tolerates == "" && sc.Site.Exporters == nil && !sc.Site.Agentless && len(sc.Events) > 0 && !slices.ContainsFunc(sc.Events, anotherSite) {
			days = append(days, sc)
		}
	}
	var list []*Scenario
	for i := *quietFirst; i < *quietFirst+*quietSites; i++ {
		rnd := rand.New(rand.NewPCG(*quietSeed, uint64(i)))
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
			// What the next one tells begins at a site as it was: pods that replace those of
			// three replicas leave too few of five.
			sc.Events = append(sc.Events, Event{At: at + Duration(19*time.Minute), Object: "site", Do: "heal"})
		}
		list = append(list, sc)
	}
	note(t, "seed %d, sites %d to %d for %s", *quietSeed, *quietFirst, *quietFirst+*quietSites-1, *quietFor)
	var total tally
	for some := range slices.Chunk(list, *quietAtOnce) {
		r := &rig{t: t, readOnly: true, direct: !*quietWhole}
		r.hourly = func(at time.Duration, seen map[string]map[string][]observation) {
			tell(t, some, seen[shipped], at-time.Hour, at)
			note(t, "figure: so far %.0f hours of sites (%d sites at %s): %s", total.hours+float64(len(some))*at.Hours(), len(some), at, total.and(some, seen[shipped]))
		}
		r.run(t, map[string]*health.Model{shipped: defaults.Model()}, some)
		total = total.and(some, r.seen[shipped])
		total.hours += float64(len(some)) * quietFor.Hours()
		tell(t, some, r.seen[shipped], quietFor.Truncate(time.Hour), *quietFor)
		note(t, "figure: %.0f hours of sites, %s each: %s", total.hours, *quietFor, total)
	}
	if total.reds > 0 {
		t.Errorf("%d false reds", total.reds)
	}
}

// anotherSite says whether an event brings a site that was not there, which begins grey.
func anotherSite(e Event) bool { return e.Do == "replace" || e.Do == "rename" }

// tell notes what was not green within a time.
func tell(t *testing.T, list []*Scenario, seen map[string][]observation, from, to time.Duration) {
	t.Helper()
	for _, sc := range list {
		for _, o := range seen[sc.Name] {
			if o.at > from && o.at <= to && o.colour != fleet.Green {
				note(t, "%s: %s", sc.Name, o)
			}
		}
	}
}

// tally is what came of normal sites.
type tally struct {
	hours        float64 // of sites
	reds, others int     // changes of colour
}

// and returns the tally with those of more sites.
func (n tally) and(list []*Scenario, seen map[string][]observation) tally {
	for _, sc := range list {
		v := judge(sc, seen[sc.Name])
		n.reds += v.reds
		n.others += v.changes - v.reds
	}
	return n
}

func (n tally) String() string {
	return fmt.Sprintf("%d changes into red, %d other changes of colour", n.reds, n.others)
}

// note logs a line, and keeps it on disk if it is asked to: a run of hours that is cut off
// has still shown something.
func note(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Logf(format, args...)
	if *quietNotes == "" {
		return
	}
	f, err := os.OpenFile(*quietNotes, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, format+"\n", args...); err != nil {
		t.Error(err)
	}
}
