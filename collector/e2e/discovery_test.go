package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"muster.dev/muster/collector"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// A pod that appears in the cluster is scraped, and one that goes is let go of.
func TestKubernetesDiscovery(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "shop_orders_total 7") }))
	defer exporter.Close()
	_, p, _ := net.SplitHostPort(exporter.Listener.Addr().String())
	port, _ := strconv.Atoi(p)

	kube := kubernetes.NewForConfigOrDie(kubeapi.Start(t))
	if _, err := kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	scrapes := fmt.Sprintf(`
- job_name: pods
  scrape_interval: 1s
  kubernetes_sd_configs:
    - {role: pod, kubeconfig_file: %s, namespaces: {names: [shop]}}
  relabel_configs:
    - {source_labels: [__meta_kubernetes_pod_name], target_label: pod}
`, filepath.Join(kubeapi.Dir(t), "admin.kubeconfig"))
	c, err := collector.New(collector.Options{Dir: t.TempDir(), Site: fleet.SiteID{Tenant: "t", Name: "s"}, ScrapeConfigs: []byte(scrapes), Endpoint: func() string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()

	pod, err := kube.CoreV1().Pods("shop").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "checkout"}, Spec: corev1.PodSpec{
		NodeName: "n1", Containers: []corev1.Container{{Name: "app", Image: "app", Ports: []corev1.ContainerPort{{ContainerPort: int32(port)}}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "127.0.0.1", PodIPs: []corev1.PodIP{{IP: "127.0.0.1"}}}
	if _, err := kube.CoreV1().Pods("shop").UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	targets := func(want int) func() error {
		return func() error {
			n := 0
			for _, tg := range c.Status().Targets {
				if tg.Job == "pods" && tg.Up {
					n++
				}
			}
			if n != want {
				return fmt.Errorf("%d targets are up: %+v", n, c.Status().Targets)
			}
			return nil
		}
	}
	testkit.Eventually(t, "the pod is scraped", targets(1))
	now := int64(0)
	if err := kube.CoreV1().Pods("shop").Delete(ctx, "checkout", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the deleted pod is no target any more", targets(0))
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
