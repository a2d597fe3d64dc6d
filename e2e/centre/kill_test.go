package centre

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
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
	// lives is up to how long control lives once it answers, on a machine that starts it as
	// quickly; see rollout.
	lives = 4 * time.Second
	// ends is how long a rollout may take once nobody kills anything any more.
	ends = 15 * time.Minute
)

// killed is a fleet whose control dies.
type killed struct {
	*centre
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
	k := &killed{rng: rand.New(rand.NewPCG(*seed, 0))}
	dir := t.TempDir()
	k.centre = configure(t, dir, "software: {dir: "+filepath.Join(dir, "repository")+"}")
	k.run("software", "init", "--keys", k.path("keys"), "--repository", k.path("repository"))
	k.startControl()
	k.answers()
	k.startRegional()
	k.f = k.join(tenant, fleetload.Options{Sites: sites, Series: 1, SoftwareStep: 500 * time.Millisecond})
	return k
}

// answers waits until control serves its API.
func (k *killed) answers() {
	k.t.Helper()
	k.started = max(k.started, min(k.centre.answers(), 20*time.Second))
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
