// Package stamp gives out ingest times for the log stores: strictly growing, and with
// a horizon below which nothing more can appear. A tail that reads up to the horizon
// misses nothing and sees nothing twice, however writes overlap. It does not persist
// anything. The stores of regional/logs/store call it.
package stamp

import (
	"sync"
	"time"
)

// Clock gives out stamps. The zero value is not usable; see New.
type Clock struct {
	now func() time.Time

	mu   sync.Mutex
	last int64
	open map[int64]struct{}
}

// New returns a clock over now whose stamps are all greater than floor (Unix nanoseconds).
func New(now func() time.Time, floor int64) *Clock {
	return &Clock{now: now, last: floor, open: map[int64]struct{}{}}
}

// Begin returns the stamp of a write that starts now, in Unix nanoseconds. done must
// be called when the write is visible to readers, or has failed for good.
func (c *Clock) Begin() (stamp int64, done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := max(c.now().UnixNano(), c.last+1)
	c.last = s
	c.open[s] = struct{}{}
	return s, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, s)
	}
}

// Horizon returns the stamp below which every write is done, and will stay so.
func (c *Clock) Horizon() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := max(c.now().UnixNano(), c.last+1)
	c.last = h - 1 // later stamps are not below what was promised
	for s := range c.open {
		h = min(h, s)
	}
	return h
}

// Raise makes all further stamps greater than floor (Unix nanoseconds).
func (c *Clock) Raise(floor int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, floor)
}
