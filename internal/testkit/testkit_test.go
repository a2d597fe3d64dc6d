package testkit

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCached(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	parent := filepath.Join(cache, "muster-test")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(parent, "part"), []byte("of an earlier version"), 0o644); err != nil {
		t.Fatal(err)
	}
	fills := 0
	for range 2 {
		dir, err := Cached("part", func(dir string) error {
			fills++
			return os.WriteFile(filepath.Join(dir, "program"), nil, 0o644)
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "program")); err != nil {
			t.Error(err)
		}
	}
	if fills != 1 {
		t.Errorf("filled %d times", fills)
	}
}

// Of a thousand that are free, many are drawn twice; each is given once, until the test ends.
func TestFreeAddrIsGivenOnce(t *testing.T) {
	given := map[string]bool{}
	for range 1000 {
		addr := FreeAddr(t)
		if given[addr] {
			t.Fatalf("%s is given twice", addr)
		}
		given[addr] = true
	}
}
