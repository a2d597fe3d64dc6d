package intake

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
)

// oversize is how many times larger than its limit a message or body may be as it comes, if it
// is not once its overlong texts are cut. A line of 18 MB must neither take its neighbours
// with it nor be sent again for ever.
const oversize = 8

// trimmer copies MessagePack values as they come and cuts what is longer than max: of a
// str, a bin or an ext it keeps the first max bytes. It holds no value in memory.
//
// It ends with io.EOF behind the values that it is told to copy. If it is to copy all, what
// is no MessagePack, or ends too early, comes out as it is: what came before it may be good.
type trimmer struct {
	r      *bufio.Reader
	max    int
	values int64 // to copy; negative: all that come

	need       int64 // values of the open one that must still come
	head       []byte
	keep, drop int64
	raw        bool // what comes is no MessagePack
}

func newTrimmer(r *bufio.Reader, max int, values int64) *trimmer {
	return &trimmer{r: r, max: max, values: values}
}

func (t *trimmer) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		switch {
		case len(t.head) > 0:
			k := copy(p[n:], t.head)
			n, t.head = n+k, t.head[k:]
		case t.keep > 0:
			k, err := t.r.Read(p[n:min(int64(len(p)), int64(n)+t.keep)])
			n, t.keep = n+k, t.keep-int64(k)
			if err != nil {
				return n, t.ended(err)
			}
		case t.drop > 0:
			k, err := t.r.Discard(int(min(t.drop, 1<<20)))
			t.drop -= int64(k)
			if err != nil {
				return n, t.ended(err)
			}
		case t.raw:
			k, err := t.r.Read(p[n:])
			if n += k; err != nil {
				return n, err
			}
		default:
			if err := t.next(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// next reads one header.
func (t *trimmer) next() error {
	if t.need == 0 {
		if t.values == 0 {
			return io.EOF
		}
		t.need = 1
		if t.values > 0 {
			t.values--
		}
		if _, err := t.r.Peek(1); err != nil {
			return err // io.EOF between two values
		}
	}
	h, raw, err := peekHead(t.r)
	if err != nil && t.values < 0 && (errors.Is(err, errInvalid) || errors.Is(err, io.EOF)) {
		t.raw = true
		return nil
	}
	if err != nil {
		return t.ended(err)
	}
	t.head = append(t.head[:0], raw...)
	_, _ = t.r.Discard(len(raw))
	t.need--
	switch h.kind {
	case kindArray:
		t.need += int64(h.n)
	case kindMap:
		t.need += 2 * int64(h.n)
	case kindStr, kindBin, kindExt:
		t.keep = int64(h.n)
		if h.n <= t.max {
			break
		}
		t.keep, t.drop = int64(t.max), int64(h.n-t.max)
		t.head = t.head[:0]
		switch h.kind {
		case kindStr:
			t.head = append(t.head, 0xdb)
		case kindBin:
			t.head = append(t.head, 0xc6)
		case kindExt:
			t.head = append(t.head, 0xc9)
		}
		t.head = binary.BigEndian.AppendUint32(t.head, uint32(t.max))
		if h.kind == kindExt {
			t.head = append(t.head, byte(h.ext))
		}
	}
	return nil
}

// peekHead looks at the next header; nothing is consumed.
func peekHead(r *bufio.Reader) (head, []byte, error) {
	for n := 1; ; n++ {
		b, err := r.Peek(n)
		if h, ok, herr := readHead(b); herr != nil || ok {
			if ok {
				b = b[:h.size]
			}
			return h, b, herr
		}
		if err != nil {
			return head{}, nil, err
		}
	}
}

// ended is the error where the source ends inside of a value.
func (t *trimmer) ended(err error) error {
	if t.values < 0 {
		return err
	}
	return unexpected(err)
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// jsonTrimmer is trimmer for JSON: it keeps the first max bytes of each string. A line's end
// ends a string, which no string may hold.
type jsonTrimmer struct {
	r   *bufio.Reader
	max int

	inside, escaped bool
	hex             int // digits of a \u that must still come
	have            int // bytes of the string
	cut             bool
}

func (t *jsonTrimmer) Read(p []byte) (int, error) {
	for {
		if _, err := t.r.Peek(1); err != nil {
			return 0, err
		}
		in, _ := t.r.Peek(min(t.r.Buffered(), len(p)))
		n := 0
		for i := 0; i < len(in); {
			if !t.inside {
				// Outside of strings nothing is cut.
				end := bytes.IndexByte(in[i:], '"')
				if end < 0 {
					n += copy(p[n:], in[i:])
					break
				}
				n += copy(p[n:], in[i:i+end+1])
				i += end + 1
				*t = jsonTrimmer{r: t.r, max: t.max, inside: true}
				continue
			}
			c := in[i]
			i++
			// An escape counts as one byte, so that what is kept is as much as is wanted.
			whole := !t.escaped && t.hex == 0 // before c no escape is open
			switch {
			case c == '\n', c == '"' && !t.escaped:
				t.inside, t.cut = false, false
			case t.escaped:
				t.escaped = false
				if c == 'u' {
					t.hex = 4
				}
			case c == '\\':
				t.escaped = true
			case t.hex > 0:
				t.hex--
			}
			if t.inside {
				if whole {
					t.cut = t.cut || t.have >= t.max
					t.have++
				}
			}
			if !t.cut {
				p[n] = c
				n++
			}
		}
		_, _ = t.r.Discard(len(in))
		if n > 0 {
			return n, nil
		}
	}
}

// paced calls before ahead of each read with what has come so far, and ends with
// errLarge beyond limit bytes.
type paced struct {
	r      io.Reader
	before func(have int)
	limit  int
	have   int
}

func (r *paced) Read(p []byte) (int, error) {
	if r.before != nil {
		r.before(r.have)
	}
	n, err := r.r.Read(p)
	if r.have += n; r.have > r.limit {
		return 0, errLarge
	}
	return n, err
}

// textLimit is what is kept of an overlong text of a record before the record is taken apart:
// enough to see that it has to be cut.
func (in *Intake) textLimit() int { return in.opts.MaxLineBytes + 16 }

func times(n, by int) int {
	if n > math.MaxInt/by {
		return math.MaxInt
	}
	return n * by
}
