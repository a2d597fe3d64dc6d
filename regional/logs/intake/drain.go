package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"muster.dev/muster/internal/backoff"
	"muster.dev/muster/internal/spool"
	"muster.dev/muster/regional/logs/store"
)

// Sink is where the lines go; a store.Store is one. Write is called by several
// goroutines at once, with records of one tenant. It says record by record what
// became of it; a record that is stored already, by its ID, must not be stored
// twice. After an error all of them are written again later.
type Sink interface {
	Write(ctx context.Context, records []Record) (store.Result, error)
}

// gather is how long a short write waits for more records.
const gather = 20 * time.Millisecond

// load is what one call of Write gets, and what to acknowledge after it: when all
// of its records are taken or dead letters, never before.
type load struct {
	tenant  string
	records []Record // those that are not taken yet
	bytes   int      // about what they take in memory
	items   []item
}

// loadBytes bounds a load, with the lines of one batch more.
const loadBytes = 4 << 20

// drain moves batches from the queue to the sink, several at a time, until ctx ends.
func (in *Intake) drain(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	down := outage{in: in}
	wg.Go(func() { in.park.run(ctx, &down) })
	in.queue.run(ctx, func(ctx context.Context, ln *lane) { in.drainLane(ctx, ln, &down) })
	return nil
}

// drainLane writes what one lane holds, as many loads at a time as slots lets it.
func (in *Intake) drainLane(ctx context.Context, ln *lane, down *outage) {
	var wg sync.WaitGroup
	defer wg.Wait()
	var held *spool.Record
	for {
		rec := held
		held = nil
		if rec == nil {
			next, err := ln.sp.Next(ctx)
			if ctx.Err() != nil || errors.Is(err, spool.ErrClosed) {
				return
			}
			if err != nil {
				in.log.Error("reading the log queue failed", "tenant", ln.tenant.name, "err", err)
				if !pause(ctx, time.Second) {
					return
				}
				continue
			}
			rec = &next
		}
		// What waits for its turn is one record as it is on disk, not a load.
		if !in.slots.acquire(ctx, ln, false) {
			return
		}
		l, rest := in.collect(ctx, ln, *rec)
		held = rest
		if l == nil {
			in.slots.release(ln.tenant.name)
			continue
		}
		wg.Go(func() {
			if in.write(ctx, ln, l, down) {
				in.slots.release(ln.tenant.name)
			}
		})
	}
}

// collect makes a load of a record and those behind it in its lane, until they are
// enough for a write or no more come. A record that does not fit is handed back, to
// begin the next load. It returns no load if there is nothing to write.
func (in *Intake) collect(ctx context.Context, ln *lane, rec spool.Record) (*load, *spool.Record) {
	l := &load{tenant: ln.tenant.name}
	in.open(l, ln, rec)
	wait, cancel := context.WithTimeout(ctx, gather)
	defer cancel()
	for len(l.records) < in.opts.WriteLines && l.bytes < loadBytes {
		if st := ln.sp.Stats(); st.Pending <= uint64(st.InFlight) && in.slots.contended() {
			break // nobody else waits for what may come
		}
		rec, err := ln.sp.Next(wait)
		if err != nil {
			break // an error of the disk will come again
		}
		if len(l.records) > 0 && len(l.records)+linesOf(rec.Data) > in.opts.WriteLines {
			return l, &rec
		}
		in.open(l, ln, rec)
	}
	if len(l.records) == 0 {
		return nil, nil
	}
	return l, nil
}

// open adds a batch to a load. One that can't be read is damage that the spool's
// checksum has not seen, or from another version: it is kept as a dead letter.
func (in *Intake) open(l *load, ln *lane, rec spool.Record) {
	it := item{lane: ln, seq: rec.Seq, bytes: int64(len(rec.Data)) + recordBytes}
	records, err := in.codec.decode(rec.Data)
	if err == nil && len(records) > 0 && records[0].Tenant != l.tenant {
		err = fmt.Errorf("%w of tenant %s", errBatch, l.tenant)
	}
	if err == nil && len(records) > 0 {
		it.site, it.lines = records[0].Site, len(records)
		l.records = append(l.records, records...)
		l.items = append(l.items, it)
		for i := range records {
			l.bytes += sizeOf(&records[i])
		}
		return
	}
	if err != nil {
		in.log.Error("a batch of the log queue can't be read; it is kept with the dead letters", "tenant", l.tenant, "seq", rec.Seq, "err", err)
		if err := in.dead.add(l.tenant, []deadLetter{{At: in.opts.Now(), Reason: err.Error(), Batch: rec.Data}}); err != nil {
			in.log.Error("writing a dead letter failed", "err", err)
		}
	}
	in.queue.done([]item{it})
}

// sizeOf is about what a record takes in memory.
func sizeOf(r *Record) int {
	n := len(r.Message) + 256
	for k, v := range r.Labels {
		n += len(k) + len(v) + 32
	}
	return n
}

// write tries until the sink has taken the load, its rest is parked or ctx ends. It
// returns whether the lane's slot is still held.
func (in *Intake) write(ctx context.Context, ln *lane, l *load, down *outage) bool {
	failing, stalled := false, false
	defer func() {
		if failing {
			down.end(ctx)
		}
		if stalled {
			in.slots.stall(l.tenant, -1)
			in.park.stalled(l, -1)
		}
	}()
	bound := in.opts.MinBackoff
	for {
		left, err := in.attempt(ctx, l.tenant, l.records)
		if err == nil {
			in.queue.done(l.items)
			return true
		}
		if ctx.Err() != nil {
			return true
		}
		if len(left) < len(l.records) {
			bound = in.opts.MinBackoff // it takes some
		}
		l.records = left
		in.metrics.retried.Inc()
		refused := errors.Is(err, errNotTaken)
		if refused && in.park.add(l, err) {
			return true
		}
		wait := backoff.Jitter(bound)
		bound = min(2*bound, in.opts.MaxBackoff)
		if refused {
			// The park is full of this tenant's: it waits, and nobody else does.
			if !stalled {
				stalled = true
				in.slots.stall(l.tenant, 1)
				in.park.stalled(l, 1)
			}
			in.slots.release(l.tenant)
			if !pause(ctx, wait) || !in.slots.acquire(ctx, ln, true) {
				return false
			}
			continue
		}
		if !failing {
			failing = true
			down.begin(err)
			in.log.Warn("writing log lines to the store failed; trying again", "tenant", l.tenant, "lines", len(left), "err", err)
		}
		if !pause(ctx, wait) {
			return true
		}
	}
}

// outage counts those that wait because the store is down.
type outage struct {
	in *Intake
	mu sync.Mutex
	n  int
}

func (o *outage) begin(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
	o.in.metrics.storeDown.Set(1)
	o.in.status.set(Condition{Type: ConditionStoreDown, Message: "log lines wait in the queue: " + err.Error()}, true)
}

// end at the end of ctx says nothing of the store.
func (o *outage) end(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n--; o.n == 0 && ctx.Err() == nil {
		o.in.metrics.storeDown.Set(0)
		o.in.status.set(Condition{Type: ConditionStoreDown}, false)
	}
}

// errNotTaken: the store answers, and some records must be written again. What else
// goes wrong concerns all loads.
var errNotTaken = errors.New("not taken")

// attempt writes once. With an error it returns the records that must be written
// again.
func (in *Intake) attempt(ctx context.Context, tenant string, records []Record) ([]Record, error) {
	res, err := in.opts.Sink.Write(ctx, records)
	if err != nil {
		return records, err
	}
	for _, f := range append(slices.Clone(res.Dead), res.Retry...) {
		if f.Index < 0 || f.Index >= len(records) {
			return records, fmt.Errorf("the store speaks of record %d of %d", f.Index, len(records))
		}
	}
	if err := in.bury(tenant, records, res.Dead); err != nil {
		return records, fmt.Errorf("keep refused log lines: %w", err)
	}
	in.metrics.written.Add(float64(len(records) - len(res.Dead) - len(res.Retry)))
	in.metrics.duplicates.Add(float64(res.Duplicates))
	if len(res.Retry) == 0 {
		return nil, nil
	}
	left := make([]Record, 0, len(res.Retry))
	for _, f := range res.Retry {
		left = append(left, records[f.Index])
	}
	return left, fmt.Errorf("%d of %d records %w: %s", len(left), len(records), errNotTaken, res.Retry[0].Reason)
}

// bury keeps records that the store will never take. They are done with then.
func (in *Intake) bury(tenant string, records []Record, dead []store.Failure) error {
	if len(dead) == 0 {
		return nil
	}
	now := in.opts.Now()
	letters := make([]deadLetter, 0, len(dead))
	for _, f := range dead {
		letters = append(letters, deadLetter{At: now, Reason: f.Reason, Record: &records[f.Index]})
	}
	if err := in.dead.add(tenant, letters); err != nil {
		return err
	}
	in.metrics.deadLettered.Add(float64(len(letters)))
	in.log.Warn("the store refused log lines; they are kept with the dead letters", "directory", in.dead.dir, "tenant", tenant, "lines", len(letters), "reason", letters[0].Reason)
	return nil
}
