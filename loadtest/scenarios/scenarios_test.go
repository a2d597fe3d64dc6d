package scenarios

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"muster.dev/muster/health"
	"muster.dev/muster/health/defaults"
	"muster.dev/muster/internal/fleet"
)

var (
	only     = flag.String("scenario", "", "play only the scenarios whose names match this expression")
	every    = flag.Int("every", 3, "TestScenarios plays each n-th scenario; 1: all")
	findings = flag.String("findings", "", "write what came out wrong to this file")
	trace    = flag.Bool("trace", false, "print all that health said")
)

// verdict is what came of one scenario.
type verdict struct {
	dimension, words, colour bool
	took                     time.Duration // to right for good, since Expect.From; -1: never
	changes                  int
	reds                     int // changes into red of a normal day
	wrong                    []string
	got                      observation // at the end of what is expected
}

func (v *verdict) ok() bool { return len(v.wrong) == 0 }

func (v *verdict) fail(format string, args ...any) {
	v.wrong = append(v.wrong, fmt.Sprintf(format, args...))
}

// judge compares what health said with what an operator would.
func judge(sc *Scenario, seen []observation) verdict {
	v := verdict{took: -1}
	last := fleet.Colour("")
	for _, o := range seen {
		if o.at >= 0 && last != "" && o.colour != last {
			v.changes++
			if sc.Normal && o.colour != fleet.Green && o.colour != sc.Tolerates {
				v.fail("%s: %s: %s", o.at.Round(time.Second), o.colour, o.text)
				if o.colour == fleet.Red {
					v.reds++
				}
			}
			if e := sc.Expect; e != nil && e.Never != "" && o.colour == e.Never {
				v.fail("%s at %s: %s", o.colour, o.at.Round(time.Second), o.text)
			}
		}
		if o.at >= 0 && sc.Site.Interval > 0 && (sc.Normal || o.at < sc.Events[0].At.D()) && (o.missing != "" || o.signal != "") {
			v.fail("%s: %q is unknown, and %q loses: %s", o.at.Round(time.Second), o.missing, o.signal, o.text)
		}
		last = o.colour
		if o.at >= 0 && rank(o.colour) > rank(v.got.colour) {
			v.got = o
		}
	}
	if sc.Normal {
		v.got.colour = cmp.Or(v.got.colour, last)
		v.dimension, v.words, v.colour = true, true, v.ok()
		if last != fleet.Green && last != sc.Tolerates {
			v.fail("%s at the end", last)
		}
		return v
	}
	e := sc.Expect
	want := strings.Split(e.Colour, "|")
	v.dimension, v.words, v.colour = true, true, true
	right := time.Duration(-1)
	for i, o := range seen {
		until := sc.For.D()
		if i+1 < len(seen) {
			until = seen[i+1].at
		}
		if o.at >= e.Until.D() || until <= e.From.D() {
			continue
		}
		d, w, c := e.Dimension == "" || o.dimension == e.Dimension, e.Says(o.text), slices.Contains(want, string(o.colour))
		if d && w && c {
			if right < 0 {
				right = max(0, o.at-e.From.D())
			}
		} else {
			right = -1
		}
		if until > e.From.D()+e.Within.D() {
			v.dimension, v.words, v.colour = v.dimension && d, v.words && w, v.colour && c
		}
		v.got = o
	}
	v.took = right
	if !v.dimension || !v.words || !v.colour {
		v.fail("want %s %s %q within %s of %s; got %s", e.Dimension, e.Colour, e.Words, e.Within.D(), e.From.D(), v.got)
	} else if v.took > e.Within.D() {
		v.fail("right after %s, want %s", v.took, e.Within.D())
	}
	if v.changes > e.Changes {
		v.fail("%d changes of colour, want at most %d", v.changes, e.Changes)
	}
	if e.Recovers && last != fleet.Green {
		v.fail("%s at the end, want green", last)
	}
	return v
}

func rank(c fleet.Colour) int {
	return slices.Index([]fleet.Colour{"", fleet.Green, fleet.Grey, fleet.Orange, fleet.Red}, c)
}

func chosen(t *testing.T) []*Scenario {
	t.Helper()
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	re := regexp.MustCompile(*only)
	var out []*Scenario
	for _, sc := range all {
		if re.MatchString(sc.Name) {
			out = append(out, sc)
		}
	}
	return out
}

// known reads testdata/known-failures.yaml: scenarios that the model does not pass yet,
// with the reason.
func known(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("testdata/known-failures.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]string
	if err := yaml.UnmarshalStrict(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// maxKnownFailures may be lowered.
const maxKnownFailures = 0

const shipped = "shipped"

// TestScenarios plays scenarios through collectors, which takes five times what TestDirect
// takes.
func TestScenarios(t *testing.T) {
	list, failing := chosen(t), known(t)
	if *only == "" {
		all := list
		list = nil
		for i := 0; i < len(all); i += max(1, *every) {
			list = append(list, all[i])
		}
	}
	if len(failing) > maxKnownFailures {
		t.Errorf("%d known failures, at most %d are allowed", len(failing), maxKnownFailures)
	}
	began := time.Now()
	seen := run(t, map[string]*health.Model{shipped: defaults.Model()}, list)[shipped]
	took := time.Since(began)
	report := newReport()
	for _, sc := range list {
		t.Run(sc.Name, func(t *testing.T) {
			v, why := judge(sc, seen[sc.Name]), failing[sc.Name]
			report.add(sc, &v, why)
			if *trace || !v.ok() && why == "" {
				for _, o := range seen[sc.Name] {
					t.Log(o)
				}
			}
			for _, w := range v.wrong {
				if why == "" {
					t.Error(w)
				} else {
					t.Logf("known: %s: %s", why, w)
				}
			}
			if why != "" && v.ok() {
				t.Errorf("passes: take it off known-failures.yaml, and lower maxKnownFailures (%s)", why)
			}
		})
	}
	t.Logf("%d scenarios, %.1f hours of sites, in %s\n%s", len(list), report.simulated.Hours(), took.Round(100*time.Millisecond), report)
	if *findings != "" {
		if err := os.WriteFile(*findings, []byte(report.findings()), 0o644); err != nil {
			t.Error(err)
		}
	}
}
