package centre

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/loadtest/fleetload"
)

// tenant is one that every centre has.
const tenant = "main"

// centre is a control, which may be taken away, and a regional, in processes of their own.
type centre struct {
	t       *testing.T
	dir     string
	muster  string // path of the binary
	gateway string
	control *exec.Cmd
	log     *os.File
	kube    client.Client
}

// configure makes one below dir that does not run yet; more are fields of control's section.
func configure(t *testing.T, dir, more string) *centre {
	t.Helper()
	c := &centre{t: t, dir: dir, muster: os.Getenv("MUSTER"), gateway: testkit.FreeAddr(t)}
	if c.muster == "" {
		c.muster = filepath.Join("..", "..", "bin", "muster")
	}
	var err error
	if c.muster, err = filepath.Abs(c.muster); err != nil {
		t.Fatal(err)
	}
	if c.log, err = os.Create(c.path("muster.log")); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("dataDir: %s\ncontrol: {listen: %q, fleetListen: %q, opsListen: %q, %s}\nregionals:\n- {name: one, listen: %q, queryListen: %q, logs: {forwardListen: \"\"}}\n",
		c.path("data"), testkit.FreeAddr(t), testkit.FreeAddr(t), testkit.FreeAddr(t), more, c.gateway, testkit.FreeAddr(t))
	if err := os.WriteFile(c.path("muster.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if b, _ := os.ReadFile(c.log.Name()); t.Failed() {
			t.Logf("end of the log:\n%s", b[max(0, len(b)-6000):])
		}
	})
	return c
}

func (c *centre) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}

func (c *centre) process(args ...string) *exec.Cmd {
	c.t.Helper()
	cmd := exec.Command(c.muster, append(args, "--config", c.path("muster.yaml"))...)
	cmd.Stdout, cmd.Stderr = c.log, c.log
	if err := cmd.Start(); err != nil {
		c.t.Fatalf("start %s %s: %v; `make build` first", c.muster, args[0], err)
	}
	return cmd
}

// try runs a verb of the CLI to its end.
func (c *centre) try(args ...string) (string, error) {
	cmd := exec.Command(c.muster, append(args, "--config", c.path("muster.yaml"), "--data-dir", c.path("data"))...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("muster %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(bytes.TrimSpace(out)), nil
}

// run is try of a verb that does not fail.
func (c *centre) run(args ...string) string {
	c.t.Helper()
	out, err := c.try(args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

func (c *centre) startControl() {
	first := c.control == nil
	c.control = c.process("control")
	if first {
		c.t.Cleanup(func() { c.kill() })
	}
}

func (c *centre) startRegional() {
	regional := c.process("regional", "--name", "one")
	c.t.Cleanup(func() {
		_ = regional.Process.Signal(syscall.SIGTERM)
		_ = regional.Wait()
	})
}

func (c *centre) kill() {
	_ = c.control.Process.Kill()
	_ = c.control.Wait()
}

// answers waits until control serves its API, and says how long that took.
func (c *centre) answers() time.Duration {
	c.t.Helper()
	return testkit.EventuallyWithin(c.t, "control answers", 3*time.Minute, func() error {
		if c.kube == nil {
			cfg, err := clientcmd.BuildConfigFromFlags("", c.path("data", "admin.kubeconfig"))
			if err != nil {
				return err
			}
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				return err
			}
			cfg.Timeout = 5 * time.Second
			cfg.QPS = -1
			if c.kube, err = client.New(rest.CopyConfig(cfg), client.Options{Scheme: scheme}); err != nil {
				return err
			}
		}
		return c.kube.Get(context.Background(), client.ObjectKey{Name: tenant}, &v1alpha1.Tenant{})
	})
}

// join joins agents of a tenant: o without what it takes to reach the fleet.
func (c *centre) join(tenant string, o fleetload.Options) *fleetload.Fleet {
	t := c.t
	t.Helper()
	hash, err := fleetload.ReadCAHash(c.path("data"))
	if err != nil {
		t.Fatal(err)
	}
	o.Server, o.CAHash = c.gateway, hash
	o.Token = c.run("token", "create", "--auto-approve", "--max-uses", "0", "--tenant", tenant, "--label", "region=eu", "--token-only")
	f, stop, err := fleetload.Join(t.Context(), o, 8)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	testkit.EventuallyTrue(t, "all agents are connected", func() bool { return f.Connected() == o.Sites })
	return f
}
