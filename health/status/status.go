// Package status writes the transitions of health back into the status of Sites and
// HealthPolicies, as few of them as people need: the API server is not where scores
// live. The engine reports everything; cmd/internal runs the Writer.
package status

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

// FieldManager owns the fields of status that health writes.
const FieldManager = "muster-health"

// When a site's status is written: its colour changed, its score moved by as much
// as scoreStep since it was written, or it differs at all and refreshAfter is over.
const (
	scoreStep    = 5
	refreshAfter = 10 * time.Minute
	// comes is how long a site that is new has to connect. Until then nothing is written of it: a
	// fleet that joins at once would cost a write a site that says no more than its phase does.
	comes = 30 * time.Second
	// policyEvery bounds how often the text of a policy's condition is rewritten.
	policyEvery = 30 * time.Second
	maxMessage  = 2000
	writers     = 4
)

// SiteReport is a site's health, for its status.
type SiteReport struct {
	Site   *inventory.Site
	Score  float64
	Known  bool
	Colour fleet.Colour
	Reason string
	Since  time.Time
	// Never: it has not connected yet.
	Never bool
}

// PolicyReport is how a policy fares, for its status.
type PolicyReport struct {
	Policy *inventory.Policy
	Err    error // what is wrong with the policy itself
	Sites  int
	// Failing lists "signal: error", in the order of the policy.
	Failing []string
	// Shadow: it counts for nothing; WouldChange of its sites would have another colour,
	// Examples are some of them.
	Shadow      bool
	WouldChange int
	Examples    []string
}

// ReportSites takes the health of sites and writes what changed enough, within the
// bound of writes a second; changes of colour go first. A write that fails is made
// again after a later report. It doesn't wait.
func (w *Writer) ReportSites(reports []SiteReport) { w.sites(reports) }

// ForgetSites takes sites that are gone from the inventory: nothing is kept of them, and one that
// comes under such a name is new.
func (w *Writer) ForgetSites(gone []fleet.SiteID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range gone {
		w.forget(objectKey{fleet.SystemNamespace(id.Tenant), id.Name})
	}
}

// forget leaves what waits to be written: it finds no site, or the new one.
func (w *Writer) forget(key objectKey) {
	delete(w.last, key)
	delete(w.never, key)
	if _, busy := w.busy[key]; busy {
		w.busy[key] = false
	}
}

// ReportPolicies takes how all policies fare and writes what changed. It doesn't wait.
func (w *Writer) ReportPolicies(reports []PolicyReport) { w.policies(reports) }

// Options of a Writer. Client and Logger are needed.
type Options struct {
	Client     client.Client
	Logger     *slog.Logger
	Registerer prometheus.Registerer // may be nil
	Now        func() time.Time      // nil: time.Now
	// WritesPerSecond bounds the writes; 0: 50.
	WritesPerSecond float64
}

type objectKey struct{ namespace, name string }

// Writer writes. Safe for concurrent use.
type Writer struct {
	client  client.Client
	log     *slog.Logger
	now     func() time.Time
	limit   *rate.Limiter
	written prometheus.Counter
	failed  prometheus.Counter
	pending prometheus.Gauge

	mu     sync.Mutex
	wake   chan struct{}
	line   line
	want   map[objectKey]*unstructured.Unstructured // queued
	busy   map[objectKey]bool                       // being written; false: of a site that is gone meanwhile
	last   map[objectKey]time.Time                  // when a site was written
	never  map[objectKey]time.Time                  // sites that had not connected when they were written last, or yet: since when they are told of
	policy map[objectKey]policyWritten
	start  time.Time
}

type policyWritten struct {
	uid     types.UID // of the object: one that is made anew under the name has no status
	at      time.Time
	sites   int
	message string
	gen     int64
	status  string
	since   time.Time
	shadow  string
}

// New returns a Writer; Run makes it write.
func New(o Options) *Writer {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.WritesPerSecond == 0 {
		o.WritesPerSecond = 50
	}
	w := &Writer{
		client: o.Client, log: o.Logger, now: o.Now, limit: rate.NewLimiter(rate.Limit(o.WritesPerSecond), max(1, int(o.WritesPerSecond))),
		written: prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_health_status_writes_total", Help: "Writes of status to the API server."}),
		failed:  prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_health_status_write_failures_total", Help: "Writes of status that failed; they are made again."}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_health_status_writes_pending", Help: "Writes of status that wait for their turn."}),
		wake:    make(chan struct{}, writers), want: map[objectKey]*unstructured.Unstructured{}, busy: map[objectKey]bool{},
		line: line{of: map[string]*waiting{}}, last: map[objectKey]time.Time{}, never: map[objectKey]time.Time{}, policy: map[objectKey]policyWritten{}, start: o.Now(),
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(w.written, w.failed, w.pending)
	}
	return w
}

// due says whether a site's status must be written, and whether at once.
func (w *Writer) due(r *SiteReport) (write, urgent bool) {
	old := r.Site.Health
	key := objectKey{fleet.SystemNamespace(r.Site.ID.Tenant), r.Site.ID.Name}
	if old == nil && r.Never && !r.Known && w.now().Sub(w.never[key]) < comes {
		return false, false
	}
	if old == nil || old.Colour != r.Colour {
		return true, true
	}
	score, known := statusScore(r)
	if known != (old.Score != nil) {
		return true, false
	}
	if known && abs(score-*old.Score) >= scoreStep {
		return true, false
	}
	if known && score == *old.Score && r.Reason == old.Reason || !known && r.Reason == old.Reason {
		return false, false
	}
	last, ok := w.last[key]
	if !ok {
		// Spread what a restart makes due over the whole time.
		h := fnv.New32a()
		h.Write([]byte(r.Site.ID.String()))
		last = w.start.Add(-time.Duration(float64(refreshAfter) * float64(h.Sum32()) / math.MaxUint32))
		w.last[key] = last
	}
	return w.now().Sub(last) >= refreshAfter, false
}

func abs(x int32) int32 { return max(x, -x) }

func statusScore(r *SiteReport) (int32, bool) { return int32(math.Floor(r.Score)), r.Known }

func (w *Writer) sites(reports []SiteReport) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range reports {
		r := &reports[i]
		key := objectKey{fleet.SystemNamespace(r.Site.ID.Tenant), r.Site.ID.Name}
		_, never := w.never[key]
		if r.Never && !never {
			w.never[key] = w.now()
		}
		write, urgent := w.due(r)
		if _, busy := w.busy[key]; !write && (r.Never || !never) || busy {
			continue
		}
		if !r.Never {
			delete(w.never, key)
		}
		h := map[string]any{"colour": string(r.Colour), "reason": clip(r.Reason), "since": r.Since.UTC().Format(time.RFC3339)}
		if score, known := statusScore(r); known {
			h["score"] = int64(score)
		}
		w.queue(key, urgent, object("Site", key, map[string]any{"health": h}))
	}
	w.pending.Set(float64(len(w.want)))
}

func object(kind string, key objectKey, status map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind,
		"metadata": map[string]any{"namespace": key.namespace, "name": key.name},
		"status":   status,
	}}
}

func clip(s string) string {
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + " …"
	}
	return s
}

// queue puts the newest wish of an object in place of an older one.
func (w *Writer) queue(key objectKey, urgent bool, u *unstructured.Unstructured) {
	if u.GetKind() != "Site" {
		key.name = u.GetKind() + "/" + key.name // no object's name has a slash
	}
	if _, queued := w.want[key]; !queued {
		w.line.put(key, urgent)
	}
	w.want[key] = u
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *Writer) policies(reports []PolicyReport) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	reports = together(reports)
	before := w.policy
	w.policy = make(map[objectKey]policyWritten, len(reports)) // of those that are gone nothing is kept
	for i := range reports {
		r := &reports[i]
		key := objectKey{fleet.SystemNamespace(r.Policy.Tenant), r.Policy.Name}
		status, reason, message := "True", "AllSignalsAnswer", "every signal has an answer"
		if len(r.Failing) > 0 {
			status, reason = "False", "SignalsFail"
			message = fmt.Sprintf("%d signals fail: %s", len(r.Failing), strings.Join(r.Failing, "; "))
		}
		if r.Err != nil {
			status, reason, message = "False", "Invalid", "the policy can't be used as it is: "+r.Err.Error()
		}
		message = clip(message)
		old, ok := before[key]
		if ok = ok && old.uid == r.Policy.Object.GetUID(); !ok {
			old = policyWritten{}
		}
		next := policyWritten{uid: r.Policy.Object.GetUID(), at: now, shadow: shadowOf(r), sites: r.Sites, message: message, gen: r.Policy.Generation, status: status, since: old.since}
		if !ok || old.status != status {
			next.since = now
		}
		same := ok && old.shadow == next.shadow && old.sites == next.sites && old.message == next.message && old.gen == next.gen && old.status == next.status
		soon := ok && old.status == next.status && old.gen == next.gen && now.Sub(old.at) < policyEvery
		if same || soon {
			w.policy[key] = old
			continue
		}
		w.policy[key] = next
		fields := map[string]any{
			"sites": int64(r.Sites),
			"conditions": []any{map[string]any{
				"type": "SignalsHealthy", "status": status, "reason": reason, "message": message,
				"observedGeneration": r.Policy.Generation, "lastTransitionTime": next.since.UTC().Format(time.RFC3339),
			}},
		}
		if r.Shadow {
			examples := make([]any, len(r.Examples))
			for i, x := range r.Examples {
				examples[i] = clip(x)
			}
			fields["shadow"] = map[string]any{"wouldChange": int64(r.WouldChange), "examples": examples}
		}
		w.queue(key, true, object("HealthPolicy", key, fields))
	}
}

// together makes one report of those of a policy under a rollout, of which there is one a
// content: they share a status.
func together(reports []PolicyReport) []PolicyReport {
	out := make([]PolicyReport, 0, len(reports))
	at := map[objectKey]int{}
	for _, r := range reports {
		key := objectKey{r.Policy.Tenant, r.Policy.Name}
		i, seen := at[key]
		if !seen {
			at[key] = len(out)
			out = append(out, r)
			continue
		}
		x := &out[i]
		x.Sites, x.WouldChange = x.Sites+r.Sites, x.WouldChange+r.WouldChange
		x.Shadow = x.Shadow || r.Shadow
		x.Err = cmp.Or(x.Err, r.Err)
		for _, f := range r.Failing {
			if !slices.Contains(x.Failing, f) {
				x.Failing = append(slices.Clip(x.Failing), f)
			}
		}
		x.Examples = slices.Concat(x.Examples, r.Examples)
	}
	return out
}

// shadowOf is what of a policy in shadow is worth a write: numbers in reasons drift.
func shadowOf(r *PolicyReport) string {
	text := fmt.Sprint(r.Shadow, r.WouldChange)
	for _, x := range r.Examples {
		site, rest, _ := strings.Cut(x, ": ")
		colours, _, _ := strings.Cut(rest, ": ")
		text += " " + site + " " + colours
	}
	return text
}

func (w *Writer) next() (objectKey, *unstructured.Unstructured, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key, ok := w.line.next()
	if !ok {
		return objectKey{}, nil, false
	}
	u := w.want[key]
	delete(w.want, key)
	w.busy[key] = true
	w.pending.Set(float64(len(w.want)))
	return key, u, true
}

// line is who waits to be written. Tenants, which are their namespaces, go in turns, so that
// one whose sites all change colour all the time holds up its own; of each, changes of
// colour go first.
type line struct {
	of    map[string]*waiting
	turns []string // whose next one is written when
}

type waiting struct{ urgent, later []objectKey } // in order

func (l *line) put(key objectKey, urgent bool) {
	w := l.of[key.namespace]
	if w == nil {
		w = &waiting{}
		l.of[key.namespace] = w
		l.turns = append(l.turns, key.namespace)
	}
	if urgent {
		w.urgent = append(w.urgent, key)
	} else {
		w.later = append(w.later, key)
	}
}

func (l *line) next() (key objectKey, ok bool) {
	if len(l.turns) == 0 {
		return key, false
	}
	name := l.turns[0]
	l.turns = l.turns[1:]
	w := l.of[name]
	if len(w.urgent) > 0 {
		key, w.urgent = w.urgent[0], w.urgent[1:]
	} else {
		key, w.later = w.later[0], w.later[1:]
	}
	if len(w.urgent)+len(w.later) == 0 {
		delete(l.of, name)
	} else {
		l.turns = append(l.turns, name)
	}
	return key, true
}

// Run writes until ctx ends.
func (w *Writer) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for {
				key, u, ok := w.next()
				if !ok {
					select {
					case <-ctx.Done():
						return
					case <-w.wake:
						continue
					}
				}
				if w.limit.Wait(ctx) != nil {
					return
				}
				w.done(key, u, w.apply(ctx, u))
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}

func (w *Writer) apply(ctx context.Context, u *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return w.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(FieldManager), client.ForceOwnership)
}

func (w *Writer) done(key objectKey, u *unstructured.Unstructured, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.busy[key]
	delete(w.busy, key)
	switch {
	case err == nil:
		w.written.Inc()
		if u.GetKind() == "Site" && known {
			w.last[key] = w.now()
		}
		return
	case apierrors.IsNotFound(err): // deleted meanwhile
		w.forget(key)
	default:
		w.failed.Inc()
		w.log.Warn("can't write status", "kind", u.GetKind(), "namespace", u.GetNamespace(), "name", u.GetName(), "err", err)
	}
	if u.GetKind() == "HealthPolicy" {
		delete(w.policy, objectKey{u.GetNamespace(), u.GetName()})
	}
}
