package powercut

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster.dev/muster/internal/testkit"
)

func put(t *testing.T, path, text string, sync bool) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if sync {
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
}

func syncDir(t *testing.T, path string) {
	t.Helper()
	d, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsNotSyncedIsGone(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	put(t, in("old"), "1", false)
	put(t, in("removed"), "2", false)
	put(t, in("overwritten"), "3", false)
	Run(t, dir, func(dir string) {
		in := func(name string) string { return filepath.Join(dir, name) }
		put(t, in("named"), "x", true)
		syncDir(t, dir)
		put(t, in("named"), "xyz", false)
		put(t, in("overwritten"), "lost", false)
		put(t, in("later"), "its name is not synced", true)
		if err := os.Rename(in("named"), in("renamed")); err != nil {
			t.Error(err)
		}
		if err := os.Remove(in("removed")); err != nil {
			t.Error(err)
		}
		if err := os.Mkdir(in("sub"), 0o700); err != nil {
			t.Error(err)
		}
		put(t, in("sub/s"), "s", true)
		syncDir(t, in("sub"))
	})
	if got, want := testkit.Files(t, dir), "named=x old=1 overwritten=3 removed=2"; got != want {
		t.Errorf("left %q, want %q", got, want)
	}
}

func TestAReusedNumberIsAnotherFile(t *testing.T) {
	dir := t.TempDir()
	Run(t, dir, func(dir string) {
		f := filepath.Join(dir, "f")
		for i := range 20 {
			put(t, f+".tmp", strings.Repeat("x", i+1), true)
			if err := os.Rename(f+".tmp", f); err != nil {
				t.Error(err)
			}
			if i == 4 {
				syncDir(t, dir)
			}
		}
	})
	if got := testkit.Files(t, dir); got != "f=xxxxx" {
		t.Errorf("left %q", got)
	}
}

func TestASyncedNameOfWhatIsNot(t *testing.T) {
	dir := t.TempDir()
	Run(t, dir, func(dir string) {
		put(t, filepath.Join(dir, "f"), "not synced", false)
		if err := os.MkdirAll(filepath.Join(dir, "sub", "below"), 0o700); err != nil {
			t.Error(err)
		}
		syncDir(t, dir)
	})
	if got := testkit.Files(t, dir); got != "f=" {
		t.Errorf("left %q", got)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "sub")); err != nil || len(entries) != 0 {
		t.Errorf("in the directory: %v, %v", entries, err)
	}
}
