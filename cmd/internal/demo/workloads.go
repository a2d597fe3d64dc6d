package demo

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/workload"
)

// The virtual Kubernetes of the demo, as its users type it.
const (
	shop = "shop"
	vk8s = "vk8s"
)

// workloads makes a shop that runs on all sites of Europe: what a team would apply with
// kubectl. One of its parts runs on stores alone, and one does not start.
func (p *provisioner) workloads(ctx context.Context) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var t v1alpha1.Tenant
		if err := p.kube.Get(ctx, types.NamespacedName{Name: Tenant}, &t); err != nil {
			return err
		}
		if slices.Contains(t.Spec.Namespaces, shop) {
			return nil
		}
		t.Spec.Namespaces = append(t.Spec.Namespaces, shop)
		return p.kube.Update(ctx, &t)
	})
	if err != nil {
		return err
	}
	at := func(name string, annotations ...string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: Tenant + "-" + shop, Name: name, Labels: map[string]string{"app": name}}
		for i := 0; i+1 < len(annotations); i += 2 {
			metav1.SetMetaDataAnnotation(&m, annotations[i], annotations[i+1])
		}
		return m
	}
	deployment := func(meta metav1.ObjectMeta, image string, replicas int32) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: meta.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: meta.Name, Image: image, Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}}}},
		}}
	}
	for _, o := range append([]client.Object{
		&v1alpha1.RolloutPolicy{ObjectMeta: at("carefully"), Spec: v1alpha1.RolloutPolicySpec{Kinds: []string{"Deployment"}, RolloutPlan: releasePlan()}},
		&v1alpha1.VirtualKubernetes{ObjectMeta: metav1.ObjectMeta{Namespace: Tenant + "-" + shop, Name: vk8s}, Spec: v1alpha1.VirtualKubernetesSpec{DefaultVirtualSite: "shared/europe"}},
		&corev1.ConfigMap{ObjectMeta: at("settings"), Data: map[string]string{"currency": "EUR"}},
		&corev1.Service{ObjectMeta: at("web"), Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}}},
		deployment(at("web"), "registry.example/shop/web:2.4.1", 3),
		deployment(at("checkout", workload.VirtualSites, "shared/stores", workload.Flavor, "medium"), "registry.example/shop/checkout:1.8.0", 2),
		deployment(at("label-printer", workload.VirtualSites, "shared/canary"), "registry.example/shop/label-printer:missing", 1),
	}, virtualHosts(at, deployment)...) {
		if err := p.create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}
