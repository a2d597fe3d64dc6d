// Package bundle decides which files a site may install. The files and their digests
// stand in a repository that is signed after The Update Framework (TUF 1.0): a root whose
// keys lie offline names the keys of everything else and its own successors; a timestamp
// that expires within days keeps anybody from holding a site on an old state; versions
// never fall.
//
// The agent uses it before it downloads anything. It trusts no sender: the metadata may
// come from a regional, a USB stick or an attacker. It fetches no bundle, installs none,
// and knows nothing of Site or Rollout. The other side is package publish.
package bundle

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/theupdateframework/go-tuf/v2/metadata"
	"github.com/theupdateframework/go-tuf/v2/metadata/trustedmetadata"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
)

// Largest sizes of metadata in bytes. 16 MiB of targets are 50,000 bundles.
const (
	maxRoot      = 512 << 10
	maxTimestamp = 16 << 10
	maxSnapshot  = 1 << 20
	maxTargets   = 16 << 20
	// maxRotations of the root in one Refresh.
	maxRotations = 256
)

// Source is where metadata comes from. An error that is fs.ErrNotExist says that there is
// no such file; any other, that it may be there. More than max bytes are an error.
type Source interface {
	Metadata(ctx context.Context, name string, max int64) ([]byte, error)
}

// Target is a file that may be installed.
type Target struct {
	Name   string
	Digest string // SHA-256 in hex
	Size   int64  // bytes
	About
}

// About is what was signed of a file besides its content, so that nobody can pass one
// off as another.
type About struct {
	Component    string `json:"component"`
	Version      string `json:"version"`
	Architecture string `json:"architecture"` // any: of all
}

// Refused is metadata or a target that was offered and is not to be trusted. Asking again
// helps only once the repository, or this machine's clock, is right.
type Refused struct {
	What   string // the file
	Remedy string
	Err    error
}

// Error names the file, what is wrong with it and what to do.
func (r *Refused) Error() string {
	return fmt.Sprintf("software repository: %s is refused: %v; %s", r.What, r.Err, r.Remedy)
}

// Passes tells whether it heals without anybody's doing here: what is expired is signed anew
// at the centre, each day, and so counts again. A freeze attack looks the same, and gets no
// further.
func (r *Refused) Passes() bool {
	var expired *metadata.ErrExpiredMetadata
	return errors.As(r.Err, &expired)
}

// Unwrap returns the cause.
func (r *Refused) Unwrap() error { return r.Err }

// ErrAbsent is the cause where a file is not in the repository, as far as it has been seen.
var ErrAbsent = errors.New("it is not in the repository")

// Options of a Trust.
type Options struct {
	// Dir keeps the newest metadata seen: who loses it can be shown an old state that has
	// not expired. It is made if need be.
	Dir string
	// Root is the root metadata that the site was installed with. Later ones are reached
	// from it and kept in Dir.
	Root []byte
	FS   disk.FS          // nil: the operating system's
	Now  func() time.Time // nil: time.Now
}

// Trust is what a site knows of the repository. Not safe for concurrent use.
type Trust struct {
	o       Options
	targets map[string]*metadata.TargetFiles
}

// Open makes the directory. Nothing is trusted before Refresh.
func Open(o Options) (*Trust, error) {
	if o.FS == nil {
		o.FS = disk.OS{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if len(o.Root) == 0 {
		return nil, errors.New("software repository: no root metadata was given; want the root.json that `publish` made")
	}
	if err := disk.MkdirAll(o.FS, o.Dir, 0o700); err != nil {
		return nil, err
	}
	return &Trust{o: o}, nil
}

// Refresh brings the metadata up to date: each newer root in turn, then timestamp,
// snapshot and targets, as section 5 of the TUF specification has it. What was verified is
// on the disk before the next file is asked for. After an error the targets of the last
// good Refresh of this Trust stay, until they expire.
func (t *Trust) Refresh(ctx context.Context, from Source) (err error) {
	// The library takes it that what is signed has all its fields; whoever stole the
	// timestamp's key must not be able to stop the agent.
	defer func() {
		if p := recover(); p != nil {
			err = refused("signed metadata", fmt.Errorf("it lacks a field: %v", p))
		}
	}()
	m, err := t.root(ctx, from)
	if err != nil {
		return err
	}
	if err := t.timestamp(ctx, m, from); err != nil {
		return err
	}
	if err := t.snapshot(ctx, m, from); err != nil {
		return err
	}
	if err := t.targetsOf(ctx, m, from); err != nil {
		return err
	}
	t.targets = m.Targets[metadata.TARGETS].Signed.Targets
	return nil
}

// Target returns a file by its name, which has to be of that component and version.
// Refresh comes first; a name that was taken out of the repository is refused.
func (t *Trust) Target(name, component, version string) (Target, error) {
	refuse := func(remedy, format string, a ...any) error {
		return &Refused{What: "target " + name, Remedy: remedy, Err: fmt.Errorf(format, a...)}
	}
	f, ok := t.targets[name]
	if !ok {
		return Target{}, refuse("publish it, or name another version", "%w", ErrAbsent)
	}
	out := Target{Name: name, Size: f.Length, Digest: hex.EncodeToString(f.Hashes["sha256"])}
	if f.Custom != nil {
		if err := json.Unmarshal(*f.Custom, &out.About); err != nil {
			return Target{}, refuse("publish it again", "what is signed of it can't be read: %w", err)
		}
	}
	if len(out.Digest) != 64 || out.Size <= 0 {
		return Target{}, refuse("publish it again", "it has no SHA-256 or no size")
	}
	if out.Component != component || out.Version != version {
		return Target{}, refuse("correct the SoftwareVersion", "it was signed as %s %s, and is wanted as %s %s", out.Component, out.Version, component, version)
	}
	return out, nil
}

// Find returns the file of a version for an architecture, if the repository has it (still).
func (t *Trust) Find(component, version, architecture string) (Target, bool) {
	for name := range t.targets {
		if f, err := t.Target(name, component, version); err == nil && (f.Architecture == architecture || f.Architecture == "any") {
			return f, true
		}
	}
	return Target{}, false
}

// Kept is what this Trust has on its disk, as a Source: while nobody can be reached, what
// was verified counts until it expires.
func (t *Trust) Kept() Source { return kept{t} }

type kept struct{ t *Trust }

// Metadata implements Source.
func (k kept) Metadata(_ context.Context, name string, _ int64) ([]byte, error) {
	if name != "timestamp.json" {
		return nil, fmt.Errorf("%s is not kept: %w", name, fs.ErrNotExist)
	}
	return k.t.read(name)
}

func (t *Trust) root(ctx context.Context, from Source) (*trustedmetadata.TrustedMetadata, error) {
	m, err := trustedmetadata.New(t.o.Root)
	if err != nil {
		return nil, refused("the root that this site was installed with", err)
	}
	m.RefTime = t.o.Now().UTC()
	// A kept root counts only if it follows from the one of the installation: who
	// exchanges that one, exchanges what is trusted.
	for range maxRotations {
		next := strconv.FormatInt(m.Root.Signed.Version+1, 10) + ".root.json"
		b, err := t.read(next)
		kept := err == nil
		if !kept {
			b, err = from.Metadata(ctx, next, maxRoot)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return m, nil
		}
		if err != nil {
			return nil, fmt.Errorf("software repository: fetch %s: %w", next, err)
		}
		if _, err := m.UpdateRoot(b); err != nil {
			if kept { // torn or meddled with: the repository has it, too
				if err := t.o.FS.Remove(t.path(next)); err != nil {
					return nil, err
				}
				continue
			}
			return nil, refused(next, err)
		}
		if kept {
			continue
		}
		if err := t.keep(next, b); err != nil {
			return nil, err
		}
	}
	return nil, refused("root.json", fmt.Errorf("more than %d new roots at once", maxRotations))
}

func (t *Trust) timestamp(ctx context.Context, m *trustedmetadata.TrustedMetadata, from Source) error {
	const name = "timestamp.json"
	if b, err := t.read(name); err == nil {
		// Also an expired one counts: nothing older is taken any more. One that the present
		// root does not vouch for does not: that is how a stolen key is got rid of.
		_, _ = m.UpdateTimestamp(b)
	}
	b, err := from.Metadata(ctx, name, maxTimestamp)
	if err != nil {
		return fmt.Errorf("software repository: fetch %s: %w", name, err)
	}
	_, err = m.UpdateTimestamp(b)
	if same := (*metadata.ErrEqualVersionNumber)(nil); errors.As(err, &same) {
		if m.Timestamp.Signed.IsExpired(m.RefTime) {
			return refused(name, &metadata.ErrExpiredMetadata{Msg: "it is expired"})
		}
		return nil
	}
	if err != nil {
		return refused(name, err)
	}
	return t.keep(name, b)
}

func (t *Trust) snapshot(ctx context.Context, m *trustedmetadata.TrustedMetadata, from Source) error {
	const name = "snapshot.json"
	if b, err := t.read(name); err == nil {
		if _, err := m.UpdateSnapshot(b, true); err == nil {
			return nil // the one that the timestamp names
		}
	}
	want := m.Timestamp.Signed.Meta[name]
	if want == nil {
		return refused("timestamp.json", errors.New("it names no snapshot"))
	}
	b, err := t.fetch(ctx, from, name, want.Version, within(want.Length, maxSnapshot))
	if err != nil {
		return err
	}
	if _, err := m.UpdateSnapshot(b, false); err != nil {
		return refused(name, err)
	}
	return t.keep(name, b)
}

func (t *Trust) targetsOf(ctx context.Context, m *trustedmetadata.TrustedMetadata, from Source) error {
	const name = "targets.json"
	if b, err := t.read(name); err == nil {
		if _, err := m.UpdateTargets(b); err == nil {
			return nil
		}
	}
	want := m.Snapshot.Signed.Meta[name]
	if want == nil {
		return refused("snapshot.json", errors.New("it names no targets"))
	}
	b, err := t.fetch(ctx, from, name, want.Version, within(want.Length, maxTargets))
	if err != nil {
		return err
	}
	if _, err := m.UpdateTargets(b); err != nil {
		return refused(name, err)
	}
	return t.keep(name, b)
}

func within(length, most int64) int64 {
	if length <= 0 || length > most {
		return most
	}
	return length
}

func (t *Trust) fetch(ctx context.Context, from Source, name string, version, most int64) ([]byte, error) {
	name = strconv.FormatInt(version, 10) + "." + name
	b, err := from.Metadata(ctx, name, most)
	if err != nil {
		return nil, fmt.Errorf("software repository: fetch %s: %w", name, err)
	}
	return b, nil
}

func (t *Trust) path(name string) string { return filepath.Join(t.o.Dir, name) }

func (t *Trust) read(name string) ([]byte, error) { return os.ReadFile(t.path(name)) }

func (t *Trust) keep(name string, b []byte) error {
	return atomicfile.WriteTo(t.o.FS, t.path(name), b, 0o600)
}

// refused says what to do about an error of verification.
func refused(what string, err error) error {
	r := &Refused{What: what, Err: err, Remedy: "it was changed on its way or signed with keys that the root does not name"}
	var older *metadata.ErrBadVersionNumber
	switch {
	case r.Passes():
		r.Remedy = "sign it anew at the centre, and compare this machine's clock"
	case errors.As(err, &older):
		r.Remedy = "it is not the one that follows on what was seen before: somebody replays an old one, or the repository was put back from a copy"
	}
	return r
}
