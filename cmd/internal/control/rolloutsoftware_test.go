package control

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/fleetapi"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/internal/inventory"
)

// What a site says of its software counts for a rollout of the policy that decides, and of
// what that policy says now.
func TestHowFarASiteIsWithItsSoftware(t *testing.T) {
	const digest = "the digest of what it shall run"
	site := func(name string, pins map[v1alpha1.SoftwareComponent]string) *v1alpha1.Site {
		return &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: name}, Spec: v1alpha1.SiteSpec{Approved: true, Software: pins}}
	}
	policy := func(name string, component v1alpha1.SoftwareComponent, priority int32) *v1alpha1.SoftwarePolicy {
		return &v1alpha1.SoftwarePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: name}, Spec: v1alpha1.SoftwarePolicySpec{Component: component, Version: "2.0.0", Priority: priority}}
	}
	book := inventory.NewBook("acme")
	book.Put(site("free", nil), site("pinned", map[v1alpha1.SoftwareComponent]string{"agent": "1.0.0"}), policy("strong", "agent", 9), policy("weak", "agent", 1), policy("os", "os", 1))
	known := book.Snapshot()
	said := func(component v1alpha1.SoftwareComponent, state v1alpha1.SoftwareState, of, message string) fleetapi.SoftwareSaid {
		return fleetapi.SoftwareSaid{Told: true, Software: []v1alpha1.SiteSoftware{{Component: component, Wanted: "2.0.0", State: state, Digest: of, Message: message}}}
	}
	for _, c := range []struct {
		what, site, policy string
		said               fleetapi.SoftwareSaid
		is                 decide.Applied
		why                string
	}{
		{"nothing yet", "free", "strong", fleetapi.SoftwareSaid{}, decide.NotYet, ""},
		{"of what it should run before", "free", "strong", said("agent", v1alpha1.SoftwareDone, "another", ""), decide.NotYet, ""},
		{"it is done", "free", "strong", said("agent", v1alpha1.SoftwareDone, digest, ""), decide.Ready, ""},
		{"it downloads", "free", "strong", said("agent", v1alpha1.SoftwareDownloading, digest, ""), decide.Progressing, ""},
		{"it restarts", "free", "strong", said("agent", v1alpha1.SoftwareInstalling, digest, ""), decide.Restarting, ""},
		{"it begins tonight", "free", "strong", said("agent", v1alpha1.SoftwareScheduled, digest, "its operator put it off"), decide.Waits, "its operator put it off"},
		{"it went back", "free", "strong", said("agent", v1alpha1.SoftwareFailed, digest, "pods crash"), decide.Failed, "pods crash"},
		{"another component", "free", "os", said("agent", v1alpha1.SoftwareFailed, digest, "pods crash"), decide.Failed, "the site can't replace its os: give it a driver under software in its edge.yaml"},
		{"a stronger policy decides", "free", "weak", said("agent", v1alpha1.SoftwareFailed, digest, "pods crash"), decide.Ready, ""},
		{"the site decides", "pinned", "strong", said("agent", v1alpha1.SoftwareFailed, digest, "pods crash"), decide.Ready, ""},
		{"no such policy", "free", "gone", fleetapi.SoftwareSaid{}, decide.Ready, ""},
	} {
		is, why := softwareStanding(known.Sites[known.Find("acme", c.site)], c.policy, c.said, func(v1alpha1.SoftwareComponent) string { return digest })
		if is != c.is || why != c.why {
			t.Errorf("%s: %v %q, want %v %q", c.what, is, why, c.is, c.why)
		}
	}
}
