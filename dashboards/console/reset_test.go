package console

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
)

// What the page asks for stands in the Site as kubectl and the CLI would write it.
func TestResetIsAskedForAndTakenBack(t *testing.T) {
	h := newHarness(t)
	const path = "/api/v1/sites/paris-07/reset?tenant=acme"
	asked := func() *v1alpha1.SiteReset {
		t.Helper()
		h.api.mu.Lock()
		defer h.api.mu.Unlock()
		for _, s := range h.api.sites {
			if s.Name == "paris-07" && s.Namespace == "acme-system" {
				return s.Spec.Reset
			}
		}
		t.Fatal("there is no site")
		return nil
	}
	var s siteView
	h.want(200, "alice", "POST", path, `{"wait":"24h"}`).json(t, &s)
	first := asked()
	if first == nil || first.ID == "" || first.Spool != v1alpha1.ResetDrain || first.Approval != v1alpha1.ResetAutomatic {
		t.Fatalf("%+v", first)
	}
	if s.Reset == nil || s.Reset.Phase != v1alpha1.ResetAsked || s.Reset.Since != nil || s.Reset.Expires == nil || !s.Reset.Expires.Equal(first.Expires.Time) {
		t.Errorf("shown as %+v", s.Reset)
	}
	h.want(200, "alice", "POST", path, `{"wait":"1h","discardSpool":true,"approveAgain":true}`)
	if second := asked(); second == nil || second.ID == first.ID || second.Spool != v1alpha1.ResetDiscard || second.Approval != v1alpha1.ResetManual || !second.Expires.Before(&first.Expires) {
		t.Errorf("%+v", second)
	}
	h.want(204, "alice", "DELETE", path, "")
	if got := asked(); got != nil {
		t.Errorf("left is %+v", got)
	}
	h.want(409, "alice", "DELETE", path, "")
	h.want(409, "alice", "POST", "/api/v1/sites/rome-01/reset?tenant=acme", `{"wait":"1h"}`) // not approved yet
}

func TestViewReset(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	asked := &v1alpha1.SiteReset{ID: "two", Expires: metav1.NewTime(now.Add(time.Hour))}
	since, expires := now.Add(-time.Minute), now.Add(time.Hour)
	status := func(id string, phase v1alpha1.ResetPhase, since time.Duration) *v1alpha1.SiteResetStatus {
		return &v1alpha1.SiteResetStatus{ID: id, Phase: phase, Since: ago(since), Message: "m"}
	}
	long := now.Add(-time.Hour)
	for name, c := range map[string]struct {
		asked *v1alpha1.SiteReset
		st    *v1alpha1.SiteResetStatus
		want  *resetView
	}{
		"nobody has asked":                {nil, nil, nil},
		"not seen yet":                    {asked, nil, &resetView{Phase: v1alpha1.ResetAsked, Expires: &expires}},
		"the last one is over":            {asked, status("one", v1alpha1.ResetCompleted, time.Minute), &resetView{Phase: v1alpha1.ResetAsked, Expires: &expires}},
		"the site waits for its order":    {asked, status("two", v1alpha1.ResetConfirmed, time.Minute), &resetView{Phase: v1alpha1.ResetConfirmed, Since: &since, Expires: &expires, Message: "m"}},
		"it has begun":                    {asked, status("two", v1alpha1.ResetResetting, time.Minute), &resetView{Phase: v1alpha1.ResetResetting, Since: &since, Message: "m"}},
		"it is not back":                  {asked, status("two", v1alpha1.ResetResetting, time.Hour), &resetView{Phase: v1alpha1.ResetResetting, Since: &long, Message: "m", Overdue: true}},
		"taken back, and not seen so yet": {nil, status("two", v1alpha1.ResetAsked, time.Minute), &resetView{Phase: v1alpha1.ResetAsked, Since: &since, Message: "m"}},
	} {
		s := &v1alpha1.Site{Spec: v1alpha1.SiteSpec{Reset: c.asked}, Status: v1alpha1.SiteStatus{Reset: c.st}}
		if got := viewReset(s, now); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
