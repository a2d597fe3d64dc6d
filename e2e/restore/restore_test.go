package restore

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/loadtest/fleetload"
)

const (
	before = "main"  // the tenant of the sites that the backup knows
	after  = "later" // of those that joined since
	sites  = 6
)

// lost is a fleet that loses its control.
type lost struct {
	t       *testing.T
	dir     string
	muster  string
	gateway string
	control *exec.Cmd
	kube    client.Client
}

// A fleet's control is lost with its disk, and restored from a backup that was made while it ran.
// Sites and the regional have gone on; what happened since the backup is undone, and what is
// decided from then on reaches every site.
func TestControlIsRestored(t *testing.T) {
	l := start(t)
	old := l.sites(before, sites)
	l.allow("before_backup_.*")
	l.applied(sites)

	l.run("backup", l.path("fleet.tar.gz"))
	if out, err := l.try("backup", l.path("fleet.tar.gz")); err == nil || !strings.Contains(out, "is there already") {
		t.Errorf("a second backup takes the first one's place: %v, %s", err, out)
	}
	young := l.sites(after, 2)
	gone := &v1alpha1.Site{}
	gone.Namespace, gone.Name = fleet.SystemNamespace(before), "load-00000"
	if err := l.kube.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	l.allow("after_backup_.*")
	testkit.EventuallyTrue(t, "the deleted site is cut off", func() bool { return old.Connected() == sites-1 })

	l.kill()
	if out, err := l.try("restore", l.path("fleet.tar.gz")); err == nil || !strings.Contains(out, "move the directory away") {
		t.Errorf("it restores over what is there: %v, %s", err, out)
	}
	if err := os.Rename(l.path("data", "control"), l.path("lost")); err != nil {
		t.Fatal(err)
	}
	l.run("restore", l.path("fleet.tar.gz"))
	l.startControl()
	l.answers()

	p, err := l.policy()
	if names := p.Spec.Allow.Patterns; err != nil || !slices.Contains(names, "before_backup_.*") || slices.Contains(names, "after_backup_.*") {
		t.Errorf("the policy is not as it was: %v, %v", names, err)
	}
	l.allow("restored_.*")
	l.applied(sites - 1)
	// Whom a regional refuses it goes on to refuse: a backup lets nobody back in.
	if n := old.Connected(); n != sites-1 {
		t.Errorf("%d sites are connected; of %d one was deleted", n, sites)
	}
	testkit.Eventually(t, "those that joined since are told what to do", func() error {
		if said := young.Tally().Counts().LastError; young.Connected() > 0 || !strings.Contains(said, "register the machine anew") {
			return fmt.Errorf("%d are connected: %s", young.Connected(), said)
		}
		return nil
	})
}

func start(t *testing.T) *lost {
	l := &lost{t: t, dir: t.TempDir(), muster: os.Getenv("MUSTER"), gateway: testkit.FreeAddr(t)}
	if l.muster == "" {
		t.Skip("MUSTER names no built muster: make test-go does")
	}
	config := fmt.Sprintf("dataDir: %s\ncontrol: {listen: %q, fleetListen: %q, opsListen: %q, tenants: [%s, %s]}\nregionals:\n- {name: one, listen: %q, queryListen: %q, logs: {forwardListen: \"\"}}\n",
		l.path("data"), testkit.FreeAddr(t), testkit.FreeAddr(t), testkit.FreeAddr(t), before, after, l.gateway, testkit.FreeAddr(t))
	if err := os.WriteFile(l.path("muster.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if b, _ := os.ReadFile(l.path("muster.log")); t.Failed() {
			t.Logf("end of the log:\n%s", b[max(0, len(b)-6000):])
		}
	})
	l.startControl()
	l.answers()
	regional := l.process("regional", "--name", "one")
	t.Cleanup(func() {
		_ = regional.Process.Signal(syscall.SIGTERM)
		_ = regional.Wait()
	})
	return l
}

func (l *lost) path(elem ...string) string {
	return filepath.Join(append([]string{l.dir}, elem...)...)
}

func (l *lost) process(args ...string) *exec.Cmd {
	l.t.Helper()
	log, err := os.OpenFile(l.path("muster.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		l.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(l.muster, append(args, "--config", l.path("muster.yaml"))...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	return cmd
}

// try runs a verb of the CLI and returns what it says.
func (l *lost) try(args ...string) (string, error) {
	out, err := exec.Command(l.muster, append(args, "--config", l.path("muster.yaml"), "--data-dir", l.path("data"))...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (l *lost) run(args ...string) string {
	l.t.Helper()
	out, err := l.try(args...)
	if err != nil {
		l.t.Fatalf("muster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (l *lost) startControl() {
	first := l.control == nil
	l.control = l.process("control")
	if first {
		l.t.Cleanup(l.kill)
	}
}

func (l *lost) kill() {
	_ = l.control.Process.Kill()
	_ = l.control.Wait()
}

// answers waits until control serves its API.
func (l *lost) answers() {
	l.t.Helper()
	testkit.EventuallyWithin(l.t, "control answers", 3*time.Minute, func() error {
		cfg, err := clientcmd.BuildConfigFromFlags("", l.path("data", "admin.kubeconfig"))
		if err != nil {
			return err
		}
		scheme := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(scheme); err != nil {
			return err
		}
		cfg.Timeout = 5 * time.Second
		if l.kube, err = client.New(cfg, client.Options{Scheme: scheme}); err != nil {
			return err
		}
		return l.kube.Get(context.Background(), client.ObjectKey{Name: after}, &v1alpha1.Tenant{})
	})
}

// sites joins so many agents.
func (l *lost) sites(tenant string, n int) *fleetload.Fleet {
	t := l.t
	t.Helper()
	token := l.run("token", "create", "--auto-approve", "--max-uses", "0", "--tenant", tenant, "--label", "region=eu", "--token-only")
	hash, err := os.ReadFile(l.path("data", "join-ca-hash"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := fleetload.New(fleetload.Options{Sites: n, Series: 1, MaxBackoff: 2 * time.Second, Server: l.gateway, CAHash: strings.TrimSpace(string(hash)), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Register(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.Connect(ctx)
	t.Cleanup(func() {
		cancel()
		f.Wait()
	})
	testkit.EventuallyTrue(t, "all agents are connected", func() bool { return f.Connected() == n })
	return f
}

func (l *lost) policy() (*v1alpha1.CollectionPolicy, error) {
	var p v1alpha1.CollectionPolicy
	err := l.kube.Get(l.t.Context(), types.NamespacedName{Namespace: fleet.SystemNamespace(before), Name: "default"}, &p)
	return &p, err
}

// allow lets the policy of all sites allow one more name.
func (l *lost) allow(pattern string) {
	l.t.Helper()
	testkit.Eventually(l.t, "the policy is edited", func() error {
		p, err := l.policy()
		if err != nil {
			return err
		}
		p.Spec.Allow.Patterns = append(p.Spec.Allow.Patterns, pattern)
		return l.kube.Update(l.t.Context(), p)
	})
}

// applied waits until so many sites apply the policy as it is.
func (l *lost) applied(n int) {
	l.t.Helper()
	testkit.Eventually(l.t, "all sites apply the policy", func() error {
		p, err := l.policy()
		if err != nil {
			return err
		}
		if c := meta.FindStatusCondition(p.Status.Conditions, "Applied"); c == nil || c.ObservedGeneration < p.Generation || int(p.Status.Applied) != n {
			return fmt.Errorf("%d of %d: %+v", p.Status.Applied, n, c)
		}
		return nil
	})
}
