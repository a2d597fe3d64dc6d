package rig

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

const (
	// softwareSize of a version, in bytes. Every site downloads it.
	softwareSize = 1 << 20
	// softwareWaves are the default ones, named so that the table need not explain them.
	softwareWaves = "1%,10%,50%,100%"
	// softwareWithin is more than a simulated agent takes on a busy machine.
	softwareWithin = "4m"
)

// software of the run lies beside Muster's data, with the keys of whoever releases.
func (c *cluster) repository() string  { return filepath.Join(c.dir, "software") }
func (c *cluster) offlineKeys() string { return filepath.Join(c.dir, "offline-keys") }

// software takes a version of the agent over all sites in waves, a few of which are not well
// with it: once within the budget, and once with less budget than there are such sites.
func (r *run) software(ctx context.Context, _ *Phase) error {
	stop := r.profileSoon(ctx, PhaseSoftware, 0)
	defer stop()
	bad := r.f.SoftwareBad()
	before, err := r.c.metrics(ctx, "regional")
	if err != nil {
		return err
	}
	if err := r.release(ctx, "2.0.0"); err != nil {
		return err
	}
	began := time.Now()
	ro, err := r.upgrade(ctx, "2.0.0", "--max-failed", "2%")
	if err != nil {
		return err
	}
	if st := ro.Status; st.Phase != v1alpha1.RolloutCompleted || int(st.Sites.Failed) != bad || int(st.Sites.Passed) != r.f.Sites()-bad {
		return fmt.Errorf("%d of %d sites are bad with 2.0.0, within the budget: it ended %s, %+v: %s", bad, r.f.Sites(), st.Phase, st.Sites, st.Message)
	}
	r.row(fmt.Sprintf("software: four waves over all agents, %d of them bad, within the budget of 2 %%, s", bad), time.Since(began).Seconds(), "%.1f")
	if err := r.agents(ctx, map[string]int{"Done 2.0.0": r.f.Sites() - bad, "Failed 1.0.0": bad}); err != nil {
		return err
	}
	after, err := r.c.metrics(ctx, "regional")
	if err != nil {
		return err
	}
	since := func(name string) float64 { return after.sum(name) - before.sum(name) }
	r.row("software: files fetched from the centre", since("muster_software_fetches_total"), "%.0f")
	r.row("software: MB fetched from the centre / sent to sites", since("muster_software_fetched_bytes_total")/1e6, "%.1f / %.0f", since("muster_software_fetched_bytes_total")/1e6, since("muster_software_sent_bytes_total")/1e6)
	r.row("software: requests that were told to come again", after.sum("muster_software_requests_total", "code", "503")-before.sum("muster_software_requests_total", "code", "503"), "%.0f")

	if bad == 0 {
		return nil
	}
	if err := r.release(ctx, "3.0.0"); err != nil {
		return err
	}
	began = time.Now()
	if ro, err = r.upgrade(ctx, "3.0.0", "--max-failed", strconv.Itoa(bad/2), "--on-failure", "rollback"); err != nil {
		return err
	}
	if st := ro.Status; st.Phase != v1alpha1.RolloutRolledBack {
		return fmt.Errorf("%d of %d sites are bad with 3.0.0, and %d may be: it ended %s, %+v: %s", bad, r.f.Sites(), bad/2, st.Phase, st.Sites, st.Message)
	}
	if err := r.agents(ctx, map[string]int{"Done 2.0.0": r.f.Sites() - bad, "Failed 1.0.0": bad}); err != nil {
		return err
	}
	r.row(fmt.Sprintf("software: another version, of which %d may fail: halted in wave, of four", bad/2), float64(ro.Status.Wave), "%.0f")
	r.row("software: until every agent runs again what it ran, s", time.Since(began).Seconds(), "%.1f")
	var state v1alpha1.RolloutState
	if err := r.kube.Get(ctx, client.ObjectKeyFromObject(ro), &state); err != nil {
		return fmt.Errorf("read the rollout's state: %w", err)
	}
	b, err := json.Marshal(state)
	if err != nil {
		return err
	}
	r.row("software: size of the rollout's state, kB", float64(len(b))/1000, "%.1f")
	return nil
}

// release signs a version and makes its object, as whoever releases does.
func (r *run) release(ctx context.Context, version string) error {
	file := filepath.Join(r.c.dir, "agent-"+version)
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, rand.Reader, softwareSize)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	_, err = r.c.run(ctx, "software", "add", "agent", version, "--file", file, "--keys", r.c.offlineKeys(), "--repository", r.c.repository(), "--tenant", tenant)
	return err
}

// upgrade starts a rollout of a version of the agent over all sites, and returns it as it
// ended. Its gate is that the agents are well, without a soak: what is measured is deciding
// and carrying out.
func (r *run) upgrade(ctx context.Context, version string, flags ...string) (*v1alpha1.Rollout, error) {
	name := "agent-" + version
	args := append([]string{"rollout", "start", "software", "agent=" + version, "--name", name, "--tenant", tenant, "--waves", softwareWaves, "--soak", "0s", "--gate", "ready", "--ready-within", softwareWithin}, flags...)
	if _, err := r.c.run(ctx, args...); err != nil {
		return nil, err
	}
	ro := &v1alpha1.Rollout{}
	err := until(ctx, "the rollout of agent "+version+" to end", 500*time.Millisecond, func(ctx context.Context) (bool, string, error) {
		if err := r.kube.Get(ctx, client.ObjectKey{Namespace: fleet.SystemNamespace(tenant), Name: name}, ro); err != nil {
			return false, err.Error(), nil
		}
		st := ro.Status
		return st.Phase.Ended(), fmt.Sprintf("%s, wave %s, %+v: %s; sites say %v", st.Phase, st.Progress, st.Sites, st.Message, r.f.Software()), nil
	})
	return ro, err
}

// agents waits until so many sites say each of Fleet.Software.
func (r *run) agents(ctx context.Context, want map[string]int) error {
	return until(ctx, "every agent to run what it shall", 250*time.Millisecond, func(context.Context) (bool, string, error) {
		got := r.f.Software()
		return fmt.Sprint(got) == fmt.Sprint(want), fmt.Sprintf("%v, want %v", got, want), nil
	})
}
