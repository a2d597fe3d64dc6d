package rollout_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/testkit/kubeapi"
	"muster.dev/muster/internal/testkit/kubectl"
)

const helmDeployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {ves.io/virtual-sites: shared/all}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "web:{{ .Values.tag }}"}]}
`

// A release that Helm upgrades or rolls back becomes a rollout as any write does, and Helm neither
// meets a conflict nor takes the rollout's annotation away.
func TestHelmWritesUnderAPolicy(t *testing.T) {
	for version, program := range map[string]func(testing.TB) string{"3": kubectl.Helm3, "4": kubectl.Helm} {
		t.Run("Helm "+version, func(t *testing.T) {
			path := program(t)
			w := newWorld(t, "ro-helm-"+version)
			chart, home := t.TempDir(), t.TempDir()
			for name, text := range map[string]string{"Chart.yaml": "apiVersion: v2\nname: shop\nversion: 0.1.0\n", "templates/web.yaml": helmDeployment} {
				file := filepath.Join(chart, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			// helm returns the rollout that the object is under afterwards.
			helm := func(args ...string) string {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), path, append(args, "--namespace", w.in(), "--kubeconfig", filepath.Join(kubeapi.Dir(t), "admin.kubeconfig"))...)
				cmd.Env = append(os.Environ(), "HOME="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("helm %q: %v\n%s", args, err, out)
				}
				var d appsv1.Deployment
				if err := w.client.Get(context.Background(), client.ObjectKey{Namespace: w.in(), Name: "web"}, &d); err != nil {
					t.Fatal(err)
				}
				return d.Annotations[v1alpha1.AnnotationRollout]
			}
			is := func(image string, sites int) {
				t.Helper()
				if got, had := w.image("web"), w.sitesThatHad(image); got != image || len(had) != sites {
					t.Errorf("the object has %s; %v had %s, want %d sites", got, had, image, sites)
				}
			}
			if under := helm("install", "shop", chart, "--set", "tag=1"); under != "" {
				t.Errorf("there was no policy, but it is under %s", under)
			}
			w.policy()
			w.control()
			first := helm("upgrade", "shop", chart, "--set", "tag=2")
			w.becomes(first, v1alpha1.RolloutCompleted)
			is("web:2", sitesOfAWorld)

			bad := helm("upgrade", "shop", chart, "--set", "tag=bad")
			w.becomes(bad, v1alpha1.RolloutRolledBack)
			is("web:bad", 1)
			back := helm("rollback", "shop", "2")
			w.becomes(back, v1alpha1.RolloutCompleted)
			is("web:2", sitesOfAWorld)

			// An upgrade that changes nothing of it is no rollout, and one amid another supersedes it.
			if same := helm("upgrade", "shop", chart, "--set", "tag=2", "--set", "other=x"); same != back {
				t.Errorf("the same content is under %s, want still %s", same, back)
			}
			third := helm("upgrade", "shop", chart, "--set", "tag=3")
			fourth := helm("upgrade", "shop", chart, "--set", "tag=4")
			w.becomes(fourth, v1alpha1.RolloutCompleted)
			is("web:4", sitesOfAWorld)
			if r, err := w.get(third); err != nil || !r.Status.Phase.Ended() {
				t.Errorf("the one that it overtook: %+v, %v", r.Status, err)
			}
			seen := map[string]bool{}
			for _, name := range []string{first, bad, back, third, fourth} {
				if name == "" || seen[name] {
					t.Errorf("rollouts %q: want one a write", []string{first, bad, back, third, fourth})
				}
				seen[name] = true
			}
		})
	}
}
