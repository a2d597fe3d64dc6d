package control

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/fleetapi"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

// What a site says of its policy counts once what it should have follows from the state.
func TestSitesOfAPolicyUnderARollout(t *testing.T) {
	book := inventory.NewBook("acme")
	for _, name := range []string{"one", "two", "three", "other"} {
		labels := map[string]string{"in": "old"}
		switch name {
		case "three":
			labels["in"] = "new"
		case "other":
			labels["in"] = "none"
		}
		book.Put(&v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: name, Labels: labels}, Spec: v1alpha1.SiteSpec{Approved: true}})
	}
	content := func(in string) runtime.RawExtension {
		return runtime.RawExtension{Raw: []byte(fmt.Sprintf(`{"spec":{"siteSelector":{"matchExpressions":[{"key":"in","operator":"In","values":[%s]}]}}}`, in))}
	}
	policy := &v1alpha1.CollectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "p", Generation: 1}, Spec: v1alpha1.CollectionPolicySpec{SiteSelector: metav1.LabelSelector{MatchLabels: map[string]string{"in": "old"}}}}
	book.Put(policy)
	before := book.Snapshot()
	state := func(has string) *v1alpha1.RolloutState {
		return &v1alpha1.RolloutState{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "r"}, Spec: v1alpha1.RolloutStateSpec{Held: true, Sites: "one two three", Has: has,
			Objects: []v1alpha1.RolloutObject{{APIVersion: "muster.dev/v1alpha1", Kind: "CollectionPolicy", Name: "p", Contents: []runtime.RawExtension{content(`"old"`), content(`"old","new"`)}}}}}
	}
	said := map[string]decide.Applied{"one": decide.Ready, "two": decide.Ready, "three": decide.Failed}
	check := func(when string, st *v1alpha1.RolloutState, rendered *inventory.Snapshot, want string) {
		t.Helper()
		p := policySites{kind: fleet.KindCollectionPolicy, name: "p", state: st, told: func(s *inventory.Site) (decide.Applied, string) { return said[s.ID.Name], "" },
			rendered: func(id fleet.SiteID) *inventory.Site { return rendered.Sites[rendered.Find(id.Tenant, id.Name)] }}
		var got []string
		for _, s := range p.of(rendered.SitesOf("acme")) {
			got = append(got, fmt.Sprintf("%s %d", s.Name, s.State))
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: %s, want %s", when, text, want)
		}
	}
	check("under none", nil, before, "one 2, two 2")
	check("before the inventory knows of the rollout", state("000"), before, "one 0, three 3, two 0")

	book.Put(state("000"))
	policy = policy.DeepCopy()
	policy.Generation, policy.Annotations = 2, map[string]string{v1alpha1.AnnotationRollout: "r"}
	policy.Spec.SiteSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "in", Operator: metav1.LabelSelectorOpIn, Values: []string{"old", "new"}}}}
	book.Put(policy)
	begun := book.Snapshot()
	check("as it begins", state("000"), begun, "one 2, three 3, two 2")
	check("written, not resolved yet", state("101"), begun, "one 0, three 0, two 2")
	book.Put(state("101"))
	check("resolved", state("101"), book.Snapshot(), "one 2, three 3, two 2")
}

// What a site says of its host counts once it is of what it should have now.
func TestSitesOfAHostConfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		said   fleetapi.HostSaid
		digest string
		want   decide.Applied
	}{
		"nothing heard":        {fleetapi.HostSaid{}, "a", decide.NotYet},
		"nothing, of nothing":  {fleetapi.HostSaid{}, "", decide.NotYet},
		"has it":               {fleetapi.HostSaid{Told: true, Hash: "a"}, "a", decide.Ready},
		"has the one before":   {fleetapi.HostSaid{Told: true, Hash: "b"}, "a", decide.NotYet},
		"refuses":              {fleetapi.HostSaid{Told: true, Hash: "b", Refused: true, Why: "x"}, "a", decide.Failed},
		"has none, wants none": {fleetapi.HostSaid{Told: true}, "", decide.Ready},
		"too old":              {fleetapi.HostSaid{TooOld: true, Refused: true}, "a", decide.Failed},
	} {
		if got, why := hostState(c.said, c.digest); got != c.want || why != c.said.Why {
			t.Errorf("%s: %v %q, want %v", name, got, why, c.want)
		}
	}
}
