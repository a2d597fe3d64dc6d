package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubectl"
)

// kinds are one of each that the other parts of TestKubernetes don't have on their sites.
const kinds = `
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {password: hunter2}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: by-hand, resources: {requests: {storage: 1Mi}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: postgres, env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: password, key: password}}}]}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: logs}
spec:
  selector: {matchLabels: {app: logs}}
  template: {metadata: {labels: {app: logs}}, spec: {containers: [{name: c, image: fluent-bit}]}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: yearly}
spec: {schedule: 0 0 1 1 *, jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: perl}]}}}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: db}
spec: {minAvailable: 1, selector: {matchLabels: {app: db}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db}
spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress]}
`

// kinds2 is what is changed of them.
var kinds2 = strings.NewReplacer("hunter2", "hunter3", "replicas: 2", "replicas: 3", "image: fluent-bit", "image: fluent-bit:2", "0 0 1 1 *", "0 0 2 2 *", "minAvailable: 1", "minAvailable: 2", "[Ingress]", "[Ingress, Egress]").Replace(kinds)

// testKinds: all kinds that are carried get onto clusters with the rights that the agent has there,
// change and go, by upstream's kubectl.
func testKinds(t *testing.T, f *clusters) {
	file, kubectl := f.path("kinds.yaml"), f.program(t, kubectl.Path(t, kubectl.Versions[len(kubectl.Versions)-1]))
	run := func(args ...string) string {
		t.Helper()
		return kubectl.run(t, args...)
	}
	write := func(file, content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, site := range f.sites { // which has no provisioner
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, Spec: corev1.PersistentVolumeSpec{StorageClassName: "by-hand", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}, PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp"}}}}
		if _, err := site.Client.CoreV1().PersistentVolumes().Create(t.Context(), v, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	sees := func(want string) { // on every site
		t.Helper()
		testkit.Eventually(t, "each site has "+want, func() error {
			for name, site := range f.sites {
				if got, err := seenOf(t, site.Client); err != nil || got != want {
					return fmt.Errorf("%s: %s, %w", name, got, err)
				}
			}
			return nil
		})
	}
	write(file, kinds)
	run("apply", "-f", file)
	run("rollout", "status", "statefulset/db", "--timeout", "2m")
	run("rollout", "status", "daemonset/logs", "--timeout", "2m")
	sees("hunter2 Bound postgres fluent-bit 0 0 1 1 * 1 [Ingress]")
	testkit.Eventually(t, "all of it is ready", func() error {
		out := f.muster("vk8s", "status", "shop/prod", "-T", "main", "--no-headers")
		lines := map[string]string{}
		for line := range strings.Lines(out) {
			if cells := strings.Fields(line); len(cells) > 4 {
				lines[cells[0]+"/"+cells[1]] = strings.Join(cells[2:4], " of ")
			}
		}
		for _, item := range []string{"Secret/password", "PersistentVolumeClaim/data", "StatefulSet/db", "DaemonSet/logs", "CronJob/yearly", "PodDisruptionBudget/db", "NetworkPolicy/db"} {
			if want := fmt.Sprintf("%d of %[1]d", len(f.sites)); lines[item] != want {
				return fmt.Errorf("%s: %q, want %q in\n%s", item, lines[item], want, out)
			}
		}
		return nil
	})
	if out, n := run("get", "statefulset/db", "--no-headers"), 2*len(f.sites); strings.Join(strings.Fields(out)[:2], " ") != fmt.Sprintf("db %d/%[1]d", n) {
		t.Errorf("%q, want the %d pods of all sites", out, n)
	}

	// One pod of each site, by the name that it has here.
	for site := range f.sites {
		pod := run("get", "pods", "-l", "app=db", "--field-selector", "spec.nodeName="+site+"-n1", "-o", "jsonpath={.items[0].metadata.name}")
		if out := run("exec", pod, "--", "hostname"); !strings.HasPrefix(out, "db-") {
			t.Errorf("exec in %s: %q", pod, out)
		}
		from, to := f.path("from-"+site), f.path("to-"+site)
		write(from, "for "+site)
		run("cp", from, pod+":/tmp/x")
		run("cp", pod+":/tmp/x", to)
		if b, err := os.ReadFile(to); string(b) != "for "+site {
			t.Errorf("cp to %s and back: %q, %v", pod, b, err)
		}
	}

	write(file, kinds2)
	run("apply", "-f", file)
	run("rollout", "status", "statefulset/db", "--timeout", "2m")
	run("rollout", "status", "daemonset/logs", "--timeout", "2m")
	sees("hunter3 Bound postgres fluent-bit:2 0 0 2 2 * 2 [Ingress Egress]")
	run("rollout", "undo", "daemonset/logs")
	run("rollout", "status", "daemonset/logs", "--timeout", "2m")
	sees("hunter3 Bound postgres fluent-bit 0 0 2 2 * 2 [Ingress Egress]")

	run("delete", "-f", file, "--timeout", "2m")
	testkit.Eventually(t, "nothing of it is left on any site", func() error {
		for name, site := range f.sites {
			if got, err := seenOf(t, site.Client); !apierrors.IsNotFound(err) || got != "" {
				return fmt.Errorf("%s: %s, %w", name, got, err)
			}
		}
		return nil
	})
}

// testQuota: what a quota of one site's own keeps it from is told of the object, with the site, in
// its conditions and by the CLI, and nothing else of it is held up; it heals when the quota goes.
func testQuota(t *testing.T, f *clusters) {
	kubectl := f.program(t, kubectl.Path(t, kubectl.Versions[len(kubectl.Versions)-1]))
	quotas := f.sites["lyon"].Client.CoreV1().ResourceQuotas(shopNamespace)
	none := corev1.ResourceList{"count/statefulsets.apps": resource.MustParse("0")}
	pods := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
	for _, hard := range []corev1.ResourceList{none, pods} { // what makes pods is refused, or its pods are
		q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "full"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
		if _, err := quotas.Create(t.Context(), q, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "the quota counts", func() error {
			q, err := quotas.Get(t.Context(), "full", metav1.GetOptions{})
			if err == nil && len(q.Status.Hard) == 0 {
				err = errors.New("no status")
			}
			return err
		})
		file := f.path("held.yaml")
		if err := os.WriteFile(file, []byte("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: held}\nspec: {serviceName: held, selector: {matchLabels: {app: held}}, template: {metadata: {labels: {app: held}}, spec: {containers: [{name: c, image: nginx}]}}}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		kubectl.run(t, "apply", "-f", file)
		f.runs("held", 1, "paris", "nice")
		testkit.Eventually(t, "the object says so of the one site", func() error {
			condition := kubectl.run(t, "get", "statefulset", "held", "-o", `jsonpath={.status.conditions[?(@.type=="SitesReady")].message}`)
			reasons := f.muster("vk8s", "status", "shop/prod", "statefulset/held", "-T", "main")
			if !strings.HasPrefix(condition, "2 of 3 sites are ready: F") || !strings.Contains(condition, " on lyon") || !strings.Contains(reasons, "exceeded quota: full") || strings.Count(reasons, "Ready") != 2 {
				return fmt.Errorf("%s\n%s", condition, reasons)
			}
			return nil
		})
		if err := quotas.Delete(t.Context(), "full", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		f.runs("held", 1, "paris", "nice", "lyon")
		kubectl.run(t, "rollout", "status", "statefulset/held", "--timeout", "1m")
		kubectl.run(t, "delete", "-f", file, "--timeout", "1m")
		testkit.Eventually(t, "it is gone", func() error {
			if left := f.pods("held"); len(left) > 0 {
				return fmt.Errorf("%d pods", len(left))
			}
			return nil
		})
	}
}

// seenOf is what a site has of kinds, as far as the first that it has not.
func seenOf(t *testing.T, c kubernetes.Interface) (string, error) {
	ctx, get := t.Context(), metav1.GetOptions{}
	var seen []string
	for _, one := range []func() (any, error){
		func() (any, error) {
			o, err := c.CoreV1().Secrets(shopNamespace).Get(ctx, "password", get)
			return string(o.Data["password"]), err
		},
		func() (any, error) {
			o, err := c.CoreV1().PersistentVolumeClaims(shopNamespace).Get(ctx, "data", get)
			return o.Status.Phase, err
		},
		func() (any, error) {
			o, err := c.AppsV1().StatefulSets(shopNamespace).Get(ctx, "db", get)
			return imageOf(o.Spec.Template), err
		},
		func() (any, error) {
			o, err := c.AppsV1().DaemonSets(shopNamespace).Get(ctx, "logs", get)
			return imageOf(o.Spec.Template), err
		},
		func() (any, error) {
			o, err := c.BatchV1().CronJobs(shopNamespace).Get(ctx, "yearly", get)
			return o.Spec.Schedule, err
		},
		func() (any, error) {
			o, err := c.PolicyV1().PodDisruptionBudgets(shopNamespace).Get(ctx, "db", get)
			return o.Spec.MinAvailable, err
		},
		func() (any, error) {
			o, err := c.NetworkingV1().NetworkPolicies(shopNamespace).Get(ctx, "db", get)
			return o.Spec.PolicyTypes, err
		},
	} {
		what, err := one()
		if err != nil {
			return strings.Join(seen, " "), err
		}
		seen = append(seen, fmt.Sprint(what))
	}
	return strings.Join(seen, " "), nil
}

func imageOf(p corev1.PodTemplateSpec) string {
	if len(p.Spec.Containers) == 0 {
		return ""
	}
	return p.Spec.Containers[0].Image
}
