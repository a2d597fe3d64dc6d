package fluentbit

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"sync"
)

// maxUnknown bounds what is remembered; a delivery that is forgotten is another one when
// it is sent again.
const maxUnknown = 4096

type content [sha256.Size]byte

func contentOf(tag string, chunk []byte) content {
	d := sha256.New()
	d.Write(strconv.AppendInt(nil, int64(len(tag)), 10))
	d.Write([]byte{0})
	d.Write([]byte(tag))
	d.Write(chunk)
	return content(d.Sum(nil))
}

// deliveries name each delivery of a chunk, so that the intake can tell one that is sent
// again from another one that looks the same: with times of whole seconds two flushes may
// be equal to the byte, on one node or on two.
//
// Fluent Bit does not say which of two equal chunks it sends again, and it does not matter:
// an id whose outcome is not known goes to the next one with the same content, and in the
// end there were as many ids as chunks. The ids are forgotten with the process. Safe for
// concurrent use.
type deliveries struct {
	instance string

	mu      sync.Mutex
	n       uint64
	unknown map[content][]string // ids of deliveries of which the outcome is not known
	count   int
}

func (d *deliveries) init() {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	d.instance, d.unknown = hex.EncodeToString(b[:]), map[content][]string{}
}

// begin returns an id for a delivery that is about to be made.
func (d *deliveries) begin(what content) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ids := d.unknown[what]; len(ids) > 0 {
		d.count--
		if d.unknown[what] = ids[1:]; len(ids) == 1 {
			delete(d.unknown, what)
		}
		return ids[0]
	}
	d.n++
	return d.instance + "-" + strconv.FormatUint(d.n, 36)
}

// end says whether the outcome of a delivery is known.
func (d *deliveries) end(what content, id string, known bool) {
	if known {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count >= maxUnknown {
		for other, ids := range d.unknown { // any
			d.count -= len(ids)
			delete(d.unknown, other)
			break
		}
	}
	d.unknown[what] = append(d.unknown[what], id)
	d.count++
}
