package sum

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Helm's --wait, kubectl wait and the like take a claim for ready when it is bound, and a
// Service of the type LoadBalancer when it has an address.

// PersistentVolumeClaim sums one up: it is bound when it is on all sites.
func PersistentVolumeClaim(pvc *corev1.PersistentVolumeClaim, all, ignored []place, now metav1.Time) corev1.PersistentVolumeClaimStatus {
	out := corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	v := judge(all, ignored)
	if v.ready == v.sites && v.sites > 0 {
		out.Phase, out.AccessModes, out.Capacity = corev1.ClaimBound, pvc.Spec.AccessModes, pvc.Spec.Resources.Requests
	}
	for _, c := range conditionsOf(v) {
		n := corev1.PersistentVolumeClaimCondition{Type: corev1.PersistentVolumeClaimConditionType(c.kind), Status: c.status, Reason: c.reason, Message: c.message, LastTransitionTime: now}
		if i := slices.IndexFunc(pvc.Status.Conditions, func(o corev1.PersistentVolumeClaimCondition) bool { return o.Type == n.Type }); i >= 0 && pvc.Status.Conditions[i].Status == n.Status {
			n.LastTransitionTime = pvc.Status.Conditions[i].LastTransitionTime
		}
		out.Conditions = append(out.Conditions, n)
	}
	return out
}

// Service sums up one of the type LoadBalancer: it has the addresses of one of its sites, the
// first by name, once all have some. Where each leads is told below /muster/. Of other types
// there is nothing to tell.
func Service(s *corev1.Service, all []place) corev1.ServiceStatus {
	out := *s.Status.DeepCopy()
	out.LoadBalancer = corev1.LoadBalancerStatus{}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return out
	}
	for i, at := range all {
		ingress := parse[corev1.ServiceStatus](at).LoadBalancer.Ingress
		if !at.ready() || len(ingress) == 0 {
			out.LoadBalancer = corev1.LoadBalancerStatus{}
			break
		}
		if i == 0 {
			out.LoadBalancer.Ingress = ingress
		}
	}
	return out
}
