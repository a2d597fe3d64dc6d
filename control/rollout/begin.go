package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/control/rollout/hold"
)

// patience is how long a Rollout may be there before the objects that it names, which may
// come in the same `kubectl apply`.
const patience = time.Minute

// begin makes the state of a Rollout that somebody made: what the objects have, and what
// they get. Nothing moves by it yet.
func (j *job) begin(ctx context.Context) (time.Duration, error) {
	if j.r.Spec.Control.Abort {
		return 0, j.end(ctx, v1alpha1.RolloutRolledBack, "aborted before it began: nothing was changed")
	}
	start := hold.Start{Namespace: j.key.Namespace, Name: j.key.Name}
	carried := map[string]bool{}
	var held []string // states that hold the objects now
	for i := range j.r.Spec.Changes {
		change, field := &j.r.Spec.Changes[i], fmt.Sprintf("spec.changes[%d]", i)
		kind, err := j.c.kindOf(change.APIVersion, change.Kind, field)
		if err != nil {
			return 0, err
		}
		o, err := j.c.live(ctx, kind, j.key.Namespace, change.Name)
		if err != nil {
			return 0, err
		}
		if o.live == nil {
			why := fmt.Sprintf("%s.name: there is no %s in namespace %s: make it first, or correct the name", field, o, j.key.Namespace)
			if j.now.Sub(j.r.CreationTimestamp.Time) < patience {
				return j.c.o.Tick, j.wait(ctx, why)
			}
			return 0, invalidf("%s", why)
		}
		from, err := o.content()
		if err != nil {
			return 0, err
		}
		to, err := j.c.wanted(ctx, o, change, field)
		if err != nil {
			return 0, err
		}
		sites, known := j.c.o.Sites.Of(kind, j.key.Namespace, change.Name, nil)
		if !known {
			return j.c.soon(), nil
		}
		for _, s := range sites {
			carried[s.Name] = true
		}
		if by := o.under(); by != "" && by != j.key.Name && !slices.Contains(held, by) {
			held = append(held, by)
		}
		j.objects = append(j.objects, o)
		start.Objects = append(start.Objects, hold.Object{Kind: kind, Name: change.Name, From: from, To: to, Written: true})
	}
	fleet := j.fleet()
	if field := fleet.missing(&j.r.Spec); field != "" {
		return 0, invalidf("%s", field)
	}
	mine := fleet.place(j, carried)
	j.c.stand(j.known, mine)
	if len(mine.sites) == 0 {
		if len(carried) > 0 {
			return 0, invalidf("spec.virtualSites: none of the %d sites that hold %s is in them: name others, or none for all sites", len(carried), j.objects[0])
		}
		return 0, invalidf("spec.changes[0]: %s is on no site: look at the members of the virtual sites that it goes to", j.objects[0])
	}
	if why := j.c.queued(j.key, mine); why != "" {
		return j.c.o.Tick, j.wait(ctx, why)
	}
	if _, err := decide.Plan(j.key.Name, &j.r.Spec, fleet.sites(carried), fleet.scope(&j.r.Spec), fleet.isMember); err != nil {
		return 0, invalidf("%v", err)
	}
	for _, name := range held {
		st, err := j.c.state(ctx, types.NamespacedName{Namespace: j.key.Namespace, Name: name})
		if err != nil {
			return 0, err
		}
		if st == nil || !st.Spec.Held {
			continue
		}
		if start.Old != nil {
			return j.c.o.Tick, j.wait(ctx, fmt.Sprintf("its objects are under two other rollouts, %s and %s, and it can take over from one: it waits until one of them has ended, or abort one", start.Old.Name, name))
		}
		start.Old = st
	}
	if start.Old == nil && !slices.ContainsFunc(start.Objects, func(o hold.Object) bool { return !hold.Same(o.From, o.To) }) {
		return 0, j.end(ctx, v1alpha1.RolloutCompleted, "the objects have what it brings already: nothing was changed")
	}
	st, err := hold.Begin(start)
	if err != nil {
		return 0, invalidf("spec.changes: %v", err)
	}
	metav1.SetMetaDataAnnotation(&st.ObjectMeta, annotationUID, string(j.r.UID))
	if err := j.c.o.Client.Create(ctx, st); err != nil {
		return 0, fmt.Errorf("write the state: %w", err)
	}
	return 0, errAgain
}

// wait says why a rollout has not begun.
func (j *job) wait(ctx context.Context, why string) error {
	status := *j.r.Status.DeepCopy()
	status.Phase, status.Message, status.ObservedGeneration = v1alpha1.RolloutQueued, why, j.r.Generation
	if err := j.writeStatus(ctx, status); err != nil {
		return err
	}
	j.c.metrics.see(j, j.now)
	return nil
}

// write has all objects under the state, with what the rollout brings: before that nothing
// is decided, so that a rollout of several objects moves them together. done is false while
// some are missing.
func (j *job) write(ctx context.Context) (done bool, _ error) {
	if j.st.Labels[hold.LabelKind] != "" && !slices.ContainsFunc(j.objects, func(o *object) bool { return o.under() == j.key.Name }) {
		return false, nil // the person's write is on its way, or was refused
	}
	done = true
	for i, o := range j.objects {
		of := &j.st.Spec.Objects[i]
		if o.live == nil || len(of.Contents) == 0 {
			continue
		}
		last := of.Contents[len(of.Contents)-1]
		now, err := o.content()
		if err != nil {
			return false, err
		}
		mine := o.under() == j.key.Name
		if mine && (!of.Written || hold.Same(now, last)) {
			continue
		}
		if err := j.changedSince(ctx, o, of, now); err != nil {
			return false, err
		}
		var content *runtime.RawExtension
		if of.Written {
			content = &last
		}
		if err := j.c.put(ctx, o, content, j.key.Name); err != nil {
			if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
				return false, j.refused(ctx, err)
			}
			return false, err
		}
		done = false
	}
	if !done {
		return false, errAgain
	}
	return true, nil
}

// changedSince begins anew if somebody has written an object after the state was made,
// which holds what it was before.
func (j *job) changedSince(ctx context.Context, o *object, of *v1alpha1.RolloutObject, now runtime.RawExtension) error {
	same := o.under() == j.st.Spec.Supersedes || o.under() == j.key.Name
	if j.st.Spec.Supersedes == "" {
		same = slices.ContainsFunc(of.Contents, func(c runtime.RawExtension) bool { return hold.Same(c, now) })
	}
	if same || !of.Written {
		return nil
	}
	if slices.ContainsFunc(j.objects, func(o *object) bool { return o.under() == j.key.Name }) {
		return j.refused(ctx, fmt.Errorf("%s was changed by somebody while the rollout began", o))
	}
	if err := j.c.o.Client.Delete(ctx, j.st); err != nil {
		return fmt.Errorf("begin anew, as %s was changed: %w", o, err)
	}
	return errAgain
}

// refused ends a rollout whose content the API server doesn't take. No site has got
// anything; objects that were written are put back.
func (j *job) refused(ctx context.Context, why error) error {
	if err := j.putBack(ctx); err != nil {
		return err
	}
	next := j.st.DeepCopy()
	next.Spec.Held = next.Spec.Supersedes != "" || slices.ContainsFunc(next.Spec.Objects, func(o v1alpha1.RolloutObject) bool { return !o.Written })
	if err := j.save(ctx, next); err != nil {
		return err
	}
	return invalidf("spec.changes: %v", why)
}
