package controllers

import (
	"log/slog"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/fleetapi"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

// saidSoftware is what sites say: of their agent, about the digest of what they shall run.
type saidSoftware map[string]v1alpha1.SoftwareState

func (saidSoftware) SoftwareDigest(fleet.SiteID, v1alpha1.SoftwareComponent) string { return "d" }
func (saidSoftware) SoftwareGenerations(string) map[string]int64                    { return nil }
func (saidSoftware) Released(string, v1alpha1.SoftwareComponent, string) (string, bool) {
	return "", true
}
func (s saidSoftware) SoftwareOf(id fleet.SiteID) fleetapi.SoftwareSaid {
	state, ok := s[id.Name]
	if !ok {
		return fleetapi.SoftwareSaid{}
	}
	return fleetapi.SoftwareSaid{Told: true, Software: []v1alpha1.SiteSoftware{{Component: "agent", State: state, Digest: "d", Message: "no room"}}}
}

func TestSoftwarePolicyStatus(t *testing.T) {
	policy := func(name, version string, priority int32) *v1alpha1.SoftwarePolicy {
		return &v1alpha1.SoftwarePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: name, Generation: 1}, Spec: v1alpha1.SoftwarePolicySpec{Component: "agent", Version: version, Priority: priority}}
	}
	all, canary, os := policy("all", "1.4.2", 0), policy("canary", "1.5.0", 9), policy("os", "6.0.0", 3)
	canary.Spec.SiteSelector = metav1.LabelSelector{MatchLabels: map[string]string{"ring": "0"}}
	os.Spec.Component = "os"
	book := inventory.NewBook("acme").Put(all, canary, os)
	said := saidSoftware{}
	for name, state := range map[string]v1alpha1.SoftwareState{"done": "Done", "failed": "Failed", "moving": "Downloading", "later": "Scheduled", "away": "", "ring": "Done", "pinned": "Done"} {
		s := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: name}, Spec: v1alpha1.SiteSpec{Approved: true}, Status: v1alpha1.SiteStatus{Phase: fleet.PhaseOnline}}
		switch name {
		case "away":
			s.Status.Phase = fleet.PhaseOffline
		case "ring":
			s.Labels = map[string]string{"ring": "0"}
		case "pinned":
			s.Spec.Software = map[v1alpha1.SoftwareComponent]string{"agent": "1.0.0"}
		}
		if name != "away" {
			said[name] = state
		}
		book.Put(s)
	}
	r := &Runner{o: Options{Software: said, Logger: slog.New(slog.DiscardHandler)}}
	by := r.softwareSites(book.Snapshot(), "acme")
	p := by["all"]
	if p.all() != 5 || len(p.done) != 1 || len(p.failed) != 1 || len(p.moving) != 1 || len(p.waiting) != 1 || len(p.away) != 1 {
		t.Errorf("%+v", p)
	}
	if by["canary"].all() != 1 || len(by["canary"].done) != 1 {
		t.Errorf("the stronger one: %+v", by["canary"])
	}
	check := func(when string, c metav1.Condition, status metav1.ConditionStatus, reason string, says ...string) {
		t.Helper()
		if c.Status != status || c.Reason != reason {
			t.Errorf("%s: %+v", when, c)
		}
		for _, text := range says {
			if !strings.Contains(c.Message, text) {
				t.Errorf("%s: %q does not say %q", when, c.Message, text)
			}
		}
	}
	check("others", overridden(p), metav1.ConditionTrue, "Overridden", "SoftwarePolicy canary, on ring", "spec.software says 1.0.0, on pinned")
	check("none", overridden(by["canary"]), metav1.ConditionFalse, "Decides")
	check("failed", softwareCondition(all, p, true, ""), metav1.ConditionFalse, "Failed", "failed on failed, first: no room", "have it: later", "return: away")
	check("not released", softwareCondition(all, p, false, ""), metav1.ConditionFalse, "NoSuchVersion", "no SoftwareVersion agent-1.4.2 in acme-system", "muster software add", "spec.version")
	check("withdrawn", softwareCondition(all, p, true, "eats disks"), metav1.ConditionFalse, "Withdrawn", "eats disks")
	p.failed = nil
	check("under way", softwareCondition(all, p, true, ""), metav1.ConditionFalse, "InProgress", "1 of 4 sites run agent 1.4.2; not yet moving")
	p.moving = nil
	check("done", softwareCondition(all, p, true, ""), metav1.ConditionTrue, "Applied", "1 of 3")
	check("nobody", softwareCondition(all, &softwareSites{}, true, ""), metav1.ConditionUnknown, "NoSiteMatches")
	check("no version", softwareCondition(policy("x", "", 0), &softwareSites{}, false, ""), metav1.ConditionTrue, "NoVersion")
}
