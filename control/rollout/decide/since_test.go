package decide

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"muster.dev/muster/control/api/v1alpha1"
)

// Since when something is judged is what was decided, whatever the status shows.
func TestSince(t *testing.T) {
	w := newWorld(t, 60)
	w.spec.Strategy = v1alpha1.RolloutStrategy{Type: v1alpha1.StrategyRolling}
	w.run(3*time.Minute, func(*world) bool { return false })
	if got := Parse(&w.state).Since(); got.Before(monday) || got.After(w.now) {
		t.Errorf("%s, the rollout began after %s, now it is %s", got, monday, w.now)
	}
	for raw, want := range map[string]bool{"": false, "{": false, `{"v":1,"since":-1}`: false, `{"v":1,"since":"x"}`: false, `{"v":9,"since":1000}`: false, `{"v":1,"since":1000}`: true} {
		s := &v1alpha1.RolloutStateSpec{Decided: &runtime.RawExtension{Raw: []byte(raw)}}
		if got := Parse(s).Since(); got.Equal(time.Unix(1000, 0)) != want || got.IsZero() == want {
			t.Errorf("%q: %s", raw, got)
		}
	}
	if got := Parse(&v1alpha1.RolloutStateSpec{}).Since(); !got.IsZero() {
		t.Error(got)
	}
}

// Who has read the state hands it in, and it is not read again.
func TestAStateIsReadOnce(t *testing.T) {
	w := newWorld(t, 60)
	w.run(3*time.Minute, func(*world) bool { return false })
	for name, s := range map[string]*v1alpha1.RolloutStateSpec{"under way": &w.state, "none": nil} {
		in := Input{Name: w.name, Spec: &w.spec, State: s, Sites: w.sites, Now: w.now}
		want := Decide(in)
		if in.Parsed = Parse(s); s != nil {
			in.State = s.DeepCopy()
			in.State.Decided.Raw = []byte("{")
		}
		got := Decide(in)
		if got.Status.Phase != want.Status.Phase || got.Status.Message != want.Status.Message || got.Status.Sites != want.Status.Sites {
			t.Errorf("%s: %+v, want %+v", name, got.Status, want.Status)
		}
	}
}
