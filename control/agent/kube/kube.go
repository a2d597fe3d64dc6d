package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/wire"
)

// Mirror takes what runs on the cluster, for control; of what changes often it tells the
// newest now and then. Its methods are called from several goroutines and must not block.
type Mirror interface {
	// Begin is called once all that was there at the start has been put.
	Begin()

	Put(*wire.Mirrored)
	PutWorkload(*wire.WorkloadStatus)
	// Drop takes a key (wire.KeyOf, wire.WorkloadKey) of what is no more.
	Drop(key string)

	// LeftOut is how much of what was put is not passed on, since it is too large or too much:
	// Limits says in words what that is.
	LeftOut() int
	Limits() string
	// Again tells whether there is room again for that: all is to be put again.
	Again() bool
}

// Conditions of the site that this package sets.
const (
	// Reachable is False while the site's API server can't be reached, or the cluster is
	// another site's.
	Reachable = "KubernetesReachable"
	// Mirrored is False while there is more on the cluster than is mirrored.
	Mirrored = "KubernetesMirrored"
)

// Options of New; Dir and Logger are required.
type Options struct {
	Dir        string // for the state; made if it is missing
	Kubeconfig string // a file; empty: the pod's service account
	Config     *rest.Config
	// Address at which pods reach this process, for virtual hosts; empty: the pod's own.
	Address string
	// VirtualHosts: Publish is called. Else what was published before is removed.
	VirtualHosts bool
	Logger       *slog.Logger
	Registerer   prometheus.Registerer // nil: no metrics

	// What is mirrored at most; the defaults are 2,000 pods, 2,000 events, 500 nodes.
	MaxPods, MaxEvents, MaxNodes int

	// Timing; the defaults are for the field.
	ClaimFor   time.Duration // how long a cluster stays the site's whose agent is silent, and how long after that nothing of that one's is removed, default 5 min
	MinBackoff time.Duration // of what was refused, default 1 s
	MaxBackoff time.Duration // default 5 min
	ProbeEvery time.Duration // how often to ask whether the API server is there, default 15 s
}

// Kube is the agent on the site's cluster. Safe for concurrent use.
type Kube struct {
	opts    Options
	cluster *cluster
	metrics metrics
	version atomic.Pointer[string]
	ours    atomic.Bool // the cluster is this site's

	mu    sync.Mutex
	set   *agent.Set // the newest; nil: none yet
	dirty map[string]bool
	wake  chan struct{}
	again bool // what became of items is to be told again
	left  int  // owned objects that the newest set does not name; -1: not counted yet

	lives      *lives
	namespaces chan struct{} // which are Muster's may be others
	up         upstream
	sessions   atomic.Int32
}

type metrics struct {
	applies *prometheus.CounterVec
	mended  prometheus.Counter
	pruned  prometheus.Counter
	rolled  prometheus.Counter
	up      prometheus.Gauge
}

// New reads how to reach the cluster. It does not go there yet: a cluster that is down is
// for Run to wait for.
func New(o Options) (*Kube, error) {
	o.MaxPods, o.MaxEvents, o.MaxNodes = cmp.Or(max(o.MaxPods, 0), 2000), cmp.Or(max(o.MaxEvents, 0), 2000), cmp.Or(max(o.MaxNodes, 0), 500)
	o.MinBackoff, o.MaxBackoff = cmp.Or(max(o.MinBackoff, 0), time.Second), cmp.Or(max(o.MaxBackoff, 0), 5*time.Minute)
	o.ProbeEvery = cmp.Or(max(o.ProbeEvery, 0), 15*time.Second)
	o.ClaimFor = cmp.Or(max(o.ClaimFor, 0), 5*time.Minute)
	cfg := o.Config
	if cfg == nil {
		var err error
		if cfg, err = config(o.Kubeconfig); err != nil {
			return nil, err
		}
	}
	c, err := newCluster(cfg, o.Logger)
	if err != nil {
		return nil, err
	}
	if err := disk.MkdirAll(disk.OS{}, o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("kubernetes state: %w", err)
	}
	k := &Kube{opts: o, cluster: c, dirty: map[string]bool{}, wake: make(chan struct{}, 1), namespaces: make(chan struct{}, 1), metrics: metrics{
		applies: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_kube_applies_total", Help: "Objects applied to the site's cluster, by result."}, []string{"result"}),
		mended:  prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_kube_mended_total", Help: "Objects put back that somebody had changed or removed on the site."}),
		pruned:  prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_kube_pruned_total", Help: "Objects removed because control took them away."}),
		rolled:  prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_kube_rolled_back_total", Help: "Versions given up for the last good one."}),
		up:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_kube_reachable", Help: "1 while the site's API server answers."}),
	}}
	k.lives = &lives{m: map[string]*live{}, touched: k.touch}
	if o.Registerer != nil {
		o.Registerer.MustRegister(k.metrics.applies, k.metrics.mended, k.metrics.pruned, k.metrics.rolled, k.metrics.up)
	}
	return k, nil
}

// TakeSet implements agent.SetApplier.
func (k *Kube) TakeSet(s agent.Set) {
	k.mu.Lock()
	k.set, k.left = &s, -1
	k.mu.Unlock()
	k.poke()
}

// Left says in words what is still on the cluster, though the newest set does not name it;
// empty: nothing, or nobody has set anything.
func (k *Kube) Left() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.set == nil || k.left == 0:
		return ""
	case k.left < 0:
		return "workloads, which are not counted yet"
	}
	return fmt.Sprintf("%d objects of workloads", k.left)
}

// touch marks an item to be looked at again.
func (k *Kube) touch(item string) {
	k.mu.Lock()
	k.dirty[item] = true
	k.mu.Unlock()
	if strings.HasPrefix(item, "Namespace/") {
		select {
		case k.namespaces <- struct{}{}:
		default:
		}
	}
	k.poke()
}

func (k *Kube) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Version is that of the site's API server, as it was last told; empty: never.
func (k *Kube) Version() string {
	if v := k.version.Load(); v != nil {
		return *v
	}
	return ""
}

// Run works until ctx ends. setCondition is that of the agent. It is called once.
func (k *Kube) Run(ctx context.Context, m Mirror, setCondition func(typ, status, reason, message string)) error {
	st, err := loadState(k.opts.Dir)
	if err != nil {
		k.opts.Logger.Warn("what was applied before is not known; all is applied again", "err", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	k.cluster.ctx = ctx
	mir := newMirror(k, m, setCondition)
	w := &worker{
		Kube: k, mirror: mir, began: time.Now(), state: st, setCondition: setCondition,
		watches: map[string]*kindWatch{}, told: map[string]*wire.WorkloadStatus{}, lost: map[string]bool{},
	}
	var wg sync.WaitGroup
	wg.Go(func() { mir.run(ctx) })
	w.run(ctx)
	cancel()
	wg.Wait()
	k.cluster.wg.Wait()
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return ctx.Err()
}
