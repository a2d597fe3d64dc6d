package releases

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/health"
	"muster.dev/muster/internal/fleet"
)

// tick is how often sites are scored and the rollout is decided.
const tick = 30 * time.Second

var start = time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC)

// sim is a fleet in simulated time.
type sim struct {
	rng     *rand.Rand
	model   *health.Model
	good    []health.Reading // of a site that is well
	packs   []bool
	at      map[string]int // signals by name
	now     time.Time
	sites   []*site
	made    int
	weather map[string]outage // trouble that a region's sites have together
	release *release
	// load of the fleet on top of that of the day, in percent of the CPU.
	load func(since time.Duration) float64
	// churn: sites join, leave, go offline and have faults of their own.
	churn bool
}

type outage struct {
	until time.Time
	loss  float64
}

// site is one site of it.
type site struct {
	name       string
	labels     map[string]string
	phase      float64 // of its day
	cpu, mem   float64 // what it usually has: used, available
	disk, loss float64
	latency    float64
	wander     [4]float64 // noise with a memory: CPU, memory, loss, latency
	offline    time.Time  // until then
	fault      string     // of its own
	faultUntil time.Time
	certDays   float64

	digit    int // content that it has
	got      time.Time
	starting time.Duration // how long it takes until it is ready
	red      time.Time     // since when it is
	state    *health.State
}

// newSim makes a fleet of n sites that has run for a quarter of an hour.
func newSim(seed uint64, n int, model *health.Model) *sim {
	s := &sim{rng: rand.New(rand.NewPCG(seed, 0x5eed)), model: model, at: map[string]int{}, weather: map[string]outage{}, churn: true, load: func(time.Duration) float64 { return 0 }}
	has := []string{"collector", "kubernetes", "kubelet-certificates", "kubelet", "cpu-limits", "pressure", "conntrack"}
	s.packs = make([]bool, len(model.Packs))
	for i, p := range model.Packs {
		s.packs[i] = slices.Contains(has, p.Name)
	}
	s.good = make([]health.Reading, len(model.Signals))
	for i, sig := range model.Signals {
		s.at[sig.Name] = i
		if sig.Pack == "" || slices.Contains(has, sig.Pack) {
			s.good[i] = health.Reading{Value: sig.Good, Known: true}
		}
	}
	s.now = start.Add(time.Duration(s.rng.IntN(24*60)) * time.Minute)
	for range n {
		s.add()
	}
	// A tenth is offline as it begins, for hours.
	for _, x := range s.sites {
		if s.rng.Float64() < 0.1 {
			x.offline = s.now.Add(time.Duration(s.rng.ExpFloat64() * float64(6*time.Hour)))
		}
	}
	return s
}

func (s *sim) add() *site {
	r := s.rng
	region := r.IntN(6)
	arch := "amd64"
	if r.Float64() < 0.15 {
		arch = "arm64"
	}
	x := &site{
		name: fmt.Sprintf("site-%04d", s.made),
		labels: map[string]string{
			fleet.LabelRegion: fmt.Sprintf("region-%d", region), fleet.SystemLabelPrefix + "arch": arch,
			fleet.SystemLabelPrefix + "product": []string{"nuc-12", "nuc-12", "r250", "r250", "r250", "pe-t40", "edge-5"}[r.IntN(7)],
		},
		phase: 2*math.Pi*float64(region)/6 + 0.3*r.NormFloat64(),
		cpu:   42 + 8*r.NormFloat64(), mem: 50 + 7*r.NormFloat64(), disk: 50 + 8*r.NormFloat64(), loss: 0.4 * r.ExpFloat64(),
		latency: 0.12 + 0.04*r.ExpFloat64(), certDays: 40 + 300*r.Float64(),
	}
	s.made++
	s.sites = append(s.sites, x)
	slices.SortFunc(s.sites, func(a, b *site) int { return strings.Compare(a.name, b.name) })
	return x
}

// step lets a tick go by: what the state assigns takes effect, and every site is scored.
func (s *sim) step(assigned map[string]int, all bool) []decide.Site {
	s.now = s.now.Add(tick)
	r := s.rng
	if s.churn {
		s.stir()
	}
	out := make([]decide.Site, len(s.sites))
	for i, x := range s.sites {
		online := !s.now.Before(x.offline)
		digit := assigned[x.name]
		if all {
			digit = 1
		}
		if online && digit != x.digit {
			x.digit, x.got, x.starting = digit, s.now, time.Duration(20+r.IntN(70))*time.Second
			if digit == 1 && s.release != nil && s.release.slow {
				x.starting = 5*time.Minute + time.Duration(r.Int64N(int64(10*time.Minute)))
			}
		}
		for k := range x.wander {
			x.wander[k] = 0.85*x.wander[k] + math.Sqrt(1-0.85*0.85)*r.NormFloat64()
		}
		readings, latency := s.readings(x, online)
		st := health.Evaluate(s.model, readings, x.state, s.now)
		x.state = &st
		o := &out[i]
		*o = decide.Site{Name: x.name, Labels: x.labels, Online: readings.Link == health.LinkUp, Red: st.Colour == fleet.Red, AlertsKnown: true}
		switch {
		case digit != x.digit:
			o.State = decide.NotYet
		case s.now.Sub(x.got) < x.starting:
			o.State = decide.Progressing
		default:
			o.State = decide.Ready
		}
		if st.Colour != fleet.Red {
			x.red = time.Time{}
		} else if x.red.IsZero() {
			x.red = s.now
		}
		if !x.red.IsZero() && s.now.Sub(x.red) >= 2*time.Minute {
			o.Alerts = []string{"critical/SiteRed"}
		}
		if !o.Online {
			continue
		}
		o.Measures = map[string]float64{"latency": latency}
		if st.Known {
			o.Measures["Site"] = st.Score
		}
		for d, dim := range fleet.Dimensions {
			if st.Dimensions[d].Known {
				o.Measures[strings.ToUpper(string(dim[:1]))+string(dim[1:])] = st.Dimensions[d].Score
			}
		}
	}
	return out
}

// stir is what happens to fleets anyway. By site and day: one time offline for a quarter
// of an hour and now and then for a day, half a fault; a site a day joins and one leaves;
// a region has an hour of bad uplinks every other day.
func (s *sim) stir() {
	r := s.rng
	perDay := func(n float64) bool { return r.Float64() < n*float64(tick)/float64(24*time.Hour) }
	for _, x := range s.sites {
		if perDay(1) {
			away := 15 * time.Minute
			if r.Float64() < 0.1 {
				away = 24 * time.Hour
			}
			if until := s.now.Add(time.Duration(r.ExpFloat64() * float64(away))); x.offline.Sub(s.now) < 20*24*time.Hour { // see absent
				x.offline = until
			}
		}
		if s.now.After(x.faultUntil) {
			x.fault = ""
		}
		if perDay(0.5) {
			x.fault = []string{"crash", "cpu", "disk", "memory"}[r.IntN(4)]
			x.faultUntil = s.now.Add(time.Duration(r.ExpFloat64() * float64(40*time.Minute)))
		}
	}
	if perDay(4) {
		s.add()
	}
	if perDay(4) && len(s.sites) > 10 {
		at := r.IntN(len(s.sites))
		s.sites = slices.Delete(s.sites, at, at+1)
	}
	if perDay(0.5) {
		s.weather[fmt.Sprintf("region-%d", r.IntN(6))] = outage{s.now.Add(time.Duration(r.ExpFloat64() * float64(time.Hour))), 4 + 4*r.Float64()}
	}
}

// readings are a site's, with what its day, its region, its faults and the release do.
func (s *sim) readings(x *site, online bool) (health.Readings, float64) {
	v := vitals{values: map[string]float64{}}
	day := 14 * math.Sin(2*math.Pi*float64(s.now.Unix()%86400)/86400+x.phase)
	v.cpu = x.cpu + day + s.load(s.now.Sub(start)) + 4*x.wander[0]
	v.mem = x.mem + 3*x.wander[1]
	v.loss = max(0, x.loss+0.3*x.wander[2])
	v.latency = max(0.01, x.latency*(1+0.15*x.wander[3])+max(0, day)*0.002)
	v.certDays, v.disk = x.certDays, x.disk
	if o, ok := s.weather[x.labels[fleet.LabelRegion]]; ok && s.now.Before(o.until) {
		v.loss += o.loss
	}
	switch x.fault {
	case "crash":
		v.values["crash-looping"], v.values["workloads-down"] = 1, 10
	case "cpu":
		v.cpu += 40
	case "disk":
		v.disk += 40
	case "memory":
		v.mem -= 40
	}
	if since := s.now.Sub(x.got); x.digit == 1 && s.release != nil {
		s.updates(x, since-x.starting, &v)
		if since >= x.starting {
			s.release.does(s.release, x, since-x.starting, &v)
		}
	}
	if v.offline {
		online = false
	}
	out := health.Readings{Link: health.LinkUp, Signals: slices.Clone(s.good), Packs: s.packs, Reconnects: v.reconnects}
	if !online {
		out.Link = health.LinkDown
	}
	set := func(name string, value float64) {
		if i, ok := s.at[name]; ok {
			out.Signals[i].Value = value
		}
	}
	busy := min(100, max(1, v.cpu))
	set("cpu-used", busy)
	set("cpu-busiest-node", min(100, busy+8))
	set("memory-available", min(95, max(0.5, v.mem)))
	set("disk-used", min(100, max(1, v.disk)))
	set("packet-loss", v.loss)
	set("certificate-days", v.certDays)
	for _, name := range slices.Sorted(maps.Keys(v.values)) {
		set(name, v.values[name])
	}
	return out, v.latency
}

// updates is what the update itself does to a site, until it is ready and for as long after
// as the shipped signals look back (75 s and 10 min), and the gate's query (5 min): a slow one
// has its pods start again and again, short of what it should have.
func (s *sim) updates(x *site, since time.Duration, v *vitals) {
	if since < 10*time.Minute {
		v.values["restarts"] = 1
	}
	if !s.release.slow {
		return
	}
	if since < 75*time.Second {
		v.values["workloads-short"], v.values["pods-pending"] = 40, 2
	}
	if since < 5*time.Minute {
		v.latency += 0.3
	}
	if since < 10*time.Minute {
		v.values["restarts"], v.values["workloads-flapping"], v.values["crash-looping"] = 5, 12, 1
	}
}

// vitals are what a site's signals are made of.
type vitals struct {
	cpu, mem, disk, loss, latency, certDays float64
	reconnects                              int
	offline                                 bool
	values                                  map[string]float64 // of other signals
}
