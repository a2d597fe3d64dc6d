package delivery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster.dev/muster/internal/software/bundle/publish"
	"muster.dev/muster/internal/testkit"
)

func newCache(t *testing.T, c *centre, o CacheOptions) (*Cache, *Fetcher) {
	t.Helper()
	o.Dir, o.Upstream = filepath.Join(t.TempDir(), "cache"), c.fetcher()
	cache, err := NewCache(o)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(cache)
	t.Cleanup(srv.Close)
	return cache, &Fetcher{URL: srv.URL, Client: srv.Client()}
}

// open asks for a blob, reads nothing of it, and gives the status.
func open(t *testing.T, f *Fetcher, path string) int {
	t.Helper()
	in, _, err := f.Open(t.Context(), path, 0)
	if err == nil {
		_ = in.Close()
		return http.StatusOK
	}
	if s := (*StatusError)(nil); errors.As(err, &s) {
		return s.Code
	}
	if errors.Is(err, ErrNotThere) {
		return http.StatusNotFound
	}
	t.Fatal(err)
	return 0
}

// What the centre does not have it is asked for once a minute, however often sites ask,
// and what is asked for is bounded in memory.
func TestMissingIsRemembered(t *testing.T) {
	c := newCentre(t)
	cache, f := newCache(t, c, CacheOptions{})
	now := time.Now()
	cache.now = func() time.Time { return now }
	b := noise(1, 1000)
	for range 20 {
		if code := open(t, f, BlobPath+digest(b)); code != http.StatusNotFound {
			t.Fatal(code)
		}
	}
	if n := c.asked.Load(); n != 1 {
		t.Errorf("the centre was asked %d times", n)
	}
	c.put(t, publish.Blob(digest(b)), b)
	now = now.Add(missingFor)
	if code := open(t, f, BlobPath+digest(b)); code != http.StatusOK {
		t.Errorf("released meanwhile: %d", code)
	}
	for i := range maxRefusals + 10 {
		cache.fetch(&file{path: fmt.Sprintf("%s%064x", BlobPath, i), changed: make(chan struct{})})
	}
	if n := len(cache.refusals); n > maxRefusals {
		t.Errorf("%d refusals are kept", n)
	}
}

// A file that is not what its name says, such as one that is being copied into place as it is
// asked for, is not kept: every site would throw it away and ask again.
func TestCacheKeepsNothingDamaged(t *testing.T) {
	c := newCentre(t)
	cache, f := newCache(t, c, CacheOptions{})
	var later atomic.Int64
	cache.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	b, evil := noise(1, 100_000), noise(2, 100_000)
	c.put(t, publish.Blob(digest(b)), evil)
	path := filepath.Join(t.TempDir(), "image")
	if err := f.File(t.Context(), digest(b), int64(len(b)), path); err == nil {
		t.Fatal("another file was taken")
	}
	c.put(t, publish.Blob(digest(b)), b)
	testkit.Eventually(t, "it comes whole", func() error {
		later.Add(int64(failedFor))
		return f.File(t.Context(), digest(b), int64(len(b)), path)
	})
	if n := c.asked.Load(); n < 2 {
		t.Errorf("the centre was asked %d times", n)
	}
}

// What is whole outlives a restart and costs the centre nothing more; what is not what its
// name says is fetched again, and what there is no room for goes, the oldest first.
func TestCacheOutlivesARestart(t *testing.T) {
	c := newCentre(t)
	cache, f := newCache(t, c, CacheOptions{})
	whole, torn, old := noise(1, 1000), noise(2, 1000), noise(3, 1000)
	for _, b := range [][]byte{whole, torn, old} {
		c.put(t, publish.Blob(digest(b)), b)
		if code := open(t, f, BlobPath+digest(b)); code != http.StatusOK {
			t.Fatal(code)
		}
	}
	testkit.Eventually(t, "all is on the disk", func() error {
		if s := cache.Stats(); s.Fetched != 3000 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	named := func(b []byte) string {
		names, err := filepath.Glob(filepath.Join(cache.o.Dir, digest(b)+"-*"))
		if err != nil || len(names) != 1 {
			t.Fatalf("%v, %v", names, err)
		}
		return names[0]
	}
	if err := os.WriteFile(named(torn), torn[:500], 0o600); err != nil {
		t.Fatal(err)
	}
	lost := named(old)
	if err := os.Chtimes(lost, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cache.o.Dir, "file-1"), []byte("a delta"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := cache.o
	o.MaxBytes = 2400
	again, err := NewCache(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{lost, filepath.Join(o.Dir, "file-1")} {
		if _, err := os.Stat(gone); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", gone, err)
		}
	}
	srv := httptest.NewServer(again)
	defer srv.Close()
	f = &Fetcher{URL: srv.URL, Client: srv.Client()}
	for _, want := range []struct {
		b     []byte
		asked int64
	}{{whole, 0}, {torn, 1}} {
		before := c.asked.Load()
		in, size, err := f.Open(t.Context(), BlobPath+digest(want.b), 0)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(in)
		_ = in.Close()
		if err != nil || size != int64(len(want.b)) || !bytes.Equal(b, want.b) {
			t.Errorf("%d of %d bytes, %v", len(b), size, err)
		}
		if n := c.asked.Load() - before; n != want.asked {
			t.Errorf("the centre was asked %d times, want %d", n, want.asked)
		}
	}
}

// Who may not ask gets what is here, and costs the centre nothing.
func TestMayAsk(t *testing.T) {
	c := newCentre(t)
	may := true
	_, f := newCache(t, c, CacheOptions{MayAsk: func(*http.Request) bool { return may }})
	here, other := noise(1, 1000), noise(2, 1000)
	c.put(t, publish.Blob(digest(here)), here)
	c.put(t, publish.Blob(digest(other)), other)
	c.put(t, "timestamp.json", []byte("{}"))
	if code := open(t, f, BlobPath+digest(here)); code != http.StatusOK {
		t.Fatal(code)
	}
	if _, err := f.Metadata(t.Context(), "timestamp.json", 100); err != nil {
		t.Fatal(err)
	}
	may = false
	before := c.asked.Load()
	for path, want := range map[string]int{BlobPath + digest(here): 200, BlobPath + digest(other): 429, MetadataPath + "timestamp.json": 200, MetadataPath + "77.root.json": 429} {
		if code := open(t, f, path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	if n := c.asked.Load(); n != before {
		t.Errorf("the centre was asked %d times", n-before)
	}
}

// A disk that takes nothing is a word to come again, and heals; a file that can never fit
// drives nothing out.
func TestCacheWithoutRoom(t *testing.T) {
	c := newCentre(t)
	cache, f := newCache(t, c, CacheOptions{MaxBytes: 10_000})
	now := time.Now()
	cache.now = func() time.Time { return now }
	small, large, other := noise(1, 8_000), noise(2, 20_000), noise(3, 1_000)
	for _, b := range [][]byte{small, large, other} {
		c.put(t, publish.Blob(digest(b)), b)
	}
	if code := open(t, f, BlobPath+digest(small)); code != http.StatusOK {
		t.Fatal(code)
	}
	if code := open(t, f, BlobPath+digest(large)); code != http.StatusServiceUnavailable {
		t.Errorf("larger than the cache: %d", code)
	}
	if s := cache.Stats(); s.Files != 1 || s.Bytes != 8_000 {
		t.Errorf("%+v", s)
	}
	if err := os.RemoveAll(cache.o.Dir); err != nil {
		t.Fatal(err)
	}
	if code := open(t, f, BlobPath+digest(other)); code != http.StatusServiceUnavailable {
		t.Errorf("a disk that takes nothing: %d", code)
	}
	if s := cache.Stats(); s.Disk != 1 || s.Failed != 2 {
		t.Errorf("%+v", s)
	}
	if err := os.Mkdir(cache.o.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	now = now.Add(failedFor)
	if code := open(t, f, BlobPath+digest(other)); code != http.StatusOK {
		t.Errorf("the disk is well again: %d", code)
	}
}

// A centre that does not answer is asked once in a while, and not by each site in turn;
// what is known goes on being served.
func TestMetadataWhileTheCentreIsAway(t *testing.T) {
	c := newCentre(t)
	var questions int
	cache, f := newCache(t, c, CacheOptions{})
	cache.o.Upstream = counting{c.fetcher(), &questions}
	now := time.Now()
	cache.now = func() time.Time { return now }
	c.put(t, "timestamp.json", []byte("{}"))
	if _, err := f.Metadata(t.Context(), "timestamp.json", 100); err != nil {
		t.Fatal(err)
	}
	c.down.Store(true)
	now = now.Add(time.Hour)
	questions = 0
	for range 50 {
		if b, err := f.Metadata(t.Context(), "timestamp.json", 100); err != nil || string(b) != "{}" {
			t.Fatalf("%s, %v", b, err)
		}
		if code := open(t, f, MetadataPath+"2.root.json"); code != http.StatusServiceUnavailable {
			t.Fatalf("what is not known: %d", code)
		}
	}
	if questions != 1 {
		t.Errorf("the centre was asked %d times", questions)
	}
	// Whoever asks for all numbers that there never were does not drive out what sites need.
	c.down.Store(false)
	now = now.Add(time.Hour)
	for i := range 2 * maxMetadata {
		_ = open(t, f, fmt.Sprintf("%s%d.root.json", MetadataPath, i+2))
		if i%100 == 0 {
			if _, err := f.Metadata(t.Context(), "timestamp.json", 100); err != nil {
				t.Fatal(err)
			}
		}
		now = now.Add(time.Millisecond)
	}
	c.down.Store(true)
	if _, err := f.Metadata(t.Context(), "timestamp.json", 100); err != nil {
		t.Error(err)
	}
	if n := len(cache.metadata.known); n > maxMetadata {
		t.Errorf("%d names are kept", n)
	}
}

type counting struct {
	Upstream
	n *int
}

func (c counting) Metadata(ctx context.Context, name string, most int64) ([]byte, error) {
	*c.n++
	return c.Upstream.Metadata(ctx, name, most)
}

// Whatever is asked for, what is not of the repository stays where it is.
func FuzzServe(f *testing.F) {
	for _, s := range []string{"/metadata/timestamp.json", "/metadata/../secret", "/blobs/sha256/../../secret", "/metadata/1.root.json/../../secret", "//secret", "/metadata/%2e%2e/secret", "/deltas/" + strings.Repeat("a", 64) + "/" + strings.Repeat("b", 64)} {
		f.Add(s)
	}
	base := f.TempDir()
	dir := filepath.Join(base, "repository")
	for name, text := range map[string]string{"secret": "secret", "repository/timestamp.json": "open", "repository/secret": "secret", "repository/.lock": "secret"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(base, name)), 0o700), os.WriteFile(filepath.Join(base, name), []byte(text), 0o600)); err != nil {
			f.Fatal(err)
		}
	}
	h := Serve(dir)
	f.Fuzz(func(t *testing.T, path string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path = path
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusNotFound && w.Body.String() != "open" {
			t.Errorf("%q: %d %q", path, w.Code, w.Body)
		}
	})
}

// Whoever reads a byte now and then of each old file does not keep a new one out: such a
// download breaks off, and goes on where it was when it is asked for again.
func TestSlowReadersAreCut(t *testing.T) {
	c := newCentre(t)
	const size = 4 << 20 // more than what lies in sockets' buffers
	var paid atomic.Int64
	cache, f := newCache(t, c, CacheOptions{MaxBytes: 2 * size, Fetching: func(_ *http.Request, bytes int64) { paid.Add(bytes) }})
	blobs := [][]byte{noise(1, size), noise(2, size), noise(3, size)}
	var held []io.ReadCloser
	for i, b := range blobs {
		c.put(t, publish.Blob(digest(b)), b)
		if i == 2 {
			break
		}
		in, _, err := f.Open(t.Context(), BlobPath+digest(b), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if _, err := io.ReadFull(in, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		held = append(held, in)
	}
	testkit.EventuallyTrue(t, "both are here", func() bool { return cache.Stats().Fetched == 2*size })
	in, _, err := f.Open(t.Context(), BlobPath+digest(blobs[2]), 0)
	if err != nil {
		t.Fatalf("a new file beside two that are being read: %v", err)
	}
	defer in.Close()
	if b, err := io.ReadAll(in); err != nil || !bytes.Equal(b, blobs[2]) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if s := cache.Stats(); s.Cut != 1 || s.Files != 2 || s.Bytes != 2*size {
		t.Errorf("%+v", s)
	}
	b, err := io.ReadAll(held[0])
	if err == nil {
		t.Error("the oldest download was not cut")
	}
	rest, _, err := f.Open(t.Context(), BlobPath+digest(blobs[0]), int64(1+len(b)))
	if err != nil {
		t.Fatal(err)
	}
	defer rest.Close()
	more, err := io.ReadAll(rest)
	if err != nil || !bytes.Equal(slices.Concat(blobs[0][:1], b, more), blobs[0]) {
		t.Errorf("%d and %d bytes, %v", len(b), len(more), err)
	}
	if n := paid.Load(); n != 4*size {
		t.Errorf("%d bytes were charged, want %d", n, 4*size)
	}
}
