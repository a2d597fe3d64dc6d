package diskshare

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// room is a disk of 20 GiB, of which one is the mark.
type room struct {
	free int64
	err  error
}

func (r *room) space() (int64, int64, error) { return r.free, 20 << 30, r.err }

func (s *Shares) waits() (out string) {
	for _, t := range []string{"acme", "globex", "umbrella"} {
		if s.Admit(t) != nil {
			out += t[:1]
		}
	}
	return out
}

// The fuller the disk, the more of the large ones wait, and who sends nothing never does.
func TestTheLargestWaitsFirst(t *testing.T) {
	disk := &room{}
	s := New(disk.space, nil)
	s.Count("umbrella", 900_000)
	s.Count("globex", 100_000)
	for _, c := range []struct {
		free  int64
		waits string
	}{
		{10 << 30, ""}, {1 << 30, ""}, {1000 << 20, ""}, {800 << 20, "u"}, {200 << 20, "u"}, {50 << 20, "gu"}, {0, "gu"}, {1 << 30, ""},
	} {
		disk.free = c.free
		s.Look()
		if got := s.waits(); got != c.waits || s.Low() != (c.free < 1<<30) {
			t.Errorf("%d MiB free: %q wait, want %q; low: %t", c.free>>20, got, c.waits, s.Low())
		}
	}
	disk.free, disk.err = 0, errors.New("no such disk")
	s.Look()
	if got := s.waits(); got != "" {
		t.Errorf("a disk that can't be asked: %q wait", got)
	}
}

// Who alone fills a disk waits before it is full, and a share is of what came lately.
func TestSharesAreOfLately(t *testing.T) {
	disk := &room{free: 900 << 20}
	s := New(disk.space, nil)
	s.Count("umbrella", 1_000_000)
	s.Look()
	if got := s.waits(); got != "u" {
		t.Errorf("%q wait, want the one that fills it", got)
	}
	for range 400 { // more than an hour
		s.Look()
		s.Count("globex", 1000)
		s.Count("acme", 1000)
	}
	if got := s.waits(); got != "" {
		t.Errorf("%q wait an hour later", got)
	}
	for range 2000 {
		s.Look()
	}
	if len(s.recent) != 0 {
		t.Errorf("%d tenants are remembered that send nothing", len(s.recent))
	}
}

// keptIn are shares as after a start with a directory, on a disk of the test's.
func keptIn(t *testing.T, dir string, disk *room) *Shares {
	t.Helper()
	s, err := Of(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.space = disk.space
	s.Look()
	return s
}

// Who filled the disk still waits after a restart, and after a crash: nothing is said at its end.
func TestARestartForgetsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, disk := t.TempDir(), &room{free: 500 << 20}
		s := keptIn(t, dir, disk)
		s.Count("umbrella", 900_000)
		s.Count("globex", 100_000)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait() // it has looked once
		if got := keptIn(t, dir, disk).waits(); got != "u" {
			t.Errorf("after a crash at once: %q wait, want the one that fills the disk", got)
		}
		disk.free = 10 << 30
		time.Sleep(Every)
		s.Count("acme", 9_000_000)
		time.Sleep(saveEvery * Every)
		disk.free = 500 << 20
		if got := keptIn(t, dir, disk).waits(); got != "a" {
			t.Errorf("after a crash of a disk that had room: %q wait, want who sent most", got)
		}
		disk.free = 10 << 30
		time.Sleep(Every)
		s.Count("globex", 90_000_000)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		disk.free = 500 << 20
		if got := keptIn(t, dir, disk).waits(); got != "g" {
			t.Errorf("after a stop: %q wait, want who sent most until then", got)
		}
	})
}

// A file that is damaged is told, and stops nobody.
func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), []byte(`{"umbrella":`), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Of(dir, nil)
	if err == nil || s == nil {
		t.Fatalf("%v, %v", s, err)
	}
	s.space = (&room{free: 1 << 20}).space
	s.Look()
	if got := s.waits(); got != "" {
		t.Errorf("%q wait", got)
	}
}
