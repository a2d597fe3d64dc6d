// Package policytest runs unit tests of HealthPolicies: readings over time, and what a
// site must look like at some moments. It is what promtool's rule tests are for rules.
// It is pure: cmd/internal/cli reads the files and prints what comes out, and the shipped
// policy's own cases run in its tests.
package policytest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/health"
	"muster.dev/muster/internal/fleet"
)

// File is a file of cases.
type File struct {
	// Policy is the file of the HealthPolicy, relative to this one; "": the shipped one.
	Policy string `json:"policy,omitempty"`
	// Tick between readings; 0: 15 s.
	Tick  metav1.Duration `json:"tick,omitzero"`
	Cases []Case          `json:"cases"`
}

// Case is one site over time.
type Case struct {
	Name string `json:"name"`
	// Packs that the site has, beside those of the signals that have readings.
	Packs []string `json:"packs,omitempty"`
	// Readings of signals, in promtool's notation: "80x3 91 _x2" is 80 four times, 91, and
	// nothing twice. The last value stays. uplink is 1 or 0, uplink-flapping the lost
	// connections. Signals that are not named have their good value where they apply.
	Readings map[string]string `json:"readings"`
	Expect   []Expect          `json:"expect"`
}

// Expect is what must hold at a time since the first reading, up to Until if that is set.
type Expect struct {
	At    metav1.Duration `json:"at"`
	Until metav1.Duration `json:"until,omitzero"`
	// What is empty is not looked at.
	Colour fleet.Colour `json:"colour,omitempty"`
	// Dimension and Signal of the first reason, and words that are in its text.
	Dimension fleet.Dimension `json:"dimension,omitempty"`
	Signal    string          `json:"signal,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	NoReason  bool            `json:"noReason,omitempty"`
	// Above and Below bound the score, the bounds excluded.
	Above *float64 `json:"above,omitempty"`
	Below *float64 `json:"below,omitempty"`
}

// Parse reads a file of cases. Unknown fields are errors.
func Parse(data []byte) (*File, error) {
	var f File
	if err := yaml.UnmarshalStrict(data, &f); err != nil {
		return nil, err
	}
	if f.Tick.Duration == 0 {
		f.Tick.Duration = 15 * time.Second
	}
	if f.Tick.Duration < time.Second {
		return nil, fmt.Errorf("tick: %s: want at least 1s", f.Tick.Duration)
	}
	if len(f.Cases) == 0 {
		return nil, fmt.Errorf("cases: want at least one")
	}
	for i, c := range f.Cases {
		if c.Name == "" || len(c.Expect) == 0 {
			return nil, fmt.Errorf("cases[%d]: want a name and something to expect", i)
		}
	}
	return &f, nil
}

// maxSteps bounds a case.
const maxSteps = 100_000

// Run runs one case and returns what is not as expected, a line each; err: the case makes
// no sense for the model.
func Run(m *health.Model, tick time.Duration, c *Case) (wrong []string, err error) {
	series, err := readings(m, c)
	if err != nil {
		return nil, err
	}
	end := time.Duration(0)
	for i := range c.Expect {
		end = max(end, c.Expect[i].At.Duration, c.Expect[i].Until.Duration)
	}
	steps := int(end/tick) + 1
	if steps > maxSteps {
		return nil, fmt.Errorf("expect: %s is more than %d ticks", end, maxSteps)
	}
	packs := make([]bool, len(m.Packs))
	for i, p := range m.Packs {
		packs[i] = slices.Contains(c.Packs, p.Name)
		for name := range c.Readings {
			if s, ok := m.Index(name); ok && m.Signals[s].Pack == p.Name {
				packs[i] = true
			}
		}
	}
	start := time.Unix(1e9, 0).UTC()
	var prev *health.State
	since := start
	for step := range steps {
		at := time.Duration(step) * tick
		r := health.Readings{Link: health.LinkUp, Packs: packs, Signals: make([]health.Reading, len(m.Signals))}
		for i := range m.Signals {
			s := &m.Signals[i]
			v, known := s.Good, s.Pack == "" || slices.ContainsFunc(m.Packs, func(p health.Pack) bool { return p.Name == s.Pack }) && packs[slices.IndexFunc(m.Packs, func(p health.Pack) bool { return p.Name == s.Pack })]
			if vals, ok := series[s.Name]; ok {
				x := vals[min(step, len(vals)-1)]
				v, known = x.Value, !x.Omitted
			}
			switch {
			case i == m.Uplink() && known && v < 0.5:
				r.Link = health.LinkDown
			case s.Name == health.SignalFlapping:
				if _, ok := series[s.Name]; ok {
					r.Reconnects = int(v)
				}
			}
			r.Signals[i] = health.Reading{Value: v, Known: known}
		}
		if prev != nil && prev.Link != r.Link {
			since = start.Add(at)
		}
		r.LinkSince = since
		st := health.Evaluate(m, r, prev, start.Add(at))
		for i := range c.Expect {
			x := &c.Expect[i]
			last := max(x.At.Duration, x.Until.Duration)
			if at > x.At.Duration-tick && at <= x.At.Duration || at > x.At.Duration && at <= last {
				if bad := x.check(&st); bad != "" {
					wrong = append(wrong, fmt.Sprintf("at %s: %s", at, bad))
				}
			}
		}
		prev = &st
	}
	return wrong, nil
}

// readings reads a case's series.
func readings(m *health.Model, c *Case) (map[string][]parser.SequenceValue, error) {
	out := map[string][]parser.SequenceValue{}
	for name, text := range c.Readings {
		if _, ok := m.Index(name); !ok {
			return nil, fmt.Errorf("readings: the policy has no signal %q", name)
		}
		_, vals, err := parser.ParseSeriesDesc("x " + text)
		if err != nil {
			return nil, fmt.Errorf("readings.%s: %w", name, err)
		}
		if len(vals) == 0 || len(vals) > maxSteps {
			return nil, fmt.Errorf("readings.%s: want 1 to %d values", name, maxSteps)
		}
		out[name] = vals
	}
	for _, p := range c.Packs {
		if !slices.ContainsFunc(m.Packs, func(x health.Pack) bool { return x.Name == p }) {
			return nil, fmt.Errorf("packs: the policy has no pack %q", p)
		}
	}
	return out, nil
}

// check says what is not as expected; "": all is.
func (x *Expect) check(st *health.State) string {
	var first health.Reason
	if len(st.Reasons) > 0 {
		first = st.Reasons[0]
	}
	var bad []string
	want := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	want(x.Colour == "" || x.Colour == st.Colour, "want %s", x.Colour)
	want(x.Dimension == "" || x.Dimension == first.Dimension, "want %s first", x.Dimension)
	want(x.Signal == "" || x.Signal == first.Signal, "want the signal %s first", x.Signal)
	want(x.Reason == "" || strings.Contains(first.Text, x.Reason), "want %q in the first reason", x.Reason)
	want(!x.NoReason || len(st.Reasons) == 0, "want no reason")
	want(x.Above == nil || st.Known && st.Score > *x.Above, "want a score above %v", value(x.Above))
	want(x.Below == nil || st.Known && st.Score < *x.Below, "want a score below %v", value(x.Below))
	if len(bad) == 0 {
		return ""
	}
	got := "unknown " + string(st.Colour)
	if st.Known {
		got = fmt.Sprintf("%.4g %s", st.Score, st.Colour)
	}
	if first.Text != "" {
		got += fmt.Sprintf(", first %s %s: %s", first.Dimension, first.Signal, first.Text)
	}
	return strings.Join(bad, ", ") + "; it is " + got
}

func value(x *float64) float64 {
	if x == nil {
		return 0
	}
	return *x
}
