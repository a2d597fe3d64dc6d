package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"muster.dev/muster/control/api/v1alpha1"
)

const (
	streamAlive = 15 * time.Second
	// detailEvery is how often a stream of one rollout tells of it, which asks for its state
	// anew: whoever has many open, and changes it all the time, would ask for each.
	detailEvery = time.Second
	// maxStreamNamespaces of a stream, each a watch of the API server.
	maxStreamNamespaces = 100
)

// sameRollouts holds as long as the user may read rollouts in exactly these namespaces.
func (c *Console) sameRollouts(cl *call, tenant, namespace string, need right, was rolloutScope) granted {
	return func(ctx context.Context, id identity) bool {
		now, err := c.rolloutScope(ctx, id, tenant, namespace, need)
		if err != nil || len(now.owners) != len(was.owners) {
			return false
		}
		for name := range was.owners {
			if _, still := now.owners[name]; !still {
				return false
			}
		}
		return true
	}
}

// watchRollouts is the right that a stream takes.
var watchRollouts = right{verb: "watch", resource: "rollouts"}

// streamRollouts sends the rollouts of a list and what changes of them, each whole.
func (c *Console) streamRollouts(w http.ResponseWriter, cl *call) error {
	tenant, namespace := cl.q.Get("tenant"), cl.q.Get("namespace")
	scope, err := c.rolloutScope(cl.Context(), cl.id, tenant, namespace, watchRollouts)
	if err != nil {
		return err
	}
	namespaces := []string{""}
	if !scope.all {
		namespaces = namespaces[:0]
		for name := range scope.owners {
			namespaces = append(namespaces, name)
		}
	}
	if len(namespaces) > maxStreamNamespaces {
		return invalid("tenant", "is missing: a stream covers at most %d namespaces, and you may read %d", maxStreamNamespaces, len(namespaces))
	}
	return c.streamWatches(w, cl, scope.payers(), c.sameRollouts(cl, tenant, namespace, watchRollouts, scope), namespaces, "", func(ctx context.Context, id identity, r *v1alpha1.Rollout) (any, error) {
		ref, ok := scope.owners[r.Namespace]
		if !ok {
			return nil, nil
		}
		ref.name = r.Name
		return viewRollout(rolloutRef{ref}, r), nil
	})
}

// streamRollout sends one rollout in full whenever it changes.
func (c *Console) streamRollout(w http.ResponseWriter, cl *call) error {
	r, err := c.rolloutOf(w, cl)
	if err != nil {
		return err
	}
	scope, err := c.rolloutScope(cl.Context(), cl.id, r.ref.tenant, r.ref.namespace, watchRollouts)
	if err != nil {
		return err
	}
	still := c.sameRollouts(cl, r.ref.tenant, r.ref.namespace, watchRollouts, scope)
	return c.streamWatches(w, cl, []string{r.ref.tenant}, still, []string{r.ref.kubeNamespace()}, r.Name, func(ctx context.Context, id identity, now *v1alpha1.Rollout) (any, error) {
		return c.rolloutDetail(ctx, id, ownedRollout{r.ref, now})
	})
}

// streamWatches watches rollouts as the user in each namespace, all or the one of a name,
// and sends what view makes of each; nil: nothing.
func (c *Console) streamWatches(w http.ResponseWriter, cl *call, about []string, still granted, namespaces []string, name string, view func(context.Context, identity, *v1alpha1.Rollout) (any, error)) error {
	var problem error
	err := c.streaming(w, cl, about, still, len(namespaces), func(w http.ResponseWriter, ctx context.Context, _ *atomic.Bool) {
		problem = c.sendRollouts(w, ctx, cl.id, namespaces, name, view)
	})
	return errors.Join(err, problem)
}

// sendRollouts writes events until ctx is done or a watch ends. It returns what went wrong
// before anything was sent.
func (c *Console) sendRollouts(w http.ResponseWriter, ctx context.Context, id identity, namespaces []string, name string, view func(context.Context, identity, *v1alpha1.Rollout) (any, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan watch.Event, 64)
	ended := make(chan struct{}, len(namespaces))
	for _, ns := range namespaces {
		in, err := c.watchRequest(ns, name).Watch(ctx)
		if err != nil {
			return err
		}
		defer in.Stop()
		go func() {
			defer func() { ended <- struct{}{} }()
			for ev := range in.ResultChan() {
				select {
				case events <- ev:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := &podEvents{w: w, ctl: http.NewResponseController(w)}
	if out.comment("retry: 2000") != nil {
		return nil
	}
	send := func(ev watch.Event) bool {
		r, ok := ev.Object.(*v1alpha1.Rollout)
		if !ok {
			return false // the API server's error, such as a version that is too old
		}
		v, err := view(ctx, id, r)
		if err != nil {
			return false
		}
		event := "rollout"
		if ev.Type == watch.Deleted {
			event = "removed"
		}
		return v == nil || out.event(event, "", v) == nil
	}
	alive := time.NewTicker(streamAlive)
	defer alive.Stop()
	// Of one rollout the newest waits until it is due.
	var newest *watch.Event
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
			return nil // readers connect again
		case <-alive.C:
			if out.comment(": alive") != nil {
				return nil
			}
		case ev := <-events:
			if due != nil {
				newest = &ev
				continue
			}
			if !send(ev) {
				return nil
			}
			if name != "" {
				due = time.After(detailEvery)
			}
		case <-due:
			due = nil
			if newest == nil {
				continue
			}
			if !send(*newest) {
				return nil
			}
			newest, due = nil, time.After(detailEvery)
		}
	}
}

func (c *Console) watchRequest(namespace, name string) *rest.Request {
	o := &metav1.ListOptions{Watch: true}
	if name != "" {
		o.FieldSelector = fmt.Sprintf("metadata.name=%s", name)
	}
	req := c.kube.user.Get().Resource("rollouts").VersionedParams(o, c.kube.params)
	if namespace != "" {
		req = req.Namespace(namespace)
	}
	return req
}
