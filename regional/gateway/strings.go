package gateway

import (
	"cmp"
	"strings"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
)

// Bounds of a labelStrings.
const (
	// maxStrings is how many bytes the strings of a generation have, 64 for each added.
	maxStrings = 64 << 20
	// maxShared is the longest string that is kept, in bytes: long ones are rarely shared.
	maxShared = 256
)

// labelStrings has the labels of all series share their names and values: thousands of
// sites send the same ones, and each series would else have copies of its own.
//
// It counts no references. There are two generations: what is not asked for during the
// older one's time is forgotten, which costs a further copy when it comes again, and no
// more. A generation ends when the head has dropped what it no longer needs, and when it
// is full, so that no sender can fill memory with it. Safe for concurrent use; the zero
// value is ready.
type labelStrings struct {
	mu         sync.Mutex
	young, old map[string]string
	bytes      int // of young
	most       int // bytes of a generation; 0: maxStrings
}

// share replaces the strings of labels by shared ones, in place: nobody else may have them
// yet. The strings that they had may change afterwards. In builds whose labels are one
// string each it does nothing.
func (l *labelStrings) share(ls *labels.Labels) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ls.InternStrings(l.sharedLocked)
}

func (l *labelStrings) sharedLocked(s string) string {
	if len(s) > maxShared {
		return strings.Clone(s)
	}
	if have, ok := l.young[s]; ok {
		return have
	}
	have, ok := l.old[s]
	if !ok {
		have = strings.Clone(s)
	}
	if l.young == nil || l.bytes > cmp.Or(l.most, maxStrings) {
		l.ageLocked()
	}
	l.young[have] = have
	l.bytes += len(have) + 64
	return have
}

// age ends a generation.
func (l *labelStrings) age() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ageLocked()
}

func (l *labelStrings) ageLocked() { l.old, l.young, l.bytes = l.young, map[string]string{}, 0 }
