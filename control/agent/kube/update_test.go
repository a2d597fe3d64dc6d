package kube_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/journal"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// TestUpdates: versions that replace others, on a real API server.
func TestUpdates(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := newSite(t)
	s.put(namespace(ns))
	t.Run("an autoscaler that is added finds the replicas that there are", func(t *testing.T) { s.t = t; s.autoscalerAdded() })
	t.Run("a bundle waits for what it is not known to be without", func(t *testing.T) { s.t = t; s.bundleUnread() })
	t.Run("what was rolled back stays so where the agent forgets all", func(t *testing.T) { s.t = t; s.forgetful() })
	t.Run("who gets no session is told so, and pods are removed all the same", func(t *testing.T) { s.t = t; s.noSession() })
	t.Run("a quota that keeps images from being pulled is named", func(t *testing.T) { s.t = t; s.pullsOverQuota() })
	t.Run("what a tenant labels as if it pulled images is its own", func(t *testing.T) { s.t = t; s.passesForPuller() })
	t.Run("a StatefulSet that is put back gets rid of the pod it waits for", func(t *testing.T) { s.t = t; s.stuckPod() })
	t.Run("time without power is no time to become ready in", func(t *testing.T) { s.t = t; s.powerCut() })
}

// stuckPod: Kubernetes by itself waits for ever for the pod of the bad version.
func (s *site) stuckPod() {
	set := func(image string) string {
		return s.object("apps/v1", "StatefulSet", "db", `,"spec":{"replicas":2,"selector":{"matchLabels":{"app":"db"}},`+strings.Replace(template("db", ""), "nginx:1", image, 1)+`}`)
	}
	const item = "StatefulSet.apps/" + ns + "/db"
	images := func() (out []string) {
		for _, name := range []string{"db-0", "db-1"} {
			pod, err := s.Client.CoreV1().Pods(ns).Get(s.t.Context(), name, metav1.GetOptions{})
			if err == nil {
				out = append(out, pod.Spec.Containers[0].Image)
			}
		}
		return out
	}
	s.put(set("nginx:1"))
	s.is(item, workload.Ready, "")
	kept, err := s.Client.CoreV1().Pods(ns).Get(s.t.Context(), "db-0", metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.FailPull("stuck")
	s.put(set("stuck:2"))
	s.is(item, workload.Progressing, "stuck") // whose pod is left alone: it may come yet
	if got := images(); !slices.Equal(got, []string{"nginx:1", "stuck:2"}) {
		s.t.Errorf("%v", got)
	}
	s.put(set("nginx:1"))
	s.is(item, workload.Ready, "")
	testkit.EventuallyTrue(s.t, "all are of the good version", func() bool { return slices.Equal(images(), []string{"nginx:1", "nginx:1"}) })
	if now, err := s.Client.CoreV1().Pods(ns).Get(s.t.Context(), "db-0", metav1.GetOptions{}); err != nil || now.UID != kept.UID {
		s.t.Errorf("the pod that was well is another one: %v", err)
	}
	s.HealPull("stuck")
	s.set(map[string]string{item: ""})
	s.gone(item)
}

func (s *site) autoscalerAdded() {
	ctx, deployments := s.t.Context(), s.Client.AppsV1().Deployments(ns)
	s.put(deployment("scale", "nginx:1", 5))
	item := "Deployment.apps/" + ns + "/scale"
	s.is(item, workload.Ready, "")
	seen, err := deployments.Watch(ctx, metav1.ListOptions{ResourceVersion: s.deployment("scale").ResourceVersion, FieldSelector: "metadata.name=scale"})
	if err != nil {
		s.t.Fatal(err)
	}
	defer seen.Stop()
	hpa := s.object("autoscaling/v2", "HorizontalPodAutoscaler", "scale", `,"spec":{"minReplicas":2,"maxReplicas":9,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"scale"},"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}]}`)
	without := func(image string) string {
		return strings.Replace(deployment("scale", image, 5), `"replicas":5,`, "", 1)
	}
	s.put(without("nginx:1"), hpa)
	s.is(item, workload.Ready, "")
	s.put(without("nginx:2"))
	s.is(item, workload.Ready, "")
	if _, err := deployments.Patch(ctx, "scale", types.MergePatchType, []byte(`{"metadata":{"annotations":{"seen":"all"}}}`), metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
	for last := ""; last == ""; {
		d := (<-seen.ResultChan()).Object.(*appsv1.Deployment)
		if n := *d.Spec.Replicas; n != 5 {
			s.t.Fatalf("generation %d wants %d replicas", d.Generation, n)
		}
		last = d.Annotations["seen"]
	}
	scale := func(n int) {
		s.t.Helper()
		if _, err := deployments.Patch(ctx, "scale", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n), metav1.PatchOptions{FieldManager: "kube-controller-manager"}, "scale"); err != nil {
			s.t.Fatal(err)
		}
	}
	scale(7)
	s.put(without("nginx:3"))
	testkit.EventuallyTrue(s.t, "seven replicas of the next version", func() bool {
		d := s.deployment("scale")
		return *d.Spec.Replicas == 7 && d.Spec.Template.Spec.Containers[0].Image == "nginx:3"
	})
	// Without it what is written counts again, and so it goes round.
	hpaItem := "HorizontalPodAutoscaler.autoscaling/" + ns + "/scale"
	s.set(map[string]string{hpaItem: "", item: deployment("scale", "nginx:3", 2)})
	testkit.EventuallyTrue(s.t, "two replicas", func() bool { return *s.deployment("scale").Spec.Replicas == 2 })
	s.gone(hpaItem)
	s.put(without("nginx:3"), hpa)
	s.is(item, workload.Ready, "")
	if n := *s.deployment("scale").Spec.Replicas; n != 2 {
		s.t.Errorf("%d replicas", n)
	}
	s.set(map[string]string{hpaItem: "", item: ""})
	s.gone(item)
}

func (s *site) bundleUnread() {
	in := []string{workload.Bundle, "half"}
	settings, app := "ConfigMap/"+ns+"/half", "Deployment.apps/"+ns+"/half"
	s.mu.Lock()
	s.bad[app] = true
	s.mu.Unlock()
	s.put(configMap("half", "1", in...), deployment("half", "half:1", 1, in...))
	s.is(app, workload.Waiting, "Fetching")
	s.is(settings, workload.Waiting, "waits for "+app, workload.Ready)
	if s.configMap("half") != nil {
		s.t.Error("half of a bundle was applied")
	}
	s.mu.Lock()
	delete(s.bad, app)
	s.mu.Unlock()
	s.send()
	s.is(app, workload.Ready, "")
	s.is(settings, workload.Ready, "")
	s.set(map[string]string{settings: "", app: ""})
	s.gone(app)
}

func (s *site) forgetful() {
	with := []string{workload.Apply, workload.Pessimistic, workload.ApplyDeadline, "2s"}
	s.FailPull("broken")
	s.put(deployment("web", "nginx:1", 1, with...))
	s.is(web, workload.Ready, "")
	good := s.centre.item(web).Digest
	s.put(deployment("web", "broken:2", 1, with...))
	s.is(web, workload.RolledBack, "not ready within 2s")
	testkit.EventuallyTrue(s.t, "the good one is in effect again", func() bool { return s.centre.item(web).Digest == good })

	s.stop() // and its volume with it
	s.dir = s.root.TempDir()
	s.mu.Lock()
	delete(s.good, web)
	delete(s.blob, good)
	s.mu.Unlock()
	was := s.deployment("web")
	s.start()
	s.is(web, workload.RolledBack, "", workload.Progressing, workload.Failed, workload.Ready)
	if got := s.centre.item(web).Digest; got != good {
		s.t.Errorf("%s is in effect, want %s", got, good)
	}
	// Nor is what somebody changes meanwhile put back to what is not there any more.
	if _, err := s.Client.AppsV1().Deployments(ns).Patch(s.t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"minReadySeconds":1}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
		s.t.Fatal(err)
	}
	s.stop()
	s.start()
	s.is(web, workload.RolledBack, "", workload.Progressing, workload.Failed, workload.Ready)
	if d := s.deployment("web"); d.Spec.Template.Spec.Containers[0].Image != "nginx:1" || d.Generation != was.Generation+1 {
		s.t.Errorf("it was touched: generation %d, was %d", d.Generation, was.Generation)
	}
	s.put(deployment("web", "nginx:3", 1, with...))
	s.is(web, workload.Ready, "")
	if d := s.deployment("web"); len(d.Annotations) == 0 || d.Annotations[workload.Refused] != "" {
		s.t.Errorf("annotations: %v", d.Annotations)
	}
	s.HealPull("broken")
}

func (s *site) noSession() {
	pods := kubernetes.NewForConfigOrDie(&rest.Config{Host: s.tunnels(s.t)}).CoreV1().Pods(ns)
	var pod string
	testkit.EventuallyTrue(s.t, "a pod runs", func() bool {
		for _, p := range s.centre.pods(ns) {
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				pod = p.Name
			}
		}
		return pod != ""
	})
	follow := func() (io.ReadCloser, error) {
		return pods.GetLogs(pod, &corev1.PodLogOptions{Follow: true}).Stream(s.t.Context())
	}
	var open []io.ReadCloser
	for range 16 {
		log, err := follow()
		if err != nil {
			s.t.Fatal(err)
		}
		defer log.Close()
		open = append(open, log)
	}
	if _, err := follow(); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "16 logs, execs and port-forwards at a time") {
		s.t.Errorf("the 17th: %v", err)
	}
	open[0].Close()
	testkit.Eventually(s.t, "a place is free again", func() error {
		log, err := follow()
		if err == nil {
			open[0] = log
		}
		return err
	})
	defer open[0].Close()
	if err := pods.Delete(s.t.Context(), pod, metav1.DeleteOptions{}); err != nil {
		s.t.Errorf("no pod can be removed: %v", err)
	}
}

func (s *site) pullsOverQuota() {
	quota := "ResourceQuota/" + ns + "/few"
	s.put(deployment("web", "nginx:1", 1))
	s.is(web, workload.Ready, "")
	s.put(s.object("v1", "ResourceQuota", "few", `,"spec":{"hard":{"pods":"1"}}`))
	testkit.EventuallyTrue(s.t, "the quota counts", func() bool {
		q, err := s.Client.CoreV1().ResourceQuotas(ns).Get(s.t.Context(), "few", metav1.GetOptions{})
		return err == nil && len(q.Status.Used) == 1
	})
	s.put(deployment("web", "nginx:2", 1, workload.Prepull, "true"))
	s.is(web, workload.Waiting, "exceeded quota: few")
	s.set(map[string]string{quota: "", web: deployment("web", "nginx:1", 1)})
	s.is(web, workload.Ready, "")
	s.gone(quota)
}

// passesForPuller: neither label nor name make a tenant's DaemonSet one that the agent made.
func (s *site) passesForPuller() {
	const label = "muster.dev/prepull"
	daemons := s.Client.AppsV1().DaemonSets(ns)
	like := func(name string) string {
		labelled := strings.ReplaceAll(template(name, ""), `{"app":`, fmt.Sprintf(`{%q:%q,"app":`, label, name))
		ds := s.object("apps/v1", "DaemonSet", name, fmt.Sprintf(`,"spec":{"selector":{"matchLabels":{"app":%q}},`, name)+labelled+`}`, workload.Drift, workload.Leave)
		return strings.Replace(ds, `"annotations"`, fmt.Sprintf(`"labels":{%q:%q},"annotations"`, label, name), 1)
	}
	shown := func(app string) (n int) {
		for _, p := range s.centre.pods(ns) {
			if p.Labels["app"] == app {
				n++
			}
		}
		return n
	}
	const own = "muster-prepull-own"
	item := "DaemonSet.apps/" + ns + "/" + own
	s.put(like(own))
	s.is(item, workload.Ready, "")
	testkit.EventuallyTrue(s.t, "its pods are shown", func() bool { return shown(own) == 2 })
	was, err := daemons.Get(s.t.Context(), own, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.stop()
	s.start() // which sweeps what pulled before
	s.put(deployment("web", "nginx:1", 1))
	s.is(web, workload.Ready, "")
	s.is(item, workload.Ready, "", workload.Failed)
	if now, err := daemons.Get(s.t.Context(), own, metav1.GetOptions{}); err != nil || now.UID != was.UID || now.DeletionTimestamp != nil {
		s.t.Errorf("the tenant's DaemonSet: %v, %v", now, err)
	}

	// One that has the very name is left alone, and told.
	s.FailPull("nginx:20")
	next := deployment("web", "nginx:20", 1, workload.Prepull, "true")
	s.put(next)
	s.is(web, workload.Waiting, "0 of 2 nodes have them")
	pulls := ""
	list, err := daemons.List(s.t.Context(), metav1.ListOptions{LabelSelector: label})
	for _, ds := range list.Items {
		if ds.Name != own {
			pulls = ds.Name
		}
	}
	if err != nil || pulls == "" || shown("web") != 1 {
		s.t.Fatalf("%v, %v: %d pods", list, err, shown("web"))
	}
	s.put(deployment("web", "nginx:1", 1))
	testkit.EventuallyTrue(s.t, "what pulls is gone", func() bool {
		_, err := daemons.Get(s.t.Context(), pulls, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	s.put(like(pulls))
	s.is("DaemonSet.apps/"+ns+"/"+pulls, workload.Ready, "")
	s.put(next)
	s.is(web, workload.Failed, "NameClash: to pull its images first takes a DaemonSet "+pulls)
	s.is("DaemonSet.apps/"+ns+"/"+pulls, workload.Ready, "")
	if s.deployment("web").Spec.Template.Spec.Containers[0].Image != "nginx:1" {
		s.t.Error("it was updated without its image")
	}
	s.HealPull("nginx:20")
	s.set(map[string]string{item: "", "DaemonSet.apps/" + ns + "/" + pulls: ""})
	s.is(web, workload.Ready, "")
}

func (s *site) powerCut() {
	s.FailPull("slow")
	s.put(deployment("web", "slow:4", 1, workload.Apply, workload.Pessimistic, workload.ApplyDeadline, "1h"))
	s.is(web, workload.Progressing, "ErrImagePull", workload.RolledBack)
	s.stop()
	s.longAgo()
	s.start()
	s.is(web, workload.Progressing, "ErrImagePull", workload.RolledBack, workload.Failed)
	s.put(deployment("web", "slow:5", 1, workload.Apply, workload.Pessimistic, workload.ApplyDeadline, "2s"))
	s.is(web, workload.RolledBack, "not ready within 2s")
	s.HealPull("slow")
	if st := s.centre.item(web); st.Digest == wire.DigestOf([]byte(s.want[web])) {
		s.t.Errorf("%v", st)
	}
}

// longAgo has what is under way in the agent's state begin long ago. The agent must not run.
func (s *site) longAgo() {
	name := filepath.Join(s.dir, "kubernetes.json")
	b, changes, err := journal.New(disk.OS{}, name, 0o600).Load()
	if err != nil {
		s.t.Fatal(err)
	}
	state := map[string]map[string]any{}
	for _, b := range append([][]byte{b}, changes...) {
		change := map[string]map[string]any{}
		if err := json.Unmarshal(b, &change); err != nil {
			s.t.Fatal(err)
		}
		for part, of := range change {
			if state[part] == nil {
				state[part] = map[string]any{}
			}
			maps.Copy(state[part], of)
		}
	}
	begun := 0
	for _, part := range state {
		for key, v := range part {
			if v == nil {
				delete(part, key)
			} else if u, ok := v.(map[string]any); ok && u["since"] != nil {
				u["since"] = "2001-01-01T00:00:00Z"
				begun++
			}
		}
	}
	if begun == 0 {
		s.t.Fatalf("nothing is under way in %s", b)
	}
	if b, err = json.Marshal(state); err == nil {
		err = os.WriteFile(name, b, 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}
