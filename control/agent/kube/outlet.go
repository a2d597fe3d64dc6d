package kube

import (
	"sync"
	"time"

	"muster.dev/muster/internal/wire"
)

// outlet passes changes on to the Mirror: the first of a key at once, further ones at most
// once in gap, the newest of them. What flaps costs little, what is rare comes soon.
type outlet struct {
	gap time.Duration

	mu      sync.Mutex // also of calls to the Mirror: they come in order
	to      Mirror
	last    map[string]time.Time // within gap
	pending map[string]func()
	timer   *time.Timer // set while last or pending hold anything
	stopped bool
}

func newOutlet(m Mirror, gap time.Duration) *outlet {
	return &outlet{gap: gap, to: m, last: map[string]time.Time{}, pending: map[string]func(){}}
}

// stop drops what is pending.
func (o *outlet) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	if o.timer != nil {
		o.timer.Stop()
	}
}

func (o *outlet) putObject(m *wire.Mirrored) {
	o.send(wire.KeyOf(m), func() { o.to.Put(m) })
}

func (o *outlet) putWorkload(s *wire.WorkloadStatus) {
	o.send(wire.WorkloadKey(s.GetName()), func() { o.to.PutWorkload(s) })
}

func (o *outlet) send(key string, fn func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return
	}
	now := time.Now()
	if t, ok := o.last[key]; ok && now.Sub(t) < o.gap {
		o.pending[key] = fn
	} else {
		delete(o.pending, key)
		o.last[key] = now
		fn()
	}
	if o.timer == nil {
		o.timer = time.AfterFunc(o.gap, o.flush)
	}
}

// drop goes at once: what is gone is not shown a moment longer.
func (o *outlet) drop(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.pending, key)
	if !o.stopped {
		o.to.Drop(key)
	}
}

func (o *outlet) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.timer = nil
	if o.stopped {
		return
	}
	now := time.Now()
	next := o.gap
	for key, t := range o.last {
		if left := t.Add(o.gap).Sub(now); left > 0 {
			next = min(next, left)
			continue
		}
		fn := o.pending[key]
		if fn == nil {
			delete(o.last, key)
			continue
		}
		delete(o.pending, key)
		o.last[key] = now
		fn()
	}
	if len(o.last) > 0 {
		o.timer = time.AfterFunc(max(next, time.Millisecond), o.flush)
	}
}
