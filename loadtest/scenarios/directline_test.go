package scenarios

import (
	"context"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"muster.dev/muster/internal/backoff"
)

// deliver is the line to the regional.
func (d *direct) deliver(ctx context.Context) {
	for attempt := 0; ; {
		d.mu.Lock()
		queue := d.queue[:min(len(d.queue), 64)]
		d.mu.Unlock()
		if len(queue) == 0 {
			select {
			case <-d.ready:
				continue
			case <-ctx.Done():
				return
			}
		}
		err := d.s.carry(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			d.mu.Lock()
			d.failed++
			d.mu.Unlock()
			if !sleep(ctx, backoff.FullJitter(attempt, 250*time.Millisecond, 30*time.Second)) {
				return
			}
			attempt++
			continue
		}
		attempt = 0
		d.store(ctx, queue)
		d.mu.Lock()
		for _, b := range queue {
			d.spare = append(d.spare, b.outs)
		}
		d.queue = append(d.queue[:0], d.queue[len(queue):]...)
		d.mu.Unlock()
	}
}

func (d *direct) store(ctx context.Context, batches []directBatch) {
	s, newest := d.s, int64(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	app := s.rig.reg.eng.Storage().Appender(ctx)
	for _, b := range batches {
		for i := range b.outs {
			o := &b.outs[i]
			for i >= len(b.of.stored) {
				b.of.stored = append(b.of.stored, storedSeries{})
			}
			st := &b.of.stored[i] // a page has the same order each time
			if st.life != s.born || !labels.Equal(st.from, o.Labels) {
				*st = storedSeries{o.Labels, s.born, s.find(o.Labels)}
			}
			ref, err := app.Append(st.ref, st.labels, o.T, o.V)
			if err != nil {
				continue // refused, as a regional does
			}
			st.ref, newest = ref, max(newest, o.T)
		}
	}
	if err := app.Commit(); err != nil {
		s.rig.t.Errorf("%s: %v", s.sc.Name, err)
	}
	s.live.LastPush = time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.newest = max(d.newest, newest)
}

// find is the site's series of the labels that its collector gives it.
func (s *simulated) find(ls labels.Labels) *stamped {
	key := ls.Hash()
	st := s.refs[key]
	if st == nil {
		var pairs []string
		ls.Range(func(l labels.Label) { pairs = append(pairs, l.Name, l.Value) })
		st = s.stamp(pairs)
		s.refs[key] = st
	}
	return st
}
