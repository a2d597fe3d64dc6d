package bundle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/theupdateframework/go-tuf/v2/metadata"

	"muster.dev/muster/internal/software/bundle"
	"muster.dev/muster/internal/software/bundle/publish"
	"muster.dev/muster/internal/testkit/faultdisk"
)

// memory is a store, and as an attacker would have it: what it gives can be exchanged.
type memory map[string][]byte

func (m memory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	b, ok := m[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (m memory) Put(_ context.Context, name string, r io.Reader) (err error) {
	m[name], err = io.ReadAll(r)
	return err
}

func (m memory) Metadata(_ context.Context, name string, max int64) ([]byte, error) {
	b, ok := m[name]
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	if int64(len(b)) > max {
		return nil, errors.New("too large")
	}
	return b, nil
}

func key(t testing.TB) []signature.Signer {
	t.Helper()
	b, err := publish.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	s, err := publish.ReadKey(b)
	if err != nil {
		t.Fatal(err)
	}
	return []signature.Signer{s}
}

// world is a repository, its store and the time.
type world struct {
	publish.Repository
	memory
	t    testing.TB
	now  time.Time
	root []byte
}

func newWorld(t testing.TB) *world {
	w := &world{memory: memory{}, t: t, now: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)}
	w.Repository = publish.Repository{Store: w.memory, Now: func() time.Time { return w.now },
		Keys: publish.Keys{Root: append(key(t), key(t)...), RootThreshold: 2, Targets: key(t), Snapshot: key(t), Timestamp: key(t)}}
	root, err := w.Init(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.root = root
	return w
}

func (w *world) release(version string) string {
	w.t.Helper()
	name := "os/" + version + "/amd64.img"
	if _, err := w.Add(w.t.Context(), name, bundle.About{Component: "os", Version: version, Architecture: "amd64"}, strings.NewReader("image "+version)); err != nil {
		w.t.Fatal(err)
	}
	return name
}

func (w *world) site(dir string) *bundle.Trust {
	w.t.Helper()
	s, err := bundle.Open(bundle.Options{Dir: dir, Root: w.root, Now: func() time.Time { return w.now }})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func mustRefresh(t testing.TB, s *bundle.Trust, from bundle.Source) {
	t.Helper()
	if err := s.Refresh(t.Context(), from); err != nil {
		t.Fatal(err)
	}
}

func mustRefuse(t testing.TB, s *bundle.Trust, from bundle.Source, want string) {
	t.Helper()
	err := s.Refresh(t.Context(), from)
	r := (*bundle.Refused)(nil)
	if !errors.As(err, &r) || !strings.Contains(err.Error(), want) {
		t.Fatalf("%v\nwant it refused, with %q", err, want)
	}
	if expired := strings.Contains(err.Error(), "sign it anew"); r.Passes() != expired {
		t.Errorf("%v\npasses by itself: %t", err, r.Passes())
	}
}

func TestTargets(t *testing.T) {
	w := newWorld(t)
	one, two := w.release("1.0.0"), w.release("2.0.0")
	s := w.site(t.TempDir())
	if _, err := s.Target(one, "os", "1.0.0"); err == nil {
		t.Error("trusted before anything was read")
	}
	mustRefresh(t, s, w)
	got, err := s.Target(two, "os", "2.0.0")
	if err != nil || got.Size != int64(len("image 2.0.0")) || got.Architecture != "amd64" || string(w.memory[publish.Blob(got.Digest)]) != "image 2.0.0" {
		t.Fatalf("%+v, %v", got, err)
	}
	// Whoever may say what a site gets still can't pass one off as another.
	for _, as := range [][2]string{{"agent", "1.0.0"}, {"os", "2.0.0"}} {
		if _, err := s.Target(one, as[0], as[1]); err == nil || !strings.Contains(err.Error(), "signed as os 1.0.0") {
			t.Errorf("os 1.0.0 as %v: %v", as, err)
		}
	}
	// A name keeps its file, and one that was withdrawn is refused.
	if _, err := w.Add(t.Context(), one, bundle.About{Component: "os", Version: "1.0.0", Architecture: "amd64"}, strings.NewReader("other")); err == nil {
		t.Error("a released name got another file")
	}
	if err := w.Withdraw(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	mustRefresh(t, s, w)
	if _, err := s.Target(one, "os", "1.0.0"); err == nil {
		t.Error("a withdrawn one is trusted")
	}
}

func TestWrongRoot(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	w.release("1.0.0")
	other.release("1.0.0")
	mustRefuse(t, w.site(t.TempDir()), other.memory, "keys that the root does not name")
	// Also where the other one offers its root as the next of ours.
	if err := other.Rotate(t.Context(), other.Keys); err != nil {
		t.Fatal(err)
	}
	mustRefuse(t, w.site(t.TempDir()), other.memory, "2.root.json is refused")
}

func TestRollback(t *testing.T) {
	w := newWorld(t)
	w.release("1.0.0")
	old := maps.Clone(w.memory)
	two := w.release("2.0.0")
	dir := t.TempDir()
	s := w.site(dir)
	mustRefresh(t, s, w)
	mustRefuse(t, s, old, "timestamp.json is refused")
	mustRefuse(t, w.site(dir), old, "replays an old one") // also after a restart
	// What was known goes on counting.
	if _, err := s.Target(two, "os", "2.0.0"); err != nil {
		t.Error(err)
	}
	mustRefresh(t, w.site(dir), w)
}

func TestFreeze(t *testing.T) {
	w := newWorld(t)
	w.release("1.0.0")
	dir := t.TempDir()
	mustRefresh(t, w.site(dir), w)
	w.now = w.now.Add(8 * 24 * time.Hour)
	mustRefuse(t, w.site(dir), w, "clock")         // one that has it
	mustRefuse(t, w.site(t.TempDir()), w, "clock") // one that is new
	if err := w.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustRefresh(t, w.site(dir), w)
}

func TestMixAndMatch(t *testing.T) {
	w := newWorld(t)
	w.release("1.0.0")
	old := maps.Clone(w.memory)
	w.release("2.0.0")
	// Init made 1, each release one more.
	for _, part := range []string{"snapshot.json", "targets.json"} {
		mixed := maps.Clone(w.memory)
		mixed["3."+part] = old["2."+part]
		mustRefuse(t, w.site(t.TempDir()), mixed, part+" is refused")
	}
	mixed := maps.Clone(w.memory)
	mixed["timestamp.json"] = old["timestamp.json"]
	dir := t.TempDir()
	mustRefresh(t, w.site(dir), mixed) // a whole old state, not expired, and nothing newer seen
	mustRefresh(t, w.site(dir), w)
}

// Who has the keys that are online can't bring a file in.
func TestOnlineKeysBringNothingIn(t *testing.T) {
	w := newWorld(t)
	w.release("1.0.0")
	thief := w.Repository
	thief.Keys.Targets = key(t)
	if _, err := thief.Add(t.Context(), "os/6.6.6", bundle.About{Component: "os", Version: "6.6.6"}, strings.NewReader("evil")); err != nil {
		t.Fatal(err)
	}
	mustRefuse(t, w.site(t.TempDir()), w, "targets.json is refused")
}

func TestRotation(t *testing.T) {
	w := newWorld(t)
	w.release("1.0.0")
	dir := t.TempDir()
	mustRefresh(t, w.site(dir), w)
	first := w.Keys
	// The thief of the timestamp's key sets a version that the real one never reaches.
	stolen := metadata.Timestamp(w.now.Add(time.Hour))
	stolen.Signed.Version = 1 << 40
	at, err := metadata.Timestamp().FromBytes(w.memory["timestamp.json"])
	if err != nil {
		t.Fatal(err)
	}
	stolen.Signed.Meta = at.Signed.Meta
	if _, err := stolen.Sign(first.Timestamp[0]); err != nil {
		t.Fatal(err)
	}
	attack := maps.Clone(w.memory)
	attack["timestamp.json"], _ = stolen.ToBytes(false)
	mustRefresh(t, w.site(dir), attack)
	w.release("2.0.0")
	mustRefuse(t, w.site(dir), w, "timestamp.json is refused")

	for range 3 { // a site that was away for three
		if err := w.Rotate(t.Context(), publish.Keys{Root: append(key(t), key(t)...), RootThreshold: 2, Targets: key(t), Snapshot: key(t), Timestamp: key(t)}); err != nil {
			t.Fatal(err)
		}
	}
	s := w.site(dir)
	mustRefresh(t, s, w)
	if _, err := s.Target("os/2.0.0/amd64.img", "os", "2.0.0"); err != nil {
		t.Error(err)
	}
	mustRefresh(t, w.site(dir), w)         // with the roots that it keeps
	mustRefresh(t, w.site(t.TempDir()), w) // and one installed with the first
	// The old keys sign nothing any more.
	replay := publish.Repository{Store: w.memory, Keys: first, Now: w.Now}
	if err := replay.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustRefuse(t, w.site(dir), w, "timestamp.json is refused")
}

func TestRotationNeedsTheThreshold(t *testing.T) {
	w := newWorld(t)
	thief := w.Repository
	thief.Keys.Root = thief.Keys.Root[:1]
	next := thief.Keys
	next.RootThreshold, next.Root = 1, key(t)
	if err := thief.Rotate(t.Context(), next); err == nil || !strings.Contains(err.Error(), "the present root does not accept it") {
		t.Errorf("one of two keys: %v", err)
	}
}

// A power cut at each operation: what a site has seen it goes by, and it can go on.
func TestPowerLoss(t *testing.T) {
	w := newWorld(t)
	w.release("1.0.0")
	old := maps.Clone(w.memory)
	if err := w.Rotate(t.Context(), w.Keys); err != nil {
		t.Fatal(err)
	}
	w.release("2.0.0")
	for cut := 0; ; cut++ {
		for seed := range uint64(5) {
			dir := t.TempDir()
			d := faultdisk.New(t, dir)
			open := func() *bundle.Trust {
				s, err := bundle.Open(bundle.Options{Dir: dir, Root: w.root, FS: d, Now: w.Now})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			mustRefresh(t, open(), old)
			site := open()
			before := d.Ops()
			d.PowerOffAfter(cut)
			err := site.Refresh(t.Context(), w)
			ops := d.Ops() - before
			d.Crash(seed)
			if err == nil {
				mustRefuse(t, open(), old, "refused")
			}
			mustRefresh(t, open(), w)
			mustRefuse(t, open(), old, "refused")
			if err == nil && cut > ops {
				return
			}
		}
	}
}

// Whatever a sender or a disk makes of a file: an error or the truth, and no panic.
func FuzzMetadata(f *testing.F) {
	w := newWorld(f)
	w.release("1.0.0")
	names := []string{"2.root.json", "timestamp.json", "2.snapshot.json", "2.targets.json"}
	for i, name := range names {
		f.Add(i, w.memory[name])
		f.Add(i, []byte(`{"signed":{"_type":"timestamp","meta":null},"signatures":[]}`))
	}
	f.Fuzz(func(t *testing.T, which int, b []byte) {
		name := names[uint(which)%4]
		m := maps.Clone(w.memory)
		m[name] = b
		s, err := bundle.Open(bundle.Options{Dir: t.TempDir(), Root: w.root, Now: w.Now})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Refresh(t.Context(), m)
		got, terr := s.Target("os/1.0.0/amd64.img", "os", "1.0.0")
		if err == nil && (terr != nil || got.Size != int64(len("image 1.0.0"))) {
			t.Fatalf("%s: taken, and %v, %v", name, got, terr)
		}
	})
}
