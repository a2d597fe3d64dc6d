package decide

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/few"
)

// step takes the rollout on.
func (r *run) step() {
	c := &r.in.Spec.Control
	if r.in.SupersededBy != "" {
		r.end(v1alpha1.RolloutSuperseded, "", "Rollout %s took over.", r.in.SupersededBy)
		return
	}
	if r.d.Wave == 0 && r.d.Back == "" {
		if !r.begin() {
			return
		}
	} else if err := (&planner{spec: r.in.Spec}).check(); err != nil {
		r.message, r.next = "Waits for its spec to be put right: "+err.Error(), "go on once the spec is right"
		r.again = r.in.Now.Add(idleEvery)
		return
	}
	r.cal, _ = newCalendar(&r.in.Spec.RolloutPlan, r.in.Now)
	r.join()
	if c.Abort && r.d.Back != "all" {
		r.decide("Aborted", r.in.User, "%s aborted the rollout.", by(r.in.User))
		r.rollBack("all", "aborted by "+by(r.in.User))
	}
	if r.d.Back != "" {
		r.goBack()
		return
	}
	r.people()
	r.follow()
	if r.d.Halted {
		r.message = r.d.Message
		r.read()
		r.again = r.in.Now.Add(idleEvery)
		r.next = "wait for people: resume, promote, abort, or retry a site"
		return
	}
	verdict := r.read()
	if c.Paused {
		r.message = "Paused by people: no further site changes."
		r.next = "wait for people to resume"
		r.soaking(false)
		return
	}
	if why := r.failure(verdict); why != "" {
		r.fail(why)
		return
	}
	r.advance(verdict)
	r.message += r.unseen
}

// begin plans the waves and starts the first; false: not yet, or never.
func (r *run) begin() bool {
	if r.in.Queued != "" {
		r.message, r.next = r.in.Queued, "begin when it is its turn"
		r.queued = true
		r.again = r.in.Now.Add(idleEvery)
		return false
	}
	if r.in.Spec.Control.Abort {
		r.end(v1alpha1.RolloutRolledBack, r.in.User, "%s aborted it before any site changed.", by(r.in.User))
		return false
	}
	waves, err := Plan(r.in.Name, r.in.Spec, r.in.Sites, r.in.InScope, r.in.Member)
	if err != nil {
		r.end(v1alpha1.RolloutInvalid, "", "%v", err)
		return false
	}
	if len(waves) == 0 {
		r.end(v1alpha1.RolloutCompleted, "", "There is no site that holds it.")
		return false
	}
	first := make([]*Site, len(waves[0].Sites))
	for i, name := range waves[0].Sites {
		first[i] = r.named(name)
	}
	if why := r.blind(first); why != "" && r.in.Spec.Control.Promote < 1 {
		r.message, r.next = "It begins once what its sites are compared with is known. "+why, "begin once that is known, or when people promote it"
		r.queued = true
		return false
	}
	old := make(map[string]byte, len(r.names))
	for i, name := range r.names {
		old[name] = r.has[i]
	}
	r.d = &decided{Phase: v1alpha1.RolloutProgressing, Started: r.unit, Resume: r.in.Spec.Control.Resume}
	for _, c := range Measures(r.gates) {
		r.d.Columns = append(r.d.Columns, column{c, r.stepOf(c)})
	}
	names, was := []string{}, r.names
	r.has = r.has[:0]
	put := func(name string) {
		digit := byte('0')
		if d, ok := old[name]; ok {
			digit = d
		}
		delete(old, name)
		names, r.has = append(names, name), append(r.has, digit)
	}
	total := 0
	has := r.has
	r.has = make([]byte, 0, len(has))
	for _, w := range waves {
		for _, s := range w.Sites {
			put(s)
		}
		total += len(w.Sites)
		next := wave{Name: w.Name, End: total, Approval: w.Approval}
		if w.Soak >= 0 {
			seconds := int64(w.Soak / time.Second)
			next.Soak = &seconds
		}
		if r.in.Spec.Strategy.Type == v1alpha1.StrategyRolling {
			next.Name = "" // there may be thousands
		}
		r.d.Waves = append(r.d.Waves, next)
	}
	for _, name := range was { // what others than these have of an older rollout
		if d, ok := old[name]; ok && d != '0' {
			put(name)
		}
	}
	r.names, r.steps = names, []byte(strings.Repeat(string(rune(v1alpha1.StepWaiting)), len(names)))
	r.d.rows = make([]row, len(names))
	r.match()
	r.decide("Started", "", "%s in %s.", sites(total), plural(len(waves), "wave"))
	r.startWave(1)
	return true
}

// stepOf is how finely a measure is kept: points in whole, and what a query gives in
// fiftieths of the rise that is allowed.
func (r *run) stepOf(measure string) float64 {
	for i := range r.gates {
		g := &r.gates[i]
		for _, ch := range []*v1alpha1.GateChange{g.Before, g.Peers} {
			if ch != nil && ch.Query != "" && g.Name == measure && ch.MaxRise != nil {
				return ch.MaxRise.AsApproximateFloat64() / 50
			}
		}
	}
	return 1
}

// startWave begins a wave: what all sites are like now is what it is compared with.
func (r *run) startWave(n int) {
	r.d.Wave, r.d.Soaked, r.d.Since = n, 0, r.unit
	r.d.ForgivenInWave = 0
	r.d.Waves[n-1].Started, r.d.Waves[n-1].Settled, r.d.Waves[n-1].Passed = r.unit, 0, 0
	r.mem.restart()
	r.base()
}

// base notes the readings of all sites as they are now, but of those that have changed and
// are still being judged.
func (r *run) base() {
	for i := range r.names {
		if r.judged(i) {
			continue
		}
		r.d.rows[i].before, r.d.rows[i].drift = r.reading(i), nil
		r.noteAlerts(i)
	}
}

// noteAlerts notes what fires at a site before it changes; while nobody knows, what was noted
// before stands. Each is noted by its mark, so that many fit: one that was left out would be
// taken for a new one.
func (r *run) noteAlerts(i int) {
	s := r.site[i]
	if s == nil || !s.AlertsKnown {
		return
	}
	delete(r.d.Alerts, i)
	var keep []string
	for g := range r.gates {
		if a := r.gates[g].Alerts; a != nil {
			for _, alert := range s.Alerts {
				severity, _, _ := strings.Cut(alert, "/")
				for _, want := range a.Severities {
					if mark := alertMark(alert); severity == want && len(keep) < mostNoted && !slices.Contains(keep, mark) {
						keep = append(keep, mark)
					}
				}
			}
		}
	}
	if len(keep) > 0 {
		if r.d.Alerts == nil {
			r.d.Alerts = map[int][]string{}
		}
		r.d.Alerts[i] = keep
	}
}

// mostNoted is how many alerts of a site are noted: those of more, which no site has but one
// whose rules are broken, may be taken for new ones.
const mostNoted = 100

// alertMark is what is noted of an alert, by its severity and name: eight characters.
func alertMark(alert string) string {
	sum := sha256.Sum256([]byte(alert))
	return base64.RawStdEncoding.EncodeToString(sum[:6])
}

// owe has a site's alerts noted once they are known, though it has changed by then.
func (r *run) owe(i int) {
	if r.d.Alerts == nil {
		r.d.Alerts = map[int][]string{}
	}
	r.d.Alerts[i] = []string{}
}

// judged: it has the change, and its wave's gates have not passed.
func (r *run) judged(i int) bool {
	if i >= r.d.planned() || r.has[i] != r.target {
		return false
	}
	switch v1alpha1.SiteStep(r.steps[i]) {
	case v1alpha1.StepUpdating, v1alpha1.StepReady, v1alpha1.StepFailed, v1alpha1.StepOffline, v1alpha1.StepHeld:
		return true
	}
	return false
}

// reading is what a site's measures usually were in the last minutes; of what is not
// online, is in maintenance or has no reading, nothing. Once some sites have shown how the change is, one that is
// red is taken for what it is: how it was before that speaks neither for nor against.
func (r *run) reading(i int) []int64 {
	s := r.site[i]
	if s == nil || !s.Online || s.Maintenance {
		return nil
	}
	asItIs := s.Red && bytes.IndexByte(r.steps, byte(v1alpha1.StepPassed)) >= 0
	var out []int64
	for c, col := range r.d.Columns {
		v, ok := r.was(s, col.Name)
		if asItIs {
			v, ok = r.mem.mean(s, col.Name, r.in.Now.Add(-time.Minute), r.in.Now)
		}
		if !ok {
			continue
		}
		if out == nil {
			out = make([]int64, len(r.d.Columns))
			for k := range out {
				out[k] = unknown
			}
		}
		out[c] = int64(math.Round(bounded(v / col.Step)))
	}
	return out
}

// was is what a measure of a site usually was in the last minutes, as far back as is known.
func (r *run) was(s *Site, measure string) (float64, bool) {
	v, ok := r.mem.usual(s.Name, measure, r.in.Now)
	if !ok {
		if v, ok = r.in.Before[s.Name][measure]; !ok || !comparable(v) {
			v, ok = s.measure(measure)
		}
	}
	return v, ok
}

// blind says of which gates nobody knows what sites were before they changed: of all those
// that are online, nothing; "": there is no such gate. Who changed now could never be told
// from what it was.
func (r *run) blind(list []*Site) string {
	var out []string
	for g := range r.gates {
		gate := &r.gates[g]
		if gate.Alerts == nil && gate.Before == nil && gate.Peers == nil && gate.Unhealthy == nil {
			continue
		}
		measures := Measures(r.gates[g : g+1])
		known := func(s *Site) bool {
			return gate.Alerts != nil && s.AlertsKnown || slices.ContainsFunc(measures, func(m string) bool {
				_, ok := r.was(s, m)
				return ok
			})
		}
		online, seen := 0, false
		for _, s := range list {
			if s != nil && s.Online && !seen {
				online++
				seen = known(s)
			}
		}
		if online > 0 && !seen {
			text := fmt.Sprintf("Gate %s: nothing is known of %s.", gate.Name, sites(online))
			if o := r.in.Outside[gate.Name]; o.Text != "" {
				text += " " + o.Text
			}
			out = append(out, text)
		}
	}
	return strings.Join(out, " ")
}

// join appends sites that are new to the last wave.
func (r *run) join() {
	if len(r.d.Waves) == 0 {
		return
	}
	listed := make(map[string]int, len(r.names))
	for i, name := range r.names {
		listed[name] = i
	}
	var fresh []string
	digits := map[string]byte{}
	for i := range r.in.Sites {
		s := &r.in.Sites[i]
		at, ok := listed[s.Name]
		if ok && at < r.d.planned() || !r.inScope(s) {
			continue
		}
		digits[s.Name] = '0'
		if ok {
			digits[s.Name] = r.has[at] // was listed for what it has, and is in scope now
		}
		fresh = append(fresh, s.Name)
	}
	if len(fresh) == 0 {
		return
	}
	end := r.d.planned()
	names, steps, has := append([]string{}, r.names[:end]...), append([]byte{}, r.steps[:end]...), append([]byte{}, r.has[:end]...)
	rows := append([]row{}, r.d.rows[:end]...)
	for _, name := range fresh {
		names, steps, has = append(names, name), append(steps, byte(v1alpha1.StepWaiting)), append(has, digits[name])
		rows = append(rows, row{at: r.unit})
	}
	for i := end; i < len(r.names); i++ {
		if _, joined := digits[r.names[i]]; !joined {
			names, steps, has = append(names, r.names[i]), append(steps, r.steps[i]), append(has, r.has[i])
			rows = append(rows, r.d.rows[i])
		}
	}
	for i := range r.d.Alerts { // positions after the planned ones have moved
		if i >= end {
			delete(r.d.Alerts, i)
		}
	}
	r.names, r.steps, r.has, r.d.rows = names, steps, has, rows
	last := len(r.d.Waves) - 1
	r.d.Waves[last].End += len(fresh)
	r.match()
	for i := end; i < end+len(fresh); i++ {
		r.d.rows[i].before = r.reading(i)
		r.noteAlerts(i)
	}
	r.decide("Joined", "", "%s joined, in the last wave: %s.", sites(len(fresh)), some(fresh))
}

// some are the first of many names.
func some(names []string) string { return few.Of(names, 5, ", ") }

// retryGrace is for how many seconds a site that is tried again may go on saying that it
// failed.
const retryGrace = 60

// within is how long a site may take to be ready.
func (r *run) within() time.Duration {
	if d := r.in.Spec.Budget.ReadyWithin.Duration; d > 0 {
		return d
	}
	return defaultReadyWithin
}

// heard is since when a site may have known of the step that it is at: while nobody looked it
// may not have been told, nor heard.
func (r *run) heard(i int) time.Time {
	from := time.Unix(r.d.rows[i].at, 0)
	if r.mem.awake.After(from) {
		return r.mem.awake
	}
	return from
}

// tended: since it got the change it is or was in maintenance, and may still take its time to
// be well after that.
func (r *run) tended(i int) bool {
	at := r.mem.maintained[r.names[i]]
	return at.Unix() > r.d.rows[i].got && r.in.Now.Before(at.Add(r.within()))
}

// follow takes each site to the step that it is at by now.
func (r *run) follow() {
	within := r.within()
	_, end := r.span(r.d.Wave)
	for i := 0; i < end; i++ {
		s := r.site[i]
		if r.gone(i) {
			continue
		}
		row := &r.d.rows[i]
		if r.has[i] != r.target {
			if step, _ := r.turn(s); r.steps[i] != byte(v1alpha1.StepRolledBack) {
				r.set(i, step)
			}
			continue
		}
		switch v1alpha1.SiteStep(r.steps[i]) {
		case v1alpha1.StepOffline:
			if s.Online {
				r.set(i, v1alpha1.StepUpdating)
				row.got = r.unit
			}
		case v1alpha1.StepUpdating:
			deadline := r.heard(i).Add(within)
			switch {
			case !s.Online && s.State == Restarting && r.in.Now.Before(deadline):
				r.soonest(deadline) // it is about to come back
			case !s.Online:
				r.set(i, v1alpha1.StepOffline)
			case s.State == Ready:
				r.set(i, v1alpha1.StepReady)
				row.ready = cmp.Or(row.ready, r.unit)
			case s.State == Waits:
				r.set(i, v1alpha1.StepHeld)
			case s.State == Failed && !r.tended(i) && !(r.d.Retried[s.Name] > 0 && r.unit-row.at < retryGrace), !r.in.Now.Before(deadline) && !r.in.Now.Before(r.mem.maintained[s.Name].Add(within)):
				r.set(i, v1alpha1.StepFailed)
			default:
				r.soonest(deadline)
			}
		case v1alpha1.StepHeld: // it has the change, and holds itself
			if !s.Online {
				r.set(i, v1alpha1.StepOffline)
			} else if s.State != Waits {
				r.set(i, v1alpha1.StepUpdating)
				row.got, row.ready = r.unit, 0
			}
		case v1alpha1.StepReady:
			switch {
			case !s.Online:
				r.set(i, v1alpha1.StepOffline)
			case s.State == Failed && !r.tended(i):
				r.set(i, v1alpha1.StepFailed)
			case s.State != Ready:
				r.set(i, v1alpha1.StepUpdating)
			}
		case v1alpha1.StepPassed:
			if s.Online && s.State == Failed && !r.tended(i) {
				r.set(i, v1alpha1.StepFailed)
			}
		case v1alpha1.StepFailed:
			if s.Online && s.State == Ready {
				r.set(i, v1alpha1.StepReady)
				row.ready = cmp.Or(row.ready, r.unit)
			}
		}
	}
}

// turn is what a site that has not changed would do if it were its turn: begin (waiting),
// or why not.
func (r *run) turn(s *Site) (v1alpha1.SiteStep, opening) {
	switch {
	case !s.Online:
		return v1alpha1.StepOffline, opening{}
	case s.Maintenance:
		return v1alpha1.StepHeld, opening{}
	case s.Busy != "":
		return v1alpha1.StepHeld, opening{why: s.Busy}
	}
	o := r.cal.of(s.Zone)
	if !o.open {
		return v1alpha1.StepHeld, o
	}
	return v1alpha1.StepWaiting, o
}
