package atomicfile

import (
	"os"
	"path/filepath"
	"testing"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/testkit/faultdisk"
)

// TestPowerLoss cuts the power before each operation of a write in turn: what is left
// is the old content or the new, whole, and the new one if Write said so.
func TestPowerLoss(t *testing.T) {
	for _, old := range []string{"", "the old content"} {
		for cut := range 12 {
			for seed := range uint64(20) {
				dir := t.TempDir()
				name := filepath.Join(dir, "made", "now", "f")
				d := faultdisk.New(t, dir)
				if err := disk.MkdirAll(d, filepath.Dir(name), 0o700); err != nil {
					t.Fatal(err)
				}
				if old != "" {
					if err := WriteTo(d, name, []byte(old), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				d.PowerOffAfter(cut)
				werr := WriteTo(d, name, []byte("something new"), 0o600)
				d.Crash(seed)
				b, err := os.ReadFile(name)
				got := string(b)
				if err != nil && old != "" {
					t.Fatalf("cut %d, seed %d: %v", cut, seed, err)
				}
				if got != old && got != "something new" || werr == nil && got != "something new" {
					t.Fatalf("cut %d, seed %d: %q, the write said %v", cut, seed, got, werr)
				}
			}
		}
	}
}
