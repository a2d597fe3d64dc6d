package intake

import (
	"bytes"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"iter"
	"time"
)

// A message that is sent again must be stored once, and two messages that look alike must be
// stored twice; which of them it is no protocol says for sure. Fluent Bit's chunk ids are a
// hash of the content, its http output has none, and what a parser of whole seconds makes
// of a line is the same on every node. So two messages are one where that is proven:
//
//   - by the id of the plugin (DeliveryHeader), or by a chunk id that is one by the
//     protocol's words, 128 random bits in base64, unless this very connection has
//     acknowledged it before (Fluent Bit's looks the same);
//   - by times that no two lines have in common: of nanoseconds, or of several
//     microseconds, or of one on a node that the record names.
//
// In any other case a message is a new one: when in doubt a line comes twice, never
// not at all. Tag and content count in every case.

// DeliveryHeader has an id by which the plugin names one delivery of a chunk: the same
// for a repetition, another one for any other chunk, on whatever node.
const DeliveryHeader = "X-Muster-Delivery"

const (
	maxDelivery = 128 // bytes of the header
	// proofNeeded: a time in nanoseconds is worth proofNano; one in microseconds, and a
	// node's name, half of that.
	proofNeeded = 2
	proofNano   = 2
	proofMicro  = 1
	proofNode   = 1
	// proofRecords are looked at.
	proofRecords = 64
)

// uniqueChunk tells whether a message's chunk id is one as the protocol wants them: "the
// base64 of a unique ID of 128 bits". Fluentd and the fluent-logger libraries send these.
// Fluent Bit's has that form, but is the beginning of the content's SHA-512.
func uniqueChunk(o *options, payload []byte) bool {
	if len(o.chunk) != 24 || o.fluentBit {
		return false
	}
	var b [18]byte
	n, err := base64.StdEncoding.Decode(b[:], o.chunk)
	if err != nil || n != 16 {
		return false
	}
	sum := sha512.Sum512(payload) // its versions before 2.0 don't say who they are
	return !bytes.Equal(b[:16], sum[:16])
}

// timesProve tells whether the times of a message's records are such that no other message has
// the same. Milliseconds prove nothing: what sets off a line on two nodes is often one
// event.
func (w *worker) timesProve(records iter.Seq2[entry, error], tag []byte, wantTime bool) bool {
	have, seen, node := 0, 0, false
	var l line
	var last int64
	reader := reader{maxLine: 1 << 10, text: w.reader.text[:0]} // its counts are nobody's
	defer func() { w.reader.text = reader.text }()
	for e, err := range records {
		if seen++; seen > proofRecords || err != nil {
			break
		}
		if e.malformed || e.group != 0 {
			continue
		}
		l.time = e.time
		if wantTime || !node {
			reader.read(&l, tag, e.record, e.meta, value{}, wantTime)
			node = node || len(l.node) > 0
		}
		switch {
		case l.time == last || l.time%int64(time.Millisecond) == 0:
		case l.time%int64(time.Microsecond) != 0:
			have += proofNano
		default:
			have += proofMicro
		}
		last = l.time
		if have >= proofNeeded || have > 0 && node && have+proofNode >= proofNeeded {
			return true
		}
	}
	return false
}

// identify names a message of the forward protocol, and tells whether that name is
// the same when the message is sent again.
func (f *forwardConn) identify(m *message, payload []byte) (hash, bool) {
	m.unique = uniqueChunk(&m.opts, payload)
	if !m.unique && !f.worker.timesProve(f.records(m, payload), m.tag, false) {
		once := binary.LittleEndian.AppendUint64(append([]byte(nil), f.nonce...), f.seq)
		return hashOf(f.site.id, m.tag, m.opts.chunk, payload, once), false
	}
	h := hashOf(f.site.id, m.tag, m.opts.chunk, payload)
	if f.acked[h] > 0 {
		// Its sender has had its acknowledgement.
		return hashOf(f.site.id, m.tag, m.opts.chunk, payload, f.nonce, binary.LittleEndian.AppendUint64(nil, f.seq)), false
	}
	return h, true
}

// identifyHTTP is identify for a request's body.
func (w *worker) identifyHTTP(s *site, delivery string, tag, body []byte, records iter.Seq2[entry, error], wantTime bool) hash {
	switch {
	case delivery != "" && len(delivery) <= maxDelivery:
		return hashOf(s.id, []byte("delivery"), []byte(delivery), tag, body)
	case w.timesProve(records, tag, wantTime):
		return hashOf(s.id, []byte("http"), tag, body)
	}
	return hashOf(s.id, []byte("http"), tag, body, nonce())
}
