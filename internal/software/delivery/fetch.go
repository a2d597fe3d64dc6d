// Package delivery brings files of software to sites: a download that goes on where it was
// broken off, no faster than asked (Fetcher), over a cache at the regional that asks the
// centre once for what a thousand sites want (Cache).
//
// Files are named by their SHA-256, which the caller has from package bundle; nothing here
// is trusted, and what has another digest is thrown away. It decides neither what a site
// gets nor when.
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
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/software/delta"
)

// Paths under the base URL.
const (
	BlobPath     = "/blobs/sha256/"
	DeltaPath    = "/deltas/" // OLD/NEW, both digests
	MetadataPath = "/metadata/"
)

// every so many bytes a download is synced, and what it has noted: no more is fetched
// twice after a power cut.
const every = 8 << 20

// ErrNotThere is that the server has no such file; asking again does not help.
var ErrNotThere = fmt.Errorf("the server has no such file: %w", fs.ErrNotExist)

// Fetcher downloads. Safe for concurrent use, by one caller a file.
type Fetcher struct {
	// URL of the regional, or of what else serves Paths; without a slash at its end.
	URL    string
	Client *http.Client
	// Limit in bytes per second; nil: none. It is shared by all downloads of the Fetcher.
	Limit *rate.Limiter
	FS    disk.FS // nil: the operating system's
	// Progress is told bytes that are there and bytes of all, with each 32 KiB.
	Progress func(have, of int64)
	// Idle is after how long without a byte a request ends with ErrIdle; 0: a minute.
	Idle time.Duration
}

// ErrIdle is of a server that holds a connection and sends nothing. What has come is kept.
var ErrIdle = errors.New("nothing came for too long")

const defaultIdle = time.Minute

// NewLimit is a limit of so many bytes per second; 0: none.
func NewLimit(bytesPerSecond int) *rate.Limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(bytesPerSecond), max(bytesPerSecond/4, 32<<10))
}

func (f *Fetcher) fs() disk.FS {
	if f.FS == nil {
		return disk.OS{}
	}
	return f.FS
}

// Metadata implements bundle.Source.
func (f *Fetcher) Metadata(ctx context.Context, name string, most int64) ([]byte, error) {
	resp, err := f.get(ctx, MetadataPath+name, 0)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s: more than %d bytes", name, most)
	}
	return b, err
}

// File downloads the file with a digest to path. It goes on with what an earlier call
// left in path+".part", also one before a power cut. The caller calls again after an
// error that is not ErrNotThere; the file is at path, verified, once nil was returned.
func (f *Fetcher) File(ctx context.Context, digest string, size int64, path string) error {
	if err := f.file(ctx, digest, size, path); err != nil {
		return fmt.Errorf("fetch software %.12s…: %w", digest, err)
	}
	return nil
}

func (f *Fetcher) file(ctx context.Context, digest string, size int64, path string) error {
	if err := disk.MkdirAll(f.fs(), filepath.Dir(path), 0o700); err != nil {
		return err
	}
	part, note := path+".part", path+".part.synced"
	sum := sha256.New()
	have, err := resume(part, min(noted(note), size), sum)
	if err != nil {
		return err
	}
	var body io.ReadCloser
	if have < size {
		resp, err := f.get(ctx, BlobPath+digest, have)
		if err != nil {
			return err
		}
		body = resp.Body
		defer body.Close()
		if resp.StatusCode == http.StatusOK && have > 0 { // it knows no ranges
			have = 0
			sum.Reset()
		}
	}
	// Only now: a server that refuses leaves nothing that looks like a beginning.
	out, err := f.fs().OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	// What lies beyond the note may be anything after a power cut.
	if err := out.Truncate(have); err != nil {
		return err
	}
	if body != nil {
		if err := f.copy(ctx, io.MultiWriter(out, sum), body, have, size, func(n int64) error {
			if err := out.Sync(); err != nil {
				return err
			}
			return atomicfile.WriteTo(f.fs(), note, []byte(strconv.FormatInt(n, 10)), 0o600)
		}); err != nil {
			return err
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != digest {
		return errors.Join(fmt.Errorf("what came has the digest %.12s…; it is thrown away", got), f.remove(part, note))
	}
	if err := out.Sync(); err != nil {
		return err
	}
	if err := f.fs().Rename(part, path); err != nil {
		return err
	}
	_ = f.fs().Remove(note)
	return f.fs().SyncDir(filepath.Dir(path))
}

func (f *Fetcher) remove(names ...string) error {
	var errs []error
	for _, n := range names {
		if err := f.fs().Remove(n); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Begun tells whether a file that goes to path was begun, and File would go on with it.
func (f *Fetcher) Begun(path string) bool { return noted(path+".part.synced") > 0 }

// resume reads the beginning of what is there of a file into sum, and returns how much it is:
// have, or nothing.
func resume(part string, have int64, sum io.Writer) (int64, error) {
	in, err := os.Open(part)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	defer in.Close()
	if fi, err := in.Stat(); err != nil || fi.Size() < have {
		return 0, err
	}
	_, err = io.CopyN(sum, in, have)
	return have, err
}

// noted is up to where a download was synced.
func noted(name string) int64 {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// copy takes what is missing of size, with the limit, and syncs now and then; on an error
// of the network as well, so that the next attempt has what came.
func (f *Fetcher) copy(ctx context.Context, out io.Writer, in io.Reader, have, size int64, sync func(int64) error) error {
	buf, synced := make([]byte, 32<<10), have
	for have < size {
		n, err := in.Read(buf[:min(int64(len(buf)), size-have)])
		if n > 0 {
			if _, err := out.Write(buf[:n]); err != nil {
				return err
			}
			have += int64(n)
			if f.Progress != nil {
				f.Progress(have, size)
			}
			if f.Limit != nil {
				if err := f.Limit.WaitN(ctx, n); err != nil {
					return errors.Join(err, sync(have))
				}
			}
		}
		if have == size {
			return nil
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return errors.Join(fmt.Errorf("after %d of %d bytes: %w", have, size, err), sync(have))
		}
		if have-synced >= every {
			if err := sync(have); err != nil {
				return err
			}
			synced = have
		}
	}
	return nil
}

// Delta makes the file of the digest out of an old one and what the server has as their
// difference. ErrNotThere: it has none; then File does, and after any other error that File
// would not meet as well (Refused). The
// delta itself is fetched as a whole each time: it is small, or not worth it.
func (f *Fetcher) Delta(ctx context.Context, oldDigest string, old io.ReaderAt, oldSize int64, digest string, size int64, path string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("fetch software %.12s… as a delta: %w", digest, err)
		}
	}()
	resp, err := f.get(ctx, DeltaPath+oldDigest+"/"+digest, 0)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := disk.MkdirAll(f.fs(), filepath.Dir(path), 0o700); err != nil {
		return err
	}
	part := path + ".delta"
	out, err := f.fs().OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		_ = out.Close()
		if err != nil {
			err = errors.Join(err, f.remove(part))
		}
	}()
	sum := sha256.New()
	if err := delta.Apply(io.MultiWriter(out, sum), old, oldSize, limited{ctx, resp.Body, f.Limit}, size); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != digest {
		return fmt.Errorf("what came out has the digest %.12s…; it is thrown away", got)
	}
	if err := out.Sync(); err != nil {
		return err
	}
	if err := f.fs().Rename(part, path); err != nil {
		return err
	}
	return f.fs().SyncDir(filepath.Dir(path))
}

// limited is a reader with a limit.
type limited struct {
	ctx   context.Context
	r     io.Reader
	limit *rate.Limiter
}

// Read implements io.Reader.
func (l limited) Read(b []byte) (int, error) {
	n, err := l.r.Read(b[:min(len(b), 32<<10)])
	if l.limit != nil && n > 0 {
		if werr := l.limit.WaitN(l.ctx, n); err == nil {
			err = werr
		}
	}
	return n, err
}

// waking is a body that is not waited for for ever.
type waking struct {
	io.ReadCloser
	ctx   context.Context
	wake  *time.Timer // runs while something is waited for
	after time.Duration
	end   context.CancelCauseFunc
}

// Read implements io.Reader. The time in which nobody reads does not count: a limit may take
// any.
func (w *waking) Read(b []byte) (int, error) {
	w.wake.Reset(w.after)
	n, err := w.ReadCloser.Read(b)
	w.wake.Stop()
	if err != nil && errors.Is(context.Cause(w.ctx), ErrIdle) {
		err = ErrIdle
	}
	return n, err
}

// Close implements io.Closer.
func (w *waking) Close() error {
	w.wake.Stop()
	w.end(context.Canceled)
	return w.ReadCloser.Close()
}

// get asks for a path, or what follows of it. Neither the answer nor any part of it is waited
// for for longer than Idle.
func (f *Fetcher) get(ctx context.Context, path string, from int64) (*http.Response, error) {
	ctx, end := context.WithCancelCause(ctx)
	after := cmp.Or(f.Idle, defaultIdle)
	wake := time.AfterFunc(after, func() { end(ErrIdle) })
	resp, err := f.ask(ctx, path, from)
	wake.Stop()
	if err != nil {
		if errors.Is(context.Cause(ctx), ErrIdle) {
			err = ErrIdle
		}
		end(context.Canceled)
		return nil, err
	}
	resp.Body = &waking{ReadCloser: resp.Body, ctx: ctx, wake: wake, after: after, end: end}
	return resp, nil
}

func (f *Fetcher) ask(ctx context.Context, path string, from int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.URL+path, nil)
	if err != nil {
		return nil, err
	}
	if from > 0 {
		req.Header.Set("Range", "bytes="+strconv.FormatInt(from, 10)+"-")
	}
	resp, err := f.Client.Do(req)
	if err != nil {
		return nil, err
	}
	switch {
	case resp.StatusCode == http.StatusOK:
		return resp, nil
	case resp.StatusCode == http.StatusPartialContent && strings.HasPrefix(resp.Header.Get("Content-Range"), "bytes "+strconv.FormatInt(from, 10)+"-"):
		return resp, nil
	}
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return nil, ErrNotThere
	}
	return nil, &StatusError{Code: resp.StatusCode, RetryAfter: retryAfter(resp.Header.Get("Retry-After"))}
}

// StatusError is an answer that was none. Asking again may help, after RetryAfter.
type StatusError struct {
	Code       int
	RetryAfter time.Duration
}

// Error names the answer.
func (e *StatusError) Error() string {
	return fmt.Sprintf("the server answers %d %s", e.Code, http.StatusText(e.Code))
}

// Refused tells whether an error of Delta is one that File would meet as well: an answer that
// says later, or no line. To fetch the whole file for it would only cost more.
func Refused(err error) bool {
	var status *StatusError
	var line *url.Error
	return errors.As(err, &status) || errors.As(err, &line) || errors.Is(err, ErrIdle) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func retryAfter(s string) time.Duration {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(min(n, 3600)) * time.Second
}
