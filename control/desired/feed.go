package desired

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

// Inventory is what Feed needs of *inventory.Inventory, with collection policies.
type Inventory interface {
	Ready() error
	Snapshot() *inventory.Snapshot
	Changed() <-chan struct{}
}

// Feed tells the store of the fleet, of the rules and releases in the cache and of each change, and
// starts it once it has heard of everything. It returns after that; the watching goes on
// as long as the cache runs and ctx lasts.
func Feed(ctx context.Context, c cache.Cache, inv Inventory, s *Store) error {
	changed := inv.Changed()
	var synced []toolscache.InformerSynced
	for _, w := range []struct {
		what     string
		obj      client.Object
		set, del func(any)
	}{
		{"alert rules", &v1alpha1.AlertRules{}, inSystem(func(tenant string, o *v1alpha1.AlertRules) { s.SetAlertRules(tenant, o.Name, o.Spec) }),
			inSystem(func(tenant string, o *v1alpha1.AlertRules) { s.DeleteRules(tenant, KindAlertRules, o.Name) })},
		{"log rules", &v1alpha1.LogRules{}, inSystem(func(tenant string, o *v1alpha1.LogRules) { s.SetLogRules(tenant, o.Name, o.Spec) }),
			inSystem(func(tenant string, o *v1alpha1.LogRules) { s.DeleteRules(tenant, KindLogRules, o.Name) })},
		{"software versions", &v1alpha1.SoftwareVersion{}, inSystem(func(tenant string, o *v1alpha1.SoftwareVersion) { s.SetSoftwareVersion(tenant, o.Name, o.Spec) }),
			inSystem(func(tenant string, o *v1alpha1.SoftwareVersion) { s.DeleteSoftwareVersion(tenant, o.Name) })},
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
		return fmt.Errorf("desired state: wait for rules: %w", context.Cause(ctx))
	}
	for inv.Ready() != nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("desired state: %w: %w", inv.Ready(), context.Cause(ctx))
		case <-changed:
		}
	}
	s.Apply(inv.Snapshot())
	s.Start()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed:
				s.Apply(inv.Snapshot())
			}
		}
	}()
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

// unwrap returns the object of a deletion that the watch missed.
func unwrap(o any) any {
	if d, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		return d.Obj
	}
	return o
}
