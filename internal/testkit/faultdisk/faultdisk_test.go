package faultdisk

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"muster.dev/muster/internal/testkit"
)

func put(t *testing.T, d *Disk, path, text string, sync bool) {
	t.Helper()
	f, err := d.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if sync {
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPowerCutForgetsWhatWasNotSynced(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "old"), []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := New(t, root)
	in := func(name string) string { return filepath.Join(root, name) }
	steps := []struct {
		do   func() error
		want string
	}{
		{func() error { put(t, d, in("a"), "x", true); return nil }, "old=1"}, // the name is not synced
		{func() error { put(t, d, in("a"), "x", true); return d.SyncDir(root) }, "a=x old=1"},
		{func() error { put(t, d, in("a"), "yy", false); return nil }, "a=x old=1"},
		{func() error { return d.Rename(in("a"), in("b")) }, "a=x old=1"},
		{func() error { return errors.Join(d.Rename(in("a"), in("b")), d.SyncDir(root)) }, "b=x old=1"},
		{func() error { return d.Remove(in("old")) }, "b=x old=1"},
		{func() error { return errors.Join(d.Remove(in("old")), d.SyncDir(root)) }, "b=x"},
		{func() error { put(t, d, in("c"), "new", true); return d.Rename(in("c"), in("b")) }, "b=x"},
		{func() error { return d.Mkdir(in("dir"), 0o700) }, "b=x"},
		{func() error {
			err := d.Mkdir(in("dir"), 0o700)
			put(t, d, in("dir/e"), "z", true)
			return errors.Join(err, d.SyncDir(in("dir"))) // but not root
		}, "b=x"},
	}
	for i, s := range steps {
		if err := s.do(); err != nil {
			t.Fatal(i, err)
		}
		d.Crash(0)
		if got := testkit.Files(t, root); got != s.want {
			t.Errorf("step %d: %q, want %q", i, got, s.want)
		}
	}
}

func TestFailedSyncLosesForEver(t *testing.T) {
	root := t.TempDir()
	d := New(t, root)
	f, err := d.OpenFile(filepath.Join(root, "a"), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.Write([]byte("ab"))
	if err := errors.Join(f.Sync(), d.SyncDir(root)); err != nil {
		t.Fatal(err)
	}
	_, _ = f.Write([]byte("cd"))
	d.Fail("sync", syscall.EIO)
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("err = %v", err)
	}
	d.Fail("sync", nil)
	_, _ = f.Write([]byte("ef"))
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	d.Crash(0)
	if got := testkit.Files(t, root); got != "a=ab\x00\x00ef" {
		t.Errorf("left: %q", got)
	}
	if _, err := f.Write(nil); !errors.Is(err, ErrPowerOff) {
		t.Errorf("a file of before the cut: %v", err)
	}
}

func TestCapacityAndPowerOff(t *testing.T) {
	root := t.TempDir()
	d := New(t, root)
	d.SetCapacity(4)
	f, err := d.OpenFile(filepath.Join(root, "a"), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.Write([]byte("abcdef")); n != 4 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("wrote %d, err %v", n, err)
	}
	if free, total, err := d.Space(root); free != 0 || total != 4 || err != nil {
		t.Errorf("free %d of %d, err %v", free, total, err)
	}
	if _, err := d.OpenFile(filepath.Join(root, "b"), os.O_WRONLY|os.O_CREATE, 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("made a file on a full disk: %v", err)
	}
	d.PowerOffAfter(1)
	if err := f.Truncate(1); err != nil {
		t.Error(err)
	}
	if err := f.Truncate(0); !errors.Is(err, ErrPowerOff) {
		t.Errorf("err = %v", err)
	}
}
