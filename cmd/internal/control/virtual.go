package control

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/granted"
	"muster.dev/muster/control/vk8s"
	"muster.dev/muster/internal/fleet"
)

// serveVirtual lets the API server serve the VirtualKubernetes that there are.
func serveVirtual(ctx context.Context, mount *vk8s.Mount, informers cache.Cache, grants *granted.Grants) error {
	if _, err := informers.GetInformer(ctx, &v1alpha1.VirtualKubernetes{}); err != nil {
		return fmt.Errorf("watch virtual Kubernetes: %w", err)
	}
	if _, err := informers.GetInformer(ctx, &corev1.Namespace{}); err != nil {
		return fmt.Errorf("watch namespaces: %w", err)
	}
	carried := func(gr schema.GroupResource) bool { _, ok := grants.Set().OfResource(gr); return ok }
	mount.Serve(vk8s.Backend{Offered: carried, Virtual: func(namespace, name string) (vk8s.Virtual, bool) {
		var v v1alpha1.VirtualKubernetes
		var ns corev1.Namespace
		if informers.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &v) != nil || informers.Get(ctx, types.NamespacedName{Name: namespace}, &ns) != nil {
			return vk8s.Virtual{}, false
		}
		tenant := ns.Labels[fleet.LabelTenant]
		return vk8s.Virtual{Namespace: namespace, Name: name, Tenant: tenant}, tenant != ""
	}})
	return nil
}
