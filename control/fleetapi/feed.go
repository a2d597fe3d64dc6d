package fleetapi

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// Feed tells the server of all Sites in the cache and of each change, and lets it
// serve once it has heard of everything. It returns after that; the watching goes
// on as long as the cache runs.
func Feed(ctx context.Context, c cache.Cache, s *Server) error {
	informer, err := c.GetInformer(ctx, &v1alpha1.Site{})
	if err != nil {
		return fmt.Errorf("fleet API: watch sites: %w", err)
	}
	each := func(fn func(fleet.SiteID, *v1alpha1.Site)) func(any) {
		return func(o any) {
			if d, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = d.Obj
			}
			site, ok := o.(*v1alpha1.Site)
			if !ok {
				return
			}
			if tenant, ok := fleet.TenantOfSystemNamespace(site.Namespace); ok {
				fn(fleet.SiteID{Tenant: tenant, Name: site.Name}, site)
			}
		}
	}
	set := each(s.SetSite)
	reg, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, o any) { set(o) },
		DeleteFunc: each(func(id fleet.SiteID, _ *v1alpha1.Site) { s.DeleteSite(id) }),
	})
	if err != nil {
		return fmt.Errorf("fleet API: watch sites: %w", err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), reg.HasSynced) {
		return fmt.Errorf("fleet API: wait for sites: %w", context.Cause(ctx))
	}
	s.Synced()
	return nil
}
