package apiserver

import (
	"sync"
	"time"

	"context"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// lookEvery is how often kinds that came or went are looked for.
const lookEvery = 5 * time.Second

// settleKinds is how long after a change of a CRD the API server may still tell of the
// kinds before it.
const settleKinds = time.Minute

// whole are the kinds whose quota is more than a count.
var whole = map[schema.GroupResource]bool{
	corev1.Resource("pods"): true, corev1.Resource("services"): true, corev1.Resource("persistentvolumeclaims"): true,
	resourcev1.Resource("resourceclaims"): true,
}

// kindInformers watches every kind once for all controllers: where they can do with it,
// who an object is and whose alone.
type kindInformers struct {
	typed informers.SharedInformerFactory
	meta  metadatainformer.SharedInformerFactory
}

// ForResource implements informerfactory.InformerFactory.
func (k kindInformers) ForResource(r schema.GroupVersionResource) (informers.GenericInformer, error) {
	if whole[r.GroupResource()] {
		return k.typed.ForResource(r)
	}
	i := k.meta.ForResource(r)
	// An error says that it runs, with the handler of the first time.
	_ = i.Informer().SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if !apierrors.IsNotFound(err) { // its CRD is gone; it may come back
			cache.DefaultWatchErrorHandler(ctx, r, err)
		}
	})
	return i, nil
}

// Start implements informerfactory.InformerFactory.
func (k kindInformers) Start(stop <-chan struct{}) {
	k.typed.Start(stop)
	k.meta.Start(stop)
}

func withoutManagedFields(o any) (any, error) {
	if m, err := meta.Accessor(o); err == nil {
		m.SetManagedFields(nil)
	}
	return o, nil
}

// identityOnly keeps of an object's metadata what tells who and whose it is.
func identityOnly(o any) (any, error) {
	if m, err := meta.Accessor(o); err == nil {
		m.SetManagedFields(nil)
		m.SetLabels(nil)
		m.SetAnnotations(nil)
	}
	return o, nil
}

// knownKinds asks the API server for its kinds only when some may have come or gone:
// the stock controllers would ask all day.
type knownKinds struct {
	cached discovery.CachedDiscoveryInterface

	mu    sync.Mutex
	fresh time.Time // until then what is known may be of before a change
}

// followKinds returns what knows the kinds that there are.
func (c *controllers) followKinds() (*knownKinds, error) {
	k := &knownKinds{cached: memory.NewMemCacheClient(c.kube.Discovery())}
	k.changed()
	for _, r := range []schema.GroupVersionResource{
		apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"),
		apiregistrationv1.SchemeGroupVersion.WithResource("apiservices"),
	} {
		i, err := c.kinds.ForResource(r)
		if err != nil {
			return nil, err
		}
		if _, err := i.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { k.changed() }, UpdateFunc: func(_, _ any) { k.changed() }, DeleteFunc: func(any) { k.changed() },
		}); err != nil {
			return nil, err
		}
	}
	return k, nil
}

func (k *knownKinds) changed() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fresh = time.Now().Add(settleKinds)
}

func (k *knownKinds) now() discovery.CachedDiscoveryInterface {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Now().Before(k.fresh) {
		k.cached.Invalidate()
	}
	return k.cached
}

// ServerGroupsAndResources implements discovery.ServerResourcesInterface.
func (k *knownKinds) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return k.now().ServerGroupsAndResources()
}

// ServerResourcesForGroupVersion implements discovery.ServerResourcesInterface.
func (k *knownKinds) ServerResourcesForGroupVersion(gv string) (*metav1.APIResourceList, error) {
	return k.now().ServerResourcesForGroupVersion(gv)
}

// ServerPreferredResources implements discovery.ServerResourcesInterface.
func (k *knownKinds) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return k.now().ServerPreferredResources()
}

// ServerPreferredNamespacedResources implements discovery.ServerResourcesInterface.
func (k *knownKinds) ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error) {
	return k.now().ServerPreferredNamespacedResources()
}
