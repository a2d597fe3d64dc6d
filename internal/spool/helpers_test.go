package spool

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// always syncs before an append returns.
const always = -1

func open(t testing.TB, o Options) *Spool {
	t.Helper()
	switch o.SyncInterval {
	case 0:
		o.SyncInterval = time.Hour // no background work unless a test wants it
	case always:
		o.SyncInterval = 0
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

// drainErrors is drain over errors of the disk.
func drainErrors(s *Spool) []Record {
	var out []Record
	for {
		s.reader <- struct{}{}
		r, ok, err := s.tryNext()
		<-s.reader
		switch {
		case ok:
			out = append(out, r)
		case err == nil:
			return out
		}
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
	<-s.stopped
	_ = s.lock.Close()
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

func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return c
}

// testLog returns a logger and what it has written.
func testLog() (*slog.Logger, func() string) {
	var mu sync.Mutex
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return b.Write(p)
		}), nil)), func() string {
			mu.Lock()
			defer mu.Unlock()
			return b.String()
		}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
