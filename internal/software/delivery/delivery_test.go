package delivery

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"

	"muster.dev/muster/internal/software/bundle"
	"muster.dev/muster/internal/software/bundle/publish"
	"muster.dev/muster/internal/testkit/faultdisk"
)

func noise(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// centre is a repository in a directory, served; it counts, and its line breaks as told.
type centre struct {
	*httptest.Server
	dir    string
	asked  atomic.Int64 // for files
	sent   atomic.Int64 // bytes of files
	breaks atomic.Int64 // so many bytes after which the line breaks, each time; 0: never
	down   atomic.Bool
}

type counted struct {
	http.ResponseWriter
	c    *centre
	left int64
}

func (w *counted) Write(b []byte) (int, error) {
	if w.c.breaks.Load() > 0 {
		if b = b[:min(int64(len(b)), w.left)]; len(b) == 0 {
			panic(http.ErrAbortHandler)
		}
		w.left -= int64(len(b))
	}
	n, err := w.ResponseWriter.Write(b)
	w.c.sent.Add(int64(n))
	return n, err
}

func newCentre(t *testing.T) *centre {
	c := &centre{dir: t.TempDir()}
	h := Serve(c.dir)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.down.Load() {
			w.Header().Set("Retry-After", "7")
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		if !strings.HasPrefix(r.URL.Path, MetadataPath) {
			c.asked.Add(1)
			w = &counted{w, c, c.breaks.Load()}
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *centre) put(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := (publish.Dir{Path: c.dir}).Put(t.Context(), name, bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
}

func (c *centre) fetcher() *Fetcher { return &Fetcher{URL: c.URL, Client: c.Client()} }

func TestResume(t *testing.T) {
	c := newCentre(t)
	b := noise(1, 5<<20)
	c.put(t, publish.Blob(digest(b)), b)
	c.breaks.Store(2 << 20)
	path := filepath.Join(t.TempDir(), "made", "image")
	for calls := 1; ; calls++ {
		// A Fetcher of its own each time: the agent was restarted.
		err := c.fetcher().File(t.Context(), digest(b), int64(len(b)), path)
		if err == nil {
			if got, _ := os.ReadFile(path); calls != 3 || !bytes.Equal(got, b) {
				t.Fatalf("%d calls, %d bytes", calls, len(got))
			}
			break
		}
		if calls == 3 {
			t.Fatal(err)
		}
	}
	if sent := c.sent.Load(); sent > 5<<20+64<<10 {
		t.Errorf("%d bytes for a file of %d: what was there came again", sent, len(b))
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A server that takes a request, or begins to answer, and then says nothing is given up; what had
// come is gone on with.
func TestASilentServerIsGivenUp(t *testing.T) {
	c := newCentre(t)
	b := noise(1, 3<<20)
	c.put(t, publish.Blob(digest(b)), b)
	var silent atomic.Int64 // so many bytes come first; −1: all
	h := Serve(c.dir)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := silent.Load(); n == 0 {
			<-r.Context().Done()
		} else if n > 0 {
			w.Header().Set("Content-Length", strconv.Itoa(len(b)))
			_, _ = w.Write(b[:n])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		} else {
			h.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	f := &Fetcher{URL: srv.URL, Client: srv.Client(), Idle: 100 * time.Millisecond}
	path := filepath.Join(t.TempDir(), "image")
	for _, n := range []int64{0, 2 << 20} {
		silent.Store(n)
		if err := f.File(t.Context(), digest(b), int64(len(b)), path); !errors.Is(err, ErrIdle) || !Refused(err) {
			t.Errorf("after %d bytes: %v", n, err)
		}
		if begun := f.Begun(path); begun != (n > 0) {
			t.Errorf("after %d bytes: begun %v", n, begun)
		}
	}
	silent.Store(-1)
	f.Idle, f.Limit = time.Minute, NewLimit(64<<20) // whose waits are nobody's silence
	if err := f.File(t.Context(), digest(b), int64(len(b)), path); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); !bytes.Equal(got, b) {
		t.Error("it is another file")
	}
}

func TestWrongFileIsThrownAway(t *testing.T) {
	c := newCentre(t)
	b, evil := noise(1, 100_000), noise(2, 100_000)
	c.put(t, publish.Blob(digest(b)), evil)
	path := filepath.Join(t.TempDir(), "image")
	if err := c.fetcher().File(t.Context(), digest(b), int64(len(b)), path); err == nil || !strings.Contains(err.Error(), "thrown away") {
		t.Fatalf("%v", err)
	}
	c.put(t, publish.Blob(digest(b)), b)
	if err := c.fetcher().File(t.Context(), digest(b), int64(len(b)), path); err != nil {
		t.Fatal(err)
	}
	if err := c.fetcher().File(t.Context(), digest(evil), 1, path); !errors.Is(err, ErrNotThere) {
		t.Errorf("%v, want %v", err, ErrNotThere)
	}
}

// A power cut at each operation of a download that an earlier one began.
func TestPowerLoss(t *testing.T) {
	c := newCentre(t)
	b := noise(1, 2<<20)
	c.put(t, publish.Blob(digest(b)), b)
	for cut := 0; ; cut++ {
		dir := t.TempDir()
		d := faultdisk.New(t, dir)
		path := filepath.Join(dir, "image")
		get := func() error {
			f := c.fetcher()
			f.FS = d
			return f.File(t.Context(), digest(b), int64(len(b)), path)
		}
		c.breaks.Store(1 << 20)
		_ = get()
		c.breaks.Store(0)
		before := d.Ops()
		d.PowerOffAfter(cut)
		err := get()
		done := d.Ops()-before <= cut
		d.Crash(uint64(cut))
		if got, rerr := os.ReadFile(path); rerr == nil && !bytes.Equal(got, b) || err == nil && rerr != nil {
			t.Fatalf("cut %d: the download said %v; %d bytes, %v", cut, err, len(got), rerr)
		}
		if err := get(); err != nil {
			// What the disk tore is found out by its digest, once.
			if err := get(); err != nil {
				t.Fatalf("cut %d: %v", cut, err)
			}
		}
		if done {
			return
		}
	}
}

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		n, err := io.Copy(io.Discard, limited{t.Context(), bytes.NewReader(make([]byte, 10<<20)), NewLimit(1 << 20)})
		if took := time.Since(begin); n != 10<<20 || err != nil || took < 9*time.Second || took > 11*time.Second {
			t.Errorf("10 MiB at 1 MiB/s took %v, %v", took, err)
		}
	})
}

// A hundred sites want a file at once; the centre sends it once, though its line breaks,
// and they are served while it comes.
func TestCacheFetchesOnce(t *testing.T) {
	c := newCentre(t)
	b := noise(1, 6<<20)
	c.put(t, publish.Blob(digest(b)), b)
	c.breaks.Store(2 << 20)
	cache, err := NewCache(CacheOptions{Dir: filepath.Join(t.TempDir(), "cache"), Upstream: c.fetcher()})
	if err != nil {
		t.Fatal(err)
	}
	regional := httptest.NewServer(cache)
	defer regional.Close()
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			f := &Fetcher{URL: regional.URL, Client: regional.Client()}
			in, size, err := f.Open(t.Context(), BlobPath+digest(b), int64(i*1000))
			if err != nil {
				t.Error(err)
				return
			}
			defer in.Close()
			if got, err := io.ReadAll(in); err != nil || size != int64(len(b)) || !bytes.Equal(got, b[i*1000:]) {
				t.Errorf("site %d: %d bytes, %v", i, len(got), err)
			}
		})
	}
	wg.Wait()
	if asked, sent := c.asked.Load(), c.sent.Load(); asked != 3 || sent > 6<<20+64<<10 {
		t.Errorf("the centre was asked %d times and sent %d bytes of %d", asked, sent, len(b))
	}
	if _, _, err := (&Fetcher{URL: regional.URL, Client: regional.Client()}).Open(t.Context(), BlobPath+digest(nil), 0); !errors.Is(err, ErrNotThere) {
		t.Errorf("what the centre has not: %v", err)
	}
}

func TestCacheMakesRoom(t *testing.T) {
	c := newCentre(t)
	cache, err := NewCache(CacheOptions{Dir: filepath.Join(t.TempDir(), "cache"), Upstream: c.fetcher(), MaxBytes: 250_000})
	if err != nil {
		t.Fatal(err)
	}
	regional := httptest.NewServer(cache)
	defer regional.Close()
	f := &Fetcher{URL: regional.URL, Client: regional.Client()}
	for i := range byte(5) {
		b := noise(i, 100_000)
		c.put(t, publish.Blob(digest(b)), b)
		if err := f.File(t.Context(), digest(b), int64(len(b)), filepath.Join(t.TempDir(), "f")); err != nil {
			t.Fatal(err)
		}
	}
	regional.Close() // the last release is behind us
	if held, _ := os.ReadDir(cache.o.Dir); len(held) != 2 {
		t.Errorf("%d files of 100 kB in 250 kB", len(held))
	}
}

// The way of an image: released, signed, over the regional's cache, as a delta where there
// is one; and the metadata while the centre is down.
func TestFromReleaseToSite(t *testing.T) {
	c := newCentre(t)
	repo := publish.Repository{Store: publish.Dir{Path: c.dir}, Keys: publish.Keys{Root: signer(t), Targets: signer(t), Snapshot: signer(t), Timestamp: signer(t)}}
	root, err := repo.Init(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	one := noise(1, 4<<20)
	two := bytes.Join([][]byte{one[:1<<20], noise(2, 40<<10), one[1<<20:]}, nil)
	old, err := repo.Add(t.Context(), "os/1.0.0", bundle.About{Component: "os", Version: "1.0.0", Architecture: "any"}, bytes.NewReader(one))
	if err != nil {
		t.Fatal(err)
	}
	next, err := repo.Add(t.Context(), "os/2.0.0", bundle.About{Component: "os", Version: "2.0.0", Architecture: "any"}, bytes.NewReader(two))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repo.AddDelta(t.Context(), old, next, bytes.NewReader(one), bytes.NewReader(two)); err != nil {
		t.Fatal(err)
	}
	cache, err := NewCache(CacheOptions{Dir: filepath.Join(t.TempDir(), "cache"), Upstream: c.fetcher()})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	cache.now = func() time.Time { return now }
	regional := httptest.NewServer(cache)
	defer regional.Close()
	f := &Fetcher{URL: regional.URL, Client: regional.Client()}
	trust, err := bundle.Open(bundle.Options{Dir: t.TempDir(), Root: root})
	if err != nil {
		t.Fatal(err)
	}
	if err := trust.Refresh(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	got, err := trust.Target("os/2.0.0", "os", "2.0.0")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "image")
	if err := f.Delta(t.Context(), old.Digest, bytes.NewReader(one), old.Size, got.Digest, got.Size, path); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); !bytes.Equal(b, two) {
		t.Error("the delta made something else")
	}
	if sent := c.sent.Load(); sent > 50<<10 {
		t.Errorf("%d bytes were sent for 40 kB that are new", sent)
	}
	// With another file under the running slot the result is another one, and found out.
	if err := f.Delta(t.Context(), old.Digest, bytes.NewReader(noise(9, len(one))), old.Size, got.Digest, got.Size, filepath.Join(t.TempDir(), "x")); err == nil {
		t.Error("a wrong result was taken")
	}
	if err := f.Delta(t.Context(), got.Digest, bytes.NewReader(one), old.Size, old.Digest, 1, path); !errors.Is(err, ErrNotThere) {
		t.Errorf("a delta that nobody made: %v", err)
	}

	now = now.Add(time.Hour)
	c.down.Store(true)
	if err := trust.Refresh(t.Context(), f); err != nil {
		t.Errorf("the cache has the metadata, and the centre is down: %v", err)
	}
	err = f.File(t.Context(), old.Digest, old.Size, path)
	if s := (*StatusError)(nil); !errors.As(err, &s) || s.RetryAfter != 30*time.Second {
		t.Errorf("what the cache has not, while the centre is down: %v", err)
	}
}

func signer(t *testing.T) []signature.Signer {
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

var _ Upstream = (*Fetcher)(nil)
var _ bundle.Source = (*Fetcher)(nil)
