package decide

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"muster.dev/muster/control/api/v1alpha1"
)

const (
	// lookEvery is how often gates are looked at while a wave is under way, idleEvery how
	// often anything else is.
	lookEvery = 15 * time.Second
	idleEvery = time.Minute
	// CatchUpFor is how long after its last wave a rollout waits for sites that were
	// offline, to take them through its gates; then it is complete, and they get the
	// change by themselves when they return.
	CatchUpFor = 7 * 24 * time.Hour
)

// run is one decision in the making.
type run struct {
	in    *Input
	d     *decided
	mem   *Memory
	cal   *calendar
	gates []v1alpha1.RolloutGate

	names      []string
	steps, has []byte
	site       []*Site // by position; nil: it no longer holds the objects, or is out of scope
	target     byte

	before   []byte // the state as it came, to see whether it changed
	wasSites [3]string
	news     []v1alpha1.RolloutDecision
	readings []v1alpha1.GateReading
	soaked   time.Duration
	message  string
	low      []string // as in judge
	unseen   string   // why no further site changes, as a sentence with a space before; "": nothing
	next     string
	nextAt   time.Time
	again    time.Time
	unit     int64 // now, in seconds
	queued   bool
}

// load reads the state.
func (r *run) load() error {
	st := r.in.State
	if st == nil {
		st = &v1alpha1.RolloutStateSpec{}
		r.in.State = st
	}
	p := r.in.Parsed
	if p == nil {
		p = Parse(st)
	}
	if p.err != nil {
		return p.err
	}
	names := p.names
	r.names, r.steps, r.has = names, []byte(st.Steps), []byte(st.Has)
	r.wasSites = [3]string{st.Sites, st.Steps, st.Has}
	r.target = '1'
	for i := range st.Objects {
		if n := len(st.Objects[i].Contents); n > 0 {
			r.target = '0' + byte(min(n-1, 9))
		}
	}
	if r.d = p.d; r.d == nil {
		r.d = &decided{rows: make([]row, len(names))}
	} else {
		r.before = r.d.encode()
	}
	r.match()
	r.gates = GatesOf(&r.in.Spec.RolloutPlan)
	return nil
}

// match finds what is known now of the sites in the state.
func (r *run) match() {
	r.site = make([]*Site, len(r.names))
	for i, name := range r.names {
		r.site[i] = r.named(name)
	}
}

// named is a site by its name; nil: there is none.
func (r *run) named(name string) *Site {
	if at, ok := slices.BinarySearchFunc(r.in.Sites, name, func(s Site, name string) int { return strings.Compare(s.Name, name) }); ok {
		return &r.in.Sites[at]
	}
	return nil
}

func (r *run) inScope(s *Site) bool { return r.in.InScope == nil || r.in.InScope(s) }

// gone: the site holds the objects no longer, or has left the rollout's virtual sites.
func (r *run) gone(i int) bool { return r.site[i] == nil || !r.inScope(r.site[i]) }

// unreadable is the answer to a state that can't be read: nothing moves, and people are
// told.
func (r *run) unreadable(err error) Output {
	return Output{
		State: r.in.State, Memory: r.mem, Again: r.in.Now.Add(idleEvery),
		Status: v1alpha1.RolloutStatus{
			Phase:   v1alpha1.RolloutPaused,
			Message: fmt.Sprintf("The state of the rollout can't be read, and nothing moves: %v. Make another Rollout, which takes over from this one.", err),
		},
	}
}

// decide notes a decision.
func (r *run) decide(what, by, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(text) > 400 {
		text = strings.ToValidUTF8(text[:400], "") + "…"
	}
	d := v1alpha1.RolloutDecision{At: metav1.NewTime(time.Unix(r.unit, 0).UTC()), What: what, Text: text, By: by}
	r.news = append(r.news, d)
	r.d.Decisions = append(r.d.Decisions, d)
}

// set takes a site to a step.
func (r *run) set(i int, step v1alpha1.SiteStep) {
	if r.steps[i] != byte(step) {
		r.steps[i] = byte(step)
		r.d.rows[i].at = r.unit
	}
}

// span is where a wave's sites stand.
func (r *run) span(wave int) (first, end int) {
	if wave < 1 || wave > len(r.d.Waves) {
		return 0, 0
	}
	if wave > 1 {
		first = r.d.Waves[wave-2].End
	}
	return first, r.d.Waves[wave-1].End
}

// current is the wave under way; nil: none.
func (r *run) current() *wave {
	if r.d.Wave < 1 {
		return nil
	}
	return &r.d.Waves[r.d.Wave-1]
}

func (r *run) soak() time.Duration {
	if w := r.current(); w != nil && w.Soak != nil {
		return time.Duration(*w.Soak) * time.Second
	}
	return r.in.Spec.Soak.Duration
}

// promoted: people said that the gates of the current wave need not pass.
func (r *run) promoted() bool {
	return r.d.Wave > 0 && int(r.in.Spec.Control.Promote) >= r.d.Wave
}

// late: the site got the change, or came back with it, after its wave had settled or in a
// later one; the others did not wait for it.
func (r *run) late(i int) bool {
	w := r.current()
	if w == nil || r.d.rows[i].got == 0 {
		return false
	}
	first, _ := r.span(r.d.Wave)
	return w.Settled != 0 && r.d.rows[i].got > w.Settled || i < first && r.d.rows[i].got >= w.Started
}

// output is what was decided, with the state if it is another than before.
func (r *run) output() Output {
	out := Output{Memory: r.mem, Decisions: r.news, Again: r.again, State: r.in.State}
	if r.d.Phase == "" && r.before == nil {
		out.Status = r.status() // queued before it began: there is nothing to remember
		return out
	}
	now := r.d.encode()
	sites := [3]string{strings.Join(r.names, " "), string(r.steps), string(r.has)}
	st := *r.in.State
	held := st.Held && !(r.d.Phase == v1alpha1.RolloutCompleted)
	if !bytes.Equal(now, r.before) || sites != [3]string{strings.Join(strings.Fields(r.wasSites[0]), " "), r.wasSites[1], r.wasSites[2]} || held != st.Held {
		st.Sites, st.Steps, st.Has, st.Held = sites[0], sites[1], sites[2], held
		st.Decided = &runtime.RawExtension{Raw: now}
		out.State, out.Changed = &st, true
	}
	out.Status = r.status()
	if r.d.Phase.Ended() {
		out.Again = r.in.Now.Add(24 * time.Hour)
	}
	return out
}

func (r *run) soonest(t time.Time) {
	if t.After(r.in.Now) && t.Before(r.again) {
		r.again = t
	}
}

// end ends the rollout.
func (r *run) end(phase v1alpha1.RolloutPhase, by, format string, args ...any) {
	r.d.Phase, r.d.Ended, r.d.Halted, r.d.Back = phase, r.unit, false, ""
	r.d.Message = fmt.Sprintf(format, args...)
	r.decide(string(phase), by, "%s", r.d.Message)
}

func by(user string) string { return cmp.Or(user, "somebody") }
