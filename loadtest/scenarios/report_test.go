package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/internal/fleet"
)

// report sums up a run.
type report struct {
	simulated                      time.Duration
	faults, normal                 int
	dimension, words, colour, good int
	reds, changes, calm            int // of normal days
	known                          int
	took                           []time.Duration
	confusion                      map[[2]fleet.Colour]int // wanted, got
	wrong                          []string
}

func newReport() *report { return &report{confusion: map[[2]fleet.Colour]int{}} }

func (r *report) add(sc *Scenario, v *verdict, why string) {
	r.simulated += sc.Warm() + sc.For.D()
	if why != "" && !v.ok() {
		r.known++
	}
	want := fleet.Green
	if !sc.Normal {
		// One of several is wanted: what came, if it is one of them.
		any := strings.Split(sc.Expect.Colour, "|")
		want = fleet.Colour(any[len(any)-1])
		if slices.Contains(any, string(v.got.colour)) {
			want = v.got.colour
		}
	}
	r.confusion[[2]fleet.Colour{want, v.got.colour}]++
	if !v.ok() {
		r.wrong = append(r.wrong, fmt.Sprintf("## %s\n\n%s\n\n- %s\n", sc.Name, sc.Story, strings.Join(v.wrong, "\n- ")))
	}
	if sc.Normal {
		r.normal++
		r.reds += v.reds
		r.changes += v.changes
		if v.ok() {
			r.calm++
		}
		return
	}
	r.faults++
	for _, c := range []struct {
		n  *int
		is bool
	}{{&r.dimension, v.dimension}, {&r.words, v.words}, {&r.colour, v.colour}, {&r.good, v.ok()}} {
		if c.is {
			*c.n++
		}
	}
	if v.took >= 0 {
		r.took = append(r.took, v.took)
	}
}

func (r *report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "faults: %d; right dimension first %d, right words first %d, colour right %d, all right %d\n", r.faults, r.dimension, r.words, r.colour, r.good)
	if len(r.took) > 0 {
		slices.Sort(r.took)
		fmt.Fprintf(&b, "seconds to right: median %.0f, worst %.0f (%d that came right)\n", r.took[len(r.took)/2].Seconds(), r.took[len(r.took)-1].Seconds(), len(r.took))
	}
	fmt.Fprintf(&b, "normal days: %d; without a change of colour %d; changes %d, into red %d\n", r.normal, r.calm, r.changes, r.reds)
	fmt.Fprintf(&b, "known failures: %d\n", r.known)
	colours := []fleet.Colour{fleet.Green, fleet.Orange, fleet.Red, fleet.Grey}
	fmt.Fprintf(&b, "%-14s", "wanted \\ got")
	for _, c := range colours {
		fmt.Fprintf(&b, "%8s", c)
	}
	for _, want := range colours {
		fmt.Fprintf(&b, "\n%-14s", want)
		for _, got := range colours {
			fmt.Fprintf(&b, "%8d", r.confusion[[2]fleet.Colour{want, got}])
		}
	}
	return b.String()
}

func (r *report) findings() string {
	return "# What comes out wrong\n\n" + r.String() + "\n\n" + strings.Join(r.wrong, "\n")
}
