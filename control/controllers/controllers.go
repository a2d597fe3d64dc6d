// Package controllers keeps the derived parts of Muster's API objects true: a
// tenant's namespaces, roles and default policies, the members and colours of
// virtual sites, the state of tokens, the counts in policies' and rules' status, the
// end of a maintenance, and the namespace of the platform's operators. The phase of a site is not its business: control/fleetapi knows who
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
	"maps"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"

	toolscache "k8s.io/client-go/tools/cache"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// settle is how long changes of a tenant are gathered before it is recomputed. A
// virtual site follows a label within 2 s; most of that is left for the API server.
const settle = 300 * time.Millisecond

// look is how often a tenant is recomputed without a change of its objects: what
// Options.RenderedPolicy says changes without one.
const look = 30 * time.Second

// Recorder writes Kubernetes events; a record.EventRecorder is one.
type Recorder interface {
	Event(object runtime.Object, eventtype, reason, message string)
}

// LeaderElection lets one of several replicas on the same etcd run the loop.
type LeaderElection struct {
	Config    *rest.Config
	Namespace string // of the Lease; it must exist
	Identity  string // of this replica, unique
}

// Options of a Runner.
type Options struct {
	Client client.Client // writes; reads go to Cache
	Cache  cache.Cache   // started by the caller
	// RenderedPolicy is the hash of the collection policy that a site should have
	// in effect; empty: not known yet.
	RenderedPolicy func(fleet.SiteID) string
	// Rules tells what became of AlertRules and LogRules; nil: their status is not written.
	Rules Rules
	// DefaultCollectionPolicy and DefaultHealthPolicy are made, under the name
	// "default", in each tenant that has no policy of the kind, and never touched
	// again.
	DefaultCollectionPolicy v1alpha1.CollectionPolicySpec
	DefaultHealthPolicy     v1alpha1.HealthPolicySpec
	Recorder                Recorder        // nil: none
	LeaderElection          *LeaderElection // nil: this is the only replica
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
	// Else controller-runtime complains, after 30 s, that nobody did this.
	crlog.SetLogger(logr.FromSlogHandler(o.Logger.Handler()))
	return r
}

// AddToScheme registers every type that the controllers read or write.
func AddToScheme(s *runtime.Scheme) error {
	return errors.Join(v1alpha1.AddToScheme(s), corev1.AddToScheme(s), rbacv1.AddToScheme(s))
}

// Run watches and recomputes until ctx ends. Under leader election it waits for
// its turn first, and returns an error if it loses the lease. It runs once.
func (r *Runner) Run(ctx context.Context) error {
	defer r.queue.ShutDown()
	if r.o.LeaderElection == nil {
		return r.run(ctx)
	}
	return r.runElected(ctx, *r.o.LeaderElection)
}

func (r *Runner) runElected(ctx context.Context, o LeaderElection) error {
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, o.Namespace, leaseName,
		resourcelock.ResourceLockConfig{Identity: o.Identity}, o.Config, renewDeadline)
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	electing, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: leaseName, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				r.o.Logger.Info("this replica runs the controllers", "identity", o.Identity)
				if err := r.run(leading); leading.Err() == nil {
					failed <- err
					cancel()
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	elector.Run(electing)
	select {
	case err := <-failed:
		return err
	default:
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("lost the lease %s/%s: another replica runs the controllers now", o.Namespace, leaseName)
}

// The lease's times are those of kube-controller-manager.
const (
	leaseName     = "muster-controllers"
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

func (r *Runner) run(ctx context.Context) error {
	for _, obj := range []client.Object{&v1alpha1.Tenant{}, &v1alpha1.Site{}, &v1alpha1.VirtualSite{}, &v1alpha1.RegistrationToken{},
		&v1alpha1.CollectionPolicy{}, &v1alpha1.HealthPolicy{}, &v1alpha1.AlertRules{}, &v1alpha1.LogRules{}, &corev1.Namespace{}, &rbacv1.RoleBinding{}} {
		informer, err := r.o.Cache.GetInformer(ctx, obj)
		if err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: r.mark, UpdateFunc: r.changed, DeleteFunc: r.mark,
		}); err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
	}
	if !r.o.Cache.WaitForCacheSync(ctx) {
		return ctx.Err()
	}
	if r.o.Rules != nil {
		r.o.Rules.SubscribeRules(func(tenant string) { r.queue.AddAfter(tenant, settle) })
	}
	r.queue.Add(fleet.PlatformTenant)
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

// changed marks the tenant of an object that changed in what a pass looks at. Of a
// site most changes are heartbeats. Others are marked for their status too: a pass
// may have begun from a cache that did not know the last pass's own writes.
func (r *Runner) changed(before, now any) {
	a, ok1 := before.(*v1alpha1.Site)
	b, ok2 := now.(*v1alpha1.Site)
	if ok1 && ok2 && a.UID == b.UID && a.Generation == b.Generation && maps.Equal(a.Labels, b.Labels) &&
		colour(a) == colour(b) && a.Status.PolicyHash == b.Status.PolicyHash && rejected(a) == rejected(b) {
		return
	}
	r.mark(now)
}

// event tells people; a nil recorder tells nobody.
func (r *Runner) event(obj runtime.Object, kind, reason, message string) {
	if r.o.Recorder != nil {
		r.o.Recorder.Event(obj, kind, reason, message)
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
	for _, name := range r.tenantsOf(obj) {
		r.queue.AddAfter(name, settle)
	}
}

// tenantsOf are the tenants that an object may matter to. A tenant's name may hold
// a '-', so a namespace's label tells whose it is, not its name; only the system
// namespace is told by name, because its objects may come before the cache knows
// the namespace. A tenant that does not exist costs nothing.
func (r *Runner) tenantsOf(obj client.Object) []string {
	switch o := obj.(type) {
	case *v1alpha1.Tenant:
		return []string{o.Name}
	case *corev1.Namespace:
		// Whoever it belongs to, it may stand or have stood in somebody's way.
		out := []string{o.Labels[fleet.LabelTenant]}
		for i, c := range o.Name {
			if c == '-' {
				out = append(out, o.Name[:i])
			}
		}
		return out
	}
	if t, ok := fleet.TenantOfSystemNamespace(obj.GetNamespace()); ok {
		return []string{t}
	}
	var ns corev1.Namespace
	if err := r.o.Cache.Get(context.Background(), client.ObjectKey{Name: obj.GetNamespace()}, &ns); err != nil || ns.Labels[fleet.LabelTenant] == "" {
		return nil // the namespace's own event marks the tenant
	}
	return []string{ns.Labels[fleet.LabelTenant]}
}
