package render

import (
	"cmp"
	"encoding/json"
	"strings"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/workload"
)

// namespaceObjects are the namespace itself as each site has it, what keeps other tenants
// out of it, and its quota.
func (s *Space) namespaceObjects(now Settings) []*Piece {
	level := strings.ToLower(string(cmp.Or(now.PodSecurity, v1alpha1.PodSecurityBaseline)))
	owned := func(name string) map[string]any {
		return map[string]any{"name": name, "namespace": s.namespace, "labels": map[string]any{workload.Owned: "true", fleet.LabelTenant: s.tenant}}
	}
	out := []*Piece{
		s.ownPiece("", "Namespace", "", s.namespace, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": s.namespace, "labels": map[string]any{
			workload.Owned: "true", fleet.LabelTenant: s.tenant, "pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/warn": level,
		}}}),
		// All namespaces of the tenant may come in, and the site's own telemetry. Users open
		// it further with NetworkPolicies of their own, which add up.
		s.ownPiece("networking.k8s.io", "NetworkPolicy", s.namespace, IsolationName, map[string]any{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": owned(IsolationName), "spec": map[string]any{
			"podSelector": map[string]any{}, "policyTypes": []any{"Ingress"},
			"ingress": []any{map[string]any{"from": []any{
				map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{fleet.LabelTenant: s.tenant}}},
				map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"app.kubernetes.io/part-of": "muster"}}},
			}}},
		}}),
	}
	hard := map[string]any{"services.nodeports": int64(v1alpha1.DefaultNodePorts)} // all tenants share the site's
	if q := now.Quotas; q != nil {
		if q.CPU != nil {
			hard["requests.cpu"] = q.CPU.String()
		}
		if q.Memory != nil {
			hard["requests.memory"] = q.Memory.String()
		}
		if q.Pods != nil {
			hard["pods"] = *q.Pods
		}
		if q.NodePorts != nil {
			hard["services.nodeports"] = *q.NodePorts
		}
	}
	return append(out, s.ownPiece("", "ResourceQuota", s.namespace, QuotaName, map[string]any{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": owned(QuotaName), "spec": map[string]any{"hard": hard}}))
}

func (s *Space) ownPiece(group, kind, namespace, name string, object map[string]any) *Piece {
	blob, err := json.Marshal(object)
	if err != nil {
		panic("render: " + err.Error()) // plain data: can't fail
	}
	return newPiece(workload.ItemName(group, kind, namespace, name), blob)
}
