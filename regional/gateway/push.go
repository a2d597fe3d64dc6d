package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"muster.dev/muster/internal/diskshare"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/spool"
	"muster.dev/muster/internal/turns"
)

// Why samples were refused: values of the label "reason".
const (
	reasonSeries     = "series_limit"
	reasonTenant     = "tenant_series_limit"
	reasonRate       = "rate_limit"
	reasonTenantRate = "tenant_rate_limit"
	reasonBody       = "body_limit"
	reasonInFlight   = "requests_limit"
	reasonInvalid    = "invalid"
	reasonFuture     = "future"
	reasonTooOld     = "too_old"
	reasonDuplicate  = "duplicate"
	reasonMalformed  = "malformed"
	reasonMemory     = "memory"
	reasonUnread     = "unread"
	reasonDisk       = "disk"
	reasonConns      = "connections_limit"
	reasonStrangers  = "strangers"
	reasonBusy       = "busy"
)

// arrival is what a push holds while it is read and waits for its turn; it is pooled.
type arrival struct {
	body  []byte
	lease lease
}

// pusher is the working memory of a push that has its turn; it is pooled. There are as
// many as pushes are worked on, and few of the sizes that these may grow to.
type pusher struct {
	raw     []byte
	dec     remotewrite.Decoder
	builder labels.ScratchBuilder
	app     storage.Appender
	region  uint64               // hash of the site's
	series  []remotewrite.Series // what was taken
	plain   bool                 // it is all of the request, and as it was sent
	info    remotewrite.Info     // of what was taken
}

func newPusherPool() *sync.Pool {
	seed := maphash.MakeSeed()
	return &sync.Pool{New: func() any {
		return &pusher{builder: labels.NewScratchBuilder(32), dec: remotewrite.Decoder{Seed: seed}}
	}}
}

// maxPooled is the largest buffer, in bytes, that is kept for the next push, and
// maxPooledBody the same of those that may be many.
const (
	maxPooled     = 1 << 20
	maxPooledBody = 64 << 10
)

func (g *Gateway) putPusher(p *pusher) {
	p.dec.Release()
	clear(p.series)
	p.series, p.app = p.series[:0], nil
	if cap(p.raw) > maxPooled {
		p.raw = nil
	}
	if cap(p.series) > 1<<13 {
		p.series = nil
	}
	g.pushers.Put(p)
}

func (g *Gateway) putArrival(a *arrival) {
	a.lease.free()
	if cap(a.body) > maxPooledBody {
		a.body = nil
	}
	g.arrivals.Put(a)
}

// refusal is an answer other than success. Written counts what was taken anyway.
type refusal struct {
	code       int
	reason     string
	text       string
	retryAfter time.Duration
}

func (r *refusal) Error() string { return r.text }

// outcome counts what became of one push.
type outcome struct {
	samples, histograms int // taken
	exemplars           int
	cost                int // of the request so far, in samples
	raw                 int // bytes that were uncompressed
	refused             map[string]int
	texts               []string // the first few reasons, for the sender
}

// maxTexts is how many different reasons an answer spells out.
const maxTexts = 5

func (o *outcome) refuse(reason string, n int, text string) {
	if o.refused == nil {
		o.refused = map[string]int{}
	}
	o.refused[reason] += n
	if len(o.texts) < maxTexts && !slices.Contains(o.texts, text) {
		o.texts = append(o.texts, text)
	}
}

func (o *outcome) refusedSamples() int {
	n := 0
	for _, v := range o.refused {
		n += v
	}
	return n
}

// handlePush is POST /api/v1/push: remote write 1.0 and 2.0.
//
//	204        everything is in the edge engine and in the forward queue
//	400        something was refused for good; all the rest was taken (see the
//	           X-Prometheus-Remote-Write-*-Written headers), or, if the request
//	           is malformed, nothing
//	401, 403   the certificate (see identity.go)
//	413        the body is over the limit; nothing was taken
//	415        not remote write
//	429, 503   over the rate limit, or too many push at once, or the forward queue is
//	           full: the same request again after Retry-After; nothing is lost
func (g *Gateway) handlePush(w http.ResponseWriter, r *http.Request) {
	began := g.now()
	who, ref := callerOf(r.Context())
	var out outcome
	v2 := false
	if ref == nil {
		s := g.acquire(who.site)
		defer s.release()
		s.use.pushes.Add(1)
		if ref = g.admit(s); ref == nil {
			defer s.inFlight.Add(-1)
			v2, out, ref = g.receive(w, r, s, who)
			g.account(s, &out, ref)
		}
		if ref != nil && ref.code == http.StatusTooManyRequests {
			s.use.refused.Add(1)
		}
	}
	if v2 && (ref == nil || ref.code < 500) {
		h := w.Header()
		h.Set("X-Prometheus-Remote-Write-Samples-Written", strconv.Itoa(out.samples))
		h.Set("X-Prometheus-Remote-Write-Histograms-Written", strconv.Itoa(out.histograms))
		h.Set("X-Prometheus-Remote-Write-Exemplars-Written", strconv.Itoa(out.exemplars))
	}
	if g.outlived(r, who.cert) {
		w.Header().Set("Connection", "close") // in HTTP/2 a GOAWAY, after what is under way
	}
	code := http.StatusNoContent
	if ref == nil && len(out.refused) > 0 {
		ref = &refusal{code: http.StatusBadRequest, text: fmt.Sprintf("accepted %d of %d samples; refused %d: %s",
			out.samples+out.histograms, out.samples+out.histograms+out.refusedSamples(), out.refusedSamples(), strings.Join(out.texts, "; "))}
	}
	if ref != nil {
		code = ref.code
		writeRefusal(w, ref)
	} else {
		w.WriteHeader(code)
	}
	g.metrics.pushes.WithLabelValues(strconv.Itoa(code)).Inc()
	g.metrics.pushSeconds.Observe(g.now().Sub(began).Seconds())
}

func writeRefusal(w http.ResponseWriter, ref *refusal) {
	if ref.retryAfter > 0 {
		// Rounded up: a sender that comes back too early is refused again.
		w.Header().Set("Retry-After", strconv.Itoa(int((ref.retryAfter+time.Second-1)/time.Second)))
	}
	http.Error(w, ref.text, ref.code)
}

// admit decides, before anything is read, whether the site may send now. If it may,
// the caller gives the place in flight back.
func (g *Gateway) admit(s *site) *refusal {
	lim := g.limits(s.id)
	now := g.now()
	n := s.inFlight.Add(1)
	refuse := func(reason string, after time.Duration, format string, args ...any) *refusal {
		s.inFlight.Add(-1)
		return g.limited(s, &refusal{code: http.StatusTooManyRequests, reason: reason, retryAfter: after, text: fmt.Sprintf(format, args...)})
	}
	if n > g.opts.MaxInFlight {
		return refuse(reasonInFlight, time.Second, "site %s has more than %d requests in flight", s.id, g.opts.MaxInFlight)
	}
	s.bucket.set(now, lim.SamplesPerSecond)
	s.tenant.bucket.set(now, lim.TenantSamplesPerSecond)
	if d := s.bucket.wait(now); d > 0 {
		return refuse(reasonRate, d, "site %s is over its limit of %d samples a second (limits.samplesPerSecond)", s.id, lim.SamplesPerSecond)
	}
	if d := s.tenant.bucket.wait(now); d > 0 {
		// When they come back is spread: it is all of the tenant's sites that wait.
		return refuse(reasonTenantRate, d+rand.N(busyPause), "tenant %s is over its limit of %d samples a second (limits.tenantSamplesPerSecond)", s.id.Tenant, lim.TenantSamplesPerSecond)
	}
	if err := g.opts.Disk.Admit(s.id.Tenant); err != nil {
		return refuse(reasonDisk, diskshare.Pause+rand.N(diskshare.Pause), "%s", err)
	}
	return nil
}

// receive reads, checks and stores one request.
func (g *Gateway) receive(w http.ResponseWriter, r *http.Request, s *site, who caller) (v2 bool, out outcome, ref *refusal) {
	lim := g.limits(who.site)
	v2, err := remotewrite.IsV2(r.Header.Get("Content-Type"))
	if err != nil {
		return false, out, &refusal{code: http.StatusUnsupportedMediaType, reason: reasonMalformed, text: err.Error()}
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "snappy" {
		return v2, out, &refusal{code: http.StatusUnsupportedMediaType, reason: reasonMalformed, text: fmt.Sprintf("content encoding %q: want snappy", enc)}
	}
	if !g.line.Room(s.id.Tenant) {
		return v2, out, g.refuseBusy() // without a look at the body
	}
	a := g.arrivals.Get().(*arrival)
	defer g.putArrival(a)
	a.lease = lease{m: g.memory, id: s.id}
	defer func() {
		now := g.now()
		// Garbage costs too: a byte of it a hundredth of a sample, or when it is
		// uncompressed, a four hundredth. Histograms cost by the bucket.
		n := max(1+len(a.body)/100, out.raw/400, out.cost)
		s.use.wire.Add(uint64(len(a.body)))
		s.use.raw.Add(uint64(out.raw))
		s.bucket.pay(now, n)
		s.tenant.bucket.pay(now, n)
		g.opts.Disk.Count(s.id.Tenant, out.samples+out.histograms)
	}()
	// The body is read before the push has its turn: a slow line must not hold a slot.
	if ref := g.readBody(w, r, a, lim); ref != nil {
		return v2, out, ref
	}
	durable, out, ref := g.inTurn(r.Context(), a, s, who, v2, lim)
	if ref == nil && durable != nil {
		// The turn is over: who waits for the disk shares a sync with whoever came meanwhile.
		if err := durable(); err != nil {
			ref = g.refuseForward(err)
		}
	}
	if ref != nil {
		return v2, outcome{refused: out.refused, cost: out.cost, raw: out.raw}, ref
	}
	return v2, out, nil
}

// busyPause is the least after which a sender that found no place comes back.
const busyPause = 5 * time.Second

// refuseBusy tells a sender that more push than this regional can take now. When they come
// back is spread: who was refused together must not return together.
func (g *Gateway) refuseBusy() *refusal {
	return &refusal{code: http.StatusTooManyRequests, reason: reasonBusy, retryAfter: busyPause + rand.N(busyPause),
		text: "more sites push at this moment than this regional can take; try again"}
}

// inTurn waits for the push's turn, decodes it and stores it. What was taken is on disk
// when durable, if it is not nil, has returned nil.
func (g *Gateway) inTurn(ctx context.Context, a *arrival, s *site, who caller, v2 bool, lim Limits) (durable func() error, out outcome, ref *refusal) {
	size, err := snappy.DecodedLen(a.body)
	if err != nil {
		return nil, out, &refusal{code: http.StatusBadRequest, reason: reasonMalformed, text: "snappy: " + err.Error()}
	}
	if size > lim.RawBytes {
		return nil, out, &refusal{code: http.StatusRequestEntityTooLarge, reason: reasonBody,
			text: fmt.Sprintf("%d bytes uncompressed, want at most %d (8 times limits.bodyBytes)", size, lim.RawBytes)}
	}
	release, err := g.line.Acquire(ctx, turns.Member{Tenant: s.id.Tenant, Name: s.id.Name}, g.opts.Patience)
	switch {
	case errors.Is(err, turns.ErrFull), errors.Is(err, turns.ErrLate):
		return nil, out, g.refuseBusy()
	case err != nil: // the sender is gone
		return nil, out, &refusal{code: http.StatusServiceUnavailable, retryAfter: time.Second, text: err.Error()}
	}
	defer release()
	defer func(began time.Time) { s.use.work.Add(uint64(time.Since(began))) }(time.Now())
	// Three times: what is taken is encoded again, and packed, for the queue.
	if err := a.lease.grow(3 * int64(size)); err != nil {
		return nil, out, refuseMemory(err)
	}
	p := g.pushers.Get().(*pusher)
	defer g.putPusher(p)
	if p.raw, err = snappy.Decode(p.raw[:cap(p.raw)], a.body); err != nil {
		p.raw = p.raw[:0]
		return nil, out, &refusal{code: http.StatusBadRequest, reason: reasonMalformed, text: "snappy: " + err.Error()}
	}
	durable, ref = g.store(ctx, p, a, s, who, v2, lim, &out)
	out.raw = len(p.raw)
	return durable, out, ref
}

// refuseMemory tells a sender that there is no memory for its request now, or ever.
func refuseMemory(err error) *refusal {
	if errors.Is(err, errNeverFits) {
		return &refusal{code: http.StatusRequestEntityTooLarge, reason: reasonBody, text: "decoded, the request takes " + err.Error() + "; send smaller batches"}
	}
	return &refusal{code: http.StatusTooManyRequests, reason: reasonMemory, retryAfter: 2*time.Second + rand.N(busyPause), text: err.Error() + "; try again"}
}

// firstRead is how much of a body is read at first at most, in bytes; more as it comes.
const firstRead = 32 << 10

func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request, a *arrival, lim Limits) *refusal {
	tooLarge := &refusal{code: http.StatusRequestEntityTooLarge, reason: reasonBody,
		text: fmt.Sprintf("the body has more than %d bytes (limits.bodyBytes); send smaller batches", lim.BodyBytes)}
	a.body = a.body[:0]
	if r.ContentLength > int64(lim.BodyBytes) {
		return tooLarge
	}
	// A sender that dribbles holds a slot of its own site, and not for long.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(g.opts.BodyTimeout))
	first := firstRead
	if n := r.ContentLength; n >= 0 && n < firstRead {
		first = int(n) + 1 // room to see its end: thousands of small ones come together
	}
	for leased := 0; ; {
		if len(a.body) == leased {
			// Memory is leased as bytes come, not as they are announced.
			more := max(leased, first)
			if err := a.lease.grow(int64(more)); err != nil {
				return refuseMemory(err)
			}
			leased += more
			a.body = slices.Grow(a.body, leased-len(a.body))
		}
		n, err := r.Body.Read(a.body[len(a.body):leased])
		a.body = a.body[:len(a.body)+n]
		g.metrics.bytes.Add(float64(n))
		switch {
		case len(a.body) > lim.BodyBytes:
			return tooLarge
		case err == io.EOF:
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
			return nil
		case errors.Is(err, errUnread):
			return refuseMemory(err)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return &refusal{code: http.StatusRequestTimeout, reason: reasonMalformed, text: fmt.Sprintf("the body did not arrive within %s", g.opts.BodyTimeout)}
		case err != nil:
			return &refusal{code: http.StatusBadRequest, reason: reasonMalformed, text: "reading the body: " + err.Error()}
		}
	}
}

// store appends the request to the engine and to the forward queue. What out counts as
// taken is in both, and on disk when durable, if it is not nil, has returned nil.
func (g *Gateway) store(ctx context.Context, p *pusher, a *arrival, s *site, who caller, v2 bool, lim Limits, out *outcome) (durable func() error, ref *refusal) {
	if ref := g.appendEdge(ctx, p, &a.lease, s, who, v2, lim, out); ref != nil {
		return nil, ref
	}
	if len(p.series) == 0 {
		return nil, nil
	}
	var err error
	if p.plain && len(out.refused) == 0 && g.opts.ForwardRaw != nil {
		durable, err = g.opts.ForwardRaw(who.site, remotewrite.Raw{Body: a.body, Info: p.info, Stamp: stampOf(who)})
	} else {
		durable, err = g.opts.Forward(who.site.Tenant, p.series)
	}
	if err != nil {
		return nil, g.refuseForward(err)
	}
	return durable, nil
}

// stampOf is what stamp puts to what a site sends.
func stampOf(who caller) labels.Labels {
	if who.region == "" {
		return labels.FromStrings(fleet.SeriesSite, who.site.Name, fleet.SeriesTenant, who.site.Tenant)
	}
	return labels.FromStrings(fleet.SeriesRegion, who.region, fleet.SeriesSite, who.site.Name, fleet.SeriesTenant, who.site.Tenant)
}

// refuseForward tells a sender that the queue to the store did not take its push. The
// engine has the samples already and takes them again without harm.
func (g *Gateway) refuseForward(err error) *refusal {
	if errors.Is(err, spool.ErrTooLarge) {
		return &refusal{code: http.StatusRequestEntityTooLarge, reason: reasonBody, text: "the batch is too large for the forward queue; send smaller ones"}
	}
	g.metrics.forwardErrors.Inc()
	g.logEvery("forward", "samples can't be queued for the store; sites are told to wait", "err", err)
	return &refusal{code: http.StatusServiceUnavailable, retryAfter: 5 * time.Second, text: "this regional's queue to the store takes nothing now; try again"}
}

// appendEdge appends to the engine. The site is locked, so the pushes of one site
// go one after the other, and those of others are not held up.
func (g *Gateway) appendEdge(ctx context.Context, p *pusher, l *lease, s *site, who caller, v2 bool, lim Limits, out *outcome) *refusal {
	now := g.now()
	w := window{now.Add(-g.opts.Past).UnixMilli(), now.Add(lim.Future).UnixMilli(), g.opts.Past, lim.Future}
	d := &p.dec
	d.Charge = func(n int) error { return l.grow(int64(n)) }
	defer func() { out.cost = d.Cost() }()
	d.Reset(p.raw, v2, remotewrite.Limits{Buckets: lim.HistogramBuckets, Exemplars: maxExemplars})
	s.mu.Lock()
	moved := s.live.region != who.region
	s.live.region, s.live.seen, s.live.cert = who.region, now, who.cert
	if moved {
		s.showLocked()
	}
	s.mu.Unlock()
	s.series.Lock()
	defer s.series.Unlock()
	p.app = g.opts.Edge.Appender(ctx)
	p.region, p.plain, p.info = maphash.String(d.Seed, who.region), true, remotewrite.Info{MinT: math.MaxInt64, MaxT: math.MinInt64}
	s.sweepLocked(p.app, g.opts.Series)
	s.cache.begin()
	for d.Next() {
		n := len(d.Samples) + len(d.Histograms)
		switch {
		case d.Bad != nil:
			out.refuse(reasonInvalid, max(n, 1), d.Bad.Error())
			continue
		case n == 0 && v2:
			out.refuse(reasonInvalid, 0, "a series without samples")
			continue
		case n == 0:
			continue
		}
		c, err := s.resolveLocked(p, d, who, lim, g.opts.Series)
		if err != nil {
			out.refuse(reasonOf(err), n, err.Error())
			continue
		}
		var grow func(remotewrite.Histogram) error
		if len(d.Histograms) > 0 {
			grow = s.growLocked(c, lim, g.opts.Series)
		}
		if err := p.appendSeries(c, w, out, grow); err != nil {
			return g.rollback(p, err)
		}
		p.plain = p.plain && c.plain
		if c.ref != 0 {
			s.appendExemplarsLocked(p, c, w, now, out)
		}
		s.keepLocked(c, lim, g.opts.Series)
	}
	if err := d.Err(); err != nil {
		_ = p.app.Rollback()
		*out = outcome{}
		switch {
		case errors.Is(err, remotewrite.ErrMalformed):
			return &refusal{code: http.StatusBadRequest, reason: reasonMalformed, text: err.Error()}
		case errors.Is(err, remotewrite.ErrTooLarge):
			return &refusal{code: http.StatusRequestEntityTooLarge, reason: reasonBody, text: err.Error()}
		}
		return refuseMemory(err)
	}
	p.plain = p.plain && d.Plain()
	if err := p.app.Commit(); err != nil {
		return g.rollback(p, err)
	}
	return nil
}

// reasonOf sorts the errors of a series that is not let in.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, errSeriesLimit):
		return reasonSeries
	case errors.Is(err, errTenantSeriesLimit):
		return reasonTenant
	}
	return reasonInvalid
}

func (g *Gateway) rollback(p *pusher, err error) *refusal {
	_ = p.app.Rollback()
	g.logEvery("append", "the edge engine takes no samples; sites are told to wait", "err", err)
	return &refusal{code: http.StatusServiceUnavailable, retryAfter: 5 * time.Second, text: "this regional can't store samples now; try again"}
}

// appendSeries appends the samples of one series and collects those that were
// taken for the forward. grow makes room for a histogram. Its error is about the engine, not
// about the sample.
func (p *pusher) appendSeries(c *cached, w window, out *outcome, grow func(remotewrite.Histogram) error) error {
	d := &p.dec
	taken := d.Samples[:0:len(d.Samples)]
	for _, v := range d.Samples {
		if reason, text := w.check(v.T); reason != "" {
			out.refuse(reason, 1, text)
			continue
		}
		ref, err := p.app.Append(c.ref, c.labels, v.T, v.V)
		if err == nil {
			c.ref = ref
			taken = append(taken, v)
			p.at(v.T)
			continue
		}
		if err := out.refuseSample(err, c.labels); err != nil {
			return err
		}
	}
	var histograms []remotewrite.Histogram
	for _, h := range d.Histograms {
		if reason, text := w.check(h.T); reason != "" {
			out.refuse(reason, 1, text)
			continue
		}
		if err := grow(h); err != nil {
			out.refuse(reasonOf(err), 1, err.Error())
			continue
		}
		ref, err := p.app.AppendHistogram(c.ref, c.labels, h.T, h.H, h.FH)
		if err == nil {
			c.ref = ref
			histograms = append(histograms, h)
			p.at(h.T)
			continue
		}
		if err := out.refuseSample(err, c.labels); err != nil {
			return err
		}
	}
	if len(taken)+len(histograms) > 0 {
		out.samples += len(taken)
		out.histograms += len(histograms)
		meta := shortHelp(d.Metadata)
		p.plain = p.plain && meta == d.Metadata
		p.info.Series++
		p.info.Samples += len(taken)
		p.info.Histograms += len(histograms)
		p.series = append(p.series, remotewrite.Series{Labels: c.labels, Metadata: meta, Samples: taken, Histograms: histograms})
	}
	return nil
}

// at notes the time of a sample that was taken.
func (p *pusher) at(t int64) { p.info.MinT, p.info.MaxT = min(p.info.MinT, t), max(p.info.MaxT, t) }

// maxHelp is how many bytes of a help text or a unit go on to the store: what Cortex takes.
// It would drop longer ones whole.
const maxHelp = 1024

func shortHelp(m remotewrite.Metadata) remotewrite.Metadata {
	cut := func(s string) string {
		if len(s) <= maxHelp {
			return s
		}
		return strings.ToValidUTF8(s[:maxHelp], "")
	}
	m.Help, m.Unit = cut(m.Help), cut(m.Unit)
	return m
}

// window is which timestamps are taken, in milliseconds since 1970. The engine has
// its own idea of too old, but not while it is empty: a first sample of the year
// 1900 would make it cut a century into blocks.
type window struct {
	min, max     int64
	past, future time.Duration
}

func (w window) check(t int64) (reason, text string) {
	switch {
	case t > w.max:
		return reasonFuture, fmt.Sprintf("a sample more than %s in the future; check the site's clock, and if all sites of this regional say so the regional's", w.future)
	case t < w.min:
		return reasonTooOld, fmt.Sprintf("a sample more than %s old", w.past)
	}
	return "", ""
}

// refuseSample sorts the errors of an append: what concerns the sample is
// counted, anything else is returned.
func (o *outcome) refuseSample(err error, ls labels.Labels) error {
	var bad histogram.Error
	switch {
	case errors.Is(err, storage.ErrTooOldSample), errors.Is(err, storage.ErrOutOfBounds), errors.Is(err, storage.ErrOutOfOrderSample):
		o.refuse(reasonTooOld, 1, fmt.Sprintf("%v for %.200s", err, ls.String()))
	case errors.Is(err, storage.ErrDuplicateSampleForTimestamp):
		o.refuse(reasonDuplicate, 1, fmt.Sprintf("%v for %.200s", err, ls.String()))
	case errors.Is(err, errTenantSeriesLimit):
		o.refuse(reasonOf(err), 1, err.Error())
	case errors.As(err, &bad):
		o.refuse(reasonInvalid, 1, fmt.Sprintf("%v for %.200s", err, ls.String()))
	default:
		return err
	}
	return nil
}

// account counts an outcome and remembers which limit the site ran into.
func (g *Gateway) account(s *site, out *outcome, ref *refusal) {
	g.metrics.samples.Add(float64(out.samples + out.histograms))
	s.use.samples.Add(uint64(out.samples + out.histograms))
	worst := ""
	for reason, n := range out.refused {
		g.metrics.refused.WithLabelValues(reason).Add(float64(n))
		if n > out.refused[worst] || worst == "" {
			worst = cmp.Or(reason, worst)
		}
	}
	now := g.now()
	if ref != nil {
		if ref.reason != "" {
			_ = g.limited(s, ref) // it was answered
		}
		return
	}
	if worst != "" {
		g.noteLimit(s, worst, strings.Join(out.texts, "; "))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if out.samples+out.histograms > 0 {
		s.live.push, s.live.pushed = now, true
		s.showLocked()
	}
}

// limited counts a refused request and remembers why.
func (g *Gateway) limited(s *site, ref *refusal) *refusal {
	g.metrics.limited.WithLabelValues(ref.reason).Inc()
	if ref.reason != reasonBusy { // which is not the site's doing, and concerns all at once
		g.noteLimit(s, ref.reason, ref.text)
	}
	return ref
}
