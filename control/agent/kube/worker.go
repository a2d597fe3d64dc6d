package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/internal/backoff"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

const (
	reasonFetch  = "Fetching"
	reasonBundle = "Bundle"
	// Reasons that a namespace is the cause of begin so.
	reasonNamespace = "Namespace"
	reasonReplacing = "Replacing"

	// appliers is how many objects of one rank are applied at a time.
	appliers = 4
	// calm is how long nobody may interfere for the next mend to come at once.
	calm = 10 * time.Minute
)

// worker brings the cluster to the set. All of it belongs to the goroutine of run, but for
// what has a lock, since units of one rank are gone over several at a time.
type worker struct {
	*Kube
	mirror       *mirror
	setCondition func(typ, status, reason, message string)

	taken       *agent.Set // what plan was made of
	plan        plan
	watches     map[string]*kindWatch // by kindName
	down        error                 // the API server does not answer, or the cluster is another site's
	downs       int
	held        claim
	searched    bool // for owned objects of kinds that are not known
	swept       bool // DaemonSets that pulled images before the start
	unpublished bool // virtual hosts of a time when there were some
	pruneDue    bool
	pruneAt     time.Time // a removal is to be tried again
	prunes      int       // that failed in a row
	fresh       bool      // discovery was asked anew in this pass
	crds        bool      // CustomResourceDefinitions are watched
	began       time.Time // when Run did
	looked      bool      // all units have been looked at once
	begun       bool      // the Mirror was told to begin

	mu    sync.Mutex // of what follows
	state *state
	// tookOver is when the cluster was another site's last; zero: it was not.
	tookOver time.Time
	// answered is when the API server did last, while it does; up is how long it did before.
	answered time.Time
	up       time.Duration
	told     map[string]*wire.WorkloadStatus
	lost     map[string]bool // kinds, by kindName, that the site no longer knows
}

func (w *worker) run(ctx context.Context) {
	probe := time.NewTimer(0)
	defer probe.Stop()
	next := time.NewTimer(time.Hour)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-probe.C:
			w.probe(ctx)
			every := w.opts.ProbeEvery
			if w.down != nil {
				every = backoff.Jitter(backoff.Bound(w.downs, w.opts.MinBackoff, every))
			}
			probe.Reset(every)
		case <-w.wake:
		case <-next.C:
		}
		before := w.down
		w.pass(ctx)
		if before == nil && w.down != nil {
			probe.Reset(w.opts.MinBackoff)
		}
		next.Reset(w.nextLook())
	}
}

// probe finds out whether the API server is there.
func (w *worker) probe(ctx context.Context) {
	v, err := w.cluster.version(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		w.setDown(fmt.Errorf("%w: %w", errDown, err))
		return
	}
	if w.taken != nil {
		if err := w.claim(ctx); err != nil {
			if ctx.Err() == nil {
				w.setDown(err)
			}
			return
		}
	}
	if old := w.version.Swap(&v); old != nil && *old != v {
		w.cluster.mapper.Reset() // another version serves other kinds
	}
	w.answers()
	w.metrics.up.Set(1)
	w.setCondition(Reachable, "True", "Answers", "Kubernetes "+v)
	if w.down != nil {
		w.down, w.downs = nil, 0
		w.opts.Logger.Info("the site's API server answers", "version", v)
		for _, u := range w.plan.units {
			u.due, u.next, u.fails = true, time.Time{}, 0
		}
		w.pruneDue = true
	}
}

func (w *worker) setDown(err error) {
	w.downs++
	if w.down == nil {
		w.opts.Logger.Warn("the site's API server can't be used; trying again", "err", err)
	}
	w.down = err
	w.mu.Lock()
	w.answered = time.Time{}
	w.mu.Unlock()
	w.metrics.up.Set(0)
	w.setCondition(Reachable, "False", w.whyDown(), clip(err.Error()))
}

// answers notes that the API server does.
func (w *worker) answers() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if !w.answered.IsZero() {
		w.up += now.Sub(w.answered)
	}
	w.answered = now
}

// upTime is how long the API server has answered since the start.
func (w *worker) upTime() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.answered.IsZero() {
		return w.up
	}
	return w.up + time.Since(w.answered)
}

// unusable tells whether an error is about the cluster as a whole.
func unusable(err error) bool {
	return errors.Is(err, errDown) || errors.Is(err, errHeld) || errors.Is(err, errReadOnly)
}

// keeping calls fn, which may take long, and meanwhile sees to it that the cluster answers
// and stays this site's; else fn is ended.
func (w *worker) keeping(ctx context.Context, fn func(context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(w.opts.ProbeEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			_, err := w.cluster.version(ctx)
			if err != nil {
				err = fmt.Errorf("%w: %w", errDown, err)
			} else {
				w.answers()
				err = w.claim(ctx)
			}
			if err != nil && ctx.Err() == nil {
				end(err)
				return
			}
		}
	})
	err := fn(ctx)
	why := context.Cause(ctx)
	end(nil)
	wg.Wait()
	if unusable(why) {
		return why
	}
	return err
}

// whyDown is the reason of what waits while the cluster can't be used.
func (w *worker) whyDown() string {
	switch {
	case errors.Is(w.down, errHeld):
		return reasonHeld
	case errors.Is(w.down, errReadOnly):
		return reasonReadOnly
	}
	return reasonDown
}

// clip bounds a message for a person.
func clip(s string) string {
	const most = 1000
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// pass looks at what is due.
func (w *worker) pass(ctx context.Context) {
	w.takeSet()
	w.takeDirty()
	w.putAllAgain()
	defer w.begin()
	if w.taken == nil {
		return // nobody said yet what there should be
	}
	w.fresh = false
	if w.down == nil && !w.held.ours {
		if err := w.claim(ctx); err != nil && ctx.Err() == nil {
			w.setDown(err)
		}
	}
	if w.down == nil {
		if err := w.keeping(ctx, w.goOver); unusable(err) && ctx.Err() == nil {
			w.setDown(err)
		}
	}
	if w.down != nil && ctx.Err() == nil {
		w.reportDown()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.state.save(); err != nil {
		w.opts.Logger.Warn("can't write down what was applied", "err", err)
	}
}

// Before it begins, the Mirror waits so long for a set from the disk, and for what is to be
// mirrored, of which something may never come.
const (
	setGrace  = 5 * time.Second
	listGrace = time.Minute
)

// begin has the Mirror begin once what was there at the start is in it.
func (w *worker) begin() {
	since := time.Since(w.began)
	if w.begun || w.down != nil || w.Version() == "" || w.taken == nil && since < setGrace || w.taken != nil && !w.looked {
		return
	}
	if w.mirror.synced() || since > listGrace {
		w.begun = true
		w.mirror.out.Begin()
	}
}

// takeSet makes a plan of a new set.
func (w *worker) takeSet() {
	w.Kube.mu.Lock()
	s := w.set
	w.Kube.mu.Unlock()
	if s == w.taken {
		return
	}
	if w.taken == nil || len(s.Items) == 0 { // who waits until the site is empty hears of it
		w.pruneDue = true
	}
	before := w.plan.items
	if slices.ContainsFunc(w.plan.units, func(u *unit) bool { return u.puller != "" }) {
		w.swept = false // it may be of a unit that is no more
	}
	w.plan, w.taken = makePlan(s, w.plan), s
	for name := range before {
		if w.plan.items[name] == nil {
			w.pruneDue = true
		}
	}
	if w.pruneDue {
		w.mu.Lock()
		units := map[string]bool{}
		for _, u := range w.plan.units {
			units[u.key] = true
		}
		w.state.keep(func(name string) bool { return w.plan.items[name] != nil }, func(key string) bool { return units[key] })
		w.mu.Unlock()
	}
}

// takeDirty finds the units of what changed on the cluster.
func (w *worker) takeDirty() {
	w.Kube.mu.Lock()
	dirty := w.dirty
	w.dirty = map[string]bool{}
	w.Kube.mu.Unlock()
	namespaces := map[string]bool{}
	pods := map[string]bool{}
	for name := range dirty {
		if ns, ok := strings.CutPrefix(name, "Namespace/-/"); ok {
			namespaces[ns] = true
		}
		if ns, ok := strings.CutPrefix(name, podsOf("")); ok {
			pods[ns] = true
			continue
		}
		if name == anyKind {
			continue
		}
		it := w.plan.items[name]
		if it == nil {
			w.pruneDue = true
			continue
		}
		it.unit.due = true
		if w.lives.get(name) == nil {
			it.unit.soon() // what it may have waited for
		}
	}
	if len(namespaces)+len(pods) == 0 && !dirty[anyKind] {
		return
	}
	for _, it := range w.plan.items {
		if pods[it.namespace] && podSpecs[it.groupKind()] != nil {
			if l := w.lives.get(it.name); l != nil && l.verdict.state == workload.Progressing {
				it.unit.due = true
			}
		}
		if it.err == nil {
			continue
		}
		if namespaces[it.namespace] && strings.HasPrefix(it.err.reason, reasonNamespace) || dirty[anyKind] && it.err.reason == reasonUnknownKind {
			it.unit.soon()
		}
	}
}

// anyKind marks, among the dirty items, that the site may know more kinds.
const anyKind = "*"

// nextLook is how long nothing has to be looked at by itself.
func (w *worker) nextLook() time.Duration {
	if w.down != nil || w.taken == nil {
		return time.Hour // the probe, or a set
	}
	next := time.Now().Add(time.Hour)
	for _, u := range w.plan.units {
		if u.due {
			return time.Millisecond
		}
		if !u.next.IsZero() && u.next.Before(next) {
			next = u.next
		}
	}
	if !w.pruneAt.IsZero() && w.pruneAt.Before(next) {
		next = w.pruneAt
	}
	return max(time.Until(next), 10*time.Millisecond)
}

// goOver takes the units that are due, in order, and removes what is to go.
func (w *worker) goOver(ctx context.Context) error {
	if err := w.watchKnown(ctx); err != nil {
		return err
	}
	now := time.Now()
	for i := 0; i < len(w.plan.units); {
		rank := w.plan.units[i].rank
		var due []*unit
		for ; i < len(w.plan.units) && w.plan.units[i].rank == rank; i++ {
			if u := w.plan.units[i]; u.due || !u.next.IsZero() && !u.next.After(now) {
				due = append(due, u)
			}
		}
		if err := w.stepAll(ctx, due); err != nil {
			return err
		}
		w.Kube.mu.Lock()
		newer := w.set != w.taken
		w.Kube.mu.Unlock()
		if newer || ctx.Err() != nil {
			return ctx.Err() // what is still due comes with the next
		}
	}
	w.looked = true
	if !w.swept {
		if err := w.sweepPullers(ctx); err != nil {
			return err
		}
		w.swept = true
	}
	if !w.opts.VirtualHosts && !w.unpublished {
		err := explain(w.unpublish(ctx, nil), schema.GroupVersionKind{Version: "v1", Kind: "Service"}, w.Version())
		if errors.Is(err, errDown) {
			return err
		}
		w.unpublished = err == nil // else the next pass tries again
	}
	if w.pruneDue || !w.pruneAt.IsZero() && !w.pruneAt.After(now) {
		return w.prune(ctx)
	}
	return nil
}

// stepAll takes units of one rank, several at a time.
func (w *worker) stepAll(ctx context.Context, due []*unit) error {
	for _, u := range due {
		if err := w.watchUnit(ctx, u); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var down error
	turn := make(chan struct{}, appliers)
	for _, u := range due {
		turn <- struct{}{}
		mu.Lock()
		stop := down != nil || ctx.Err() != nil
		mu.Unlock()
		if stop {
			break
		}
		wg.Go(func() {
			defer func() { <-turn }()
			err := w.step(ctx, u)
			if err != nil {
				mu.Lock()
				down = err
				mu.Unlock()
				return
			}
			u.due = false
		})
	}
	wg.Wait()
	return errors.Join(down, ctx.Err())
}

// watchKnown watches namespaces, and the kinds of which there may be objects to remove.
func (w *worker) watchKnown(ctx context.Context) error {
	namespace := schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	if w.state.Kinds == nil { // before the first watch is noted there
		found, err := w.cluster.search(ctx)
		if err != nil {
			return err
		}
		for _, gvk := range found {
			w.state.kind(kindName(gvk))
		}
	}
	if err := w.watch(ctx, namespace); err != nil {
		return fmt.Errorf("%w: %w", errDown, err)
	}
	if w.searched {
		return nil
	}
	for name := range w.state.Kinds {
		gvk, err := parseKindName(name)
		if err != nil {
			continue
		}
		if err := w.watch(ctx, gvk); errors.Is(err, errDown) {
			return err
		} else if err != nil {
			w.opts.Logger.Warn("can't look for objects to remove", "kind", name, "err", err)
		}
	}
	w.searched, w.pruneDue = true, true
	return nil
}

// watch watches the owned objects of a kind, if that is not done yet.
func (w *worker) watch(ctx context.Context, gvk schema.GroupVersionKind) error {
	name := kindName(gvk)
	if w.watches[name] != nil {
		return nil
	}
	m, err := w.cluster.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil && meta.IsNoMatchError(err) && !w.fresh {
		w.fresh = true
		w.cluster.mapper.Reset()
		m, err = w.cluster.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	if err != nil {
		return explain(err, gvk, w.Version())
	}
	kw, err := w.cluster.watchKind(ctx, w.lives, gvk, m.Resource)
	if err != nil {
		return explain(err, gvk, w.Version())
	}
	w.watches[name] = kw
	w.state.kind(name)
	return nil
}

// watchUnit watches the kinds of a unit; what can't be watched fails its item.
func (w *worker) watchUnit(ctx context.Context, u *unit) error {
	for _, it := range u.items {
		if it.of != it.wanted || it.bad != nil {
			continue
		}
		name := kindName(it.facts.gvk)
		w.mu.Lock()
		lost := w.lost[name]
		delete(w.lost, name)
		w.mu.Unlock()
		if kw := w.watches[name]; kw != nil && lost {
			kw.stop()
			delete(w.watches, name)
			w.cluster.mapper.Reset()
		}
		if w.watches[name] == nil && it.watchErr != nil && !w.tries(u) {
			continue
		}
		it.watchErr = nil
		err := w.watch(ctx, it.facts.gvk)
		if errors.Is(err, errDown) {
			return err
		}
		if err != nil && !errors.As(err, &it.watchErr) {
			it.watchErr = refuse("Refused", "%w", err)
		}
		if it.watchErr != nil && it.watchErr.reason == reasonUnknownKind && !w.crds {
			w.crds = true
			w.cluster.watchCRDs(func() { w.touch(anyKind) })
		}
	}
	return nil
}

// tries tells whether the time has come to try again what failed.
func (w *worker) tries(u *unit) bool { return u.fails == 0 || !u.again.After(time.Now()) }
