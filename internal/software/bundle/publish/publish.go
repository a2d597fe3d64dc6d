// Package publish makes and signs the repository of software that package bundle trusts:
// it takes files in, withdraws them, renews what expires and rotates keys.
//
// Control and the CLI call it, one writer at a time. Files lie under blobs/sha256/, named
// by their digest, before anything names them; the timestamp is written last, so that a
// reader finds the state before or the one after. It doesn't say who gets what: that is
// Site.spec.software.
package publish

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/theupdateframework/go-tuf/v2/metadata"

	"muster.dev/muster/internal/software/bundle"
	"muster.dev/muster/internal/software/delta"
)

// Store keeps objects by name, such as a directory (Dir) or a bucket of an object store.
// Get of what is not there is an error that is fs.ErrNotExist; Put replaces as a whole,
// and what it returned nil for survives a power cut.
type Store interface {
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	Put(ctx context.Context, name string, r io.Reader) error
}

// Locker is a Store that keeps other writers out while one changes what is signed. Of a
// Store that is none there may be one writer at a time.
type Locker interface {
	Lock(ctx context.Context) (release func(), err error)
}

// Keys sign. Root and Targets may stay offline but when they are needed: Root to rotate
// keys, Targets to take files in and out. Snapshot and Timestamp belong online: they sign
// with every change, and Timestamp every few days besides.
type Keys struct {
	Root, Targets, Snapshot, Timestamp []signature.Signer
	// RootThreshold is how many of the root's keys have to sign a new root; 0: one.
	RootThreshold int
}

// Lifetimes until what was signed expires; zero: a year, 90 days, 7 days and 7 days. The
// timestamp's bounds how long a site can be kept on an old state.
type Lifetimes struct {
	Root, Targets, Snapshot, Timestamp time.Duration
}

// Repository signs into a store. Without the keys for snapshot and timestamp, what it
// signs lies there until somebody with these keys renews: sites see it from then on. So
// the keys of people and those of control need never be on one machine. Not safe for
// concurrent use.
type Repository struct {
	Store     Store
	Keys      Keys
	Lifetimes Lifetimes
	Now       func() time.Time // nil: time.Now
}

func (r *Repository) expires(of, standard time.Duration) time.Time {
	now := time.Now
	if r.Now != nil {
		now = r.Now
	}
	if of == 0 {
		of = standard
	}
	return now().UTC().Add(of).Truncate(time.Second)
}

const day = 24 * time.Hour

// Init makes an empty repository and returns its first root, which sites are installed
// with. It refuses a store that has one.
func (r *Repository) Init(ctx context.Context) ([]byte, error) {
	if _, err := r.get(ctx, "timestamp.json"); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = errors.New("there is a repository already")
		}
		return nil, fmt.Errorf("make a software repository: %w", err)
	}
	root := metadata.Root(r.expires(r.Lifetimes.Root, 365*day))
	if err := r.name(root, r.Keys, nil); err != nil {
		return nil, err
	}
	b, err := signed(root, r.Keys.Root)
	if err != nil {
		return nil, err
	}
	if err := r.Store.Put(ctx, "1.root.json", bytes.NewReader(b)); err != nil {
		return nil, err
	}
	return b, r.publish(ctx, nil, func(map[string]*metadata.TargetFiles) error { return nil })
}

// Digest reads a file: its SHA-256 in hex, and its size in bytes.
func Digest(file io.Reader) (digest string, size int64, err error) {
	h := sha256.New()
	size, err = io.Copy(h, file)
	return hex.EncodeToString(h.Sum(nil)), size, err
}

// Add takes a file in under a name that none had before, or that had the very same file.
func (r *Repository) Add(ctx context.Context, name string, about bundle.About, file io.ReadSeeker) (bundle.Target, error) {
	h := sha256.New()
	size, err := io.Copy(h, file)
	if err != nil {
		return bundle.Target{}, fmt.Errorf("read %s: %w", name, err)
	}
	if size == 0 || about.Component == "" || about.Version == "" {
		return bundle.Target{}, fmt.Errorf("publish %s: want a file that is not empty, a component and a version", name)
	}
	t := bundle.Target{Name: name, Digest: hex.EncodeToString(h.Sum(nil)), Size: size, About: about}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return bundle.Target{}, err
	}
	if err := r.Store.Put(ctx, Blob(t.Digest), file); err != nil {
		return bundle.Target{}, fmt.Errorf("store %s: %w", name, err)
	}
	custom, err := json.Marshal(about)
	if err != nil {
		return bundle.Target{}, err
	}
	return t, r.change(ctx, func(targets map[string]*metadata.TargetFiles) error {
		raw := json.RawMessage(custom)
		next := &metadata.TargetFiles{Length: size, Hashes: metadata.Hashes{"sha256": h.Sum(nil)}, Custom: &raw, Path: name}
		if old := targets[name]; old != nil && (!old.Equal(*next) || old.Custom == nil || !bytes.Equal(*old.Custom, custom)) {
			return fmt.Errorf("publish %s: another file was released under this name; sites may have it, so choose another name", name)
		}
		targets[name] = next
		return nil
	})
}

// AddDelta stores what makes the second file out of the first; sites that have the first
// fetch that instead. It needs no key: they verify the result. Where it is not much
// smaller than the file itself nothing is stored; made is its size in bytes.
func (r *Repository) AddDelta(ctx context.Context, from, to bundle.Target, old io.ReaderAt, current io.Reader) (made int64, err error) {
	var b bytes.Buffer
	if err := delta.Make(&b, old, from.Size, current); err != nil {
		return 0, fmt.Errorf("delta from %s to %s: %w", from.Name, to.Name, err)
	}
	if made = int64(b.Len()); made > to.Size/10*8 {
		return made, nil
	}
	return made, r.Store.Put(ctx, "deltas/"+from.Digest+"/"+to.Digest, &b)
}

// RenewTargets signs anew which files there are, so that it does not expire.
func (r *Repository) RenewTargets(ctx context.Context) error {
	return r.change(ctx, func(map[string]*metadata.TargetFiles) error { return nil })
}

// Withdraw takes a name out: no site begins to install it any more.
func (r *Repository) Withdraw(ctx context.Context, name string) error {
	return r.change(ctx, func(targets map[string]*metadata.TargetFiles) error {
		if targets[name] == nil {
			return fmt.Errorf("withdraw %s: it is not in the repository", name)
		}
		delete(targets, name)
		return nil
	})
}

// Renew signs snapshot and timestamp anew, so that they don't expire; it is due every few
// days and needs no offline key.
func (r *Repository) Renew(ctx context.Context) error {
	release, err := r.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	at, err := r.load(ctx)
	if err != nil {
		return err
	}
	if len(r.Keys.Snapshot)+len(r.Keys.Timestamp) == 0 {
		return errNoKey
	}
	return r.online(ctx, at)
}

func (r *Repository) lock(ctx context.Context) (release func(), err error) {
	if l, ok := r.Store.(Locker); ok {
		return l.Lock(ctx)
	}
	return func() {}, nil
}

// Rotate makes next the keys, by a root that the present keys and the next ones sign. The
// Repository signs with them from then on, and everything is signed anew. A role without a
// key in next keeps those that it has.
func (r *Repository) Rotate(ctx context.Context, next Keys) error {
	release, err := r.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	at, err := r.load(ctx)
	if err != nil {
		return err
	}
	root := metadata.Root(r.expires(r.Lifetimes.Root, 365*day))
	root.Signed.Version = at.root.Signed.Version + 1
	if err := r.name(root, next, at.root); err != nil {
		return err
	}
	b, err := signed(root, unique(r.Keys.Root, next.Root))
	if err != nil {
		return err
	}
	if err := at.root.VerifyDelegate(metadata.ROOT, root); err != nil {
		return fmt.Errorf("rotate keys: the present root does not accept it; sign with as many of its keys as its threshold asks for: %w", err)
	}
	if err := root.VerifyDelegate(metadata.ROOT, root); err != nil {
		return fmt.Errorf("rotate keys: the new root does not accept itself; want as many of its keys as its threshold asks for: %w", err)
	}
	if err := r.Store.Put(ctx, strconv.FormatInt(root.Signed.Version, 10)+".root.json", bytes.NewReader(b)); err != nil {
		return err
	}
	r.Keys, at.root = next, root
	if len(next.Targets) == 0 { // they stay, and so does what they have signed
		return r.online(ctx, at)
	}
	return r.publish(ctx, at, func(map[string]*metadata.TargetFiles) error { return nil })
}

// CheckKeys is an error if one of Keys is not what the root names: sites would take nothing
// that it signs. Who signs asks first; roles without a key are left out.
func (r *Repository) CheckKeys(ctx context.Context) error {
	at, err := r.load(ctx)
	if err != nil {
		return err
	}
	for role, signers := range r.Keys.byRole() {
		for _, s := range signers {
			key, err := keyOf(s)
			if err != nil {
				return fmt.Errorf("key for %s: %w", role, err)
			}
			id, err := key.ID()
			if err != nil {
				return fmt.Errorf("key for %s: %w", role, err)
			}
			if !slices.Contains(at.root.Signed.Roles[role].KeyIDs, id) {
				return fmt.Errorf("software repository: the key for %s is not one that root %d names; bring that of the last rotation", role, at.root.Signed.Version)
			}
		}
	}
	return nil
}

func (k Keys) byRole() map[string][]signature.Signer {
	return map[string][]signature.Signer{metadata.ROOT: k.Root, metadata.TARGETS: k.Targets, metadata.SNAPSHOT: k.Snapshot, metadata.TIMESTAMP: k.Timestamp}
}

func keyOf(s signature.Signer) (*metadata.Key, error) {
	public, err := s.PublicKey()
	if err != nil {
		return nil, err
	}
	return metadata.KeyFromPublicKey(public)
}

// Blob is the name of a file in the store.
func Blob(digest string) string { return "blobs/sha256/" + digest }

// state is the newest of each.
type state struct {
	root      *metadata.Metadata[metadata.RootType]
	targets   *metadata.Metadata[metadata.TargetsType]
	snapshot  *metadata.Metadata[metadata.SnapshotType]
	timestamp *metadata.Metadata[metadata.TimestampType]

	snapshotBytes []byte
	waiting       bool // the targets are newer than the snapshot
}

func (r *Repository) load(ctx context.Context) (*state, error) {
	s := &state{}
	for v := 1; ; v++ {
		b, err := r.get(ctx, strconv.Itoa(v)+".root.json")
		if errors.Is(err, fs.ErrNotExist) && s.root != nil {
			break
		}
		if err == nil {
			s.root, err = (&metadata.Metadata[metadata.RootType]{}).FromBytes(b)
		}
		if err != nil {
			return nil, fmt.Errorf("software repository: root %d: %w", v, err)
		}
	}
	b, err := r.get(ctx, "timestamp.json")
	if err == nil {
		s.timestamp, err = (&metadata.Metadata[metadata.TimestampType]{}).FromBytes(b)
	}
	if err != nil {
		return nil, fmt.Errorf("software repository: timestamp.json: %w", err)
	}
	b, err = r.get(ctx, numbered(s.timestamp.Signed.Meta, "snapshot.json"))
	if err == nil {
		s.snapshot, err = (&metadata.Metadata[metadata.SnapshotType]{}).FromBytes(b)
	}
	if err != nil {
		return nil, fmt.Errorf("software repository: snapshot: %w", err)
	}
	s.snapshotBytes = b
	b, err = r.get(ctx, numbered(s.snapshot.Signed.Meta, "targets.json"))
	if err == nil {
		s.targets, err = (&metadata.Metadata[metadata.TargetsType]{}).FromBytes(b)
	}
	if err != nil {
		return nil, fmt.Errorf("software repository: targets: %w", err)
	}
	// What somebody without the online keys has signed since. Anything else of that name is
	// not theirs, and is written over by the next one who is.
	for {
		b, err := r.get(ctx, strconv.FormatInt(s.targets.Signed.Version+1, 10)+".targets.json")
		if errors.Is(err, fs.ErrNotExist) {
			return s, nil
		}
		if err != nil {
			return nil, fmt.Errorf("software repository: targets: %w", err)
		}
		next, err := (&metadata.Metadata[metadata.TargetsType]{}).FromBytes(b)
		if err != nil || next.Signed.Version != s.targets.Signed.Version+1 || s.root.VerifyDelegate(metadata.TARGETS, next) != nil {
			return s, nil
		}
		s.targets, s.waiting = next, true
	}
}

// Standing is what a repository says of itself now.
type Standing struct {
	Root        []byte // the newest root metadata
	RootVersion int64
	Targets     []bundle.Target // by name
	// Expires is when the newest of each of root, targets, snapshot and timestamp ends.
	Expires                 map[string]time.Time
	RootKeys, RootThreshold int // how many keys it names for itself, and how many have to sign
	// Waiting: files were taken in or out, and sites don't see it before somebody renews.
	Waiting bool
	// Broken is why sites would not take it, whatever the time: signing anew mends it.
	Broken error
}

// Standing reads the repository. It needs no key.
func (r *Repository) Standing(ctx context.Context) (*Standing, error) {
	at, err := r.load(ctx)
	if err != nil {
		return nil, err
	}
	self := at.root.Signed.Roles[metadata.ROOT]
	out := &Standing{RootVersion: at.root.Signed.Version, RootKeys: len(self.KeyIDs), RootThreshold: self.Threshold, Waiting: at.waiting, Expires: map[string]time.Time{
		metadata.ROOT: at.root.Signed.Expires, metadata.TARGETS: at.targets.Signed.Expires, metadata.SNAPSHOT: at.snapshot.Signed.Expires, metadata.TIMESTAMP: at.timestamp.Signed.Expires}}
	if out.Root, err = r.get(ctx, strconv.FormatInt(out.RootVersion, 10)+".root.json"); err != nil {
		return nil, err
	}
	for name, f := range at.targets.Signed.Targets {
		t := bundle.Target{Name: name, Digest: hex.EncodeToString(f.Hashes["sha256"]), Size: f.Length}
		if f.Custom != nil {
			_ = json.Unmarshal(*f.Custom, &t.About)
		}
		out.Targets = append(out.Targets, t)
	}
	slices.SortFunc(out.Targets, func(a, b bundle.Target) int { return strings.Compare(a.Name, b.Name) })
	sum := sha256.Sum256(at.snapshotBytes)
	named := at.timestamp.Signed.Meta["snapshot.json"]
	if named == nil || !bytes.Equal(named.Hashes["sha256"], sum[:]) {
		out.Broken = errors.New("the timestamp names another snapshot: two wrote at once")
	}
	out.Broken = errors.Join(out.Broken, at.root.VerifyDelegate(metadata.TARGETS, at.targets), at.root.VerifyDelegate(metadata.SNAPSHOT, at.snapshot), at.root.VerifyDelegate(metadata.TIMESTAMP, at.timestamp))
	return out, nil
}

func numbered(meta map[string]*metadata.MetaFiles, name string) string {
	if m := meta[name]; m != nil {
		return strconv.FormatInt(m.Version, 10) + "." + name
	}
	return name
}

func (r *Repository) change(ctx context.Context, edit func(map[string]*metadata.TargetFiles) error) error {
	release, err := r.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	at, err := r.load(ctx)
	if err != nil {
		return err
	}
	return r.publish(ctx, at, edit)
}

// publish signs the changed targets and all that names them; at nil: the first ones.
func (r *Repository) publish(ctx context.Context, at *state, edit func(map[string]*metadata.TargetFiles) error) error {
	targets := metadata.Targets(r.expires(r.Lifetimes.Targets, 90*day))
	if at != nil {
		targets.Signed.Version = at.targets.Signed.Version + 1
		targets.Signed.Targets = at.targets.Signed.Targets
	} else {
		at = &state{}
	}
	if err := edit(targets.Signed.Targets); err != nil {
		return err
	}
	b, err := signed(targets, r.Keys.Targets)
	if err != nil {
		return err
	}
	if err := r.Store.Put(ctx, strconv.FormatInt(targets.Signed.Version, 10)+".targets.json", bytes.NewReader(b)); err != nil {
		return err
	}
	at.targets = targets
	return r.online(ctx, at)
}

// online signs snapshot and timestamp for the targets.
func (r *Repository) online(ctx context.Context, at *state) error {
	if at.root != nil && len(r.Keys.Snapshot)+len(r.Keys.Timestamp) == 0 {
		return nil
	}
	snapshot := metadata.Snapshot(r.expires(r.Lifetimes.Snapshot, 7*day))
	if at.snapshot != nil {
		snapshot.Signed.Version = at.snapshot.Signed.Version + 1
	}
	snapshot.Signed.Meta["targets.json"] = metadata.MetaFile(at.targets.Signed.Version)
	b, err := signed(snapshot, r.Keys.Snapshot)
	if err != nil {
		return err
	}
	if err := r.Store.Put(ctx, strconv.FormatInt(snapshot.Signed.Version, 10)+".snapshot.json", bytes.NewReader(b)); err != nil {
		return err
	}
	timestamp := metadata.Timestamp(r.expires(r.Lifetimes.Timestamp, 7*day))
	if at.timestamp != nil {
		timestamp.Signed.Version = at.timestamp.Signed.Version + 1
	}
	sum := sha256.Sum256(b)
	timestamp.Signed.Meta["snapshot.json"] = &metadata.MetaFiles{Version: snapshot.Signed.Version, Length: int64(len(b)), Hashes: metadata.Hashes{"sha256": sum[:]}}
	if b, err = signed(timestamp, r.Keys.Timestamp); err != nil {
		return err
	}
	return r.Store.Put(ctx, "timestamp.json", bytes.NewReader(b))
}

func (r *Repository) get(ctx context.Context, name string) ([]byte, error) {
	f, err := r.Store.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 16<<20))
}

// name writes into the root who signs what; was, if not nil, is the one before.
func (r *Repository) name(root *metadata.Metadata[metadata.RootType], keys Keys, was *metadata.Metadata[metadata.RootType]) error {
	for role, signers := range keys.byRole() {
		if len(signers) == 0 && was != nil && role != metadata.ROOT {
			for _, id := range was.Signed.Roles[role].KeyIDs {
				if err := root.Signed.AddKey(was.Signed.Keys[id], role); err != nil {
					return fmt.Errorf("key for %s: %w", role, err)
				}
			}
			continue
		}
		if len(signers) == 0 {
			return fmt.Errorf("software repository: want a key for %s", role)
		}
		for _, s := range signers {
			key, err := keyOf(s)
			if err == nil {
				err = root.Signed.AddKey(key, role)
			}
			if err != nil {
				return fmt.Errorf("key for %s: %w", role, err)
			}
		}
	}
	root.Signed.Roles[metadata.ROOT].Threshold = max(keys.RootThreshold, 1)
	if n := len(root.Signed.Roles[metadata.ROOT].KeyIDs); n < keys.RootThreshold {
		return fmt.Errorf("software repository: %d of %d keys shall sign the root; want more keys or a lower threshold", keys.RootThreshold, n)
	}
	return nil
}

var errNoKey = errors.New("software repository: the key that signs this is not here; bring it, or do what needs no offline key")

func signed[T metadata.Roles](m *metadata.Metadata[T], keys []signature.Signer) ([]byte, error) {
	if len(keys) == 0 {
		return nil, errNoKey
	}
	for _, k := range keys {
		if _, err := m.Sign(k); err != nil {
			return nil, fmt.Errorf("sign: %w", err)
		}
	}
	return m.ToBytes(false)
}

// unique leaves out signers whose key has signed already.
func unique(of ...[]signature.Signer) []signature.Signer {
	var out []signature.Signer
	seen := map[string]bool{}
	for _, list := range of {
		for _, s := range list {
			key, err := keyOf(s)
			if err != nil {
				continue
			}
			if id, err := key.ID(); err == nil && !seen[id] {
				seen[id] = true
				out = append(out, s)
			}
		}
	}
	return out
}
