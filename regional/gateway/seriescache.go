package gateway

import (
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// cached is a series that the head holds, in one of the forms that the site sends it in:
// what it became, and where it is in the database.
type cached struct {
	labels labels.Labels
	ref    storage.SeriesRef // 0: a free slot
	hash   uint64
	after  int32 // the slot of the series that came after it the last time
	extra  int16 // what its histograms take, in series; see bucketsPerSeries
	plain  bool  // it is stored as it is sent, but for the stamp
}

// seriesCache maps what a site sends to what is stored. It is keyed by a hash with a
// secret, random seed of 64 bits: for two of a site's 10,000 series to meet is a matter
// of 1 in 10^11, and nobody can make them meet. It counts nothing: one series has many
// forms, and the head knows best what it holds.
//
// A site sends its series in much the same order every time, so where the next one is stands
// in the one before it. A regional has a slot for each series of its sites, so no byte is
// spent that need not be.
type seriesCache struct {
	slots []cached
	free  []int32
	index []int32 // by the hash, or at the next free place: 1 and the slot; 0: nothing
	n     int     // slots in use
	last  int32   // 1 and the slot of the last one of this push; 0: it has none yet
	added bool    // in this push
}

// begin is called before a push.
func (c *seriesCache) begin() {
	if room := len(c.slots)/8 + 16; !c.added && cap(c.slots) > len(c.slots)+room {
		c.slots = append(make([]cached, 0, len(c.slots)+room/2), c.slots...)
	}
	c.last, c.added = 0, false
}

// get returns the series of the hash, or nil. It is good until the next add.
func (c *seriesCache) get(hash uint64) *cached {
	next := int32(0)
	if c.last > 0 {
		next = c.slots[c.last-1].after
	}
	if int(next) >= len(c.slots) || c.slots[next].hash != hash || c.slots[next].ref == 0 {
		if next = c.find(hash); next < 0 {
			return nil
		}
	}
	c.found(next)
	return &c.slots[next]
}

// find returns the slot of the hash, or -1.
func (c *seriesCache) find(hash uint64) int32 {
	if len(c.index) == 0 {
		return -1
	}
	for at := c.place(hash); c.index[at] != 0; at = c.place(at + 1) {
		if i := c.index[at] - 1; c.slots[i].hash == hash {
			return i
		}
	}
	return -1
}

func (c *seriesCache) place(hash uint64) uint64 { return hash & uint64(len(c.index)-1) }

// found notes which series of this push comes next.
func (c *seriesCache) found(i int32) {
	if c.last > 0 {
		c.slots[c.last-1].after = i
	}
	c.last = i + 1
}

// add takes in a series that is not there.
func (c *seriesCache) add(s cached) *cached {
	var i int32
	if n := len(c.free); n > 0 {
		i, c.free = c.free[n-1], c.free[:n-1]
	} else {
		i = int32(len(c.slots))
		c.slots = append(c.slots, cached{})
	}
	s.after = i + 1
	c.slots[i] = s
	c.n++
	c.added = true
	if 4*c.n > 3*len(c.index) {
		c.reindex()
	} else {
		c.enter(i)
	}
	c.found(i)
	return &c.slots[i]
}

func (c *seriesCache) enter(i int32) {
	at := c.place(c.slots[i].hash)
	for c.index[at] != 0 {
		at = c.place(at + 1)
	}
	c.index[at] = i + 1
}

// reindex makes the index anew, in the size that it needs.
func (c *seriesCache) reindex() {
	size := 16
	for 4*c.n > 3*size {
		size *= 2
	}
	c.index = make([]int32, size)
	for i := range c.slots {
		if c.slots[i].ref != 0 {
			c.enter(int32(i))
		}
	}
}

func (c *seriesCache) len() int { return c.n }

// sweep forgets the series for which gone is true.
func (c *seriesCache) sweep(gone func(*cached) bool) {
	before := c.n
	for i := range c.slots {
		if s := &c.slots[i]; s.ref != 0 && gone(s) {
			*s = cached{}
			c.free = append(c.free, int32(i))
			c.n--
		}
	}
	if len(c.free) > 1024 && len(c.free) > len(c.slots)/2 {
		c.compact()
	}
	if c.n < before {
		c.reindex()
	}
}

// compact moves the slots that are in use to the front.
func (c *seriesCache) compact() {
	slots := make([]cached, 0, c.n)
	for _, s := range c.slots {
		if s.ref != 0 {
			s.after = int32(len(slots)) + 1
			slots = append(slots, s)
		}
	}
	c.slots, c.free, c.last = slots, nil, 0
}
