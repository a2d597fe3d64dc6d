package remotewrite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"muster.dev/muster/internal/spool"
)

const (
	// aheadBytes of records a lane are held, by all lanes together, or one record: a
	// regional has a sender for each tenant, and all of them wait while the store is down.
	aheadBytes = 256 << 10
	// mergeBytes and mergeRecords bound a request that is put together: on a slow
	// line it must arrive within the timeout.
	mergeBytes   = 256 << 10
	mergeRecords = 64
)

// item is a record on its way.
type item struct {
	seq  uint64
	info Info
	body []byte
	due  time.Time // from then on it does not wait for others
}

// Run sends until ctx ends or the source is closed, then returns nil. Records in
// flight at that moment stay in the source.
func (s *Sender) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	d := &dispatcher{s: s, moved: make(chan struct{}, 1)}
	for range s.opts.Concurrency {
		l := &lane{d: d, ready: make(chan struct{}, 1), most: mergeRecords}
		d.lanes = append(d.lanes, l)
		wg.Go(func() { l.run(ctx) })
	}
	d.run(ctx)
	if ctx.Err() == nil {
		cancel() // the source is closed
	}
	return nil
}

// dispatcher hands the records of the source to the lanes.
type dispatcher struct {
	s     *Sender
	lanes []*lane
	moved chan struct{} // a record is done with

	mu    sync.Mutex
	held  int  // bytes
	tight bool // there is no memory for the next record
}

func (d *dispatcher) run(ctx context.Context) {
	for {
		rec, err := d.s.opts.Source.Next(ctx)
		switch {
		case ctx.Err() != nil, errors.Is(err, spool.ErrClosed):
			return
		case err != nil:
			d.s.log.Error("reading the queue failed", "err", err)
			if !sleep(ctx, time.Second) {
				return
			}
			continue
		}
		info, body, err := split(rec.Data)
		if err != nil {
			d.s.dropped(info, "undecodable", err)
			d.s.opts.Source.Ack(rec.Seq)
			continue
		}
		if !d.hold(ctx, len(body)) {
			return
		}
		d.lanes[info.Lane%uint32(len(d.lanes))].push(item{rec.Seq, info, body, time.Now().Add(d.s.opts.Linger)})
	}
}

// hold waits until there is memory for n more bytes; false means that ctx ended.
func (d *dispatcher) hold(ctx context.Context, n int) bool {
	for {
		d.mu.Lock()
		ok := d.held == 0 || d.held+n <= aheadBytes*len(d.lanes)
		if ok {
			d.held += n
		}
		d.tight = !ok
		d.mu.Unlock()
		if ok {
			return true
		}
		for _, l := range d.lanes {
			l.wake() // what they hold goes now
		}
		select {
		case <-d.moved:
		case <-ctx.Done():
			return false
		}
	}
}

func (d *dispatcher) isTight() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tight
}

// done acknowledges records and gives their memory back.
func (d *dispatcher) done(items []item) {
	n := 0
	for _, it := range items {
		n += len(it.body)
		d.s.opts.Source.Ack(it.seq)
	}
	d.mu.Lock()
	d.held -= n
	d.mu.Unlock()
	select {
	case d.moved <- struct{}{}:
	default:
	}
}

// lane sends its records in order, one request at a time: while it waits to try one
// again, nothing of its later ones is sent.
type lane struct {
	d     *dispatcher
	ready chan struct{}
	most  int // records that go into a request now

	mu    sync.Mutex
	queue []item
}

func (l *lane) push(it item) {
	l.mu.Lock()
	l.queue = append(l.queue, it)
	l.mu.Unlock()
	l.wake()
}

func (l *lane) wake() {
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

func (l *lane) run(ctx context.Context) {
	for ctx.Err() == nil {
		items, full := l.head()
		if len(items) == 0 {
			select {
			case <-l.ready:
			case <-ctx.Done():
			}
			continue
		}
		if wait := time.Until(items[0].due); wait > 0 && !full && !l.d.isTight() {
			t := time.NewTimer(wait)
			select {
			case <-l.ready:
			case <-t.C:
			case <-ctx.Done():
			}
			t.Stop()
			continue
		}
		if n := l.deliver(ctx, items); n > 0 {
			l.mu.Lock()
			l.queue = append(l.queue[:0], l.queue[n:]...)
			clear(l.queue[len(l.queue):cap(l.queue)]) // don't hold on to what is sent
			l.mu.Unlock()
			l.d.done(items[:n])
		}
	}
}

// head returns a copy of the first records, as many as go into one request, and whether
// no more would.
func (l *lane) head() (items []item, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, samples, bytes := 0, 0, 0
	for _, it := range l.queue {
		samples += it.info.All()
		bytes += len(it.body)
		if n > 0 && (n == l.most || it.info.Key != l.queue[0].info.Key || samples > l.d.s.opts.MaxSamples || bytes > mergeBytes) {
			full = true
			break
		}
		n++
	}
	return append([]item(nil), l.queue[:n]...), full || n == l.most
}

// deliver sends the records as one request until the receiver takes it or refuses it
// for good. It returns how many are done with: 0 if ctx ended before, or if they are
// to be tried again in smaller requests.
func (l *lane) deliver(ctx context.Context, items []item) int {
	s := l.d.s
	info, body := merge(items)
	if body == nil { // a damaged one among them
		l.most = 1
		if len(items) == 1 {
			s.dropped(info, "undecodable", fmt.Errorf("the request can't be stamped: %w", ErrMalformed))
			return 1
		}
		return 0
	}
	for attempt := 0; ; attempt++ {
		if !s.gate.wait(ctx) {
			return 0
		}
		endpoint := s.opts.Endpoint()
		if endpoint == "" {
			if !sleep(ctx, s.backoff(2)) {
				return 0
			}
			continue
		}
		res := s.try(ctx, endpoint, info, body, attempt)
		if ctx.Err() != nil && res.verdict == verdictRetry {
			return 0
		}
		if res.verdict == verdictRefused && len(items) > 1 && res.written == 0 {
			// It may be one record's fault, or too much for one request.
			l.most = 1
			return 0
		}
		s.record(endpoint, info, res)
		switch res.verdict {
		case verdictDone, verdictRefused:
			l.most = min(2*l.most, mergeRecords)
			return len(items)
		case verdictAgain:
			attempt = -1 // another protocol, at once
		case verdictRetry:
			pause := s.backoff(attempt)
			if res.retryAfter > 0 {
				// The receiver asks for time: no request of ours before that. The
				// jitter keeps those who were told the same from acting in step, also
				// when they are thousands: it grows with what is asked for.
				pause = res.retryAfter + rand.N(s.opts.MinBackoff+res.retryAfter/2)
				s.gate.closeFor(pause)
			}
			if !sleep(ctx, pause) {
				return 0
			}
			if len(items) > 1 && res.reason == "network" { // perhaps a line too slow for it
				items = items[:(len(items)+1)/2]
				l.most = len(items)
				info, body = merge(items)
			}
		}
	}
}

// merge puts records together into one request: each series once, its samples in the
// order of the records. The body is nil if a record can't be decoded.
func merge(items []item) (Info, []byte) {
	if len(items) == 1 && items[0].info.stamp == "" {
		return items[0].info, items[0].body
	}
	info := items[0].info
	m := newMerger()
	defer m.release()
	for i, it := range items {
		if err := m.add(it.body, it.info.stamp, alone(items, i)); err != nil {
			return info, nil
		}
		if i > 0 {
			info.Samples += it.info.Samples
			info.Histograms += it.info.Histograms
			info.MinT, info.MaxT = min(info.MinT, it.info.MinT), max(info.MaxT, it.info.MaxT)
		}
	}
	info.Series, info.stamp = len(m.series), ""
	body := m.body()
	info.EncodedBytes = len(body)
	return info, body
}

// alone tells that nobody else's record has the stamp of this one: its series are its own.
func alone(items []item, i int) bool {
	stamp := items[i].info.stamp
	for j := range items {
		if j != i && items[j].info.stamp == stamp {
			return false
		}
	}
	return stamp != ""
}
