package region

import (
	"reflect"
	"strings"
	"testing"

	"muster.dev/muster/control/api/v1alpha1"
)

func inventory() Inventory {
	return Inventory{Tenant: "acme", LogPolicies: []LogPolicy{{}, {Deny: []string{"unit/audit"}, BytesPerSecond: 4096}},
		Sites: []Site{{Name: "berlin", Region: "eu", Regional: "one", VirtualSites: []string{"shared/all"}}, {Name: "paris", LogPolicy: 1}},
		Hosts: []Host{{Name: "shop/db", Providers: []string{"shared/all"}, Consumers: []string{"shop/edge"}}}}
}

func TestRoundTrip(t *testing.T) {
	inv := inventory()
	if got, err := DecodeInventory(inv.Encode()); err != nil || !reflect.DeepEqual(got, inv) {
		t.Fatalf("inventory: %+v, %v", got, err)
	}
	r := Rules{Tenant: "acme", Alerts: []AlertRuleSet{{Name: "a", Spec: v1alpha1.AlertRulesSpec{Engine: "edge", Groups: []v1alpha1.RuleGroup{{Name: "g", Rules: []v1alpha1.Rule{{Alert: "A", Expr: "up == 0"}}}}}}}}
	if got, err := DecodeRules(r.Encode()); err != nil || !reflect.DeepEqual(got, r) {
		t.Fatalf("rules: %+v, %v", got, err)
	}
}

func TestBadInventory(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Inventory)
		want   string
	}{
		"tenant": {func(i *Inventory) { i.Tenant = "../x" }, "tenant"},
		"site":   {func(i *Inventory) { i.Sites[1].Name = "Paris" }, "sites[1]"},
		"policy": {func(i *Inventory) { i.Sites[1].LogPolicy = 2 }, "sites[1].logPolicy"},
		"host":   {func(i *Inventory) { i.Hosts = []Host{{Name: "shop"}} }, "hosts[0].name"},
		"order":  {func(i *Inventory) { i.Sites[0], i.Sites[1] = i.Sites[1], i.Sites[0] }, "order"},
	} {
		i := inventory()
		c.change(&i)
		if _, err := DecodeInventory(i.Encode()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that names %q", name, err, c.want)
		}
	}
	if _, err := DecodeInventory(append(inventory().Encode(), '{')); err == nil {
		t.Error("something after the object was accepted")
	}
}

func TestVirtualSitesLabel(t *testing.T) {
	if got := VirtualSitesLabel([]string{"shared/all", "shared/eu"}); got != "|shared/all|shared/eu|" {
		t.Error(got)
	}
	if got := VirtualSitesLabel(nil); got != "" {
		t.Error(got)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(inventory().Encode())
	f.Add([]byte(`{"tenant":"acme","alerts":[{"name":"a","spec":{"groups":[]}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if i, err := DecodeInventory(b); err == nil {
			again, err := DecodeInventory(i.Encode())
			if err != nil || string(again.Encode()) != string(i.Encode()) {
				t.Fatalf("not stable: %v", err)
			}
		}
		if r, err := DecodeRules(b); err == nil {
			if _, err := DecodeRules(r.Encode()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// All regionals together enforce a quota, and a tenth more at most; one that has none
// of the sites still lets some in.
func TestShares(t *testing.T) {
	names := []string{"a", "b", "c"}
	site := func(n int, regional string) []Site {
		out := make([]Site, n)
		for i := range out {
			out[i] = Site{Regional: regional}
		}
		return out
	}
	for _, sites := range [][]Site{nil, site(1, "a"), site(100, "b"), append(site(10, "a"), site(990, "c")...), append(append(site(3, "a"), site(3, "b")...), site(1, "gone")...)} {
		for _, quota := range []int64{1, 7, 1000, 1 << 40, 1<<63 - 1} {
			i := Inventory{Sites: sites, Regionals: names}
			var sum float64
			for _, r := range names {
				share := i.Share(quota, r)
				if share < 1 || share > quota {
					t.Errorf("%d sites, %d: %s has %d", len(sites), quota, r, share)
				}
				sum += float64(share)
			}
			if len(sites) != 7 && (sum < 0.99*float64(quota)-3 || sum > 1.1*float64(quota)+3) {
				t.Errorf("%d sites, %d: all have %g", len(sites), quota, sum)
			}
		}
	}
	if got := (Inventory{Regionals: names[:1]}).Share(1000, "a"); got != 1000 {
		t.Errorf("the only one has %d", got)
	}
	if got := (Inventory{Regionals: names, Sites: site(5, "a")}).Share(0, "a"); got != 0 {
		t.Errorf("of no quota: %d", got)
	}
	if a, b := (Inventory{Regionals: names, Sites: append(site(10, "a"), site(990, "c")...)}).Share(3000, "a"), (Inventory{Regionals: names, Sites: append(site(10, "a"), site(990, "c")...)}).Share(3000, "c"); a != 130 || b != 3000 {
		t.Errorf("%d, %d", a, b)
	}
}
