package edge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/control/agent/factoryreset"
	"muster.dev/muster/control/agent/hostconfig"
)

// resetDir is where a factory reset is remembered.
func resetDir(stateDir string) string { return filepath.Join(stateDir, "reset") }

// spoolDir is where samples wait, kubeDir what was applied to the cluster is remembered.
func spoolDir(stateDir string) string { return filepath.Join(stateDir, "spool") }
func kubeDir(stateDir string) string  { return filepath.Join(stateDir, "kubernetes") }

// newReset is how this site is reset. again has the site start anew.
func newReset(c Config, env *role.Env, in *inCluster, again func()) *factoryreset.Options {
	o := &factoryreset.Options{Restart: again, Keep: in.keeper(env)}
	if !c.FactoryReset.Enabled {
		o.Refuses = "its own operator has not switched it on: set factoryReset.enabled in its edge.yaml, and restart muster-edge"
	}
	return o
}

// finishReset does what is left of a factory reset, before anything runs.
func finishReset(ctx context.Context, c Config, env *role.Env, in *inCluster) error {
	_, err := factoryreset.Finish(ctx, factoryreset.Wipe{
		Dir: resetDir(c.StateDir), AgentDir: agentDir(c.StateDir), Remove: []string{spoolDir(c.StateDir), kubeDir(c.StateDir)}, Logger: env.Log, Keep: in.keeper(env),
		Restore: func(ctx context.Context) error {
			dir := hostDir(c.StateDir)
			if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
				return nil
			}
			h, err := hostconfig.New(hostconfig.Options{Root: c.HostConfiguration.Root, Dir: dir, Logger: env.Log})
			if err != nil {
				return err
			}
			return h.Restore(ctx)
		},
	})
	return err
}

// unsent says in words what of the samples was not sent.
func (s *Site) unsent() string {
	if n := s.Collector.Status().Spool.Pending; n > 0 {
		return fmt.Sprintf("%d records of samples that were not sent", n)
	}
	return ""
}

// runsYet says in words what still runs on the site.
func (s *Site) runsYet() string {
	if s.kube == nil {
		return ""
	}
	return s.kube.Left()
}
