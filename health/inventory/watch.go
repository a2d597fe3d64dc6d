package inventory

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// kind is one watched kind: put and drop run under the inventory's lock.
type kind struct {
	name string
	list func() client.ObjectList
	item any // the type that events must have; nil: any object with metadata
	put  func(*Inventory, client.Object)
	drop func(*Inventory, objectKey)
	only labels.Selector
}

func kinds() []kind {
	ofTenant, err := labels.Parse(fleet.LabelTenant)
	if err != nil {
		panic(err) // a constant
	}
	ns := schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	return []kind{
		{
			name: "namespaces", only: ofTenant,
			list: func() client.ObjectList {
				l := &metav1.PartialObjectMetadataList{}
				l.SetGroupVersionKind(ns.GroupVersion().WithKind("NamespaceList"))
				return l
			},
			put: func(inv *Inventory, o client.Object) {
				inv.putNamespace(o.GetName(), o.GetLabels()[fleet.LabelTenant])
			},
			drop: func(inv *Inventory, k objectKey) { inv.dropNamespace(k.name) },
		},
		{
			name: "tenants", list: func() client.ObjectList { return &v1alpha1.TenantList{} }, item: &v1alpha1.Tenant{},
			put:  func(inv *Inventory, o client.Object) { inv.tenants[o.GetName()] = true; inv.touch() },
			drop: func(inv *Inventory, k objectKey) { delete(inv.tenants, k.name); inv.touch() },
		},
		{
			name: "virtualsites", list: func() client.ObjectList { return &v1alpha1.VirtualSiteList{} }, item: &v1alpha1.VirtualSite{},
			put: func(inv *Inventory, o client.Object) { inv.putVirtual(o.(*v1alpha1.VirtualSite)) },
			drop: func(inv *Inventory, k objectKey) {
				delete(inv.virtual, k)
				inv.touchNamespace(k.namespace)
			},
		},
		{
			name: "healthpolicies", list: func() client.ObjectList { return &v1alpha1.HealthPolicyList{} }, item: &v1alpha1.HealthPolicy{},
			put: func(inv *Inventory, o client.Object) { inv.putPolicy(o.(*v1alpha1.HealthPolicy)) },
			drop: func(inv *Inventory, k objectKey) {
				delete(inv.policies, k)
				inv.touchNamespace(k.namespace)
			},
		},
		{
			name: "sites", list: func() client.ObjectList { return &v1alpha1.SiteList{} }, item: &v1alpha1.Site{},
			put:  func(inv *Inventory, o client.Object) { inv.putSite(o.(*v1alpha1.Site)) },
			drop: func(inv *Inventory, k objectKey) { inv.dropSite(k) },
		},
	}
}

// Run watches and writes until ctx ends. A lost connection is retried with
// backoff; meanwhile the last state stands.
func (inv *Inventory) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, k := range kinds() {
		lw := &cache.ListWatch{
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
		r := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, inv.opts.Client), k.item, &store{inv: inv, kind: k}, cache.ReflectorOptions{Name: k.name, TypeDescription: k.name})
		wg.Go(func() { r.RunWithContext(ctx) })
	}
	wg.Go(func() { inv.writer.run(ctx) })
	wg.Wait()
	return ctx.Err()
}

// store feeds the inventory from a reflector: it keeps no objects, only what the
// inventory takes from them.
type store struct {
	inv  *Inventory
	kind kind
	keys map[objectKey]struct{}
}

func (s *store) Add(o any) error {
	obj, ok := o.(client.Object)
	if !ok {
		return fmt.Errorf("%s: got a %T", s.kind.name, o)
	}
	s.inv.mu.Lock()
	defer s.inv.mu.Unlock()
	s.putLocked(obj)
	return nil
}

func (s *store) putLocked(obj client.Object) {
	if s.keys == nil {
		s.keys = map[objectKey]struct{}{}
	}
	s.keys[objectKey{obj.GetNamespace(), obj.GetName()}] = struct{}{}
	s.kind.put(s.inv, obj)
}

// Update implements cache.ReflectorStore.
func (s *store) Update(o any) error { return s.Add(o) }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(o any) error {
	if tomb, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = tomb.Obj
	}
	obj, ok := o.(client.Object)
	if !ok {
		return fmt.Errorf("%s: got a %T", s.kind.name, o)
	}
	s.inv.mu.Lock()
	defer s.inv.mu.Unlock()
	s.dropLocked(objectKey{obj.GetNamespace(), obj.GetName()})
	return nil
}

func (s *store) dropLocked(k objectKey) {
	delete(s.keys, k)
	s.kind.drop(s.inv, k)
}

// Replace implements cache.ReflectorStore: the result of a list.
func (s *store) Replace(list []any, _ string) error {
	s.inv.mu.Lock()
	defer s.inv.mu.Unlock()
	seen := make(map[objectKey]struct{}, len(list))
	for _, o := range list {
		obj, ok := o.(client.Object)
		if !ok {
			return fmt.Errorf("%s: got a %T", s.kind.name, o)
		}
		seen[objectKey{obj.GetNamespace(), obj.GetName()}] = struct{}{}
		s.putLocked(obj)
	}
	for k := range s.keys {
		if _, ok := seen[k]; !ok {
			s.dropLocked(k)
		}
	}
	s.inv.synced[s.kind.name] = true
	s.inv.touch()
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *store) Resync() error { return nil }
