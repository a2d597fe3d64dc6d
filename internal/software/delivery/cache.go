package delivery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"muster.dev/muster/internal/disk"
)

var (
	digestForm   = regexp.MustCompile(`^[0-9a-f]{64}$`)
	metadataForm = regexp.MustCompile(`^([1-9][0-9]{0,9}\.)?(root|timestamp|snapshot|targets)\.json$`)
)

// Upstream is where a Cache gets what it lacks; a Fetcher on the centre is one.
type Upstream interface {
	Metadata(ctx context.Context, name string, most int64) ([]byte, error)
	// Open returns the bytes of a blob or delta from an offset on and the size of all of
	// it. An error that is fs.ErrNotExist says that there is none.
	Open(ctx context.Context, path string, from int64) (io.ReadCloser, int64, error)
}

// Open implements Upstream.
func (f *Fetcher) Open(ctx context.Context, path string, from int64) (io.ReadCloser, int64, error) {
	resp, err := f.get(ctx, path, from)
	if err != nil {
		return nil, 0, err
	}
	if from > 0 && resp.StatusCode != http.StatusPartialContent {
		_ = resp.Body.Close()
		return nil, 0, errors.New("the server knows no ranges")
	}
	if resp.ContentLength < 0 {
		_ = resp.Body.Close()
		return nil, 0, errors.New("the server does not say how long the file is")
	}
	return resp.Body, from + resp.ContentLength, nil
}

// CacheOptions of a Cache.
type CacheOptions struct {
	Dir      string
	Upstream Upstream
	// MaxBytes of files; what was not asked for the longest goes first. 0: 20 GiB.
	MaxBytes int64
	// MetadataFor is how long signed metadata is served before the centre is asked again;
	// 0: half a minute. Longer while the centre can't be reached: it expires by itself.
	MetadataFor time.Duration
	Log         *slog.Logger
}

// Cache serves what Fetcher asks for, and asks the centre once for each file, however
// many want it at once: they are served while it comes. It verifies nothing: sites do.
// What it holds is lost with a restart and fetched again; so is what was under way.
type Cache struct {
	o   CacheOptions
	now func() time.Time

	mu       sync.Mutex
	files    map[string]*file
	metadata map[string]metadataEntry
	asked    sync.Mutex // one question for metadata at a time
}

type metadataEntry struct {
	b   []byte
	at  time.Time
	err error
}

// NewCache empties the directory, or makes it.
func NewCache(o CacheOptions) (*Cache, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = 20 << 30
	}
	if o.MetadataFor == 0 {
		o.MetadataFor = 30 * time.Second
	}
	if err := os.RemoveAll(o.Dir); err != nil {
		return nil, err
	}
	if err := disk.MkdirAll(disk.OS{}, o.Dir, 0o700); err != nil {
		return nil, err
	}
	return &Cache{o: o, now: time.Now, files: map[string]*file{}, metadata: map[string]metadataEntry{}}, nil
}

// ServeHTTP serves Paths. Who may ask is the caller's business: bundles are no secret to
// a tenant's sites, and signed.
func (c *Cache) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "want GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	path := r.URL.Path
	switch {
	case match(path, MetadataPath, metadataForm.MatchString):
		c.serveMetadata(w, r, path[len(MetadataPath):])
	case match(path, BlobPath, digestForm.MatchString), match(path, DeltaPath, isDelta):
		c.serveFile(w, r, path)
	default:
		http.NotFound(w, r)
	}
}

func match(path, prefix string, rest func(string) bool) bool {
	return len(path) > len(prefix) && path[:len(prefix)] == prefix && rest(path[len(prefix):])
}

func (c *Cache) serveMetadata(w http.ResponseWriter, r *http.Request, name string) {
	e := c.known(name)
	if !c.fresh(e) {
		c.asked.Lock()
		if e = c.known(name); !c.fresh(e) {
			b, err := c.o.Upstream.Metadata(r.Context(), name, 16<<20)
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				e = metadataEntry{b: b, at: c.now(), err: err}
				c.mu.Lock()
				if len(c.metadata) >= 256 {
					clear(c.metadata) // names are counted up: nobody asks for the old ones
				}
				c.metadata[name] = e
				c.mu.Unlock()
			} else if e.at.IsZero() {
				e.err = err
			}
		}
		c.asked.Unlock()
	}
	switch {
	case errors.Is(e.err, fs.ErrNotExist):
		http.NotFound(w, r)
	case e.err != nil:
		c.unavailable(w, e.err)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(e.b)
	}
}

func (c *Cache) known(name string) metadataEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.metadata[name]
}

func (c *Cache) fresh(e metadataEntry) bool {
	return !e.at.IsZero() && c.now().Sub(e.at) < c.o.MetadataFor
}

func (c *Cache) unavailable(w http.ResponseWriter, err error) {
	if c.o.Log != nil {
		c.o.Log.Warn("software can't be fetched from the centre", "err", err)
	}
	w.Header().Set("Retry-After", "30")
	http.Error(w, "the centre can't be reached", http.StatusServiceUnavailable)
}

func (c *Cache) serveFile(w http.ResponseWriter, r *http.Request, path string) {
	f := c.file(path)
	defer c.release(f)
	size, err := f.sized(r.Context())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		http.NotFound(w, r)
		return
	case err != nil:
		c.unavailable(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Etag", fmt.Sprintf("%q", filepath.Base(path)))
	http.ServeContent(w, r, "", time.Time{}, &reader{ctx: r.Context(), f: f, size: size})
}

// file returns the file of a path, which is fetched if nobody does so yet.
func (c *Cache) file(path string) *file {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.files[path]
	if f == nil {
		f = &file{path: path, changed: make(chan struct{})}
		c.files[path] = f
		go c.fetch(f)
	}
	f.users++
	f.used = c.now()
	return f
}

func (c *Cache) release(f *file) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.users--
	c.evictLocked()
}

// evictLocked makes room among the files that are whole and that nobody reads.
func (c *Cache) evictLocked() {
	var total int64
	var idle []*file
	for _, f := range c.files {
		n, done, _ := f.state()
		total += n
		if f.users == 0 && done {
			idle = append(idle, f)
		}
	}
	slices.SortFunc(idle, func(a, b *file) int { return a.used.Compare(b.used) })
	for _, f := range idle {
		if total <= c.o.MaxBytes {
			return
		}
		n, _, _ := f.state()
		total -= n
		delete(c.files, f.path)
		f.remove()
	}
}

// fetch brings a file, not for one reader's sake: it goes on when that one hangs up.
func (c *Cache) fetch(f *file) {
	err := c.bring(f)
	f.finish(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.files[f.path] == f {
		delete(c.files, f.path) // whoever asks next tries again
		f.remove()
	}
	c.evictLocked()
}

func (c *Cache) bring(f *file) error {
	var out *os.File
	for attempt := 0; ; attempt++ {
		at, _, _ := f.state()
		in, size, err := c.o.Upstream.Open(context.Background(), f.path, at)
		if err == nil {
			if out == nil {
				if out, err = os.CreateTemp(c.o.Dir, "file-*"); err != nil {
					_ = in.Close()
					return err
				}
				f.begin(out, size)
			}
			_, err = io.Copy(f, io.LimitReader(in, size-at))
			_ = in.Close()
			if n, _, _ := f.state(); n == size {
				return nil
			}
			if err == nil {
				err = io.ErrUnexpectedEOF
			}
		}
		// A line that broke is taken up where it broke, as sites do it.
		if now, _, _ := f.state(); now == at && attempt >= 2 || errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}
