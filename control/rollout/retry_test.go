package rollout

import (
	"strings"
	"testing"

	"muster.dev/muster/control/api/v1alpha1"
)

// Two rollouts that had a site try again do not do it for ever in turns.
func TestRaiseRetry(t *testing.T) {
	s := &v1alpha1.Site{}
	count := func() string { return s.Annotations[v1alpha1.AnnotationSoftwareRetry] }
	for i, c := range []struct {
		rollout string
		count   int32
		raised  bool
		want    string
	}{{"a", 0, false, ""}, {"a", 1, true, "1"}, {"a", 1, false, "1"}, {"b", 1, true, "2"}, {"a", 1, false, "2"}, {"b", 1, false, "2"}, {"a", 2, true, "3"}, {"b", 1, false, "3"}, {"a", 1, false, "3"}} {
		if raiseRetry(s, c.rollout, c.count) != c.raised || count() != c.want {
			t.Errorf("%d: %+v: %q", i, c, count())
		}
	}
	for i := range 50 {
		raiseRetry(s, strings.Repeat("x", i+1), 1)
	}
	if n := len(strings.Fields(s.Annotations[v1alpha1.AnnotationSoftwareRetryOf])); n > maxRetryOf {
		t.Errorf("%d are remembered", n)
	}
}
