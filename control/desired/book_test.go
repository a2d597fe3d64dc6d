package desired

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

// tested is a store whose inventory the test fills; what it is told is applied at once.
type tested struct {
	*Store
	book *inventory.Book
	gen  int64
}

func test(s *Store) *tested { return &tested{Store: s, book: inventory.NewBook("acme", "globex")} }

func (t *tested) apply() { t.Apply(t.book.Snapshot()) }

func siteObject(id fleet.SiteID, set map[string]string, regional string) *v1alpha1.Site {
	return &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: id.Tenant + "-system", Name: id.Name, Labels: set}, Spec: v1alpha1.SiteSpec{Approved: true}, Status: v1alpha1.SiteStatus{Regional: regional}}
}

func (t *tested) SetSite(id fleet.SiteID, set map[string]string, regional ...string) {
	t.book.Put(siteObject(id, set, append(regional, "")[0]))
	t.apply()
}

func (t *tested) DeleteSite(id fleet.SiteID) {
	t.book.Drop(siteObject(id, nil, ""))
	t.apply()
}

func policyObject(tenant, name string, spec v1alpha1.CollectionPolicySpec) *v1alpha1.CollectionPolicy {
	return &v1alpha1.CollectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: tenant + "-system", Name: name}, Spec: spec}
}

func (t *tested) SetPolicy(tenant, name string, spec v1alpha1.CollectionPolicySpec) {
	o := policyObject(tenant, name, spec)
	t.gen++
	o.Generation = t.gen
	t.book.Put(o)
	t.apply()
}

func (t *tested) DeletePolicy(tenant, name string) {
	t.book.Drop(policyObject(tenant, name, v1alpha1.CollectionPolicySpec{}))
	t.apply()
}

func (t *tested) SetTenant(name string, logBytesPerDay int64) {
	t.book.Put(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TenantSpec{Quotas: v1alpha1.TenantQuotas{LogBytesPerDay: logBytesPerDay}}})
	t.apply()
}

func (t *tested) DeleteTenant(name string) {
	t.book.Drop(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}})
	t.apply()
}

func (t *tested) SetNamespace(name, tenant string) {
	t.book.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelTenant: tenant}}})
	t.apply()
}

func (t *tested) SetVirtualSite(ns, name string, selector metav1.LabelSelector) {
	t.book.Put(&v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1alpha1.VirtualSiteSpec{SiteSelector: selector}})
	t.apply()
}

func (t *tested) DeleteVirtualSite(ns, name string) {
	t.book.Drop(&v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
	t.apply()
}
