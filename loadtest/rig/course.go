package rig

import (
	"fmt"
	"io"
	"strings"
	"time"

	"muster.dev/muster/loadtest/fleetload"
)

// Moment is a second of a phase.
type Moment struct {
	Taken int `json:"taken"` // pushes
	Later int `json:"later"` // pushes that got 429
	Lost  int `json:"lost"`  // pushes that timed out, got 5xx or found no connection; they are sent again
	Fresh int `json:"fresh"` // sites whose newest samples are taken, at the second's end
}

// follow notes the course of a phase; the returned function ends it.
func follow(sums func() fleetload.Counts, fresh func() int) (end func() []Moment) {
	stop, out := make(chan struct{}), make(chan []Moment)
	go func() {
		var course []Moment
		before := sums()
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-stop:
				out <- course
				return
			case <-t.C:
			}
			now := sums()
			lost := func(c fleetload.Counts) int { return c.Timeouts + c.Unavailable + c.Failed }
			course = append(course, Moment{Taken: now.Pushes - before.Pushes, Later: now.TooMany - before.TooMany, Lost: lost(now) - lost(before), Fresh: fresh()})
			before = now
		}
	}()
	return func() []Moment {
		close(stop)
		return <-out
	}
}

// columns is how wide a graph is at most.
const columns = 72

var levels = []rune("▁▂▃▄▅▆▇█")

// graph draws the course of a phase, a line for each figure.
func graph(w io.Writer, name string, course []Moment, sites int) {
	if len(course) == 0 {
		return
	}
	each := (len(course) + columns - 1) / columns
	fmt.Fprintf(w, "\n%s, %d s, %d s a column:\n", name, len(course), each)
	line := func(what, unit string, most int, of func(Moment) int, mean bool) {
		var values []int
		for from := 0; from < len(course); from += each {
			to := min(from+each, len(course))
			sum, last := 0, 0
			for _, m := range course[from:to] {
				last = of(m)
				sum += last
			}
			if mean {
				last = (sum + (to-from)/2) / (to - from)
			}
			values = append(values, last)
		}
		for _, v := range values {
			most = max(most, v)
		}
		fmt.Fprintf(w, "  %-20s |%s| most %d%s\n", what, bars(values, most), most, unit)
	}
	line("pushes taken", " a second", 0, func(m Moment) int { return m.Taken }, true)
	line("429", " a second", 0, func(m Moment) int { return m.Later }, true)
	line("lost, sent again", " a second", 0, func(m Moment) int { return m.Lost }, true)
	line("sites up to date", fmt.Sprintf(" of %d", sites), sites, func(m Moment) int { return m.Fresh }, false)
}

// bars is a column for each value: empty for none, and at least the lowest for any.
func bars(values []int, most int) string {
	var b strings.Builder
	for _, v := range values {
		if v <= 0 || most <= 0 {
			b.WriteByte(' ')
			continue
		}
		b.WriteRune(levels[min(len(levels)-1, v*len(levels)/most)])
	}
	return b.String()
}
