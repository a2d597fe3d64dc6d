package decide

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

var panels = flag.Int("panels", 25, "how many fleets TestPowerAndFalseStops looks at, of each size")

func near(a, b, within float64) bool { return math.Abs(a-b) <= within }

// Values of R: fisher.test(alternative = "greater"), wilcox.test(exact = FALSE, alternative
// = "less"), pbinom.
func TestTests(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"3 of 3 against 0 of 297", more(3, 3, 0, 297), 1 / 4455100.0},
		{"1 of 1 against 0 of 5", more(1, 1, 0, 5), 1.0 / 6},
		{"2 of 4 against 1 of 4", more(2, 4, 1, 4), 0.5},
		{"0 of 4", more(0, 4, 3, 4), 1},
		{"3 of 4 against 1 of 4: the tea", more(3, 4, 1, 4), 17.0 / 70},
		{"lower, 1..5 against 6..10", lower([]float64{1, 2, 3, 4, 5}, []float64{6, 7, 8, 9, 10}), 0.006093},
		{"lower, the same", lower([]float64{1, 2, 3}, []float64{1, 2, 3}), 0.588},
		{"lower, all alike", lower([]float64{7, 7}, []float64{7, 7, 7}), 1},
		{"2 of 3 in trouble of their own", unusual(2, 3), 0.00725},
		{"shift", shift([]float64{1, 2, 3}, []float64{11, 12, 13}), -10},
		{"shift, one is far off", shift([]float64{-1000, 2, 3, 4}, []float64{12, 13, 14}), -10.5},
		{"centre", centre([]float64{-30, 1, 2, 3}), 0.0},
	} {
		if !near(c.got, c.want, 0.02*math.Abs(c.want)+1e-9) && c.name != "centre" {
			t.Errorf("%s: %g, want %g", c.name, c.got, c.want)
		}
	}
	if got := centre([]float64{-30, 1, 2, 3}); got < 0.9 || got > 2 {
		t.Errorf("centre: %g", got)
	}
	sum := 0.0
	for k := range 100000 {
		sum += spend(k+1, 1)
	}
	if sum > alpha || sum < 0.99*alpha {
		t.Errorf("all looks together may use up %g, want %g", sum, alpha)
	}
}

func TestManySitesAreEstimatedAsFew(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var a, b []float64
	for range 3000 {
		a, b = append(a, 4*rng.NormFloat64()-7), append(b, 4*rng.NormFloat64())
	}
	slices.Sort(a)
	slices.Sort(b)
	if got := shift(a, b); !near(got, -7, 0.4) {
		t.Errorf("%g, want -7", got)
	}
}

// panel is changed sites and peers whose scores are noise with a memory, as scores are, in
// regions that have weather of their own.
type panel struct {
	rng           *rand.Rand
	sites         []Site
	level, wander []float64
	weather       []float64 // by region
	before        map[string]map[string]float64
	memory        *Memory
	m             int
	noise         float64
}

func newPanel(seed uint64, m, n int, noise float64) *panel {
	p := &panel{rng: rand.New(rand.NewPCG(seed, 9)), m: m, noise: noise, memory: newMemory(), before: map[string]map[string]float64{}, weather: make([]float64, 5)}
	for i := range m + n {
		p.sites = append(p.sites, Site{Name: fmt.Sprintf("s%04d", i), Online: true, State: Ready, AlertsKnown: true, Labels: map[string]string{"region": fmt.Sprint(p.rng.IntN(5))}})
		p.level, p.wander = append(p.level, 85+5*p.rng.NormFloat64()), append(p.wander, p.rng.NormFloat64())
	}
	p.draw(0)
	for i := range p.sites {
		p.before[p.sites[i].Name] = p.sites[i].Measures
	}
	return p
}

func (p *panel) draw(harm float64) {
	for r := range p.weather {
		p.weather[r] = 0.95*p.weather[r] + 2*p.rng.NormFloat64()
	}
	for i := range p.sites {
		p.wander[i] = 0.9*p.wander[i] + math.Sqrt(1-0.81)*p.rng.NormFloat64()
		if p.rng.Float64() < 0.0005 {
			p.wander[i] -= 40 / p.noise // trouble of its own
		}
		region := p.sites[i].Labels["region"][0] - '0'
		v := p.level[i] + p.noise*p.wander[i] + p.weather[region]
		if i < p.m {
			v -= harm
		}
		p.sites[i].Measures = map[string]float64{}
		for _, d := range dimensions {
			p.sites[i].Measures[d] = max(0, v+p.rng.NormFloat64())
		}
	}
}

// look looks at a soak of a quarter of an hour, twice a minute, and returns the worst
// verdict and the last.
func (p *panel) look(harm float64) (worst, last v1alpha1.GateVerdict) {
	gates := []v1alpha1.RolloutGate{{Name: "peers", Peers: &v1alpha1.GateChange{MaxDrop: 10}}}
	worst = v1alpha1.GatePass
	for now := monday; now.Before(monday.Add(15 * time.Minute)); now = now.Add(30 * time.Second) {
		p.draw(harm)
		_, r := Evaluate(gates, p.sites[:p.m], p.sites[p.m:], p.before, p.memory, nil, monday, 0, now)
		last = r[0].Verdict
		if rank[last] > rank[worst] {
			worst = last
		}
	}
	return worst, last
}

// peersSay is what a gate on peers says after ten minutes of 18 sites, of which the first so
// many are changed: of each, what all of its dimensions were before, and are.
func peersSay(changed int, site func(i int) (was, is float64)) v1alpha1.GateReading {
	gates := []v1alpha1.RolloutGate{{Name: "peers", Peers: &v1alpha1.GateChange{MaxDrop: 10}}}
	memory := newMemory()
	before := map[string]map[string]float64{}
	var sites []Site
	for i := range 18 {
		was, is := site(i)
		s := Site{Name: fmt.Sprintf("s%02d", i), Online: true, State: Ready, AlertsKnown: true, Measures: map[string]float64{}}
		before[s.Name] = map[string]float64{}
		for _, d := range dimensions {
			wobble := float64(i%3) / 10
			s.Measures[d], before[s.Name][d] = max(0, is-wobble), max(0, was-wobble)
		}
		sites = append(sites, s)
	}
	var r []v1alpha1.GateReading
	for now := monday; now.Before(monday.Add(10 * time.Minute)); now = now.Add(30 * time.Second) {
		_, r = Evaluate(gates, sites[:changed], sites[changed:], before, memory, nil, monday, 0, now)
	}
	return r[0]
}

// Peers that recover from what was before lift nobody who was well: such a site can't have
// more than 100. One that stays low where they recover has got worse.
func TestPeersThatRecover(t *testing.T) {
	for name, c := range map[string]struct {
		was, is, peersWere, peersAre float64
		passes                       bool
	}{
		"who was well stays well":               {99, 99, 78, 99, true},
		"all recover":                           {78, 99, 78, 99, true},
		"who was low stays low":                 {78, 78, 78, 99, false},
		"who was down stays down with the rest": {2, 0, 40, 5, true},
		"who was well falls, peers recover":     {99, 80, 78, 99, false},
	} {
		r := peersSay(4, func(i int) (was, is float64) {
			if i < 4 {
				return c.was, c.is
			}
			return c.peersWere, c.peersAre
		})
		if passed := r.Verdict == v1alpha1.GatePass; passed != c.passes {
			t.Errorf("%s: %s: %s", name, r.Verdict, r.Text)
		}
	}
}

// A site that was down already has little to lose: that it stays where it was keeps no
// change that takes all the others down.
func TestSitesThatWereDown(t *testing.T) {
	for _, c := range []struct {
		were, are []float64
		peerFell  bool
		verdict   v1alpha1.GateVerdict
	}{
		{[]float64{99, 99, 99, 33}, []float64{33, 33, 33, 33}, false, v1alpha1.GateFail},
		{[]float64{99, 99, 99, 33}, []float64{33, 33, 33, 99}, false, v1alpha1.GateFail}, // one is well again; three are not
		{[]float64{99, 99, 99, 99}, []float64{33, 33, 33, 99}, false, v1alpha1.GateWait}, // one was well, and has withstood
		{[]float64{99, 99, 33, 33}, []float64{33, 33, 33, 33}, false, v1alpha1.GateWait}, // too few that say something
		{[]float64{99, 33, 33, 33}, []float64{33, 33, 33, 33}, false, v1alpha1.GatePass},
		{[]float64{33, 33, 33, 33}, []float64{33, 33, 33, 33}, false, v1alpha1.GatePass},
		{[]float64{99, 99, 99, 33}, []float64{99, 99, 99, 33}, false, v1alpha1.GatePass},
		{[]float64{99, 99, 99, 33}, []float64{33, 33, 33, 33}, true, v1alpha1.GateWait},
		{[]float64{99, 35}, []float64{33, 5}, false, v1alpha1.GateFail}, // even who was down has fallen
		{[]float64{99, 35}, []float64{33, 35}, false, v1alpha1.GateWait},
	} {
		r := peersSay(len(c.were), func(i int) (was, is float64) {
			switch {
			case i < len(c.were):
				return c.were[i], c.are[i]
			case c.peerFell && i < 7:
				return 99, 33
			}
			return 99, 99
		})
		if r.Verdict != c.verdict || strings.Contains(r.Text, "-0 ") {
			t.Errorf("%v → %v: %s: %s", c.were, c.are, r.Verdict, r.Text)
		}
	}
}

// TestPowerAndFalseStops measures how often the gate on peers, looked at over a whole soak,
// fails what does nothing, and how often it does not let pass what does harm.
func TestPowerAndFalseStops(t *testing.T) {
	runs := *panels
	for _, c := range []struct {
		m, n        int
		noise, harm float64
		failAtMost  float64 // of what does nothing, beside one
		stopAtLeast float64 // of what does harm: failed
		passAtMost  float64
	}{
		{1, 300, 3, 20, 0.02, 0.7, 0.05},
		{3, 300, 3, 20, 0.02, 0.95, 0},
		{12, 290, 3, 20, 0.02, 0.99, 0},
		{30, 270, 3, 15, 0.02, 0.99, 0},
		{30, 270, 8, 15, 0.02, 0.9, 0.05},
		{150, 150, 8, 15, 0.02, 0.99, 0},
		{3, 5, 3, 20, 0.03, 0.6, 0},
	} {
		failed, held, stopped, passed := 0, 0, 0, 0
		for i := range runs {
			worst, last := newPanel(uint64(i), c.m, c.n, c.noise).look(0)
			if worst == v1alpha1.GateFail {
				failed++
			}
			if last != v1alpha1.GatePass {
				held++
			}
			worst, last = newPanel(uint64(1000+i), c.m, c.n, c.noise).look(c.harm)
			if worst == v1alpha1.GateFail {
				stopped++
			} else if last == v1alpha1.GatePass {
				passed++
			}
		}
		part := func(n int) float64 { return float64(n) / float64(runs) }
		t.Logf("%3d changed, %3d not, noise %g: nothing is failed %4.1f %%, held at the end %4.1f %%; %g points worse is failed %5.1f %%, let pass %4.1f %%", c.m, c.n, c.noise, 100*part(failed), 100*part(held), c.harm, 100*part(stopped), 100*part(passed))
		if float64(failed) > 1+c.failAtMost*float64(runs) {
			t.Errorf("%d of %d: fails what does nothing in %d of %d", c.m, c.n, failed, runs)
		}
		if part(stopped) < c.stopAtLeast || part(passed) > c.passAtMost {
			t.Errorf("%d of %d: of what does harm fails %d and lets pass %d of %d", c.m, c.n, stopped, passed, runs)
		}
	}
}
