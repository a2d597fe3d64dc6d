package delivery

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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

// DefaultBytes that a Cache may hold.
const DefaultBytes = 20 << 30

// CacheOptions of a Cache.
type CacheOptions struct {
	Dir      string
	Upstream Upstream
	// MaxBytes of files; what was not asked for the longest goes first. 0: DefaultBytes.
	MaxBytes int64
	// MetadataFor is how long signed metadata is served before the centre is asked again;
	// 0: half a minute. Longer while the centre can't be reached: it expires by itself.
	MetadataFor time.Duration
	// MayAsk says whether a request may cost the centre a question; nil: any may. What is
	// here already, or on its way, costs none.
	MayAsk func(*http.Request) bool
	// Fetching is told of whose request a file is fetched, and of how many bytes, before
	// they come; may be nil.
	Fetching func(r *http.Request, bytes int64)
	Log      *slog.Logger
}

// How long an answer that was no file is given again without asking the centre.
const (
	missingFor = time.Minute
	failedFor  = 5 * time.Second
	// maxRefusals are kept, and maxFetches under way at once.
	maxRefusals, maxFetches = 4096, 64
)

// Errors of a file that is not served; errors of the centre come beside them.
var (
	errTooMany = errors.New("too much was asked for that is not here")
	errBusy    = errors.New("too many files are being fetched")
	errNoRoom  = errors.New("the cache has no room")
)

// Cache serves what Fetcher asks for, and asks the centre once for each file, however
// many want it at once: they are served while it comes. It verifies nothing: sites do.
// What it holds outlives a restart where its name says what is in it: blobs are read before
// they are served again. Deltas and what was under way are fetched again.
// That the centre has no such file, or did not answer, is remembered for a moment.
type Cache struct {
	o   CacheOptions
	now func() time.Time

	mu       sync.Mutex
	files    map[string]*file
	refusals map[string]refusal
	fetches  int // under way
	said     time.Time
	stats    CacheStats

	metadata metadataCache
}

// refusal is an answer that was no file.
type refusal struct {
	err   error
	until time.Time
}

// CacheStats of a Cache since it was made, but for Files and Bytes, which it holds now.
type CacheStats struct {
	Files   int
	Bytes   int64
	Asked   int64 // files that the centre was asked for
	Fetched int64 // bytes of files that came
	Failed  int64 // files that did not come, missing ones not counted
	Disk    int64 // failures to write to the disk
	Cut     int64 // files that were removed though they were being read
}

// Stats returns the figures of now.
func (c *Cache) Stats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.stats
	out.Files = len(c.files)
	for _, f := range c.files {
		n, _, _ := f.state()
		out.Bytes += n
	}
	return out
}

// NewCache takes what an earlier one left in the directory, which it makes if need be.
func NewCache(o CacheOptions) (*Cache, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultBytes
	}
	if o.MetadataFor == 0 {
		o.MetadataFor = 30 * time.Second
	}
	if err := disk.MkdirAll(disk.OS{}, o.Dir, 0o700); err != nil {
		return nil, err
	}
	c := &Cache{o: o, now: time.Now, files: map[string]*file{}, refusals: map[string]refusal{}, metadata: metadataCache{known: map[string]metadataEntry{}}}
	left, err := c.left()
	if err != nil {
		return nil, err
	}
	go c.adopt(left)
	return c, nil
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

// refuse answers with an error, and logs one a minute.
func (c *Cache) refuse(w http.ResponseWriter, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		http.Error(w, "the centre has no such file", http.StatusNotFound)
		return
	}
	w.Header().Set("Retry-After", "30")
	if errors.Is(err, errTooMany) {
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	}
	c.mu.Lock()
	now := c.now()
	say := c.o.Log != nil && now.Sub(c.said) >= time.Minute
	if say {
		c.said = now
	}
	c.mu.Unlock()
	if say {
		c.o.Log.Warn("software can't be had from the centre", "err", err)
	}
	why := "the centre can't be reached"
	if errors.Is(err, errBusy) || errors.Is(err, errNoRoom) {
		why = err.Error()
	}
	http.Error(w, why, http.StatusServiceUnavailable)
}

func (c *Cache) serveFile(w http.ResponseWriter, r *http.Request, path string) {
	f, err := c.file(r, path)
	if err != nil {
		c.refuse(w, err)
		return
	}
	defer c.release(f)
	size, err := f.sized(r.Context())
	if err != nil {
		c.refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Etag", fmt.Sprintf("%q", filepath.Base(path)))
	http.ServeContent(w, r, "", time.Time{}, &reader{ctx: r.Context(), f: f, size: size})
}

// file returns the file of a path, which is fetched if nobody does so yet.
func (c *Cache) file(r *http.Request, path string) (*file, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.files[path]
	if f == nil {
		if no, ok := c.refusals[path]; ok && c.now().Before(no.until) {
			return nil, no.err
		}
		switch {
		case c.fetches >= maxFetches:
			return nil, errBusy
		case c.o.MayAsk != nil && !c.o.MayAsk(r):
			return nil, errTooMany
		}
		f = &file{path: path, changed: make(chan struct{}), of: r}
		c.files[path] = f
		c.fetches++
		c.stats.Asked++
		go c.fetch(f)
	}
	f.users++
	f.used = c.now()
	return f, nil
}

func (c *Cache) release(f *file) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.users--
	c.evictLocked(c.o.MaxBytes, false)
}

// evictLocked makes room among the files that are whole, down to most bytes, and returns
// how many are left. A file that is coming counts as whole. Files that nobody reads go
// first; with cut others too, those with the fewest readers first: whoever reads a byte a
// second of each old release must not keep the next one out. They ask again for the rest.
func (c *Cache) evictLocked(most int64, cut bool) int64 {
	var total int64
	var whole []*file
	for _, f := range c.files {
		n, done, _ := f.state()
		total += max(n, f.reserved)
		if done && (cut || f.users == 0) {
			whole = append(whole, f)
		}
	}
	slices.SortFunc(whole, func(a, b *file) int { return cmp.Or(cmp.Compare(a.users, b.users), a.used.Compare(b.used)) })
	for _, f := range whole {
		if total <= most {
			break
		}
		n, _, _ := f.state()
		total -= max(n, f.reserved)
		delete(c.files, f.path)
		if f.users > 0 {
			c.stats.Cut++
			f.close()
		}
		f.remove()
	}
	return total
}

// reserve makes room for a file before it comes.
func (c *Cache) reserve(f *file, size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if size <= c.o.MaxBytes { // else all that is here would go for nothing
		f.reserved = size
		if c.evictLocked(c.o.MaxBytes, true) <= c.o.MaxBytes {
			if c.o.Fetching != nil {
				c.o.Fetching(f.of, size)
			}
			f.of = nil
			return nil
		}
		f.reserved = 0
	}
	return fmt.Errorf("%w for %s of %d bytes: it may have %d in all, and what is coming stays; raise cacheBytes", errNoRoom, f.path, size, c.o.MaxBytes)
}

// fetch downloads a file, not for one reader's sake: it goes on when that one hangs up.
func (c *Cache) fetch(f *file) {
	err := c.download(f)
	f.finish(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetches--
	n, _, _ := f.state()
	c.stats.Fetched += n
	if err == nil {
		c.evictLocked(c.o.MaxBytes, false)
		return
	}
	delete(c.files, f.path)
	f.remove()
	until := c.now().Add(failedFor)
	if errors.Is(err, fs.ErrNotExist) {
		until = c.now().Add(missingFor)
	} else {
		c.stats.Failed++
	}
	if len(c.refusals) >= maxRefusals {
		maps.DeleteFunc(c.refusals, func(_ string, no refusal) bool { return !c.now().Before(no.until) })
		if len(c.refusals) >= maxRefusals {
			clear(c.refusals)
		}
	}
	c.refusals[f.path] = refusal{err, until}
}

func (c *Cache) download(f *file) error {
	var out *os.File
	for attempt := 0; ; attempt++ {
		at, _, _ := f.state()
		in, size, err := c.o.Upstream.Open(context.Background(), f.path, at)
		if err == nil && out == nil {
			if err := c.reserve(f, size); err != nil {
				_ = in.Close()
				return err
			}
			if out, err = os.CreateTemp(c.o.Dir, fileName(f.path)); err != nil {
				_ = in.Close()
				c.diskFailed()
				return fmt.Errorf("keep it on the disk: %v", err) //nolint:errorlint // that a directory is missing does not mean that the centre has no such file
			}
			f.begin(out, size)
		}
		if err == nil {
			to := &diskWriter{to: f}
			_, err = io.Copy(to, io.LimitReader(in, size-at))
			_ = in.Close()
			if n, _, _ := f.state(); n == size && err == nil {
				return whole(f.path, out, size)
			}
			if err == nil {
				err = io.ErrUnexpectedEOF
			}
			if to.failed {
				c.diskFailed()
			}
		}
		// A line that broke is taken up where it broke, as sites do it.
		if now, _, _ := f.state(); now == at && attempt >= 2 || errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

// whole tells whether a file that has come is the one that its name says, where it does.
func whole(path string, file io.ReaderAt, size int64) error {
	digest, ok := strings.CutPrefix(path, BlobPath)
	if !ok {
		return nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(file, 0, size)); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != digest {
		return fmt.Errorf("what came of the blob %.12s… has the digest %.12s…; it is thrown away", digest, got)
	}
	return nil
}

// diskFailed gives back all that nobody reads: the disk may be full.
func (c *Cache) diskFailed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Disk++
	c.evictLocked(0, false)
}

// diskWriter knows that it was the disk that failed, and not the line.
type diskWriter struct {
	to     io.Writer
	failed bool
}

// Write implements io.Writer.
func (d *diskWriter) Write(b []byte) (int, error) {
	n, err := d.to.Write(b)
	d.failed = d.failed || err != nil
	return n, err
}
