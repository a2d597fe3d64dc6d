package releases

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/health/defaults"
	"muster.dev/muster/internal/fleet"
)

var (
	seedFlag  = flag.Uint64("seed", 1, "seed of the fleets and the releases")
	countFlag = flag.Int("releases", 20, "how many bad releases, and how many good ones")
	sitesFlag = flag.Int("sites", 300, "sites of each fleet")
	kindFlag  = flag.Int("kind", 0, "the one kind of bad releases, from 1; 0: all ten")
)

// release is what a new version does.
type release struct {
	kind string
	soak time.Duration
	slow bool // 5 to 15 minutes until a site is ready with it
	// degree from 0 to 1: how bad it is, of its kind.
	degree float64
	arch   string // where it is bad, if it is not everywhere
	model  string
	load   func(since time.Duration) float64
	does   func(r *release, x *site, since time.Duration, v *vitals)
}

// The ten kinds. Each begins once the site is ready with it: a release that says itself
// that it failed needs no statistics.
var kinds = []func(r *rand.Rand) *release{
	func(*rand.Rand) *release {
		return &release{kind: "crash loop", does: func(r *release, _ *site, since time.Duration, v *vitals) {
			if since > time.Minute {
				v.values["crash-looping"], v.values["workloads-down"] = 1, 5+25*r.degree
			}
		}}
	},
	func(*rand.Rand) *release {
		return &release{kind: "slow leak", does: func(r *release, _ *site, since time.Duration, v *vitals) {
			v.mem -= (3 + 2*r.degree) * since.Minutes()
		}}
	},
	func(*rand.Rand) *release {
		return &release{kind: "CPU", does: func(r *release, _ *site, _ time.Duration, v *vitals) {
			v.cpu += 40 + 20*r.degree
			v.values["cpu-throttled"] = 45 + 30*r.degree
		}}
	},
	func(*rand.Rand) *release {
		return &release{kind: "latency", does: func(r *release, _ *site, _ time.Duration, v *vitals) { v.latency += 0.25 + 0.5*r.degree }}
	},
	func(*rand.Rand) *release {
		return &release{kind: "certificate", does: func(r *release, _ *site, _ time.Duration, v *vitals) { v.certDays = 5 - 4*r.degree }}
	},
	func(*rand.Rand) *release {
		return &release{kind: "uplink chatter", does: func(r *release, x *site, since time.Duration, v *vitals) {
			v.loss += 3 + 3*r.degree
			if since > 3*time.Minute {
				v.reconnects = 3 + int(3*r.degree)
			}
			v.offline = int(since/tick)%9 == len(x.name)%9
		}}
	},
	func(rng *rand.Rand) *release {
		return &release{kind: "one hardware model", model: []string{"nuc-12", "pe-t40", "edge-5"}[rng.IntN(3)], does: crash}
	},
	func(*rand.Rand) *release { return &release{kind: "ARM", arch: "arm64", does: crash} },
	func(*rand.Rand) *release {
		return &release{kind: "late", soak: 45 * time.Minute, does: func(r *release, x *site, since time.Duration, v *vitals) {
			if since > 30*time.Minute {
				v.values["crash-looping"], v.values["workloads-down"] = 1, 10+20*r.degree
			}
		}}
	},
	func(*rand.Rand) *release {
		// The fleet's load falls by as much as the release takes, while it is looked at.
		return &release{
			kind: "masked", load: func(since time.Duration) float64 { return max(0, 36-2.4*since.Minutes()) },
			does: func(r *release, _ *site, _ time.Duration, v *vitals) { v.cpu += 32 + 8*r.degree },
		}
	},
}

func crash(r *release, x *site, since time.Duration, v *vitals) {
	if r.arch != "" && x.labels[fleet.SystemLabelPrefix+"arch"] != r.arch || r.model != "" && x.labels[fleet.SystemLabelPrefix+"product"] != r.model {
		return
	}
	if since > time.Minute {
		v.values["crash-looping"], v.values["workloads-down"] = 1, 10+20*r.degree
	}
}

// trial is how one release went.
type trial struct {
	phase     v1alpha1.RolloutPhase
	passed    int // waves
	waves     int
	touched   int // sites that got the change, and are not in the first wave
	halted    bool
	took      time.Duration
	message   string
	decisions []v1alpha1.RolloutDecision
	gates     []v1alpha1.GateReading
}

// course is a release on its way over a fleet of its own.
type course struct {
	*sim
	name   string
	spec   v1alpha1.RolloutSpec
	state  v1alpha1.RolloutStateSpec
	memory *decide.Memory
	before map[string]map[string]float64
	began  time.Time
	trial
}

// begin makes the fleet, and looks at it for a quarter of an hour.
func begin(seed uint64, n int, rel *release) *course {
	c := &course{sim: newSim(seed, n, defaults.Model()), name: fmt.Sprint("shop-", seed)}
	rise := resource.MustParse("100m")
	c.spec = v1alpha1.RolloutSpec{RolloutPlan: v1alpha1.RolloutPlan{
		Soak: metav1.Duration{Duration: 15 * time.Minute},
		Gates: append(decide.DefaultGates(), v1alpha1.RolloutGate{
			Name: "latency", Peers: &v1alpha1.GateChange{Query: "histogram_quantile(0.9, …)", MaxRise: &rise},
		}),
	}}
	if rel.soak > 0 {
		c.spec.Soak.Duration = rel.soak
	}
	if rel.slow {
		c.spec.Budget.ReadyWithin.Duration = 20 * time.Minute
	}
	c.state = v1alpha1.RolloutStateSpec{Held: true, Objects: []v1alpha1.RolloutObject{{Name: "shop", Contents: make([]runtime.RawExtension, 2)}}}
	if rel.load != nil {
		c.load = func(time.Duration) float64 {
			if c.began.IsZero() {
				return rel.load(0)
			}
			return rel.load(c.now.Sub(c.began))
		}
	}
	for range 30 { // the history of scores, of a quarter of an hour
		c.before = averages(c.before, c.sim.step(nil, false))
	}
	c.began, c.release = c.now, rel
	return c
}

// step decides once, a tick later.
func (c *course) step() *v1alpha1.RolloutStatus {
	sites := c.sim.step(c.state.Assigned(), !c.state.Held)
	in := decide.Input{Name: c.name, Spec: &c.spec, State: c.state.DeepCopy(), Sites: sites, Memory: c.memory, Now: c.now, Reach: map[string]time.Duration{"latency": 6 * time.Minute}}
	if c.memory == nil {
		in.Before = c.before
	}
	d := decide.Decide(in)
	c.memory = d.Memory
	if d.Changed {
		c.state = *d.State
	}
	c.phase, c.waves, c.message, c.gates = d.Status.Phase, len(d.Status.Waves), d.Status.Message, d.Status.Gates
	c.decisions = append(c.decisions, d.Decisions...)
	for _, x := range d.Decisions {
		c.halted = c.halted || x.What == "Failed"
	}
	c.passed = 0
	for _, w := range d.Status.Waves {
		if w.PassedAt != nil {
			c.passed++
		}
	}
	if c.touched == 0 && len(d.Status.Waves) > 0 {
		for _, w := range d.Status.Waves[1:] {
			c.touched += int(w.Sites.Updating + w.Sites.Updated)
		}
	}
	c.took = c.now.Sub(c.began)
	return &d.Status
}

// over: it has ended, or all waves have passed.
func (c *course) over() bool { return c.phase.Ended() || c.waves > 0 && c.passed == c.waves }

// try rolls a release out over a fleet of its own, until it has ended, all waves have
// passed, or for a time at the longest.
func try(seed uint64, n int, rel *release, most time.Duration) trial {
	c := begin(seed, n, rel)
	for c.now.Sub(c.began) < most && !c.over() {
		c.step()
	}
	return c.trial
}

// averages keeps the mean of each measure of each site in "" + name, as the history of
// scores would have it.
func averages(before map[string]map[string]float64, sites []decide.Site) map[string]map[string]float64 {
	if before == nil {
		before = map[string]map[string]float64{}
	}
	for i := range sites {
		m := before[sites[i].Name]
		if m == nil {
			m = map[string]float64{}
			before[sites[i].Name] = m
		}
		for k, v := range sites[i].Measures {
			if old, ok := m[k]; ok {
				v = 0.85*old + 0.15*v
			}
			m[k] = v
		}
	}
	return before
}

// inParallel runs n trials, two at a time.
func inParallel(n int, do func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range 2 {
		wg.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

func (o *trial) story() string {
	var b strings.Builder
	for _, d := range o.decisions {
		if d.What != "Changed" && d.What != "CaughtUp" {
			fmt.Fprintf(&b, "\n    %s %-13s %s", d.At.Format("15:04:05"), d.What, d.Text)
		}
	}
	for _, g := range o.gates {
		fmt.Fprintf(&b, "\n    gate %s %s %s", g.Name, g.Verdict, g.Text)
	}
	return b.String()
}

func TestBadReleasesDoNotPassTheirFirstWave(t *testing.T) {
	results := make([]trial, *countFlag)
	rels := make([]*release, *countFlag)
	inParallel(*countFlag, func(i int) {
		seed := *seedFlag*1000 + uint64(i)
		rng := rand.New(rand.NewPCG(seed, 0xbad))
		kind := i % len(kinds)
		if *kindFlag > 0 {
			kind = *kindFlag - 1
		}
		rels[i] = kinds[kind](rng)
		rels[i].degree = rng.Float64()
		results[i] = try(seed, *sitesFlag, rels[i], 3*time.Hour)
	})
	type tally struct {
		n, stopped, held int
		took             time.Duration
	}
	sum := map[string]*tally{}
	for i := range results {
		r, o := rels[i], &results[i]
		k := sum[r.kind]
		if k == nil {
			k = &tally{}
			sum[r.kind] = k
		}
		k.n++
		switch {
		case o.passed > 0 || o.touched > 0:
			t.Errorf("%s of degree %.2f passed %d waves, and %d sites outside of the first had it (-seed %d, release %d): %s%s", r.kind, r.degree, o.passed, o.touched, *seedFlag, i, o.message, o.story())
		case o.phase == v1alpha1.RolloutRolledBack:
			k.stopped++
			k.took += o.took
		default:
			k.held++
			t.Logf("%s of degree %.2f was held, not stopped (-seed %d, release %d): %s%s", r.kind, r.degree, *seedFlag, i, o.message, o.story())
		}
	}
	for i := range kinds {
		kind := kinds[i](rand.New(rand.NewPCG(1, 1))).kind
		if k := sum[kind]; k != nil {
			t.Logf("-seed %d: %-20s %d releases, %d stopped (after %s in the mean), %d held", *seedFlag, kind, k.n, k.stopped, (k.took / time.Duration(max(1, k.stopped))).Round(time.Second), k.held)
		}
	}
}

// Every second good release is slow: what the update itself does to a site is no fault of
// what it brings.
func TestGoodReleasesAreNotHalted(t *testing.T) {
	nothing := func(*release, *site, time.Duration, *vitals) {}
	good := []*release{{kind: "good", does: nothing}, {kind: "good and slow", slow: true, does: nothing}}
	results := make([]trial, *countFlag)
	inParallel(*countFlag, func(i int) {
		results[i] = try(*seedFlag*1000+500+uint64(i), *sitesFlag, good[i%len(good)], 12*time.Hour)
	})
	for k, rel := range good {
		var took, longest time.Duration
		n := 0
		for i := k; i < len(results); i += len(good) {
			o := &results[i]
			if o.halted || o.passed != o.waves {
				t.Errorf("a release that is %s was halted in wave %d of %d after %s (-seed %d, release %d): %s %s%s", rel.kind, o.passed+1, o.waves, o.took, *seedFlag, i, o.phase, o.message, o.story())
			}
			took += o.took
			longest = max(longest, o.took)
			n++
		}
		t.Logf("-seed %d: %d releases that are %s over %d sites, %s in the mean, %s at the longest", *seedFlag, n, rel.kind, *sitesFlag, (took / time.Duration(max(1, n))).Round(time.Second), longest)
	}
}
