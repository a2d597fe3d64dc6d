package agent

import (
	"testing"

	"muster.dev/muster/internal/wire"
)

// FuzzStored: whatever stands in desired.json, what is accepted names only files
// inside the directory.
func FuzzStored(f *testing.F) {
	digest := wire.DigestOf(nil)
	items := []*wire.Item{{Kind: "CollectionPolicy", Name: "effective", Digest: digest}}
	f.Add([]byte(`{"revision":"` + wire.RevisionOf(items) + `","items":[{"kind":"CollectionPolicy","name":"effective","digest":"` + digest + `"}],"good":{"a/b":"../x"}}`))
	f.Add([]byte(`{"items":[null]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, state, err := decodeStored(b, 1<<20)
		if err != nil {
			return
		}
		for _, it := range state.Items {
			if len(it.Digest) != 64 || it.Size < 0 || it.Size > 1<<20 {
				t.Errorf("accepted %v", it)
			}
		}
		for k, digest := range s.Good {
			if !hexDigest.MatchString(digest) {
				t.Errorf("accepted %s=%q", k, digest)
			}
		}
	})
}
