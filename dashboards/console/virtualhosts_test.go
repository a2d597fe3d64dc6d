package console

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
)

// listFakeHosts has a host db in the shop of each tenant, and three policies for it: one
// counts in part, one does not, and one is another host's.
func listFakeHosts(w http.ResponseWriter, resource string) {
	hosts := v1alpha1.VirtualHostList{TypeMeta: metav1.TypeMeta{APIVersion: "muster.dev/v1alpha1", Kind: "VirtualHostList"}}
	policies := v1alpha1.AdvertisePolicyList{TypeMeta: metav1.TypeMeta{APIVersion: "muster.dev/v1alpha1", Kind: "AdvertisePolicyList"}}
	no := func(typ, reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: typ, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
	}
	for _, ns := range []string{"globex-shop", "acme-shop", "nobodys-shop"} {
		hosts.Items = append(hosts.Items, v1alpha1.VirtualHost{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "db"},
			Spec: v1alpha1.VirtualHostSpec{Host: "db-global", Service: v1alpha1.VirtualHostService{Name: "db", Port: 5432}, VirtualSite: "backends", Protocol: v1alpha1.ProtocolHTTP,
				Routes: []v1alpha1.VirtualHostRoute{{Service: v1alpha1.VirtualHostService{Name: "rest", Port: 1}}, {Host: "x.example.com", Path: "/v1", Service: v1alpha1.VirtualHostService{Name: "api", Port: 2}}}},
			Status: v1alpha1.VirtualHostStatus{Host: "db-global", Providers: 2, Consumers: 7, Conditions: no("Ready", "NoProviderOnline", "none of the 2 sites that serve it is connected")}})
		policy := func(name, host string, port int32, conditions []metav1.Condition) {
			policies.Items = append(policies.Items, v1alpha1.AdvertisePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
				Spec: v1alpha1.AdvertisePolicySpec{VirtualHost: host, VirtualSites: []string{"shared/stores", "kiosks"}, Port: port}, Status: v1alpha1.AdvertisePolicyStatus{Conditions: conditions}})
		}
		policy("b-refused", "db", 1, no("Accepted", "PortConflict", "they have to agree"))
		policy("a-other", "queue", 2, nil)
		policy("c-partly", "db", 6000, no("Accepted", "NoSuchVirtualSite", "there is no virtual site kiosks; the others count"))
	}
	if resource == "virtualhosts" {
		reply(w, 200, hosts)
	} else {
		reply(w, 200, policies)
	}
}

func TestVirtualHostsAreThoseOfTheUsersNamespaces(t *testing.T) {
	h := newHarness(t)
	for user, want := range map[string]string{"alice": "acme/shop/db:6000", "carol": "acme/shop/db:0", "root": "acme/shop/db:6000 globex/shop/db:6000", "dave": "", "nobody": ""} {
		var list virtualHostListView
		h.want(200, user, "GET", "/api/v1/virtualhosts", "").json(t, &list)
		var got []string
		for _, v := range list.VirtualHosts {
			got = append(got, v.Tenant+"/"+v.Namespace+"/"+v.Name+map[bool]string{true: ":6000", false: ":0"}[v.Port == 6000])
			if v.Host != "db-global" || v.VirtualSite != "shop/backends" || v.Ready || v.Reason != "NoProviderOnline" || v.Providers != 2 || v.Consumers != 7 {
				t.Errorf("%s: %+v", user, v)
			}
			if want := []routeView{{"x.example.com", "/v1", "api", 2}, {"", "/", "rest", 1}}; v.Protocol != "HTTP" || !slices.Equal(v.Routes, want) {
				t.Errorf("%s: %s by %v, want %v", user, v.Protocol, v.Routes, want)
			}
			if v.Port == 0 {
				continue // may not read policies
			}
			if len(v.Policies) != 2 || v.Policies[0].Fault != "they have to agree" || v.Policies[1].Name != "c-partly" || !slices.Equal(v.Policies[1].VirtualSites, []string{"shared/stores", "shop/kiosks"}) {
				t.Errorf("%s: policies %+v", user, v.Policies)
			}
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s sees %q, want %q", user, s, want)
		}
	}
	var list virtualHostListView
	h.want(200, "root", "GET", "/api/v1/virtualhosts?tenant=globex", "").json(t, &list)
	if len(list.VirtualHosts) != 1 || list.VirtualHosts[0].Tenant != "globex" {
		t.Errorf("of one tenant: %+v", list)
	}
}
