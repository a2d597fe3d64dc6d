package health

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/internal/fleet"
)

var update = flag.Bool("update", false, "rewrite testdata/cases/*.expected")

// caseFile is one input: a model and what is read, step by step.
type caseFile struct {
	About       string             `json:"about"`
	Weights     map[string]float64 `json:"weights"`
	Evaluations int                `json:"evaluations"`
	Recovery    int                `json:"recovery"`
	Packs       []Pack             `json:"packs"`
	// Signals: "name dimension good bad weight [critical] [cap=N] [pack=NAME] [causes=A,B] [min=N] [max=N] [sparse] [unit]".
	Signals []string `json:"signals"`
	// Steps may switch to other signals, as an edited policy does.
	Steps   []step            `json:"steps"`
	Members map[string]string `json:"members"` // name: "score colour [maintenance]", for virtual sites
}

type step struct {
	At       string            `json:"at"`
	Link     string            `json:"link"` // default up
	Since    string            `json:"since"`
	LiveOnly bool              `json:"liveOnly"`
	ReadAt   string            `json:"readAt"`
	Signals  []string          `json:"signals"`
	Values   map[string]string `json:"values"` // a number, or "error: why"
	// Found packs, and connections lost lately.
	Found      []string            `json:"found"`
	Reconnects int                 `json:"reconnects"`
	Objects    map[string][]string `json:"objects"`
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(t testing.TB, s string) time.Time {
	t.Helper()
	if s == "" {
		return time.Time{}
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return epoch.Add(d)
}

func modelOf(t testing.TB, c *caseFile, lines []string) *Model {
	t.Helper()
	weights := [4]float64{1, 1, 1, 1}
	for k, v := range c.Weights {
		weights[dimensionIndex(fleet.Dimension(k))] = v
	}
	var signals []Signal
	for _, line := range lines {
		f := strings.Fields(line)
		s := Signal{Name: f[0], Dimension: fleet.Dimension(f[1]), Cap: NoCap}
		for i, p := range []*float64{&s.Good, &s.Bad, &s.Weight} {
			v, err := strconv.ParseFloat(f[2+i], 64)
			if err != nil {
				t.Fatalf("signal %q: %v", line, err)
			}
			*p = v
		}
		for _, x := range f[5:] {
			k, v, _ := strings.Cut(x, "=")
			number, _ := strconv.ParseFloat(v, 64)
			switch k {
			case "critical":
				s.Cap = fleet.CriticalCap
			case "cap":
				s.Cap = number
			case "pack":
				s.Pack = v
			case "causes":
				s.Causes = strings.Split(v, ",")
			case "min":
				s.Min = &number
			case "max":
				s.Max = &number
			case "sparse":
				s.Sparse = true
			default:
				s.Unit = x
			}
		}
		signals = append(signals, s)
	}
	m, err := NewModel(Options{Weights: weights, WorstShare: DefaultWorstShare, Evaluations: c.Evaluations, Recovery: c.Recovery, Packs: c.Packs, Signals: signals})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (s *step) readings(t testing.TB, m *Model) Readings {
	t.Helper()
	r := Readings{LinkSince: at(t, s.Since), At: at(t, s.ReadAt), LiveOnly: s.LiveOnly, Reconnects: s.Reconnects, Packs: make([]bool, len(m.Packs)), Signals: make([]Reading, len(m.Signals))}
	r.Link = map[string]Link{"": LinkUp, "up": LinkUp, "down": LinkDown, "never": LinkNever, "unknown": LinkUnknown}[s.Link]
	for name, v := range s.Values {
		i, ok := m.Index(name)
		if !ok {
			t.Fatalf("step %s: no signal %s", s.At, name)
		}
		if why, failed := strings.CutPrefix(v, "error: "); failed {
			r.Signals[i].Err = why
			continue
		}
		x, err := strconv.ParseFloat(v, 64)
		if err != nil {
			t.Fatal(err)
		}
		r.Signals[i] = Reading{Value: x, Known: true, Objects: s.Objects[name]}
	}
	for i := range m.Packs {
		r.Packs[i] = slices.Contains(s.Found, m.Packs[i].Name)
	}
	return r
}

// render writes a state as the expected files hold it.
func render(st *State) string {
	var b strings.Builder
	score := "unknown"
	if st.Known {
		score = num(st.Score)
	}
	fmt.Fprintf(&b, "+%s  %s %s since +%s", st.At.Sub(epoch), score, st.Colour, st.Since.Sub(epoch))
	if st.Critical {
		b.WriteString(" critical")
	}
	if st.Against > 0 {
		fmt.Fprintf(&b, " against %d", st.Against)
	}
	b.WriteByte('\n')
	for d, name := range fleet.Dimensions {
		x := &st.Dimensions[d]
		if !x.Applies && !x.Known {
			continue
		}
		score := "unknown"
		if x.Known {
			score = num(x.Score)
		}
		fmt.Fprintf(&b, "    %-12s %s %s", name, score, x.Colour)
		if x.Known && x.Incomplete {
			b.WriteString(" incomplete")
		}
		if x.Stale {
			fmt.Fprintf(&b, " stale %ds", x.StaleSeconds(st.At))
		}
		b.WriteByte('\n')
	}
	for _, r := range st.Reasons {
		fmt.Fprintf(&b, "    - %s/%s −%s", r.Dimension, r.Signal, num(r.PointsLost))
		if r.HasValue {
			fmt.Fprintf(&b, " value %s threshold %s", num(r.Value), num(r.Threshold))
		}
		if r.Caps {
			b.WriteString(" caps")
		}
		if r.Held {
			b.WriteString(" held")
		}
		fmt.Fprintf(&b, " since +%s: %s\n", r.Since.Sub(epoch), r.Text)
	}
	return b.String()
}

func num(x float64) string { return strconv.FormatFloat(x, 'g', 5, 64) }

func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("%d cases, want at least 20", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var c caseFile
			if err := yaml.UnmarshalStrict(data, &c); err != nil {
				t.Fatal(err)
			}
			got := "# " + c.About + "\n" + runCase(t, &c)
			expected := strings.TrimSuffix(file, ".yaml") + ".expected"
			if *update {
				if err := os.WriteFile(expected, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(expected)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("-want +got (rewrite with -update):\n%s", diff)
			}
		})
	}
}

func runCase(t *testing.T, c *caseFile) string {
	var b strings.Builder
	if c.Members != nil {
		var members []Member
		for name, v := range c.Members {
			f := strings.Fields(v)
			m := Member{Name: name, Colour: fleet.Colour(f[1]), Maintenance: len(f) > 2}
			if f[0] != "unknown" {
				m.Score, _ = strconv.ParseFloat(f[0], 64)
				m.Known = true
			}
			members = append(members, m)
		}
		a, _ := Summarize(members, nil)
		if a.Known {
			fmt.Fprintf(&b, "mean %s p10 %s worst %s %s\n", num(a.Mean), num(a.P10), num(a.Worst), a.WorstSite)
		} else {
			b.WriteString("unknown\n")
		}
		fmt.Fprintf(&b, "sites %d green %d orange %d red %d grey %d maintenance %d unhealthy %s%%\n", a.Sites, a.Counts.Green, a.Counts.Orange, a.Counts.Red, a.Counts.Grey, a.Maintenance, num(a.PercentUnhealthy))
		return b.String()
	}
	m := modelOf(t, c, c.Signals)
	var prev *State
	for i := range c.Steps {
		s := &c.Steps[i]
		if s.Signals != nil {
			m = modelOf(t, c, s.Signals)
		}
		st := Evaluate(m, s.readings(t, m), prev, at(t, s.At))
		b.WriteString(render(&st))
		checkSum(t, &st)
		prev = &st
	}
	return b.String()
}

// checkSum holds the promise of Evaluate: reasons sum to what is missing to 100.
func checkSum(t testing.TB, st *State) {
	t.Helper()
	sum := 0.0
	for i, r := range st.Reasons {
		sum += r.PointsLost
		if r.PointsLost < 0 || r.PointsLost > 100+1e-6 {
			t.Errorf("reason %s: %v points lost", r.Signal, r.PointsLost)
		}
		if r.Caps && i > 0 && !st.Reasons[i-1].Caps && !st.Reasons[i-1].Held && st.Model.causes == nil {
			t.Errorf("reason %s caps but doesn't rank first", r.Signal)
		}
	}
	if st.Known && (sum < 100-st.Score-1e-6 || sum > 100-st.Score+1e-6) {
		t.Errorf("reasons sum to %v, score is %v: want them to make 100", sum, st.Score)
	}
}
