package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/wire"
)

// target is a Prometheus API that answers queries.
type target struct {
	name string // for errors and metrics
	url  string // up to and without /query
	// org is sent as X-Scope-OrgID if set.
	org string
	// late: a regional without a live view.
	late bool
	// brief: it may answer in wire.VectorType.
	brief bool
	// slow are the sites there that queries of a pace are about; nil: they are about all.
	slow members
}

// errTooLarge is an answer over the limit.
var errTooLarge = errors.New("the answer is larger than the limit")

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// fetch sends a request and hands its body to read, which must not keep it.
func (e *Engine) fetch(req *http.Request, read func(code int, body []byte) error) error {
	resp, err := e.opts.Client.Do(req)
	if err != nil {
		return fmt.Errorf("can't be reached: %w", plainURLError(err))
	}
	defer resp.Body.Close()
	buf := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(buf)
	buf.Reset()
	n, err := buf.ReadFrom(io.LimitReader(resp.Body, e.opts.MaxResponseBytes+1))
	if err != nil {
		return fmt.Errorf("the answer breaks off after %d bytes: %w", n, err)
	}
	if n > e.opts.MaxResponseBytes {
		return fmt.Errorf("%w of %d bytes", errTooLarge, e.opts.MaxResponseBytes)
	}
	return read(resp.StatusCode, buf.Bytes())
}

// plainURLError takes the method and the URL off: the caller names the regional.
func plainURLError(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// ask runs one instant query at one moment and hands the answer to read, which must not
// keep it.
func (e *Engine) ask(ctx context.Context, t target, q query, at time.Time, read func(answer []byte) error) error {
	lane := ctx
	ctx, cancel := context.WithTimeout(ctx, e.opts.QueryTimeout)
	defer cancel()
	form := url.Values{"query": {q.text}, "time": {strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)}, "timeout": {e.opts.QueryTimeout.String()}}
	q.within(form)
	err := e.post(ctx, t.url+"/query", t.org, t.brief, form, read)
	if lane.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer: the signals of the tenant's own policies together took longer than %s; make them cheaper, or fewer", e.opts.QueryTimeout)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", e.opts.QueryTimeout)
	}
	return err
}

// within says how far the query looks for the sample of an instant.
func (q *query) within(form url.Values) {
	if q.lookback > 0 {
		form.Set("lookback_delta", q.lookback.String())
	}
}

// post asks the Prometheus API at an address, for org if there is one, and hands the answer
// to read, which must not keep it; with brief it may be in wire.VectorType.
func (e *Engine) post(ctx context.Context, address, org string, brief bool, form url.Values, read func(answer []byte) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	// The answers are large and the regionals near: compressing costs more than it saves. The live
	// view is compressed, since a regional that has too much to do writes little soonest.
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set(wire.HeaderPurpose, wire.PurposeHealth)
	if org != "" {
		req.Header.Set(wire.OrgHeader, org)
	}
	if brief {
		req.Header.Set("Accept", wire.VectorType+", application/json;q=0.9")
	}
	return e.fetch(req, func(code int, body []byte) error {
		err := read(body)
		var q *queryError
		if err != nil && !errors.As(err, &q) && code != http.StatusOK {
			return fmt.Errorf("HTTP status %d: %.200s", code, strings.TrimSpace(string(body)))
		}
		return err
	})
}

// errLate is a live view that did not come in time.
var errLate = errors.New("no live view in time")

func (e *Engine) askLive(ctx context.Context, r Regional, wait time.Duration) (wire.LiveView, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+wire.LivePath, nil)
	if err != nil {
		return wire.LiveView{}, err
	}
	var a wire.LiveView
	err = e.fetch(req, func(code int, body []byte) (err error) {
		if code != http.StatusOK {
			return fmt.Errorf("live view: HTTP status %d: %.200s", code, strings.TrimSpace(string(body)))
		}
		a, err = wire.DecodeLiveView(body, r.Name)
		return err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: none within %s", errLate, wait)
	}
	return a, err
}

// answers holds what the queries returned, for the sites of one snapshot: this tick's, and
// of those that were not due the last one's.
type answers struct {
	snap *roster
	plan *plan
	at   time.Time
	// home of each site when the tick began: the place whose word counts. Places are
	// the regionals by position, and after them the store, once for each tenant.
	home []int32
	// regional of each site, whatever its home is.
	regional []int32
	// behind says, of sites whose regional is away, why the store can't speak for them.
	behind map[int32]string
	// places that the tick asks.
	places map[int32]*place
	// tick counts from 0 since all queries were asked.
	tick int
	due  []bool // of each query: it is asked in this tick
	// Of each query, at the position of each site.
	value [][]float64
	have  [][]bool
	// errs of each query by place.
	errs   []map[int32]string
	millis []int64 // of each query, the slowest answer
	// named are the objects to blame, by the query for them and the site; what was not
	// asked about is not there.
	named []map[int32][]string
	mu    sync.Mutex

	// heads are how the series of the sites begin, headAt where in it: see appendHead.
	heads  []byte
	headAt []int32
	// briefs and briefAt are the same as wire.AppendSeriesHead writes it.
	briefs  []byte
	briefAt []int32
	// next is, of each query, the site that came after each site in the last answer.
	next [][]int32
}

// homeUnknown sites were never heard of: nothing can be asked about them.
const homeUnknown = int32(-1)

// resize makes a slice of n elements of what was there.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		s = make([]T, n, n+n/8+16)
	}
	return s[:n]
}

// reset prepares for a tick, with the room of the last. What that knew goes, but for what
// hold keeps, if it asked the same of the same sites.
func (a *answers) reset(snap *roster, p *plan, at time.Time) {
	same := a.plan == p && sameSites(a.snap, snap)
	a.snap, a.plan, a.at = snap, p, at
	a.home, a.regional = resize(a.home, len(snap.Sites)), resize(a.regional, len(snap.Sites))
	a.behind = nil
	a.named = make([]map[int32][]string, len(p.objects))
	if a.tick++; same {
		return
	}
	n := len(snap.Sites)
	a.tick = 0
	a.value, a.have, a.next = resize(a.value, len(p.queries)), resize(a.have, len(p.queries)), resize(a.next, len(p.queries))
	for q := range p.queries {
		a.value[q], a.have[q], a.next[q] = resize(a.value[q], n), resize(a.have[q], n), resize(a.next[q], n)
		for i := range a.next[q] {
			a.next[q][i] = -1
		}
	}
	a.errs = make([]map[int32]string, len(p.queries))
	a.millis = make([]int64, len(p.queries))
	a.due = resize(a.due, len(p.queries))
	a.heads, a.headAt = a.heads[:0], resize(a.headAt, n+1)
	a.briefs, a.briefAt = a.briefs[:0], resize(a.briefAt, n+1)
	for i, s := range snap.Sites {
		a.briefs = wire.AppendSeriesHead(a.briefs, s.ID.Tenant, s.ID.Name)
		a.briefAt[i+1] = int32(len(a.briefs))
		a.heads = appendHead(a.heads, s.ID.Tenant, s.ID.Name)
		a.headAt[i+1] = int32(len(a.heads))
	}
}

func sameSites(a, b *roster) bool {
	return a == b || a != nil && slices.EqualFunc(a.Sites, b.Sites, func(x, y *inventory.Site) bool { return x.ID == y.ID })
}

// hold decides what is due in this tick, and forgets what the last one knew of that. Of
// the rest nothing is asked: it holds. All is due when a place is asked that the last
// tick did not ask, and what failed is due again. young: there are sites whose packs were
// never asked for.
func (a *answers) hold(places map[int32]*place, young bool) {
	for at := range places {
		if a.places[at] == nil {
			a.tick = 0
		}
	}
	a.places = places
	for q := range a.plan.queries {
		every := a.plan.every[q]
		a.due[q] = a.tick == 0 || (a.tick+q)%every == 0 || len(a.errs[q]) > 0 || young && every == packTicks
		if a.due[q] {
			clear(a.have[q])
			a.errs[q], a.millis[q] = nil, 0
		}
	}
}

// run asks one query of one place and keeps the values of the sites that have
// their home there. Places write to different sites, so they need no lock.
func (e *Engine) run(ctx context.Context, a *answers, q int, t target, place int32) {
	began := e.now()
	if t.late && !e.answering(int(place), began) {
		a.fail(q, place, t.name+": it is not asked any more: neither its live view nor a query was answered")
		return
	}
	r := answerReader{a: a, q: q, place: place, value: a.value[q], have: a.have[q], next: a.next[q], last: -1, guess: -1}
	replied := false
	t.brief = t.org == ""
	query := a.plan.queries[q]
	if query.pace > 0 {
		query = query.about(t.slow[query.pace])
	}
	err := e.ask(ctx, t, query, a.at, func(answer []byte) error {
		replied = true
		return decodeExpected(answer, &r, r.add)
	})
	took := e.now().Sub(began)
	if int(place) < len(e.answered) && (replied || !wire.IsLate(context.Cause(ctx))) { // who was cut off may have been about to
		e.heardOf(int(place), began, replied)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.millis[q] = max(a.millis[q], took.Milliseconds())
	if err != nil {
		a.failLocked(q, place, t.name+": "+err.Error())
	}
}

func (a *answers) fail(q int, place int32, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failLocked(q, place, why)
}

func (a *answers) failLocked(q int, place int32, why string) {
	if a.errs[q] == nil {
		a.errs[q] = map[int32]string{}
	}
	a.errs[q][place] = why
}

// heardOf notes whether a query that was sent to a regional at began had a reply, be it a
// refusal. When none did since then, the regional answers none.
func (e *Engine) heardOf(r int, began time.Time, replied bool) {
	switch at := e.answered[r].Load(); {
	case replied:
		e.answered[r].Store(e.now().UnixMilli())
	case at < began.UnixMilli():
		e.answered[r].CompareAndSwap(at, 0)
	}
}

// answerReader takes one place's answer to one query. An engine that is asked the same
// again answers in the same order: so it expects the site that came next before.
type answerReader struct {
	a           *answers
	q           int
	place       int32
	value       []float64
	have        []bool
	next        []int32
	last, guess int32 // site that came last, and the one to come; -1: none
	tenant      string
	byName      map[string]int32
}

// foresee makes the guess of what comes next, and says whether there is one.
func (r *answerReader) foresee() bool {
	if r.guess = -1; r.last >= 0 {
		r.guess = r.next[r.last]
	}
	return r.guess >= 0 && r.a.home[r.guess] == r.place
}

func (r *answerReader) head() []byte {
	if !r.foresee() {
		return nil
	}
	return r.a.heads[r.a.headAt[r.guess]:r.a.headAt[r.guess+1]]
}

func (r *answerReader) briefHead() []byte {
	if !r.foresee() {
		return nil
	}
	return r.a.briefs[r.a.briefAt[r.guess]:r.a.briefAt[r.guess+1]]
}

func (r *answerReader) came(v float64) error { return r.set(r.guess, v) }

func (r *answerReader) set(i int32, v float64) error {
	if r.have[i] {
		return fmt.Errorf("the query returns more than one series for site %s; aggregate `by (tenant, site)`", r.a.snap.Sites[i].ID.Name)
	}
	r.value[i], r.have[i], r.last = v, true, i
	return nil
}

func (r *answerReader) add(tenant, site []byte, v float64) error {
	if len(tenant) == 0 || len(site) == 0 {
		return errNoSite
	}
	if string(tenant) != r.tenant || r.byName == nil {
		r.tenant = string(tenant)
		r.byName = r.a.snap.Positions(r.tenant)
	}
	if only := r.a.plan.queries[r.q].tenant; only != "" && r.tenant != only {
		return fmt.Errorf("the query returns a series of tenant %q: it must not change the label tenant", tenant)
	}
	i, ok := r.byName[string(site)]
	if !ok || r.a.home[i] != r.place {
		return nil
	}
	if r.last >= 0 {
		r.next[r.last] = i
	}
	return r.set(i, v)
}
