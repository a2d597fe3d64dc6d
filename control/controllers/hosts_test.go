package controllers_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/vhost"
)

// virtualHosts: from the objects to what sites get, and back to what stands in the way. The
// tenant has paris in shared/eu and bench in lab of its namespace shop.
func virtualHosts(t *testing.T, c client.Client, store *desired.Store) {
	for what, doc := range map[string]string{
		"at most 63":      "apiVersion: muster.dev/v1alpha1\nkind: VirtualHost\nmetadata: {namespace: tau-shop, name: a.b}\nspec: {service: {name: db, port: 1}, virtualSite: lab, host: x}",
		"the Service":     "apiVersion: muster.dev/v1alpha1\nkind: VirtualHost\nmetadata: {namespace: tau-shop, name: db}\nspec: {service: {name: db, port: 1}, virtualSite: lab}",
		"spec.protocol":   "apiVersion: muster.dev/v1alpha1\nkind: VirtualHost\nmetadata: {namespace: tau-shop, name: x}\nspec: {service: {name: db, port: 1}, virtualSite: lab, protocol: UDP}",
		"spec.port":       "apiVersion: muster.dev/v1alpha1\nkind: AdvertisePolicy\nmetadata: {namespace: tau-shop, name: x}\nspec: {virtualHost: db, virtualSites: [lab], port: 70000}",
		"spec.virtualSit": "apiVersion: muster.dev/v1alpha1\nkind: AdvertisePolicy\nmetadata: {namespace: tau-shop, name: x}\nspec: {virtualHost: db, virtualSites: []}",
	} {
		if err := c.Create(t.Context(), parse(t, doc)); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want an error that names %q: %v", what, err)
		}
	}
	h := &v1alpha1.VirtualHost{ObjectMeta: metav1.ObjectMeta{Namespace: "tau-shop", Name: "db-global"},
		Spec: v1alpha1.VirtualHostSpec{Service: v1alpha1.VirtualHostService{Name: "db", Port: 5432}, VirtualSite: "lab"}}
	create(t, c, h)
	ready := func(want string) {
		t.Helper()
		testkit.Eventually(t, "the VirtualHost is "+want, func() error {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(h), h); err != nil {
				return err
			}
			if cond := meta.FindStatusCondition(h.Status.Conditions, "Ready"); cond == nil || cond.Reason != want {
				return fmt.Errorf("%+v", h.Status)
			}
			return nil
		})
	}
	ready("NotAdvertised")
	p := &v1alpha1.AdvertisePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "tau-shop", Name: "eu"},
		Spec: v1alpha1.AdvertisePolicySpec{VirtualHost: "db-global", VirtualSites: []string{"shared/eu", "nowhere"}, Port: 15432}}
	create(t, c, p)
	ready("NoSuchService")
	testkit.Eventually(t, "the AdvertisePolicy tells what does not count", func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if cond := meta.FindStatusCondition(p.Status.Conditions, "Accepted"); cond == nil || cond.Reason != "NoSuchVirtualSite" || !strings.Contains(cond.Message, "nowhere") || p.Status.Sites != 1 {
			return fmt.Errorf("%+v", p.Status)
		}
		return nil
	})
	service := parse(t, "apiVersion: v1\nkind: Service\nmetadata: {namespace: tau-shop, name: db, annotations: {ves.io/virtual-sites: lab}}\nspec: {ports: [{port: 5432}]}")
	create(t, c, service)
	ready("NoProviderOnline")
	if st := h.Status; st.Host != "db-global" || st.Providers != 1 || st.Consumers != 1 || st.ProvidersOnline != 0 {
		t.Errorf("%+v", st)
	}
	clash := parse(t, "apiVersion: v1\nkind: Service\nmetadata: {namespace: tau-shop, name: db-global}\nspec: {ports: [{port: 1}]}")
	create(t, c, clash)
	ready("NameClash")
	for _, name := range []string{"paris", "bench"} {
		found := false
		for _, it := range store.State(fleet.SiteID{Tenant: "tau", Name: name}).GetItems() {
			found = found || it.Kind == vhost.Kind && it.Name == "shop/db-global"
		}
		if !found {
			t.Errorf("%s does not get it", name)
		}
	}
	for _, o := range []client.Object{h, p, service, clash} {
		if err := c.Delete(t.Context(), o); err != nil {
			t.Error(err)
		}
	}
}
