package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// A dry run says on which sites nothing would change, since they name the version themselves.
func TestADryRunOfSoftwareKnowsOfPins(t *testing.T) {
	site := func(name string, pins map[v1alpha1.SoftwareComponent]string) *v1alpha1.Site {
		return &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: name}, Spec: v1alpha1.SiteSpec{Approved: true, Software: pins}, Status: v1alpha1.SiteStatus{Phase: fleet.PhaseOnline}}
	}
	c := fakeClient(t, site("lyon", map[v1alpha1.SoftwareComponent]string{"agent": "1.0.0"}), site("nice", map[v1alpha1.SoftwareComponent]string{"os": "1.0.0"}), site("paris", nil))
	run := func(components ...string) string {
		t.Helper()
		var targets []target
		r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "agent-1"}}
		for _, component := range components {
			target, err := softwareTarget(nil, "acme", component, "2.0.0")
			if err != nil {
				t.Fatal(err)
			}
			targets = append(targets, target)
			r.Spec.Changes = append(r.Spec.Changes, target.change)
		}
		if err := (&startFlags{strategy: "canary", onFailure: "rollback", waves: []string{"1", "100%"}, soak: time.Minute}).plan(&r.Spec); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := (&Globals{}).dryRun(t.Context(), &out, c, v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "acme"}}, owned{"acme", "system", r}, targets); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if out := run("agent"); !strings.Contains(out, "would change on 3 sites in 2 waves") || !strings.Contains(out, "nothing changes on 1 site, lyon: spec.software") {
		t.Errorf("of the agent:\n%s", out)
	}
	if out := run("agent", "os"); strings.Contains(out, "nothing changes on") {
		t.Errorf("of both, each site changes in one:\n%s", out)
	}
}

func TestHowLongAPlanTakes(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 10 * time.Second: "10s", 90 * time.Second: "1m30s", 3 * time.Minute: "3m", 20*time.Minute + 10*time.Second: "20m", time.Hour: "1h", 90 * time.Minute: "1h30m", 40*time.Hour + 29*time.Second: "40h",
	} {
		if got := human(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}
