package desired

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/internal/backoff"
	"muster.dev/muster/internal/fleet"
)

// Offered is what FeedWorkloads needs of *granted.Grants.
type Offered interface {
	Set() *offered.Set
	Changed() <-chan struct{}
	Synced() <-chan struct{}
}

// Workloads is where FeedWorkloads has them from. All but Patience is required.
type Workloads struct {
	Cache   cache.Cache
	Client  dynamic.Interface
	Offered Offered
	// Holds tells whether a namespace has objects of a granted kind, also where they can't be
	// listed.
	Holds func(namespace string, of schema.GroupResource) bool
	// Patience is how long all tenants wait for a granted kind that can't be listed, before
	// those do alone that have objects of it. Default 20 s.
	Patience time.Duration
	Logger   *slog.Logger
}

// feed brings workloads to a Store.
type feed struct {
	cache   cache.Cache
	client  dynamic.Interface
	offered Offered
	store   *Store
	log     *slog.Logger
	holds   func(namespace string, of schema.GroupResource) bool

	changed <-chan struct{} // of what is offered
	wake    chan struct{}   // a namespace may have gained or lost its virtual Kubernetes
	running map[followed]*follower
	wg      sync.WaitGroup
}

// followed is a kind, in one namespace or, "", in all.
type followed struct {
	kind      schema.GroupKind
	namespace string
}

// FeedWorkloads tells the store which namespaces have a virtual Kubernetes, of the objects
// in them and of each change. It returns once everything there is has been told: before
// that the Store must not be started, or sites would lose what they have. The watching goes
// on as long as the cache runs and ctx lasts.
//
// Objects are watched across namespaces, one watch a kind; those in namespaces without a
// virtual Kubernetes are dropped as they come. Secrets are read in namespaces with one, and
// nowhere else.
//
// A granted kind that can't be listed, as when the webhook that converts it is not there,
// holds up the tenants that have objects of it: their sites stay as they are until it can.
func FeedWorkloads(ctx context.Context, o Workloads, s *Store) error {
	if o.Patience <= 0 {
		o.Patience = 20 * time.Second
	}
	f := &feed{cache: o.Cache, client: o.Client, offered: o.Offered, holds: o.Holds, store: s, log: o.Logger, changed: o.Offered.Changed(), wake: make(chan struct{}, 1), running: map[followed]*follower{}}
	select {
	case <-ctx.Done():
		return fmt.Errorf("workloads: wait for granted kinds: %w", context.Cause(ctx))
	case <-o.Offered.Synced():
	}
	if err := f.watchSettings(ctx); err != nil {
		return fmt.Errorf("workloads: %w", err)
	}
	if _, err := f.settings(ctx); err != nil {
		return fmt.Errorf("workloads: %w", err)
	}
	// Overrides and rollouts come with the settings of their namespaces.
	for _, ns := range s.WorkloadNamespaces() {
		if err := f.beside(ctx, ns); err != nil {
			return fmt.Errorf("workloads: %w", err)
		}
	}
	f.follow(ctx)
	if err := f.listed(ctx, o.Patience); err != nil {
		return fmt.Errorf("workloads: %w", err)
	}
	if err := f.awaitRollouts(ctx); err != nil {
		return fmt.Errorf("workloads: %w", err)
	}
	go f.run(ctx)
	return nil
}

// listed returns once all kinds are; of granted ones that can't be for so long, the tenants
// that have any are held.
func (f *feed) listed(ctx context.Context, patience time.Duration) error {
	over := time.NewTimer(patience)
	defer over.Stop()
	said := time.Now()
	impatient := false
	for _, r := range f.running {
		for waiting := true; waiting; {
			if impatient && r.kind.Custom {
				f.hold(ctx, r)
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("wait for %s: %w", r.kind.Resource, context.Cause(ctx))
			case <-r.synced:
				waiting = false
			case <-over.C:
				impatient = true
			case <-time.After(time.Second):
				if time.Since(said) > 20*time.Second {
					said = time.Now()
					f.log.Warn("sites get no desired state until all kinds have been listed: what is missing would be removed from them", "missing", r.kind.GroupVersionResource().String())
				}
			}
		}
	}
	return nil
}

// hold holds the tenants that have objects of a kind that is not listed, until it is, or is
// offered no more.
func (f *feed) hold(ctx context.Context, r *follower) {
	select {
	case <-r.synced:
		return
	default:
	}
	kind := r.kind.GroupVersionResource().String()
	tenants := map[string]bool{}
	for _, ns := range f.store.WorkloadNamespaces() {
		if f.holds(ns, schema.GroupResource{Group: r.kind.Group, Resource: r.kind.Resource}) {
			tenants[f.store.tenantOf(ns)] = true
		}
	}
	f.log.Warn("a granted kind can't be listed: sites of the tenants that have objects of it stay as they are until it can, or its definition is granted no more", "kind", kind, "tenants", strings.Join(slices.Sorted(maps.Keys(tenants)), ","))
	f.store.holdTenants(tenants, 1)
	f.wg.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-r.ended:
		case <-r.synced:
		}
		f.store.holdTenants(tenants, -1)
		f.log.Info("sites are given their desired state again", "kind", kind)
	})
}

// watchSettings has what tells of virtual Kubernetes watched.
func (f *feed) watchSettings(ctx context.Context) error {
	poke := func(any) {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
	plain := toolscache.ResourceEventHandlerFuncs{AddFunc: poke, UpdateFunc: func(_, o any) { poke(o) }, DeleteFunc: poke}
	set := on(func(o *v1alpha1.Override) { f.store.SetOverride(o.Namespace, o.Name, &o.Spec) })
	overrides := toolscache.ResourceEventHandlerFuncs{AddFunc: set, UpdateFunc: func(_, o any) { set(o) },
		DeleteFunc: on(func(o *v1alpha1.Override) { f.store.DeleteOverride(o.Namespace, o.Name) })}
	var synced []toolscache.InformerSynced
	for _, w := range []struct {
		obj     client.Object
		handler toolscache.ResourceEventHandler
	}{{&v1alpha1.VirtualKubernetes{}, plain}, {&corev1.Namespace{}, plain}, {&v1alpha1.Tenant{}, plain}, {&v1alpha1.Override{}, overrides}, {&v1alpha1.RolloutState{}, f.rolloutEvents()},
		{&v1alpha1.VirtualHost{}, plain}, {&v1alpha1.AdvertisePolicy{}, plain}} {
		informer, err := f.cache.GetInformer(ctx, w.obj)
		if err != nil {
			return fmt.Errorf("watch %T: %w", w.obj, err)
		}
		reg, err := informer.AddEventHandler(w.handler)
		if err != nil {
			return fmt.Errorf("watch %T: %w", w.obj, err)
		}
		synced = append(synced, reg.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return context.Cause(ctx)
	}
	return nil
}

// settings brings the store's namespaces up to date and returns those that are new.
func (f *feed) settings(ctx context.Context) (fresh []string, err error) {
	var list v1alpha1.VirtualKubernetesList
	if err := f.cache.List(ctx, &list); err != nil {
		return nil, err
	}
	in := map[string]*v1alpha1.VirtualKubernetes{}
	for i := range list.Items {
		vk := &list.Items[i]
		if was := in[vk.Namespace]; was == nil || InEffect(vk, was) {
			in[vk.Namespace] = vk
		}
	}
	for _, ns := range f.store.WorkloadNamespaces() {
		if in[ns] == nil {
			f.store.RemoveWorkloads(ns)
		}
	}
	for ns, vk := range in {
		tenant, now, ok, err := f.settingsOf(ctx, vk)
		if err != nil {
			return nil, err
		}
		if !ok {
			f.store.RemoveWorkloads(ns)
		} else if f.store.ConfigureWorkloads(tenant, ns, now) {
			fresh = append(fresh, ns)
		}
	}
	slices.Sort(fresh)
	return fresh, f.hosts(ctx)
}

// InEffect tells whether, of two virtual Kubernetes of one namespace, which came at the
// same moment, the first is the one in effect: the older one is.
func InEffect(a, b *v1alpha1.VirtualKubernetes) bool {
	if at, bt := a.CreationTimestamp, b.CreationTimestamp; !at.Equal(&bt) {
		return at.Before(&bt)
	}
	return a.Name < b.Name
}

func (f *feed) settingsOf(ctx context.Context, vk *v1alpha1.VirtualKubernetes) (tenant string, _ render.Settings, ok bool, _ error) {
	var ns corev1.Namespace
	if err := f.cache.Get(ctx, client.ObjectKey{Name: vk.Namespace}, &ns); err != nil {
		return "", render.Settings{}, false, client.IgnoreNotFound(err)
	}
	tenant = ns.Labels[fleet.LabelTenant]
	short, ok := render.Short(tenant, ns.Name)
	if !ok || tenant == "" || ns.Name == fleet.SystemNamespace(tenant) {
		return "", render.Settings{}, false, nil
	}
	where, err := render.VirtualSite(vk.Spec.DefaultVirtualSite, short)
	if err != nil {
		return "", render.Settings{}, false, nil // its schema refuses it
	}
	now := render.Settings{DefaultVirtualSite: where}
	var t v1alpha1.Tenant
	if err := f.cache.Get(ctx, client.ObjectKey{Name: tenant}, &t); client.IgnoreNotFound(err) != nil {
		return "", render.Settings{}, false, err
	}
	now.PodSecurity, now.Quotas = t.Spec.PodSecurity, t.Spec.SiteQuotas
	return tenant, now, true, nil
}

// beside tells of all Overrides and rollouts of a namespace.
func (f *feed) beside(ctx context.Context, namespace string) error {
	var list v1alpha1.OverrideList
	if err := f.cache.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return err
	}
	for i := range list.Items {
		f.store.SetOverride(namespace, list.Items[i].Name, &list.Items[i].Spec)
	}
	return f.rollouts(ctx, namespace)
}

func (f *feed) run(ctx context.Context) {
	defer f.wg.Wait()
	unknown := time.NewTicker(askEvery)
	defer unknown.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-unknown.C:
			if err := f.askRollouts(ctx); err != nil {
				f.log.Warn("objects under a rollout stay as they were on their sites: which content each has is not known", "err", err)
			}
			continue
		case <-f.changed:
			f.follow(ctx)
			continue
		case <-f.wake:
		}
		fresh, err := f.settings(ctx)
		if err != nil {
			f.log.Warn("which namespaces have a virtual Kubernetes is not known; trying again at the next change", "err", err)
			continue
		}
		for _, ns := range fresh {
			for at, r := range f.running { // of a namespace of the same name, before
				if at.namespace == ns {
					r.stop()
					delete(f.running, at)
				}
			}
			f.wg.Go(func() { f.load(ctx, ns) })
		}
		f.follow(ctx)
	}
}

// load tells all objects of a namespace that has a virtual Kubernetes since now; the
// watches have told of none before.
func (f *feed) load(ctx context.Context, namespace string) {
	for failed := 1; ; failed++ {
		err := f.store.LoadWorkloads(namespace, func() error {
			if err := f.beside(ctx, namespace); err != nil {
				return err
			}
			for _, kind := range f.offered.Set().Kinds() {
				if kind.Secret {
					continue // has a watch of its own, which begins now
				}
				list, err := f.client.Resource(kind.GroupVersionResource()).Namespace(namespace).List(ctx, metav1.ListOptions{FieldSelector: fieldsOf(kind)})
				if err != nil {
					return fmt.Errorf("list %s: %w", kind.Resource, err)
				}
				for i := range list.Items {
					f.set(kind, &list.Items[i])
				}
			}
			return nil
		})
		if err == nil || ctx.Err() != nil {
			return
		}
		f.log.Warn("the objects of a namespace that has become a virtual Kubernetes can't be read; trying again", "namespace", namespace, "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Bound(failed, time.Second, time.Minute)):
		}
	}
}

// fieldsOf leaves out what is never carried, where the API server can.
func fieldsOf(kind offered.Kind) string {
	switch kind.Kind + "." + kind.Group {
	case "Secret.":
		return "type!=kubernetes.io/service-account-token,type!=helm.sh/release.v1"
	case "ConfigMap.":
		return "metadata.name!=kube-root-ca.crt"
	}
	return ""
}

// set hands over one object.
func (f *feed) set(kind offered.Kind, u *unstructured.Unstructured) {
	ns, name := u.GetNamespace(), u.GetName()
	if err := f.store.SetWorkload(kind, ns, versionOf(u), u.Object); err != nil {
		f.log.Warn("an object has annotations that admission would refuse", "kind", kind.Kind, "namespace", ns, "name", name, "err", err)
	}
}

// versionOf is 0 if it is no number.
func versionOf(u *unstructured.Unstructured) uint64 {
	v, _ := strconv.ParseUint(u.GetResourceVersion(), 10, 64)
	return v
}

// follow watches what is offered, and no longer what is not.
func (f *feed) follow(ctx context.Context) {
	now := f.offered.Set()
	wanted := map[followed]offered.Kind{}
	for _, k := range now.Kinds() {
		if !k.Secret {
			wanted[followed{kind: k.GroupKind()}] = k
			continue
		}
		for _, ns := range f.store.WorkloadNamespaces() {
			wanted[followed{k.GroupKind(), ns}] = k
		}
	}
	for at, r := range f.running {
		if k, ok := wanted[at]; ok && k.GroupVersionResource() == r.kind.GroupVersionResource() && k.Spec == r.kind.Spec {
			continue
		}
		r.stop()
		delete(f.running, at)
		if _, ok := now.Of(at.kind); !ok {
			f.store.KeepWorkloads(r.kind, "", nil)
		} else {
			f.store.RereadWorkloads(r.kind)
		}
	}
	for at, k := range wanted {
		if f.running[at] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		r := &follower{feed: f, kind: k, namespace: at.namespace, synced: make(chan struct{}), ended: make(chan struct{})}
		r.stop = func() { cancel(); <-r.ended }
		f.running[at] = r
		f.wg.Go(func() {
			defer close(r.ended)
			r.run(ctx)
		})
	}
}

// follower is the watch of one kind, and the store of its reflector.
type follower struct {
	feed *feed
	kind offered.Kind
	// namespace that it watches; "": all.
	namespace string
	once      sync.Once
	synced    chan struct{} // closed when all were told
	ended     chan struct{} // closed when it watches no more
	stop      func()
}

var _ toolscache.ReflectorStore = (*follower)(nil)

func (r *follower) run(ctx context.Context) {
	resource := r.feed.client.Resource(r.kind.GroupVersionResource()).Namespace(r.namespace)
	fields := fieldsOf(r.kind)
	expected := &unstructured.Unstructured{}
	expected.SetGroupVersionKind(r.kind.GroupVersionKind())
	toolscache.NewReflectorWithOptions(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = fields
			return resource.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = fields
			return resource.Watch(ctx, o)
		},
	}, expected, r, toolscache.ReflectorOptions{Name: "workloads " + r.namespace + "/" + r.kind.Resource}).RunWithContext(ctx)
}

// Add implements ReflectorStore.
func (r *follower) Add(o any) error {
	if u, ok := o.(*unstructured.Unstructured); ok {
		r.feed.set(r.kind, u)
	}
	return nil
}

// Update implements ReflectorStore.
func (r *follower) Update(o any) error { return r.Add(o) }

// Delete implements ReflectorStore.
func (r *follower) Delete(o any) error {
	if u, ok := o.(*unstructured.Unstructured); ok {
		r.feed.store.DeleteWorkload(r.kind, u.GetNamespace(), u.GetName(), versionOf(u))
	}
	return nil
}

// Replace implements ReflectorStore.
func (r *follower) Replace(list []any, _ string) error {
	names := map[string]map[string]bool{}
	for _, o := range list {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		if names[u.GetNamespace()] == nil {
			names[u.GetNamespace()] = map[string]bool{}
		}
		names[u.GetNamespace()][strings.Clone(u.GetName())] = true
		r.feed.set(r.kind, u)
	}
	r.feed.store.KeepWorkloads(r.kind, r.namespace, names)
	r.once.Do(func() { close(r.synced) })
	return nil
}

// Resync implements ReflectorStore.
func (r *follower) Resync() error { return nil }
