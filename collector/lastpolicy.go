package collector

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/fleet"
)

// policyFile holds the last good policy, beside the spool: after a restart it is
// in effect before anybody brings it again. Its caps above all: smaller ones would
// cost samples that the policy wants kept.
const policyFile = "policy.json"

func lastPolicy(dir string, log *slog.Logger) fleet.CollectionPolicy {
	b, err := os.ReadFile(filepath.Join(dir, policyFile))
	if errors.Is(err, os.ErrNotExist) {
		return DefaultPolicy()
	}
	var p fleet.CollectionPolicy
	if err == nil {
		p, err = fleet.DecodeCollectionPolicy(b)
	}
	if err != nil {
		log.Warn("the saved policy is not usable; collecting nothing until one comes", "err", err)
		return DefaultPolicy()
	}
	return p
}

func savePolicy(dir string, p fleet.CollectionPolicy) error {
	return atomicfile.Write(filepath.Join(dir, policyFile), p.Encode(), 0o600)
}
