package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/fleetapi"
	"muster.dev/muster/internal/few"
	"muster.dev/muster/internal/fleet"
)

// Rules knows what regionals made of rules; *fleetapi.Server is one.
type Rules interface {
	RulesState(tenant, kind, name, specDigest string) fleetapi.RulesState
	SubscribeRules(func(tenant string))
}

// platform keeps up what the operators' pseudo tenant has: the system namespace,
// its roles and the status of its rules. There is no Tenant object of the name, and
// one that somebody made all the same counts for nothing.
func (r *Runner) platform(ctx context.Context) error {
	name := fleet.SystemNamespace(fleet.PlatformTenant)
	var ns corev1.Namespace
	err := r.o.Cache.Get(ctx, client.ObjectKey{Name: name}, &ns)
	switch {
	case apierrors.IsNotFound(err):
		ns = corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelTenant: fleet.PlatformTenant}}}
		if err := r.o.Client.Create(ctx, &ns); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make namespace %s: %w", name, err)
		}
		return nil // its own event comes back here
	case err != nil:
		return err
	case ns.DeletionTimestamp != nil:
		return nil // made again when it is gone
	case ns.Labels[fleet.LabelTenant] != fleet.PlatformTenant:
		// The name is Muster's own, whoever made it and whatever they wrote on it.
		before := ns.DeepCopy()
		if ns.Labels == nil {
			ns.Labels = map[string]string{}
		}
		ns.Labels[fleet.LabelTenant] = fleet.PlatformTenant
		if err := r.o.Client.Patch(ctx, &ns, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("label namespace %s: %w", name, err)
		}
		return nil
	}
	return errors.Join(r.workloadRoles(ctx), r.rbac(ctx, fleet.PlatformTenant), r.rules(ctx, fleet.PlatformTenant))
}

// rules counts each object's rules, and the regionals that evaluate them.
func (r *Runner) rules(ctx context.Context, tenant string) error {
	if r.o.Rules == nil {
		return nil
	}
	in := client.InNamespace(fleet.SystemNamespace(tenant))
	var alerts v1alpha1.AlertRulesList
	var logs v1alpha1.LogRulesList
	if err := errors.Join(r.o.Cache.List(ctx, &alerts, in), r.o.Cache.List(ctx, &logs, in)); err != nil {
		return err
	}
	var errs []error
	for i := range alerts.Items {
		o := &alerts.Items[i]
		before := *o // whose spec, which may be long, is the same and so compared at no cost
		before.Status = *o.Status.DeepCopy()
		n := 0
		for _, g := range o.Spec.Groups {
			n += len(g.Rules)
		}
		st := r.o.Rules.RulesState(tenant, desired.KindAlertRules, o.Name, desired.SpecDigest(o.Spec))
		r.rulesStatus(o, &o.Status, n, st)
		errs = append(errs, r.patchStatus(ctx, o, &before))
	}
	for i := range logs.Items {
		o := &logs.Items[i]
		before := *o
		before.Status = *o.Status.DeepCopy()
		st := r.o.Rules.RulesState(tenant, desired.KindLogRules, o.Name, desired.SpecDigest(o.Spec))
		r.rulesStatus(o, &o.Status, len(o.Spec.Rules), st)
		errs = append(errs, r.patchStatus(ctx, o, &before))
	}
	return errors.Join(errs...)
}

func (r *Runner) rulesStatus(obj client.Object, out *v1alpha1.RulesStatus, rules int, st fleetapi.RulesState) {
	out.Rules = int32(rules)
	was := meta.FindStatusCondition(out.Conditions, conditionApplied)
	if !st.Settled && st.RefusedBy == "" && was != nil && was.ObservedGeneration == obj.GetGeneration() &&
		(int32(st.Applied) < out.Regionals || was.Reason == reasonRefused) {
		return // control has just started: it is not worse than before, not all have reported yet
	}
	out.Regionals = int32(st.Applied)
	c := rulesCondition(st)
	c.ObservedGeneration = obj.GetGeneration()
	if c.Reason == reasonRefused && (was == nil || was.Message != c.Message) {
		r.event(obj, corev1.EventTypeWarning, c.Reason, c.Message)
	}
	meta.SetStatusCondition(&out.Conditions, c)
}

// conditionApplied of rules tells whether every regional evaluates them; its reason
// is reasonRefused if one won't.
const (
	conditionApplied = "Applied"
	reasonRefused    = "Refused"
)

func rulesCondition(st fleetapi.RulesState) metav1.Condition {
	c := metav1.Condition{Type: conditionApplied, Status: metav1.ConditionFalse}
	all := st.Applied + len(st.Waiting)
	switch {
	case st.RefusedBy != "":
		c.Reason, c.Message = reasonRefused, fmt.Sprintf("regional %s: %s", st.RefusedBy, st.Why)
	case all == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NoRegional", "no regional has connected yet"
	case len(st.Waiting) > 0:
		c.Reason, c.Message = "InProgress", fmt.Sprintf("in effect on %d of %d regionals; not yet on %s", st.Applied, all, few.Of(st.Waiting, maxNamed, ", "))
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Applied", "in effect on every regional"
	}
	c.Message = cut(c.Message)
	return c
}

const maxConditionMessage = 1024

// cut bounds what a condition says.
func cut(message string) string {
	if len(message) > maxConditionMessage {
		message = strings.ToValidUTF8(message[:maxConditionMessage], "")
	}
	return message
}
