// Package gatecheck answers GateChecks, by which pipelines outside of Muster ask whether
// the sites that got something are well enough to go on: with the gates, the readings and
// the arithmetic of rollouts. It decides nothing by itself (decide does) and reads nothing
// by itself (readings does); it writes their status, and removes them when they are old.
// cmd/internal/control runs it.
package gatecheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/readings"
	"muster.dev/muster/internal/fairshare"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

const (
	// keepFor is how long a check and its answer are kept.
	keepFor = time.Hour
	// maxKept is how many of a namespace are kept; of more the oldest go before their time.
	maxKept = 500
	// maxAtOnce is how many of a tenant are answered at the same time.
	maxAtOnce = 8
	// allAtOnce is how many of all tenants are, of which one may hold as many as it leaves free.
	allAtOnce = 32
	// workers take checks up; those that may not be answered now are told so by the rest.
	workers = allAtOnce + 8
	// answerWithin bounds one answer: what gates read now, and what was before.
	answerWithin = 30 * time.Second
	sweepEvery   = time.Minute
)

// Reader is what is needed of *readings.Readings.
type Reader interface {
	readings.Reader
	QueriesAt(ctx context.Context, tenant string, gates []v1alpha1.RolloutGate, sites []readings.Subject, at time.Time, before map[string]map[string]float64)
}

// Inventory is what is needed of *inventory.Inventory.
type Inventory interface {
	Snapshot() *inventory.Snapshot
}

// Options of a Controller. All but the last two are needed.
type Options struct {
	Client    client.Client
	Cache     cache.Cache
	Inventory Inventory
	Readings  Reader
	// Online tells whether a site is connected.
	Online     func(tenant, site string) bool
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time // nil: time.Now
}

// Controller answers GateChecks.
type Controller struct {
	o        Options
	queue    workqueue.TypedRateLimitingInterface[types.NamespacedName]
	answered *prometheus.CounterVec
	memories memories

	running *fairshare.Shares
}

// New returns a Controller; Run runs it.
func New(o Options) *Controller {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Controller{o: o, running: fairshare.NewShares(allAtOnce),
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](time.Second, time.Minute)),
		answered: promauto.With(o.Registerer).NewCounterVec(prometheus.CounterOpts{Name: "muster_gate_checks_total", Help: "Gate checks that were answered, by verdict."}, []string{"verdict"})}
}

// Run answers until ctx ends. It runs once.
func (c *Controller) Run(ctx context.Context) error {
	informer, err := c.o.Cache.GetInformer(ctx, &v1alpha1.GateCheck{})
	if err != nil {
		return fmt.Errorf("watch GateChecks: %w", err)
	}
	add := func(o any) {
		if g, ok := o.(*v1alpha1.GateCheck); ok && g.Status.Verdict == "" && g.DeletionTimestamp == nil {
			c.queue.Add(client.ObjectKeyFromObject(g))
		}
	}
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }})
	if err != nil {
		return err
	}
	defer func() { _ = informer.RemoveEventHandler(handler) }()
	if !c.o.Cache.WaitForCacheSync(ctx) {
		return ctx.Err()
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if err := c.sweep(ctx); err != nil && ctx.Err() == nil {
			c.o.Logger.Error("gate checks: remove old ones", "err", err)
		}
		select {
		case <-ctx.Done():
			c.queue.ShutDown()
			wg.Wait()
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (c *Controller) next(ctx context.Context) bool {
	key, end := c.queue.Get()
	if end {
		return false
	}
	defer c.queue.Done(key)
	if err := c.answer(ctx, key); err != nil && ctx.Err() == nil {
		c.o.Logger.Warn("gate check", "namespace", key.Namespace, "name", key.Name, "err", err)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

// answer writes the status of one that has none.
func (c *Controller) answer(ctx context.Context, key types.NamespacedName) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var g v1alpha1.GateCheck
	if err := c.o.Cache.Get(ctx, key, &g); err != nil {
		return client.IgnoreNotFound(err)
	}
	if g.Status.Verdict != "" || g.DeletionTimestamp != nil {
		return nil
	}
	var ns corev1.Namespace
	if err := c.o.Cache.Get(ctx, client.ObjectKey{Name: key.Namespace}, &ns); err != nil {
		return fmt.Errorf("namespace %s: %w", key.Namespace, err)
	}
	tenant := ns.Labels[fleet.LabelTenant]
	var status v1alpha1.GateCheckStatus
	switch {
	case tenant == "":
		status = held(fmt.Sprintf("namespace %s is no tenant's: ask in one of a tenant's namespaces", key.Namespace))
	case !c.enter(tenant):
		status = held(fmt.Sprintf("as many gate checks of tenant %s are being answered as may be at once, %d or fewer while other tenants ask; ask again in a few seconds", tenant, maxAtOnce))
	default:
		status = func() v1alpha1.GateCheckStatus {
			defer c.running.Give(tenant)
			return c.evaluate(ctx, tenant, &g)
		}()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	at := metav1.NewTime(c.o.Now())
	status.At = &at
	changed := g.DeepCopy()
	changed.Status = status
	if err := c.o.Client.Status().Patch(ctx, changed, client.MergeFrom(&g)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write the status: %w", err))
	}
	c.answered.WithLabelValues(string(status.Verdict)).Inc()
	return nil
}

// held is an answer without gates.
func held(message string) v1alpha1.GateCheckStatus {
	return v1alpha1.GateCheckStatus{Verdict: v1alpha1.GateUnknown, Message: message}
}

// enter says whether one more of the tenant may be answered now; then running.Give must follow.
func (c *Controller) enter(tenant string) bool {
	if !c.running.Take(tenant) {
		return false
	}
	if c.running.Held(tenant) > maxAtOnce {
		c.running.Give(tenant)
		return false
	}
	return true
}

// sweep removes checks that are old, and of a namespace the oldest if they are too many.
func (c *Controller) sweep(ctx context.Context) error {
	now := c.o.Now()
	c.memories.forget(now)
	var list v1alpha1.GateCheckList
	if err := c.o.Cache.List(ctx, &list); err != nil {
		return err
	}
	// The newest first.
	slices.SortFunc(list.Items, func(a, b v1alpha1.GateCheck) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	kept := map[string]int{}
	var errs []error
	for i := range list.Items {
		g := &list.Items[i]
		if kept[g.Namespace]++; now.Sub(g.CreationTimestamp.Time) < keepFor && kept[g.Namespace] <= maxKept {
			continue
		}
		err := c.o.Client.Delete(ctx, g, client.Preconditions{UID: &g.UID})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("%s/%s: %w", g.Namespace, g.Name, err))
		}
	}
	return errors.Join(errs...)
}
