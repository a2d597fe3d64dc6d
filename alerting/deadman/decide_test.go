package deadman

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func conf() Config {
	return Config{SiteFor: 15 * time.Second, RegionalFor: 15 * time.Second, Grace: 30 * time.Second, NeverFor: 15 * time.Minute, MinSites: 5, MinShare: 0.8, EndShare: 0.5, Regionals: []string{"one", "two"}}
}

// world is a fleet that a test moves through time.
type world struct {
	c     Config
	sites []Site
	up    map[string]bool   // regional → answers
	on    map[string]string // site → regional that it is connected to; "": none
	views map[string]*View
	state State
	now   time.Time
	last  []Alert
}

func newWorld(n int) *world {
	w := &world{c: conf(), up: map[string]bool{"one": true, "two": true}, on: map[string]string{}, views: map[string]*View{}, now: t0}
	for i := range n {
		region := []string{"eu", "us"}[i%2]
		s := Site{ID: fleet.SiteID{Tenant: "acme", Name: fmt.Sprintf("s%d", i)}, Region: region, Regional: []string{"one", "two"}[i%2], Connected: true, Created: t0.Add(-time.Hour)}
		w.sites = append(w.sites, s)
		w.on[s.ID.Name] = s.Regional
	}
	for _, r := range w.c.Regionals {
		w.views[r] = &View{Name: r, Reachable: true, Since: t0.Add(-time.Hour)}
	}
	return w
}

// step lets d pass in looks of 3 s, and returns the names of what fires.
func (w *world) step(d time.Duration) []string {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(3 * time.Second)
		w.look()
	}
	return w.firing()
}

func (w *world) look() {
	var views []View
	for _, r := range w.c.Regionals {
		v := w.views[r]
		if v.Reachable != w.up[r] {
			v.Reachable, v.Since = w.up[r], w.now
		}
		if w.up[r] {
			v.Sites = map[fleet.SiteID]LiveSite{}
			for _, s := range w.sites {
				if w.on[s.ID.Name] == r {
					v.Sites[s.ID] = LiveSite{Connected: true, LastSeen: w.now}
				}
			}
		}
		views = append(views, *v)
	}
	w.last, w.state = Decide(w.c, w.sites, views, w.state, w.now)
}

func (w *world) firing() []string {
	var out []string
	for _, a := range w.last {
		out = append(out, a.Labels["alertname"]+" "+a.Labels["tenant"]+"/"+a.Labels["region"]+"/"+a.Labels["regional"]+"/"+a.Labels["site"])
	}
	slices.Sort(out)
	return out
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("fires:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestSiteDown(t *testing.T) {
	w := newWorld(10)
	want(t, w.step(time.Minute))
	w.on["s0"] = ""
	want(t, w.step(12*time.Second)) // not yet
	want(t, w.step(9*time.Second), "SiteDown acme/eu/one/s0")
	began := w.last[0].StartsAt
	want(t, w.step(time.Hour), "SiteDown acme/eu/one/s0")
	if !w.last[0].StartsAt.Equal(began) {
		t.Error("the start of the alert moves")
	}
	w.on["s0"] = "one"
	want(t, w.step(3*time.Second))
	// One that moved to its second regional is not down.
	w.on["s0"] = "two"
	want(t, w.step(time.Hour))
}

func TestRegionalDown(t *testing.T) {
	w := newWorld(20)
	w.step(time.Minute)
	w.up["one"] = false
	for _, s := range w.sites {
		if s.Regional == "one" {
			w.on[s.ID.Name] = ""
		}
	}
	want(t, w.step(9*time.Second))
	down := []string{"RegionalDown acme//one/", "RegionalDown muster//one/"}
	want(t, w.step(time.Hour), down...)
	// Its sites come back one by one; meanwhile they don't alert.
	w.up["one"] = true
	want(t, w.step(12*time.Second))
	for _, s := range w.sites[:18] {
		w.on[s.ID.Name] = s.Regional
	}
	want(t, w.step(12*time.Second))
	// The one that does not is found after the grace.
	want(t, w.step(time.Minute), "SiteDown acme/eu/one/s18")
}

// downs are the names of the SiteDown alerts of a region's silent sites.
func (w *world) downs(region string) []string {
	var out []string
	for _, s := range w.sites {
		if s.Region == region && w.on[s.ID.Name] == "" {
			out = append(out, "SiteDown acme/"+region+"/"+s.Regional+"/"+s.ID.Name)
		}
	}
	return out
}

// Most sites of a region are silent while their regional answers: the region alerts,
// and before its sites, which it inhibits.
func TestRegionDown(t *testing.T) {
	w := newWorld(40)
	w.step(time.Minute)
	w.on["s0"] = ""
	want(t, w.step(30*time.Second), "SiteDown acme/eu/one/s0")
	for _, s := range w.sites[:34] {
		if s.Region == "eu" {
			w.on[s.ID.Name] = ""
		}
	}
	want(t, w.step(30*time.Second), append(w.downs("eu"), "RegionDown acme/eu//")...)
	if w.last[0].Labels["alertname"] != AlertRegionDown {
		t.Errorf("the first alert is %v, want the region's", w.last[0].Labels)
	}
	// It flaps around the share: the region stays to blame until half of it is back.
	w.on["s2"], w.on["s4"], w.on["s6"] = "one", "one", "one"
	want(t, w.step(time.Minute), append(w.downs("eu"), "RegionDown acme/eu//")...)
	// The rest of it gets a while to come back, too, before it alerts for itself.
	for i := 8; i < 32; i += 2 {
		w.on[fmt.Sprintf("s%d", i)] = "one"
	}
	rest := []string{"SiteDown acme/eu/one/s0", "SiteDown acme/eu/one/s32"}
	want(t, w.step(27*time.Second), append(rest, "RegionDown acme/eu//")...)
	want(t, w.step(6*time.Second), rest...)
	want(t, w.step(time.Hour), rest...)
}

// When the whole region is back, all of it ends at the same look.
func TestRegionComesBack(t *testing.T) {
	w := newWorld(40)
	w.step(time.Minute)
	for i := 0; i < 40; i += 2 {
		w.on[fmt.Sprintf("s%d", i)] = ""
	}
	want(t, w.step(time.Minute), append(w.downs("eu"), "RegionDown acme/eu//")...)
	for i := 0; i < 40; i += 2 {
		w.on[fmt.Sprintf("s%d", i)] = "one"
	}
	want(t, w.step(3*time.Second))
	if len(w.state.Regions) != 0 {
		t.Errorf("still remembered: %v", w.state.Regions)
	}
	// Some come back, and are gone again before the region let go: it goes on, and the
	// time for the rest starts anew.
	w = newWorld(40)
	w.step(time.Minute)
	flap := func(on string) {
		for i := 0; i < 30; i += 2 {
			w.on[fmt.Sprintf("s%d", i)] = on
		}
	}
	flap("")
	w.on["s30"], w.on["s32"], w.on["s34"] = "", "", ""
	w.step(time.Minute)
	for range 5 {
		flap("one")
		want(t, w.step(21*time.Second), append(w.downs("eu"), "RegionDown acme/eu//")...)
		flap("")
		want(t, w.step(30*time.Second), append(w.downs("eu"), "RegionDown acme/eu//")...)
	}
}

// Sites in maintenance alert for themselves, to be silenced, and say nothing of their
// region: neither when they are silent nor when they are not.
func TestRegionAndMaintenance(t *testing.T) {
	w := newWorld(40) // 20 of eu
	plan := func(from, until int, on bool) {
		for i := from; i < until; i += 2 {
			w.sites[i].Maintenance = on
		}
	}
	dark := func(from, until int, on string) {
		for i := from; i < until; i += 2 {
			w.on[fmt.Sprintf("s%d", i)] = on
		}
	}
	w.step(time.Minute)
	plan(0, 36, true) // 18
	dark(0, 36, "")
	want(t, w.step(time.Hour), w.downs("eu")...)
	// All others fall silent: they are too few for a region.
	dark(36, 40, "")
	want(t, w.step(time.Minute), w.downs("eu")...)
	// The planned work is over, and nothing has come back.
	plan(0, 36, false)
	want(t, w.step(3*time.Second), append(w.downs("eu"), "RegionDown acme/eu//")...)

	// Sites that are up for all of their maintenance don't make the silent ones fewer.
	w = newWorld(40)
	w.step(time.Minute)
	plan(0, 26, true) // 13, and 7 others
	dark(28, 40, "")  // 6
	want(t, w.step(time.Minute), append(w.downs("eu"), "RegionDown acme/eu//")...)

	// A planned silence does not make the first of the others alert before the rest.
	w = newWorld(40)
	w.step(time.Minute)
	plan(0, 2, true)
	dark(0, 2, "")
	want(t, w.step(time.Minute), w.downs("eu")...)
	dark(2, 40, "")
	want(t, w.step(12*time.Second), "SiteDown acme/eu/one/s0")
	want(t, w.step(9*time.Second), append(w.downs("eu"), "RegionDown acme/eu//")...)
}

// A regional that is dead for an hour hides its own sites and no others.
func TestOthersWhileARegionalIsDown(t *testing.T) {
	w := newWorld(40)
	w.c.Regionals = append(w.c.Regionals, "three")
	w.up["three"], w.views["three"] = true, &View{Name: "three", Reachable: true, Since: t0.Add(-time.Hour)}
	for i := range w.sites {
		if s := &w.sites[i]; i >= 30 {
			s.Region, s.Regional = "asia", "three"
			w.on[s.ID.Name] = "three"
		}
	}
	// One that moved from it, of which the inventory has not heard.
	w.on["s31"] = "two"
	w.step(time.Minute)
	w.up["three"] = false
	for i := 30; i < 40; i++ {
		if i != 31 {
			w.on[fmt.Sprintf("s%d", i)] = ""
		}
	}
	dead := []string{"RegionalDown acme//three/", "RegionalDown muster//three/"}
	// While its sites may be on the way to another regional, nobody else is judged.
	w.on["s0"] = ""
	want(t, w.step(42*time.Second), dead...)
	want(t, w.step(24*time.Second), append(dead, "SiteDown acme/eu/one/s0")...)
	w.step(time.Hour)
	w.on["s2"] = ""
	want(t, w.step(21*time.Second), append(dead, "SiteDown acme/eu/one/s0", "SiteDown acme/eu/one/s2")...)
	// A whole region, and with it one that never connected.
	for i := 1; i < 30; i += 2 {
		w.on[fmt.Sprintf("s%d", i)] = ""
	}
	w.sites = append(w.sites, Site{ID: fleet.SiteID{Tenant: "acme", Name: "new"}, Region: "eu", Created: t0},
		Site{ID: fleet.SiteID{Tenant: "acme", Name: "newer"}, Region: "asia", Regional: "three", Created: t0})
	all := append(w.downs("us"), "RegionDown acme/us//", "SiteDown acme/eu/one/s0", "SiteDown acme/eu/one/s2", "SiteNeverConnected acme/eu//new")
	want(t, w.step(21*time.Second), slices.Concat(all, dead)...)
	// It comes back, and has a site that does not.
	w.up["three"] = true
	for i := 30; i < 39; i++ {
		w.on[fmt.Sprintf("s%d", i)] = "three"
	}
	all = append(all, "SiteDown acme/asia/three/s39", "SiteNeverConnected acme/asia/three/newer")
	want(t, w.step(time.Minute), all...)
}

func TestNeverConnected(t *testing.T) {
	w := newWorld(2)
	w.sites = append(w.sites, Site{ID: fleet.SiteID{Tenant: "acme", Name: "new"}, Region: "eu", Regional: "one", Created: t0})
	want(t, w.step(14*time.Minute))
	want(t, w.step(2*time.Minute), "SiteNeverConnected acme/eu/one/new")
	w.on["new"] = "one"
	want(t, w.step(3*time.Second))
}

// A restart of the role neither forgets nor repeats, and what it can't know it does
// not claim.
func TestRestart(t *testing.T) {
	w := newWorld(10)
	w.on["s0"] = ""
	w.step(time.Minute)
	began := w.last[0].StartsAt
	for _, v := range w.views {
		*v = View{Name: v.Name, Since: w.now} // nothing was heard yet
	}
	w.up["one"], w.up["two"] = false, false
	want(t, w.step(6*time.Second)) // looks that fail for a moment
	w.up["one"], w.up["two"] = true, true
	w.step(3 * time.Second)
	want(t, w.firing(), "SiteDown acme/eu/one/s0")
	_ = began
}

// Whatever happens, a site that is silent for long is covered by exactly one alert of
// its own or its regional's, and a site that is connected by none.
func TestEveryCaseIsCoveredOnce(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(30)
		w.step(time.Minute)
		for range 40 {
			switch r.IntN(6) {
			case 0:
				w.up["one"] = !w.up["one"]
			case 1:
				w.up["two"] = !w.up["two"]
			default:
				for range 1 + r.IntN(12) {
					w.on[fmt.Sprintf("s%d", r.IntN(30))] = []string{"", "", "one", "two"}[r.IntN(4)]
				}
			}
			w.step(time.Duration(3+r.IntN(90)) * time.Second)
			w.check(t, seed, false)
		}
		w.step(5 * time.Minute)
		w.check(t, seed, true)
	}
}

func (w *world) check(t *testing.T, seed uint64, settled bool) {
	t.Helper()
	site, region, regional := map[string]int{}, map[string]bool{}, map[string]bool{}
	for _, a := range w.last {
		switch a.Labels["alertname"] {
		case AlertSiteDown:
			site[a.Labels["site"]]++
		case AlertRegionDown:
			region[a.Labels["region"]] = true
		case AlertRegionalDown:
			regional[a.Labels["regional"]] = true
		}
	}
	for _, s := range w.sites {
		n, on := site[s.ID.Name], w.on[s.ID.Name]
		connected := on != "" && w.up[on]
		if n > 1 || n == 1 && (connected || !w.up[s.Regional]) {
			t.Fatalf("seed %d: SiteDown of %s (%d), connected %v, its regional answers %v", seed, s.ID, n, connected, w.up[s.Regional])
		}
		if settled && !connected && n == 0 && !regional[s.Regional] {
			t.Fatalf("seed %d: %s is silent and nobody says so: %v", seed, s.ID, w.firing())
		}
		if n == 1 {
			delete(region, s.Region)
		}
	}
	if len(region) > 0 {
		t.Fatalf("seed %d: regions %v are to blame and none of their sites is down", seed, region)
	}
	keys := map[string]bool{}
	for _, a := range w.last {
		if keys[a.key()] {
			t.Fatalf("seed %d: %s twice", seed, a.key())
		}
		keys[a.key()] = true
	}
	if !slices.Equal(slices.Sorted(maps.Keys(keys)), slices.Sorted(maps.Keys(w.state.Firing))) {
		t.Fatalf("seed %d: the state does not hold what fires", seed)
	}
}

func BenchmarkDecide(b *testing.B) {
	w := newWorld(10_000)
	for i := range 100 {
		w.on[fmt.Sprintf("s%d", i*37)] = ""
	}
	w.step(time.Minute)
	var views []View
	for _, v := range w.views {
		views = append(views, *v)
	}
	b.ReportAllocs()
	for b.Loop() {
		Decide(w.c, w.sites, views, w.state, w.now)
	}
}

// A region's sites are missed one after the other, as their connections time out: the
// first ones don't alert for themselves before the region does.
func TestRegionWhoseSitesFallSilentOneByOne(t *testing.T) {
	w := newWorld(40)
	w.step(time.Minute)
	for i := 0; i < 40; i += 2 {
		w.on[fmt.Sprintf("s%d", i)] = ""
		if i%8 == 0 {
			if got := w.step(3 * time.Second); len(got) != 0 {
				t.Fatalf("after %d sites: %v", i/2, got)
			}
		}
	}
	for range 20 {
		if got := w.step(3 * time.Second); len(got) > 0 && !slices.Contains(got, "RegionDown acme/eu//") {
			t.Errorf("without the region: %v", got)
		}
	}
	want(t, w.firing(), append(w.downs("eu"), "RegionDown acme/eu//")...)
	var began time.Time
	for _, a := range w.last {
		if a.Labels["alertname"] == AlertRegionDown {
			began = a.StartsAt
		}
	}
	for _, a := range w.last {
		if a.StartsAt.Before(began) {
			t.Errorf("%v began at %s, before its region at %s", a.Labels, a.StartsAt, began)
		}
	}
}
