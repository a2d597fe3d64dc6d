package control

import (
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/aggregator/query"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/apiserver"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/fleetapi"
	"muster.dev/muster/control/granted"
	"muster.dev/muster/control/vk8s"
	"muster.dev/muster/control/vk8s/status"
	"muster.dev/muster/control/vk8s/sum"
	"muster.dev/muster/internal/fleet"
)

// virtual is what serves the VirtualKubernetes of all tenants.
type virtual struct {
	ctx       context.Context
	informers cache.Cache
	reach     *reach
	store     *status.Store
	sum       *sum.Controller // nil until it serves
}

// newVirtual reads what sites said before the last stop.
func newVirtual(ctx context.Context, env *role.Env, c config.Config, informers cache.Cache, core typedcorev1.CoreV1Interface) (*virtual, error) {
	v := &virtual{ctx: ctx, informers: informers}
	v.store = status.New(status.Options{MayName: v.mayName, TenantOf: v.tenantOf, Workload: v.workload, Dir: filepath.Join(Dir(c), "clusters"), Logger: env.Log})
	for _, o := range []client.Object{&v1alpha1.VirtualKubernetes{}, &corev1.Namespace{}} {
		if _, err := informers.GetInformer(ctx, o); err != nil {
			return nil, fmt.Errorf("watch virtual Kubernetes: %w", err)
		}
	}
	if !informers.WaitForCacheSync(ctx) { // by it the store knows whose a namespace is
		return nil, fmt.Errorf("watch virtual Kubernetes: %w", context.Cause(ctx))
	}
	if err := v.store.Load(); err != nil {
		return nil, fmt.Errorf("what sites said of their clusters: %w", err)
	}
	env.Ops.Status("clusters", func() any { return v.store.Stats() })
	env.Go("clusters", v.store.Run)
	env.Go("events of tenants' objects", func(ctx context.Context) error {
		lw := toolscache.NewListWatchFromClient(core.RESTClient(), "events", metav1.NamespaceAll, fields.Everything())
		toolscache.NewReflectorWithOptions(lw, &corev1.Event{}, v.store.Centre(), toolscache.ReflectorOptions{Name: "events of tenants' objects"}).RunWithContext(ctx)
		return nil
	})
	return v, nil
}

// serve lets the API server serve them.
func (v *virtual) serve(ctx context.Context, env *role.Env, kube client.Client, mount *vk8s.Mount, store *desired.Store, grants *granted.Grants, server *fleetapi.Server, metrics *query.Client) error {
	v.sum = sum.New(sum.Options{Cache: v.informers, Client: kube, Granted: func(gk schema.GroupKind) (offered.Kind, bool) { return grants.Set().Of(gk) }, States: v.store.States, Content: store.Fetch, Items: func(namespace string) []string {
		return append(v.store.Items(namespace), store.WorkloadItems(namespace)...)
	}, Online: v.store.IsOnline, Logger: env.Log, Placed: func(item string) (sum.Placement, bool) {
		p, ok := store.Placed(item)
		return sum.Placement(p), ok
	}})
	v.store.OnWorkloads(v.sum.Touch)
	store.SubscribeWorkloads(v.sum.TouchTenant)
	if err := v.sum.Watch(ctx); err != nil {
		return err
	}
	env.Go("status of workloads", v.sum.Run)
	v.reach = newReach(store)
	env.Go("reach of namespaces", v.reach.run)
	mirrored := v.store.Handler(status.HandlerOptions{ListBytes: listBytes(debug.SetMemoryLimit(-1)), Scope: v.scope, Tables: apiserver.Tables(), Usage: usage(metrics.Ask), Dial: server.Dial})
	report := v.sum.Handler(func(ctx context.Context) (string, bool) {
		of, ok := vk8s.VirtualOf(ctx)
		return of.Namespace, ok
	}, func(ctx context.Context, gk schema.GroupKind, name string) bool {
		kind, ok := grants.Set().Of(gk)
		return ok && vk8s.MayGet(ctx, kind.Group, kind.Version, kind.Resource, name)
	})
	mount.Serve(vk8s.Backend{Virtual: v.find, Mirrored: mirrored, Usage: true, Report: report, Pods: v.sum.Pods, Offered: func(gr schema.GroupResource) bool {
		_, ok := grants.Set().OfResource(gr)
		return ok
	}})
	return nil
}

// listBytes is how much of the process' memory limit lists that are being answered may take,
// decoded: a quarter. The API server's default is the least, and what counts where nothing
// limits the memory.
func listBytes(limit int64) int {
	if limit == math.MaxInt64 {
		return status.DefaultListBytes
	}
	return int(max(limit/4, status.DefaultListBytes))
}

func (v *virtual) tenantOf(namespace string) string {
	var ns corev1.Namespace
	if v.informers.Get(v.ctx, types.NamespacedName{Name: namespace}, &ns) != nil {
		return ""
	}
	return ns.Labels[fleet.LabelTenant]
}

func (v *virtual) find(namespace, name string) (vk8s.Virtual, bool) {
	var vk v1alpha1.VirtualKubernetes
	if v.informers.Get(v.ctx, types.NamespacedName{Namespace: namespace, Name: name}, &vk) != nil {
		return vk8s.Virtual{}, false
	}
	tenant := v.tenantOf(namespace)
	return vk8s.Virtual{Namespace: namespace, Name: name, Tenant: tenant}, tenant != ""
}

// mayName: a namespace is the tenant's whose label it has.
func (v *virtual) mayName(tenant, namespace string) bool { return v.tenantOf(namespace) == tenant }

func (v *virtual) workload(group, kind, namespace, name string) (types.UID, bool) {
	if v.sum == nil {
		return "", false
	}
	return v.sum.UID(group, kind, namespace, name)
}

func (v *virtual) scope(ctx context.Context) (status.Scope, bool) {
	of, ok := vk8s.VirtualOf(ctx)
	if !ok {
		return status.Scope{}, false
	}
	sites, changed := v.reach.of(of.Namespace)
	return status.Scope{Namespace: of.Namespace, Tenant: of.Tenant, Site: func(id fleet.SiteID) bool { return sites[id] }, Changed: changed}, true
}

// reach remembers which sites each namespace reaches, for the nodes that are seen in it.
type reach struct {
	store *desired.Store
	stale chan struct{}

	mu    sync.Mutex
	known map[string]*reached // by namespace
}

type reached struct {
	sites   map[fleet.SiteID]bool
	changed chan struct{}
}

func newReach(store *desired.Store) *reach {
	r := &reach{store: store, stale: make(chan struct{}, 1), known: map[string]*reached{}}
	touch := func() {
		select {
		case r.stale <- struct{}{}:
		default:
		}
	}
	store.SubscribeWorkloads(func(string) { touch() })
	store.Subscribe(func(fleet.SiteID) { touch() })
	return r
}

// reachEvery bounds how often it is looked whether namespaces reach other sites.
const reachEvery = time.Second

// run forgets what namespaces reached that reach other sites now, until ctx ends.
func (r *reach) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.stale:
		}
		r.look()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reachEvery):
		}
	}
}

func (r *reach) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ns, was := range r.known {
		if !maps.Equal(was.sites, r.sites(ns)) {
			delete(r.known, ns)
			close(was.changed)
		}
	}
}

func (r *reach) sites(namespace string) map[fleet.SiteID]bool {
	out := map[fleet.SiteID]bool{}
	to, _ := r.store.Workloads(namespace)
	for _, s := range to.Sites {
		out[s.ID] = true
	}
	return out
}

func (r *reach) of(namespace string) (map[fleet.SiteID]bool, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[namespace]
	if k == nil {
		k = &reached{sites: r.sites(namespace), changed: make(chan struct{})}
		r.known[namespace] = k
	}
	return k.sites, k.changed
}
