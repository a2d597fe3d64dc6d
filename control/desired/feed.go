package desired

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// Feed tells the store of all sites, tenants, virtual sites, policies and rules in
// the cache and of each change, and starts it once it has heard of everything. It
// returns after that; the watching goes on as long as the cache runs.
func Feed(ctx context.Context, c cache.Cache, s *Store) error {
	f := s.fleet
	var synced []toolscache.InformerSynced
	for _, w := range []struct {
		what     string
		obj      client.Object
		set, del func(any)
	}{
		{"namespaces", &corev1.Namespace{}, on(func(o *corev1.Namespace) { f.SetNamespace(o.Name, o.Labels[fleet.LabelTenant]) }),
			on(func(o *corev1.Namespace) { f.SetNamespace(o.Name, "") })},
		{"tenants", &v1alpha1.Tenant{}, on(func(o *v1alpha1.Tenant) { f.SetTenant(o.Name, o.Spec.Quotas.LogBytesPerDay) }),
			on(func(o *v1alpha1.Tenant) { f.DeleteTenant(o.Name) })},
		{"virtual sites", &v1alpha1.VirtualSite{}, on(func(o *v1alpha1.VirtualSite) { f.SetVirtualSite(o.Namespace, o.Name, o.Spec.SiteSelector) }),
			on(func(o *v1alpha1.VirtualSite) { f.DeleteVirtualSite(o.Namespace, o.Name) })},
		{"sites", &v1alpha1.Site{}, s.siteEvent, func(o any) {
			if id, ok := siteOf(o); ok {
				s.DeleteSite(id)
				f.DeleteSite(id)
			}
		}},
		{"collection policies", &v1alpha1.CollectionPolicy{}, s.policyEvent,
			inSystem(func(tenant string, o *v1alpha1.CollectionPolicy) { s.DeletePolicy(tenant, o.Name) })},
		{"alert rules", &v1alpha1.AlertRules{}, inSystem(func(tenant string, o *v1alpha1.AlertRules) { f.SetAlertRules(tenant, o.Name, o.Spec) }),
			inSystem(func(tenant string, o *v1alpha1.AlertRules) { f.DeleteRules(tenant, KindAlertRules, o.Name) })},
		{"log rules", &v1alpha1.LogRules{}, inSystem(func(tenant string, o *v1alpha1.LogRules) { f.SetLogRules(tenant, o.Name, o.Spec) }),
			inSystem(func(tenant string, o *v1alpha1.LogRules) { f.DeleteRules(tenant, KindLogRules, o.Name) })},
	} {
		informer, err := c.GetInformer(ctx, w.obj)
		if err != nil {
			return fmt.Errorf("desired state: watch %s: %w", w.what, err)
		}
		reg, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: w.set, UpdateFunc: func(_, o any) { w.set(o) }, DeleteFunc: w.del})
		if err != nil {
			return fmt.Errorf("desired state: watch %s: %w", w.what, err)
		}
		synced = append(synced, reg.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("desired state: wait for sites, policies and rules: %w", context.Cause(ctx))
	}
	s.Start()
	return nil
}

// on calls fn with objects of its type.
func on[T any](fn func(T)) func(any) {
	return func(o any) {
		if obj, ok := unwrap(o).(T); ok {
			fn(obj)
		}
	}
}

// inSystem calls fn with objects in the system namespace of a tenant; elsewhere they do nothing.
func inSystem[T client.Object](fn func(tenant string, o T)) func(any) {
	return on(func(o T) {
		if tenant, ok := fleet.TenantOfSystemNamespace(o.GetNamespace()); ok {
			fn(tenant, o)
		}
	})
}

func (s *Store) siteEvent(o any) {
	st, ok := unwrap(o).(*v1alpha1.Site)
	if !ok {
		return
	}
	id, ok := siteOf(st)
	if !ok {
		return
	}
	if st.Spec.Approved && !st.Spec.Decommissioned {
		s.fleet.SetSite(id, st.Labels, st.Status.Regional)
	} else {
		s.fleet.DeleteSite(id)
	}
	if st.Spec.Decommissioned {
		s.DeleteSite(id)
		return
	}
	s.SetSite(id, st.Labels)
}

func (s *Store) policyEvent(o any) {
	p, ok := unwrap(o).(*v1alpha1.CollectionPolicy)
	if !ok {
		return
	}
	tenant, ok := fleet.TenantOfSystemNamespace(p.Namespace)
	if !ok {
		return // policies belong into <tenant>-system; elsewhere they do nothing
	}
	if err := s.SetPolicy(tenant, p.Name, p.Spec); err != nil {
		s.opts.Logger.Warn("collection policy keeps what it said before", "err", err)
	}
}

func siteOf(o any) (fleet.SiteID, bool) {
	st, ok := unwrap(o).(*v1alpha1.Site)
	if !ok {
		return fleet.SiteID{}, false
	}
	tenant, ok := fleet.TenantOfSystemNamespace(st.Namespace)
	return fleet.SiteID{Tenant: tenant, Name: st.Name}, ok
}

// unwrap returns the object of a deletion that the watch missed.
func unwrap(o any) any {
	if d, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		return d.Obj
	}
	return o
}
