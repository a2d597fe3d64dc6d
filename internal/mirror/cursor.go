package mirror

import "muster.dev/muster/internal/wire"

// Cursor follows the versions of one site: which one is held, and whether a message fits
// on it. The zero value holds none. Not safe for concurrent use.
type Cursor struct {
	epoch string
	seq   uint64
	in    *incoming // a version that has begun to come in
}

type incoming struct {
	epoch      string
	seq, after uint64
	snapshot   bool
}

// maxEpoch bounds what a site may call an epoch, in bytes.
const maxEpoch = 64

// At is a Cursor that holds a version, as read from a disk.
func At(epoch string, seq uint64) Cursor { return Cursor{epoch: epoch, seq: seq} }

// Version is what is held: "", 0 if none is, and while one is coming in.
func (c *Cursor) Version() (epoch string, seq uint64) {
	if c.in != nil || c.seq == 0 {
		return "", 0
	}
	return c.epoch, c.seq
}

// Take says whether the message may be applied, and whether it is the first one of its
// version. Not ok: it does not follow what is held, and a snapshot is needed.
func (c *Cursor) Take(st *wire.KubernetesStatus) (ok, first bool) {
	next := incoming{st.GetEpoch(), st.GetSeq(), st.GetAfter(), st.GetSnapshot()}
	good := next.epoch != "" && len(next.epoch) <= maxEpoch && next.seq > 0
	switch {
	case c.in != nil && *c.in == next:
	case good && next.snapshot:
		first = true
	case good && c.in == nil && next.epoch == c.epoch && next.after == c.seq && next.seq > c.seq:
		first = true
	default:
		return false, false
	}
	if st.GetMore() {
		c.in = &next
		return true, first
	}
	c.in, c.epoch, c.seq = nil, next.epoch, next.seq
	return true, first
}

// Interrupted forgets what is held if a version is coming in: the rest will not come.
func (c *Cursor) Interrupted() {
	if c.in != nil {
		*c = Cursor{}
	}
}
