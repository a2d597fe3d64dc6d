package status

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metrics "k8s.io/metrics/pkg/client/clientset/versioned"

	corev1 "k8s.io/api/core/v1"
)

// TestUsage: pods and nodes of which their sites' metrics tell are shown under the names and
// labels that they have here; of others there is nothing, and of none an empty list.
func TestUsage(t *testing.T) {
	s := New(Options{})
	say(t, s, demo("paris"), true, nil, pod("web-6f-aaaaa", "n1", corev1.PodRunning), stateful("db-0", "n1"), node("n1"))
	say(t, s, demo("rome"), true, nil, stateful("db-0", "n1"), node("n1"))
	x := func(v float64) *float64 { return &v }
	var asked []UsageOf
	var answer []Usage
	var failed error
	client := metrics.NewForConfigOrDie(serveWith(t, s, HandlerOptions{Usage: func(_ context.Context, of UsageOf) ([]Usage, error) {
		asked = append(asked, of)
		return answer, failed
	}})).MetricsV1beta1()
	podsOf := func(o metav1.ListOptions) string {
		t.Helper()
		list, err := client.PodMetricses(shop).List(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return names(list.Items, func(m *metricsv1beta1.PodMetrics) string {
			out := m.Name
			for _, c := range m.Containers {
				out += fmt.Sprintf(" %s:%dm,%dMi", c.Name, c.Usage.Cpu().MilliValue(), c.Usage.Memory().Value()>>20)
			}
			return out
		})
	}
	if got := podsOf(metav1.ListOptions{}); got != "" {
		t.Errorf("without metrics: %s", got)
	}
	answer = []Usage{{"paris", "web-6f-aaaaa", "app", x(0.25), x(100 << 20)}, {"paris", "web-6f-aaaaa", "proxy", x(0.05), nil}, {"rome", "db-0", "db", x(1), x(1 << 30)}, {"oslo", "db-0", "db", x(9), x(9)}, {"paris", "gone", "a", x(9), x(9)}}
	if got := podsOf(metav1.ListOptions{}); got != "db-0-rome db:1000m,1024Mi web-6f-aaaaa app:250m,100Mi proxy:50m,0Mi" {
		t.Errorf("pods: %s", got)
	}
	if got := podsOf(metav1.ListOptions{LabelSelector: LabelSite + "=rome"}); got != "db-0-rome db:1000m,1024Mi" {
		t.Errorf("pods of a site: %s", got)
	}
	one, err := client.PodMetricses(shop).Get(t.Context(), "db-0-rome", metav1.GetOptions{})
	if err != nil || len(one.Containers) != 1 || one.Namespace != shop || one.Labels[LabelSite] != "rome" || one.Window.Duration != UsageWindow || one.Timestamp.IsZero() {
		t.Errorf("%+v, %v", one, err)
	}
	if last := asked[len(asked)-1]; last != (UsageOf{Tenant: "demo", Namespace: shop, Site: "rome", Name: "db-0"}) {
		t.Errorf("asked %+v", last)
	}
	for _, missing := range []string{"db-0-paris", "db-0", "none"} { // known without metrics, and not known
		if _, err := client.PodMetricses(shop).Get(t.Context(), missing, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", missing, err)
		}
	}
	answer = []Usage{{"rome", "n1", "", x(3.5), x(8 << 30)}}
	nodes, err := client.NodeMetricses().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 || nodes.Items[0].Name != "rome-n1" || nodes.Items[0].Usage.Cpu().MilliValue() != 3500 {
		t.Errorf("%+v, %v", nodes, err)
	}
	failed = errors.New("the store is down")
	if _, err := client.NodeMetricses().List(t.Context(), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("%v", err)
	}
}
