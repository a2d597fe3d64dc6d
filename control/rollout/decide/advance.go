package decide

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

// people does what people asked for since the last decision.
func (r *run) people() {
	c := &r.in.Spec.Control
	resumed := false
	if c.Paused != r.d.Paused {
		if r.d.Paused = c.Paused; c.Paused {
			r.decide("Paused", r.in.User, "%s paused it.", by(r.in.User))
		} else {
			r.decide("Resumed", r.in.User, "%s had it go on.", by(r.in.User))
			resumed = true
		}
	}
	if c.Resume > r.d.Resume {
		r.d.Resume = c.Resume
		if r.d.Halted {
			r.decide("Resumed", r.in.User, "%s had it go on.", by(r.in.User))
		}
		resumed = true
	}
	if c.Promote != r.d.Promote {
		if c.Promote > r.d.Promote {
			r.decide("Promoted", r.in.User, "%s promoted it up to wave %d.", by(r.in.User), c.Promote)
			resumed = resumed || r.promoted()
		}
		r.d.Promote = c.Promote
	}
	for _, name := range slices.Sorted(maps.Keys(c.Retry)) {
		if c.Retry[name] <= r.d.Retried[name] {
			continue
		}
		if r.d.Retried == nil {
			r.d.Retried = map[string]int32{}
		}
		r.d.Retried[name] = c.Retry[name]
		if i := slices.Index(r.names, name); i >= 0 && r.steps[i] == byte(v1alpha1.StepFailed) {
			r.set(i, v1alpha1.StepUpdating)
			r.d.rows[i].got, r.d.rows[i].ready = r.unit, 0
			r.decide("Retried", r.in.User, "%s had %s try again.", by(r.in.User), name)
		}
	}
	if resumed && r.d.Halted && !c.Paused {
		r.resume()
	}
}

// resume goes on after it paused by itself: what failed until now is forgiven, and a wave
// that was put back begins anew.
func (r *run) resume() {
	r.d.Halted, r.d.Message, r.d.Phase = false, "", v1alpha1.RolloutProgressing
	again := false
	for i := 0; i < r.d.planned(); i++ {
		if r.steps[i] == byte(v1alpha1.StepRolledBack) {
			r.set(i, v1alpha1.StepWaiting)
			again = true
		}
	}
	if again {
		r.startWave(r.d.Wave)
	} else {
		r.mem.restart()
		r.d.Soaked, r.d.Since = 0, r.unit
	}
	r.d.Forgiven, r.d.ForgivenInWave = 0, 0
	first, end := r.span(r.d.Wave)
	for i := 0; i < r.d.planned(); i++ {
		if r.steps[i] == byte(v1alpha1.StepFailed) && !r.gone(i) {
			r.d.Forgiven++
			if i >= first && i < end || r.late(i) {
				r.d.ForgivenInWave++
			}
		}
	}
}

// read reads the gates of what is judged now.
func (r *run) read() v1alpha1.GateVerdict {
	j := judge{
		gates: r.gates, mem: r.mem, outside: r.in.Outside, since: time.Unix(r.d.Since, 0), soak: r.soak(), now: r.in.Now, spread: SpreadLabels(r.in.Spec),
		settle: r.settle(), reach: r.in.Reach, apart: r.fewReturned(),
	}
	names := make([]string, len(r.d.Columns))
	for c := range names {
		names[c] = r.d.Columns[c].Name
	}
	j.columns(names)
	for _, name := range Measures(r.gates) { // of a gate that was added on the way
		if _, ok := j.column[name]; !ok {
			j.column[name] = len(names)
			names = append(names, name)
		}
	}
	for i, noted := range r.d.Alerts {
		if len(noted) == 0 {
			r.noteAlerts(i)
		}
	}
	_, end := r.span(r.d.Wave)
	var passed []int
	kept := 0 // in maintenance, which explains whatever they show
	for i := 0; i < r.d.planned(); i++ {
		if r.gone(i) {
			continue
		}
		if r.site[i].Maintenance {
			if i < end && r.judged(i) {
				kept++
			}
			continue
		}
		switch {
		case r.has[i] == r.target && r.steps[i] == byte(v1alpha1.StepHeld): // neither: it has not begun
		case j.apart && r.judged(i) && r.steps[i] == byte(v1alpha1.StepOffline): // as before it came: it is looked at when it is back
		case i < end && r.judged(i):
			j.changed = append(j.changed, r.subject(i, len(names)))
		case r.has[i] == r.target:
			passed = append(passed, i)
		case r.compares(i) && r.steps[i] != byte(v1alpha1.StepRolledBack):
			j.peers = append(j.peers, r.subject(i, len(names)))
		}
	}
	if len(j.changed) == 0 {
		if kept > 0 {
			r.readings = []v1alpha1.GateReading{{Name: GateContact, Verdict: v1alpha1.GateWait, OfSites: int32(kept), Text: "All that have the change and could show how it is are in maintenance: " + sites(kept) + "."}}
		}
		return v1alpha1.GateWait
	}
	// At the end there are few who have not got it and say how they are: those who have had it
	// for longer, and passed, are who can be compared with.
	if r.telling(j.peers) < max(regionPeers, len(j.changed)/10) {
		for _, i := range passed {
			if r.compares(i) && r.steps[i] == byte(v1alpha1.StepPassed) {
				j.peers = append(j.peers, r.subject(i, len(names)))
			}
		}
	}
	verdict, readings := j.all()
	r.readings, r.low = readings, j.low
	return verdict
}

// compares tells whether it is known of a site what it was like when the wave began. Where gates
// read nothing of the kind, that it was in contact since is enough: whether others lost it as
// well is a question all the same.
func (r *run) compares(i int) bool {
	return r.d.rows[i].before != nil || len(r.d.Columns) == 0 && r.mem.online[r.names[i]].Unix() >= r.d.Since
}

// telling is how many say how they are: one that is offline, or not read, is nobody to compare with.
func (r *run) telling(list []subject) (n int) {
	for i := range list {
		if s := list[i].s; s.Online && (len(r.d.Columns) == 0 || len(s.Measures) > 0) {
			n++
		}
	}
	return n
}

func (r *run) subject(i, columns int) subject {
	row := &r.d.rows[i]
	s := subject{s: r.site[i], before: make([]float64, columns), alerts: r.d.Alerts[i], failed: r.steps[i] == byte(v1alpha1.StepFailed), late: r.late(i)}
	for c := range s.before {
		if s.before[c] = math.NaN(); c >= len(r.d.Columns) {
			continue
		}
		if v := row.reading(c); v != unknown {
			s.before[c] = float64(v) * r.d.Columns[c].Step
		}
	}
	if s.real = s.before; row.drift != nil {
		s.real = slices.Clone(s.before)
		for c := range row.drift {
			s.real[c] += float64(row.drift[c]) * r.d.Columns[c].Step
		}
	}
	// A process that is younger than the wave can't tell.
	s.away = !s.s.Online && r.mem.online[r.names[i]].Unix() < r.d.Since && r.mem.began.Unix() <= r.d.Since
	if r.has[i] == r.target {
		s.from = time.Unix(row.at, 0)
		s.restarts = s.s.State == Restarting && r.unit-row.got < int64(r.within()/time.Second)
		if r.judged(i) && row.ready == 0 {
			s.updating = true
		} else if r.judged(i) {
			s.ready = time.Unix(row.ready, 0)
		}
		// What a maintenance has left is no more of the change than what an update has.
		if at := r.mem.maintained[s.s.Name]; at.After(s.from) {
			s.from = at
			if !s.ready.IsZero() && at.After(s.ready) {
				s.ready = at
			}
		}
		if s.updating || !s.ready.IsZero() {
			s.unsee(s.ready, r.in.Now)
		}
	}
	return s
}

// failure says why the rollout has failed; "": it has not.
func (r *run) failure(verdict v1alpha1.GateVerdict) string {
	if why := r.spent(); why != "" {
		return why
	}
	if verdict != v1alpha1.GateFail || r.promoted() {
		return ""
	}
	var out []string
	for _, g := range r.readings {
		if g.Verdict == v1alpha1.GateFail {
			out = append(out, "Gate "+g.Name+": "+g.Text)
		}
	}
	return strings.Join(out, " ")
}

// fail does what the plan says of a failure.
func (r *run) fail(why string) {
	r.decide("Failed", "", "%s", why)
	switch r.in.Spec.OnFailure {
	case v1alpha1.OnFailurePause:
		r.d.Halted, r.d.Phase, r.d.Message = true, v1alpha1.RolloutPaused, why
		r.decide("Paused", "", "Paused in wave %d, for people to look at it.", r.d.Wave)
	case v1alpha1.OnFailureRollBackWave:
		r.rollBack("wave", why)
	default:
		what := "all"
		if r.fewReturned() {
			what = "wave"
		}
		r.rollBack(what, why)
	}
	r.message = why
}

// fewReturned tells that those who are judged are a few that came back after all others had
// passed: what troubles them is theirs, for all that is known, and no reason to put back a fleet.
func (r *run) fewReturned() bool {
	if r.d.Done == 0 {
		return false
	}
	judged := 0
	for i := range r.names {
		if r.judged(i) && r.steps[i] != byte(v1alpha1.StepOffline) {
			judged++
		}
	}
	return judged < max(regionPeers, r.d.planned()/20)
}

// rollBack puts sites back to the first content: those of the wave, which are all that
// are still judged, or all that have another.
func (r *run) rollBack(what, why string) {
	n, returned := 0, r.d.Done != 0
	culprits := false // of those that came back, those to blame are known
	for i := range r.names {
		culprits = culprits || returned && r.judged(i) && r.mem.fallen(r.names[i]) && r.peersAlone()
	}
	for i := range r.names {
		if r.has[i] == '0' || what == "wave" && !r.judged(i) {
			continue
		}
		// One that came back and is away again has shown nothing yet.
		if what == "wave" && returned && (r.steps[i] == byte(v1alpha1.StepOffline) || culprits && !r.mem.fallen(r.names[i])) {
			continue
		}
		r.has[i] = '0'
		r.set(i, v1alpha1.StepRolledBack)
		r.d.rows[i].got, r.d.rows[i].ready = 0, 0
		n++
	}
	r.d.Back, r.d.Phase, r.d.Message, r.d.Soaked, r.d.Halted, r.d.Done = what, v1alpha1.RolloutRollingBack, why, 0, false, 0
	r.mem.restart()
	switch {
	case what == "wave" && returned:
		r.decide("RollingBack", "", "What came back is put back: %s.", sites(n))
	case what == "wave":
		r.decide("RollingBack", "", "Wave %d is put back: %s.", r.d.Wave, sites(n))
	default:
		r.decide("RollingBack", "", "All that changed is put back: %s.", sites(n))
	}
	r.message, r.next = why, "wait until the sites that are online have the old content"
}

// peersAlone tells that nothing but gates on peers has failed, which know each site that fell.
func (r *run) peersAlone() bool {
	failed, peers := 0, 0
	for _, g := range r.readings {
		if g.Verdict == v1alpha1.GateFail {
			failed++
			if slices.ContainsFunc(r.gates, func(of v1alpha1.RolloutGate) bool { return of.Name == g.Name && of.Peers != nil }) {
				peers++
			}
		}
	}
	return failed > 0 && failed == peers && r.spent() == ""
}

// goBack waits until the sites that are online have the old content, but for those that say
// for as long as a site may take, and ten minutes at most, that they can't; a minute for those
// that said so before the change already; and for those that are not ready with it by then, such
// as one of whose nodes is down.
func (r *run) goBack() {
	left, failed, slow, ill := 0, []string{}, []string{}, []string{}
	for i := range r.names {
		s := r.site[i]
		if r.steps[i] != byte(v1alpha1.StepRolledBack) || s == nil || !s.Online || s.Maintenance || s.State == Ready || s.State == Waits {
			continue
		}
		since := r.in.Now.Sub(r.heard(i))
		switch {
		case s.State == Failed && r.d.rows[i].ill:
			ill = append(ill, s.Name)
			if since < retryGrace*time.Second { // it may not have heard yet
				left++
			}
		case s.State == Failed:
			failed = append(failed, s.Name)
			if since < min(r.within(), defaultReadyWithin) {
				left++
			}
		case since < r.within():
			left++
			r.soonest(r.heard(i).Add(r.within()))
		default:
			slow = append(slow, s.Name)
		}
	}
	why := r.d.Message
	if len(ill) > 0 {
		why = counted(len(ill), "{are} not well with the old content, as before the change: ") + some(ill) + ". " + why
	}
	if len(slow) > 0 {
		why = counted(len(slow), "{have} got the old content and {are} not ready with it: ") + some(slow) + ". " + why
	}
	if len(failed) > 0 {
		why = fmt.Sprintf("%s can't be put back: %s. %s", sites(len(failed)), some(failed), why)
	}
	r.message, r.next = why, "wait until the sites that are online have the old content"
	switch {
	case left > 0:
	case r.d.Back == "wave":
		r.d.Back, r.d.Halted, r.d.Phase = "", true, v1alpha1.RolloutPaused
		r.decide("Paused", "", "Wave %d is put back; it waits for people.", r.d.Wave)
		r.next = "wait for people: resume, promote or abort"
	default:
		r.end(v1alpha1.RolloutRolledBack, "", "%s", why)
		r.message = ""
	}
}

// advance starts sites whose turn it is, and takes waves on.
func (r *run) advance(verdict v1alpha1.GateVerdict) {
	r.d.Phase = v1alpha1.RolloutProgressing
	for range 2 { // a wave that passed, and the one after it
		r.start()
		if r.d.Done != 0 {
			r.catchUp(verdict)
			return
		}
		if !r.wavePasses(verdict) {
			return
		}
		r.pass(!r.promoted())
		if r.d.Wave == len(r.d.Waves) {
			r.d.Done, r.d.Soaked = r.unit, 0
			r.finish()
			return
		}
		r.startWave(r.d.Wave + 1)
		r.readings = nil
		r.follow()
		verdict = v1alpha1.GateWait
	}
}

// dueNow are the sites whose turn it is, of the first so many while so many are changing, and of
// which is known what they will be compared with, unless people promoted the wave.
func (r *run) dueNow(end, flying int) (turn []int) {
	var waiting []int
	for i := range end {
		if !r.gone(i) && r.has[i] != r.target && r.steps[i] == byte(v1alpha1.StepWaiting) {
			waiting = append(waiting, i)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	if why := r.blind(r.site[:r.d.planned()]); why != "" && !r.promoted() {
		r.unseen = " " + counted(len(waiting), "{change} once what {they} {are} compared with is known. ") + why
		return nil
	}
	limit, unseen := int(r.in.Spec.Strategy.MaxInFlight), 0
	for _, i := range waiting {
		switch {
		case limit > 0 && flying+len(turn) >= limit:
			return turn
		case !r.promoted() && r.unit-r.d.rows[i].at < seenWithin && r.blind(r.site[i:i+1]) != "":
			unseen++
			r.unseen = " " + counted(unseen, "came just now, and {change} once it is known what {they} {are} like.")
		default:
			turn = append(turn, i)
		}
	}
	return turn
}

// seenWithin is for how many seconds a site that came just now, or came back, waits until it is
// known what it is like without the change: its scores are some seconds behind it.
const seenWithin = 300

// start gives the change to sites whose turn it is.
func (r *run) start() {
	first, end := r.span(r.d.Wave)
	w := r.current()
	flying, judged, touched := 0, 0, 0
	for i := 0; i < end; i++ {
		if r.gone(i) || r.has[i] != r.target {
			continue
		}
		if i >= first {
			touched++
		}
		if r.steps[i] == byte(v1alpha1.StepUpdating) {
			flying++
		}
		if r.judged(i) && r.steps[i] != byte(v1alpha1.StepFailed) {
			judged++
		}
	}
	turn := r.dueNow(end, flying)
	if len(turn) == 0 {
		return
	}
	var drift []int64
	switch {
	case judged == 0 && (touched == 0 || r.d.Done != 0) && r.d.Since != r.unit:
		r.d.Since = r.unit // what begins now is compared with how all are now
		r.mem.restart()
		r.base()
	case r.unit-r.d.Since > driftAfter:
		drift = r.drift()
	}
	var began []string
	for _, i := range turn {
		if r.noteAlerts(i); !r.site[i].AlertsKnown && r.d.Alerts[i] == nil { // people have it begin in the dark
			r.owe(i)
		}
		if drift != nil {
			r.rebase(i, drift)
		} else if r.d.rows[i].before == nil { // it was away a moment ago
			r.d.rows[i].before = r.reading(i)
		}
		r.has[i] = r.target
		r.d.rows[i].ill = r.site[i].State == Failed
		r.set(i, v1alpha1.StepUpdating)
		r.d.rows[i].got, r.d.rows[i].at, r.d.rows[i].ready = r.unit, r.unit, 0
		began = append(began, r.names[i])
	}
	what := "WaveStarted"
	if w.Started != r.unit {
		what = "Changed"
	}
	text := fmt.Sprintf("Wave %d of %d: %s got the change", r.d.Wave, len(r.d.Waves), sites(len(began)))
	if r.d.Done != 0 || slices.Index(r.names, began[len(began)-1]) < first {
		what, text = "CaughtUp", fmt.Sprintf("%s came back and got the change", sites(len(began)))
	}
	r.decide(what, "", "%s: %s.", text, some(began))
}

// driftAfter is how many seconds after its wave a site that changes later is taken for what
// it is like by then.
const driftAfter = 120

// drift is how far sites that have not changed have moved since the wave began, in steps
// of each column: the median.
func (r *run) drift() []int64 {
	out := make([]int64, len(r.d.Columns))
	moves := make([][]float64, len(out))
	every := max(1, len(r.names)/500)
	for i := 0; i < r.d.planned(); i += every {
		if r.d.rows[i].before == nil || r.gone(i) || r.judged(i) {
			continue
		}
		now := r.reading(i)
		for c := range out {
			if now != nil && now[c] != unknown && r.d.rows[i].reading(c) != unknown {
				moves[c] = append(moves[c], float64(now[c]-r.d.rows[i].reading(c)))
			}
		}
	}
	for c := range out {
		if len(moves[c]) > 0 {
			out[c] = int64(math.Round(bounded(median(moves[c]))))
		}
	}
	return out
}

// rebase notes what a site is like now that changes later than its wave began.
func (r *run) rebase(i int, drift []int64) {
	row := &r.d.rows[i]
	row.before, row.drift = r.reading(i), nil
	if row.before == nil {
		return
	}
	for c, v := range row.before {
		if v != unknown {
			row.before[c] = bounded(v - drift[c])
		}
	}
	if slices.ContainsFunc(drift, func(v int64) bool { return v != 0 }) {
		row.drift = slices.Clone(drift)
	}
}

// tally is how far the sites of a wave are.
type tally struct {
	waiting, shut, updating, changed, ready, own, failed int
	// opens is when a window opens next of those that are shut, and why they are.
	opens time.Time
	why   string
}

func (r *run) tally(first, end int) (n tally) {
	for i := first; i < end; i++ {
		if r.gone(i) {
			continue
		}
		switch v1alpha1.SiteStep(r.steps[i]) {
		case v1alpha1.StepWaiting:
			n.waiting++
		case v1alpha1.StepHeld:
			if r.has[i] == r.target {
				n.changed++
				n.own++
			} else if s := r.site[i]; !s.Maintenance && !(s.Busy != "" && s.Later) {
				n.shut++
				_, o := r.turn(s)
				switch {
				case !o.next.IsZero() && (n.opens.IsZero() || o.next.Before(n.opens)):
					n.opens, n.why = o.next, o.why
				case s.Busy != "" && n.why == "":
					n.why = o.why
				}
			}
		case v1alpha1.StepUpdating:
			if n.changed++; !r.late(i) {
				n.updating++
			}
		case v1alpha1.StepReady, v1alpha1.StepPassed:
			n.changed++
			n.ready++
		case v1alpha1.StepFailed:
			n.changed++
			n.failed++
		case v1alpha1.StepOffline:
			if r.has[i] == r.target {
				n.changed++
			}
		}
	}
	return n
}

// wavePasses tells whether the current wave is through, and says what it waits for.
func (r *run) wavePasses(verdict v1alpha1.GateVerdict) bool {
	first, end := r.span(r.d.Wave)
	w, n := r.current(), r.tally(first, end)
	head := fmt.Sprintf("Wave %d of %d: ", r.d.Wave, len(r.d.Waves))
	switch {
	case r.promoted() && n.waiting == 0 && n.shut == 0:
		return true
	case n.waiting+n.updating > 0:
		r.message = head + countedOf(n.ready, end-first, "{are} ready.")
		r.next = "wait until the wave's sites are ready"
		r.soaking(false)
		return false
	case n.shut > 0:
		r.message = head + sites(n.shut) + " " + cmp.Or(n.why, agree(n.shut, outside)) + "."
		r.next, r.nextAt = "go on when they may change", n.opens
		r.soonest(n.opens)
		r.soaking(false)
		return false
	case n.changed == 0 && r.mayskip():
		r.decide("WaveSkipped", "", "Wave %d of %d: %s", r.d.Wave, len(r.d.Waves), counted(end-first, "can't be reached; {they} {are} caught up when {they} {return}."))
		return true
	case n.ready == 0 && n.own > 0:
		r.message = head + counted(n.own, "{have} it and {begin} later, in {their} own window or when {their} {operators} {have} it.")
		r.next = "wait for a site of the wave, or for people to promote it"
		r.soaking(false)
		return false
	case n.ready == 0 && n.failed > 0:
		r.message = head + fmt.Sprintf("%s failed, and none is ready.", sites(n.failed))
		r.next = "wait for a site of the wave, or for people to retry one, to promote or to abort it"
		r.soaking(false)
		return false
	case n.ready == 0:
		r.message = head + "none of its sites that could show how the change is can be reached."
		r.next = "wait for a site of the wave, or for people to promote it"
		r.soaking(false)
		return false
	}
	if w.Settled == 0 {
		w.Settled = r.unit
	}
	if verdict != v1alpha1.GatePass {
		r.soaking(false)
		r.message, r.next = head+r.holding(), "soak begins once all gates pass"
		return false
	}
	left := r.soaking(true)
	if left > 0 {
		r.message = head + fmt.Sprintf("all gates pass at %s; the soak has %s to go.", sites(n.ready), words(left))
		r.next, r.nextAt = "the wave passes if all gates hold", r.in.Now.Add(left)
		if r.d.Wave < len(r.d.Waves) {
			a, b := r.span(r.d.Wave + 1)
			r.next = fmt.Sprintf("wave %d with %s begins if all gates hold", r.d.Wave+1, sites(b-a))
		}
		r.soonest(r.nextAt)
		return false
	}
	if w.Approval {
		r.message, r.next = head+"all gates have held; it waits for a person's approval.", "wait for people to promote it"
		return false
	}
	return true
}

// mayskip: a wave of which no site can be reached is skipped where another has shown how
// the change is, or where the next is no larger a risk.
func (r *run) mayskip() bool {
	if r.in.Spec.Strategy.Type == v1alpha1.StrategyRolling {
		return true
	}
	for i := range r.names {
		if r.steps[i] == byte(v1alpha1.StepPassed) {
			return true
		}
	}
	return r.d.Wave == len(r.d.Waves)
}

// holding says which gate holds the wave.
func (r *run) holding() string {
	worst := -1
	for i := range r.readings {
		if v := rank[r.readings[i].Verdict]; v > 0 && (worst < 0 || v > rank[r.readings[worst].Verdict]) {
			worst = i
		}
	}
	if worst < 0 {
		return "its gates have not been read yet."
	}
	return fmt.Sprintf("gate %s holds it: %s", r.readings[worst].Name, r.readings[worst].Text)
}

// soaking keeps the clock of the soak, and returns how long it has to go. How long the gates
// have held is written down in quarters, as a time and not since when: a clock that was put
// means nothing then. A new process goes on from there. It does not know the sites at
// first; what does not hold in its first minutes for want of that takes nothing away.
func (r *run) soaking(pass bool) time.Duration {
	if since := r.in.Now.Sub(r.mem.began); !pass && r.d.Soaked > 0 && since >= 0 && since < blind {
		r.mem.passed, r.soaked = time.Time{}, time.Duration(r.d.Soaked)*time.Second
		return max(0, r.soak()-r.soaked)
	}
	if !pass {
		r.mem.passed, r.d.Soaked, r.soaked = time.Time{}, 0, 0
		return r.soak()
	}
	if r.mem.passed.IsZero() {
		r.mem.passed = r.in.Now
	}
	since := r.in.Now.Sub(r.mem.passed)
	r.soaked = time.Duration(r.d.Soaked)*time.Second + since
	if since >= max(r.soak()/4, time.Minute) {
		r.d.Soaked, r.mem.passed = int64(r.soaked/time.Second), r.in.Now
	}
	return max(0, r.soak()-r.soaked)
}

// pass lets the sites pass that have held the gates: those that came late only if they
// have had it for as long as the soak.
func (r *run) pass(gates bool) {
	_, end := r.span(r.d.Wave)
	w := r.current()
	n := 0
	for i := 0; i < end; i++ {
		if r.steps[i] != byte(v1alpha1.StepReady) || r.has[i] != r.target || gates && r.fresh(i) {
			continue
		}
		r.set(i, v1alpha1.StepPassed)
		r.d.rows[i].drift = nil
		n++
	}
	w.Passed = r.unit
	switch {
	case n == 0:
	case gates:
		r.decide("WavePassed", "", "Wave %d of %d passed: all gates held at %s for %s.", r.d.Wave, len(r.d.Waves), sites(n), words(r.soak()))
	default:
		r.decide("WavePassed", "", "Wave %d of %d passed: promoted, with %s.", r.d.Wave, len(r.d.Waves), sites(n))
	}
}

// fresh: it came late, and has not been looked at for a soak.
func (r *run) fresh(i int) bool {
	return r.late(i) && r.unit-r.d.rows[i].got < int64(r.soak()/time.Second)
}

// catchUp takes those through the gates that return after the last wave. One that has itself
// fallen does not pass with those that came back beside it, which have little to do with it: it
// is looked at until it is well, or alone.
func (r *run) catchUp(verdict v1alpha1.GateVerdict) {
	if verdict == v1alpha1.GatePass && r.soaking(true) == 0 {
		n := 0
		for i := 0; i < r.d.planned(); i++ {
			if r.steps[i] == byte(v1alpha1.StepReady) && r.has[i] == r.target && r.unit-r.d.rows[i].got >= int64(r.soak()/time.Second) && !slices.Contains(r.low, r.names[i]) {
				r.set(i, v1alpha1.StepPassed)
				r.d.rows[i].drift = nil
				n++
			}
		}
		if n > 0 {
			r.decide("Passed", "", "%s that came back held all gates for %s.", sites(n), words(r.soak()))
		}
	} else if verdict != v1alpha1.GatePass {
		r.soaking(false)
	}
	r.finish()
}

// finish ends the rollout once nothing is left to do, or nothing comes back.
func (r *run) finish() {
	var c struct{ passed, failed, away, judged int }
	for i := 0; i < r.d.planned(); i++ {
		if r.gone(i) {
			continue
		}
		switch v1alpha1.SiteStep(r.steps[i]) {
		case v1alpha1.StepPassed:
			c.passed++
		case v1alpha1.StepFailed:
			c.failed++
		case v1alpha1.StepOffline, v1alpha1.StepHeld:
			c.away++
		default:
			c.judged++
		}
	}
	tail := ""
	if c.failed > 0 {
		tail = fmt.Sprintf("; %s failed, and the budget allows it", sites(c.failed))
	}
	until := time.Unix(r.d.Done, 0).UTC().Add(CatchUpFor)
	switch {
	case c.away+c.judged == 0:
		r.end(v1alpha1.RolloutCompleted, "", "%s%s.", counted(c.passed, "{have} the change"), tail)
	case !r.in.Now.Before(until):
		r.end(v1alpha1.RolloutCompleted, "", "%s%s; %s.", counted(c.passed, "{have} the change"), tail, counted(c.away+c.judged, fmt.Sprintf("did not come back in %d days and {get} it when {they} {do}", int(CatchUpFor/(24*time.Hour)))))
	default:
		r.message = counted(c.passed, "{have} the change") + tail + "."
		if c.judged > 0 {
			r.message += " " + counted(c.judged, "came back and {are} looked at.")
		} else {
			r.again = r.in.Now.Add(idleEvery)
		}
		if c.away > 0 {
			r.message += " " + counted(c.away, "{are} offline or held, and {are} caught up when {they} {return}.")
		}
		r.next, r.nextAt = "complete when they have returned, or after that", until
		r.soonest(until)
	}
}

// words is a duration as people say it.
func words(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(math.Ceil(d.Seconds())))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(math.Ceil(d.Minutes())))
	}
	return fmt.Sprintf("%d h", int(math.Ceil(d.Hours())))
}
