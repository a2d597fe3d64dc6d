package simcluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// ask asks as control does, through a tunnel.
func ask(t *testing.T, c *Cluster, method, path, body string) (code int, said string) {
	t.Helper()
	near, far := net.Pipe()
	go c.Serve(t.Context(), far)
	req, err := http.NewRequest(method, "http://x"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	go func() { _ = req.Write(near) }()
	resp, err := http.ReadResponse(bufio.NewReader(near), req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// told follows what a cluster tells.
type told struct {
	pods      map[string]*corev1.Pod
	workloads map[string]*wire.WorkloadStatus
}

func (s *told) next(t *testing.T, m *mirror.Mirror) {
	t.Helper()
	for _, part := range m.Next(false) {
		for _, key := range part.Gone {
			delete(s.pods, key)
		}
		for _, o := range part.Mirrored {
			if o.Kind != "Pod" {
				continue
			}
			var p corev1.Pod
			if err := p.Unmarshal(o.Object); err != nil {
				t.Fatal(err)
			}
			s.pods[wire.KeyOf(o)] = &p
		}
		for _, w := range part.Workloads {
			s.workloads[w.Name] = w
		}
	}
}

// names of the pods whose names begin with a prefix.
func (s *told) names(prefix string) (out []string) {
	for _, p := range s.pods {
		if strings.HasPrefix(p.Name, prefix) {
			out = append(out, p.Name)
		}
	}
	slices.Sort(out)
	return out
}

const containers = `"containers":[{"name":"web","image":"IMAGE"}]`

func TestPodsComeAndGo(t *testing.T) {
	m := mirror.New(mirror.DefaultLimits, nil)
	c, seen := New("paris", m), &told{map[string]*corev1.Pod{}, map[string]*wire.WorkloadStatus{}}
	apply := func(name, spec string) {
		t.Helper()
		it, b := item(name, `{"spec":{`+spec+`}}`)
		if err := c.Apply(t.Context(), it, b); err != nil {
			t.Fatal(err)
		}
		seen.next(t, m)
	}
	template := func(image string) string {
		return `"template":{"metadata":{"labels":{"app":"web"}},"spec":{` + strings.ReplaceAll(containers, "IMAGE", image) + `}}`
	}
	web := "Deployment.apps/acme-shop/web"
	apply(web, `"replicas":3,`+template("web:1"))
	three := seen.names("web-")
	apply(web, `"replicas":4,`+template("web:1"))
	if four := seen.names("web-"); len(three) != 3 || len(four) != 4 || slices.ContainsFunc(three, func(n string) bool { return !slices.Contains(four, n) }) {
		t.Errorf("scaled from 3 to 4: %v, %v", three, four)
	}
	apply(web, `"replicas":2,`+template("web:2"))
	if two := seen.names("web-"); len(two) != 2 || slices.Contains(three, two[0]) || slices.Contains(three, two[1]) {
		t.Errorf("another image: %v, before %v", two, three)
	}
	for _, p := range seen.pods {
		if o := p.OwnerReferences[0]; o.Kind != "ReplicaSet" || o.Name != "web-"+p.Labels["pod-template-hash"] || !*o.Controller {
			t.Errorf("%s belongs to %v", p.Name, o)
		}
	}

	const at = "/api/v1/namespaces/acme-shop/pods/"
	gone := seen.names("web-")[0]
	uid := seen.pods["Pod/acme-shop/"+gone].UID
	if code, said := ask(t, c, http.MethodDelete, at+gone, `{"preconditions":{"uid":"another"}}`); code != http.StatusConflict {
		t.Errorf("a pod with another UID: %d %s", code, said)
	}
	if code, said := ask(t, c, http.MethodDelete, at+gone, fmt.Sprintf(`{"preconditions":{"uid":%q}}`, uid)); code != http.StatusOK {
		t.Errorf("delete: %d %s", code, said)
	}
	seen.next(t, m)
	if two := seen.names("web-"); len(two) != 2 || slices.Contains(two, gone) {
		t.Errorf("after %s was deleted: %v", gone, two)
	}
	if code, said := ask(t, c, http.MethodDelete, at+gone, ""); code != http.StatusNotFound {
		t.Errorf("what is gone: %d %s", code, said)
	}
	apply("StatefulSet.apps/acme-shop/db", `"replicas":1,`+template("db:1"))
	before := seen.pods["Pod/acme-shop/db-0"].UID
	if code, said := ask(t, c, http.MethodPost, at+"db-0/eviction", `{"metadata":{"name":"db-0"}}`); code != http.StatusCreated {
		t.Errorf("evict: %d %s", code, said)
	}
	seen.next(t, m)
	if after := seen.pods["Pod/acme-shop/db-0"].UID; after == before {
		t.Errorf("an evicted pod is still %s", after)
	}

	apply("DaemonSet.apps/acme-shop/each", template("each:1"))
	if each := seen.names("each-"); len(each) != Nodes {
		t.Errorf("of a DaemonSet: %v", each)
	}
	for name, want := range map[string]string{"job:1": "Ready Succeeded", "job:crash": "Failed Failed", "job:missing": "Progressing Pending"} {
		once := strings.ReplaceAll(name, ":", "-")
		apply("Job.batch/acme-shop/"+once, template(name))
		if got := seen.workloads["Job.batch/acme-shop/"+once].State + " " + string(seen.pods["Pod/acme-shop/"+seen.names(once + "-")[0]].Status.Phase); got != want {
			t.Errorf("a Job of %s is %s, want %s", name, got, want)
		}
	}
	if code, said := ask(t, c, http.MethodPost, at+"db-0/exec?command=sh", ""); code != http.StatusMethodNotAllowed || !strings.Contains(said, "simulated") {
		t.Errorf("exec: %d %s", code, said)
	}

	page := string(c.usage(time.Now().Add(time.Minute)))
	for _, want := range []string{`pod="db-0",container="web"`, `namespace="",pod="",container="",id="/"`} {
		if n := strings.Count(page, want); n != map[bool]int{true: 2, false: 2 * Nodes}[strings.Contains(want, "db-0")] {
			t.Errorf("%d series of %s:\n%s", n, want, page)
		}
	}
	if strings.Contains(page, "job-1") {
		t.Errorf("what has ended uses something:\n%s", page)
	}
}

func TestLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New("paris", mirror.New(mirror.DefaultLimits, nil))
		for name, image := range map[string]string{"web": "web:1", "bad": "web:crash", "none": "web:missing"} {
			it, b := item("StatefulSet.apps/acme-shop/"+name, `{"spec":{"template":{"spec":{`+strings.ReplaceAll(containers, "IMAGE", image)+`}}}}`)
			if err := c.Apply(t.Context(), it, b); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now().UTC()
		time.Sleep(61 * time.Second) // 31 lines: one each two seconds
		for _, x := range []struct {
			what  string
			lines int
			says  string
		}{
			{"web-0/log", 31, "web-0 GET"},
			{"web-0/log?container=web", 31, "web-0 GET"},
			{"web-0/log?tailLines=3", 3, began.Add(60*time.Second).Format(time.RFC3339) + " web-0"},
			{"web-0/log?tailLines=0", 0, ""},
			{"web-0/log?sinceSeconds=10", 5, "web-0"},
			{"web-0/log?sinceTime=" + began.Add(50*time.Second).Format(time.RFC3339), 6, "web-0"},
			{"web-0/log?tailLines=1&timestamps=true", 1, began.Add(60*time.Second).Format(time.RFC3339) + " " + began.Add(60*time.Second).Format(time.RFC3339)},
			{"bad-0/log", 1, "fatal"},
			{"bad-0/log?previous=true", 1, "fatal"},
		} {
			code, said := ask(t, c, http.MethodGet, "/api/v1/namespaces/acme-shop/pods/"+x.what, "")
			if code != http.StatusOK || strings.Count(said, "\n") != x.lines || !strings.Contains(said, x.says) {
				t.Errorf("%s: %d, want %d lines with %q:\n%s", x.what, code, x.lines, x.says, said)
			}
		}
		if _, said := ask(t, c, http.MethodGet, "/api/v1/namespaces/acme-shop/pods/web-0/log?limitBytes=7", ""); said != began.Format(time.RFC3339)[:7] {
			t.Errorf("seven bytes: %q", said)
		}
		for what, says := range map[string]string{
			"web-0/log?previous=true": "has not ended before", "none-0/log": "can't be pulled", "web-0/log?container=x": "no container x", "web-0/log?tailLines=x": "tailLines", "web-1/log": "not found",
		} {
			if code, said := ask(t, c, http.MethodGet, "/api/v1/namespaces/acme-shop/pods/"+what, ""); code < 400 || !strings.Contains(said, says) {
				t.Errorf("%s: %d, want %q: %s", what, code, says, said)
			}
		}

		// What is followed comes as it is said.
		ctx, cancel := context.WithCancel(t.Context())
		l, err := c.log("acme-shop", "web-0", corev1.PodLogOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		ended := make(chan error, 1)
		go func() {
			ended <- l.write(ctx, &out, corev1.PodLogOptions{Follow: true, TailLines: new(int64(1))}, func() {})
		}()
		time.Sleep(6 * time.Second)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || strings.Count(out.String(), "\n") != 4 {
			t.Errorf("followed for six seconds: %v\n%s", err, out.String())
		}
	})
}
