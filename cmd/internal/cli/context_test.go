package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	kubeconfig "k8s.io/client-go/tools/clientcmd/api"
)

// twoContexts are a kubeconfig of a login to each of two fleets; lab's came last.
func twoContexts(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	for _, c := range []struct {
		name string
		x    contextExtra
	}{{"prod", contextExtra{Console: "https://prod.example.com", Tenant: "acme"}}, {"lab", contextExtra{Console: "https://lab.example.com"}}} {
		cluster := kubeconfig.NewCluster()
		cluster.Server = "https://" + c.name + ":6443"
		if err := addContext(path, c.name, c.x, cluster, &kubeconfig.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: "muster", InteractiveMode: kubeconfig.NeverExecInteractiveMode}); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func contextRun(t *testing.T, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := contextCmd(&Globals{DataDir: t.TempDir()})
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// What is typed counts before the environment, and that before the context.
func TestWhichContextCounts(t *testing.T) {
	for _, env := range []string{"KUBECONFIG", "MUSTER_CONTEXT", "MUSTER_TENANT", "MUSTER_CONSOLE"} {
		t.Setenv(env, "")
	}
	path := twoContexts(t)
	// A second file, whose own current context does not count, and one that is not there.
	other := filepath.Join(t.TempDir(), "other")
	if err := addContext(other, "far", contextExtra{Tenant: "far-away"}, &kubeconfig.Cluster{Server: "https://far:6443"}, &kubeconfig.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: "x", InteractiveMode: kubeconfig.NeverExecInteractiveMode}); err != nil {
		t.Fatal(err)
	}
	list := strings.Join([]string{path, other, filepath.Join(t.TempDir(), "none")}, string(filepath.ListSeparator))
	for name, c := range map[string]struct {
		g                       Globals
		env                     map[string]string
		server, console, tenant string
	}{
		"current":              {g: Globals{}, server: "https://lab:6443", console: "https://lab.example.com"},
		"named":                {g: Globals{Context: "prod"}, server: "https://prod:6443", console: "https://prod.example.com", tenant: "acme"},
		"by environment":       {env: map[string]string{"MUSTER_CONTEXT": "prod"}, server: "https://prod:6443", console: "https://prod.example.com", tenant: "acme"},
		"typed before it":      {g: Globals{Context: "lab"}, env: map[string]string{"MUSTER_CONTEXT": "prod"}, server: "https://lab:6443", console: "https://lab.example.com"},
		"tenant typed":         {g: Globals{Context: "prod", Tenant: "beta"}, server: "https://prod:6443", console: "https://prod.example.com", tenant: "beta"},
		"tenant's environment": {g: Globals{Context: "prod"}, env: map[string]string{"MUSTER_TENANT": "beta", "MUSTER_CONSOLE": "https://x"}, server: "https://prod:6443", console: "https://x", tenant: "beta"},
		"all tenants":          {g: Globals{Context: "prod", AllTenants: true}, env: map[string]string{"MUSTER_TENANT": "beta"}, server: "https://prod:6443", console: "https://prod.example.com"},
		"several files":        {g: Globals{Context: "far", Console: "https://y"}, env: map[string]string{"KUBECONFIG": list}, server: "https://far:6443", console: "https://y", tenant: "far-away"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			g := c.g
			if c.env["KUBECONFIG"] == "" {
				g.Kubeconfig = path
			}
			cfg, err := g.restConfig()
			if err != nil || cfg.Host != c.server {
				t.Fatalf("server %v, %v; want %s", cfg, err, c.server)
			}
			if got, err := g.consoleURL(); err != nil || got != c.console {
				t.Errorf("console %q, %v; want %s", got, err, c.console)
			}
			if got := g.tenantName(); got != c.tenant {
				t.Errorf("tenant %q, want %q", got, c.tenant)
			}
		})
	}
	if _, err := (&Globals{Kubeconfig: path, Context: "typo"}).restConfig(); err == nil || !strings.Contains(err.Error(), "want one of lab, prod") {
		t.Errorf("a context that is not there: %v", err)
	}
}

func TestContexts(t *testing.T) {
	for _, env := range []string{"KUBECONFIG", "MUSTER_CONTEXT"} {
		t.Setenv(env, "")
	}
	path := twoContexts(t)
	ok := func(want string, args ...string) {
		t.Helper()
		if out, err := contextRun(t, append(args, "--kubeconfig", path)...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%v: %v\n%s\nwant %q", args, err, out, want)
		}
	}
	ok("*         lab    -        https://lab.example.com    https://lab:6443    lab", "list")
	ok("prod is the current context of "+path, "use", "prod")
	ok("*         prod   acme", "list")
	ok("lab: tenant beta, console https://lab.example.com", "set", "lab", "--tenant", "beta")
	ok("prod: tenant -, console https://prod.example.com", "set", "prod", "--tenant", "")
	ok(`"tenant": "beta"`, "list", "-o", "json")
	for want, args := range map[string][]string{"want one of lab, prod": {"use", "typo"}, "nothing to set": {"set", "lab"}, "--tenant": {"set", "lab", "--tenant", "No!"}, "want a URL": {"set", "lab", "--console", "prod"}} {
		if _, err := contextRun(t, append(args, "--kubeconfig", path)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
	// kubectl reads the file as before, and what somebody else keeps in it stays.
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load(b)
	if err != nil || config.CurrentContext != "prod" || config.AuthInfos["lab"].Exec == nil || config.Clusters["lab"].Server != "https://lab:6443" {
		t.Errorf("%+v, %v", config, err)
	}
}
