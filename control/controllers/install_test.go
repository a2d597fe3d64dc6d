package controllers_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster.dev/muster/internal/testkit/kubeapi"
	"muster.dev/muster/internal/testkit/kubectl"
)

// A tenant and what stands in its namespaces.
const (
	installTenant = `apiVersion: muster.dev/v1alpha1
kind: Tenant
metadata: {name: NAME}
spec: {namespaces: [shop]}
`
	installRest = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: NAME-shop}
data: {a: b}
---
apiVersion: muster.dev/v1alpha1
kind: CollectionPolicy
metadata: {name: mine, namespace: NAME-system}
spec: {seriesBudget: 500}
---
apiVersion: muster.dev/v1alpha1
kind: VirtualSite
metadata: {name: eu, namespace: NAME-shared}
spec: {siteSelector: {matchLabels: {region: eu}}}
`
)

func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && name == "helm" {
		path, err = kubectl.Helm(t), nil
	}
	if err != nil {
		t.Skipf("no %s on this machine", name)
	}
	cmd := exec.CommandContext(t.Context(), path, append([]string{"--kubeconfig", filepath.Join(kubeapi.Dir(t), "admin.kubeconfig")}, args...)...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func write(t *testing.T, path, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "NAME", name)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// One file with a tenant and its objects is applied at the first try, and one wait is
// enough for each kind.
func TestOneFileWithATenantIsApplied(t *testing.T) {
	run(t)
	file := filepath.Join(t.TempDir(), "all.yaml")
	for name, args := range map[string][]string{"onefile": {"apply"}, "onefile-server": {"apply", "--server-side"}} {
		write(t, file, name, installTenant+"---\n"+installRest)
		tool(t, "kubectl", append(args, "-f", file)...)
		tool(t, "kubectl", "wait", "--for=condition=Ready", "--timeout=60s", "tenant/"+name)
		tool(t, "kubectl", "delete", "--timeout=60s", "tenant/"+name) // ends when all is gone
	}
}

// So is a chart that lists the namespaces, too: Helm makes those first, and the kinds that
// it does not know last, by name. It takes the server for the version that it is.
func TestHelmInstallsATenant(t *testing.T) {
	run(t)
	chart := t.TempDir()
	write(t, filepath.Join(chart, "Chart.yaml"), "", "apiVersion: v2\nname: fleet\nversion: 0.1.0\nkubeVersion: \">= 1.30.0\"\n")
	for _, n := range []string{"system", "shared", "shop"} {
		write(t, filepath.Join(chart, "templates", n+".yaml"), "helmed", "apiVersion: v1\nkind: Namespace\nmetadata: {name: NAME-"+n+", labels: {muster.dev/tenant: NAME}}\n")
	}
	write(t, filepath.Join(chart, "templates", "tenant.yaml"), "helmed", installTenant)
	write(t, filepath.Join(chart, "templates", "rest.yaml"), "helmed", installRest)
	tool(t, "helm", "install", "fleet", chart, "--namespace", "default", "--wait", "--timeout", "60s")
	tool(t, "kubectl", "wait", "--for=condition=Ready", "--timeout=60s", "tenant/helmed")
	tool(t, "helm", "upgrade", "fleet", chart, "--namespace", "default", "--set", "x=y", "--timeout", "60s")
	tool(t, "helm", "uninstall", "fleet", "--namespace", "default", "--wait", "--timeout", "60s")
	tool(t, "kubectl", "wait", "--for=delete", "--timeout=60s", "tenant/helmed", "namespace/helmed-system")
}
