package decide

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"muster.dev/muster/control/api/v1alpha1"
)

var monday = time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)

// world is a fleet and a controller in simulated time: sites follow the state that was
// written last, and say what they are like. What they say depends on the time and their
// name alone, so that two runs differ in what was decided and in nothing else.
type world struct {
	t     *testing.T
	name  string
	spec  v1alpha1.RolloutSpec
	state v1alpha1.RolloutStateSpec
	sites []Site
	now   time.Time
	tick  time.Duration
	noise float64
	// what the change does
	readyAfter time.Duration
	fails      func(s *Site) bool
	stuck      func(s *Site) bool // fails with whatever it has
	waits      func(s *Site) bool
	flaps      func(s *Site) bool // not ready just now, with the change
	restarts   bool
	stays      map[string]Applied // whatever it has
	ailing     map[string]bool    // of the test's own
	down       map[string]bool
	reach      map[string]time.Duration
	also       map[string]float64    // further measures
	blind      func() bool           // nobody knows what sites are like
	hide       func(s *Site) bool    // nobody knows what this one is like
	ill        func(s *Site) float64 // the score that it has whatever it runs; 0: it is well
	before     map[string]map[string]float64
	harm       func(s *Site, since time.Duration) map[string]float64
	scope      func(s *Site) bool
	member     func(vs string, s *Site) bool
	outside    map[string]Outside
	// edit changes the world before each decision.
	edit func(w *world)
	// crash: 1 dies before the state is written, 2 after.
	crash func(w *world) int

	memory    *Memory
	out       Output
	has       map[string]byte
	got       map[string]time.Time
	assigned  map[string][]string // by site, each content that it was given, in order
	decisions []v1alpha1.RolloutDecision
	lost      bool // what was decided last was not written
}

func newWorld(t *testing.T, n int) *world {
	w := &world{
		t: t, name: "shop-1", now: monday, tick: 15 * time.Second, readyAfter: 40 * time.Second, noise: 1,
		has: map[string]byte{}, got: map[string]time.Time{}, assigned: map[string][]string{},
		scope: func(*Site) bool { return true }, member: func(string, *Site) bool { return false },
	}
	w.spec.Soak = metav1.Duration{Duration: 5 * time.Minute}
	w.state = v1alpha1.RolloutStateSpec{Held: true, Objects: []v1alpha1.RolloutObject{{Name: "shop", Contents: make([]runtime.RawExtension, 2)}}}
	for i := range n {
		w.sites = append(w.sites, Site{
			Name: fmt.Sprintf("site-%05d", i), Online: true, State: Ready, AlertsKnown: true,
			Labels: map[string]string{"region": fmt.Sprintf("r%d", i%3), "muster.dev/system-arch": []string{"amd64", "amd64", "amd64", "arm64"}[i%4]},
		})
	}
	return w
}

func (w *world) measures(s *Site) map[string]float64 {
	out := map[string]float64{}
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, s.Name, w.now.Unix())
	rng := rand.New(rand.NewPCG(h.Sum64(), 1))
	for _, d := range dimensions {
		out[d] = min(100, 92+w.noise*rng.NormFloat64())
	}
	maps.Copy(out, w.also)
	if w.has[s.Name] > '0' && w.harm != nil {
		for d, v := range w.harm(s, w.now.Sub(w.got[s.Name])) {
			out[d] += v
		}
	}
	return out
}

// step lets the sites do what they do, decides once, and writes.
func (w *world) step() {
	w.t.Helper()
	if w.edit != nil {
		w.edit(w)
	}
	assigned := w.state.Assigned()
	for i := range w.sites {
		s := &w.sites[i]
		digit := '0' + byte(assigned[s.Name])
		if !w.state.Held {
			digit = '0' + byte(len(w.state.Objects[0].Contents)-1)
		}
		if s.Online && w.has[s.Name] != digit && (w.has[s.Name] != 0 || digit != '0') {
			w.has[s.Name], w.got[s.Name] = digit, w.now
			w.assigned[s.Name] = append(w.assigned[s.Name], string(digit))
		}
		switch since := w.now.Sub(w.got[s.Name]); {
		case !s.Online && w.has[s.Name] != digit:
			s.State = NotYet
		case w.waits != nil && w.waits(s):
			s.State, w.got[s.Name] = Waits, w.now
		case since < w.readyAfter && w.restarts:
			s.State = Restarting
		case since < w.readyAfter:
			s.State = Progressing
		case w.stuck != nil && w.stuck(s), digit > '0' && w.fails != nil && w.fails(s):
			s.State, s.Why = Failed, "CrashLoopBackOff"
		case digit > '0' && w.flaps != nil && w.flaps(s):
			s.State = Progressing
		default:
			s.State, s.Why = Ready, ""
		}
		if state, ok := w.stays[s.Name]; ok {
			s.State = state
		}
		s.Measures = nil
		if s.Online && (w.blind == nil || !w.blind()) && (w.hide == nil || !w.hide(s)) {
			s.Measures = w.measures(s)
			if w.ill != nil {
				if s.Red = w.ill(s) > 0; s.Red {
					s.Measures[siteScore] = w.ill(s)
				}
			}
		}
	}
	in := Input{Name: w.name, Before: w.before, Spec: &w.spec, State: w.state.DeepCopy(), Sites: w.sites, InScope: w.scope, Member: w.member, Outside: w.outside, Memory: w.memory, Reach: w.reach, Now: w.now, User: "ann"}
	w.out = Decide(in)
	w.agrees()
	w.memory = w.out.Memory
	how := 0
	if w.crash != nil {
		how = w.crash(w)
	}
	if how > 0 {
		w.memory = nil
	}
	w.lost = how == 1 && w.out.Changed
	if w.out.Changed && how != 1 {
		w.state = *w.out.State.DeepCopy()
		// As the API server does: in an order of its own.
		var v map[string]any
		if err := json.Unmarshal(w.state.Decided.Raw, &v); err != nil {
			w.t.Fatal(err)
		}
		w.state.Decided.Raw, _ = json.Marshal(v)
		w.decisions = append(w.decisions, w.out.Decisions...)
	}
	w.now = w.now.Add(w.tick)
}

// run goes on until something is true, or for a time at the longest.
func (w *world) run(most time.Duration, until func(w *world) bool) bool {
	w.t.Helper()
	for end := w.now.Add(most); w.now.Before(end); {
		w.step()
		if until(w) {
			return true
		}
	}
	return false
}

func ended(w *world) bool { return !w.lost && w.out.Status.Phase.Ended() }

func phase(p v1alpha1.RolloutPhase) func(w *world) bool {
	return func(w *world) bool { return w.out.Status.Phase == p }
}

func (w *world) dump() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %q next %q\n", w.now.Sub(monday), w.out.Status.Phase, w.out.Status.Message, w.out.Status.Next)
	for _, g := range w.out.Status.Gates {
		fmt.Fprintf(&b, "  gate %s %s %s\n", g.Name, g.Verdict, g.Text)
	}
	for _, d := range w.out.Status.Decisions {
		fmt.Fprintf(&b, "  %s %s %s %s\n", d.At.Sub(monday), d.What, d.By, d.Text)
	}
	return b.String()
}

func (w *world) want(p v1alpha1.RolloutPhase, most time.Duration) {
	w.t.Helper()
	if !w.run(most, phase(p)) {
		w.t.Fatalf("want %s:\n%s", p, w.dump())
	}
}

func raws(b []byte) *runtime.RawExtension { return &runtime.RawExtension{Raw: b} }

func quantity(s string) resource.Quantity { return resource.MustParse(s) }
