package relay

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"muster.dev/muster/internal/wire"
)

// Bounds of fetching a blob from control.
const (
	fetchTimeout  = 10 * time.Minute
	fetchAttempts = 5
	chunkBytes    = 64 << 10
)

// blobCache is a directory of blobs, each named by its SHA-256 and shared by all
// sites. The least recently used ones go when it is full.
type blobCache struct {
	dir     string
	max     int64
	control wire.ControlClient
	log     *slog.Logger
	fetches singleflight.Group

	mu    sync.Mutex
	index map[string]*list.Element
	order *list.List // of *blob, most recently used first
	bytes int64
}

type blob struct {
	digest string
	size   int64
}

var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// openBlobs reads which blobs are there; the order of use is the files' times.
func openBlobs(dir string, maxBytes int64, control wire.ControlClient, log *slog.Logger) (*blobCache, error) {
	c := &blobCache{dir: dir, max: maxBytes, control: control, log: log, index: map[string]*list.Element{}, order: list.New()}
	type found struct {
		blob
		mod time.Time
	}
	var all []found
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if !digestForm.MatchString(e.Name()) {
			return os.Remove(path) // a download that was cut off
		}
		all = append(all, found{blob{e.Name(), info.Size()}, info.ModTime()})
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b found) int { return a.mod.Compare(b.mod) })
	for _, f := range all {
		c.addLocked(f.digest, f.size)
	}
	return c, nil
}

func (c *blobCache) path(digest string) string { return filepath.Join(c.dir, digest[:2], digest) }

func (c *blobCache) size() (int, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order.Len(), c.bytes
}

func (c *blobCache) addLocked(digest string, size int64) {
	if e, ok := c.index[digest]; ok {
		c.order.MoveToFront(e)
		return
	}
	c.index[digest] = c.order.PushFront(&blob{digest, size})
	c.bytes += size
	for c.bytes > c.max && c.order.Len() > 1 {
		c.dropLocked(c.order.Back())
	}
}

// dropLocked removes the file; whoever reads it goes on reading.
func (c *blobCache) dropLocked(e *list.Element) {
	b := c.order.Remove(e).(*blob)
	delete(c.index, b.digest)
	c.bytes -= b.size
	if err := os.Remove(c.path(b.digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("a blob could not be removed", "digest", b.digest, "err", err)
	}
}

// open returns the file of a blob that is cached.
func (c *blobCache) open(digest string) (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.index[digest]
	if !ok {
		return nil, fs.ErrNotExist
	}
	f, err := os.Open(c.path(digest))
	if err != nil {
		c.dropLocked(e)
		return nil, fs.ErrNotExist
	}
	c.order.MoveToFront(e)
	now := time.Now()
	_ = os.Chtimes(c.path(digest), now, now) // the order outlives a restart
	return f, nil
}

// stream sends a blob from offset, fetching it first if need be.
func (c *blobCache) stream(ctx context.Context, digest string, size, offset int64, send func([]byte) error) error {
	if !digestForm.MatchString(digest) {
		return fmt.Errorf("blob %q: not a SHA-256 in hex", digest)
	}
	f, err := c.open(digest)
	if err != nil {
		if err := c.fetchOnce(ctx, digest, size); err != nil {
			return err
		}
		if f, err = c.open(digest); err != nil {
			return fmt.Errorf("blob %s: gone from the cache; try again", digest)
		}
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return fmt.Errorf("blob %s: %w", digest, err)
	}
	buf := make([]byte, chunkBytes)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			if err := send(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("blob %s: %w", digest, err)
		}
	}
}

// fetchOnce fetches a blob once, however many sites ask for it. The fetch goes on
// when the first one leaves.
func (c *blobCache) fetchOnce(ctx context.Context, digest string, size int64) error {
	ch := c.fetches.DoChan(digest, func() (any, error) {
		fctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
		defer cancel()
		return nil, c.fetch(fctx, digest, size)
	})
	select {
	case r := <-ch:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fetch downloads a blob, going on where a broken attempt ended, and keeps it only
// if it has the digest that it is named by.
func (c *blobCache) fetch(ctx context.Context, digest string, size int64) error {
	if err := os.MkdirAll(filepath.Dir(c.path(digest)), 0o750); err != nil {
		return fmt.Errorf("blob %s: %w", digest, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(c.path(digest)), ".fetch-*")
	if err != nil {
		return fmt.Errorf("blob %s: %w", digest, err)
	}
	defer func() {
		_ = tmp.Close()
		_ = os.Remove(tmp.Name())
	}()
	n, err := fetchTo(ctx, c.control, digest, size, tmp)
	if err != nil {
		return err
	}
	if err := tmp.Sync(); err != nil {
		return fmt.Errorf("blob %s: %w", digest, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := os.Rename(tmp.Name(), c.path(digest)); err != nil {
		return fmt.Errorf("blob %s: %w", digest, err)
	}
	c.addLocked(digest, n)
	return nil
}

// fetchTo downloads a blob of at most size bytes to w, going on where a broken
// attempt ended. It returns the length; an error if it has not the digest.
func fetchTo(ctx context.Context, control wire.ControlClient, digest string, size int64, w io.Writer) (int64, error) {
	d := &download{w: w, sum: sha256.New(), max: size}
	for attempt := 1; ; attempt++ {
		before := d.n
		err := d.attempt(ctx, control, digest)
		if err == nil {
			break
		}
		if d.n > before {
			attempt = 1 // it gets on
		}
		if attempt >= fetchAttempts || ctx.Err() != nil || errors.Is(err, errDownload) {
			return 0, fmt.Errorf("blob %s: fetch from control: %w", digest, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(attempt) * 200 * time.Millisecond):
		}
	}
	if got := hex.EncodeToString(d.sum.Sum(nil)); got != digest {
		return 0, fmt.Errorf("blob %s: control sent bytes with the digest %s", digest, got)
	}
	return d.n, nil
}

// errDownload: to try again is of no use.
var errDownload = errors.New("download")

type download struct {
	w   io.Writer
	sum hash.Hash
	n   int64
	max int64
}

func (d *download) write(b []byte) error {
	if d.n+int64(len(b)) > d.max {
		return fmt.Errorf("%w: more than the %d bytes that the desired state names", errDownload, d.max)
	}
	if _, err := d.w.Write(b); err != nil {
		return fmt.Errorf("%w: %w", errDownload, err)
	}
	_, _ = d.sum.Write(b)
	d.n += int64(len(b))
	return nil
}

func (d *download) attempt(ctx context.Context, control wire.ControlClient, digest string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := control.FetchBlob(ctx, &wire.FetchBlobRequest{Digest: digest, Offset: d.n})
	if err != nil {
		return err
	}
	for {
		chunk, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := d.write(chunk.Data); err != nil {
			return err
		}
	}
}
