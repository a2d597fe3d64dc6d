package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/control/rollout/hold"
	"muster.dev/muster/internal/fleet"
)

// finalizer keeps a Rollout that is deleted until what it began is put back.
const finalizer = "muster.dev/rollout"

// annotationUID, on a RolloutState, is the UID of the Rollout that it is of.
const annotationUID = "muster.dev/rollout-uid"

// job is one look at one rollout.
type job struct {
	c       *Controller
	key     types.NamespacedName
	r       *v1alpha1.Rollout
	st      *v1alpha1.RolloutState // nil: not begun
	known   *known
	tenant  string
	objects []*object // in the state's order
	now     time.Time
}

// pass looks at one rollout and takes the next step; it returns after which time to look
// again, 0: not before something changes.
func (c *Controller) pass(ctx context.Context, key types.NamespacedName, tenant string) (time.Duration, error) {
	j := &job{c: c, key: key, tenant: tenant, now: c.o.Now()}
	var err error
	if j.st, err = c.state(ctx, key); err != nil {
		return 0, err
	}
	var r v1alpha1.Rollout
	if err := c.o.Cache.Get(ctx, key, &r); apierrors.IsNotFound(err) {
		c.forget(key)
		c.metrics.forget(key)
		if j.st == nil {
			return 0, nil
		}
		return j.adopt(ctx)
	} else if err != nil {
		return 0, err
	}
	j.r = r.DeepCopy()
	if j.tenant == "" {
		return c.o.Tick, nil // the namespace is about to be known, or about to go
	}
	if j.r.Status.Phase.Ended() {
		return j.over(ctx)
	}
	if begun := j.st != nil && j.st.Spec.Decided != nil; !begun && j.r.DeletionTimestamp == nil && !c.room(key, tenant) {
		return c.o.Tick, j.wait(ctx, fmt.Sprintf("%d rollouts of the tenant are under way or wait already: this one waits until one has ended", c.o.Most))
	}
	j.known = c.of(key, tenant)
	again, err := j.step(ctx)
	var bad *invalid
	if errors.As(err, &bad) {
		return 0, j.end(ctx, v1alpha1.RolloutInvalid, bad.why)
	}
	return again, err
}

// state is the rollout's state as it was last written, as far as this process knows; nil:
// there is none.
func (c *Controller) state(ctx context.Context, key types.NamespacedName) (*v1alpha1.RolloutState, error) {
	st := &v1alpha1.RolloutState{}
	err := c.o.Cache.Get(ctx, key, st)
	if apierrors.IsNotFound(err) { // the cache may be behind
		err = c.o.Client.Get(ctx, key, st)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the state: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.known[key]; k != nil && k.state != nil && k.state.UID == st.UID && version(k.state) > version(st) {
		st = k.state
	}
	return st.DeepCopy(), nil
}

// version is 0 of what has none.
func version(o client.Object) uint64 {
	n, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return n
}

func (c *Controller) tenantOf(ctx context.Context, namespace string) (string, error) {
	var ns corev1.Namespace
	if err := c.o.Cache.Get(ctx, client.ObjectKey{Name: namespace}, &ns); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return ns.Labels[fleet.LabelTenant], nil
}

// step is a pass of a rollout that has not ended.
func (j *job) step(ctx context.Context) (time.Duration, error) {
	deleted := j.r.DeletionTimestamp != nil
	if j.st != nil && j.st.Annotations[annotationUID] != "" && j.st.Annotations[annotationUID] != string(j.r.UID) {
		return 0, j.takeName(ctx)
	}
	if !deleted && controllerutil.AddFinalizer(j.r, finalizer) {
		if err := j.c.o.Client.Update(ctx, j.r); err != nil {
			return 0, fmt.Errorf("write the finalizer: %w", err)
		}
	}
	if j.st == nil {
		if deleted {
			return 0, j.release(ctx)
		}
		return j.begin(ctx)
	}
	var err error
	if j.objects, err = j.c.objectsOf(ctx, j.st); err != nil {
		return 0, err
	}
	begun := j.st.Spec.Decided != nil
	if !slices.ContainsFunc(j.objects, func(o *object) bool { return o.live != nil }) {
		return 0, j.end(ctx, v1alpha1.RolloutSuperseded, fmt.Sprintf("%s was deleted: there is nothing left to move", j.objects[0]))
	}
	if !begun {
		if deleted {
			return 0, j.drop(ctx)
		}
		if done, err := j.write(ctx); !done {
			return j.c.soon(), err
		}
	}
	by, err := j.supersededBy(ctx)
	if err != nil {
		return 0, err
	}
	return j.decide(ctx, by)
}

// supersededBy is the rollout that an object is under by now, in the place of this one.
func (j *job) supersededBy(ctx context.Context) (string, error) {
	for _, o := range j.objects {
		if o.live == nil || o.under() == j.key.Name {
			continue
		}
		if by := o.under(); by != "" {
			return by, nil
		}
		// Made anew since: the rollout was about another object of that name.
		return "", j.end(ctx, v1alpha1.RolloutSuperseded, fmt.Sprintf("%s was deleted and made anew: what it is now goes to its sites at once", o))
	}
	return "", nil
}

// decide gathers what the decision depends on, decides, and lets it happen.
func (j *job) decide(ctx context.Context, supersededBy string) (time.Duration, error) {
	in, ok, err := j.input(ctx, supersededBy)
	if err != nil || !ok {
		return j.c.soon(), err
	}
	if supersededBy == "" && j.st.Spec.Decided == nil && !in.Spec.Control.Abort {
		if in.Queued = j.c.queued(j.key, j.known.place); in.Queued != "" {
			return j.c.o.Tick, j.wait(ctx, in.Queued)
		}
	}
	out := decide.Decide(in)
	if out.Changed && !j.c.claim(j.key, j.known, &j.st.Spec, out.State) {
		return 0, errAgain
	}
	j.known.memory = out.Memory
	phase := out.Status.Phase

	before := j.st.DeepCopy()
	next := j.st.DeepCopy()
	if out.Changed {
		next.Spec = *out.State
	}
	if phase == v1alpha1.RolloutCompleted {
		next.Spec.Held = false
	}
	// Once it stands that it has ended, all was put back, and only its status is missing: to hold
	// sites again could outlive whoever does it, while another writes that status.
	back := j.st.Annotations[hold.AnnotationEnded] == "" && (phase == v1alpha1.RolloutRolledBack || phase == v1alpha1.RolloutInvalid && next.Spec.Supersedes == "")
	if back {
		// First the sites, then the objects, and only then the objects count again.
		next.Spec.Held = true
	} else if phase.Ended() {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, hold.AnnotationEnded, string(phase))
	}
	if err := j.save(ctx, next); err != nil {
		return 0, err
	}
	// It is told now that it stands: if what follows has to be done again, nothing is decided
	// again.
	j.c.events(ctx, j, before, out.Decisions)
	if back {
		if err := j.putBack(ctx); err != nil {
			return 0, err
		}
		next = j.st.DeepCopy()
		next.Spec.Held = slices.ContainsFunc(next.Spec.Objects, func(o v1alpha1.RolloutObject) bool { return !o.Written })
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, hold.AnnotationEnded, string(phase))
		if err := j.save(ctx, next); err != nil {
			return 0, err
		}
	}
	if err := j.retrySoftware(ctx); err != nil {
		return 0, err
	}
	status := out.Status
	status.ObservedGeneration = j.r.Generation
	if len(status.Gates) == 0 && (phase == v1alpha1.RolloutRollingBack || phase == v1alpha1.RolloutRolledBack) {
		status.Gates = j.r.Status.Gates // what was read last, which is why
	}
	if err := j.writeStatus(ctx, status); err != nil {
		return 0, err
	}
	j.c.metrics.see(j, in.Now)
	if phase.Ended() {
		return 0, j.finish(ctx)
	}
	return max(min(out.Again.Sub(j.now), j.c.o.Tick), j.c.soon()), nil
}

// save writes the state if it differs from what was read; a conflict says that somebody
// else has written since.
func (j *job) save(ctx context.Context, next *v1alpha1.RolloutState) error {
	if next.Annotations[annotationUID] == "" {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, annotationUID, string(j.r.UID))
	}
	if equality.Semantic.DeepEqual(next.Spec, j.st.Spec) && equality.Semantic.DeepEqual(next.Annotations, j.st.Annotations) {
		return nil
	}
	if err := j.c.o.Client.Update(ctx, next); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	j.st = next
	j.c.mu.Lock()
	j.known.state = next
	j.c.mu.Unlock()
	return nil
}

// writeStatus writes the status if it differs.
func (j *job) writeStatus(ctx context.Context, status v1alpha1.RolloutStatus) error {
	status.Conditions = j.r.Status.Conditions
	if equality.Semantic.DeepEqual(status, j.r.Status) {
		return nil
	}
	j.r.Status = status
	if err := j.c.o.Client.Status().Update(ctx, j.r); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}
