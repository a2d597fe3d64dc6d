// Package holdings is what a machine holds by control's word: a set of items, each named
// by the digest of its content. It checks a set, fetches what is missing, going on where
// a broken download ended, verifies it, and keeps it on disk, so that nothing counts
// that is not whole and synced, and nothing is read that is not what its name says.
//
// A site's agent, a regional for itself and a regional's cache for its sites use it. What
// is done with the content, and what was last good, is theirs to say.
package holdings

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/wire"
)

var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// IsDigest tells whether s is a SHA-256 in hex, and so fit for a file name.
func IsDigest(s string) bool { return digestForm.MatchString(s) }

// Key is KIND/NAME, unique in a set.
func Key(it *wire.Item) string { return it.GetKind() + "/" + it.GetName() }

// maxNames bounds kind and name of an item together.
const maxNames = 500

// Limits of a set: how many items, and how large one may be.
type Limits struct {
	Items int // 0: any number
	Bytes int64
}

// Check refuses a set that could not be kept: its digests become file names.
func Check(set *wire.DesiredState, l Limits) error {
	if n := len(set.GetItems()); l.Items > 0 && n > l.Items {
		return fmt.Errorf("%d items, want at most %d", n, l.Items)
	}
	seen := map[string]bool{}
	for i, it := range set.GetItems() {
		switch {
		case it.GetKind() == "" || it.GetName() == "" || len(it.Kind)+len(it.Name) > maxNames || strings.ContainsRune(it.Kind, '/'):
			return fmt.Errorf("item %d has no usable kind and name", i)
		case !IsDigest(it.Digest):
			return fmt.Errorf("item %s: digest %.80q is no SHA-256 in hex", Key(it), it.Digest)
		case it.Size < 0 || it.Size > l.Bytes:
			return fmt.Errorf("item %s: %d bytes, want at most %d", Key(it), it.Size, l.Bytes)
		case seen[Key(it)]:
			return fmt.Errorf("item %s is there twice", Key(it))
		}
		seen[Key(it)] = true
	}
	if rev := wire.RevisionOf(set.GetItems()); rev != set.GetRevision() {
		return fmt.Errorf("revision %.80q does not name its items", set.GetRevision())
	}
	return nil
}

// Source is whom blobs are fetched from; the clients of both gRPC services are one.
type Source interface {
	FetchBlob(ctx context.Context, in *wire.FetchBlobRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[wire.BlobChunk], error)
}

// Fetcher fetches blobs. The zero value tries once and waits for a minute.
type Fetcher struct {
	// Attempts without a byte of progress, after which it gives up; 0: 1.
	Attempts int
	// Silence is how long no byte may come: slow is fine on a thin uplink, silence is
	// not. 0: 1 min.
	Silence time.Duration
}

// ErrContent says that what came is not what was asked for: to try again with what is
// there is of no use.
var ErrContent = errors.New("not the content that was asked for")

// download is a blob on its way.
type download struct {
	w   io.Writer
	sum hash.Hash
	n   int64
	max int64
}

// To writes a blob of at most max bytes to w; the error says so if it is not the one.
func (f Fetcher) To(ctx context.Context, from Source, digest string, max int64, w io.Writer) (int64, error) {
	d := &download{w: w, sum: sha256.New(), max: max}
	err := f.run(ctx, from, digest, d)
	return d.n, err
}

func (f Fetcher) run(ctx context.Context, from Source, digest string, d *download) error {
	for attempt := 1; ; attempt++ {
		before := d.n
		err := f.attempt(ctx, from, digest, d)
		if err == nil {
			break
		}
		if d.n > before {
			attempt = 1 // it gets on
		}
		if attempt >= max(f.Attempts, 1) || ctx.Err() != nil || errors.Is(err, ErrContent) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(attempt) * 200 * time.Millisecond):
		}
	}
	if got := hex.EncodeToString(d.sum.Sum(nil)); got != digest {
		return fmt.Errorf("%w: %d bytes with the digest %.12s", ErrContent, d.n, got)
	}
	return nil
}

func (f Fetcher) attempt(ctx context.Context, from Source, digest string, d *download) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := f.Silence
	if silence <= 0 {
		silence = time.Minute
	}
	silent := time.AfterFunc(silence, cancel)
	defer silent.Stop()
	st, err := from.FetchBlob(ctx, &wire.FetchBlobRequest{Digest: digest, Offset: d.n})
	if err != nil {
		return fetchError(err)
	}
	for {
		chunk, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fetchError(err)
		}
		silent.Reset(silence)
		if d.n+int64(len(chunk.GetData())) > d.max {
			return fmt.Errorf("%w: more than the %d bytes that the desired state names", ErrContent, d.max)
		}
		if _, err := d.w.Write(chunk.GetData()); err != nil {
			return err
		}
		_, _ = d.sum.Write(chunk.GetData())
		d.n += int64(len(chunk.GetData()))
	}
}

func fetchError(err error) error {
	if status.Code(err) == codes.OutOfRange { // there is more of it here than the blob has
		return fmt.Errorf("%w: %w", ErrContent, err)
	}
	return err
}

// partSuffix is of a download that is not whole.
const partSuffix = ".part"

// Dir is a directory of blobs, each in a file of its digest's name. Methods may be
// called at the same time for different digests.
type Dir struct {
	fs    disk.FS
	path  string
	perm  fs.FileMode // of files
	shard bool
}

// Open makes the directory. Sharded ones have a folder for each first two digits.
func Open(path string, perm fs.FileMode, sharded bool) (*Dir, error) {
	return OpenOn(disk.OS{}, path, perm, sharded)
}

// OpenOn is Open on another file system.
func OpenOn(fsys disk.FS, path string, perm fs.FileMode, sharded bool) (*Dir, error) {
	d := &Dir{fs: fsys, path: path, perm: perm, shard: sharded}
	if err := disk.MkdirAll(fsys, path, d.dirPerm()); err != nil {
		return nil, err
	}
	return d, nil
}

// dirPerm adds the right to enter for whoever may read.
func (d *Dir) dirPerm() fs.FileMode { return d.perm | d.perm>>2&0o111 }

// File is where a blob is, if it is there.
func (d *Dir) File(digest string) string {
	if d.shard {
		return filepath.Join(d.path, digest[:2], digest)
	}
	return filepath.Join(d.path, digest)
}

// Has tells whether a blob of the size is there; Read tells whether it is good.
func (d *Dir) Has(digest string, size int64) bool {
	info, err := os.Stat(d.File(digest))
	return err == nil && info.Size() == size
}

// ErrDamaged says that a file was not what its name says; it is removed.
var ErrDamaged = errors.New("damaged on disk")

// Read returns a blob that is what its name says.
func (d *Dir) Read(digest string) ([]byte, error) {
	if !IsDigest(digest) {
		return nil, fmt.Errorf("blob %.80q: no SHA-256 in hex", digest)
	}
	b, err := os.ReadFile(d.File(digest))
	if err == nil && wire.DigestOf(b) != digest {
		_ = d.fs.Remove(d.File(digest))
		err = ErrDamaged
	}
	if err != nil {
		return nil, fmt.Errorf("blob %.12s: %w", digest, err)
	}
	return b, nil
}

// Verify is Read for who streams a blob that may be large.
func (d *Dir) Verify(digest string) error {
	f, err := os.Open(d.File(digest))
	if err != nil {
		return fmt.Errorf("blob %.12s: %w", digest, err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("blob %.12s: %w", digest, err)
	}
	if hex.EncodeToString(sum.Sum(nil)) != digest {
		_ = d.fs.Remove(d.File(digest))
		return fmt.Errorf("blob %.12s: %w", digest, ErrDamaged)
	}
	return nil
}

// Write has the blob whole and synced when it returns nil.
func (d *Dir) Write(digest string, b []byte) error {
	if wire.DigestOf(b) != digest {
		return fmt.Errorf("blob %.12s: %w", digest, ErrContent)
	}
	if err := disk.MkdirAll(d.fs, filepath.Dir(d.File(digest)), d.dirPerm()); err != nil {
		return err
	}
	return atomicfile.WriteTo(d.fs, d.File(digest), b, d.perm)
}

// Fetch has a blob of at most size bytes whole and synced when it returns nil. What came
// of one that broke off stays beside it, also over a restart, and the next call goes on
// from there.
func (d *Dir) Fetch(ctx context.Context, f Fetcher, from Source, digest string, size int64) (n int64, err error) {
	if !IsDigest(digest) {
		return 0, fmt.Errorf("blob %.80q: no SHA-256 in hex", digest)
	}
	name := d.File(digest)
	if err := disk.MkdirAll(d.fs, filepath.Dir(name), d.dirPerm()); err != nil {
		return 0, err
	}
	part, err := d.fs.OpenFile(name+partSuffix, os.O_CREATE|os.O_RDWR|os.O_APPEND, d.perm)
	if err != nil {
		return 0, err
	}
	defer func() {
		if cerr := part.Close(); err == nil {
			err = cerr
		}
		if errors.Is(err, ErrContent) {
			_ = d.fs.Remove(name + partSuffix)
		}
	}()
	dl := &download{w: part, sum: sha256.New(), max: size}
	if dl.n, err = io.Copy(dl.sum, io.NewSectionReader(part, 0, math.MaxInt64)); err != nil {
		return 0, err
	}
	if dl.n > size { // not a part of this one
		if err := part.Truncate(0); err != nil {
			return 0, err
		}
		dl.n, dl.sum = 0, sha256.New()
	}
	if whole := dl.n == size && size > 0 && hex.EncodeToString(dl.sum.Sum(nil)) == digest; !whole {
		if err := f.run(ctx, from, digest, dl); err != nil {
			return 0, err
		}
	}
	if err := part.Sync(); err != nil {
		return 0, err
	}
	if err := d.fs.Rename(name+partSuffix, name); err != nil {
		return 0, err
	}
	return dl.n, d.fs.SyncDir(filepath.Dir(name))
}

// Remove removes a blob, if it is there. Whoever reads it goes on reading.
func (d *Dir) Remove(digest string) error {
	if !IsDigest(digest) {
		return fmt.Errorf("blob %.80q: no SHA-256 in hex", digest)
	}
	if err := d.fs.Remove(d.File(digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Each calls fn with each blob that is there, which need not be good, and removes what is
// none: downloads and writes that broke off. So it is for when nobody else uses the directory
// yet.
func (d *Dir) Each(fn func(digest string, info fs.FileInfo)) error {
	return filepath.WalkDir(d.path, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if !IsDigest(e.Name()) {
			return d.fs.Remove(path)
		}
		info, err := e.Info()
		if err == nil {
			fn(e.Name(), info)
		}
		return err
	})
}

// Keep removes every file whose digest is not among these, and what is on its way to
// none of them. It is not for sharded directories.
func (d *Dir) Keep(digests map[string]bool) error {
	files, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range files {
		if digests[strings.TrimSuffix(f.Name(), partSuffix)] {
			continue
		}
		if err := d.fs.Remove(filepath.Join(d.path, f.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
