package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/cache"

	"muster.dev/muster/internal/backoff"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// leftover is an owned object that the set does not name.
type leftover struct {
	name, namespace string
	rank            int
	live            *live
}

// prune removes what control took away, the last first. A namespace goes when nothing else
// of it is left to remove, a definition when none of its objects is.
func (w *worker) prune(ctx context.Context) error {
	w.pruneDue, w.pruneAt = false, time.Time{}
	w.mu.Lock()
	tookOver := w.tookOver
	w.mu.Unlock()
	if grace := tookOver.Add(w.opts.ClaimFor); !tookOver.IsZero() && time.Now().Before(grace) {
		w.pruneAt = grace // whoever was here may have been silent alone
		return nil
	}
	left := w.leftovers()
	failed := false
	for _, o := range left {
		st := &wire.WorkloadStatus{Name: o.name, Digest: o.live.digest, State: string(workload.Waiting), Reason: "Removing", Message: "is being removed from the site", Status: o.live.status}
		if by := w.holds(o, left); by != "" {
			st.Message = "is removed after " + by
		} else if !o.live.deleting {
			err := w.removeItem(ctx, o.name, o.live)
			switch {
			case errors.Is(err, errDown):
				w.pruneDue = true
				return err
			case err != nil:
				failed = true
				st.State, st.Reason, st.Message = string(workload.Failed), "RemovalRefused", clip(err.Error())
			default:
				w.metrics.pruned.Inc()
			}
		}
		w.putStatus(st)
	}
	w.Kube.mu.Lock()
	if w.set == w.taken {
		w.left = len(left)
	}
	w.Kube.mu.Unlock()
	w.untell()
	w.unwatch()
	if failed {
		w.pruneAt = time.Now().Add(backoff.Bound(w.prunes, w.opts.MinBackoff, w.opts.MaxBackoff))
		w.prunes++
	} else {
		w.prunes = 0
	}
	return nil
}

// leftovers are what is to be removed, in that order.
func (w *worker) leftovers() []leftover {
	var left []leftover
	w.lives.each(func(name string, l *live) {
		if w.plan.items[name] != nil || l.digest == "" || l.child {
			return
		}
		_, _, ns, _, err := workload.ParseItemName(name)
		if err == nil {
			left = append(left, leftover{name, ns, rankOf(l.gvk.GroupKind()), l})
		}
	})
	slices.SortFunc(left, func(a, b leftover) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(a.name, b.name))
	})
	return left
}

// holds names what must be gone before; empty: nothing.
func (w *worker) holds(o leftover, left []leftover) string {
	switch o.rank {
	case rankNamespace:
		_, _, _, ns, _ := workload.ParseItemName(o.name)
		for _, other := range left {
			if other.namespace == ns {
				return other.name
			}
		}
		for name, it := range w.plan.items {
			if it.namespace == ns {
				return name
			}
		}
	case rankCRD:
		_, _, _, name, _ := workload.ParseItemName(o.name)
		_, group, _ := strings.Cut(name, ".")
		for _, other := range left {
			if o.live.gvk.Kind == "CustomResourceDefinition" && other.live.gvk.Group == group {
				return other.name
			}
		}
	}
	return ""
}

// untell drops the status of what is neither wanted nor there.
func (w *worker) untell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.told {
		if w.plan.items[name] == nil && w.lives.get(name) == nil {
			delete(w.told, name)
			w.mirror.out.Drop(wire.WorkloadKey(name))
		}
	}
}

// unwatch stops to watch kinds of which nothing is wanted and nothing is there.
func (w *worker) unwatch() {
	used := map[schema.GroupKind]bool{{Kind: "Namespace"}: true}
	w.lives.each(func(_ string, l *live) { used[l.gvk.GroupKind()] = true })
	for _, it := range w.plan.items {
		used[it.groupKind()] = true
	}
	for name, kw := range w.watches {
		if !used[kw.gvk.GroupKind()] {
			kw.stop()
			delete(w.watches, name)
			w.state.forgetKind(name)
		}
	}
}

// putStatus passes on how an item stands, if that is another than before.
func (w *worker) putStatus(st *wire.WorkloadStatus) {
	w.mu.Lock()
	old := w.told[st.Name]
	st.Since = timestamppb.Now()
	if old.GetState() == st.State {
		st.Since = old.Since
	}
	if proto.Equal(old, st) {
		w.mu.Unlock()
		return
	}
	w.told[st.Name] = st
	w.mu.Unlock()
	w.mirror.out.PutWorkload(st)
}

// putAgain has the state of each item passed on once more.
func (k *Kube) putAgain() {
	k.mu.Lock()
	k.again = true
	k.mu.Unlock()
	k.poke()
}

func (w *worker) putAllAgain() {
	w.Kube.mu.Lock()
	again := w.again
	w.again = false
	w.Kube.mu.Unlock()
	if !again {
		return
	}
	w.mu.Lock()
	told := slices.Collect(maps.Values(w.told))
	w.mu.Unlock()
	for _, st := range told {
		w.mirror.out.PutWorkload(st)
	}
}

// reportDown tells of what is not in effect that it waits for the API server.
func (w *worker) reportDown() {
	for _, u := range w.plan.units {
		w.mu.Lock()
		su := w.state.Units[u.key]
		w.mu.Unlock()
		if su.Version != u.version {
			su = savedUnit{Version: u.version}
		}
		if su.Stands {
			continue
		}
		for _, it := range u.items {
			was := it.drifted
			t, r := w.compare(it, it.target(&su))
			it.drifted = was && w.lives.get(it.name) != nil
			if t != nothing && (it.err == nil || it.err.waiting) {
				it.err = wait(w.whyDown(), "%w", w.down)
				w.report(it, u, su)
			} else if t == nothing && it.err != nil && it.err.reason == w.whyDown() {
				it.err = r // what was waited for is wanted no more
				w.report(it, u, su)
			}
		}
	}
}

// searchNot are kinds that nobody applies and that there are many of.
var searchNot = map[string]bool{"pods": true, "events": true, "endpoints": true, "endpointslices": true, "replicasets": true, "controllerrevisions": true, "leases": true, "nodes": true}

// search finds the kinds of which there are owned objects.
func (c *cluster) search(ctx context.Context) ([]schema.GroupVersionKind, error) {
	lists, err := c.disco.ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("%w: %w", errDown, err)
	}
	var found []schema.GroupVersionKind
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			if searchNot[r.Name] || strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "delete") {
				continue
			}
			call, cancel := context.WithTimeout(ctx, callTimeout)
			some, err := c.meta.Resource(gv.WithResource(r.Name)).List(call, metav1.ListOptions{LabelSelector: ownedSelector, Limit: 1})
			cancel()
			if status := apierrors.APIStatus(nil); err != nil && !errors.As(err, &status) {
				return nil, fmt.Errorf("%w: %w", errDown, err)
			}
			if err == nil && len(some.Items) > 0 {
				found = append(found, gv.WithKind(r.Kind))
			}
		}
	}
	return found, nil
}

// watchCRDs calls changed whenever the site may know other kinds.
func (c *cluster) watchCRDs(changed func()) {
	crds := c.meta.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	c.reflect(c.ctx, "definitions", &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return crds.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return crds.Watch(ctx, o)
		},
	}, bell(changed))
}

// bell is the store of a reflector that holds nothing and rings.
type bell func()

// Add implements cache.ReflectorStore.
func (b bell) Add(any) error { b(); return nil }

// Update implements cache.ReflectorStore.
func (b bell) Update(any) error { b(); return nil }

// Delete implements cache.ReflectorStore.
func (b bell) Delete(any) error { return nil }

// Replace implements cache.ReflectorStore.
func (b bell) Replace([]any, string) error { b(); return nil }

// Resync implements cache.ReflectorStore.
func (b bell) Resync() error { return nil }
