package kubesite_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubesite"
)

const namespace = "default"

func TestCluster(t *testing.T) {
	c := kubesite.Start(t, kubesite.Options{Nodes: 2, Prefix: "paris-", Labels: map[string]string{"rack": "7"}})
	ctx := t.Context()

	info, err := c.Client.Discovery().ServerVersion()
	if err != nil || info.GitVersion != kubesite.Version || info.Minor != "35" {
		t.Errorf("version %+v, %v", info, err)
	}
	nodes, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "rack=7"})
	if err != nil || len(nodes.Items) != 2 || nodes.Items[0].Name != "paris-1" || nodes.Items[0].Status.NodeInfo.KubeletVersion != kubesite.Version {
		t.Fatalf("nodes %+v, %v", nodes, err)
	}

	c.CrashImage("dies:")
	if _, err := c.Client.AppsV1().Deployments(namespace).Create(ctx, deployment("dies", 1, "here/dies:v1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	crashes := deployment("crashes", 1, "busybox")
	crashes.Spec.Template.Spec.Containers[0].Command = []string{"sh", "-c", "echo no; exit 1"}
	if _, err := c.Client.AppsV1().Deployments(namespace).Create(ctx, crashes, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	t.Run("a deployment becomes available on both nodes", func(t *testing.T) {
		if _, err := c.Client.AppsV1().Deployments(namespace).Create(ctx, deployment("web", 3, "nginx:1.27"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		available(t, c, "web", 3)
		on := map[string]bool{}
		for _, p := range pods(t, c, "web") {
			on[p.Spec.NodeName] = true
			if p.Status.PodIP == "" || p.Status.ContainerStatuses[0].ImageID == "" || p.Status.StartTime == nil {
				t.Errorf("pod %+v", p.Status)
			}
		}
		if len(on) != 2 {
			t.Errorf("pods are on %v", on)
		}
	})

	t.Run("a daemon set runs on each node, after its init container", func(t *testing.T) {
		d := deployment("each", 1, "fluent/fluent-bit:3")
		spec := d.Spec.Template.Spec
		spec.InitContainers = []corev1.Container{{Name: "init", Image: "busybox", Command: []string{"sh", "-c", "chown -R 1000 /data"}}}
		ds := &appsv1.DaemonSet{ObjectMeta: d.ObjectMeta, Spec: appsv1.DaemonSetSpec{Selector: d.Spec.Selector, Template: corev1.PodTemplateSpec{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: spec}}}
		if _, err := c.Client.AppsV1().DaemonSets(namespace).Create(ctx, ds, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "two are ready", func() error {
			ds, err := c.Client.AppsV1().DaemonSets(namespace).Get(ctx, "each", metav1.GetOptions{})
			if err == nil && ds.Status.NumberReady != 2 {
				err = fmt.Errorf("%+v", ds.Status)
			}
			return err
		})
	})

	t.Run("a job completes, another fails", func(t *testing.T) {
		job := func(name string, command ...string) {
			once := int32(0)
			j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{BackoffLimit: &once, Template: corev1.PodTemplateSpec{
				Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "perl:5", Command: command}}}}}}
			if _, err := c.Client.BatchV1().Jobs(namespace).Create(ctx, j, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		job("pi", "perl", "-Mbignum=bpi", "-wle", "print bpi(2000)")
		job("broken", "sh", "-c", "echo no; exit 7")
		testkit.Eventually(t, "pi completes and broken fails", func() error {
			pi, err := c.Client.BatchV1().Jobs(namespace).Get(ctx, "pi", metav1.GetOptions{})
			if err != nil {
				return err
			}
			broken, err := c.Client.BatchV1().Jobs(namespace).Get(ctx, "broken", metav1.GetOptions{})
			if err == nil && (pi.Status.Succeeded != 1 || broken.Status.Failed != 1) {
				err = fmt.Errorf("%+v, %+v", pi.Status, broken.Status)
			}
			return err
		})
	})

	t.Run("a crash is a restart, with the reason and the earlier log", func(t *testing.T) {
		p := pods(t, c, "web")[0]
		c.Say(namespace, p.Name, "the last words")
		c.Crash(namespace, p.Name, 3)
		testkit.Eventually(t, "it runs again", func() error {
			got, err := c.Client.CoreV1().Pods(namespace).Get(ctx, p.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if s := got.Status.ContainerStatuses[0]; s.RestartCount != 1 || !s.Ready || s.LastTerminationState.Terminated == nil || s.LastTerminationState.Terminated.ExitCode != 3 {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		if said := logs(t, c, p.Name, &corev1.PodLogOptions{Previous: true}); !strings.Contains(said, "the last words") {
			t.Errorf("earlier log %q", said)
		}
	})

	t.Run("an image that can't be pulled", func(t *testing.T) {
		c.FailPull("secret/thing")
		if _, err := c.Client.AppsV1().Deployments(namespace).Create(ctx, deployment("pull", 1, "secret/thing:v1"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		waiting(t, c, "pull", "ImagePullBackOff")
		testkit.Eventually(t, "an event says so", func() error {
			events, err := c.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Failed"})
			if err == nil && !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, "secret/thing") }) {
				err = fmt.Errorf("%d events", len(events.Items))
			}
			return err
		})
		c.HealPull("secret/thing")
		// A new pod doesn't wait as the old one does, longer each time.
		if err := c.Client.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=pull"}); err != nil {
			t.Fatal(err)
		}
		available(t, c, "pull", 1)
	})

	t.Run("what crashes again and again waits", func(t *testing.T) {
		waiting(t, c, "crashes", "CrashLoopBackOff")
		waiting(t, c, "dies", "CrashLoopBackOff")
	})

	t.Run("logs and exec", func(t *testing.T) {
		var name string
		testkit.EventuallyTrue(t, "the old pod is gone", func() bool { p := pods(t, c, "pull"); name = p[0].Name; return len(p) == 1 })
		if said := logs(t, c, name, &corev1.PodLogOptions{}); !strings.Contains(said, "secret/thing:v1: serving as default/"+name) {
			t.Errorf("log %q", said)
		}
		out, err := run(t, c, name, "from here", "sh", "-c", "cat > /tmp/x; cat /tmp/x; hostname; cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; exit 4")
		if want := "from here" + name + "\n" + namespace; out != want || err == nil || !strings.Contains(err.Error(), "exit code 4") {
			t.Errorf("%q, %v", out, err)
		}
		if _, err := run(t, c, name, "", "reboot"); err == nil || !strings.Contains(err.Error(), "exit code 127") {
			t.Errorf("a command that is not there: %v", err)
		}
	})

	t.Run("what is stock: pod security and tokens of service accounts", func(t *testing.T) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "strict", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
		if _, err := c.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "its service account", func() error {
			_, err := c.Client.CoreV1().ServiceAccounts("strict").Get(ctx, "default", metav1.GetOptions{})
			return err
		})
		_, err := c.Client.CoreV1().Pods("strict").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: deployment("p", 1, "nginx").Spec.Template.Spec}, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `violates PodSecurity "restricted:latest"`) {
			t.Errorf("pod security: %v", err)
		}
		as := kubernetes.NewForConfigOrDie(c.ConfigAs("strict", "default"))
		if _, err := as.CoreV1().Pods("strict").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "system:serviceaccount:strict:default") {
			t.Errorf("as a service account: %v", err)
		}
	})

	t.Run("what is deleted goes", func(t *testing.T) {
		if err := c.Client.AppsV1().Deployments(namespace).Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "no pods", func() error {
			if left := pods(t, c, "web"); len(left) > 0 {
				return fmt.Errorf("%d are left, the first %s", len(left), left[0].Status.Phase)
			}
			return nil
		})
	})

	t.Run("the API server goes and comes back, pods run on", func(t *testing.T) {
		before := pods(t, c, "pull")[0]
		c.StopServer()
		if _, err := c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{}); err == nil {
			t.Fatal("it answers")
		}
		c.StartServer()
		testkit.Eventually(t, "it answers", func() error {
			_, err := c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
			return err
		})
		after := pods(t, c, "pull")[0]
		if after.UID != before.UID || after.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s with %d restarts", after.UID, after.Status.ContainerStatuses[0].RestartCount)
		}
	})

	t.Run("a node is cut off and comes back", func(t *testing.T) {
		c.CutNode("paris-2")
		ready(t, c, "paris-2", corev1.ConditionUnknown)
		c.JoinNode("paris-2")
		ready(t, c, "paris-2", corev1.ConditionTrue)
	})

	t.Run("a power cut", func(t *testing.T) {
		c.Kill()
		if _, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
			t.Fatal("it answers")
		}
		c.Restart()
		if _, err := c.Client.AppsV1().Deployments(namespace).Create(ctx, deployment("after", 2, "nginx:1.27"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		available(t, c, "after", 2)
		available(t, c, "pull", 1)
	})
}

func deployment(name string, replicas int32, image string) *appsv1.Deployment {
	l := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: l},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: l}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}}}}
}

func pods(t *testing.T, c *kubesite.Cluster, app string) []corev1.Pod {
	t.Helper()
	list, err := c.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: labels.Set{"app": app}.String()})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func available(t *testing.T, c *kubesite.Cluster, name string, n int32) {
	t.Helper()
	testkit.Eventually(t, name+" is available", func() error {
		d, err := c.Client.AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas != n {
			err = fmt.Errorf("%+v", d.Status)
		}
		return err
	})
}

func waiting(t *testing.T, c *kubesite.Cluster, app, reason string) {
	t.Helper()
	testkit.Eventually(t, "a pod waits with "+reason, func() error {
		var seen []string
		for _, p := range pods(t, c, app) {
			for _, s := range p.Status.ContainerStatuses {
				if s.State.Waiting != nil && s.State.Waiting.Reason == reason {
					return nil
				}
				seen = append(seen, s.State.String())
			}
		}
		return fmt.Errorf("%v", seen)
	})
}

func ready(t *testing.T, c *kubesite.Cluster, node string, want corev1.ConditionStatus) {
	t.Helper()
	testkit.Eventually(t, node+" is ready: "+string(want), func() error {
		n, err := c.Client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, cond := range n.Status.Conditions {
			if cond.Type == corev1.NodeReady && cond.Status != want {
				return fmt.Errorf("%s: %s", cond.Status, cond.Message)
			}
		}
		return nil
	})
}

func logs(t *testing.T, c *kubesite.Cluster, pod string, o *corev1.PodLogOptions) string {
	t.Helper()
	stream, err := c.Client.CoreV1().Pods(namespace).GetLogs(pod, o).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	b, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func run(t *testing.T, c *kubesite.Cluster, pod, in string, command ...string) (string, error) {
	t.Helper()
	req := c.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: command, Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	e, err := remotecommand.NewWebSocketExecutor(c.Config, "GET", req.URL().String())
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	err = e.StreamWithContext(context.Background(), remotecommand.StreamOptions{Stdin: strings.NewReader(in), Stdout: &out, Stderr: &errOut})
	return out.String(), err
}
