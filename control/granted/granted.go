// Package granted follows the CRDs that the platform's administrators grant to tenants, by
// the label offered.LabelGranted, and says what is offered at the moment. control/desired
// carries the objects of those kinds to sites, the controllers give tenants their rights,
// the virtual API serves them. cmd/internal/control runs it; it writes nothing.
package granted

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"muster.dev/muster/control/api/offered"
)

// Grants is what is offered. Safe for concurrent use.
type Grants struct {
	client dynamic.Interface
	log    *slog.Logger
	set    atomic.Pointer[offered.Set]
	synced chan struct{}

	mu        sync.Mutex
	refused   map[string]string // CRD → why, as logged last
	listeners []chan struct{}
}

// New returns the stock kinds alone, until Run.
func New(client dynamic.Interface, log *slog.Logger) *Grants {
	g := &Grants{client: client, log: log, synced: make(chan struct{}), refused: map[string]string{}}
	g.set.Store(offered.NewSet())
	return g
}

// Set is what is offered now.
func (g *Grants) Set() *offered.Set { return g.set.Load() }

// Synced is closed once the CRDs have been listed.
func (g *Grants) Synced() <-chan struct{} { return g.synced }

// Changed returns a channel that receives after the set changed; several changes may come
// as one. Each call makes one, for one reader.
func (g *Grants) Changed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := make(chan struct{}, 1)
	g.listeners = append(g.listeners, c)
	return c
}

var crds = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// Run follows the CRDs until ctx ends. It runs once.
func (g *Grants) Run(ctx context.Context) error {
	informer := dynamicinformer.NewFilteredDynamicInformer(g.client, crds, metav1.NamespaceAll, 0, cache.Indexers{},
		func(o *metav1.ListOptions) { o.LabelSelector = offered.LabelGranted + "=" + offered.Granted }).Informer()
	wake := make(chan struct{}, 1)
	poke := func(any) {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: poke, UpdateFunc: func(_, o any) { poke(o) }, DeleteFunc: poke}); err != nil {
		return fmt.Errorf("granted kinds: %w", err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return context.Cause(ctx)
	}
	g.read(informer.GetStore().List())
	close(g.synced)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
			g.read(informer.GetStore().List())
		}
	}
}

// read makes the set of these CRDs.
func (g *Grants) read(list []any) {
	var kinds []offered.Kind
	refused := map[string]string{}
	for _, o := range list {
		crd, err := decode(o)
		var k offered.Kind
		if err == nil {
			k, err = offered.FromCRD(crd)
		}
		if err == nil && !established(crd) {
			continue // not served yet; its status changes
		}
		if err != nil {
			refused[crd.Name] = err.Error()
			continue
		}
		kinds = append(kinds, k)
	}
	next := offered.NewSet(kinds...)
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, why := range refused {
		if g.refused[name] != why {
			g.log.Warn("a CRD that is labelled as granted is not offered to tenants", "crd", name, "why", why)
		}
	}
	g.refused = refused
	if before := g.set.Swap(next); reflect.DeepEqual(before.Kinds(), next.Kinds()) {
		return
	}
	for _, c := range g.listeners {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func decode(o any) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return crd, errors.New("no object")
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, crd)
	crd.Name = u.GetName()
	return crd, err
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}
