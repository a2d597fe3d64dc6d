package holdings

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"muster.dev/muster/internal/testkit/faultdisk"
	"muster.dev/muster/internal/wire"
)

// TestPowerLoss cuts the power before each operation of two downloads, one of which goes
// on where an earlier one broke off, and of a write. What Fetch or Write said is there, is
// there; nothing else counts as there that is not whole; and what a power cut left of a
// download doesn't keep the next ones from ending.
func TestPowerLoss(t *testing.T) {
	var contents [3][]byte
	var digests [3]string
	for i := range contents {
		contents[i] = bytes.Repeat([]byte{byte('a' + i)}, 60)
		digests[i] = wire.DigestOf(contents[i])
	}
	for _, sharded := range []bool{false, true} {
		for cut, last := 0, false; !last; cut++ {
			for seed := range uint64(6) {
				root := t.TempDir()
				d := faultdisk.New(t, root)
				d.PowerOffAfter(cut)
				said := [3]error{os.ErrInvalid, os.ErrInvalid, os.ErrInvalid}
				if dir, err := OpenOn(d, filepath.Join(root, "some", "blobs"), 0o640, sharded); err == nil {
					s := &server{content: contents[0], breaks: []int{30}}
					_, _ = dir.Fetch(t.Context(), Fetcher{}, s, digests[0], 60)
					_, said[0] = dir.Fetch(t.Context(), Fetcher{}, s, digests[0], 60)
					_, said[1] = dir.Fetch(t.Context(), Fetcher{}, &server{content: contents[1]}, digests[1], 60)
					said[2] = dir.Write(digests[2], contents[2])
				}
				last = errors.Join(said[:]...) == nil
				d.Crash(seed)
				dir, err := OpenOn(d, filepath.Join(root, "some", "blobs"), 0o640, sharded)
				if err != nil {
					t.Fatal(err)
				}
				for i, digest := range digests {
					if dir.Has(digest, 60) != (dir.Verify(digest) == nil) || said[i] == nil && !dir.Has(digest, 60) {
						t.Fatalf("cut %d, seed %d, blob %d: there %v, %v; before the cut: %v", cut, seed, i, dir.Has(digest, 60), dir.Verify(digest), said[i])
					}
					s := &server{content: contents[i]}
					_, err := dir.Fetch(t.Context(), Fetcher{}, s, digest, 60)
					if errors.Is(err, ErrContent) { // what was left was torn
						_, err = dir.Fetch(t.Context(), Fetcher{}, s, digest, 60)
					}
					if err != nil || dir.Verify(digest) != nil {
						t.Fatalf("cut %d, seed %d, blob %d: fetched after the cut: %v", cut, seed, i, err)
					}
				}
			}
		}
	}
}
