package atomicfile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWriteLeavesTheOldOneWhenItFails(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	if err := Write(name, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(name, "under-a-file"), nil, 0o600); err == nil {
		t.Error("wrote under a file")
	}
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "taken"), []byte("x"), 0o600); err == nil {
		t.Error("replaced a directory")
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}
	st, _ := os.Stat(name)
	if b, _ := os.ReadFile(name); string(b) != "one" || st.Mode().Perm() != 0o600 {
		t.Errorf("content %q, mode %o", b, st.Mode().Perm())
	}
}
