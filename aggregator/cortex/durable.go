package cortex

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/cortexproject/cortex/pkg/util/users"
	"github.com/thanos-io/objstore"
	"github.com/weaveworks/common/user"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
)

// walSync has what a push wrote on stable storage before the push is answered. Cortex'
// ingester leaves its write-ahead logs in the page cache until a segment is full, and has
// no option for it; so their files are synced here, from outside, where the answers pass.
//
// Pushes of a tenant that come together share a sync. A sync that fails is final: the
// kernel may have dropped what it could not write, and the next one would succeed
// without it. Nothing is acknowledged any more, and the process has to end; see close.
type walSync struct {
	dir      string               // of the ingester's TSDBs, a folder a tenant
	syncFile func(*os.File) error // (*os.File).Sync, but in tests
	failed   chan error           // gets the first error

	mu      sync.Mutex
	err     error // the first
	tenants map[string]*tenantWAL
}

// The logs of a tenant's TSDB: of samples in order and of late ones.
var logNames = []string{"wal", "wbl"}

// tenantWAL is synced by one at a time; the others wait for the round that begins next.
type tenantWAL struct {
	mu      sync.Mutex
	ended   *sync.Cond
	syncing bool
	next    *round
	logs    map[string]*segments // by name; of whoever syncs
}

type round struct {
	done bool
	err  error
}

// segments of a log, as far as they are known.
type segments struct {
	last int      // all before it are synced, and no longer written to
	open *os.File // the last one: held, so that no error of its pages is missed
}

const pushPath = "/api/v1/push"

func newWALSync(dir string) *walSync {
	return &walSync{dir: dir, syncFile: (*os.File).Sync, failed: make(chan error, 1), tenants: map[string]*tenantWAL{}}
}

// beforeAnswer holds back the answer to a push until what it wrote is synced. Also a
// refusal may have written: of a push of which a part is bad the rest is taken.
func (w *walSync) beforeAnswer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != pushPath {
			next.ServeHTTP(rw, r)
			return
		}
		a := &answer{header: rw.Header(), status: http.StatusOK}
		next.ServeHTTP(a, r)
		if again := a.status >= 500 || a.status == http.StatusTooManyRequests; !again {
			if err := w.sync(r.Header.Get(user.OrgIDHeaderName)); err != nil {
				http.Error(rw, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		rw.WriteHeader(a.status)
		_, _ = rw.Write(a.body.Bytes())
	})
}

// answer is one that is held back.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

// sync returns nil when all that is in the tenant's logs is on stable storage.
func (w *walSync) sync(tenant string) error {
	t, err := w.tenant(tenant)
	if t == nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.next
	for !r.done && t.syncing {
		t.ended.Wait()
	}
	if r.done {
		return r.err
	}
	t.next, t.syncing = &round{}, true
	t.mu.Unlock()
	if err = w.broken(); err == nil {
		err = w.syncLogs(filepath.Join(w.dir, tenant), t.logs)
	}
	if err != nil {
		err = w.fail(fmt.Errorf("sync the write-ahead log of tenant %s: %w", tenant, err))
	}
	t.mu.Lock()
	t.syncing, r.done, r.err = false, true, err
	t.ended.Broadcast()
	return err
}

// tenant returns nil for one that has no logs.
func (w *walSync) tenant(name string) (*tenantWAL, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return nil, w.err
	}
	t := w.tenants[name]
	if t == nil {
		if users.ValidTenantID(name) != nil {
			return nil, nil
		}
		if _, err := os.Stat(filepath.Join(w.dir, name)); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		t = &tenantWAL{next: &round{}, logs: map[string]*segments{}}
		t.ended = sync.NewCond(&t.mu)
		w.tenants[name] = t
	}
	return t, nil
}

func (w *walSync) broken() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *walSync) fail(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
		w.failed <- err
	}
	return w.err
}

func (w *walSync) syncLogs(dir string, logs map[string]*segments) error {
	names := false // something new stands in dir
	for _, name := range logNames {
		l := logs[name]
		if l == nil {
			l = &segments{}
		}
		found, err := w.syncLog(filepath.Join(dir, name), l)
		if err != nil {
			return err
		}
		if logs[name] == nil && found {
			logs[name], names = l, true
		}
	}
	if !names {
		return nil
	}
	return errors.Join(disk.OS{}.SyncDir(dir), disk.OS{}.SyncDir(w.dir))
}

// syncLog tells whether the log is there.
func (w *walSync) syncLog(dir string, l *segments) (found bool, err error) {
	entries, err := os.ReadDir(dir) // in the order of their names, and so of their numbers
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if l.open != nil && !sameFile(l.open, filepath.Join(dir, filepath.Base(l.open.Name()))) {
		// Truncated up to here, or the tenant was removed and is back: whatever there is
		// is taken for new.
		_ = l.open.Close()
		*l = segments{}
	}
	names := l.open == nil
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil || n < l.last { // a checkpoint, which is synced when it is made; or done with
			continue
		}
		if l.open == nil || n > l.last {
			f, err := os.Open(filepath.Join(dir, e.Name()))
			if errors.Is(err, fs.ErrNotExist) { // truncated: it is in a block or a checkpoint
				continue
			} else if err != nil {
				return false, err
			}
			// The one before is synced by now, and since there is a next one it's complete.
			if l.open != nil {
				if err := w.syncFile(l.open); err != nil {
					return false, errors.Join(err, f.Close())
				}
				_ = l.open.Close()
			}
			l.open, l.last, names = f, n, true
		}
	}
	if l.open == nil {
		return true, nil
	}
	if err := w.syncFile(l.open); err != nil {
		return false, err
	}
	if names {
		return true, disk.OS{}.SyncDir(dir)
	}
	return true, nil
}

func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// close is called when Cortex has stopped. After a sync that failed it writes the last
// segments anew, from what the page cache still has of them: the next process takes what
// it reads there for kept, and wouldn't log it again when it is sent again.
func (w *walSync) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, t := range w.tenants {
		for _, l := range t.logs {
			if l.open == nil {
				continue
			}
			if w.err != nil {
				b, err := os.ReadFile(l.open.Name())
				if err == nil {
					err = atomicfile.Write(l.open.Name(), b, 0o640)
				}
				errs = append(errs, err)
			}
			errs = append(errs, l.open.Close())
			l.open = nil
		}
	}
	return errors.Join(errs...)
}

// syncedBucket has an object on stable storage when Upload returns: the ingester notes
// then that it needs to upload it never again, and the compactor that it may remove what
// it was made of. The file system's own does not sync.
type syncedBucket struct {
	objstore.InstrumentedBucket
	root string
}

func syncUploads(root string) func(objstore.InstrumentedBucket) (objstore.InstrumentedBucket, error) {
	return func(b objstore.InstrumentedBucket) (objstore.InstrumentedBucket, error) {
		return syncedBucket{b, root}, nil
	}
}

// Upload implements objstore.Bucket.
func (b syncedBucket) Upload(ctx context.Context, name string, r io.Reader, opts ...objstore.ObjectUploadOption) error {
	return syncedUpload(ctx, b.InstrumentedBucket, b.root, name, r, opts)
}

// WithExpectedErrs implements objstore.InstrumentedBucket.
func (b syncedBucket) WithExpectedErrs(expected objstore.IsOpFailureExpectedFunc) objstore.Bucket {
	return syncedPlainBucket{b.InstrumentedBucket.WithExpectedErrs(expected), b.root}
}

type syncedPlainBucket struct {
	objstore.Bucket
	root string
}

// Upload implements objstore.Bucket.
func (b syncedPlainBucket) Upload(ctx context.Context, name string, r io.Reader, opts ...objstore.ObjectUploadOption) error {
	return syncedUpload(ctx, b.Bucket, b.root, name, r, opts)
}

func syncedUpload(ctx context.Context, to objstore.Bucket, root, name string, r io.Reader, opts []objstore.ObjectUploadOption) error {
	if err := to.Upload(ctx, name, r, opts...); err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(root, name))
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	for dir := filepath.Dir(name); ; dir = filepath.Dir(dir) {
		if err := (disk.OS{}).SyncDir(filepath.Join(root, dir)); err != nil {
			return err
		}
		if dir == "." {
			return nil
		}
	}
}
