package intake

import (
	"errors"
	"fmt"
	"iter"
	"strings"
)

// message is one message of the forward protocol, as slices of the bytes it came in.
//
// The forms, and where they are described:
//
//	Message        [tag, time, record, options?]
//	Forward        [tag, [entry, …], options?]
//	PackedForward  [tag, entries as str or bin, options?]; CompressedPackedForward is the
//	               same with options.compressed
//
// https://github.com/fluent/fluentd/wiki/Forward-Protocol-Specification-v1
//
// What Fluent Bit 5 makes of it stands in its plugins/out_forward/forward.c and
// forward_format.c: Forward without compression and CompressedPackedForward with
// it; entries [[time, metadata], record] with retain_metadata_in_forward_mode and
// [time, record] without; Message only when the tag is made from the record.
type message struct {
	tag     []byte
	mode    mode
	entries []byte // Forward: the elements of the array; Packed: the bytes; Message: time and record
	opts    options
	unique  bool // the chunk id is, see uniqueChunk
}

type mode uint8

const (
	modeMessage mode = iota
	modeForward
	modePacked
)

type options struct {
	chunk      []byte
	size       int64 // -1: not given
	compressed string
	signal     int64 // Fluent Bit's event type
	fluentBit  bool  // the event type is given, which nobody else does
	meta       value // of the one record of a Message
}

// Fluent Bit's event types, option fluent_signal (FLB_EVENT_TYPE_… in its
// flb_event.h).
var signals = map[int64]string{1: "metrics", 2: "traces", 3: "profiles", 4: "blobs"}

func signalName(n int64) string {
	if s, ok := signals[n]; ok {
		return s
	}
	return fmt.Sprintf("signal %d", n)
}

// maxChunk bounds a chunk id, in bytes; Fluentd's and Fluent Bit's have 24.
const maxChunk = 256

// parseMessage reads the frame of a message; b is one whole value.
func parseMessage(b []byte) (message, error) {
	m := message{opts: options{size: -1}}
	h, err := headOf(b)
	if err != nil {
		return m, err
	}
	if h.kind != kindArray || h.n < 2 || h.n > 4 {
		return m, fmt.Errorf("want an array of 2 to 4 elements: %w", errShape)
	}
	rest := b[h.size:]
	var elem [4][]byte
	for i := range h.n {
		if elem[i], rest, err = cut(rest); err != nil {
			return m, err
		}
	}
	tag := value{raw: elem[0]}
	if tag.typ() != typeText {
		return m, fmt.Errorf("the tag is no string: %w", errShape)
	}
	m.tag = tag.text()
	second, err := headOf(elem[1])
	if err != nil {
		return m, err
	}
	var opts []byte
	switch second.kind {
	case kindArray:
		m.mode, m.entries, opts = modeForward, elem[1][second.size:], elem[2]
	case kindStr, kindBin:
		m.mode, m.entries, opts = modePacked, second.body(elem[1]), elem[2]
	default:
		if h.n < 3 {
			return m, fmt.Errorf("a message without a record: %w", errShape)
		}
		m.mode, opts = modeMessage, elem[3]
		m.entries = b[len(b)-len(rest)-len(elem[1])-len(elem[2])-len(elem[3]) : len(b)-len(rest)-len(elem[3])]
	}
	if m.mode != modeMessage && h.n > 3 {
		return m, fmt.Errorf("%d elements: %w", h.n, errShape)
	}
	return m, m.options(value{raw: opts})
}

var errShape = errors.New("not a message of the forward protocol")

func (m *message) options(o value) error {
	switch o.typ() {
	case typeNull:
		return nil
	case typeObject:
	default:
		return fmt.Errorf("the options are no map: %w", errShape)
	}
	var err error
	o.each(func(key []byte, v value) bool {
		switch string(key) {
		case "chunk":
			// Some clients write it as bin. It goes back as str, which is what senders read.
			if v.typ() != typeText || len(v.text()) > maxChunk {
				err = fmt.Errorf("option chunk: want a string of at most %d bytes: %w", maxChunk, errShape)
				return false
			}
			m.opts.chunk = v.text()
		case "size":
			if n, ok := v.number(); ok {
				m.opts.size = int64(n)
			}
		case "compressed":
			m.opts.compressed = strings.ToLower(string(v.text()[:min(len(v.text()), 16)]))
		case "fluent_signal":
			m.opts.fluentBit = true
			if n, ok := v.number(); ok {
				m.opts.signal = int64(n)
			}
		case "metadata":
			m.opts.meta = v
		}
		return true
	})
	return err
}

// entry is one record with its time and metadata.
type entry struct {
	time      int64
	meta      value
	record    value
	group     uint32 // not 0: a mark, no record
	malformed bool
}

// entries goes through the entries that b holds one after another. It ends with an
// error if the bytes can't be told apart any more.
func entries(b []byte) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		b := b // it may be gone through twice
		for len(b) > 0 {
			// The limit keeps a length that an inner header claims below what there is.
			var s scanner
			ok, err := s.run(b, len(b))
			if err == nil && !ok {
				err = errShort
			}
			if err != nil {
				yield(entry{}, err)
				return
			}
			if !yield(parseEntry(b[:s.pos]), nil) {
				return
			}
			b = b[s.pos:]
		}
	}
}

// parseEntry reads [time, record] or [[time, metadata], record].
func parseEntry(b []byte) entry {
	bad := entry{malformed: true}
	h, err := headOf(b)
	if err != nil || h.kind != kindArray || h.n != 2 {
		return bad
	}
	at, rec, err := cut(b[h.size:])
	if err != nil {
		return bad
	}
	return makeEntry(at, rec)
}

func makeEntry(at, rec []byte) entry {
	e := entry{record: value{raw: rec}}
	h, err := headOf(at)
	if err != nil {
		return entry{malformed: true}
	}
	if h.kind == kindArray {
		if h.n < 1 || h.n > 2 {
			return entry{malformed: true}
		}
		first, rest, err := cut(at[h.size:])
		if err != nil {
			return entry{malformed: true}
		}
		at = first
		if h.n == 2 {
			e.meta = value{raw: rest}
		}
	}
	var ok bool
	if e.time, e.group, ok = entryTime(at); !ok || e.record.typ() != typeObject {
		return entry{malformed: true}
	}
	return e
}

// messageEntry is the one entry of Message mode.
func (m *message) messageEntry() entry {
	at, rec, err := cut(m.entries)
	if err != nil {
		return entry{malformed: true}
	}
	e := makeEntry(at, rec)
	if len(e.meta.raw) == 0 {
		e.meta = m.opts.meta
	}
	return e
}
