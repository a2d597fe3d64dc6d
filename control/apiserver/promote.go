package apiserver

import (
	"context"
	"fmt"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	genericinitializer "k8s.io/apiserver/pkg/admission/initializer"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/hold"
)

const promotePluginName = "MusterPromote"

// Verbs on rollouts that spec.control.promote takes.
const (
	verbApprove   = "approve"
	verbSkipGates = "skip-gates"
)

// loosenedAnnotation, in the audit log, is the field of a rollout with which somebody asked
// less of a wave that was under way.
const loosenedAnnotation = "rollout.muster.dev/loosened"

// shortAnnotation, in the audit log, is the field of a rollout with which somebody asked less
// than the RolloutPolicy does that selects its objects, and which one that is.
const shortAnnotation = "rollout.muster.dev/short-of-policy"

// promote asks who raises spec.control.promote of a Rollout for a right of its own: to
// approve a wave whose gates hold, or to go on though they don't. So does who has the gates ask
// for less while a wave is under way, or for less than the RolloutPolicy does that selects what
// changes. Everything else of a Rollout is for whoever may write it. Who changed spec.control
// last stands in an annotation, so that decisions name them.
type promote struct {
	rights
	rollouts *rollouts // knows the policies
}

var (
	_ admission.MutationInterface        = &promote{}
	_ admission.ValidationInterface      = &promote{}
	_ genericinitializer.WantsAuthorizer = &promote{}
)

func registerPromote(p *admission.Plugins, r *rollouts) {
	p.Register(promotePluginName, func(io.Reader) (admission.Interface, error) { return &promote{rightsOf(promotePluginName), r}, nil })
}

// ofRollout tells whether a request writes a Rollout, and not its status alone.
func ofRollout(a admission.Attributes) bool {
	return a.GetKind().GroupKind() == v1alpha1.GroupVersion.WithKind("Rollout").GroupKind() && a.GetSubresource() == ""
}

// Admit implements admission.MutationInterface.
func (p *promote) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	u, ok := a.GetObject().(*unstructured.Unstructured)
	if !ofRollout(a) || !ok || u == nil {
		return nil
	}
	now, err := rolloutOf(u)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	before, err := rolloutOf(a.GetOldObject())
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	who := before.Annotations[v1alpha1.AnnotationControlledBy]
	if !equality.Semantic.DeepEqual(now.Spec.Control, before.Spec.Control) {
		who = a.GetUserInfo().GetName()
	}
	annotate(u, v1alpha1.AnnotationControlledBy, who)
	switch {
	case a.GetOperation() == admission.Update:
		annotate(u, v1alpha1.AnnotationStartedBy, before.Annotations[v1alpha1.AnnotationStartedBy])
	case !ownWriter(a.GetUserInfo()): // control knows whose write it was
		annotate(u, v1alpha1.AnnotationStartedBy, a.GetUserInfo().GetName())
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *promote) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !ofRollout(a) {
		return nil
	}
	now, err := rolloutOf(a.GetObject())
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	before, err := rolloutOf(a.GetOldObject())
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := p.mayChange(ctx, a, now, before); err != nil {
		return err
	}
	if err := p.mayLoosen(ctx, a, now, before); err != nil {
		return err
	}
	if err := p.mayFallShort(ctx, a, now, before); err != nil {
		return err
	}
	to := now.Spec.Control.Promote
	if to <= before.Spec.Control.Promote {
		return nil
	}
	approves := onlyApproval(before, to)
	verbs := []string{verbSkipGates}
	if approves {
		verbs = []string{verbApprove, verbSkipGates}
	}
	for _, verb := range verbs {
		if p.may(ctx, a, verb, a.GetResource(), a.GetName()) {
			return nil
		}
	}
	why := fmt.Errorf("spec.control.promote: %d: the gates of wave %d don't hold yet, and to go on without them takes the verb %s on rollouts: wait for them, or ask a tenant administrator", to, max(before.Status.Wave, 1), verbSkipGates)
	if approves {
		why = fmt.Errorf("spec.control.promote: %d: to approve a wave takes the verb %s on rollouts: ask a tenant editor or administrator", to, verbApprove)
	}
	return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), why)
}

// mayLoosen wants who asks less of a wave that is under way to have the right to go on without
// its gates: that is what it comes to.
func (p *promote) mayLoosen(ctx context.Context, a admission.Attributes, now, before *v1alpha1.Rollout) error {
	if before.Status.Wave < 1 || before.Status.Phase.Ended() {
		return nil
	}
	field := loosened(&now.Spec, &before.Spec)
	if field == "" {
		return nil
	}
	if p.may(ctx, a, verbSkipGates, a.GetResource(), a.GetName()) {
		return a.AddAnnotation(loosenedAnnotation, field)
	}
	return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), fmt.Errorf("%s: wave %d is under way, and to ask less of it than before takes the verb %s on rollouts: leave it as it is, ask for more, abort the rollout, or ask a tenant administrator", field, before.Status.Wave, verbSkipGates))
}

// mayFallShort wants who asks less of a Rollout than the RolloutPolicy of what it changes to
// have the right to go on without gates: else whoever may write Rollouts went round the policy.
// One that asked less before may ask for more.
func (p *promote) mayFallShort(ctx context.Context, a admission.Attributes, now, before *v1alpha1.Rollout) error {
	if ownWriter(a.GetUserInfo()) || p.rollouts.client.Load() == nil ||
		a.GetOperation() == admission.Update && loosened(&now.Spec, &before.Spec) == "" && sooner(&now.Spec.RolloutPlan, &before.Spec.RolloutPlan) == "" {
		return nil
	}
	there, err := p.rollouts.policies(ctx, a.GetNamespace())
	if err != nil || len(there.list) == 0 {
		return err
	}
	for i, c := range now.Spec.Changes {
		labels, err := p.rollouts.labelsOf(ctx, a.GetNamespace(), c)
		if err != nil {
			return err
		}
		policy := there.of(c.Kind, labels)
		if policy == nil {
			continue
		}
		field := short(&now.Spec, &policy.Spec.RolloutPlan)
		if field == "" {
			continue
		}
		if p.may(ctx, a, verbSkipGates, a.GetResource(), a.GetName()) {
			return a.AddAnnotation(shortAnnotation, policy.Name+": "+field)
		}
		why := "take it from there"
		if field == "spec.virtualSites" {
			why = "leave it out, as sites elsewhere would get the change at the end without its gates"
		}
		return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), fmt.Errorf("%s: RolloutPolicy %s selects %s %s (spec.changes[%d]) and asks for more, and to ask for less takes the verb %s on rollouts: %s, or ask a tenant administrator", field, policy.Name, c.Kind, c.Name, i, verbSkipGates, why))
	}
	return nil
}

// mayChange wants who writes a Rollout of policies to have the right to write them: control
// writes them in their place. Workloads are written by whoever may write rollouts.
func (p *promote) mayChange(ctx context.Context, a admission.Attributes, now, before *v1alpha1.Rollout) error {
	for i, c := range now.Spec.Changes {
		at := slices.IndexFunc(hold.Policies, func(k offered.Kind) bool {
			return k.Kind == c.Kind && k.GroupVersionKind().GroupVersion().String() == c.APIVersion
		})
		if at < 0 || i < len(before.Spec.Changes) && equality.Semantic.DeepEqual(c, before.Spec.Changes[i]) {
			continue
		}
		kind := hold.Policies[at]
		if !p.may(ctx, a, "update", kind.GroupVersionResource(), c.Name) {
			return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), fmt.Errorf("spec.changes[%d]: you may not write %s %s: ask a tenant administrator to start the rollout", i, kind.Kind, c.Name))
		}
	}
	return nil
}

// onlyApproval tells whether nothing but a person's approval keeps the current wave from
// being passed, and that is all that to asks for. Which wave of the spec the current one
// is need not be known: a wave without approval whose gates hold is passed by itself.
func onlyApproval(r *v1alpha1.Rollout, to int32) bool {
	if to != r.Status.Wave || to < 1 || len(r.Status.Gates) == 0 || !slices.ContainsFunc(r.Spec.Strategy.Waves, func(w v1alpha1.RolloutWave) bool { return w.Approval }) {
		return false
	}
	return !slices.ContainsFunc(r.Status.Gates, func(g v1alpha1.GateReading) bool { return g.Verdict != v1alpha1.GatePass || g.Seconds < g.OfSeconds })
}

// rolloutOf reads one; an empty one of nil.
func rolloutOf(obj runtime.Object) (*v1alpha1.Rollout, error) {
	out := &v1alpha1.Rollout{}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || u == nil {
		return out, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		return nil, fmt.Errorf("read the Rollout: %w", err)
	}
	return out, nil
}
