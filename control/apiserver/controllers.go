package apiserver

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/namespace"
)

// controllers are those of kube-controller-manager that serve an API without nodes:
// what an API server promises and leaves to them. They run in this process, under the
// server's own identity, which the audit log, the quotas and the fair queuing of
// requests know as Muster's own.
//
// Those that make pods of workloads are left out, because no pod runs here, and so is the
// one that removes finished Jobs: it would take them off sites that have not run them yet.
// Several replicas of control each run all of them without a lease: every write is one
// that another replica would make alike, bound to the object's UID or version.
type controllers struct {
	kube  kubernetes.Interface
	meta  metadata.Interface
	typed informers.SharedInformerFactory
	kinds kindInformers
}

// runControllers starts the controllers; they end with ctx. accounts says how service
// accounts get their tokens.
func runControllers(ctx context.Context, cfg *rest.Config, accounts accounts) error {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = 200, 400 // what ends a large tenant in a minute, not in ten
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	meta, err := metadata.NewForConfig(cfg)
	if err != nil {
		return err
	}
	c := &controllers{kube: kube, meta: meta, typed: informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithTransform(withoutManagedFields))}
	c.kinds = kindInformers{typed: c.typed, meta: metadatainformer.NewSharedInformerFactoryWithOptions(meta, 0, metadatainformer.WithTransform(identityOnly))}

	started := make(chan struct{})
	seen, err := c.followKinds()
	if err != nil {
		return err
	}
	collect, err := c.collectGarbage(ctx, seen, started)
	if err != nil {
		return fmt.Errorf("garbage collector: %w", err)
	}
	count, err := c.countQuotas(ctx, seen, started)
	if err != nil {
		return fmt.Errorf("resource quotas: %w", err)
	}
	spaces := namespace.NewNamespaceController(ctx, kube, meta, kube.Discovery().ServerPreferredNamespacedResources,
		c.typed.Core().V1().Namespaces(), 5*time.Minute, corev1.FinalizerKubernetes)
	roles := clusterroleaggregation.NewClusterRoleAggregation(c.typed.Rbac().V1().ClusterRoles(), kube.RbacV1())
	refuse, clean := c.refuseCertificates()

	c.kinds.Start(ctx.Done())
	close(started)
	for _, run := range []func(context.Context){
		collect, count, refuse, clean,
		func(ctx context.Context) { spaces.Run(ctx, 2) },
		func(ctx context.Context) { roles.Run(ctx, 1) },
		func(ctx context.Context) { accounts.run(ctx, kube) },
	} {
		go run(klog.NewContext(ctx, klog.Background()))
	}
	return nil
}
