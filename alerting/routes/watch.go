package routes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/fleet"
)

// ConditionApplied is the condition of an AlertRoute that the watcher writes.
const ConditionApplied = "Applied"

// WatcherOptions of a Watcher. All but Registerer and the durations are needed.
//
// The API server must allow: alertroutes get, list and watch; alertroutes/status
// patch; secrets get. Secrets are neither listed nor watched: those that AlertRoutes
// name are read one by one.
type WatcherOptions struct {
	// Cache of the API server; somebody else starts it, and may do so at any time.
	Cache cache.Cache
	// Client reads Secrets and writes status. It must not read from a cache.
	Client client.Client
	// Apply runs a configuration; it is called by one goroutine at a time, with the same
	// one again and again. A *TryLater says that there is nobody to run it just now.
	Apply func(config []byte) error
	// Reach says whether receivers may connect to HOST:PORT; nil: to all.
	Reach func(address string) error
	// File keeps the last configuration, with its secrets, mode 0600.
	File string
	// Debounce is how long changes are collected; default 500 ms.
	Debounce time.Duration
	// Every is how often secrets are read again; default 1 min.
	Every      time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Watcher keeps Alertmanager's configuration as the AlertRoutes say.
type Watcher struct {
	opts    WatcherOptions
	log     *slog.Logger
	changed chan struct{}
	last    []byte

	good, bad prometheus.Gauge
	applied   prometheus.Gauge

	mu  sync.Mutex
	err error
}

// NewWatcher applies the configuration on disk, or one without any route if there is
// none, so that Alertmanager works before the API server answers.
func NewWatcher(o WatcherOptions) (*Watcher, error) {
	if o.Cache == nil || o.Client == nil || o.Apply == nil || o.File == "" || o.Logger == nil {
		return nil, errors.New("alert routes: Cache, Client, Apply, File and Logger must be set")
	}
	if o.Debounce <= 0 {
		o.Debounce = 500 * time.Millisecond
	}
	if o.Every <= 0 {
		o.Every = time.Minute
	}
	w := &Watcher{opts: o, log: o.Logger, changed: make(chan struct{}, 1), err: errors.New("alert routes: the API server has not answered yet")}
	f := promauto.With(o.Registerer)
	w.good = f.NewGauge(prometheus.GaugeOpts{Name: "muster_alert_routes", Help: "AlertRoutes in Alertmanager's configuration."})
	w.bad = f.NewGauge(prometheus.GaugeOpts{Name: "muster_alert_routes_invalid", Help: "AlertRoutes that can't be used; their status says why."})
	w.applied = f.NewGauge(prometheus.GaugeOpts{Name: "muster_alert_routes_applied_timestamp_seconds", Help: "When the AlertRoutes were last merged and applied."})
	if err := disk.MkdirAll(disk.OS{}, filepath.Dir(o.File), 0o700); err != nil {
		return nil, fmt.Errorf("alert routes: %w", err)
	}
	b, err := os.ReadFile(o.File)
	if errors.Is(err, fs.ErrNotExist) {
		if b, _, err = Merge(nil, nil, nil); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, fmt.Errorf("alert routes: %w", err)
	}
	if err := o.Apply(b); err != nil {
		// Written by another version, perhaps. The API server has the truth.
		w.log.Error("the alert routes on disk can't be used", "file", o.File, "err", err)
		return w, nil
	}
	w.last = b
	return w, nil
}

// Fresh is nil once the configuration is the API server's, and an error while it is
// still the one from disk or the last merge failed.
func (w *Watcher) Fresh() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Run merges on every change until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	informer, err := w.opts.Cache.GetInformer(ctx, &v1alpha1.AlertRoute{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("alert routes: watch: %w", err)
	}
	handle, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { w.touch() },
		UpdateFunc: func(old, new any) {
			a, okA := old.(*v1alpha1.AlertRoute)
			b, okB := new.(*v1alpha1.AlertRoute)
			if !okA || !okB || a.Generation != b.Generation { // status is our own doing
				w.touch()
			}
		},
		DeleteFunc: func(any) { w.touch() },
	})
	if err != nil {
		return fmt.Errorf("alert routes: watch: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(handle) }()
	if !toolscache.WaitForCacheSync(ctx.Done(), handle.HasSynced) {
		return ctx.Err()
	}
	w.touch() // if there are none at all
	every := time.NewTicker(w.opts.Every)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every.C:
		case <-w.changed:
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(w.opts.Debounce):
			}
			select {
			case <-w.changed:
			default:
			}
		}
		err := w.once(ctx)
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			w.log.Error("alert routes: the former configuration runs on", "err", err)
		}
	}
}

func (w *Watcher) touch() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *Watcher) once(ctx context.Context) error {
	var l v1alpha1.AlertRouteList
	if err := w.opts.Cache.List(ctx, &l); err != nil {
		return fmt.Errorf("list alert routes: %w", err)
	}
	var objects []Object
	items := map[ID]*v1alpha1.AlertRoute{}
	for i := range l.Items {
		r := &l.Items[i]
		if tenant, ok := fleet.TenantOfSystemNamespace(r.Namespace); ok && r.DeletionTimestamp.IsZero() {
			id := ID{tenant, r.Name}
			objects = append(objects, Object{ID: id, Spec: &r.Spec})
			items[id] = r
		}
	}
	config, results, err := Merge(objects, w.secrets(ctx), w.opts.Reach)
	if err != nil {
		return err
	}
	refused := w.opts.Apply(config)
	var away *TryLater
	isAway := errors.As(refused, &away)
	bad := 0
	for id, r := range results {
		if refused != nil && r.Err == nil {
			r.Reason, r.Err = ReasonRefused, errors.New("Alertmanager refused the merged configuration; the alerting role's log says why")
			if isAway {
				r.Reason, r.Err = ReasonAway, errors.New("no Alertmanager answers; it is asked again every minute")
			}
			results[id] = r
		}
		if r.Err != nil {
			bad++
		}
	}
	w.good.Set(float64(len(results) - bad))
	w.bad.Set(float64(bad))
	errs := []error{refused}
	if refused == nil {
		w.applied.SetToCurrentTime()
	}
	if refused == nil || isAway {
		errs = append(errs, w.keep(config))
	}
	for _, id := range slices.SortedFunc(maps.Keys(results), func(a, b ID) int { return strings.Compare(a.String(), b.String()) }) {
		errs = append(errs, w.report(ctx, items[id], results[id]))
	}
	return errors.Join(errs...)
}

// secrets reads each Secret once in a merge.
func (w *Watcher) secrets(ctx context.Context) SecretFunc {
	type answer struct {
		secret *corev1.Secret
		err    error
	}
	known := map[client.ObjectKey]answer{}
	return func(tenant, name, key string) (string, error) {
		at := client.ObjectKey{Namespace: fleet.SystemNamespace(tenant), Name: name}
		a, ok := known[at]
		if !ok {
			a.secret = &corev1.Secret{}
			switch err := w.opts.Client.Get(ctx, at, a.secret); {
			case apierrors.IsNotFound(err):
				a.err = fmt.Errorf("there is no Secret of this name in namespace %s", at.Namespace)
			case err != nil:
				a.err = &TryLater{fmt.Errorf("read Secret %s: %w", at, err)}
			}
			known[at] = a
		}
		if a.err != nil {
			return "", a.err
		}
		v, ok := a.secret.Data[key]
		if !ok {
			return "", errors.New("the Secret has no such key")
		}
		return string(v), nil
	}
}

func (w *Watcher) keep(config []byte) error {
	if string(config) == string(w.last) {
		if _, err := os.Stat(w.opts.File); err == nil {
			return nil
		}
	}
	if err := atomicfile.Write(w.opts.File, config, 0o600); err != nil {
		return fmt.Errorf("keep the configuration: %w", err)
	}
	w.last = config
	return nil
}

// maxMessage of a condition, in bytes; the API allows 32,768.
const maxMessage = 4000

func (w *Watcher) report(ctx context.Context, r *v1alpha1.AlertRoute, res Result) error {
	was := r.DeepCopy()
	now := r.DeepCopy()
	c := metav1.Condition{Type: ConditionApplied, Status: metav1.ConditionTrue, Reason: res.Reason, ObservedGeneration: r.Generation, Message: "in Alertmanager's configuration"}
	now.Status.Receivers = int32(res.Receivers) //nolint:gosec // at most 50
	if res.Err != nil {
		c.Status, c.Message = metav1.ConditionFalse, res.Err.Error()
		if len(c.Message) > maxMessage {
			c.Message = strings.ToValidUTF8(c.Message[:maxMessage], "") + "…"
		}
	}
	changed := meta.SetStatusCondition(&now.Status.Conditions, c)
	if !changed && was.Status.Receivers == now.Status.Receivers {
		return nil
	}
	if err := w.opts.Client.Status().Patch(ctx, now, client.MergeFrom(was)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("status of alert route %s/%s: %w", r.Namespace, r.Name, err)
	}
	return nil
}
