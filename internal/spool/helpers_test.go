package spool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func open(t testing.TB, o Options) *Spool {
	t.Helper()
	if o.SyncInterval == 0 {
		o.SyncInterval = time.Hour // no background work unless a test wants it
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func mustAppend(t testing.TB, s *Spool, recs ...string) {
	t.Helper()
	for _, r := range recs {
		if _, err := s.Append([]byte(r)); err != nil {
			t.Fatal(err)
		}
	}
}

// drain hands out everything that is queued now, without acknowledging it.
func drain(t testing.TB, s *Spool) []Record {
	t.Helper()
	var out []Record
	for {
		s.reader <- struct{}{}
		r, ok, err := s.tryNext()
		<-s.reader
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return out
		}
		out = append(out, r)
	}
}

func data(recs []Record) string {
	var out []string
	for _, r := range recs {
		out = append(out, string(r.Data))
	}
	return strings.Join(out, " ")
}

func want(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func segFiles(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+segSuffix))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// crash forgets the spool as the death of the process would: nothing is flushed.
func crash(s *Spool) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	close(s.stop)
	<-s.done
	_ = s.unlock()
}

// fakeClock is the time that a test says.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *fakeClock { return &fakeClock{now: time.Unix(1_700_000_000, 0)} }

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// faultFS fails the operations that a test names: "open", "write", "sync",
// "truncate", "rename", "remove", "read". Of a failing write, short bytes still
// reach the file.
type faultFS struct {
	osFS
	mu    sync.Mutex
	fail  map[string]error
	short int
}

func newFaultFS() *faultFS { return &faultFS{fail: map[string]error{}} }

func (f *faultFS) set(op string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail[op] = err
}

func (f *faultFS) check(op string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fail[op]
}

func (f *faultFS) OpenFile(path string, flag int) (File, error) {
	if err := f.check("open"); err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	file, err := f.osFS.OpenFile(path, flag)
	if err != nil {
		return nil, err
	}
	return faultFile{file, f}, nil
}

func (f *faultFS) Rename(from, to string) error {
	return errors.Join(f.check("rename"), f.osFS.Rename(from, to))
}

func (f *faultFS) Remove(path string) error {
	if err := f.check("remove"); err != nil {
		return err
	}
	return f.osFS.Remove(path)
}

type faultFile struct {
	File
	fs *faultFS
}

func (f faultFile) Write(b []byte) (int, error) {
	if err := f.fs.check("write"); err != nil {
		n, _ := f.File.Write(b[:min(f.fs.short, len(b))])
		return n, err
	}
	return f.File.Write(b)
}

func (f faultFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.fs.check("read"); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, off)
}

func (f faultFile) Sync() error {
	return errors.Join(f.fs.check("sync"), f.File.Sync())
}

func (f faultFile) Truncate(n int64) error {
	if err := f.fs.check("truncate"); err != nil {
		return err
	}
	return f.File.Truncate(n)
}

func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return c
}
