package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

func candidate(p *policy) *v1alpha1.HealthPolicy {
	out := p.Object.(*v1alpha1.HealthPolicy).DeepCopy()
	out.Name = p.Name
	return out
}

// A trial says what a policy would make of the sites of its tenant, and changes nothing.
func TestTry(t *testing.T) {
	one := newRegional(t, "one")
	for _, s := range []string{"a/paris", "a/rome", "a/oslo", "b/paris"} {
		well(t, one.prom, s)
		one.put(t, "x", "", s, 6, 0)
		one.connect(s, true)
	}
	one.put(t, "secret", "", "b/paris", 7, 0)
	inForce, strong := aPolicy(t, "a", "mine", signal("x", "max by (tenant, site) (x / 100)")), aPolicy(t, "a", "strong", signal("x", "max by (tenant, site) (x / 100)"))
	strong.Priority = 10
	paris, rome, oslo := aSite("a/paris"), aSite("a/rome"), aSite("a/oslo")
	paris.Labels, rome.Labels = map[string]string{"tier": "gold"}, map[string]string{"tier": "tin"}
	paris.Policies, rome.Policies = []*inventory.Policy{inForce.Policy}, []*inventory.Policy{inForce.Policy}
	oslo.Policies = []*inventory.Policy{strong.Policy, inForce.Policy}
	inv := &shelf{changed: make(chan struct{}, 1)}
	inv.set([]*inventory.Site{paris, rome, oslo, aSite("b/paris")}, nil, []*inventory.Policy{strong.Policy, inForce.Policy})
	r := begin(t, t.TempDir(), []*regional{one}, nil, inv, nil)
	r.until("all are green", func(v *View) bool {
		return v.Tick >= 2 && v.Find("a", "paris").Colour() == fleet.Green && v.Find("a", "rome").Colour() == fleet.Green && v.Find("b", "paris").Colour() == fleet.Green
	})
	try := func(p *policy) map[string]Tried {
		t.Helper()
		x, err := r.e.Try(t.Context(), "a", candidate(p))
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]Tried{}
		for _, s := range x.Sites {
			out[s.Site.ID.Name] = s
		}
		return out
	}
	// As it is: nothing changes, at the sites where it is in force.
	same := try(inForce)
	if len(same) != 2 || same["paris"].Before.Score != same["paris"].After.Score || same["paris"].After.Colour != fleet.Green {
		t.Errorf("the same policy: %+v", same)
	}
	// 6 of 10 is bad enough; the stronger policy keeps oslo.
	strict := aPolicy(t, "a", "mine", signal("x", "max by (tenant, site) (x)"))
	got := try(strict)
	if s := got["rome"]; len(got) != 2 || s.Before.Colour != fleet.Green || s.After.Colour != fleet.Orange || s.After.Needed != 0 || !strings.Contains(s.After.Reasons[0].Text, "x is 6") {
		t.Errorf("a strict one: %d sites, rome %+v", len(got), s.After)
	}
	// A policy that lets go of a site hands it to the shipped one.
	less := aPolicy(t, "a", "mine", signal("x", "max by (tenant, site) (x)"))
	less.Object.(*v1alpha1.HealthPolicy).Spec.SiteSelector = metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
	got = try(less)
	if len(got) != 2 || got["paris"].After.Colour != fleet.Orange || got["rome"].After.Model == got["paris"].After.Model || got["rome"].After.Colour != fleet.Green {
		t.Errorf("a narrower one: %+v", got)
	}
	if !slices.ContainsFunc(one.asked(), func(q string) bool { return strings.Contains(q, `temperature{tenant="a"}`) }) {
		t.Error("the shipped policy's queries are not confined to the tenant")
	}
	// A new one beside it is in force where nothing stronger is.
	weak := aPolicy(t, "a", "other", signal("x", "max by (tenant, site) (x)"))
	if got := try(weak); len(got) != 0 {
		t.Errorf("a weaker one changes %+v", got)
	}
	weak.Object.(*v1alpha1.HealthPolicy).Spec.Priority = 20
	if got := try(weak); len(got) != 3 {
		t.Errorf("the strongest one is in force at %d sites", len(got))
	}
	// Another tenant's series are not there to be seen.
	curious := aPolicy(t, "a", "mine", signal("plain", "max by (tenant, site) (secret)"), signal("forged", `label_replace(label_replace(secret, "tenant", "a", "", ""), "site", "paris", "", "")`))
	for name, s := range try(curious) {
		if s.After.Signals[0].Known || s.After.Signals[1].Known {
			t.Errorf("%s sees another tenant's series: %+v", name, s.After.Signals)
		}
	}
	if v := r.e.View(); v.Find("a", "paris").Colour() != fleet.Green {
		t.Error("a trial changed a colour")
	}
	broken := aPolicy(t, "a", "mine", signal("x", "x"))
	broken.Object.(*v1alpha1.HealthPolicy).Spec.Signals[0].Causes = []string{"nothing"}
	if _, err := r.e.Try(t.Context(), "a", candidate(broken)); err == nil || !strings.Contains(err.Error(), "causes") {
		t.Errorf("a policy that makes no model: %v", err)
	}
}

// One trial a tenant at a time, and few in all.
func TestTrialsHaveTurns(t *testing.T) {
	var x trials
	end, err := x.begin("a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.begin("a"); !errors.Is(err, ErrTrying) {
		t.Errorf("a second one of the tenant: %v", err)
	}
	for _, tenant := range []string{"b", "c"} {
		if _, err := x.begin(tenant); err != nil {
			t.Error(err)
		}
	}
	if _, err := x.begin("d"); !errors.Is(err, ErrTrying) {
		t.Errorf("one too many: %v", err)
	}
	end()
	if _, err := x.begin("d"); err != nil {
		t.Error(err)
	}
	if _, err := (&Engine{}).Try(context.Background(), "a", &v1alpha1.HealthPolicy{}); !errors.Is(err, ErrNotEvaluated) {
		t.Errorf("before the first evaluation: %v", err)
	}
}
