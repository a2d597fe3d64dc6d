package inventory

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// NewClient returns a client for the types that an Inventory needs.
func NewClient(cfg *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return client.NewWithWatch(cfg, client.Options{Scheme: scheme})
}

// kind is one watched kind: put and drop run under the inventory's lock.
type kind struct {
	name   string
	list   func() client.ObjectList
	item   any           // the type that events must have; nil: any object with metadata
	object client.Object // for an informer
	put    func(*state, client.Object)
	drop   func(*state, objectKey)
	have   func(*state) []objectKey
	only   labels.Selector
}

func kinds(policies []PolicyKind) []kind {
	ofTenant, err := labels.Parse(fleet.LabelTenant)
	if err != nil {
		panic(err) // a constant
	}
	out := []kind{
		{
			name: "namespaces", only: ofTenant, object: &corev1.Namespace{},
			list: func() client.ObjectList {
				l := &metav1.PartialObjectMetadataList{}
				l.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
				return l
			},
			put:  func(st *state, o client.Object) { st.putNamespace(o.GetName(), o.GetLabels()[fleet.LabelTenant]) },
			drop: func(st *state, k objectKey) { st.dropNamespace(k.name) },
			have: func(st *state) (out []objectKey) {
				for name := range st.namespaces {
					out = append(out, objectKey{"", name})
				}
				return out
			},
		},
		{
			name: "tenants", list: func() client.ObjectList { return &v1alpha1.TenantList{} }, item: &v1alpha1.Tenant{}, object: &v1alpha1.Tenant{},
			put:  func(st *state, o client.Object) { st.putTenant(o.(*v1alpha1.Tenant)) },
			drop: func(st *state, k objectKey) { st.dropTenant(k.name) },
			have: func(st *state) (out []objectKey) {
				for name := range st.tenants {
					out = append(out, objectKey{"", name})
				}
				return out
			},
		},
		{
			name: "virtualsites", list: func() client.ObjectList { return &v1alpha1.VirtualSiteList{} }, item: &v1alpha1.VirtualSite{}, object: &v1alpha1.VirtualSite{},
			put:  func(st *state, o client.Object) { st.putVirtual(o.(*v1alpha1.VirtualSite)) },
			drop: func(st *state, k objectKey) { st.dropVirtual(k) },
			have: func(st *state) (out []objectKey) {
				for k := range st.virtual {
					out = append(out, k)
				}
				return out
			},
		},
		{
			name: "sites", list: func() client.ObjectList { return &v1alpha1.SiteList{} }, item: &v1alpha1.Site{}, object: &v1alpha1.Site{},
			put:  func(st *state, o client.Object) { st.putSite(o.(*v1alpha1.Site)) },
			drop: func(st *state, k objectKey) { st.dropSite(k) },
			have: func(st *state) (out []objectKey) {
				for k := range st.sites {
					out = append(out, k)
				}
				return out
			},
		},
	}
	if len(policies) > 0 {
		out = append(out, kind{
			name: "rolloutstates", list: func() client.ObjectList { return &v1alpha1.RolloutStateList{} }, item: &v1alpha1.RolloutState{}, object: &v1alpha1.RolloutState{},
			put:  func(st *state, o client.Object) { st.putRollout(o.(*v1alpha1.RolloutState)) },
			drop: func(st *state, k objectKey) { st.dropRollout(k) },
			have: func(st *state) (out []objectKey) {
				for k, r := range st.rollouts {
					if r.object != nil {
						out = append(out, k)
					}
				}
				return out
			},
		})
	}
	for _, p := range policies {
		out = append(out, kind{
			name: p.Resource, list: p.List, item: p.Object(), object: p.Object(),
			put:  func(st *state, o client.Object) { st.putPolicy(&p, o) },
			drop: func(st *state, k objectKey) { st.dropPolicy(policyKey{p.Kind, k}) },
			have: func(st *state) (out []objectKey) {
				for k := range st.policies {
					if k.kind == p.Kind {
						out = append(out, k.objectKey)
					}
				}
				return out
			},
		})
	}
	return out
}

// watch starts to watch every kind.
func (inv *Inventory) watch(ctx context.Context, wg *sync.WaitGroup) error {
	for _, k := range inv.kinds {
		if inv.opts.Cache == nil {
			inv.reflect(ctx, wg, k)
		} else if err := inv.inform(ctx, wg, k); err != nil {
			return err
		}
	}
	return nil
}

// reflect lists and watches, and keeps no objects.
func (inv *Inventory) reflect(ctx context.Context, wg *sync.WaitGroup, k kind) {
	lw := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			l := k.list()
			if err := inv.opts.Client.List(ctx, l, &client.ListOptions{Raw: &o, LabelSelector: k.only}); err != nil {
				return nil, err
			}
			return l, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return inv.opts.Client.Watch(ctx, k.list(), &client.ListOptions{Raw: &o, LabelSelector: k.only})
		},
	}
	r := toolscache.NewReflectorWithOptions(toolscache.ToListWatcherWithWatchListSemantics(lw, inv.opts.Client), k.item, &store{inv: inv, kind: k},
		toolscache.ReflectorOptions{Name: k.name, TypeDescription: k.name})
	wg.Go(func() { r.RunWithContext(ctx) })
}

// inform listens to somebody else's cache.
func (inv *Inventory) inform(ctx context.Context, wg *sync.WaitGroup, k kind) error {
	informer, err := inv.opts.Cache.GetInformer(ctx, k.object, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("inventory: watch %s: %w", k.name, err)
	}
	s := &store{inv: inv, kind: k}
	var mu sync.Mutex
	seen := map[objectKey]struct{}{} // until the first list is over
	h, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if obj, ok := o.(client.Object); ok {
				mu.Lock()
				if seen != nil {
					seen[keyOf(obj)] = struct{}{}
				}
				mu.Unlock()
			}
			inv.complain(k, s.Add(o))
		},
		UpdateFunc: func(_, o any) { inv.complain(k, s.Add(o)) },
		DeleteFunc: func(o any) { inv.complain(k, s.Delete(o)) },
	})
	if err != nil {
		return fmt.Errorf("inventory: watch %s: %w", k.name, err)
	}
	wg.Go(func() {
		defer func() { _ = informer.RemoveEventHandler(h) }()
		if toolscache.WaitForCacheSync(ctx.Done(), h.HasSynced) {
			mu.Lock()
			listed := seen
			seen = nil
			mu.Unlock()
			s.listed(listed)
		}
		<-ctx.Done()
	})
	return nil
}

func (inv *Inventory) complain(k kind, err error) {
	if err != nil {
		inv.log.Error("inventory: an event can't be used", "kind", k.name, "err", err)
	}
}

func keyOf(o client.Object) objectKey { return objectKey{o.GetNamespace(), o.GetName()} }

// store feeds the inventory: it keeps no objects, only what the inventory takes from
// them.
type store struct {
	inv  *Inventory
	kind kind
}

// Add implements cache.ReflectorStore.
func (s *store) Add(o any) error {
	obj, ok := o.(client.Object)
	if !ok {
		return fmt.Errorf("%s: got a %T", s.kind.name, o)
	}
	s.inv.mu.Lock()
	defer s.inv.mu.Unlock()
	s.kind.put(s.inv.state, obj)
	s.inv.touch()
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store) Update(o any) error { return s.Add(o) }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(o any) error {
	if tomb, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = tomb.Obj
	}
	obj, ok := o.(client.Object)
	if !ok {
		return fmt.Errorf("%s: got a %T", s.kind.name, o)
	}
	s.inv.mu.Lock()
	defer s.inv.mu.Unlock()
	s.kind.drop(s.inv.state, keyOf(obj))
	s.inv.touch()
	return nil
}

// Replace implements cache.ReflectorStore: the result of a list.
func (s *store) Replace(list []any, _ string) error {
	s.inv.mu.Lock()
	seen := make(map[objectKey]struct{}, len(list))
	for _, o := range list {
		obj, ok := o.(client.Object)
		if !ok {
			s.inv.mu.Unlock()
			return fmt.Errorf("%s: got a %T", s.kind.name, o)
		}
		seen[keyOf(obj)] = struct{}{}
		s.kind.put(s.inv.state, obj)
	}
	s.inv.mu.Unlock()
	s.listed(seen)
	return nil
}

// listed forgets what is not in a full list.
func (s *store) listed(seen map[objectKey]struct{}) {
	s.inv.mu.Lock()
	defer s.inv.mu.Unlock()
	for _, k := range s.kind.have(s.inv.state) {
		if _, ok := seen[k]; !ok {
			s.kind.drop(s.inv.state, k)
		}
	}
	s.inv.synced[s.kind.name] = true
	s.inv.touch()
}

// Resync implements cache.ReflectorStore.
func (s *store) Resync() error { return nil }

func (inv *Inventory) touch() {
	select {
	case inv.wake <- struct{}{}:
	default:
	}
}
