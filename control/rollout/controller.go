// Package rollout takes changes over the sites: it makes a Rollout of each ordinary write
// that a RolloutPolicy selects, writes what a Rollout that somebody made says into its
// objects, and moves both from wave to wave.
//
// What happens next is decided in decide, a pure package; this one gathers what a decision
// depends on, and writes in an order that survives being ended anywhere: the RolloutState
// first, from which control/desired carries each site's content, and of which events tell,
// then the objects, then the status. Whatever is missing after a restart is done by the next pass, which
// finds what was written before. Of two controls that run at once the one whose write of
// the state comes second is refused, and looks again.
//
// It does not render, and reads no health by itself: readings does. cmd/internal/control
// runs it.
package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/control/rollout/readings"
	"muster.dev/muster/internal/fairshare"
	"muster.dev/muster/internal/inventory"
)

const (
	// settle is how long changes are gathered before a rollout is looked at.
	settle = 500 * time.Millisecond
	// garbage is how old a state has to be that nothing names, before it is removed: the
	// write that it was made for may still be on its way.
	garbage = 5 * time.Minute
	// passesAtOnce is how many rollouts are looked at at the same time, of which those of one
	// tenant may be as many as it leaves free: its gates may take seconds to read.
	passesAtOnce = 12
	// workers take rollouts up; there are always some that put back what has to wait.
	workers = passesAtOnce + 4
	// mostOfATenant that are under way or wait in line are looked at; more wait to be.
	mostOfATenant = 500
)

// Recorder writes Kubernetes events; a record.EventRecorder is one.
type Recorder interface {
	Event(object runtime.Object, eventtype, reason, message string)
}

// Inventory is what the controller needs of *inventory.Inventory, with the policies that a
// rollout can move.
type Inventory interface {
	Ready() error
	Snapshot() *inventory.Snapshot
	Changed() <-chan struct{}
}

// Site is what a site says of what it shall have of an object.
type Site struct {
	Name  string
	State decide.Applied
	Why   string // if State is Failed
}

// Sites tells of the objects of a kind which sites have them, or will, and what those say.
type Sites interface {
	// Of returns the sites of an object, sorted by name. Known is false as long as what it
	// says does not follow from the state at least at this resource version: then a site's
	// word may be about what it had before.
	Of(kind offered.Kind, namespace, name string, state *v1alpha1.RolloutState) (sites []Site, known bool)
}

// Options of a Controller; all but Recorder, Tick, Most and Now are required.
type Options struct {
	// Client reads and writes the API server itself, Cache follows it.
	Client    client.Client
	Cache     cache.Cache
	Dynamic   dynamic.Interface // the objects that move
	Inventory Inventory
	// Offered are the kinds that are carried to sites.
	Offered func() *offered.Set
	Sites   Sites
	// Online tells whether a site is connected.
	Online     func(tenant, site string) bool
	Readings   readings.Reader
	Recorder   Recorder // nil: none
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Tick       time.Duration    // 0: 5 s
	Most       int              // of a tenant that are under way or in line; 0: 500
	Now        func() time.Time // nil: time.Now
}

// Controller moves rollouts.
type Controller struct {
	o       Options
	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName]
	metrics *metrics

	passes *fairshare.Shares

	mu    sync.Mutex
	known map[types.NamespacedName]*known
}

// known is what this process remembers of a rollout that has not ended.
type known struct {
	tenant string
	memory *decide.Memory
	// state as last written, which the cache may not have yet.
	state *v1alpha1.RolloutState
	since time.Time // when this process looked at it first
	// before are the sites' measures of the time before that, and when they were read.
	before   map[string]map[string]float64
	beforeAt time.Time
	place    place
}

// New returns a Controller; Run runs it.
func New(o Options) *Controller {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Tick, o.Most = cmp.Or(o.Tick, 5*time.Second), cmp.Or(o.Most, mostOfATenant)
	c := &Controller{o: o, passes: fairshare.NewShares(passesAtOnce), known: map[types.NamespacedName]*known{}, metrics: newMetrics(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](time.Second, time.Minute))}
	o.Registerer.MustRegister(c.metrics)
	return c
}

// Run watches and moves until ctx ends. It runs once.
func (c *Controller) Run(ctx context.Context) error {
	changed := c.o.Inventory.Changed()
	for _, obj := range []client.Object{&v1alpha1.Rollout{}, &v1alpha1.RolloutState{}, &v1alpha1.RolloutPolicy{}, &corev1.Namespace{}} {
		informer, err := c.o.Cache.GetInformer(ctx, obj)
		if err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: c.mark, UpdateFunc: func(_, o any) { c.mark(o) }, DeleteFunc: c.mark}); err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
	}
	if !c.o.Cache.WaitForCacheSync(ctx) {
		return ctx.Err()
	}
	for c.o.Inventory.Ready() != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
	if err := c.standAll(ctx); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	defer c.queue.ShutDown()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { c.work(ctx) })
	}
	wg.Wait()
	return ctx.Err()
}

// Touch says that something changed that the rollouts of a tenant depend on; they are
// looked at earlier than at the next tick.
func (c *Controller) Touch(tenant string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, k := range c.known {
		if k.place.tenant == tenant {
			c.queue.AddAfter(key, settle)
		}
	}
}

// mark queues the rollout of a Rollout or of its state, and the one that a state takes
// over from.
func (c *Controller) mark(o any) {
	if tomb, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = tomb.Obj
	}
	switch o := o.(type) {
	case *v1alpha1.Rollout:
		c.queue.AddAfter(client.ObjectKeyFromObject(o), c.soon())
	case *v1alpha1.RolloutState:
		c.queue.AddAfter(client.ObjectKeyFromObject(o), c.soon())
		if o.Spec.Supersedes != "" {
			c.queue.AddAfter(types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.Supersedes}, c.soon())
		}
	}
}

func (c *Controller) soon() time.Duration { return min(settle, c.o.Tick/2) }

func (c *Controller) work(ctx context.Context) {
	for {
		key, quit := c.queue.Get()
		if quit {
			return
		}
		tenant, err := c.tenantOf(ctx, key.Namespace)
		if err == nil && !c.passes.Take(tenant) {
			c.queue.AddAfter(key, c.soon())
			c.queue.Done(key)
			continue
		}
		began := c.o.Now()
		var again time.Duration
		if err == nil {
			again, err = c.pass(ctx, key, tenant)
			c.passes.Give(tenant)
		}
		result := "ok"
		switch {
		case ctx.Err() != nil:
		case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, errAgain):
			result = "again" // somebody else wrote: the watch brings it
			c.queue.AddAfter(key, c.soon())
		case err != nil:
			result = "error"
			c.o.Logger.Warn("a rollout could not be looked at; trying again", "namespace", key.Namespace, "rollout", key.Name, "err", err)
			c.queue.AddRateLimited(key)
		default:
			c.queue.Forget(key)
			if again > 0 {
				c.queue.AddAfter(key, again)
			}
		}
		c.metrics.passes.WithLabelValues(result).Observe(c.o.Now().Sub(began).Seconds())
		c.queue.Done(key)
	}
}

// errAgain ends a pass that has written something from which the next one goes on.
var errAgain = errors.New("look again")

// room tells whether the line has room for one more of the tenant's, if it is not in it.
func (c *Controller) room(key types.NamespacedName, tenant string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[key] != nil {
		return true
	}
	n := 0
	for _, k := range c.known {
		if k.tenant == tenant {
			n++
		}
	}
	return n < c.o.Most
}

// of is what is known of a rollout; there is one from now on.
func (c *Controller) of(key types.NamespacedName, tenant string) *known {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[key]
	if k == nil {
		k = &known{tenant: tenant, since: c.o.Now()}
		c.known[key] = k
	}
	return k
}

func (c *Controller) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, key)
}
