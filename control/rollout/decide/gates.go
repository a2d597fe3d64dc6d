package decide

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

const (
	// confirm is how long what fails a gate has to be true: one glance is none.
	confirm = 45 * time.Second
	// least of the sites that are online have to have a reading, in percent; of fewer than
	// twenty that is each.
	leastKnown = 95
	// GateContact is the gate that each wave has besides those that it is given: sites do
	// not go offline with the change more often than without.
	GateContact = "contact"
)

// DefaultGates are the gates of a plan that names none.
func DefaultGates() []v1alpha1.RolloutGate {
	return []v1alpha1.RolloutGate{
		{Name: "ready", Ready: &v1alpha1.GateReady{Percent: 100}},
		{Name: "alerts", Alerts: &v1alpha1.GateAlerts{Severities: []string{"critical"}}},
		{Name: "peers", Peers: &v1alpha1.GateChange{MaxDrop: 10}},
	}
}

// GatesOf are the gates of a plan.
func GatesOf(p *v1alpha1.RolloutPlan) []v1alpha1.RolloutGate {
	if len(p.Gates) == 0 {
		return DefaultGates()
	}
	return p.Gates
}

// Evaluate reads the gates once: how the sites that changed stand against what they were
// before (by site and measure, as in Site.Measures) and against their peers, who are in
// before as well. The verdict is the worst of the gates'; it waits until soak has gone by
// since the sites changed. Memory may be nil; a gate that has to see something for a while
// before it fails needs one that is handed in again.
func Evaluate(gates []v1alpha1.RolloutGate, changed, peers []Site, before map[string]map[string]float64, memory *Memory, outside map[string]Outside, since time.Time, soak time.Duration, now time.Time) (v1alpha1.GateVerdict, []v1alpha1.GateReading) {
	if memory == nil {
		memory = newMemory()
	}
	memory.init()
	memory.look(changed, now)
	memory.add(peers, now)
	j := judge{gates: gates, mem: memory, outside: outside, since: since, soak: soak, now: now, spread: defaultSpread}
	if len(gates) == 0 {
		j.gates = DefaultGates()
	}
	columns := Measures(j.gates)
	j.columns(columns)
	add := func(list []Site) []subject {
		out := make([]subject, len(list))
		for i := range list {
			s := &list[i]
			row := make([]float64, len(columns))
			for c, name := range columns {
				v, ok := before[s.Name][name]
				if row[c] = v; !ok || !comparable(v) {
					row[c] = math.NaN()
				}
			}
			out[i] = subject{s: s, before: row, real: row, from: since}
		}
		return out
	}
	j.changed, j.peers = add(changed), add(peers)
	for i := range j.changed {
		j.changed[i].unsee(since, now)
	}
	verdict, readings := j.all()
	seconds := int32(min(max(0, now.Sub(since)), soak) / time.Second)
	for i := range readings {
		readings[i].Seconds, readings[i].OfSeconds = seconds, int32(soak/time.Second)
	}
	if verdict == v1alpha1.GatePass && now.Sub(since) < soak {
		verdict = v1alpha1.GateWait
	}
	return verdict, readings
}

// Measures are the names in Site.Measures that gates read.
func Measures(gates []v1alpha1.RolloutGate) []string {
	if len(gates) == 0 {
		gates = DefaultGates()
	}
	var out []string
	add := func(name string) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for i := range gates {
		g := &gates[i]
		for _, ch := range []*v1alpha1.GateChange{g.Before, g.Peers} {
			switch {
			case ch == nil:
			case ch.Query != "":
				add(g.Name)
			case len(ch.Dimensions) == 0:
				for _, d := range dimensions {
					add(d)
				}
			default:
				for _, d := range ch.Dimensions {
					add(string(d))
				}
			}
		}
		switch {
		case g.Score != nil:
			add(cmp.Or(string(g.Score.Dimension), siteScore))
		case g.Unhealthy != nil:
			add(siteScore)
		case g.Query != nil:
			add(g.Name)
		}
	}
	return out
}

const siteScore, connectivity = "Site", "Connectivity"

var dimensions = []string{siteScore, connectivity, "Reliability", "Security", "Performance"}

func checkGates(gates []v1alpha1.RolloutGate) error {
	for i := range gates {
		g := &gates[i]
		n := 0
		for _, set := range []bool{g.Ready != nil, g.Score != nil, g.Unhealthy != nil, g.Before != nil, g.Peers != nil, g.Alerts != nil, g.Query != nil, g.Logs != nil, g.Webhook != nil} {
			if set {
				n++
			}
		}
		if n != 1 {
			return fmt.Errorf("spec.gates[%s]: has %d kinds: give exactly one of ready, score, unhealthy, before, peers, alerts, query, logs and webhook", g.Name, n)
		}
		for kind, ch := range map[string]*v1alpha1.GateChange{"before": g.Before, "peers": g.Peers} {
			if ch != nil && (ch.Query != "") != (ch.MaxRise != nil) {
				return fmt.Errorf("spec.gates[%s].%s: give query and maxRise together", g.Name, kind)
			}
			if ch != nil && ch.MaxRise != nil && ch.MaxRise.Sign() <= 0 {
				return fmt.Errorf("spec.gates[%s].%s.maxRise: %s: want more than 0", g.Name, kind, ch.MaxRise)
			}
		}
	}
	return nil
}

// subject is a site as gates see it.
type subject struct {
	s *Site
	// before by column, as it would have been when the wave began, and as it was; NaN:
	// unknown.
	before, real []float64
	alerts       []string  // that fired before
	from         time.Time // since when it is what it is
	failed       bool      // the budget's
	updating     bool      // has not been ready with it yet
	ready        time.Time // when it first was, while it is judged; zero: what it shows counts
	restarts     bool      // that it is offline is part of the change
	unseen       bool      // what it shows is of before the change: its Measures are left out
	away         bool      // was offline before the wave began: that it is says nothing of it
	late         bool      // came after the wave had settled: its readiness is its own
}

// judge reads the gates of one wave at one moment.
type judge struct {
	gates          []v1alpha1.RolloutGate
	changed, peers []subject
	column         map[string]int
	mem            *Memory
	outside        map[string]Outside
	since, now     time.Time
	soak           time.Duration
	settle         time.Duration            // RolloutPlan.Settle
	reach          map[string]time.Duration // Input.Reach
	spread         []string
	low            []string // changed sites that have fallen by a gate on peers, also in doubt
	apart          bool     // those judged are a few that came back: each stands for itself
}

func (j *judge) columns(names []string) {
	j.column = make(map[string]int, len(names))
	for c, name := range names {
		j.column[name] = c
	}
}

// look is the number of the look that this is: there is one a minute.
func (j *judge) look() int { return int(max(0, j.now.Sub(j.since))/time.Minute) + 1 }

// window is how far back the readings of now go.
func (j *judge) window() time.Duration { return min(max(j.soak/3, time.Minute), 5*time.Minute) }

// patience is how long what a limit forbids may be true where no test can tell it from
// chance.
func (j *judge) patience() time.Duration { return min(max(j.soak/3, confirm), 5*time.Minute) }

// persistent is how long it has to be true where time stands in for sites.
func (j *judge) persistent() time.Duration {
	if j.soak <= 0 {
		return 5 * time.Minute
	}
	return j.soak
}

var rank = map[v1alpha1.GateVerdict]int{v1alpha1.GatePass: 0, v1alpha1.GateWait: 1, v1alpha1.GateUnknown: 2, v1alpha1.GateFail: 3}

// all reads each gate. The verdict is the worst.
func (j *judge) all() (v1alpha1.GateVerdict, []v1alpha1.GateReading) {
	verdict := v1alpha1.GatePass
	var out []v1alpha1.GateReading
	add := func(name string, r v1alpha1.GateReading) {
		r.Name = name
		if o := j.outside[name]; r.Verdict == v1alpha1.GateUnknown && !strings.Contains(r.Text, o.Text) {
			r.Text += " " + o.Text // why
		}
		if r.Verdict == v1alpha1.GateUnknown {
			r.Text += j.unseen()
		}
		if len(r.Worst) > 5 {
			r.Worst = r.Worst[:5]
		}
		if rank[r.Verdict] > rank[verdict] {
			verdict = r.Verdict
		}
		out = append(out, r)
	}
	for i := range j.gates {
		add(j.gates[i].Name, j.one(&j.gates[i]))
	}
	if r := j.contact(); r.Verdict != v1alpha1.GatePass {
		add(GateContact, r)
	}
	return verdict, out
}

func (j *judge) one(g *v1alpha1.RolloutGate) v1alpha1.GateReading {
	switch {
	case g.Ready != nil:
		return j.ready(g.Ready)
	case g.Score != nil:
		return j.score(g.Name, g.Score)
	case g.Unhealthy != nil:
		return j.unhealthy(g.Name, g.Unhealthy)
	case g.Before != nil:
		return j.change(g.Name, g.Before, false)
	case g.Peers != nil:
		return j.change(g.Name, g.Peers, true)
	case g.Alerts != nil:
		return j.alerts(g.Name, g.Alerts)
	case g.Query != nil:
		return j.query(g)
	}
	return j.fromOutside(g)
}

// fromOutside is a reading that somebody else took: logs, a webhook, a query with one
// value. It fails nothing at one glance either, but for logs: lines that were written don't
// become fewer. A query's one value is also of the sites that have just changed.
func (j *judge) fromOutside(g *v1alpha1.RolloutGate) v1alpha1.GateReading {
	o, ok := j.outside[g.Name]
	if !ok {
		return v1alpha1.GateReading{Verdict: v1alpha1.GateUnknown, Text: "Nothing has been read yet."}
	}
	if _, ok := rank[o.Verdict]; !ok {
		o.Verdict = v1alpha1.GateUnknown
	}
	out := v1alpha1.GateReading{Verdict: o.Verdict, Text: o.Text, Value: o.Value}
	if g.Logs != nil || o.Verdict == v1alpha1.GateUnknown {
		return out
	}
	bad := o.Verdict == v1alpha1.GateFail
	var doubt doubt
	online := 0
	for i := range j.changed {
		s := &j.changed[i]
		if g.Query == nil || !s.s.Online || s.failed {
			continue
		}
		online++
		if until, is := j.unsettled(s, g.Name); is {
			doubt.add(s, until)
		}
	}
	switch v := j.patientBut(g.Name, bad, bad && len(doubt.sites) == 0, confirm); {
	case !bad:
	case len(doubt.sites) > 0:
		out.Verdict, out.Text = v, o.Text+"."+doubt.words(online)
	case v == v1alpha1.GateWait:
		out.Verdict, out.Text = v, o.Text+fmt.Sprintf("; that holds, and fails once it has been so for %s", words(confirm))
	}
	return out
}

func (j *judge) ready(g *v1alpha1.GateReady) v1alpha1.GateReading {
	n, of, failed, late, lateReady := 0, 0, 0, 0, 0
	var worst []string
	for i := range j.changed {
		s := &j.changed[i]
		switch {
		case s.failed, !s.s.Online:
			continue
		case s.late:
			if late++; s.s.State == Ready {
				lateReady++
			}
			continue
		}
		of++
		switch s.s.State {
		case Ready:
			n++
			continue
		case Failed:
			failed++
		}
		worst = append(worst, s.s.Name)
	}
	percent := int(cmp.Or(g.Percent, 100))
	need := (of*percent + 99) / 100
	out := v1alpha1.GateReading{Verdict: v1alpha1.GatePass, Text: countedOf(n, of, "{are} ready."), Value: strconv.Itoa(n), Limit: strconv.Itoa(need), Sites: int32(n), OfSites: int32(of), Worst: worst}
	switch {
	case of == 0 && late > 0: // each that is not ready waits for itself
		out.Text = countedOf(lateReady, late, "that came back {are} ready.")
		out.Value, out.Limit, out.Sites, out.OfSites = strconv.Itoa(lateReady), strconv.Itoa(late), int32(lateReady), int32(late)
	case of == 0:
		out.Verdict, out.Text = v1alpha1.GateWait, "No site has it yet that could be ready."
	case of-failed < need:
		out.Verdict, out.Text = v1alpha1.GateFail, fmt.Sprintf("It failed at %d of %s.", failed, sites(of))
	case n < need:
		out.Verdict = v1alpha1.GateWait
	}
	return out
}

// read collects a measure of the changed sites that are online. Enough tells whether that
// are as many as it takes.
func (j *judge) read(measure string) (values []float64, who []*subject, online int, enough bool) {
	for i := range j.changed {
		s := &j.changed[i]
		if !s.s.Online || s.failed {
			continue
		}
		v, ok := s.s.measure(measure)
		if ok {
			values = append(values, v)
			who = append(who, s)
		}
		if ok || !s.updating {
			online++
		}
	}
	return values, who, online, len(values) > 0 && 100*len(values) >= leastKnown*online
}

func lacking(what string, known, of int) v1alpha1.GateReading {
	text := fmt.Sprintf("%s is known of %d of %s.", what, known, sites(of))
	if of == 0 {
		text = "No site with the change can be read."
	}
	return v1alpha1.GateReading{Verdict: v1alpha1.GateUnknown, Text: text, Sites: int32(known), OfSites: int32(of)}
}

// patient is the verdict on something that a limit forbids: to wait, and to fail once it
// has been true for a while.
func (j *judge) patient(gate string, bad bool, wait time.Duration) v1alpha1.GateVerdict {
	switch held := j.mem.holds(gate, j.now, bad); {
	case held < 0:
		return v1alpha1.GatePass
	case held >= wait:
		return v1alpha1.GateFail
	}
	return v1alpha1.GateWait
}

// patientBut is patient of something that is bad with the sites that may still show the
// update itself, and known to be without them: what only they show holds.
func (j *judge) patientBut(gate string, bad, known bool, wait time.Duration) v1alpha1.GateVerdict {
	v := j.patient(gate, known, wait)
	if v == v1alpha1.GatePass && bad {
		return v1alpha1.GateWait
	}
	return v
}

func (j *judge) score(name string, g *v1alpha1.GateScore) v1alpha1.GateReading {
	d := cmp.Or(string(g.Dimension), siteScore)
	values, who, online, enough := j.read(d)
	if !enough {
		return lacking(title(d), len(values), online)
	}
	least := float64(g.Minimum)
	var doubt doubt
	sum, known := 0.0, 0.0
	for i, v := range values {
		sum += v
		if until, is := j.unsettled(who[i], d); is && v < least {
			doubt.add(who[i], until)
		} else {
			known += v - least
		}
	}
	mean := sum / float64(len(values))
	out := v1alpha1.GateReading{
		Verdict: j.patientBut(name, mean < least, known < 0, j.patience()),
		Text:    fmt.Sprintf("%s is %s in the mean of %s; %d is the least allowed.", title(d), figure(mean), sites(len(values)), g.Minimum),
		Value:   figure(mean), Limit: strconv.Itoa(int(g.Minimum)), Sites: int32(len(values) - len(doubt.sites)), OfSites: int32(online),
	}
	if mean < least {
		out.Text += doubt.words(online)
	}
	for _, i := range lowest(values) {
		if values[i] < least {
			out.Worst = append(out.Worst, who[i].s.Name)
		}
	}
	return out
}

// unhealthy counts the sites that are red. One that was red before it got the change says
// nothing of it: it holds, as one that may still show the update itself, and fails nothing.
func (j *judge) unhealthy(name string, g *v1alpha1.GateUnhealthy) v1alpha1.GateReading {
	values, who, online, enough := j.read(siteScore)
	if !enough {
		return lacking("The score", len(values), online)
	}
	var doubt doubt
	var worst, ill []string
	for _, i := range lowest(values) {
		if !who[i].s.Red {
			continue
		}
		worst = append(worst, who[i].s.Name)
		if col, ok := j.column[siteScore]; ok && who[i].real[col] < fleet.RedBelow {
			ill = append(ill, who[i].s.Name)
		} else if until, is := j.unsettled(who[i], siteScore); is {
			doubt.add(who[i], until)
		}
	}
	red, most := len(worst), float64(g.MaxPercent)
	percent := func(n int) float64 { return 100 * float64(n) / float64(len(values)) }
	out := v1alpha1.GateReading{
		Verdict: j.patientBut(name, percent(red) > most, percent(red-len(doubt.sites)-len(ill)) > most, j.patience()),
		Text:    countedOf(red, len(values), fmt.Sprintf("{are} red; %d%% are allowed.", g.MaxPercent)),
		Value:   figure(percent(red)), Limit: strconv.Itoa(int(g.MaxPercent)), Sites: int32(len(values) - len(doubt.sites)), OfSites: int32(online), Worst: worst,
	}
	if percent(red) > most {
		if len(ill) > 0 {
			out.Text += agree(len(ill), fmt.Sprintf(" %d of them {were} red before {they} got the change; that holds.", len(ill)))
		}
		out.Text += doubt.words(online)
	}
	return out
}

func (j *judge) query(gate *v1alpha1.RolloutGate) v1alpha1.GateReading {
	name, g := gate.Name, gate.Query
	values, who, online, enough := j.read(name)
	if len(values) == 0 {
		if _, ok := j.outside[name]; ok {
			return j.fromOutside(gate)
		}
	}
	if !enough {
		return lacking("The query's value", len(values), online)
	}
	var worst []string
	var doubt doubt
	at := values[0]
	far := -1.0
	for i, v := range values {
		if d := outOf(v, g.Min, g.Max); d > 0 {
			worst = append(worst, who[i].s.Name)
			if until, is := j.unsettled(who[i], name); is {
				doubt.add(who[i], until)
			}
			if d > far {
				far, at = d, v
			}
		}
	}
	out := v1alpha1.GateReading{
		Verdict: j.patientBut(name, len(worst) > 0, len(worst) > len(doubt.sites), confirm),
		Text:    fmt.Sprintf("The query's value is within %s at all of %s.", bounds(g.Min, g.Max), sites(len(values))),
		Value:   figure(at), Limit: bounds(g.Min, g.Max), Sites: int32(len(values) - len(doubt.sites)), OfSites: int32(online), Worst: worst,
	}
	if len(worst) > 0 {
		out.Text = fmt.Sprintf("The query's value is not within %s at %d of %s, such as %s with %s.", bounds(g.Min, g.Max), len(worst), sites(len(values)), worst[0], figure(at)) + doubt.words(online)
	}
	return out
}

func outOf(v float64, lo, hi *resource.Quantity) float64 {
	if lo != nil && v < lo.AsApproximateFloat64() {
		return lo.AsApproximateFloat64() - v
	}
	if hi != nil && v > hi.AsApproximateFloat64() {
		return v - hi.AsApproximateFloat64()
	}
	return 0
}

func bounds(lo, hi *resource.Quantity) string {
	switch {
	case lo == nil && hi == nil:
		return "no bounds"
	case lo == nil:
		return "at most " + hi.String()
	case hi == nil:
		return "at least " + lo.String()
	}
	return lo.String() + " to " + hi.String()
}

// lowest are positions of values in rising order.
func lowest(values []float64) []int {
	out := make([]int, len(values))
	for i := range out {
		out[i] = i
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	return out
}

// figure is a number as people write it: one digit after the point below ten.
func figure(v float64) string {
	if math.Abs(v) >= 10 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	out := strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	if out == "-0" {
		return "0"
	}
	return out
}

func title(dimension string) string {
	if dimension == siteScore {
		return "The score"
	}
	return dimension
}
