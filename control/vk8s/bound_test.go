package vk8s_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/workload"
)

// TestBound: what Helm's --wait waits for of claims and load balancers is there once it is on
// all sites, through the real API server.
func TestBound(t *testing.T) {
	admin, _ := start(t)
	ctx := t.Context()
	paris, rome := fleet.SiteID{Tenant: "vk", Name: "paris"}, fleet.SiteID{Tenant: "vk", Name: "rome"}
	var late atomic.Bool // rome is
	late.Store(true)
	c, _ := summing(t, admin, map[string][]fleet.SiteID{"data": {rome, paris}, "front": {rome, paris}}, func(name string, site fleet.SiteID) string {
		switch {
		case name == "data":
			return `{"phase":"Bound","capacity":{"storage":"5Gi"}}`
		case site == rome && late.Load():
			return `{"loadBalancer":{}}`
		}
		return fmt.Sprintf(`{"loadBalancer":{"ingress":[{"ip":"192.0.2.%d"}]}}`, len(site.Name))
	}, func(site fleet.SiteID) workload.State {
		if site == rome && late.Load() {
			return workload.Progressing
		}
		return workload.Ready
	})
	core := kubernetes.NewForConfigOrDie(admin).CoreV1()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
	if _, err := core.PersistentVolumeClaims(mine).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "front"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}}}
	if _, err := core.Services(mine).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	now := func(what string, want corev1.PersistentVolumeClaimPhase, says, address string) {
		t.Helper()
		testkit.Eventually(t, what, func() error {
			pvc, err := core.PersistentVolumeClaims(mine).Get(ctx, "data", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if pvc.Status.Phase != want || len(pvc.Status.Conditions) == 0 || pvc.Status.Conditions[0].Reason != says {
				return fmt.Errorf("%+v", pvc.Status)
			}
			s, err := core.Services(mine).Get(ctx, "front", metav1.GetOptions{})
			if err != nil {
				return err
			}
			is := ""
			for _, in := range s.Status.LoadBalancer.Ingress {
				is += in.IP
			}
			if is != address {
				return fmt.Errorf("the address is %q", is)
			}
			return nil
		})
	}
	now("one of two sites", corev1.ClaimPending, "SitesNotReady", "")
	late.Store(false)
	c.TouchTenant("vk")
	now("all sites", corev1.ClaimBound, "SitesReady", "192.0.2.5")
	pvc, err := core.PersistentVolumeClaims(mine).Get(ctx, "data", metav1.GetOptions{})
	if got := pvc.Status.Capacity[corev1.ResourceStorage]; err != nil || got.String() != "1Gi" {
		t.Errorf("capacity %s, %v", &got, err)
	}
	late.Store(true)
	c.TouchTenant("vk")
	now("one of two again", corev1.ClaimPending, "SitesNotReady", "")
}
