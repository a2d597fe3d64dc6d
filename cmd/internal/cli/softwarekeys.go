package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/spf13/cobra"

	"muster.dev/muster/control/software/repository"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/software/bundle/publish"
)

func softwareInitCmd(g *Globals) *cobra.Command {
	s := &softwareRepo{g: g}
	var roots, threshold int
	cmd := &cobra.Command{
		Use: "init", Short: "Make the signed repository and its keys", Args: cobra.NoArgs,
		Long: `Make an empty repository of software and the keys that sign it.

The offline keys go to the directory of --keys: take it away from this machine, and make a
copy. Who has them can have every site run anything; who has lost them can release nothing
more. With --root-keys 3 --root-threshold 2 the root has three keys, of which two sign
together: give each to another person.

The online keys go to where control looks for them.`,
		Example: `  muster software init --keys /media/stick/muster
  muster software init --keys ./ceremony --root-keys 3 --root-threshold 2 --repository bucket.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := s.open(cmd)
			if err != nil {
				return err
			}
			switch {
			case len(s.keys) != 1:
				return errors.New("say with --keys DIR where the offline keys shall go: a place that can be taken away from this machine")
			case roots < 1 || threshold < 1 || threshold > roots:
				return fmt.Errorf("--root-keys %d --root-threshold %d: want at least one key, and a threshold of at most as many", roots, threshold)
			}
			if _, err := r.Standing(cmd.Context()); err == nil {
				return fmt.Errorf("there is a repository at %s already: `muster software add` releases into it", s.repository)
			} else if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			keys := publish.Keys{RootThreshold: threshold}
			make := func(to *[]signature.Signer, path string) {
				if err != nil {
					return
				}
				var k signature.Signer
				if k, err = newKeyFile(path); err == nil {
					*to = append(*to, k)
				}
			}
			for i := range roots {
				make(&keys.Root, filepath.Join(s.keys[0], fmt.Sprintf("root-%d.pem", i+1)))
			}
			make(&keys.Targets, filepath.Join(s.keys[0], targetsKey))
			make(&keys.Snapshot, filepath.Join(s.online, repository.SnapshotKey))
			make(&keys.Timestamp, filepath.Join(s.online, repository.TimestampKey))
			if err != nil {
				return err
			}
			r.Keys = keys
			if _, err := r.Init(cmd.Context()); err != nil {
				return err
			}
			s.printInit(cmd.OutOrStdout())
			return nil
		},
	}
	s.flags(cmd)
	cmd.Flags().IntVar(&roots, "root-keys", 1, "how many keys the root has")
	cmd.Flags().IntVar(&threshold, "root-threshold", 1, "how many of them have to sign together")
	return cmd
}

func (s *softwareRepo) printInit(w io.Writer) {
	field, where := "dir", s.repository
	if s.isBucket() {
		field = "bucketFile"
	}
	if abs, err := filepath.Abs(where); err == nil {
		where = abs
	}
	online := s.online
	if abs, err := filepath.Abs(online); err == nil {
		online = abs
	}
	fmt.Fprintf(w, `The repository is made at %s.

  %s   the offline keys, root and targets. Take them away from here, and keep a copy.
  %s   the online keys. They stay with control.

In control's configuration:

  control:
    software:
      %s: %s
      onlineKeys: %s

Then release something: muster software add agent 1.4.2 --file amd64=bin/muster-edge --keys %s
`, s.repository, s.keys[0], online, field, where, online, s.keys[0])
}

// rotation is which keys are replaced, and where new offline ones go.
type rotation struct {
	root, targets, online bool
	to                    string
	roots, threshold      int // of the root; 0: as many as it has
}

// freshKey is the end of a new online key's name until the root that names it is signed.
const freshKey = ".new"

// keys are the present ones with new ones in place of those that are replaced. New online keys are
// written beside the old ones.
func (x rotation) keys(present publish.Keys, at *publish.Standing, onlineDir string) (next publish.Keys, err error) {
	next = present
	one := func(to *[]signature.Signer, path string) {
		if err == nil {
			var k signature.Signer
			if k, err = newKeyFile(path); err == nil {
				*to = append(*to, k)
			}
		}
	}
	if x.root {
		roots := cmp.Or(x.roots, at.RootKeys)
		threshold := cmp.Or(x.threshold, min(at.RootThreshold, roots))
		next.Root, next.RootThreshold = nil, threshold
		for i := range roots {
			one(&next.Root, filepath.Join(x.to, fmt.Sprintf("root-%d.pem", i+1)))
		}
	} else if len(present.Root) < at.RootKeys {
		return next, fmt.Errorf("%d of the root's %d keys are here: without all of them the others would be dropped; bring them, or replace them with --root", len(present.Root), at.RootKeys)
	}
	if x.targets {
		next.Targets = nil
		one(&next.Targets, filepath.Join(x.to, targetsKey))
	}
	if x.online {
		next.Snapshot, next.Timestamp = nil, nil
		for _, k := range []string{repository.SnapshotKey, repository.TimestampKey} {
			_ = os.Remove(filepath.Join(onlineDir, k+freshKey)) // of a rotation that came to nothing
		}
		one(&next.Snapshot, filepath.Join(onlineDir, repository.SnapshotKey+freshKey))
		one(&next.Timestamp, filepath.Join(onlineDir, repository.TimestampKey+freshKey))
	}
	return next, err
}

// putOnlineKeys has the new online keys take the place of the old ones.
func putOnlineKeys(dir string) error {
	for _, k := range []string{repository.SnapshotKey, repository.TimestampKey} {
		if err := (disk.OS{}).Rename(filepath.Join(dir, k+freshKey), filepath.Join(dir, k)); err != nil {
			return err
		}
	}
	return disk.OS{}.SyncDir(dir)
}

func softwareRotateCmd(g *Globals) *cobra.Command {
	s := &softwareRepo{g: g}
	var x rotation
	cmd := &cobra.Command{
		Use: "rotate", Short: "Replace keys, by a root that the present ones sign", Args: cobra.NoArgs,
		Long: `Replace keys: after a theft, when somebody leaves, or every year. Sites follow by
themselves, also those that were away for several rotations: each new root is signed by the
keys of the one before.

It needs as many of the root's keys as its threshold says; of --targets and --root the new
keys go to --to, a new directory. New online keys go to where the old ones are, so this runs
where control does. What a stolen targets key has signed is gone once you withdraw it; the
files that it signed before stay signed.`,
		Example: `  muster software rotate --online --keys /media/stick/muster
  muster software rotate --targets --root --keys /media/stick/muster --to /media/stick/muster-2027`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, at, err := s.standing(cmd)
			if err != nil {
				return err
			}
			if !x.root && !x.targets && !x.online {
				return errors.New("say what to replace: --root, --targets, --online, or several of them")
			}
			if (x.root || x.targets) && x.to == "" {
				return errors.New("say with --to DIR where the new offline keys shall go; old ones are never written over")
			}
			if err := s.needRoot(r, at); err != nil {
				return err
			}
			next, err := x.keys(r.Keys, at, s.online)
			if err != nil {
				return err
			}
			if err := r.Rotate(cmd.Context(), next); err != nil {
				return err
			}
			if x.online {
				if err := putOnlineKeys(s.online); err != nil {
					return err
				}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Root %d is signed; sites follow by themselves.\n", at.RootVersion+1)
			if x.root || x.targets {
				fmt.Fprintf(cmd.OutOrStdout(), "The new offline keys are in %s. Sites that were away still need the old root's signatures, which are in the repository; the old keys may be destroyed.\n", x.to)
			}
			s.whenSeen(cmd.OutOrStdout(), r)
			return nil
		},
	}
	s.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&x.root, "root", false, "replace the root's keys")
	f.BoolVar(&x.targets, "targets", false, "replace the key that releases")
	f.BoolVar(&x.online, "online", false, "replace the keys of control")
	f.StringVar(&x.to, "to", "", "new directory for the new offline keys")
	f.IntVar(&x.roots, "root-keys", 0, "with --root: how many keys it has from now on (default: as many as now)")
	f.IntVar(&x.threshold, "root-threshold", 0, "with --root: how many of them have to sign together (default: as many as now)")
	return cmd
}

func softwareRenewCmd(g *Globals) *cobra.Command {
	s := &softwareRepo{g: g}
	cmd := &cobra.Command{
		Use: "renew", Short: "Sign anew what expires, and show when it does", Args: cobra.NoArgs,
		Long: `Sign anew what expires, with the keys that are there: snapshot and timestamp, which
control does by itself every day; with --keys that have the targets key, the list of files,
which lives for 90 days; with as many root keys as its threshold says, the root, which lives
for a year. Releasing something renews the list of files as well.

From its expiry on sites install nothing; they go on running what they run.`,
		Example: "  muster software renew\n  muster software renew --keys /media/stick/muster",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, at, err := s.standing(cmd)
			if err != nil {
				return err
			}
			did := ""
			switch online := len(r.Keys.Snapshot) > 0 && len(r.Keys.Timestamp) > 0; {
			case len(r.Keys.Root) > 0 && len(r.Keys.Root) == at.RootKeys:
				did, err = "root, list of files and what is online", r.Rotate(cmd.Context(), r.Keys)
				if len(r.Keys.Targets) == 0 {
					did = "root and what is online"
				}
			case len(r.Keys.Targets) > 0:
				did, err = "list of files and what is online", r.RenewTargets(cmd.Context())
			case online:
				did, err = "what is online", r.Renew(cmd.Context())
			default:
				return fmt.Errorf("no key is here: control has the online ones in %s, name the offline ones with --keys", s.online)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Signed anew: %s.\n", did)
			s.whenSeen(cmd.OutOrStdout(), r)
			if at, err = r.Standing(cmd.Context()); err != nil {
				return err
			}
			t := table{header: []string{"ROLE", "EXPIRES", "IN"}}
			for _, role := range []string{"root", "targets", "snapshot", "timestamp"} {
				t.rows = append(t.rows, []string{role, at.Expires[role].UTC().Format(time.RFC3339), fmt.Sprintf("%d days", int(time.Until(at.Expires[role]).Hours()/24))})
			}
			return g.print(cmd.OutOrStdout(), at.Expires, t)
		},
	}
	s.flags(cmd)
	g.addOutput(cmd)
	return cmd
}
