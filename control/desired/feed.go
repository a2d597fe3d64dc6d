package desired

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// Feed tells the store of all sites and collection policies in the cache and of
// each change, and starts it once it has heard of everything. It returns after
// that; the watching goes on as long as the cache runs.
func Feed(ctx context.Context, c cache.Cache, s *Store) error {
	siteInformer, err := c.GetInformer(ctx, &v1alpha1.Site{})
	if err != nil {
		return fmt.Errorf("desired state: watch sites: %w", err)
	}
	policyInformer, err := c.GetInformer(ctx, &v1alpha1.CollectionPolicy{})
	if err != nil {
		return fmt.Errorf("desired state: watch collection policies: %w", err)
	}
	sites, err := siteInformer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    s.siteEvent,
		UpdateFunc: func(_, o any) { s.siteEvent(o) },
		DeleteFunc: func(o any) {
			if id, ok := siteOf(o); ok {
				s.DeleteSite(id)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("desired state: watch sites: %w", err)
	}
	policies, err := policyInformer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    s.policyEvent,
		UpdateFunc: func(_, o any) { s.policyEvent(o) },
		DeleteFunc: func(o any) {
			if p, ok := unwrap(o).(*v1alpha1.CollectionPolicy); ok {
				if tenant, ok := fleet.TenantOfSystemNamespace(p.Namespace); ok {
					s.DeletePolicy(tenant, p.Name)
				}
			}
		},
	})
	if err != nil {
		return fmt.Errorf("desired state: watch collection policies: %w", err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), sites.HasSynced, policies.HasSynced) {
		return fmt.Errorf("desired state: wait for sites and policies: %w", context.Cause(ctx))
	}
	s.Start()
	return nil
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
