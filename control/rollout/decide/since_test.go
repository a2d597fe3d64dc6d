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
	if got := Since(&w.state); got.Before(monday) || got.After(w.now) {
		t.Errorf("%s, the rollout began after %s, now it is %s", got, monday, w.now)
	}
	for raw, want := range map[string]bool{"": false, "{": false, `{"since":-1}`: false, `{"since":"x"}`: false, `{"since":1000}`: true} {
		s := &v1alpha1.RolloutStateSpec{Decided: &runtime.RawExtension{Raw: []byte(raw)}}
		if got := Since(s); got.Equal(time.Unix(1000, 0)) != want || got.IsZero() == want {
			t.Errorf("%q: %s", raw, got)
		}
	}
	if got := Since(&v1alpha1.RolloutStateSpec{}); !got.IsZero() {
		t.Error(got)
	}
}
