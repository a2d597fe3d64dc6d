package compiled

import (
	"hash/maphash"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
)

// keys gives the same number to labels that are the same in some names, or in all but
// some. It keeps hashes of 64 bits whose seed nobody knows: for two of a million to meet is
// a matter of 1 in 10^7, and no sender can make them meet.
type keys struct {
	on    bool
	names []string // sorted
	seed  maphash.Seed
	ids   map[uint64]int32
	buf   []byte
}

func newKeys(on bool, names ...string) keys {
	names = slices.Clone(names)
	slices.Sort(names)
	return keys{on: on, names: slices.Compact(names), seed: maphash.MakeSeed(), ids: map[uint64]int32{}}
}

func (k *keys) id(ls labels.Labels) int32 {
	if k.on {
		k.buf = ls.BytesWithLabels(k.buf, k.names...)
	} else {
		k.buf = ls.BytesWithoutLabels(k.buf, k.names...)
	}
	h := maphash.Bytes(k.seed, k.buf)
	id, ok := k.ids[h]
	if !ok {
		id = int32(len(k.ids))
		k.ids[h] = id
	}
	return id
}

func (k *keys) len() int { return len(k.ids) }

func (k *keys) reset() { k.ids = map[uint64]int32{} }
