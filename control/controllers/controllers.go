// Package controllers keeps the derived parts of Muster's API objects true: a
// tenant's namespaces, roles and default policies, the members and colours of
// virtual sites, the state of tokens, the counts in policies' and rules' status, the
// end of a maintenance, and the namespace of the platform's operators. The phase of a site is not its business: control/fleetapi knows who
// is connected.
//
// There is one loop, by tenant. Whatever changes in a tenant marks it; a moment
// later the whole tenant is recomputed from the cache, and only what differs is
// written. So a thousand label changes cost one pass. cmd/internal/control runs it.
package controllers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"

	toolscache "k8s.io/client-go/tools/cache"

	"muster.dev/muster/control/api/kinds"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/quota"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

// settle is how long changes of a tenant are gathered before it is recomputed. A
// virtual site follows a label within 2 s; most of that is left for the API server.
const settle = 300 * time.Millisecond

// gather is the same for reports of sites: after a change of a policy thousands of them
// come within seconds.
const gather = time.Second

// look is how often a tenant is recomputed without a change of its objects: what
// Options.RenderedPolicy says changes without one.
const look = 30 * time.Second

// Recorder writes Kubernetes events; a record.EventRecorder is one.
type Recorder interface {
	Event(object runtime.Object, eventtype, reason, message string)
}

// Inventory is what the controllers need of *inventory.Inventory, with collection
// policies.
type Inventory interface {
	Ready() error
	Snapshot() *inventory.Snapshot
	Changed() <-chan struct{}
}

// Reports is what the controllers need of *fleetapi.Server to count who applied a policy.
type Reports interface {
	// PolicyOf is the hash of the collection policy that a site says it has in effect, and
	// whether it refuses the one that it should have; told is false if the site said nothing
	// yet since this process runs.
	PolicyOf(fleet.SiteID) (hash string, refused, told bool)
	// SubscribePolicies calls fn with each tenant for one of whose sites PolicyOf answers
	// otherwise than before; fn must be quick.
	SubscribePolicies(fn func(tenant string))
}

// Options of a Runner.
type Options struct {
	Client client.Client // writes; reads go to Cache
	Cache  cache.Cache   // started by the caller
	// Inventory says who belongs where, and who is in maintenance; somebody else runs it.
	Inventory Inventory
	// RenderedPolicy is the hash of the collection policy that a site should have
	// in effect; empty: not known yet.
	RenderedPolicy func(fleet.SiteID) string
	// RenderedPolicies are the generations of a tenant's collection policies, by name, that
	// RenderedPolicy answers from. A result of nil: they are not known, and taken for the
	// latest.
	RenderedPolicies func(tenant string) map[string]int64
	// Reports is what sites say of the policies that they have in effect, before it stands in
	// the status of Sites, which is written at a bounded rate; nil: that status alone counts.
	Reports Reports
	// Software tells who runs what it shall; nil: the status of SoftwarePolicies is not written.
	Software Software
	// Hosts tells whose host is configured; nil: the status of HostConfigurations is not written.
	Hosts Hosts
	// Rules tells what became of AlertRules and LogRules; nil: their status is not written.
	Rules Rules
	// Workloads tells what virtual Kubernetes reach; nil: their status is not written.
	Workloads Workloads
	// Offered is what tenants' users have rights on; nil: the stock kinds.
	Offered Offered
	// DefaultCollectionPolicy and DefaultHealthPolicy are made, under the name
	// "default", in each tenant that has no policy of the kind, and kept as they are
	// here until somebody else writes to them. Every field that has a default in its
	// schema is set: they are compared with what is stored.
	DefaultCollectionPolicy v1alpha1.CollectionPolicySpec
	DefaultHealthPolicy     v1alpha1.HealthPolicySpec
	// Stored is what a tenant has in etcd, Sent what it uses on the regionals: series, and
	// bytes of logs today. nil: status.usage does not tell of it.
	Stored func(tenant string) quota.Usage
	Sent   func(tenant string) (series, logBytes int64)
	// Quotas of a tenant that sets none; 0: no limit.
	Quotas v1alpha1.TenantQuotas
	// GroupsPrefix stands before the groups of the identity provider; "": there is none.
	GroupsPrefix string
	Recorder     Recorder // nil: none
	Logger       *slog.Logger
	Registerer   prometheus.Registerer
	Now          func() time.Time // nil: time.Now
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
	if o.RenderedPolicies == nil {
		o.RenderedPolicies = func(string) map[string]int64 { return nil }
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

// Run watches and recomputes until ctx ends. It runs once.
func (r *Runner) Run(ctx context.Context) error {
	defer r.queue.ShutDown()
	// Sites come through the inventory: most of their changes are heartbeats.
	known := r.o.Inventory.Changed()
	watched := []client.Object{&corev1.Namespace{}, &rbacv1.RoleBinding{}}
	for _, k := range kinds.All {
		if k.Recomputed {
			watched = append(watched, k.New().(client.Object))
		}
	}
	for _, obj := range watched {
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
	for r.o.Inventory.Ready() != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-known:
		}
	}
	go r.follow(ctx, known)
	if r.o.Reports != nil {
		r.o.Reports.SubscribePolicies(func(tenant string) { r.queue.AddAfter(tenant, gather) })
	}
	if r.o.Rules != nil {
		r.o.Rules.SubscribeRules(func(tenant string) { r.queue.AddAfter(tenant, settle) })
	}
	if r.o.Workloads != nil {
		r.o.Workloads.SubscribeWorkloads(func(tenant string) { r.queue.AddAfter(tenant, settle) })
	}
	if r.o.Offered != nil {
		go func(changed <-chan struct{}) {
			for {
				select {
				case <-ctx.Done():
					return
				case <-changed:
					r.queue.Add(fleet.PlatformTenant)
				}
			}
		}(r.o.Offered.Changed())
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
		doneAfterRest(r.queue, name, r.o.Now().Sub(began))
	}
}

// follow marks the tenants in which the inventory changed.
func (r *Runner) follow(ctx context.Context, known <-chan struct{}) {
	last := r.o.Inventory.Snapshot()
	for {
		select {
		case <-ctx.Done():
			return
		case <-known:
		}
		now := r.o.Inventory.Snapshot()
		for _, tenant := range inventory.Differ(last, now) {
			r.queue.Add(tenant) // the inventory has gathered for long enough
		}
		last = now
	}
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
