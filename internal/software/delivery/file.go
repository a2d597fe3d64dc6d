package delivery

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"sync"
	"time"
)

// file is one in the cache, whole or still coming.
type file struct {
	path string
	// The cache's:
	users    int
	used     time.Time
	reserved int64         // bytes on the disk that are kept for it
	of       *http.Request // for which it is fetched, until its size is known

	mu      sync.Mutex
	out     *os.File
	size    int64 // -1 and 0: not known yet
	have    int64
	done    bool
	err     error
	changed chan struct{} // closed and replaced with each change
}

func (f *file) changeLocked() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *file) begin(out *os.File, size int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out, f.size = out, size
	f.changeLocked()
}

// Write implements io.Writer.
func (f *file) Write(b []byte) (int, error) {
	n, err := f.out.Write(b)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.have += int64(n)
	f.changeLocked()
	return n, err
}

func (f *file) finish(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done, f.err = true, err
	f.changeLocked()
}

func (f *file) state() (have int64, done bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.have, f.done, f.err
}

// remove gives the space back, once nobody reads any more: the runtime closes the file
// with the last reader.
func (f *file) remove() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.out != nil {
		_ = os.Remove(f.out.Name())
	}
}

// close ends all readers, so that the space is given back at once.
func (f *file) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.out != nil {
		_ = f.out.Close()
	}
}

// wait until enough says so of the file, which holds its lock then.
func (f *file) wait(ctx context.Context, enough func() bool) error {
	for {
		f.mu.Lock()
		ok, done, err, changed := enough(), f.done, f.err, f.changed
		f.mu.Unlock()
		switch {
		case ok:
			return nil
		case done && err != nil:
			return err
		case done:
			return io.ErrUnexpectedEOF
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (f *file) sized(ctx context.Context) (int64, error) {
	err := f.wait(ctx, func() bool { return f.out != nil })
	return f.size, err
}

// reader reads a file that may still be coming, and waits for what is not there yet.
type reader struct {
	ctx  context.Context
	f    *file
	size int64
	at   int64
}

// Seek implements io.Seeker.
func (r *reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 {
		return 0, fs.ErrInvalid
	}
	r.at = offset
	return offset, nil
}

// Read implements io.Reader.
func (r *reader) Read(b []byte) (int, error) {
	if r.at >= r.size {
		return 0, io.EOF
	}
	have := int64(0)
	if err := r.f.wait(r.ctx, func() bool { have = r.f.have; return have > r.at }); err != nil {
		return 0, err
	}
	n, err := r.f.out.ReadAt(b[:min(int64(len(b)), have-r.at)], r.at)
	r.at += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}
