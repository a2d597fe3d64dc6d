package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"muster.dev/muster/internal/workload"
)

// live is what is kept of an owned object of the cluster.
type live struct {
	gvk      schema.GroupVersionKind
	uid      types.UID
	rv       string
	digest   string // by its annotation
	origin   string // the same, of what it is at the centre
	refused  string // the same, of the version of its unit that was rolled back
	fields   uint64 // which fields workload.FieldManager applied and nobody has changed since
	other    string // who changed anything of it last, beside the controllers
	deleting bool
	child    bool // some controller made it
	verdict  verdict
	status   []byte            // JSON; nil: none
	selector map[string]string // of its pods
	// revisions of a StatefulSet that its pods may be of; nil: of any, or nobody knows yet.
	revisions []string
}

func liveOf(obj metav1.Object, gvk schema.GroupVersionKind) *live {
	l := &live{
		gvk: gvk, uid: obj.GetUID(), rv: obj.GetResourceVersion(), digest: obj.GetAnnotations()[workload.Digest], origin: obj.GetAnnotations()[workload.Origin], refused: obj.GetAnnotations()[workload.Refused],
		deleting: obj.GetDeletionTimestamp() != nil, child: metav1.GetControllerOf(obj) != nil, verdict: ready(),
	}
	l.fields, l.other = managed(obj.GetManagedFields())
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return l
	}
	l.verdict = judge(u)
	o := object(u.Object)
	if status, ok := o["status"].(map[string]any); ok && len(status) > 0 {
		l.status = passedOn(status)
	}
	if podSpecs[gvk.GroupKind()] != nil {
		if labels, ok := o.at("spec", "selector", "matchLabels").(map[string]any); ok {
			l.selector = make(map[string]string, len(labels))
			for k, v := range labels {
				l.selector[k], _ = v.(string)
			}
		}
		l.revisions = revisionsOf(o, gvk, obj.GetGeneration())
	}
	return l
}

// passedOn is a status as control takes it: of one that is too large, its conditions and what
// is short.
func passedOn(status map[string]any) []byte {
	whole, err := json.Marshal(status)
	if err == nil && len(whole) <= workload.MaxStatus {
		return whole
	}
	short := func(v any) bool {
		switch v := v.(type) {
		case string:
			return len(v) <= workload.MaxWord
		case map[string]any, []any:
			return false
		}
		return true
	}
	status = maps.Clone(status)
	for _, keep := range []func(string, any) bool{
		func(key string, v any) bool { return key == "conditions" || short(v) },
		func(key string, _ any) bool { return key == "conditions" || key == "observedGeneration" },
	} {
		maps.DeleteFunc(status, func(key string, v any) bool { return !keep(key, v) })
		if b, err := json.Marshal(status); err == nil && len(b) <= workload.MaxStatus {
			return b
		}
	}
	return nil
}

// managed digests the managed fields: whoever changes a field that was applied takes it
// over, so that the applier's set of fields shows whether its word still counts.
func managed(entries []metav1.ManagedFieldsEntry) (fields uint64, other string) {
	var last time.Time
	for _, e := range entries {
		if e.Manager == workload.FieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == "" {
			h := fnv.New64a()
			if e.FieldsV1 != nil {
				_, _ = h.Write(e.FieldsV1.Raw)
			}
			fields = h.Sum64()
		} else if e.Subresource != "status" && e.Time != nil && !e.Time.Time.Before(last) {
			other, last = e.Manager, e.Time.Time
		}
	}
	return fields, other
}

// lives are the owned objects of the cluster, by item name. Safe for concurrent use.
type lives struct {
	mu      sync.Mutex
	m       map[string]*live
	touched func(item string) // called without the lock
}

func (ls *lives) get(item string) *live {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.m[item]
}

// put notes an object, unless a newer state of it is known. It tells whether it did.
func (ls *lives) put(item string, l *live) bool {
	ls.mu.Lock()
	old := ls.m[item]
	if old != nil && old.uid == l.uid {
		if c, err := resourceversion.CompareResourceVersion(l.rv, old.rv); err == nil && c <= 0 {
			ls.mu.Unlock()
			return false
		}
	}
	ls.m[item] = l
	ls.mu.Unlock()
	ls.touched(item)
	return true
}

// drop forgets an object, unless another one has taken its place.
func (ls *lives) drop(item string, uid types.UID) {
	ls.mu.Lock()
	old := ls.m[item]
	if old == nil || (uid != "" && old.uid != uid) {
		ls.mu.Unlock()
		return
	}
	delete(ls.m, item)
	ls.mu.Unlock()
	ls.touched(item)
}

// each calls fn for all of a moment.
func (ls *lives) each(fn func(item string, l *live)) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for item, l := range ls.m {
		fn(item, l)
	}
}

// kindWatch keeps the owned objects of one kind in lives. It is the store of a reflector.
type kindWatch struct {
	gvk    schema.GroupVersionKind
	lives  *lives
	synced chan struct{} // closed after the first list
	once   sync.Once
	stop   context.CancelFunc
}

func (w *kindWatch) item(obj metav1.Object) string {
	return workload.ItemName(w.gvk.Group, w.gvk.Kind, obj.GetNamespace(), obj.GetName())
}

// Add implements cache.ReflectorStore.
func (w *kindWatch) Add(o any) error {
	if obj, ok := o.(metav1.Object); ok {
		w.lives.put(w.item(obj), liveOf(obj, w.gvk))
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (w *kindWatch) Update(o any) error { return w.Add(o) }

// Delete implements cache.ReflectorStore.
func (w *kindWatch) Delete(o any) error {
	if obj, ok := o.(metav1.Object); ok {
		w.lives.drop(w.item(obj), obj.GetUID())
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (w *kindWatch) Replace(list []any, _ string) error {
	there := make(map[string]bool, len(list))
	for _, o := range list {
		if obj, ok := o.(metav1.Object); ok {
			there[w.item(obj)] = true
			_ = w.Add(o)
		}
	}
	gone := map[string]types.UID{}
	w.lives.each(func(item string, l *live) {
		if l.gvk.GroupKind() == w.gvk.GroupKind() && !there[item] {
			gone[item] = l.uid
		}
	})
	for item, uid := range gone {
		w.lives.drop(item, uid)
	}
	w.once.Do(func() { close(w.synced) })
	return nil
}

// Resync implements cache.ReflectorStore.
func (w *kindWatch) Resync() error { return nil }

var ownedSelector = workload.Owned + "=true"

// watchKind starts to watch the owned objects of a kind, and waits until they are known. A
// kind that may not be listed is an error at once, in the API server's words.
func (c *cluster) watchKind(ctx context.Context, ls *lives, gvk schema.GroupVersionKind, gvr schema.GroupVersionResource) (*kindWatch, error) {
	w := &kindWatch{gvk: gvk, lives: ls, synced: make(chan struct{})}
	owned := func(o metav1.ListOptions) metav1.ListOptions { o.LabelSelector = ownedSelector; return o }
	metadata := stateless[gvk.GroupKind()]
	// A first question, since a reflector keeps what went wrong to itself.
	first, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := c.meta.Resource(gvr).List(first, owned(metav1.ListOptions{Limit: 1})); err != nil {
		return nil, fmt.Errorf("list %s: %w", gvr.Resource, err)
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if metadata {
				return c.meta.Resource(gvr).List(ctx, owned(o))
			}
			return c.dyn.Resource(gvr).List(ctx, owned(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if metadata {
				return c.meta.Resource(gvr).Watch(ctx, owned(o))
			}
			return c.dyn.Resource(gvr).Watch(ctx, owned(o))
		},
	}
	run, stop := context.WithCancel(c.ctx)
	w.stop = stop
	c.reflect(run, "owned "+gvr.String(), lw, w)
	select {
	case <-w.synced:
		return w, nil
	case <-first.Done():
		stop()
		return nil, fmt.Errorf("list %s: no answer within %s: %w", gvr.Resource, callTimeout, first.Err())
	}
}
