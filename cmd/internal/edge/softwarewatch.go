package edge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/control/agent/software/images"
	"muster.dev/muster/control/agent/software/self"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/obs"
)

// WatchOptions of Watch.
type WatchOptions struct {
	// Dir of the binaries; it is made if need be.
	Dir  string
	Args []string // of the agent
	// Within is by when a new one has to be marked good; 0: WatchWithin.
	Within time.Duration
}

// Watch starts the agent, in the version that is its turn, again and again until ctx ends.
func Watch(ctx context.Context, o WatchOptions) error {
	log, err := obs.NewLogger(os.Stderr, obs.LogOptions(DefaultConfig().Log))
	if err != nil {
		return err
	}
	path, err := os.Executable()
	if err != nil {
		return err
	}
	if err := self.Adopt(ctx, disk.OS{}, o.Dir, version(), path); err != nil {
		return fmt.Errorf("the agent's slots: %w", err)
	}
	debug.FreeOSMemory() // it waits from now on
	return self.Watch(ctx, self.WatchOptions{Dir: o.Dir, Args: o.Args, Within: cmp.Or(o.Within, WatchWithin), Log: log.With("watchdog", true)})
}

// software is what replaces the agent where it is a pod. It waits for the API server, since
// the site's trust in the repository is there. refused says why it can't replace it, which
// must not keep the site from running.
func (in *inCluster) software(ctx context.Context, env *role.Env) (d *images.Driver, refused, err error) {
	err = in.retry(ctx, env, "bring back how far the software of this site is", func(context.Context) error {
		_, err := images.Memory{Client: in.kube, Namespace: in.conf.Namespace}.Load("agent.state.json")
		if refused = nil; apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			refused = err
		}
		if refused != nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil || refused != nil {
		return nil, refused, err
	}
	d, refused = images.New(images.Options{Client: in.kube, Namespace: in.conf.Namespace, Version: version(), Mark: os.Getenv(images.EnvMark), Pod: os.Getenv(images.EnvPod)})
	return d, refused, nil
}

// GuardOptions of Guard.
type GuardOptions struct {
	Namespace, HostNamespace string
	// Within is by when a new version has to be marked good; 0: WatchWithin.
	Within time.Duration
	// Kubeconfig reaches the cluster from outside of a pod; empty: this is one.
	Kubeconfig string
}

// Guard exchanges the agent's image on a cluster, and puts the old one back, until ctx ends.
func Guard(ctx context.Context, o GuardOptions) error {
	log, err := obs.NewLogger(os.Stderr, obs.LogOptions(DefaultConfig().Log))
	if err != nil {
		return err
	}
	k := Kubernetes{Kubeconfig: o.Kubeconfig}
	config, err := k.restConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	images.NewGuard(images.GuardOptions{Client: client, Namespace: o.Namespace, HostNamespace: o.HostNamespace, Within: cmp.Or(o.Within, WatchWithin), Log: log.With("guard", true)}).Run(ctx)
	return nil
}
