package kill

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/loadtest/fleetload"
)

var (
	kills = flag.Int("kills", 0, "how often control is killed during one rollout; 0: the test is skipped")
	seed  = flag.Uint64("kill-seed", uint64(time.Now().UnixNano()), "seed of the moments at which it is killed")
)

const (
	tenant = "main"
	// lives is up to how long control lives once it answers, on a machine that starts it as
	// quickly; see rollout.
	lives = 4 * time.Second
	// ends is how long a rollout may take once nobody kills anything any more.
	ends = 15 * time.Minute
)

// killed is a fleet whose control dies.
type killed struct {
	t       *testing.T
	dir     string
	muster  string
	control *exec.Cmd
	log     *os.File
	kube    client.Client
	f       *fleetload.Fleet
	rng     *rand.Rand
	started time.Duration // how long control takes until it answers, at most so far
}

// TestControlKilledAtAnyPoint takes a version of the agent over simulated agents one by one,
// and half of the way of another one that is aborted, with kill -9 of control at random
// moments, its start among them. It ends as it would have, each site has installed each
// version as often as it was to, and no two did so at one time.
func TestControlKilledAtAnyPoint(t *testing.T) {
	if *kills == 0 {
		t.Skip("run make test-kill: it takes half an hour, and bin/muster")
	}
	t.Logf("-kill-seed %d", *seed)
	k := start(t, *kills+8)
	all := k.f.Sites()
	if st := k.rollout("2.0.0", *kills, 0); st.Phase != v1alpha1.RolloutCompleted || int(st.Sites.Passed) != all || int(st.Wave) != all {
		t.Errorf("it ends %s in wave %d, %+v: %s", st.Phase, st.Wave, st.Sites, st.Message)
	}
	k.says(map[string]int{"Done 2.0.0": all})
	once := k.f.Trials()
	for site, n := range once {
		if n != 1 {
			t.Errorf("%s has begun to try 2.0.0 %d times, want once", site, n)
		}
	}

	st := k.rollout("3.0.0", max(1, *kills/4), max(2, int32(*kills/10)))
	if st.Phase != v1alpha1.RolloutRolledBack {
		t.Errorf("after an abort it ends %s, %+v: %s", st.Phase, st.Sites, st.Message)
	}
	k.says(map[string]int{"Done 2.0.0": all})
	tried := map[int]int{}
	for site, n := range k.f.Trials() {
		tried[n-once[site]]++
	}
	// The last wave's site may not have begun when it was taken back.
	if went := int(st.Wave); len(tried) > 2 || tried[0]+tried[2] != all || tried[2] != went && tried[2] != went-1 {
		t.Errorf("it was put back in wave %d of one site each: sites by how often they installed something: %v", st.Wave, tried)
	}
}

// start starts control and a regional, and joins so many agents.
func start(t *testing.T, sites int) *killed {
	k := &killed{t: t, dir: t.TempDir(), muster: os.Getenv("MUSTER"), rng: rand.New(rand.NewPCG(*seed, 0))}
	if k.muster == "" {
		k.muster = filepath.Join("..", "..", "bin", "muster")
	}
	var err error
	if k.muster, err = filepath.Abs(k.muster); err != nil {
		t.Fatal(err)
	}
	if k.log, err = os.Create(k.path("muster.log")); err != nil {
		t.Fatal(err)
	}
	gateway := testkit.FreeAddr(t)
	config := fmt.Sprintf("dataDir: %s\ncontrol: {listen: %q, fleetListen: %q, opsListen: %q, software: {dir: %s}}\nregionals:\n- {name: one, listen: %q, queryListen: %q, logs: {forwardListen: \"\"}}\n",
		k.path("data"), testkit.FreeAddr(t), testkit.FreeAddr(t), testkit.FreeAddr(t), k.path("repository"), gateway, testkit.FreeAddr(t))
	if err := os.WriteFile(k.path("muster.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if b, _ := os.ReadFile(k.log.Name()); t.Failed() {
			t.Logf("end of the log:\n%s", b[max(0, len(b)-6000):])
		}
	})
	k.run("software", "init", "--keys", k.path("keys"), "--repository", k.path("repository"))
	k.startControl()
	k.answers()
	regional := k.process("regional", "--name", "one")
	t.Cleanup(func() {
		_ = regional.Process.Signal(syscall.SIGTERM)
		_ = regional.Wait()
	})

	token := k.run("token", "create", "--auto-approve", "--max-uses", "0", "--tenant", tenant, "--label", "region=eu", "--token-only")
	hash, err := os.ReadFile(k.path("data", "join-ca-hash"))
	if err != nil {
		t.Fatal(err)
	}
	k.f, err = fleetload.New(fleetload.Options{Sites: sites, Series: 1, SoftwareStep: 500 * time.Millisecond,
		Server: gateway, CAHash: strings.TrimSpace(string(hash)), Token: strings.TrimSpace(token)})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.f.Register(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	k.f.Connect(ctx)
	t.Cleanup(func() {
		cancel()
		k.f.Wait()
	})
	testkit.EventuallyTrue(t, "all agents are connected", func() bool { return k.f.Connected() == sites })
	return k
}

func (k *killed) path(elem ...string) string {
	return filepath.Join(append([]string{k.dir}, elem...)...)
}

func (k *killed) process(args ...string) *exec.Cmd {
	k.t.Helper()
	cmd := exec.Command(k.muster, append(args, "--config", k.path("muster.yaml"))...)
	cmd.Stdout, cmd.Stderr = k.log, k.log
	if err := cmd.Start(); err != nil {
		k.t.Fatalf("start %s %s: %v; `make build` first", k.muster, args[0], err)
	}
	return cmd
}

// run runs a verb of the CLI to its end.
func (k *killed) run(args ...string) string {
	k.t.Helper()
	cmd := exec.Command(k.muster, append(args, "--data-dir", k.path("data"))...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		k.t.Fatalf("muster %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

func (k *killed) startControl() {
	first := k.control == nil
	k.control = k.process("control")
	if first {
		k.t.Cleanup(func() { k.kill() })
	}
}

func (k *killed) kill() {
	_ = k.control.Process.Kill()
	_ = k.control.Wait()
}

// answers waits until control serves its API.
func (k *killed) answers() {
	k.t.Helper()
	took := testkit.EventuallyWithin(k.t, "control answers", 3*time.Minute, func() error {
		if k.kube == nil {
			cfg, err := clientcmd.BuildConfigFromFlags("", k.path("data", "admin.kubeconfig"))
			if err != nil {
				return err
			}
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				return err
			}
			cfg.Timeout = 5 * time.Second
			cfg.QPS = -1
			if k.kube, err = client.New(rest.CopyConfig(cfg), client.Options{Scheme: scheme}); err != nil {
				return err
			}
		}
		return k.kube.Get(context.Background(), client.ObjectKey{Name: tenant}, &v1alpha1.Tenant{})
	})
	k.started = max(k.started, min(took, 20*time.Second))
}

// rollout takes a version over all sites, one by one, with so many kills on its way, and
// returns how it ended. In the wave abortIn somebody aborts it; 0: in none.
func (k *killed) rollout(version string, kills int, abortIn int32) v1alpha1.RolloutStatus {
	t := k.t
	t.Helper()
	file := k.path("agent-" + version)
	if err := os.WriteFile(file, []byte("agent "+version), 0o600); err != nil {
		t.Fatal(err)
	}
	k.run("software", "add", "agent", version, "--file", file, "--keys", k.path("keys"), "--repository", k.path("repository"), "--tenant", tenant)
	k.run("rollout", "start", "software", "agent="+version, "--name", "agent-"+version, "--tenant", tenant, "--strategy", "rolling", "--group", "1",
		"--soak", "0s", "--gate", "ready", "--ready-within", "10m")
	ctx, stop := context.WithCancel(context.Background())
	watched := make(chan string)
	go func() { watched <- k.watch(ctx, version) }()

	var ro v1alpha1.Rollout
	look := func() error {
		err := k.kube.Get(context.Background(), client.ObjectKey{Namespace: fleet.SystemNamespace(tenant), Name: "agent-" + version}, &ro)
		if err == nil && abortIn > 0 && ro.Status.Wave >= abortIn && !ro.Spec.Control.Abort {
			err = k.kube.Patch(context.Background(), &ro, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"control":{"abort":true}}}`)))
		}
		return err
	}
	waves, n := map[int32]int{}, 0
	for ; n < kills; n++ {
		// Three of four times it lives for a while, else it dies while it starts.
		life := k.started
		if k.rng.IntN(4) > 0 {
			k.answers()
			if err := look(); err == nil && ro.Status.Phase.Ended() {
				break
			}
			waves[ro.Status.Wave]++
			// As long as a start takes, for its controllers begin later than it answers; less
			// if the rollout is ahead of the kills, so that these are spread over all of it.
			if life = max(lives, k.started*3/4); int(ro.Status.Wave)*kills > n*k.f.Sites() {
				life = lives / 8
			}
		}
		time.Sleep(time.Duration(k.rng.Int64N(int64(life)))) // the moment is what is random here
		k.kill()
		k.startControl()
		if n%10 == 9 {
			t.Logf("agent %s: %d kills, wave %d", version, n+1, ro.Status.Wave)
		}
	}
	k.answers()
	testkit.EventuallyWithin(t, "the rollout of "+version+" ends", ends, func() error {
		if err := look(); err != nil {
			return err
		}
		if !ro.Status.Phase.Ended() {
			return fmt.Errorf("%s, wave %d, %+v: %s; sites say %v", ro.Status.Phase, ro.Status.Wave, ro.Status.Sites, ro.Status.Message, k.f.Software())
		}
		return nil
	})
	stop()
	if wrong := <-watched; wrong != "" {
		t.Error(wrong)
	}
	t.Logf("agent %s: %d kills in waves %v, control takes up to %s to start; %s after %d waves, %+v", version, n, slices.Sorted(maps.Keys(waves)), k.started.Round(time.Millisecond), ro.Status.Phase, ro.Status.Wave, ro.Status.Sites)
	if n < kills && ro.Status.Phase == v1alpha1.RolloutCompleted {
		t.Errorf("it ended after %d kills of %d", n, kills)
	}
	return ro.Status
}

// watch looks whether two sites are about a version at one time, until ctx ends.
func (k *killed) watch(ctx context.Context, version string) string {
	most := 0
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			if most > 1 {
				return fmt.Sprintf("%d sites went to %s at one time, want one after the other", most, version)
			}
			return ""
		case <-tick.C:
		}
		most = max(most, k.f.Going()[version])
	}
}

// says waits until so many agents say each of Fleet.Software.
func (k *killed) says(want map[string]int) {
	k.t.Helper()
	testkit.Eventually(k.t, "every agent runs what it shall", func() error {
		if got := k.f.Software(); !maps.Equal(got, want) {
			b, _ := json.Marshal(got)
			return errors.New(string(b))
		}
		return nil
	})
}
