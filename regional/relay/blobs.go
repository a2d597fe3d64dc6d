package relay

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"muster.dev/muster/internal/holdings"
	"muster.dev/muster/internal/wire"
)

// Bounds of fetching a blob from control.
const (
	fetchTimeout = 10 * time.Minute
	chunkBytes   = 64 << 10
	// noteEvery is how often the use of a blob is written down, at most: thousands of sites
	// ask for the same one at once.
	noteEvery = time.Minute
)

var fetcher = holdings.Fetcher{Attempts: 5}

// blobCache is a directory of blobs, each named by its SHA-256 and shared by all
// sites. A blob counts for the tenant that asked for it first, and after a start for one whose
// site should hold it.
// When the cache is full, the least recently used one of the tenant that has most goes:
// nobody's large ones drive out the others'.
type blobCache struct {
	dir     *holdings.Dir
	max     int64
	control wire.ControlClient
	log     *slog.Logger
	fetches singleflight.Group

	mu    sync.Mutex
	index map[string]*list.Element
	held  map[string]*holding // by tenant; "" has what no site should hold, until one asks for it
	bytes int64
}

// holding is what counts for a tenant.
type holding struct {
	order *list.List // of *blob, most recently used first
	bytes int64
}

type blob struct {
	digest string
	tenant string
	size   int64
	// verified: fetched, or looked at since the start. A disk may have changed the rest.
	verified bool
	// noted is when its use was last written down.
	noted time.Time
}

// openBlobs reads which blobs are there; the order of use is the files' times, and tenants
// says whose they are.
func openBlobs(dir string, maxBytes int64, tenants map[string]string, control wire.ControlClient, log *slog.Logger) (*blobCache, error) {
	files, err := holdings.Open(dir, 0o640, true)
	if err != nil {
		return nil, err
	}
	c := &blobCache{dir: files, max: maxBytes, control: control, log: log, index: map[string]*list.Element{}, held: map[string]*holding{}}
	type found struct {
		blob
		mod time.Time
	}
	var all []found
	err = files.Each(func(digest string, info fs.FileInfo) {
		all = append(all, found{blob{digest: digest, size: info.Size()}, info.ModTime()})
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b found) int { return a.mod.Compare(b.mod) })
	for _, f := range all {
		c.addLocked(tenants[f.digest], f.digest, f.size, false)
	}
	return c, nil
}

func (c *blobCache) size() (int, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.index), c.bytes
}

func (c *blobCache) addLocked(tenant, digest string, size int64, verified bool) {
	if e, ok := c.index[digest]; ok {
		c.usedLocked(e, tenant)
		return
	}
	c.putLocked(&blob{digest: digest, tenant: tenant, size: size, verified: verified})
	for c.bytes > c.max {
		least := c.leastLocked(digest)
		if least == nil {
			return
		}
		c.dropLocked(least)
	}
}

// leastLocked is the blob that goes first when there is no room for the one just added; nil:
// there is no other.
func (c *blobCache) leastLocked(added string) *list.Element {
	var least *list.Element
	most := int64(-1)
	for _, h := range c.held {
		if e := h.order.Back(); h.bytes > most && e.Value.(*blob).digest != added {
			least, most = e, h.bytes
		}
	}
	return least
}

func (c *blobCache) putLocked(b *blob) {
	h := c.held[b.tenant]
	if h == nil {
		h = &holding{order: list.New()}
		c.held[b.tenant] = h
	}
	c.index[b.digest] = h.order.PushFront(b)
	h.bytes += b.size
	c.bytes += b.size
}

func (c *blobCache) takeLocked(e *list.Element) *blob {
	b := e.Value.(*blob)
	h := c.held[b.tenant]
	h.order.Remove(e)
	delete(c.index, b.digest)
	c.bytes -= b.size
	if h.bytes -= b.size; h.order.Len() == 0 {
		delete(c.held, b.tenant)
	}
	return b
}

// usedLocked says that a tenant has asked for a blob that is there.
func (c *blobCache) usedLocked(e *list.Element, tenant string) {
	b := e.Value.(*blob)
	if b.tenant != "" || tenant == "" {
		c.held[b.tenant].order.MoveToFront(e)
		return
	}
	c.takeLocked(e)
	b.tenant = tenant
	c.putLocked(b)
}

// dropLocked removes the file; whoever reads it goes on reading.
func (c *blobCache) dropLocked(e *list.Element) {
	b := c.takeLocked(e)
	if err := c.dir.Remove(b.digest); err != nil {
		c.log.Warn("a blob could not be removed", "digest", b.digest, "err", err)
	}
}

// open returns the file of a blob that is cached.
func (c *blobCache) open(tenant, digest string) (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.index[digest]
	if !ok {
		return nil, fs.ErrNotExist
	}
	b := e.Value.(*blob)
	if !b.verified {
		// Once since the start, however many sites ask: they would refuse it, and ask again
		// for ever.
		if err := c.dir.Verify(digest); err != nil {
			c.log.Warn("a blob in the cache is fetched again", "err", err)
			c.dropLocked(e)
			return nil, fs.ErrNotExist
		}
		b.verified = true
	}
	f, err := os.Open(c.dir.File(digest))
	if err != nil {
		c.dropLocked(e)
		return nil, fs.ErrNotExist
	}
	c.usedLocked(e, tenant)
	if now := time.Now(); now.Sub(b.noted) >= noteEvery {
		b.noted = now
		_ = os.Chtimes(c.dir.File(digest), now, now) // the order outlives a restart
	}
	return f, nil
}

// stream sends a blob to a site of a tenant from offset, fetching it first if need be.
func (c *blobCache) stream(ctx context.Context, tenant, digest string, size, offset int64, send func([]byte) error) error {
	if !holdings.IsDigest(digest) {
		return fmt.Errorf("blob %q: not a SHA-256 in hex", digest)
	}
	f, err := c.open(tenant, digest)
	if err != nil {
		if err := c.fetchOnce(ctx, tenant, digest, size); err != nil {
			return err
		}
		if f, err = c.open(tenant, digest); err != nil {
			return fmt.Errorf("blob %s: gone from the cache; try again", digest)
		}
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return fmt.Errorf("blob %s: %w", digest, err)
	}
	sum := sha256.New()
	// Most blobs are an object of a kilobyte or two.
	buf := make([]byte, min(chunkBytes, max(size-offset, 1)))
	for {
		n, err := f.Read(buf)
		if n > 0 {
			sum.Write(buf[:n])
			if err := send(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			if offset == 0 && hex.EncodeToString(sum.Sum(nil)) != digest {
				c.damaged(digest)
			}
			return nil
		} else if err != nil {
			return fmt.Errorf("blob %s: %w", digest, err)
		}
	}
}

// damaged removes a blob that the disk has changed since it was verified: the site that got it
// refuses it, and what it asks for again is fetched.
func (c *blobCache) damaged(digest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.index[digest]; ok {
		c.log.Warn("a blob in the cache is not what it was and is fetched again", "digest", digest)
		c.dropLocked(e)
	}
}

// fetchOnce fetches a blob once, however many sites ask for it. The fetch goes on
// when the first one leaves.
func (c *blobCache) fetchOnce(ctx context.Context, tenant, digest string, size int64) error {
	ch := c.fetches.DoChan(digest, func() (any, error) {
		fctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
		defer cancel()
		return nil, c.fetch(fctx, tenant, digest, size)
	})
	select {
	case r := <-ch:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fetch downloads a blob, and keeps it only if it has the digest that it is named by.
func (c *blobCache) fetch(ctx context.Context, tenant, digest string, size int64) error {
	n, err := c.dir.Fetch(ctx, fetcher, c.control, digest, size)
	if err != nil {
		return fmt.Errorf("blob %s: fetch from control: %w", digest, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addLocked(tenant, digest, n, true)
	return nil
}
