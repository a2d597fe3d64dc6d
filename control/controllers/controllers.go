// Package controllers keeps the derived parts of Muster's API objects true: a
// tenant's namespaces, roles and default policies, the members and colours of
// virtual sites, the state of tokens, the counts in policies' status, the end of a
// maintenance. The phase of a site is not its business: control/fleetapi knows who
// is connected.
//
// There is one loop, by tenant. Whatever changes in a tenant marks it; a moment
// later the whole tenant is recomputed from the cache, and only what differs is
// written. So a thousand label changes cost one pass. internal/app/control runs it.
package controllers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	toolscache "k8s.io/client-go/tools/cache"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// settle is how long changes of a tenant are gathered before it is recomputed. A
// virtual site follows a label within 2 s; most of that is left for the API server.
const settle = 300 * time.Millisecond

// Options of a Runner.
type Options struct {
	Client client.Client // writes; reads go to Cache
	Cache  cache.Cache   // started by the caller
	// RenderedPolicy is the hash of the collection policy that a site should have
	// in effect; empty: not known yet.
	RenderedPolicy func(fleet.SiteID) string
	// DefaultCollectionPolicy and DefaultHealthPolicy are made once in each tenant,
	// under the name "default", and never touched again.
	DefaultCollectionPolicy v1alpha1.CollectionPolicySpec
	DefaultHealthPolicy     v1alpha1.HealthPolicySpec
	Logger                  *slog.Logger
	Registerer              prometheus.Registerer
	Now                     func() time.Time // nil: time.Now
}

// Runner runs the loop.
type Runner struct {
	o      Options
	queue  workqueue.TypedRateLimitingInterface[string]
	passes *prometheus.HistogramVec
}

// New returns a Runner; Run runs it.
func New(o Options) *Runner {
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Runner{o: o,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute)),
		passes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_control_tenant_pass_seconds", Help: "How long it took to recompute a tenant.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, []string{"result"}),
	}
	o.Registerer.MustRegister(r.passes)
	return r
}

// AddToScheme registers every type that the controllers read or write.
func AddToScheme(s *runtime.Scheme) error {
	return errors.Join(v1alpha1.AddToScheme(s), corev1.AddToScheme(s), rbacv1.AddToScheme(s))
}

// Run watches and recomputes until ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	defer r.queue.ShutDown()
	for _, obj := range []client.Object{&v1alpha1.Tenant{}, &v1alpha1.Site{}, &v1alpha1.VirtualSite{}, &v1alpha1.RegistrationToken{},
		&v1alpha1.CollectionPolicy{}, &v1alpha1.HealthPolicy{}, &corev1.Namespace{}} {
		informer, err := r.o.Cache.GetInformer(ctx, obj)
		if err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: r.mark, UpdateFunc: func(_, o any) { r.mark(o) }, DeleteFunc: r.mark,
		}); err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
	}
	if !r.o.Cache.WaitForCacheSync(ctx) {
		return ctx.Err()
	}
	stop := context.AfterFunc(ctx, r.queue.ShutDown)
	defer stop()
	for {
		name, quit := r.queue.Get()
		if quit {
			return ctx.Err()
		}
		began := r.o.Now()
		again, err := r.tenant(ctx, name)
		if err != nil && ctx.Err() == nil {
			r.passes.WithLabelValues("error").Observe(r.o.Now().Sub(began).Seconds())
			r.o.Logger.Warn("tenant not up to date; trying again", "tenant", name, "err", err)
			r.queue.AddRateLimited(name)
		} else {
			r.passes.WithLabelValues("ok").Observe(r.o.Now().Sub(began).Seconds())
			r.queue.Forget(name)
			if again > 0 {
				r.queue.AddAfter(name, again)
			}
		}
		r.queue.Done(name)
	}
}

// mark queues the tenant of an object. The queue holds a name once, however often
// it is marked before its time.
func (r *Runner) mark(o any) {
	if tomb, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = tomb.Obj
	}
	obj, ok := o.(client.Object)
	if !ok {
		return
	}
	if name := r.tenantOf(obj); name != "" {
		r.queue.AddAfter(name, settle)
	}
}

// tenantOf is the tenant that an object belongs to. A tenant's name may hold a '-',
// so a namespace's label tells, not its name; only the system namespace is told by
// name, because its objects may come before the cache knows the namespace.
func (r *Runner) tenantOf(obj client.Object) string {
	switch o := obj.(type) {
	case *v1alpha1.Tenant:
		return o.Name
	case *corev1.Namespace:
		return o.Labels[fleet.LabelTenant]
	}
	if t, ok := fleet.TenantOfSystemNamespace(obj.GetNamespace()); ok {
		return t
	}
	var ns corev1.Namespace
	if err := r.o.Cache.Get(context.Background(), client.ObjectKey{Name: obj.GetNamespace()}, &ns); err != nil {
		return "" // the namespace's own event marks the tenant
	}
	return ns.Labels[fleet.LabelTenant]
}
