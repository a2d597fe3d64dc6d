package decide

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
)

// shownWaves is how many waves a status has: of more, those around the current one.
const shownWaves = 50

// status tells where the rollout stands.
func (r *run) status() v1alpha1.RolloutStatus {
	d := r.d
	st := v1alpha1.RolloutStatus{
		Phase: d.Phase, Wave: int32(d.Wave), WaveCount: int32(len(d.Waves)), Decisions: d.Decisions, StartedAt: moment(d.Started), EndedAt: moment(d.Ended),
		Message: r.message, Next: r.next,
	}
	if r.queued {
		st.Phase = v1alpha1.RolloutQueued
	}
	if d.Phase.Ended() {
		st.Message, st.Next = d.Message, ""
	} else if !r.nextAt.IsZero() {
		st.NextAt = &metav1.Time{Time: r.nextAt.UTC().Truncate(time.Second)}
	}
	if r.in.Spec.Control.Paused && st.Phase == v1alpha1.RolloutProgressing {
		st.Phase = v1alpha1.RolloutPaused
	}
	if d.Wave > 0 {
		st.Progress = fmt.Sprintf("%d/%d", d.Wave, len(d.Waves))
	}
	from, to := 0, len(d.Waves)
	if to > shownWaves {
		from = max(0, min(d.Wave-shownWaves/2, to-shownWaves))
		to = from + shownWaves
	}
	for n := range d.Waves {
		w := &d.Waves[n]
		first, end := r.span(n + 1)
		c := r.count(first, end)
		sum(&st.Sites, &c)
		if n >= from && n < to {
			st.Waves = append(st.Waves, v1alpha1.RolloutWaveStatus{Name: cmp.Or(w.Name, fmt.Sprintf("group %d", n+1)), Number: int32(n + 1), Begin: int32(first), End: int32(end),
				SoakSeconds: w.Soak, Approval: w.Approval, Sites: c, StartedAt: moment(w.Started), PassedAt: moment(w.Passed)})
		}
	}
	st.Gates = r.readings
	for i := range st.Gates {
		st.Gates[i].Seconds, st.Gates[i].OfSeconds = int32(min(r.soaked, r.soak())/time.Second), int32(r.soak()/time.Second)
	}
	return st
}

// count counts the sites at some positions by what they are in.
func (r *run) count(first, end int) v1alpha1.RolloutCounts {
	var c v1alpha1.RolloutCounts
	for i := first; i < end; i++ {
		if r.gone(i) {
			continue
		}
		c.Total++
		switch v1alpha1.SiteStep(r.steps[i]) {
		case v1alpha1.StepOffline:
			c.Offline++
		case v1alpha1.StepHeld:
			c.Held++
		case v1alpha1.StepUpdating:
			c.Updating++
		case v1alpha1.StepReady:
			c.Updated++
		case v1alpha1.StepPassed:
			c.Updated++
			c.Passed++
		case v1alpha1.StepFailed:
			c.Failed++
		case v1alpha1.StepRolledBack:
			c.RolledBack++
		default:
			c.Waiting++
		}
	}
	return c
}

func sum(a, b *v1alpha1.RolloutCounts) {
	a.Total += b.Total
	a.Waiting += b.Waiting
	a.Updating += b.Updating
	a.Updated += b.Updated
	a.Passed += b.Passed
	a.Failed += b.Failed
	a.Offline += b.Offline
	a.Held += b.Held
	a.RolledBack += b.RolledBack
}

func moment(seconds int64) *metav1.Time {
	if seconds == 0 {
		return nil
	}
	return &metav1.Time{Time: time.Unix(seconds, 0).UTC()}
}
