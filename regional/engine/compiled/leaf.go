package compiled

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/schema"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// Lookback is how far PromQL looks for the sample of an instant, unless it is told.
const Lookback = 5 * time.Minute

// leaf is a selector of one metric, with the function of its range if it has one.
type leaf struct {
	vector
	metric   string
	matchers []*labels.Matcher // but for the name
	offset   int64             // milliseconds, as window
	window   int64             // of the range, or the lookback
	// One of: a function of Prometheus' for the range; the sample's time instead of its
	// value; its value.
	fn     promql.FunctionCall
	fnName string
	args   parser.Expressions
	time   bool

	// Series of the metric, in the order of the index, and their elements; -1 for those
	// that the matchers leave out.
	refs []storage.SeriesRef
	elem []int32

	family *family  // guarded by Recent; nil: all is read out of the head
	keeps  bool     // there is a family, or was before the program was closed
	slots  []uint32 // of the series, in family; what drops series makes them wrong
}

func (l *leaf) reset() { l.refs, l.elem, l.slots = nil, nil, nil }

// sparse says that most elements are of series that are gone.
func (l *leaf) sparse() bool { return len(l.values) > 2*len(l.refs)+1000 }

func (*leaf) grow()            {}
func (*leaf) eval(int64) error { return nil } // see read

// find brings the table to the series that the head has.
func (l *leaf) find(ctx context.Context, r *reader) error {
	p, err := r.index.Postings(ctx, labels.MetricName, l.metric)
	if err != nil {
		return err
	}
	// Nearly always all that are known are there, and what is new comes after them.
	known := 0
	var others []storage.SeriesRef // from the first on that is not where it was
	for p.Next() {
		if ref := p.At(); known < len(l.refs) && others == nil && l.refs[known] == ref {
			known++
		} else {
			others = append(others, ref)
		}
	}
	if err := p.Err(); err != nil {
		return err
	}
	if known < len(l.refs) {
		others = l.reorder(known, others, r.recent)
	}
	for _, ref := range others {
		l.refs, l.elem, l.slots = append(l.refs, ref), append(l.elem, l.meet(r, ref)), append(l.slots, 0)
	}
	return nil
}

// reorder is for an index from which series are gone, or in which new ones are not at the
// end: of others, which come after the first known ones, it leaves those that are known, and
// returns the rest, which are new.
func (l *leaf) reorder(known int, others []storage.SeriesRef, recent *Recent) (fresh []storage.SeriesRef) {
	type had struct {
		elem int32
		slot uint32
	}
	rest := make(map[storage.SeriesRef]had, len(l.refs)-known)
	for i, ref := range l.refs[known:] {
		rest[ref] = had{l.elem[known+i], l.slots[known+i]}
	}
	l.refs, l.elem, l.slots = l.refs[:known], l.elem[:known], l.slots[:known]
	for _, ref := range others {
		if h, ok := rest[ref]; ok {
			l.refs, l.elem, l.slots = append(l.refs, ref), append(l.elem, h.elem), append(l.slots, h.slot)
			delete(rest, ref)
		} else {
			fresh = append(fresh, ref)
		}
	}
	for ref := range rest {
		recent.drop(ref)
	}
	return fresh
}

// meet returns the element of a series that was not known.
func (l *leaf) meet(r *reader, ref storage.SeriesRef) int32 {
	if r.index.Series(ref, &r.builder, nil) != nil {
		return -1 // gone since; an index never gives a reference twice
	}
	ls := r.builder.Labels()
	for _, m := range l.matchers {
		if !m.Matches(ls.Get(m.Name)) {
			return -1
		}
	}
	if l.fn != nil || l.time {
		ls = nameless(ls)
	}
	return l.add(ls)
}

func nameless(ls labels.Labels) labels.Labels { return ls.DropReserved(schema.IsMetadataLabel) }

// together is how many series are read before others may go on.
const together = 512

// read sets the values.
func (l *leaf) read(r *reader, ts int64) error {
	l.clear()
	for from := 0; from < len(l.refs); from += together {
		if from > 0 {
			if err := r.pass(); err != nil {
				return err
			}
		}
		if err := l.readSome(r, ts, from, min(from+together, len(l.refs))); err != nil {
			return err
		}
	}
	return nil
}

func (l *leaf) readSome(r *reader, ts int64, from, to int) error {
	if l.keeps { // others are read out of the head, beside those who push
		r.recent.mu.Lock()
		defer r.recent.mu.Unlock()
	}
	r.current = false
	maxt := ts - l.offset
	mint := maxt - l.window
	for i := from; i < to; i++ {
		e := l.elem[i]
		if e < 0 {
			continue
		}
		if l.fn == nil {
			p, ok, err := l.last(r, i, mint, maxt)
			switch {
			case err != nil:
				return err
			case !ok || value.IsStaleNaN(p.F):
			case l.time:
				l.values[e] = float64(p.T) / 1000
			default:
				l.values[e] = p.F
			}
			continue
		}
		floats, err := l.floats(r, i, mint, maxt)
		if err != nil {
			return err
		}
		floats = slices.DeleteFunc(floats, func(p promql.FPoint) bool { return value.IsStaleNaN(p.F) })
		if len(floats) == 0 {
			continue
		}
		r.helper.Ts, r.helper.Out, r.matrix[0].Floats = ts, r.helper.Out[:0], floats
		if out, _ := l.fn(nil, r.matrix, l.args, &r.helper); len(out) > 0 {
			l.values[e], r.helper.Out = out[0].F, out
		}
	}
	return nil
}

// last returns the newest sample of a series after mint and not after maxt.
func (l *leaf) last(r *reader, i int, mint, maxt int64) (p promql.FPoint, ok bool, err error) {
	var k kept
	if l.family != nil {
		k = r.recent.keptLocked(l.family, l.refs[i], &l.slots[i])
		if p, ok, known := k.newest(mint, maxt, l.time); known {
			r.recent.use.Kept++
			return p, ok, nil
		}
	}
	floats, err := r.fill(k, l.refs[i], mint, maxt)
	if n := len(floats); n > 0 {
		return floats[n-1], true, err
	}
	return p, false, err
}

// floats returns the samples of a series after mint and not after maxt, or one of each run
// of the same. They are good until the next call.
func (l *leaf) floats(r *reader, i int, mint, maxt int64) ([]promql.FPoint, error) {
	var k kept
	if l.family != nil {
		k = r.recent.keptLocked(l.family, l.refs[i], &l.slots[i])
		var known bool
		if r.points, known = k.between(r.points[:0], mint, maxt); known {
			r.recent.use.Kept++
			return r.points, nil
		}
	}
	return r.fill(k, l.refs[i], mint, maxt)
}

// maxSamples of one series are read, with those before the window that its chunk has. The
// meter that stands before PromQL knows what to do with more.
const maxSamples = 20_000

// reader reads out of a head.
type reader struct {
	recent  *Recent
	head    *tsdb.Head
	mint    int64 // of all that is read
	current bool  // chunks has what was told
	index   *tsdb.HeadAndOOOIndexReader
	chunks  tsdb.ChunkReader
	late    *tsdb.HeadAndOOOChunkReader // for chunks in which late samples are
	builder labels.ScratchBuilder
	metas   []chunks.Meta
	iter    chunkenc.Iterator
	points  []promql.FPoint
	matrix  promql.Matrix
	helper  promql.EvalNodeHelper
	pass    func() error
}

// ahead is how far a sample may be before the time at which it came, in milliseconds: twice
// what gateways allow.
const ahead = int64(20 * 60 * 1000)

// inBlocks says whether a block may have samples after mint. Late samples are moved into
// blocks that reach beyond the head's beginning, but had come when their block was made.
func inBlocks(db *tsdb.DB, mint int64) bool {
	return slices.ContainsFunc(db.Blocks(), func(b *tsdb.Block) bool {
		m := b.Meta()
		late := m.Compaction.FromOutOfOrder() && int64(m.ULID.Time())+ahead < mint
		return m.MaxTime > mint && !late
	})
}

// open prepares to read what leaves need at a moment, if all of it is in the head.
func open(db *tsdb.DB, recent *Recent, leaves []*leaf, ts int64) (*reader, error) {
	mint := int64(math.MaxInt64)
	for _, l := range leaves {
		mint = min(mint, ts-l.offset-l.window)
	}
	// To no end: what is kept of a series has all that is newer.
	head, maxt := db.Head(), int64(math.MaxInt64)
	r := &reader{
		recent: recent, head: head, mint: mint,
		index:  tsdb.NewHeadAndOOOIndexReader(head, mint, mint, maxt, 0),
		late:   tsdb.NewHeadAndOOOChunkReader(head, mint, maxt, nil, nil, 0),
		matrix: promql.Matrix{{}},
	}
	if err := r.reopen(); err != nil {
		return nil, err
	}
	// In this order: who reads is known, so a truncation that begins now waits.
	if busy, _, _ := head.IsQuerierCollidingWithTruncation(mint, maxt); busy || inBlocks(db, mint) {
		r.close()
		return nil, unsupported("samples that may be in blocks")
	}
	return r, nil
}

// reopen goes on with a reader of what is committed by now.
func (r *reader) reopen() error {
	now, err := tsdb.NewRangeHead(r.head, r.mint, math.MaxInt64).Chunks()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if r.chunks != nil {
		r.close()
	}
	r.chunks = now
	return nil
}

func (r *reader) close() { _ = r.chunks.Close() }

// samples returns an iterator over a chunk.
func (r *reader) samples(m chunks.Meta) (chunkenc.Iterator, error) {
	from := r.chunks
	if m.Chunk != nil {
		from = r.late
	}
	c, several, err := from.ChunkOrIterable(m)
	switch {
	case err != nil:
		return nil, err
	case several != nil:
		r.iter = several.Iterator(r.iter)
	default:
		r.iter = c.Iterator(r.iter)
	}
	return r.iter, nil
}

// chunksOf returns the chunks of a series; none if it is gone.
func (r *reader) chunksOf(ref storage.SeriesRef) ([]chunks.Meta, error) {
	err := r.index.Series(ref, &r.builder, &r.metas)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	return r.metas, err
}

// fill reads the samples of a series after mint and keeps the newest, if there is where to
// keep them. It returns those not after maxt, which are good until the next call. Recent is
// locked if there is.
func (r *reader) fill(k kept, ref storage.SeriesRef, mint, maxt int64) ([]promql.FPoint, error) {
	if !r.current {
		if err := r.reopen(); err != nil {
			return nil, err
		}
		r.current = true
	}
	r.recent.head.Add(1)
	metas, err := r.chunksOf(ref)
	r.points = r.points[:0]
	for _, m := range metas {
		if err == nil {
			err = r.each(m, mint)
		}
	}
	if err != nil {
		return nil, err
	}
	if k.slot != nil {
		k.since, k.n = mint, 0
		for _, p := range r.points {
			k.add(p.T, p.F)
		}
	}
	n := len(r.points)
	for n > 0 && r.points[n-1].T > maxt {
		n--
	}
	return r.points[:n], nil
}

// each appends the samples of a chunk that are after mint.
func (r *reader) each(m chunks.Meta, mint int64) error {
	if m.MaxTime <= mint {
		return nil
	}
	it, err := r.samples(m)
	if errors.Is(err, storage.ErrNotFound) {
		return nil // gone since
	} else if err != nil {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	for n := 0; ; n++ {
		switch it.Next() {
		case chunkenc.ValNone:
			return it.Err()
		case chunkenc.ValFloat:
		default:
			return unsupported("a native histogram")
		}
		if n >= maxSamples {
			return unsupported("a series with more than %d samples", maxSamples)
		}
		if t, v := it.At(); t > mint {
			r.points = append(r.points, promql.FPoint{T: t, F: v})
		}
	}
}
