package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubectl"
)

// migrate is a hook, the same at each upgrade.
const migrate = `apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-migrate
  annotations:
    helm.sh/hook: post-install,post-upgrade
    helm.sh/hook-delete-policy: before-hook-creation
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: migrate, image: migrate}]
`

// testHelm: the chart that helm create makes, which charts begin as, is installed through the
// virtual Kubernetes as it is, upgraded, put back when a version does not come up, and removed;
// what --wait waits for is all sites.
func testHelm(t *testing.T, f *clusters) {
	chart, program := f.path("starter"), f.program(t, kubectl.Helm(t))
	helm := func(args ...string) string {
		t.Helper()
		return program.run(t, args...)
	}
	// After --wait there is nothing to wait for.
	runs := func(image string, each int) {
		t.Helper()
		list, err := f.kube.CoreV1().Pods(shopNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=demo"})
		if err != nil {
			t.Fatal(err)
		}
		ready := map[string]int{}
		for _, p := range list.Items {
			site, _, _ := strings.Cut(p.Spec.NodeName, "-")
			if p.DeletionTimestamp == nil && p.Spec.Containers[0].Image == image && p.Status.ContainerStatuses[0].Ready {
				ready[site]++
			}
		}
		for site := range f.sites {
			if ready[site] != each {
				t.Errorf("%d pods of %s are ready on %s, want %d: %v", ready[site], image, site, each, ready)
			}
		}
	}
	helm("create", chart)
	if err := os.WriteFile(filepath.Join(chart, "templates", "migrate.yaml"), []byte(migrate), 0o600); err != nil {
		t.Fatal(err)
	}
	// A hook has run on all sites when Helm goes on, at each upgrade once more.
	hooks := map[types.UID]string{}
	hook := func(when string) {
		t.Helper()
		for name, site := range f.sites {
			job, err := site.Client.BatchV1().Jobs(shopNamespace).Get(t.Context(), "demo-migrate", metav1.GetOptions{})
			if err != nil || job.Status.Succeeded != 1 {
				t.Fatalf("%s of %s: %+v, %v", when, name, job.Status, err)
			}
			if before, ok := hooks[job.UID]; ok {
				t.Errorf("%s of %s is that of the %s", when, name, before)
			}
			hooks[job.UID] = when
		}
	}
	helm("install", "demo", chart, "--set", "image.tag=1.27", "--wait", "--timeout", "2m")
	runs("nginx:1.27", 1)
	hook("install")
	helm("upgrade", "demo", chart, "--set", "image.tag=1.28,replicaCount=2,autoscaling.enabled=false,ingress.enabled=true", "--wait", "--timeout", "2m")
	runs("nginx:1.28", 2)
	hook("upgrade")
	for name, site := range f.sites {
		if _, err := site.Client.NetworkingV1().Ingresses(shopNamespace).Get(t.Context(), "demo-starter", metav1.GetOptions{}); err != nil {
			t.Errorf("the Ingress on %s: %v", name, err)
		}
	}
	// Its test is a pod, which is refused with what to make instead; as a Job it runs on all sites.
	if out, err := program.try(t, "test", "demo"); err == nil || !strings.Contains(out, "make a Deployment, or another workload, instead") {
		t.Errorf("a test that is a pod: %v\n%s", err, out)
	}
	if err := os.Remove(filepath.Join(chart, "templates", "tests", "test-connection.yaml")); err != nil {
		t.Fatal(err)
	}
	check := strings.NewReplacer("-migrate", "-check", "post-install,post-upgrade", "test").Replace(migrate)
	if err := os.WriteFile(filepath.Join(chart, "templates", "check.yaml"), []byte(check), 0o600); err != nil {
		t.Fatal(err)
	}
	helm("upgrade", "demo", chart, "--set", "image.tag=1.28,replicaCount=2,autoscaling.enabled=false,ingress.enabled=true", "--wait", "--timeout", "2m")
	helm("test", "demo", "--timeout", "2m")
	for name, site := range f.sites {
		if job, err := site.Client.BatchV1().Jobs(shopNamespace).Get(t.Context(), "demo-check", metav1.GetOptions{}); err != nil || job.Status.Succeeded != 1 {
			t.Errorf("the test on %s: %+v, %v", name, job.Status, err)
		}
	}
	f.sites["lyon"].FailPull("nginx:9")
	if out, err := program.try(t, "upgrade", "demo", chart, "--set", "image.tag=9", "--wait", "--timeout", "5s"); err == nil {
		t.Errorf("an upgrade that does not come up on one site succeeds:\n%s", out)
	}
	helm("rollback", "demo", "3", "--wait", "--timeout", "2m")
	runs("nginx:1.28", 2)
	if out := helm("history", "demo"); !strings.Contains(out, "Rollback to 3") {
		t.Errorf("its history:\n%s", out)
	}
	helm("uninstall", "demo", "--wait", "--timeout", "2m")
	background := metav1.DeletePropagationBackground
	for _, job := range []string{"demo-migrate", "demo-check"} { // Helm leaves hooks
		if err := f.kube.BatchV1().Jobs(shopNamespace).Delete(t.Context(), job, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
			t.Error(err)
		}
	}
	testkit.Eventually(t, "nothing of it is left on any site", func() error {
		for name, site := range f.sites {
			_, deployment := site.Client.AppsV1().Deployments(shopNamespace).Get(t.Context(), "demo-starter", metav1.GetOptions{})
			_, service := site.Client.CoreV1().Services(shopNamespace).Get(t.Context(), "demo-starter", metav1.GetOptions{})
			_, account := site.Client.CoreV1().ServiceAccounts(shopNamespace).Get(t.Context(), "demo-starter", metav1.GetOptions{})
			_, job := site.Client.BatchV1().Jobs(shopNamespace).Get(t.Context(), "demo-migrate", metav1.GetOptions{})
			if !apierrors.IsNotFound(deployment) || !apierrors.IsNotFound(service) || !apierrors.IsNotFound(account) || !apierrors.IsNotFound(job) {
				return fmt.Errorf("%s: %v, %v, %v, %v", name, deployment, service, account, job)
			}
		}
		return nil
	})
}

// testWaitForJobs: Helm 3's --wait-for-jobs, which compares what has succeeded of a Job with how
// many completions its spec wants, waits for all sites.
func testWaitForJobs(t *testing.T, f *clusters) {
	helm, chart := f.program(t, kubectl.Helm3(t)), f.path("work")
	if err := os.MkdirAll(filepath.Join(chart, "templates"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"Chart.yaml":         "apiVersion: v2\nname: work\nversion: 0.1.0\n",
		"templates/job.yaml": "apiVersion: batch/v1\nkind: Job\nmetadata: {name: work}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: 'work:1'}]}}}\n",
	} {
		if err := os.WriteFile(filepath.Join(chart, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.sites["lyon"].FailPull("work:1")
	if out, err := helm.try(t, "install", "work", chart, "--wait", "--wait-for-jobs", "--timeout", "10s"); err == nil {
		t.Errorf("it is done while a site has not begun:\n%s", out)
	}
	f.sites["lyon"].HealPull("work:1")
	helm.run(t, "upgrade", "work", chart, "--wait", "--wait-for-jobs", "--timeout", "2m")
	for name, site := range f.sites {
		if job, err := site.Client.BatchV1().Jobs(shopNamespace).Get(t.Context(), "work", metav1.GetOptions{}); err != nil || job.Status.Succeeded != 1 {
			t.Errorf("the Job on %s: %+v, %v", name, job.Status, err)
		}
	}
	helm.run(t, "uninstall", "work", "--wait", "--timeout", "2m")
}
