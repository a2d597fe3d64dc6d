package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/internal/backoff"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// what compare finds out.
type todo int

const (
	nothing todo = iota
	put          // apply it
	mend         // apply it again: somebody changed it
	remove
)

// compare says what is to be done so that the item is there with the digest; empty: that
// it is not there. It asks nobody.
func (w *worker) compare(it *item, digest string) (todo, *refusal) {
	it.drifted = false
	l := w.lives.get(it.name)
	w.mu.Lock()
	was := w.state.Items[it.name]
	w.mu.Unlock()
	switch {
	case digest == "":
		if l == nil || l.deleting || l.digest == "" {
			return nothing, nil
		}
		return remove, nil
	case l == nil && was.Digest != digest:
		return put, nil
	case l == nil && it.facts.ttl:
		return nothing, nil // it ran, and removed itself
	case l == nil:
		it.drifted = true
		if it.facts.leave {
			r := refuse("RemovedOnSite", "somebody removed it on the site, or took its label %s away, and %s is %s", workload.Owned, workload.Drift, workload.Leave)
			r.settled = true
			return nothing, r
		}
		return mend, nil
	case l.deleting:
		return nothing, wait("Terminating", "the one that is there is being deleted on the site")
	case l.digest != digest, was.Digest != digest:
		return put, nil
	case l.fields == was.Fields:
		return nothing, nil
	}
	it.drifted = true
	it.by = l.other
	if it.facts.leave {
		return nothing, nil
	}
	return mend, nil
}

// step looks at a unit, does what is to be done, and tells how it stands. It returns an
// error only if the API server can't be reached.
func (w *worker) step(ctx context.Context, u *unit) error {
	w.mu.Lock()
	su := w.state.Units[u.key]
	w.mu.Unlock()
	if su.Version != u.version {
		su = savedUnit{Version: u.version}
	}
	if refused := w.refusedOnSite(u); su.Stands && !refused {
		su = savedUnit{Version: u.version}
	} else if refused && !su.RolledBack {
		su = savedUnit{Version: u.version, RolledBack: true, Stands: true, Reason: "NotReady", Message: "it was rolled back; what runs instead is left as it is, since the site has lost what to go back to"}
	}
	try, first := w.tries(u), ""
	u.next = time.Time{}
	if su.Refused != "" && try && !time.Now().Before(u.retry) {
		first = su.Refused
		su = savedUnit{Version: u.version}
	}
	was := su.back()
	if err := w.applyUnit(ctx, u, &su, try, first); err != nil {
		return err
	}
	w.judge(u, &su)
	w.mu.Lock()
	if su.Since.IsZero() && !su.back() {
		w.state.forgetUnit(u.key)
	} else {
		w.state.unit(u.key, su)
	}
	w.mu.Unlock()
	if su.back() && !was && !su.Stands {
		// It is written down first: a restart in the middle must not try again.
		if su.RolledBack {
			w.metrics.rolled.Inc()
		}
		w.opts.Logger.Warn("goes back to the last good version", "unit", u.key, "why", su.Message)
		u.fails, u.again = 0, time.Time{}
		w.mu.Lock()
		err := w.state.save()
		w.mu.Unlock()
		if err != nil {
			w.opts.Logger.Warn("can't write down what was rolled back", "err", err)
		}
		return w.step(ctx, u)
	}
	u.refusedOnce(&su)
	for _, it := range u.items {
		if err := w.unblock(ctx, it); err != nil {
			return err
		}
		w.report(it, u, su)
	}
	return nil
}

// refusedOnSite tells whether objects of the unit say that they were gone back to from the
// version that is wanted.
func (w *worker) refusedOnSite(u *unit) bool {
	return slices.ContainsFunc(u.items, func(it *item) bool {
		l := w.lives.get(it.name)
		return l != nil && l.refused == u.version
	})
}

// applyUnit makes the cluster hold what it should of the unit, or notes at each item why not.
// first is the item to begin with; empty: that of the lowest rank.
func (w *worker) applyUnit(ctx context.Context, u *unit, su *savedUnit, try bool, first string) error {
	before := make([]*refusal, len(u.items))
	todos := make([]todo, len(u.items))
	work, updates, bad := false, false, ""
	for i, it := range u.items {
		if before[i], it.err = it.err, nil; su.Stands {
			continue
		}
		digest := it.target(su)
		if it.err = w.obstacle(it, su); it.err == nil {
			todos[i], it.err = w.compare(it, digest)
		}
		w.noteChanged(ctx, it, digest)
		if todos[i] == mend {
			if at := it.nextMend(); time.Now().Before(at) {
				todos[i] = nothing
				u.look(at)
			}
		}
		if su.Refused != "" && hasRun(it, todos[i], w.lives.get(it.name)) {
			todos[i] = nothing
		}
		if it.err != nil && bad == "" {
			bad = it.name
		}
		work = work || todos[i] != nothing
		updates = updates || todos[i] == put && w.lives.get(it.name) != nil
	}
	if u.unread != "" && bad == "" && slices.Contains(todos, put) {
		bad = u.unread // which bundle it is of nobody knows
	}
	if (len(u.items) > 1 || u.unread != "") && bad != "" && work && !su.back() {
		u.hold(todos, bad)
		work = false
	}
	if work && !try {
		for i, it := range u.items {
			if todos[i] != nothing && before[i] != nil {
				it.err = before[i]
			}
		}
		work = false
		u.look(u.again)
	}
	if !updates || su.back() {
		if err := w.pullsNoMore(ctx, u); err != nil {
			return err
		}
	}
	if work && updates && !su.back() {
		pulled, err := w.prepull(ctx, u)
		if err != nil {
			return err
		}
		work = pulled
	}
	if work {
		if err := w.act(ctx, u, su, todos, first); err != nil {
			return err
		}
	}
	failing := slices.ContainsFunc(u.items, func(it *item) bool { return it.err != nil && !it.err.settled })
	switch {
	case !failing:
		if u.fails = 0; !su.back() {
			u.refusals = 0
		}
	case try:
		most := w.opts.MaxBackoff
		if !slices.ContainsFunc(u.items, func(it *item) bool { return it.err != nil && !it.err.waiting }) {
			most = min(most, 30*time.Second)
		}
		u.again = time.Now().Add(backoff.Bound(u.fails, w.opts.MinBackoff, most))
		u.fails++
		u.look(u.again)
	default:
		u.look(u.again)
	}
	return nil
}

// target is the digest that should be in effect.
func (it *item) target(su *savedUnit) string {
	if su.back() {
		return it.good
	}
	return it.wanted
}

// look asks for another look at the unit.
func (u *unit) look(at time.Time) {
	if u.next.IsZero() || at.Before(u.next) {
		u.next = at
	}
}

// obstacle is what stands in the way of an item before anything is tried.
func (w *worker) obstacle(it *item, su *savedUnit) *refusal {
	switch {
	case su.back():
	case it.kind == "":
		return refuse("Invalid", "%w", it.bad)
	case it.missing != nil:
		return wait(reasonFetch, "%w", it.missing)
	case it.of != it.wanted:
		return wait(reasonFetch, "its content was not read yet")
	case it.bad != nil:
		return refuse("Invalid", "%w", it.bad)
	}
	if it.watchErr != nil {
		return it.watchErr
	}
	if it.namespace == "" {
		return nil
	}
	name := workload.ItemName("", "Namespace", "", it.namespace)
	ns, wanted := w.lives.get(name), w.plan.items[name]
	switch {
	case ns != nil && ns.deleting:
		return wait(reasonNamespace+"Terminating", "its namespace is being deleted on the site")
	case ns != nil:
		return nil
	case wanted == nil:
		return refuse(reasonNamespace+"NotOwned", "the namespace %s is not Muster's on this site (no label %s)", it.namespace, workload.Owned)
	case wanted.err != nil:
		return wait(reasonNamespace, "its namespace %s: %w", it.namespace, wanted.err)
	}
	return wait(reasonNamespace, "its namespace %s is not there yet", it.namespace)
}

// nextMend is when what somebody changed may be put back: at once, and then the later the
// more often it was.
func (it *item) nextMend() time.Time {
	if it.mends == 0 || time.Since(it.mended) > calm {
		it.mends = 0
		return time.Time{}
	}
	return it.mended.Add(backoff.Bound(it.mends-1, time.Second, 5*time.Minute))
}

// act does what is to be done with the unit's items: of a bundle nothing is touched before
// the API server would take all of it. Back goes what can.
func (w *worker) act(ctx context.Context, u *unit, su *savedUnit, todos []todo, first string) error {
	applies := 0
	for _, t := range todos {
		if t == put || t == mend {
			applies++
		}
	}
	if applies > 1 && !su.back() {
		var bad *item
		for i, it := range u.items {
			if todos[i] == put || todos[i] == mend {
				if err := w.refused(ctx, it, w.apply(ctx, it, su, todos[i], true)); err != nil {
					return err
				}
				if it.err != nil {
					bad = it
				}
			}
		}
		if bad != nil {
			w.giveUp(u, su, bad, first != "")
			u.hold(todos, bad.name)
			return nil
		}
	}
	for _, i := range u.turns(first) {
		it := u.items[i]
		if todos[i] != put && todos[i] != mend {
			continue
		}
		if err := w.refused(ctx, it, w.apply(ctx, it, su, todos[i], false)); err != nil {
			return err
		}
		if it.err != nil && len(u.items) > 1 && !su.back() {
			if todos[i] == put {
				w.giveUp(u, su, it, first != "")
			}
			u.hold(todos, it.name)
			return nil
		}
	}
	for i, it := range slices.Backward(u.items) {
		if todos[i] == remove {
			if err := w.refused(ctx, it, w.removeItem(ctx, it.name, w.lives.get(it.name))); err != nil {
				return err
			}
		}
	}
	return nil
}

// refused notes at an item what came of a call for it. It returns an error only if the API
// server can't be reached.
func (w *worker) refused(ctx context.Context, it *item, err error) error {
	if broke := (*brokeOff)(nil); errors.As(err, &broke) && ctx.Err() == nil {
		// An API server that panics at an object holds up no other.
		if _, down := w.cluster.version(ctx); down == nil {
			it.err = wait("ApiServerError", "the site's API server answers, but not to this: %w", broke.cause)
			return nil
		}
	}
	if errors.Is(err, errDown) {
		return err
	}
	if err != nil && !errors.As(err, &it.err) {
		it.err = refuse("Refused", "%w", err)
	}
	return nil
}

// apply makes the cluster hold the item's content that is to be in effect.
func (w *worker) apply(ctx context.Context, it *item, su *savedUnit, why todo, dryRun bool) error {
	digest := it.target(su)
	blob, err := w.taken.Blob(digest)
	if err != nil {
		return wait(reasonFetch, "%w", err)
	}
	obj, err := decode(it.name, blob)
	if err != nil {
		return refuse("Invalid", "%w", err)
	}
	refused := ""
	if su.RolledBack && digest != it.wanted {
		refused = it.unit.version
	}
	mark(obj, digest, refused)
	if w.plan.scaled[it.name] { // two that set one field would never rest
		unstructured.RemoveNestedField(obj.Object, "spec", "replicas")
	}
	gvk := obj.GroupVersionKind()
	gvr, err := w.cluster.resource(gvk, it.namespace)
	if err != nil {
		return explain(err, gvk, w.Version())
	}
	l := w.lives.get(it.name)
	if l == nil {
		there, err := w.cluster.get(ctx, gvr, it.namespace, it.objName)
		switch {
		case err != nil:
			return explain(err, gvk, w.Version())
		case there == nil:
		case there.Labels[workload.Owned] != "true":
			return clash(it)
		case there.DeletionTimestamp != nil:
			return wait("Terminating", "the one that is there is being deleted on the site")
		default:
			l = liveOf(there, gvk)
		}
	}
	replace := func() error {
		if dryRun {
			return nil
		}
		if err := w.cluster.remove(ctx, gvr, it.namespace, it.objName, l); err != nil {
			return explain(err, gvk, w.Version())
		}
		w.mu.Lock()
		w.state.item(it.name, savedItem{}) // nobody else removed it
		w.mu.Unlock()
		return wait(reasonReplacing, "the old %s is removed for the new one", gvk.Kind)
	}
	origin := obj.GetAnnotations()[workload.Origin]
	anew := l != nil && l.origin != "" && origin != "" && l.origin != origin // at the centre
	if anew && onceOnly(obj) {
		return replace()
	}
	if l != nil && !dryRun && scalesByOthers(obj, w.plan.scaled[it.name]) {
		if err := w.cluster.leaveReplicas(ctx, gvr, obj); err != nil {
			return explain(err, gvk, w.Version())
		}
	}
	out, err := w.cluster.apply(ctx, gvr, obj, l != nil, dryRun)
	switch {
	case apierrors.IsConflict(err) && l == nil:
		return clash(it) // made by somebody a moment ago
	case apierrors.IsInvalid(err) && l != nil && gvk.GroupKind() == jobs:
		// A Job can't be changed; control would have refused this change of it, too, so
		// that there it is a new one.
		return replace()
	case apierrors.IsInvalid(err) && digest != it.wanted && mayBeImmutable(gvk):
		return replace() // which it became with what is gone back from
	case apierrors.IsInvalid(err) && anew && !slices.Contains(replaced, gvk.GroupKind()):
		return refuse("MadeAnew", "it was deleted and made anew at the centre while this site did not see it, and can't become the new one, but by removal, with the data that it may hold: delete it on the site, or delete it at the centre and make it again once this site has removed it: %w", err)
	case apierrors.IsInvalid(err) && anew:
		return replace() // as sites that saw it go have done
	case dryRun:
		return explain(err, gvk, w.Version())
	case err != nil:
		w.metrics.applies.WithLabelValues("failed").Inc()
		err = explain(err, gvk, w.Version())
		if r := (*refusal)(nil); errors.As(err, &r) && r.reason == reasonUnknownKind {
			w.mu.Lock()
			w.lost[kindName(gvk)] = true
			w.mu.Unlock()
		}
		return err
	}
	w.metrics.applies.WithLabelValues("ok").Inc()
	now := liveOf(out, gvk)
	if why == mend && (l == nil || l.rv != now.rv) {
		w.metrics.mended.Inc()
		it.mended = time.Now()
		it.mends++
		if l == nil {
			it.by = ""
		}
		w.opts.Logger.Info("put back what was changed on the site", "item", it.name, "by", it.by, "fields", it.changed)
	}
	it.drifted, it.changed = false, nil
	w.mu.Lock()
	w.state.item(it.name, savedItem{Digest: digest, Fields: now.fields})
	w.mu.Unlock()
	w.lives.put(it.name, now)
	return nil
}

// onceOnly are those of which one that is made anew is another one though it looks the same: a Job
// has run, and what is immutable can't become anything else.
func onceOnly(obj *unstructured.Unstructured) bool {
	return obj.GroupVersionKind().GroupKind() == jobs || obj.Object["immutable"] == true
}

var jobs = schema.GroupKind{Group: "batch", Kind: "Job"}

// mayBeImmutable are kinds of which an object can become immutable, and can't go back.
func mayBeImmutable(gvk schema.GroupVersionKind) bool {
	return gvk.Group == "" && (gvk.Kind == "ConfigMap" || gvk.Kind == "Secret")
}

// replaced are kinds of which an old object makes room for a new one that it can't become. Of
// others it may hold data: a claim its volume's, and what goes with an object of a definition
// nobody knows.
var replaced = []schema.GroupKind{
	{Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "StatefulSet"}, {Group: "apps", Kind: "DaemonSet"}, {Group: "batch", Kind: "Job"}, {Group: "batch", Kind: "CronJob"},
	{Kind: "Service"}, {Kind: "ConfigMap"}, {Kind: "Secret"}, {Kind: "ServiceAccount"}, {Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}, {Group: "policy", Kind: "PodDisruptionBudget"},
	{Group: "networking.k8s.io", Kind: "Ingress"}, {Group: "networking.k8s.io", Kind: "NetworkPolicy"},
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}, {Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"},
}

func clash(it *item) error {
	ns := ""
	if it.namespace != "" {
		ns = "-n " + it.namespace + " "
	}
	return refuse("NameClash", "it exists on the site and is not Muster's; rename it, or give it to Muster there: kubectl label %s%s %s %s=true", ns, strings.ToLower(it.kind), it.objName, workload.Owned)
}

// removeItem deletes an owned object.
func (w *worker) removeItem(ctx context.Context, name string, l *live) error {
	_, _, ns, objName, err := workload.ParseItemName(name)
	if err != nil || l == nil {
		return err
	}
	gvr, err := w.cluster.resource(l.gvk, ns)
	if err == nil {
		err = w.cluster.remove(ctx, gvr, ns, objName, l)
	}
	if err == nil {
		w.opts.Logger.Info("removed", "item", name)
	}
	return explain(err, l.gvk, w.Version())
}

// judge finds out whether the unit has proved itself, or failed to.
func (w *worker) judge(u *unit, su *savedUnit) {
	if su.Stands {
		return
	}
	if su.back() {
		if !w.canGoBack(u) && slices.ContainsFunc(u.items, func(it *item) bool { return it.err != nil && it.err.reason == reasonFetch }) {
			su.RolledBack, su.Refused = false, "" // the disk has lost what it was about to go back to
		}
		return
	}
	all, final, proven := true, "", true
	for _, it := range u.items {
		proven = proven && it.good == it.wanted
		v := w.verdictOf(it)
		if it.err != nil || it.drifted && it.facts.leave || v.state != workload.Ready {
			all = false
		}
		if it.err == nil && v.state == workload.Failed && v.final {
			final = v.message
		}
	}
	if all {
		for _, it := range u.items {
			if it.good != it.wanted && w.taken.Good(it.name, it.wanted) {
				it.good = it.wanted
			}
		}
		su.Since, su.Waited, u.counts = time.Time{}, 0, false
		return
	}
	if !u.pessimistic || proven || slices.ContainsFunc(u.items, func(it *item) bool { return it.err != nil || w.lives.get(it.name) == nil }) {
		return // not applied yet, or has been good before
	}
	now := time.Now()
	if su.Since.IsZero() {
		su.Since = now
	}
	waited := w.waited(u, su)
	su.Waited = waited.Truncate(max(time.Second, u.deadline/20)) // not each look is worth the flash
	if left := u.deadline - waited; left > 0 && final == "" {
		u.look(now.Add(left))
		return
	}
	if !w.canGoBack(u) {
		return // report says that it is late
	}
	su.RolledBack, su.Reason = true, "NotReady"
	for _, it := range u.items {
		if v := w.verdictOf(it); v.state != workload.Ready {
			su.Reason, su.Message = orWord(v.reason, "NotReady"), clip(fmt.Sprintf("not ready within %s: %s: %s", u.deadline, it.name, v.message))
			break
		}
	}
}

// waited is how long a unit has not been ready, of the time in which the agent ran and the
// API server answered: without power nothing becomes ready.
func (w *worker) waited(u *unit, su *savedUnit) time.Duration {
	up := w.upTime()
	if !u.counts {
		u.counts, u.from = true, up-su.Waited
	}
	return up - u.from
}

// verdictOf is what the item's object says of itself, with what troubles its pods.
func (w *worker) verdictOf(it *item) verdict {
	l := w.lives.get(it.name)
	if l == nil {
		if it.err == nil && it.facts.ttl {
			return verdict{state: workload.Ready, message: "completed, and removed after its time"}
		}
		return verdict{state: workload.Waiting}
	}
	v := l.verdict
	if v.state == workload.Progressing && len(l.selector) > 0 {
		if reason, message := w.mirror.trouble(it.namespace, l.selector); reason != "" {
			v.reason, v.message = reason, v.message+"; "+message
		} else if message := w.mirror.cantMake(it.name); message != "" {
			v.state, v.reason, v.message = workload.Failed, reasonCreate, v.message+"; "+message
		}
	}
	return v
}

// report tells the agent and control how an item stands.
func (w *worker) report(it *item, u *unit, su savedUnit) {
	st := &wire.WorkloadStatus{Name: it.name, Wanted: it.wanted, Drifted: it.drifted}
	if it.drifted {
		st.Changed = it.changed
	}
	l := w.lives.get(it.name)
	v := w.verdictOf(it)
	if l != nil {
		st.Digest, st.Status = l.digest, l.status
	} else if v.state == workload.Ready {
		st.Digest = it.wanted
	}
	switch {
	case it.err != nil:
		v = verdict{state: it.err.state(), reason: it.err.reason, message: it.err.Error()}
	case su.RolledBack && it.good != it.wanted && !(su.Stands && st.Digest == it.wanted):
		v = verdict{state: workload.RolledBack, reason: su.Reason, message: su.Message}
	case v.state == workload.Progressing && !su.Since.IsZero() && w.waited(u, &su) >= u.deadline:
		v.state, v.message = workload.Failed, fmt.Sprintf("not ready within %s, and nothing to go back to: %s", u.deadline, v.message)
	case v.message == "" && !it.mended.IsZero():
		who := "somebody"
		if it.by != "" {
			who = it.by
		}
		v.message = fmt.Sprintf("what %s changed on the site was put back at %s", who, it.mended.UTC().Format(time.RFC3339))
	}
	st.State, st.Reason, st.Message = string(v.state), v.reason, clip(v.message)
	w.putStatus(st)

	// The agent wants to know what is in effect and what is refused, each once.
	var say string
	switch {
	case v.state == workload.Failed && it.err != nil, v.state == workload.RolledBack:
		say = v.message
	case v.state == workload.Waiting, st.Digest != it.wanted:
		return
	}
	if say = it.wanted + say; say == it.said {
		return
	}
	it.said = say
	switch {
	case v.state == workload.RolledBack:
		if !su.Stands {
			w.taken.Applied(it.name, it.good, nil)
		}
		w.taken.Applied(it.name, it.wanted, fmt.Errorf("rolled back: %s", v.message))
	case v.state == workload.Failed && it.err != nil:
		w.taken.Applied(it.name, it.wanted, errors.New(v.message))
	default:
		w.taken.Applied(it.name, it.wanted, nil)
	}
}
