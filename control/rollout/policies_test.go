package rollout_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/hold"
	"muster.dev/muster/internal/testkit"
)

// policyWorld is one whose rollouts are of policies.
func policyWorld(t *testing.T, tenant string) *world {
	w := newWorld(t, tenant)
	w.space = tenant + "-system"
	return w
}

// change makes a Rollout of an object's spec.
func (w *world) change(name, api, kind, object, spec string) {
	w.t.Helper()
	w.create(&v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.in()}, Spec: v1alpha1.RolloutSpec{Changes: []v1alpha1.RolloutChange{changeOf(api, kind, object, spec)}, RolloutPlan: quick()}})
}

func changeOf(api, kind, object, spec string) v1alpha1.RolloutChange {
	return v1alpha1.RolloutChange{APIVersion: api, Kind: kind, Name: object, Content: &runtime.RawExtension{Raw: []byte(`{"spec":` + spec + `}`)}}
}

// make makes an object of that spec.
func (w *world) make(api, kind, name, spec string) {
	w.t.Helper()
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"namespace":%q},"spec":%s}`, api, kind, name, w.in(), spec), &o.Object); err != nil {
		w.t.Fatal(err)
	}
	w.create(o)
}

// spec is what an object says now, as JSON.
func (w *world) spec(api, kind, name string) string {
	w.t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.FromAPIVersionAndKind(api, kind))
	if err := w.client.Get(context.Background(), client.ObjectKey{Namespace: w.in(), Name: name}, o); err != nil {
		w.t.Fatal(err)
	}
	b, err := json.Marshal(o.Object["spec"])
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// Policies of each kind go over the sites as workloads do, started by somebody: a good one to
// all sites, and a bad one no further than its first wave, with what was there before written
// back. One that the table of kinds has and this test has not fails it.
func TestRolloutsOfPolicies(t *testing.T) {
	w := policyWorld(t, "ro-policy")
	const signal = `{"signals":[{"name":"up","dimension":"connectivity","query":%q,"good":"1","bad":"0"}]}`
	missing := map[string]bool{}
	for _, k := range hold.Policies {
		missing[k.Kind] = true
	}
	type kind struct{ kind, name, first, good, bad string }
	kinds := []kind{
		{"CollectionPolicy", "less", `{}`, `{"dropSeries":[{"metric":"a","label":"x","values":"good"}]}`, `{"dropSeries":[{"metric":"a","label":"x","values":"a-bad"}]}`},
		{"HealthPolicy", "strict", fmt.Sprintf(signal, "up"), fmt.Sprintf(signal, "up * 1"), fmt.Sprintf(signal, `up{x="a-bad"}`)},
		{"SoftwarePolicy", "agent", `{"component":"agent"}`, `{"component":"agent","version":"1.4.2"}`, `{"component":"agent","version":"1.5.0-bad"}`},
		{"HostConfiguration", "stores", `{}`, `{"hosts":[{"address":"192.0.2.10","names":["db"]}]}`, `{"hosts":[{"address":"192.0.2.10","names":["db-bad"]}]}`},
	}
	for _, k := range kinds {
		delete(missing, k.kind)
		w.make("muster.dev/v1alpha1", k.kind, k.name, k.first)
	}
	if len(missing) > 0 {
		t.Errorf("no rollout is tried of %v", missing)
	}
	w.control()
	for _, k := range kinds {
		w.goodThenBad("muster.dev/v1alpha1", k.kind, k.name, k.good, k.bad)
	}
	if had := w.sitesThatHad("agent:1.4.2"); len(had) != sitesOfAWorld {
		t.Errorf("the version went to %v", had)
	}
	if had := w.sitesThatHad("agent:1.5.0-bad"); len(had) != 1 {
		t.Errorf("the bad version went to %v", had)
	}

	// All of them in one rollout move together, and what is bad in one is put back in all.
	bundle := func(name string, spec func(kind) string) {
		r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.in()}, Spec: v1alpha1.RolloutSpec{RolloutPlan: quick()}}
		for _, k := range kinds {
			r.Spec.Changes = append(r.Spec.Changes, changeOf("muster.dev/v1alpha1", k.kind, k.name, spec(k)))
		}
		w.create(r)
	}
	before := map[string]string{}
	for _, k := range kinds {
		before[k.name] = w.spec("muster.dev/v1alpha1", k.kind, k.name)
	}
	bundle("together-bad", func(k kind) string {
		if k.kind == "HostConfiguration" {
			return k.bad
		}
		return k.first
	})
	w.becomes("together-bad", v1alpha1.RolloutRolledBack)
	for _, k := range kinds {
		if now := w.spec("muster.dev/v1alpha1", k.kind, k.name); now != before[k.name] {
			t.Errorf("%s is %s after a bad bundle, and was %s", k.kind, now, before[k.name])
		}
	}
	bundle("together", func(k kind) string { return k.first })
	w.becomes("together", v1alpha1.RolloutCompleted)
	w.ended("together", false)
	for _, k := range kinds {
		if now := w.spec("muster.dev/v1alpha1", k.kind, k.name); now == before[k.name] {
			t.Errorf("%s did not move with the bundle: %s", k.kind, now)
		}
	}
}

// A NetworkPolicy is an object of a tenant's own namespace, and moves as a whole.
func TestARolloutOfANetworkPolicy(t *testing.T) {
	w := newWorld(t, "ro-netpol")
	const api = "networking.k8s.io/v1"
	spec := func(label string) string {
		return fmt.Sprintf(`{"podSelector":{"matchLabels":{"app":%q}},"policyTypes":["Ingress"]}`, label)
	}
	w.make(api, "NetworkPolicy", "inbound", spec("web"))
	w.control()
	w.goodThenBad(api, "NetworkPolicy", "inbound", spec("shop"), spec("shop-bad"))
}

// goodThenBad takes a good content of an object to all sites, and then a bad one.
func (w *world) goodThenBad(api, kind, object, good, bad string) {
	w.t.Helper()
	release, before := "new-"+object, w.spec(api, kind, object)
	w.change(release, api, kind, object, good)
	r := w.becomes(release, v1alpha1.RolloutCompleted)
	w.ended(release, false)
	has := w.spec(api, kind, object)
	if r.Status.Sites.Passed != sitesOfAWorld || len(r.Status.Waves) != 2 || has == before {
		w.t.Errorf("%s: %s, %+v", kind, has, r.Status.Sites)
	}
	release = "bad-" + object
	w.change(release, api, kind, object, bad)
	r = w.becomes(release, v1alpha1.RolloutRolledBack)
	if now := w.spec(api, kind, object); now != has {
		w.t.Errorf("%s is %s after a bad rollout, and was %s", kind, now, has)
	}
	if r.Status.Sites.RolledBack != 1 || r.Status.Sites.Waiting != sitesOfAWorld-1 {
		w.t.Errorf("%s: outside of the first wave: %+v", kind, r.Status.Sites)
	}
}

// The first version of a policy is put back to none: the sites' other slot.
func TestTheFirstVersionIsPutBackToNone(t *testing.T) {
	w := policyWorld(t, "ro-first")
	w.create(&v1alpha1.SoftwarePolicy{ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: w.in()}, Spec: v1alpha1.SoftwarePolicySpec{Component: "agent"}})
	w.control()
	w.change("first", "muster.dev/v1alpha1", "SoftwarePolicy", "agent", `{"component":"agent","version":"1.4.2-bad"}`)
	w.becomes("first", v1alpha1.RolloutRolledBack)
	if now := w.spec("muster.dev/v1alpha1", "SoftwarePolicy", "agent"); strings.Contains(now, "version") {
		t.Errorf("put back to %s", now)
	}
}

// An ordinary write of a SoftwarePolicy becomes a rollout where a RolloutPolicy says so.
func TestAnOrdinaryWriteOfASoftwarePolicy(t *testing.T) {
	w := policyWorld(t, "ro-swwrite")
	w.create(&v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful", Namespace: w.in()}, Spec: v1alpha1.RolloutPolicySpec{Kinds: []string{"SoftwarePolicy"}, RolloutPlan: quick()}},
		&v1alpha1.SoftwarePolicy{ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: w.in()}, Spec: v1alpha1.SoftwarePolicySpec{Component: "agent", Version: "1.4.1"}})
	w.control()
	write := func(version string) string {
		t.Helper()
		p := &v1alpha1.SoftwarePolicy{ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: w.in()}}
		testkit.Eventually(t, "the write", func() error {
			if err := w.client.Patch(context.Background(), p, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"version":%q}}`, version))); err != nil {
				return err
			}
			if p.Annotations[v1alpha1.AnnotationRollout] == "" {
				return fmt.Errorf("it is under no rollout: %v", p.Annotations)
			}
			return nil
		})
		return p.Annotations[v1alpha1.AnnotationRollout]
	}
	good := write("1.4.2")
	w.becomes(good, v1alpha1.RolloutCompleted)
	w.ended(good, false)
	if had := w.sitesThatHad("agent:1.4.2"); len(had) != sitesOfAWorld {
		t.Errorf("it went to %v", had)
	}
	bad := write("1.5.0-bad")
	w.becomes(bad, v1alpha1.RolloutRolledBack)
	w.ended(bad, true)
	if had := w.sitesThatHad("agent:1.5.0-bad"); len(had) != 1 {
		t.Errorf("outside of the first wave: %v", had)
	}
}

// A person has a site try again: the Site says so, once for each time they asked.
func TestASiteTriesItsSoftwareAgain(t *testing.T) {
	w := policyWorld(t, "ro-retry")
	w.create(&v1alpha1.SoftwarePolicy{ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: w.in()}, Spec: v1alpha1.SoftwarePolicySpec{Component: "agent"}})
	w.control()
	w.change("again", "muster.dev/v1alpha1", "SoftwarePolicy", "agent", `{"component":"agent","version":"1.4.2"}`)
	testkit.EventuallyTrue(t, "the first site has it", func() bool { return len(w.sitesThatHad("agent:1.4.2")) > 0 })
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"control":{"paused":true,"retry":{"s3":1}}}}`))
	if err := w.client.Patch(context.Background(), &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: w.in(), Name: "again"}}, patch); err != nil {
		t.Fatal(err)
	}
	count := func() string {
		var s v1alpha1.Site
		if err := w.client.Get(context.Background(), client.ObjectKey{Namespace: w.in(), Name: "s3"}, &s); err != nil {
			t.Fatal(err)
		}
		return s.Annotations[v1alpha1.AnnotationSoftwareRetry]
	}
	testkit.EventuallyTrue(t, "the site is told", func() bool { return count() == "1" })
	if err := w.client.Patch(context.Background(), &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: w.in(), Name: "again"}}, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"control":{"paused":false}}}`))); err != nil {
		t.Fatal(err)
	}
	w.becomes("again", v1alpha1.RolloutCompleted)
	if n := count(); n != "1" {
		t.Errorf("it was counted %s times", n)
	}
}
