package intake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"muster.dev/muster/internal/turns"
	"muster.dev/muster/regional/logs/store"
)

// zstdWindow is the largest window that a sender's zstd frame may ask for, in bytes.
const zstdWindow = 8 << 20

// workBytes is what queueing a message takes beside its payload, at most: the open
// batch, and its compressed form.
const workBytes = 3 * batchBytes

// delivery is one message or request on its way into the queue.
type delivery struct {
	site     *site
	region   string
	tag      []byte
	hash     hash
	records  iter.Seq2[entry, error]
	wantTime bool // the records' own fields hold their times
	// repeats says that the sender may send the same bytes for other lines: those
	// without a time of their own are told apart by when they were received.
	repeats bool
	// wait is until when to wait for room in the queue; without a deadline a full
	// queue is an error at once.
	wait context.Context
}

// outcome counts what became of the records.
type outcome struct {
	lines, dropped, malformed, marks int
	tooOld                           int    // older than the store keeps lines
	total                            int    // entries, of all kinds
	first                            string // what is wrong with the first malformed one
}

// worker has the buffers for one delivery at a time.
type worker struct {
	in     *Intake
	reader reader
	batch  batch
	out    []byte
	turn   *turns.Turn // while it reads records, and not while it waits for the disk
}

// begin waits for a processor. It comes without a deadline: who has one gives it back.
func (w *worker) begin(s *site) {
	w.turn, _ = w.in.opts.Processors.Begin(context.Background(), turns.Class{Tenant: s.id.Tenant})
}

// passEvery is after how many records others may go on.
const passEvery = 256

func (in *Intake) newWorker() *worker {
	return &worker{in: in, reader: reader{maxLine: in.opts.MaxLineBytes}}
}

// release gives large buffers back.
func (w *worker) release() {
	if cap(w.batch.buf) > keepBuffer {
		w.batch.buf = nil
	}
	if cap(w.out) > keepBuffer {
		w.out = nil
	}
	if cap(w.reader.text) > keepBuffer {
		w.reader.text = nil
	}
}

// deliver puts the records into the queue. When it returns nil, all that are wanted
// are on disk. After an error some may be; they will come again, with the same ids
// unless delivery.repeats says otherwise.
func (w *worker) deliver(d delivery) (outcome, error) {
	var o outcome
	var l line
	var group value
	now := w.in.opts.Now()
	oldest, newest := now.Add(-w.in.opts.MaxPast).UnixNano(), now.Add(w.in.opts.MaxAhead).UnixNano()
	kept := oldest
	if r := w.in.opts.Retention; r > 0 {
		kept = store.Day(now.Add(-r)).UnixNano()
	}
	streams := d.site.streams()
	w.batch.reset(d.site.id, d.region, d.hash.prefix())
	var failed error
	retimed, paid := 0, 0
	w.begin(d.site)
	defer func() { w.turn.End() }()
	for e, err := range d.records {
		index := o.total
		if o.total++; o.total%passEvery == 0 {
			_ = w.turn.Pass(context.Background())
		}
		switch {
		case err != nil || e.malformed:
			if o.malformed++; o.first == "" {
				o.first = fmt.Sprintf("record %d: want [time, record] or [[time, metadata], record]", index+1)
				if err != nil {
					o.first = fmt.Sprintf("record %d: %v", index+1, err)
				}
			}
			continue
		case e.group == groupStart:
			o.marks++
			group = e.record
			continue
		case e.group == groupEnd:
			o.marks++
			group = value{}
			continue
		}
		l.index, l.time = index, e.time
		w.reader.read(&l, d.tag, e.record, e.meta, group, d.wantTime)
		l.received = d.repeats && l.time == 0
		if l.time < oldest || l.time > newest {
			if l.time != 0 {
				retimed++
			}
			l.time = now.UnixNano()
		}
		if l.time < kept {
			o.tooOld++
			continue
		}
		if !streams.wants(&l) {
			o.dropped++
			continue
		}
		o.lines++
		w.batch.add(&l)
		if len(w.batch.buf) >= batchBytes || w.batch.lines >= batchLines {
			// As they come, so that what else the site sends meanwhile finds the debt.
			d.site.pay(now, 0, o.total-paid)
			paid = o.total
			if failed = w.put(d.site, d.wait); failed != nil {
				break
			}
			w.begin(d.site)
		}
	}
	if failed == nil && w.batch.lines > 0 {
		failed = w.put(d.site, d.wait)
	}
	d.site.pay(now, 0, o.total-paid)
	if failed == nil {
		w.in.quota.add(d.site.id.Tenant, int64(o.lines)*lineBytes)
	}
	w.account(d.site, o, retimed)
	return o, failed
}

// Errors of a delivery that the sender must repeat.
var (
	errQueueFull  = errors.New("the log queue is full")
	errQueueWrite = errors.New("the log queue can't be written")
)

// put queues the open batch, and ends the turn.
func (w *worker) put(s *site, wait context.Context) error {
	w.out = w.in.codec.encode(w.out[:0], &w.batch)
	lines := w.batch.lines
	w.batch.clear()
	w.turn.End()
	for {
		err := w.in.queue.append(s, lines, w.out)
		if err == nil {
			return nil
		}
		// A disk that is full or broken is no different to the sender: it keeps the
		// lines. To the operator it is.
		if !errors.Is(err, errQueueFull) {
			err = fmt.Errorf("%w: %w", errQueueWrite, err)
		}
		w.in.queueFull(s, err)
		if wait == nil || !pause(wait, 100*time.Millisecond) {
			return err
		}
	}
}

// queueFull begins the condition of a site for whose lines there is no room.
func (in *Intake) queueFull(s *site, err error) {
	s.mu.Lock()
	s.refusedAt = in.opts.Now()
	s.mu.Unlock()
	msg := "log lines wait at the senders: the regional's queue has no more room for the site or its tenant until the store takes what is in it"
	if !errors.Is(err, errQueueFull) {
		msg = "log lines wait at the senders: the regional can't write its log queue"
	}
	if in.status.set(Condition{Site: s.id, Type: ConditionQueueFull, Message: msg}, true) {
		in.log.Warn("log lines are not acknowledged", "site", s.id.String(), "err", err)
	}
	in.metrics.full.Set(1)
}

// pause returns false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *worker) account(s *site, o outcome, retimed int) {
	m := w.in.metrics
	m.lines.WithLabelValues(s.id.Tenant, s.id.Name).Add(float64(o.lines))
	count := func(reason string, n int) {
		if n > 0 {
			m.dropped.WithLabelValues(reason).Add(float64(n))
		}
	}
	count("stream", o.dropped)
	count("malformed", o.malformed)
	count("too_old", o.tooOld)
	m.changed.WithLabelValues("utf8").Add(float64(w.reader.repaired))
	m.changed.WithLabelValues("truncated").Add(float64(w.reader.truncated))
	m.changed.WithLabelValues("time").Add(float64(retimed))
	if w.reader.repaired > 0 {
		w.in.warn(s, "utf8", "log lines with bytes that are no UTF-8; they were replaced by U+FFFD", "fields", w.reader.repaired)
	}
	if o.tooOld > 0 {
		w.in.warn(s, "too old", "log lines that are older than the store keeps any were left out", "lines", o.tooOld, "retention", w.in.opts.Retention)
	}
	if o.malformed > 0 {
		w.in.warn(s, "malformed", "log entries that are no records were left out", "entries", o.malformed, "first", o.first)
	}
	m.changed.WithLabelValues("labels").Add(float64(w.reader.unlabelled))
	w.reader.repaired, w.reader.truncated, w.reader.unlabelled = 0, 0, 0
	s.mu.Lock()
	s.lines += uint64(o.lines)
	s.dropped += uint64(o.dropped + o.tooOld)
	s.malformed += uint64(o.malformed)
	s.mu.Unlock()
}

// noWait has ended: what is not to be had at once is refused.
var noWait = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()

// budget waits until the site may send, as long as ctx allows, and then takes n
// bytes. It returns how long the site still has to wait if ctx ended first, or if the
// tenant's quota of the day is used up.
func (in *Intake) budget(ctx context.Context, s *site, n int) (time.Duration, error) {
	s.configure(in.opts.Now(), in.limits(s.id))
	for {
		debt := s.debt(in.opts.Now())
		if debt <= 0 {
			break
		}
		in.overBudget(s, true)
		if !pause(ctx, min(debt, time.Second)) {
			return debt, errOverBudget
		}
	}
	if err := in.quota.take(s.id.Tenant, int64(n)); err != nil {
		return in.overQuota(s, err), err
	}
	s.pay(in.opts.Now(), n, 0)
	s.mu.Lock()
	s.bytes += uint64(n)
	s.mu.Unlock()
	in.metrics.bytes.WithLabelValues(s.id.Tenant, s.id.Name).Add(float64(n))
	return 0, nil
}

var errOverBudget = errors.New("the site sends more log lines or bytes than its budget")

// overQuota begins the condition of a site whose tenant may log no more today. It
// returns how long to wait.
func (in *Intake) overQuota(s *site, err error) time.Duration {
	var q *quotaError
	if !errors.As(err, &q) {
		return time.Minute
	}
	s.mu.Lock()
	s.overQuota = true
	s.mu.Unlock()
	in.metrics.refused.WithLabelValues("quota").Inc()
	in.status.set(Condition{Site: s.id, Type: ConditionOverQuota, Message: err.Error()}, true)
	return q.until
}

func (in *Intake) overBudget(s *site, over bool) {
	s.mu.Lock()
	changed := s.overBudget != over
	s.overBudget = over
	bytes, lines, asked := s.byteRate.Limit(), s.lineRate.Limit(), s.asked
	s.mu.Unlock()
	if changed {
		budget := fmt.Sprintf("%.0f bytes and %.0f lines a second", float64(bytes), float64(lines))
		if asked > 0 {
			budget += fmt.Sprintf(" (limited by the regional: its policy asks for %d bytes)", asked)
		}
		in.status.set(Condition{Site: s.id, Type: ConditionOverBudget, Message: "sends more logs than its budget of " + budget + "; lines are delayed, not lost"}, over)
	}
}

// unpackers are decompressors that are used again.
type unpackers struct{ gzip, zstd sync.Pool }

var errCompression = errors.New("unknown compression; want gzip or zstd")

// decompress unpacks b into memory of the lease, with its overlong texts cut by trim.
func (in *Intake) decompress(ctx context.Context, l *lease, how string, b []byte, trim func(io.Reader) io.Reader) ([]byte, error) {
	return in.unpackFrom(ctx, l, how, bytes.NewReader(b), len(b), trim)
}

// unpackFrom decompresses r, cuts what comes out by trim, and returns that, up to
// MaxPayloadBytes.
func (in *Intake) unpackFrom(ctx context.Context, l *lease, how string, r io.Reader, guess int, trim func(io.Reader) io.Reader) ([]byte, error) {
	whole := func(r io.Reader) ([]byte, error) {
		return in.readAll(ctx, l, trim(&paced{r: r, limit: times(in.opts.MaxPayloadBytes, oversize)}), in.opts.MaxPayloadBytes, guess, nil)
	}
	switch how {
	case "":
		return whole(r)
	case "gzip":
		z, _ := in.unpack.gzip.Get().(*gzip.Reader)
		if z == nil {
			z = new(gzip.Reader)
		}
		defer in.unpack.gzip.Put(z)
		if err := z.Reset(r); err != nil {
			return nil, err
		}
		return whole(z)
	case "zstd":
		if err := l.grow(ctx, zstdWindow); err != nil {
			return nil, err
		}
		defer l.shrink(zstdWindow)
		z, _ := in.unpack.zstd.Get().(*zstd.Decoder)
		if z == nil {
			var err error
			if z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow)); err != nil {
				return nil, err
			}
		}
		defer in.unpack.zstd.Put(z)
		if err := z.Reset(r); err != nil {
			return nil, err
		}
		defer func() { _ = z.Reset(nil) }()
		return whole(z)
	case "snappy": // Fluent Bit's http output: one block
		b, err := in.readAll(ctx, l, r, in.opts.MaxMessageBytes, guess, nil)
		if err != nil {
			return nil, err
		}
		n, err := s2.DecodedLen(b)
		if err != nil {
			return nil, err
		}
		if n > in.opts.MaxPayloadBytes {
			return nil, errLarge
		}
		if err := l.grow(ctx, int64(n)); err != nil {
			return nil, err
		}
		if b, err = s2.Decode(nil, b); err != nil {
			return nil, err
		}
		return whole(bytes.NewReader(b))
	}
	return nil, errCompression
}

// readAll reads r to its end into a buffer that grows as bytes come, in the lease
// before in fact, up to limit bytes. before, if not nil, is called before each read
// with what has come so far.
func (in *Intake) readAll(ctx context.Context, l *lease, r io.Reader, limit, guess int, before func(int)) ([]byte, error) {
	n := min(max(guess, 4<<10), limit+1)
	if err := l.grow(ctx, int64(n)); err != nil {
		return nil, err
	}
	buf := make([]byte, 0, n)
	for {
		if len(buf) == cap(buf) {
			if len(buf) > limit {
				return nil, errLarge
			}
			n := min(2*cap(buf), limit+1)
			// Old and new are held until the copy is done.
			if err := l.grow(ctx, int64(n)); err != nil {
				return nil, err
			}
			bigger := append(make([]byte, 0, n), buf...)
			l.shrink(int64(cap(buf)))
			buf = bigger
		}
		if before != nil {
			before(len(buf))
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > limit:
			return nil, errLarge
		case errors.Is(err, io.EOF):
			return buf, nil
		case err != nil:
			return nil, err
		}
	}
}
