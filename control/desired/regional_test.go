package desired

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

func newFleetStore(regionals ...string) *tested {
	return test(New(Options{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Regionals: regionals}))
}

func matching(k, v string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
}

func alertRules(expr string) v1alpha1.AlertRulesSpec {
	return v1alpha1.AlertRulesSpec{Engine: "edge", Groups: []v1alpha1.RuleGroup{{Name: "g", Rules: []v1alpha1.Rule{{Alert: "A", Expr: expr}}}}}
}

func logRules(sel metav1.LabelSelector) v1alpha1.LogRulesSpec {
	return v1alpha1.LogRulesSpec{SiteSelector: sel, Rules: []v1alpha1.LogRule{{Name: "R", Type: "any"}}}
}

// item returns a tenant's blob, nil if there is none, and checks that the state is true.
func item(t testing.TB, s *tested, kind, tenant string) []byte {
	t.Helper()
	st := s.Regional()
	if st.GetRevision() != wire.RevisionOf(st.GetItems()) {
		t.Fatalf("revision %s is not of the items", st.GetRevision())
	}
	for _, it := range st.GetItems() {
		if it.Kind == kind && it.Name == tenant {
			b, ok := s.Blob(it.Digest)
			if !ok || wire.DigestOf(b) != it.Digest || int64(len(b)) != it.Size {
				t.Fatalf("%s of %s: blob of %d bytes (%v), want %d", kind, tenant, len(b), ok, it.Size)
			}
			return b
		}
	}
	return nil
}

func toldOf(t testing.TB, s *tested, tenant string) region.Inventory {
	t.Helper()
	inv, err := region.DecodeInventory(item(t, s, region.KindInventory, tenant))
	if err != nil {
		t.Fatalf("inventory of %s: %v", tenant, err)
	}
	return inv
}

func acmeSite(name string) fleet.SiteID { return fleet.SiteID{Tenant: "acme", Name: name} }

func TestInventoryAndRules(t *testing.T) {
	s := newFleetStore("one", "two")
	s.SetTenant("acme", 1<<30)
	s.SetTenant("empty", 0)
	s.SetVirtualSite("acme-shared", "eu", matching("region", "eu")) // before its namespace
	s.SetNamespace("acme-shared", "acme")
	s.SetNamespace("acme-b-shared", "acme") // tenant acme's namespace b-shared, not tenant acme-b's shared
	s.SetVirtualSite("acme-b-shared", "all", metav1.LabelSelector{})
	s.SetVirtualSite("nobody", "all", metav1.LabelSelector{})
	s.SetSite(acmeSite("paris"), map[string]string{"region": "eu", "model": "x", "secret": "y"}, "two")
	s.SetSite(acmeSite("berlin"), map[string]string{"region": "eu"}, "gone")
	s.SetSite(acmeSite("tokyo"), map[string]string{"region": "asia", "tier": "1"}, "")
	policy := func(name string, priority int32, sel metav1.LabelSelector, logs *v1alpha1.LogPolicy) {
		s.SetPolicy("acme", name, v1alpha1.CollectionPolicySpec{SiteSelector: sel, Priority: priority, Logs: logs})
	}
	rate := func(q string) *resource.Quantity { v := resource.MustParse(q); return &v }
	policy("weak", 1, metav1.LabelSelector{}, &v1alpha1.LogPolicy{Deny: []string{"unit/z", "unit/a"}, BytesPerSecond: rate("1Ki"), LinesPerSecond: new(int32(20))})
	policy("strong", 9, matching("region", "eu"), &v1alpha1.LogPolicy{Deny: []string{"unit/a"}, Allow: []string{"pod/*"}, BytesPerSecond: rate("2Ki")})
	policy("stronger", 10, matching("region", "eu"), &v1alpha1.LogPolicy{Allow: []string{"unit/*"}})
	s.SetPolicy("acme", "seldom", v1alpha1.CollectionPolicySpec{SiteSelector: matching("region", "asia"), Interval: &metav1.Duration{Duration: 4 * time.Minute}})
	s.SetAlertRules("acme", "up", alertRules("up == 0"))
	s.SetLogRules("acme", "oom", logRules(matching("model", "x")))
	s.SetLogRules(fleet.PlatformTenant, "all", logRules(metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpExists}}}))
	if s.Regional() != nil {
		t.Fatal("something is answered before Start")
	}
	s.Start()

	inv := toldOf(t, s, "acme")
	want := region.Inventory{
		Tenant: "acme", LogBytesPerDay: 1 << 30, Regionals: []string{"one", "two"},
		LogPolicies: []region.LogPolicy{{Allow: []string{"pod/*", "unit/*"}, Deny: []string{"unit/a", "unit/z"}, BytesPerSecond: 2048, LinesPerSecond: 20}, {Deny: []string{"unit/a", "unit/z"}, BytesPerSecond: 1024, LinesPerSecond: 20}},
		Sites: []region.Site{
			{Name: "berlin", Region: "eu", Regional: inv.Sites[0].Regional, VirtualSites: []string{"b-shared/all", "shared/eu"}},
			{Name: "paris", Region: "eu", Regional: "two", Labels: map[string]string{"model": "x"}, VirtualSites: []string{"b-shared/all", "shared/eu"}},
			{Name: "tokyo", Region: "asia", Regional: inv.Sites[2].Regional, Labels: map[string]string{"tier": "1"}, VirtualSites: []string{"b-shared/all"}, LogPolicy: 1, PaceSeconds: 300},
		},
	}
	if !reflect.DeepEqual(inv, want) {
		t.Errorf("inventory\n%+v\nwant\n%+v", inv, want)
	}
	for _, i := range []int{0, 2} { // never connected, or on a regional that is no more
		if r := inv.Sites[i].Regional; r != "one" && r != "two" {
			t.Errorf("%s is given to %q", inv.Sites[i].Name, r)
		}
	}
	if e := toldOf(t, s, "empty"); len(e.Sites) != 0 {
		t.Errorf("empty: %+v", e)
	}
	if b := item(t, s, region.KindInventory, fleet.PlatformTenant); b != nil {
		t.Errorf("the platform has an inventory: %s", b)
	}
	rules, err := region.DecodeRules(item(t, s, region.KindRules, "acme"))
	if err != nil || len(rules.Alerts) != 1 || rules.Alerts[0].Spec.Groups[0].Rules[0].Expr != "up == 0" || len(rules.Logs) != 1 {
		t.Errorf("rules %+v, %v", rules, err)
	}
	if item(t, s, region.KindRules, fleet.PlatformTenant) == nil || item(t, s, region.KindRules, "empty") != nil {
		t.Error("the platform has rules, empty has none")
	}

	// What a blob is made of is known, also of the blob before.
	old := wire.DigestOf(item(t, s, region.KindRules, "acme"))
	if got := s.SpecIn(old, KindAlertRules, "up"); got != SpecDigest(alertRules("up == 0")) {
		t.Errorf("spec in the blob: %q", got)
	}
	s.SetAlertRules("acme", "up", alertRules("up == 1"))
	s.DeleteRules("acme", KindLogRules, "oom")
	s.renderRegional()
	now := wire.DigestOf(item(t, s, region.KindRules, "acme"))
	if now == old || s.SpecIn(now, KindAlertRules, "up") != SpecDigest(alertRules("up == 1")) || s.SpecIn(now, KindLogRules, "oom") != "" || s.SpecIn(old, KindLogRules, "oom") == "" {
		t.Error("the new blob is not known, or the old one forgotten")
	}
	if l := toldOf(t, s, "acme").Sites[1].Labels; len(l) != 0 {
		t.Errorf("labels %v, though no rule selects by them any more", l)
	}
}

func TestWhatGoesIsGone(t *testing.T) {
	s := newFleetStore()
	s.SetTenant("acme", 5)
	s.SetNamespace("acme-shared", "acme")
	s.SetVirtualSite("acme-shared", "all", metav1.LabelSelector{})
	s.SetSite(acmeSite("paris"), nil, "")
	s.SetAlertRules("acme", "up", alertRules("up"))
	s.Start()
	if inv := toldOf(t, s, "acme"); len(inv.Sites) != 1 || inv.Sites[0].Regional != "" {
		t.Errorf("no regional is known: %+v", inv)
	}
	s.SetNamespace("acme-shared", "")
	s.renderRegional()
	if v := toldOf(t, s, "acme").Sites[0].VirtualSites; len(v) != 0 {
		t.Errorf("a namespace that went left %v", v)
	}
	s.SetNamespace("acme-shared", "acme")
	s.DeleteVirtualSite("acme-shared", "all")
	s.DeleteTenant("acme")
	s.renderRegional()
	if inv := toldOf(t, s, "acme"); len(inv.Sites) != 1 || inv.LogBytesPerDay != 0 || len(inv.Sites[0].VirtualSites) != 0 {
		t.Errorf("after the tenant's going: %+v", inv)
	}
	s.DeleteSite(acmeSite("paris"))
	s.DeleteRules("acme", KindAlertRules, "up")
	s.renderRegional()
	if items := s.Regional().Items; len(items) != 0 {
		t.Errorf("left over: %v", items)
	}
	if len(s.rules)+len(s.sites) != 0 {
		t.Errorf("left over: %v %v", s.rules, s.sites)
	}
}

func TestRendezvous(t *testing.T) {
	all, fewer := []string{"a", "b", "c"}, []string{"c", "a"}
	n := map[string]int{}
	for i := range 3000 {
		id := acmeSite(fmt.Sprint("s", i))
		r := rendezvous(all, id)
		if rendezvous([]string{"c", "b", "a"}, id) != r {
			t.Fatalf("%s: depends on the order", id)
		}
		if r != "b" && rendezvous(fewer, id) != r {
			t.Fatalf("%s moved from %s though only b went", id, r)
		}
		n[r]++
	}
	for _, r := range all {
		if n[r] < 800 {
			t.Errorf("uneven: %v", n)
		}
	}
}

// A burst of changes costs a few renders, and the last change is in them.
func TestChangesAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFleetStore("one")
		s.Start()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		pushes := 0
		defer s.SubscribeRegional(func() { pushes++ })()
		go func() { _ = s.Run(ctx) }()
		for i := range 10_000 { // over 10 s, gathered as the inventory does
			s.book.Put(siteObject(acmeSite(fmt.Sprintf("s%04d", i)), map[string]string{"region": "eu"}, ""))
			if time.Sleep(time.Millisecond); i%250 == 249 {
				s.apply()
			}
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := len(toldOf(t, s, "acme").Sites); n != 10_000 {
			t.Errorf("%d sites", n)
		}
		if pushes < 2 || pushes > 6 {
			t.Errorf("%d renders", pushes)
		}
		before := pushes
		s.SetAlertRules("acme", "up", alertRules("up"))
		time.Sleep(time.Second) // a change after a calm does not wait
		synctest.Wait()
		if item(t, s, region.KindRules, "acme") == nil || pushes != before+1 {
			t.Errorf("after %d more renders", pushes-before)
		}
		s.SetSite(acmeSite("s0000"), map[string]string{"region": "eu"}, "") // no change
		s.SetAlertRules("acme", "up", alertRules("up"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if pushes != before+1 {
			t.Error("nothing changed, but it was pushed")
		}
	})
}

// Inventories that were replaced are held for a minute, not for a site's grace.
func TestOldInventoriesAreDropped(t *testing.T) {
	now := time.Unix(1000, 0)
	s := test(New(Options{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Now: func() time.Time { return now }}))
	s.Start()
	var digests []string
	for i := range 20 {
		s.SetSite(acmeSite(fmt.Sprint("s", i)), nil, "")
		s.renderRegional()
		digests = append(digests, s.Regional().Items[0].Digest)
	}
	if _, ok := s.Blob(digests[0]); !ok {
		t.Error("a blob that is being fetched went at once")
	}
	now = now.Add(regionalGrace)
	s.SetSite(acmeSite("last"), nil, "")
	s.renderRegional()
	if st := s.Stats(); st.Blobs != 3 { // two inventories, and the sites' policy
		t.Errorf("%d blobs", st.Blobs)
	}
	if n := testutil.ToFloat64(s.regionalPushes); n != 22 {
		t.Errorf("%v pushes", n)
	}
}
