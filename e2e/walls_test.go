package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/internal/testkit"
)

const tenantLabel = "muster.dev/tenant"

// testWalls: what keeps tenants apart stands on each cluster around a tenant's namespace, lets in
// whom it should and nobody else, and stands again where somebody on the site took it away.
func testWalls(t *testing.T, f *clusters) {
	for name := range f.sites {
		testkit.Eventually(t, name+" has its walls", func() error { return f.walls(t, name) })
	}
	policies := f.sites["paris"].Client.NetworkingV1().NetworkPolicies(shopNamespace)
	before, err := policies.Get(t.Context(), render.IsolationName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := policies.Delete(t.Context(), render.IsolationName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.sites["paris"].Client.CoreV1().Namespaces().Patch(t.Context(), shopNamespace, types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyWithin(t, "they stand again", 2*time.Minute, func() error {
		now, err := policies.Get(t.Context(), render.IsolationName, metav1.GetOptions{})
		if err == nil && now.UID == before.UID {
			err = errors.New("the NetworkPolicy is the one from before")
		}
		return cmp.Or(err, f.walls(t, "paris"))
	})
}

func (f *clusters) walls(t *testing.T, site string) error {
	c := f.sites[site].Client
	ns, err := c.CoreV1().Namespaces().Get(t.Context(), shopNamespace, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if ns.Labels["pod-security.kubernetes.io/enforce"] != "baseline" || ns.Labels[tenantLabel] != "main" {
		return fmt.Errorf("labels of the namespace: %v", ns.Labels)
	}
	p, err := c.NetworkingV1().NetworkPolicies(shopNamespace).Get(t.Context(), render.IsolationName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var from []string
	for _, rule := range p.Spec.Ingress {
		for _, peer := range rule.From {
			if peer.IPBlock != nil || peer.PodSelector != nil || peer.NamespaceSelector == nil {
				return fmt.Errorf("it lets in %+v", peer)
			}
			from = append(from, metav1.FormatLabelSelector(peer.NamespaceSelector))
		}
	}
	slices.Sort(from)
	if want := []string{"app.kubernetes.io/part-of=muster", tenantLabel + "=main"}; !slices.Equal(from, want) || len(p.Spec.PodSelector.MatchLabels) > 0 || !slices.Equal(p.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) {
		return fmt.Errorf("the NetworkPolicy lets in %v of %+v, want %v", from, p.Spec, want)
	}
	q, err := c.CoreV1().ResourceQuotas(shopNamespace).Get(t.Context(), render.QuotaName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if n := q.Spec.Hard[corev1.ResourceName("services.nodeports")]; n.Value() != 100 {
		return fmt.Errorf("the quota is %v", q.Spec.Hard)
	}
	return nil
}
