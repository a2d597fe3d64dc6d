package apiserver

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	"k8s.io/kubernetes/pkg/quota/v1/install"
)

// recount is how often quotas are counted anew without a deletion: a kind that has just
// come is counted then. It reads what is in memory.
const recount = 15 * time.Second

// collectGarbage returns what deletes the objects whose owners are gone, and ends
// foreground and orphan deletions.
func (c *controllers) collectGarbage(ctx context.Context, kinds *knownKinds, started <-chan struct{}) (func(context.Context), error) {
	// A cache of its own: the collector resets it when kinds change.
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.kube.Discovery()))
	gc, err := garbagecollector.NewGarbageCollector(ctx, c.kube, c.meta, mapper, garbagecollector.DefaultIgnoredResources(), c.kinds, started)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		go gc.Sync(ctx, kinds, lookEvery)
		gc.Run(ctx, 4, 30*time.Second)
	}, nil
}

// countQuotas returns what counts, for each ResourceQuota, what its namespace has: of
// every kind, those of CRDs too, as count/RESOURCE.GROUP.
func (c *controllers) countQuotas(ctx context.Context, kinds *knownKinds, started <-chan struct{}) (func(context.Context), error) {
	cfg := install.NewQuotaConfigurationForControllers(generic.ListerFuncForResourceFunc(c.kinds.ForResource), c.typed)
	rq, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:               c.kube.CoreV1(),
		ResourceQuotaInformer:     c.typed.Core().V1().ResourceQuotas(),
		ResyncPeriod:              controller.StaticResyncPeriodFunc(recount),
		InformerFactory:           c.kinds,
		ReplenishmentResyncPeriod: controller.NoResyncPeriodFunc,
		DiscoveryFunc:             kinds.ServerPreferredNamespacedResources,
		IgnoredResourcesFunc:      cfg.IgnoredResources,
		InformersStarted:          started,
		Registry:                  generic.NewRegistry(cfg.Evaluators()),
		UpdateFilter:              install.DefaultUpdateFilter(),
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		go rq.Sync(ctx, kinds.ServerPreferredNamespacedResources, lookEvery)
		rq.Run(ctx, 2)
	}, nil
}
