package simcluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"muster.dev/muster/internal/mirror"
	"muster.dev/muster/internal/wire"
)

func item(name, blob string) (*wire.Item, []byte) {
	return &wire.Item{Kind: "KubernetesObject", Name: name, Digest: wire.DigestOf([]byte(blob)), Size: int64(len(blob))}, []byte(blob)
}

func TestWhatIsHeldRuns(t *testing.T) {
	m := mirror.New(mirror.DefaultLimits, nil)
	c := New("paris", m)
	if parts := m.Next(true); parts != nil {
		t.Errorf("an empty cluster says %v", parts)
	}
	for name, blob := range map[string]string{
		"Deployment.apps/acme-shop/web":    `{"spec":{"replicas":3,"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"nginx:1.29"}]}}}}`,
		"Deployment.apps/acme-shop/broken": `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"nginx:missing"}]}}}}`,
		"ConfigMap/acme-shop/settings":     `{"data":{"a":"b"}}`,
	} {
		it, b := item(name, blob)
		if err := c.Apply(t.Context(), it, b); err != nil {
			t.Fatal(err)
		}
	}
	phases := map[corev1.PodPhase]int{}
	states := map[string]string{}
	for _, part := range m.Next(true) {
		for _, o := range part.Mirrored {
			if o.Kind != "Pod" {
				continue
			}
			var pod corev1.Pod
			if err := pod.Unmarshal(o.Object); err != nil {
				t.Fatal(err)
			}
			phases[pod.Status.Phase]++
		}
		for _, w := range part.Workloads {
			states[w.Name] = w.State + w.Reason
		}
	}
	if phases[corev1.PodRunning] != 3 || phases[corev1.PodPending] != 1 || states["Deployment.apps/acme-shop/broken"] != "ProgressingImagePullBackOff" || states["ConfigMap/acme-shop/settings"] != "Ready" {
		t.Errorf("%v, %v", phases, states)
	}
	it, _ := item("Deployment.apps/acme-shop/web", "")
	if err := c.Remove(t.Context(), it); err != nil {
		t.Fatal(err)
	}
	if parts := m.Next(true); len(parts) != 1 || len(parts[0].Gone) != 4 {
		t.Errorf("3 pods and the state are gone: %v", parts)
	}
	it, b := item("Deployment.apps/acme-shop/web", "no JSON")
	if err := c.Apply(t.Context(), it, b); err == nil {
		t.Error("a blob that is no object")
	}
}

func TestImagesAreTold(t *testing.T) {
	c := New("paris", mirror.New(mirror.DefaultLimits, nil))
	var told []string
	c.OnImages(func(images []string) { told = images })
	deployment := func(name, image string, replicas int) *wire.Item {
		it, b := item("Deployment.apps/acme-shop/"+name, fmt.Sprintf(`{"spec":{"replicas":%d,"template":{"spec":{"containers":[{"name":"web","image":%q}]}}}}`, replicas, image))
		if err := c.Apply(t.Context(), it, b); err != nil {
			t.Fatal(err)
		}
		return it
	}
	web := deployment("web", "shop/web:1", 2)
	deployment("again", "shop/web:1", 1)
	deployment("api", "shop/api:7", 1)
	deployment("none", "shop/none:1", 0)
	if want := []string{"shop/api:7", "shop/web:1"}; !slices.Equal(told, want) {
		t.Errorf("%v, want %v", told, want)
	}
	deployment("again", "shop/web:2", 1)
	if err := c.Remove(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	if want := []string{"shop/api:7", "shop/web:2"}; !slices.Equal(told, want) {
		t.Errorf("after a change and a removal: %v, want %v", told, want)
	}
}

func TestLogs(t *testing.T) {
	c := New("paris", mirror.New(mirror.DefaultLimits, nil))
	ask := func(what string) string {
		near, far := net.Pipe()
		go func() { c.Serve(context.Background(), far); far.Close() }()
		go func() { _, _ = io.WriteString(near, what+" HTTP/1.1\r\nHost: x\r\n\r\n") }()
		b, _ := io.ReadAll(near)
		return string(b)
	}
	if got := ask("GET /api/v1/namespaces/acme-shop/pods/web-1/log"); !strings.Contains(got, "200 OK") || strings.Count(got, "web-1 GET") != 10 {
		t.Errorf("%s", got)
	}
	if got := ask("GET /api/v1/namespaces/acme-shop/secrets"); !strings.Contains(got, "405") {
		t.Errorf("%s", got)
	}
}
