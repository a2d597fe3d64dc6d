package decide

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

// Many sites of a region lose contact at once, as when its regional is out. What speaks against the
// change is only that others of the same region are still there.
func TestWhoseFaultLostContactIs(t *testing.T) {
	const pass, wait, fail = v1alpha1.GatePass, v1alpha1.GateWait, v1alpha1.GateFail
	type region struct{ x, m, y, n int }
	for name, c := range map[string]struct {
		regions []region
		want    [3]v1alpha1.GateVerdict // at once, after a minute, after a soak
		text    string                  // after a minute
	}{
		"all of a region, changed and not":              {[]region{{20, 20, 80, 80}, {0, 20, 0, 80}}, [3]v1alpha1.GateVerdict{wait, wait, pass}, "it is of the regional or the network that they connect by"},
		"most of a region, changed and not":             {[]region{{18, 20, 60, 80}, {0, 20, 0, 80}}, [3]v1alpha1.GateVerdict{wait, wait, pass}, "and not of the change; that holds."},
		"all five peers of a region":                    {[]region{{20, 20, 5, 5}, {0, 20, 0, 80}}, [3]v1alpha1.GateVerdict{wait, wait, pass}, "it is of the regional"},
		"all there is, changed and not":                 {[]region{{20, 20, 80, 80}}, [3]v1alpha1.GateVerdict{wait, wait, pass}, "it is of the regional"},
		"changed ones that have a region to themselves": {[]region{{40, 40, 0, 0}, {0, 0, 0, 80}}, [3]v1alpha1.GateVerdict{wait, wait, wait}, "it may be of the regional"},
		"most of those":                                 {[]region{{30, 40, 0, 0}, {0, 10, 0, 80}}, [3]v1alpha1.GateVerdict{wait, wait, wait}, "it may be of the regional"},
		"one of those":                                  {[]region{{1, 40, 0, 0}, {0, 0, 0, 80}}, [3]v1alpha1.GateVerdict{pass, pass, pass}, "no more than chance has it."},
		"only changed ones of each region":              {[]region{{20, 20, 0, 80}, {20, 20, 0, 80}}, [3]v1alpha1.GateVerdict{wait, fail, fail}, "40 of 40 sites went offline after they got the change, and 0 of 160 that did not get it."},
		"one changed site of one, by far":               {[]region{{1, 1, 0, 9000}, {0, 0, 0, 80}}, [3]v1alpha1.GateVerdict{wait, wait, fail}, "1 of 1 site went offline"},
		"a region that is out and has none changed":     {[]region{{2, 20, 8, 80}, {0, 0, 80, 80}}, [3]v1alpha1.GateVerdict{pass, pass, pass}, "no more than chance has it."},
		"only changed ones of one region":               {[]region{{20, 20, 0, 80}, {0, 20, 0, 80}}, [3]v1alpha1.GateVerdict{wait, fail, fail}, "20 of 40 sites went offline"},
		"changed ones, while another region is out":     {[]region{{20, 20, 0, 80}, {20, 20, 80, 80}}, [3]v1alpha1.GateVerdict{wait, fail, fail}, "40 of 40 sites went offline"},
		"a region that is often away":                   {[]region{{8, 20, 32, 80}, {0, 60, 0, 80}}, [3]v1alpha1.GateVerdict{pass, pass, pass}, "no more than chance has it."},
	} {
		j := judge{mem: newMemory(), since: monday, soak: 5 * time.Minute, spread: defaultSpread}
		for r, of := range c.regions {
			add := func(list *[]subject, what string, lost, n int) {
				for k := range n {
					*list = append(*list, subject{s: &Site{Name: fmt.Sprint(what, r, "-", k), Labels: map[string]string{"region": fmt.Sprint(r)}, Online: k >= lost}})
				}
			}
			add(&j.changed, "s", of.x, of.m)
			add(&j.peers, "p", of.y, of.n)
		}
		for i, after := range []time.Duration{0, time.Minute, 6 * time.Minute} {
			for j.now = j.now.Add(time.Second); j.mem.looks == 0 || j.now.Before(monday.Add(after)); j.now = j.now.Add(15 * time.Second) {
				if j.mem.looks == 0 {
					j.now = monday
				}
				j.mem.look(nil, j.now)
				j.contact()
			}
			j.now = monday.Add(after)
			g := j.contact()
			if g.Verdict != c.want[i] || i == 1 && !strings.Contains(g.Text, c.text) {
				t.Errorf("%s: %s after %s, want %s: %s", name, g.Verdict, after, c.want[i], g.Text)
			}
		}
	}
}

// A regional that is out for longer than a soak puts no release back, whoever is behind it, and the
// release is through when its sites are back; one that cuts sites off is put back.
func TestARegionalThatIsOut(t *testing.T) {
	for name, c := range map[string]struct {
		waves []v1alpha1.RolloutWave
		lost  func(w *world, s *Site) bool
		want  v1alpha1.RolloutPhase
	}{
		"of the wave and of others":  {percent(30, 100), func(_ *world, s *Site) bool { return s.Labels["region"] == "r0" }, v1alpha1.RolloutCompleted},
		"of all sites":               {percent(30, 100), func(*world, *Site) bool { return true }, v1alpha1.RolloutCompleted},
		"of a wave that is a region": {[]v1alpha1.RolloutWave{{Label: "region=r0"}}, func(_ *world, s *Site) bool { return s.Labels["region"] == "r0" }, v1alpha1.RolloutCompleted},
		"none, but the change":       {percent(30, 100), func(w *world, s *Site) bool { return w.has[s.Name] == '1' }, v1alpha1.RolloutRolledBack},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 120)
			w.spec.Strategy.Waves = c.waves
			w.edit = func(w *world) {
				since := w.now.Sub(monday)
				for i := range w.sites {
					s := &w.sites[i]
					s.Online = since < 3*time.Minute || since > 33*time.Minute || !c.lost(w, s)
				}
			}
			if !w.run(4*time.Hour, ended) || w.out.Status.Phase != c.want {
				t.Error(w.dump())
			}
		})
	}
}

// Where no gate reads what sites are like, those without the change are compared with all the same:
// that two fifths of all are away is no fault of the change, that those with it are is.
func TestContactWithoutMeasures(t *testing.T) {
	for want, lost := range map[v1alpha1.RolloutPhase]func(w *world, i int) bool{
		v1alpha1.RolloutCompleted:  func(_ *world, i int) bool { return i%5 < 2 },
		v1alpha1.RolloutRolledBack: func(w *world, i int) bool { return i%5 < 2 && w.has[w.sites[i].Name] == '1' },
	} {
		w := newWorld(t, 120)
		w.spec.Gates = []v1alpha1.RolloutGate{{Name: "ready", Ready: &v1alpha1.GateReady{}}}
		w.spec.Strategy.Waves = percent(50, 100)
		w.edit = func(w *world) {
			for i := range w.sites {
				since := w.now.Sub(monday)
				w.sites[i].Online = since < 3*time.Minute || since > 33*time.Minute || !lost(w, i)
			}
		}
		if !w.run(4*time.Hour, ended) || w.out.Status.Phase != want {
			t.Errorf("want %s: %s", want, w.dump())
		}
	}
}

// In one group it is Fisher's test; in several it is the sum of what each may have by chance.
func TestTheTestOfGroups(t *testing.T) {
	for _, g := range []reached{{3, 5, 2, 9}, {0, 5, 2, 9}, {5, 5, 0, 9}, {1, 1, 0, 1}, {4, 4, 4, 4}} {
		if got, want := moreWithin([]reached{g}), more(g.x, g.m, g.y, g.n); math.Abs(got-want) > 1e-12 {
			t.Errorf("%+v: %g, want %g", g, got, want)
		}
	}
	if got := moreWithin(nil); got != 1 {
		t.Errorf("of nobody: %g", got)
	}
	// By drawing: of two groups, one of which has far more trouble.
	groups := []reached{{4, 6, 5, 8}, {2, 10, 1, 20}}
	rng := rand.New(rand.NewPCG(1, 2))
	const draws = 200_000
	hits := 0
	for range draws {
		x := 0
		for _, g := range groups {
			all, left := g.m+g.n, g.x+g.y
			for k := range g.m {
				if rng.IntN(all-k) < left {
					left--
					x++
				}
			}
		}
		if x >= 6 {
			hits++
		}
	}
	if got, want := moreWithin(groups), float64(hits)/draws; math.Abs(got-want) > 0.005 {
		t.Errorf("%g, by drawing %g", got, want)
	}
}

// Those that have not changed and went offline are nobody to compare with: at the end, what passed
// earlier is, so that an evening that all sites have puts nothing back.
func TestOnlyWhoTellsIsAPeer(t *testing.T) {
	w := newWorld(t, 60)
	w.spec.Strategy.Waves, w.spec.Strategy.MaxInFlight = percent(50, 100), 20
	w.readyAfter = 5 * time.Minute
	w.until("the last wave", time.Hour, func(w *world) bool { return strings.HasPrefix(w.out.Status.Message, "Wave 2") })
	for i := range w.sites {
		if w.stepOf(w.sites[i].Name) == v1alpha1.StepWaiting {
			w.sites[i].Online = false
		}
	}
	w.readyAfter, w.also = 40*time.Second, map[string]float64{"Reliability": 60}
	w.run(2*time.Hour, func(w *world) bool {
		for _, g := range w.out.Status.Gates {
			if g.Name == "peers" && strings.Contains(g.Text, "no sites to compare with") {
				t.Fatal(g.Text)
			}
		}
		return len(w.saidBy("Failed")) > 0 || len(w.saidBy("WavePassed")) == 2
	})
	if n := len(w.saidBy("WavePassed")); n != 2 {
		t.Error(w.dump())
	}
}

// A region of five peers says how its sites move; of fewer, all peers do.
func TestWhoseMedianCounts(t *testing.T) {
	for n, want := range map[int]float64{1: -20, 4: -20, 5: 0, 9: 0} {
		j := judge{spread: defaultSpread}
		site := func(region string, by float64) moved {
			return moved{s: &subject{s: &Site{Labels: map[string]string{"region": region}}}, by: by, from: math.NaN()}
		}
		var others []moved
		for range n {
			others = append(others, site("few", -20))
		}
		for range 20 {
			others = append(others, site("many", 0))
		}
		d := []moved{site("few", -20), site("many", 0)}
		if j.align(d, others) || d[0].against != want || d[1].against != 0 {
			t.Errorf("%d peers: %v and %v, want %v and 0", n, d[0].against, d[1].against, want)
		}
	}
}
