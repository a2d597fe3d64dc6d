package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/spf13/cobra"

	"muster.dev/muster/control/software/bucket"
	"muster.dev/muster/control/software/repository"
	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/software/bundle/publish"
)

func softwareCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use: "software", Short: "Release software to sites: operating system, agent, platform",
		Long: `Release new versions of what sites run, and see which site runs what.

A version is files in a signed repository, a directory or a bucket, and a SoftwareVersion
object that names them. Sites install nothing that the repository's keys have not signed,
whoever tells them to: no right in the API server replaces a key.

  root      signs who the other keys are. Kept apart, on a stick in a safe.
  targets   signs which files there are. With whoever releases.
  online    snapshot and timestamp, which say that nothing has changed. With control,
            which signs with them every day.

Which site gets which version is said by SoftwarePolicy objects and rollouts.`,
		Example: `  muster software init --keys /media/stick/muster
  muster software add agent 1.4.2 --file amd64=bin/muster-edge --keys /media/stick/muster
  muster software list
  muster software status -w`,
	}
	cmd.AddCommand(softwareInitCmd(g), softwareAddCmd(g), softwareRotateCmd(g), softwareRenewCmd(g), softwareListCmd(g), softwareWithdrawCmd(g), softwareStatusCmd(g))
	return cmd
}

// softwareRepo is where the repository lies and its keys are, by flags.
type softwareRepo struct {
	g          *Globals
	repository string
	keys       []string
	online     string
}

const (
	repositoryEnv = "MUSTER_SOFTWARE_REPOSITORY"
	keysEnv       = "MUSTER_SOFTWARE_KEYS"
)

func (s *softwareRepo) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.repository, "repository", "", "directory of the repository, or a YAML file that names a bucket as control.software.bucketFile does (default: $"+repositoryEnv+", else DATA-DIR/software)")
	cmd.Flags().StringArrayVar(&s.keys, "keys", nil, "directory with the offline keys, root-N.pem and targets.pem; repeat it to bring several together (default: $"+keysEnv+")")
	cmd.Flags().StringVar(&s.online, "online-keys", "", "directory with the online keys; without them control signs what they have to, within half a minute (default: DATA-DIR/control/software-keys)")
}

// isBucket: a file names one.
func (s *softwareRepo) isBucket() bool {
	st, err := os.Stat(s.repository)
	return err == nil && st.Mode().IsRegular()
}

// open finds the repository; its keys are those that are there.
func (s *softwareRepo) open(cmd *cobra.Command) (*publish.Repository, error) {
	if s.repository == "" {
		s.repository = os.Getenv(repositoryEnv)
	}
	if s.repository == "" {
		s.repository = filepath.Join(s.g.DataDir, "software")
	}
	if len(s.keys) == 0 && os.Getenv(keysEnv) != "" {
		s.keys = filepath.SplitList(os.Getenv(keysEnv))
	}
	if s.online == "" {
		s.online = filepath.Join(s.g.DataDir, "control", "software-keys")
	}
	r := &publish.Repository{Store: publish.Dir{Path: s.repository}}
	if s.isBucket() {
		b, err := bucket.OpenFile(cmd.Context(), s.repository)
		if err != nil {
			return nil, fmt.Errorf("--repository: %w", err)
		}
		r.Store = b
	}
	for _, dir := range s.keys {
		roots, err := filepath.Glob(filepath.Join(dir, "root-*.pem"))
		if err != nil {
			return nil, err
		}
		for _, name := range roots {
			if err := readKey(name, &r.Keys.Root); err != nil {
				return nil, err
			}
		}
		if err := readKey(filepath.Join(dir, targetsKey), &r.Keys.Targets); err != nil {
			return nil, err
		}
	}
	err := errors.Join(readKey(filepath.Join(s.online, repository.SnapshotKey), &r.Keys.Snapshot), readKey(filepath.Join(s.online, repository.TimestampKey), &r.Keys.Timestamp))
	return r, err
}

const targetsKey = "targets.pem"

// readKey appends a key, if it is there.
func readKey(name string, to *[]signature.Signer) error {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	k, err := publish.ReadKey(b)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	*to = append(*to, k)
	return nil
}

// standing is the repository as it is, with keys that fit it.
func (s *softwareRepo) standing(cmd *cobra.Command) (*publish.Repository, *publish.Standing, error) {
	r, err := s.open(cmd)
	if err != nil {
		return nil, nil, err
	}
	at, err := r.Standing(cmd.Context())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("there is no software repository at %s: make one with `muster software init`, or name another with --repository", s.repository)
	}
	if err != nil {
		return nil, nil, err
	}
	r.Keys.RootThreshold = at.RootThreshold
	return r, at, r.CheckKeys(cmd.Context())
}

// needTargets is an error that says where the key is that releases.
func (s *softwareRepo) needTargets(r *publish.Repository) error {
	if len(r.Keys.Targets) > 0 {
		return nil
	}
	return fmt.Errorf("no %s in %s: who releases needs the key; name its directory with --keys or $%s", targetsKey, orNone(s.keys), keysEnv)
}

func (s *softwareRepo) needRoot(r *publish.Repository, at *publish.Standing) error {
	if n := len(r.Keys.Root); n < at.RootThreshold {
		return fmt.Errorf("%d of the root's keys found in %s, and %d of %d have to sign: bring them together, each directory with its own --keys", n, orNone(s.keys), at.RootThreshold, at.RootKeys)
	}
	return nil
}

func orNone(dirs []string) string {
	if len(dirs) == 0 {
		return "no directory"
	}
	return strings.Join(dirs, ", ")
}

// whenSeen says from when on sites see what was signed.
func (s *softwareRepo) whenSeen(w io.Writer, r *publish.Repository) {
	if len(r.Keys.Snapshot) == 0 || len(r.Keys.Timestamp) == 0 {
		fmt.Fprintln(w, "The online keys are not here: sites see it once control has signed, within half a minute if it runs.")
	}
}

// newKeyFile makes a key where none is.
func newKeyFile(path string) (signature.Signer, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("there is a key at %s already; it is never written over: choose another directory, or move it away", path)
	}
	b, err := publish.NewKey()
	if err != nil {
		return nil, err
	}
	if err := disk.MkdirAll(disk.OS{}, filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := atomicfile.Write(path, b, 0o600); err != nil {
		return nil, err
	}
	return publish.ReadKey(b)
}
