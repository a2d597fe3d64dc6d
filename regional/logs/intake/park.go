package intake

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"muster.dev/muster/internal/backoff"
	"muster.dev/muster/internal/fairshare"
)

// Bounds of the park. A load takes about 4 MiB at most, so that the first one is
// reached with small loads and the second one with large ones.
const (
	parkLoads = 64
	parkBytes = 128 << 20
	// parkGreed: one tenant alone may fill three quarters of it.
	parkGreed = 3
)

// park holds what the store refuses for now while it takes other records: an index
// that is blocked must stop neither its tenant's other days nor other tenants. Its
// loads are not acknowledged, so that a restart finds them in the queue again; what
// the store took of them by then it knows by the ids. Tenants share it as fairshare
// says; one that finds no more room in it waits, and its lanes with it.
type park struct {
	in   *Intake
	wake chan struct{}

	mu    sync.Mutex
	loads []*parked
	bytes int
	extra map[string]int // loads that wait outside, by tenant
}

type parked struct {
	*load
	at      time.Time // of the next attempt
	backoff time.Duration
	reason  string
}

// ParkedStatus is what the store refuses for now of one tenant.
type ParkedStatus struct {
	Tenant string
	Loads  int
	Lines  int
	Reason string // one of them
}

// add returns false if there is no room for the load. Only run writes to a load that is in it.
func (p *park) add(l *load, why error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	loads, bytes := 0, 0
	for _, other := range p.loads {
		if other.tenant == l.tenant {
			loads++
			bytes += other.bytes
		}
	}
	fits := fairshare.Fits(int64(loads), 1, int64(len(p.loads)), parkLoads, parkGreed) &&
		(len(p.loads) == 0 || fairshare.Fits(int64(bytes), int64(l.bytes), int64(p.bytes), parkBytes, parkGreed))
	p.in.status.set(Condition{Type: ConditionParked, Message: "the store refuses log lines of tenant " + l.tenant + ", which wait in the queue: " + why.Error()}, true)
	if !fits {
		return false
	}
	o := &p.in.opts
	p.loads = append(p.loads, &parked{load: l, at: time.Now().Add(backoff.Jitter(o.MinBackoff)), backoff: min(2*o.MinBackoff, o.MaxBackoff), reason: why.Error()})
	p.bytes += l.bytes
	p.in.log.Warn("the store refuses some log lines for now; they are tried again beside the others", "tenant", l.tenant, "lines", len(l.records), "err", why)
	p.countLocked()
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return true
}

// stalled counts loads that the store refuses and that found no room, up or down.
func (p *park) stalled(l *load, by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.extra == nil {
		p.extra = map[string]int{}
	}
	if p.extra[l.tenant] += by; p.extra[l.tenant] == 0 {
		delete(p.extra, l.tenant)
	}
	p.countLocked()
	p.endLocked()
}

// endLocked ends the condition when nothing waits any more.
func (p *park) endLocked() {
	if len(p.loads) == 0 && len(p.extra) == 0 {
		p.in.status.set(Condition{Type: ConditionParked}, false)
	}
}

// run tries the loads again, one at a time, until ctx ends.
func (p *park) run(ctx context.Context, down *outage) {
	failing := false
	defer func() {
		if failing {
			down.end(ctx)
		}
	}()
	for {
		l, wait := p.next()
		if wait > 0 {
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-p.wake:
			case <-ctx.Done():
			}
			t.Stop()
			if ctx.Err() != nil {
				return
			}
			continue
		}
		left, err := p.in.attempt(ctx, l.tenant, l.records)
		if ctx.Err() != nil && err != nil {
			return
		}
		away := err != nil && !errors.Is(err, errNotTaken)
		switch {
		case away && !failing:
			down.begin(err)
		case !away && failing:
			down.end(ctx)
		}
		failing = away
		if err == nil {
			p.in.queue.done(l.items)
		} else {
			p.in.metrics.retried.Inc()
		}
		p.tried(l, left, err)
	}
}

// next returns the load whose turn it is, or how long that takes.
func (p *park) next() (*parked, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.loads) == 0 {
		return nil, time.Hour // add wakes
	}
	l := slices.MinFunc(p.loads, func(a, b *parked) int { return a.at.Compare(b.at) })
	return l, time.Until(l.at)
}

// tried takes a load out of the park, or sets its next attempt.
func (p *park) tried(l *parked, left []Record, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.countLocked()
	o := &p.in.opts
	if err != nil {
		if len(left) < len(l.records) {
			l.backoff = o.MinBackoff
		}
		l.records, l.reason = left, err.Error()
		l.at = time.Now().Add(backoff.Jitter(l.backoff))
		l.backoff = min(2*l.backoff, o.MaxBackoff)
		return
	}
	p.loads = slices.DeleteFunc(p.loads, func(other *parked) bool { return other == l })
	p.bytes -= l.bytes
	now := time.Now()
	for _, other := range p.loads { // what held this one up may be over for them too
		if other.tenant == l.tenant && other.at.After(now) {
			other.at, other.backoff = now, o.MinBackoff
		}
	}
	p.endLocked()
}

func (p *park) countLocked() {
	lines := 0
	for _, l := range p.loads {
		lines += len(l.records)
	}
	loads := len(p.loads)
	for _, n := range p.extra {
		loads += n
	}
	p.in.metrics.parkedLoads.Set(float64(loads))
	p.in.metrics.parkedLines.Set(float64(lines))
}

func (p *park) list() []ParkedStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []ParkedStatus
	for _, l := range p.loads {
		i := slices.IndexFunc(out, func(s ParkedStatus) bool { return s.Tenant == l.tenant })
		if i < 0 {
			i = len(out)
			out = append(out, ParkedStatus{Tenant: l.tenant, Reason: l.reason})
		}
		out[i].Loads++
		out[i].Lines += len(l.records)
	}
	slices.SortFunc(out, func(a, b ParkedStatus) int { return cmp.Compare(a.Tenant, b.Tenant) })
	return out
}
