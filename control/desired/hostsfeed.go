package desired

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/internal/fleet"
)

// hosts brings the store's virtual hosts up to date.
func (f *feed) hosts(ctx context.Context) error {
	var hosts v1alpha1.VirtualHostList
	var policies v1alpha1.AdvertisePolicyList
	if err := f.cache.List(ctx, &hosts); err != nil {
		return err
	}
	if err := f.cache.List(ctx, &policies); err != nil {
		return err
	}
	all := map[string]HostObjects{}
	// in finds the tenant of a namespace, and how users type it.
	in := func(namespace string) (HostObjects, string, bool) {
		var ns corev1.Namespace
		if err := f.cache.Get(ctx, client.ObjectKey{Name: namespace}, &ns); err != nil {
			return HostObjects{}, "", false // the namespace's own event comes
		}
		tenant := ns.Labels[fleet.LabelTenant]
		short, ok := render.Short(tenant, namespace)
		if !ok || tenant == "" || namespace == fleet.SystemNamespace(tenant) {
			return HostObjects{}, "", false
		}
		if _, had := all[tenant]; !had {
			all[tenant] = HostObjects{map[string]v1alpha1.VirtualHostSpec{}, map[string]v1alpha1.AdvertisePolicySpec{}, map[string]metav1.Time{}, map[string]metav1.Time{}}
		}
		return all[tenant], short, true
	}
	for i := range hosts.Items {
		o := &hosts.Items[i]
		if t, short, ok := in(o.Namespace); ok && o.DeletionTimestamp == nil {
			t.Hosts[short+"/"+o.Name] = o.Spec
			t.HostMade[short+"/"+o.Name] = o.CreationTimestamp
		}
	}
	for i := range policies.Items {
		o := &policies.Items[i]
		if t, short, ok := in(o.Namespace); ok && o.DeletionTimestamp == nil {
			t.Policies[short+"/"+o.Name] = o.Spec
			t.PolicyMade[short+"/"+o.Name] = o.CreationTimestamp
		}
	}
	f.store.SetHosts(all)
	return nil
}
