package intake

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/klauspost/compress/zstd"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/regional/logs/store"
)

// A Record is one log line as the store gets it. Its ID is the same whenever the
// same message surely arrives again; see again.go.
type Record = store.Record

// A batch is what one record of the queue holds: lines of one site, and so of one
// tenant. Its form is a version byte, the number of lines as uvarint, and a zstd frame of
//
//	tenant, site, region, prefix of the ids   strings
//	lines until the end:
//	  index uvarint, time varint (ns), node, namespace, pod, container, unit, stream, severity, message,
//	  number of labels uvarint, name and value of each
//
// where a string is its length as uvarint and its bytes. An index with the bit
// receivedBit belongs to a line whose id has its time in it.
const (
	batchVersion = 2
	receivedBit  = 1 << 63
	// batchBytes and batchLines are when a batch is closed, uncompressed. With the longest
	// line it stays far below spool.MaxRecord. A batch is what goes to the store in one piece.
	batchBytes = 2 << 20
	batchLines = 1000
	// maxBatchBytes is what decodeBatch takes: a batch and a line of the largest size.
	maxBatchBytes = 48 << 20
)

type batch struct {
	buf   []byte
	lines int
	start int // length of the header
}

func (b *batch) reset(id fleet.SiteID, region, prefix string) {
	b.buf, b.lines = b.buf[:0], 0
	for _, s := range []string{id.Tenant, id.Name, region, prefix} {
		b.buf = appendString(b.buf, s)
	}
	b.start = len(b.buf)
}

func (b *batch) add(l *line) {
	index := uint64(l.index)
	if l.received {
		index |= receivedBit
	}
	b.buf = binary.AppendUvarint(b.buf, index)
	b.buf = binary.AppendVarint(b.buf, l.time)
	for _, s := range [...][]byte{l.node, l.namespace, l.pod, l.container, l.unit, l.stream, l.severity, l.message} {
		b.buf = appendString(b.buf, s)
	}
	b.buf = binary.AppendUvarint(b.buf, uint64(len(l.labels)))
	for _, kv := range l.labels {
		b.buf = appendString(appendString(b.buf, kv.key), kv.value)
	}
	b.lines++
}

// clear drops the lines and keeps the header.
func (b *batch) clear() { b.buf, b.lines = b.buf[:b.start], 0 }

func appendString[S string | []byte](b []byte, s S) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// codec compresses batches. Safe for concurrent use.
type codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newCodec() (*codec, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2), zstd.WithWindowSize(512<<10), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxBatchBytes), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	return &codec{enc, dec}, nil
}

func (c *codec) encode(dst []byte, b *batch) []byte {
	return c.enc.EncodeAll(b.buf, binary.AppendUvarint(append(dst, batchVersion), uint64(b.lines)))
}

// linesOf is how many lines a batch says that it has.
func linesOf(rec []byte) int {
	if len(rec) == 0 || rec[0] != batchVersion {
		return 0
	}
	n, size := binary.Uvarint(rec[1:])
	if size <= 0 || n > batchLines {
		return 0
	}
	return int(n)
}

var errBatch = errors.New("not a batch of log lines")

// decode returns the records of a batch.
func (c *codec) decode(rec []byte) ([]Record, error) {
	if len(rec) == 0 || rec[0] != batchVersion {
		return nil, fmt.Errorf("%w: unknown version", errBatch)
	}
	n, size := binary.Uvarint(rec[1:])
	if size <= 0 {
		return nil, fmt.Errorf("%w: no number of lines", errBatch)
	}
	b, err := c.dec.DecodeAll(rec[1+size:], nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBatch, err)
	}
	// One conversion: all strings of the batch share it.
	r := batchReader{s: string(b)}
	tenant, site, region, prefix := r.str(), r.str(), r.str(), r.str()
	var out []Record
	for len(r.s) > 0 && !r.bad {
		index, ns := r.uvarint(), r.varint()
		id := prefix + "-" + strconv.FormatUint(index&^receivedBit, 36)
		if index&receivedBit != 0 {
			id += "-" + strconv.FormatInt(ns, 36)
		}
		out = append(out, Record{
			Timestamp: time.Unix(0, ns).UTC(), Tenant: tenant, Site: site, Region: region,
			Node: r.str(), Namespace: r.str(), Pod: r.str(), Container: r.str(), Unit: r.str(), Stream: r.str(), Severity: r.str(), Message: r.str(), Labels: r.labels(),
			ID: id,
		})
	}
	if r.bad || uint64(len(out)) != n {
		return nil, errBatch
	}
	return out, nil
}

type batchReader struct {
	s   string
	bad bool
}

func (r *batchReader) uvarint() uint64 {
	var x uint64
	for i := 0; i < len(r.s) && i < binary.MaxVarintLen64; i++ {
		c := r.s[i]
		x |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			r.s = r.s[i+1:]
			return x
		}
	}
	r.bad = true
	return 0
}

func (r *batchReader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (r *batchReader) str() string {
	n := r.uvarint()
	if r.bad || n > uint64(len(r.s)) {
		r.bad = true
		return ""
	}
	s := r.s[:n]
	r.s = r.s[n:]
	return s
}

func (r *batchReader) labels() map[string]string {
	n := r.uvarint()
	if n == 0 || r.bad {
		return nil
	}
	if n > store.MaxLabels {
		r.bad = true
		return nil
	}
	m := make(map[string]string, n)
	for range n {
		k := r.str()
		m[k] = r.str()
	}
	return m
}
