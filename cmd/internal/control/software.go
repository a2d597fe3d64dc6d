package control

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/fleetapi"
	"muster.dev/muster/control/software/bucket"
	"muster.dev/muster/control/software/repository"
)

// startSoftware serves the repository of sites' software to regionals, and keeps it signed.
func startSoftware(ctx context.Context, env *role.Env, c config.Config) (*repository.Repository, error) {
	s := c.Control.Software
	o := repository.Options{Dir: s.Dir, CacheDir: c.Path("control", "software-cache"), CacheBytes: s.CacheBytes, KeysDir: c.OnlineKeysDir(),
		Logger: env.Log.With("part", "software repository"), Registerer: env.Reg}
	if s.BucketFile != "" {
		var err error
		if o.Bucket, err = bucket.OpenFile(ctx, s.BucketFile); err != nil {
			return nil, fmt.Errorf("control.software.bucketFile: %w", err)
		}
	}
	r, err := repository.Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("control.software: %w", err)
	}
	r.Register(env.Ops.Mux())
	env.Ops.Status("software repository", r.Status)
	env.Go("software repository", r.Run)
	return r, nil
}

// softwareParts is what sites are told of their software, and what they say.
type softwareParts struct {
	*desired.Store
	*fleetapi.Server
}

// rootEvery is how often it is looked whether the repository has another root.
const rootEvery = 10 * time.Second

// followRoot has sites told of a new root of the repository.
func followRoot(ctx context.Context, root func() []byte, store *desired.Store) error {
	last := root()
	for tick := time.NewTicker(rootEvery); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return ctx.Err()
		case <-tick.C:
		}
		if now := root(); !bytes.Equal(now, last) {
			last = now
			store.SoftwareChanged()
		}
	}
}
