package logs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster.dev/muster/internal/wire"
)

// Search answers a search of one tenant that the caller has authorised, with one merged
// page. A problem means that the question was wrong, or that too many are asked at once.
func (c *Client) Search(ctx context.Context, tenant string, q wire.LogQuery) (*wire.LogPage, *wire.Problem) {
	req, p := check(q, tenant, c.opts.Now())
	if p != nil {
		return nil, p
	}
	cur, err := decodePage(q.Cursor, req)
	if err != nil {
		return nil, wire.Invalid(wire.FieldError{Field: "cursor", Detail: err.Error()})
	}
	if p := enter(c.searches, tenant, "log searches"); p != nil {
		return nil, p
	}
	defer c.searches.Give(tenant)
	return c.search(ctx, tenant, req, cur)
}

// unit is one question: to one regional, for itself or for all that its cluster is
// joined to. All of its regions stand at the same position.
type unit struct {
	regional Regional
	regions  []string
	position string
}

func (u unit) local() bool { return len(u.regions) == 1 }

// result is what became of a unit.
type result struct {
	unit
	*wire.RegionLogs
	err error
}

// plan cuts the regions into units.
func (c *Client) plan(cur *pageCursor) []unit {
	var out []unit
	covered := map[string]bool{}
	joined := slices.Clone(c.opts.Regionals)
	slices.SortStableFunc(joined, func(a, b Regional) int { return len(b.JoinedTo) - len(a.JoinedTo) })
	for _, r := range joined {
		at := cur.position(r.Name)
		u := unit{regional: r, regions: []string{r.Name}, position: at}
		// Its cluster searches all that it is joined to, or none of them.
		whole := len(r.JoinedTo) > 0 && !slices.ContainsFunc(r.JoinedTo, func(o string) bool { return covered[o] || cur.position(o) != at })
		if covered[r.Name] {
			continue
		}
		if whole {
			u.regions = append(u.regions, r.JoinedTo...)
		}
		for _, name := range u.regions {
			covered[name] = true
		}
		out = append(out, u)
	}
	return out
}

func (c *Client) regional(name string) Regional {
	return c.opts.Regionals[slices.IndexFunc(c.opts.Regionals, func(r Regional) bool { return r.Name == name })]
}

// ask asks all units at once, and each region by itself where a unit of several could
// not answer for it. It returns when all have answered or failed, or when one has answered
// and patience is at its end.
func (c *Client) ask(ctx context.Context, tenant string, req *request, cur *pageCursor) []result {
	var (
		mu    sync.Mutex
		out   []result
		wg    sync.WaitGroup
		first sync.Once
	)
	answered := make(chan struct{})
	ctx, stop := wire.Impatient(ctx, req.patience, answered)
	defer stop()
	add := func(r result) {
		mu.Lock()
		defer mu.Unlock()
		out = append(out, r)
		if r.err == nil {
			first.Do(func() { close(answered) })
		}
	}
	single := func(name, position string) {
		wg.Go(func() { add(c.askUnit(ctx, tenant, req, unit{c.regional(name), []string{name}, position})) })
	}
	for _, u := range c.plan(cur) {
		if u.local() {
			single(u.regional.Name, u.position)
			continue
		}
		wg.Go(func() {
			r := c.askUnit(ctx, tenant, req, u)
			rest := u.regions
			if r.err == nil {
				// A cluster may be named after any of the regionals that share it.
				one := func(name string, f func(string) bool) bool { return slices.ContainsFunc(c.regional(name).names(), f) }
				missing := func(name string) bool {
					return slices.ContainsFunc(r.MissingRegions, func(m wire.MissingRegion) bool { return m.Region == name })
				}
				rest = slices.DeleteFunc(slices.Clone(u.regions), func(name string) bool {
					return one(name, func(n string) bool { return slices.Contains(r.Regions, n) }) && !one(name, missing)
				})
				r.regions = slices.DeleteFunc(slices.Clone(u.regions), func(name string) bool { return slices.Contains(rest, name) })
				r.MissingRegions = slices.DeleteFunc(r.MissingRegions, func(m wire.MissingRegion) bool {
					return slices.ContainsFunc(u.regions, func(name string) bool { return slices.Contains(c.regional(name).names(), m.Region) })
				})
				add(r)
			}
			for _, name := range rest {
				single(name, u.position)
			}
		})
	}
	wg.Wait()
	return out
}

// search returns one merged page. A problem means that the question was wrong.
func (c *Client) search(ctx context.Context, tenant string, req *request, cur *pageCursor) (*wire.LogPage, *wire.Problem) {
	results := c.ask(ctx, tenant, req, cur)
	var good []result
	missing := map[string]wire.MissingRegion{}
	refused := map[int]*wire.Problem{} // by status
	for _, r := range results {
		if r.err == nil {
			good = append(good, r)
			for _, m := range r.MissingRegions {
				missing[m.Region] = m
			}
			continue
		}
		for _, name := range r.regions {
			for _, n := range c.regional(name).names() {
				missing[n] = wire.MissingRegion{Region: n, Reason: c.reason(r.err), Late: wire.IsLate(r.err)}
			}
		}
		var p *wire.Problem
		if errors.As(r.err, &p) {
			refused[p.Status] = p
		}
	}
	if len(good) == 0 {
		// All that answered say that the question is wrong.
		for _, status := range []int{http.StatusBadRequest, http.StatusNotFound} {
			if p := refused[status]; p != nil {
				return nil, p
			}
		}
	}
	out := &wire.LogPage{Hits: []wire.LogHit{}, MissingRegions: missingList(missing)}
	if len(missing) > 0 {
		c.part.Inc()
	}
	histograms := make([]*wire.LogHistogram, 0, len(good))
	for _, r := range good {
		out.Total += r.Total
		histograms = append(histograms, r.Histogram)
	}
	out.Histogram = sum(histograms)
	c.merge(out, good, req.limit, cur)
	return out, nil
}

func missingList(missing map[string]wire.MissingRegion) []wire.MissingRegion {
	out := slices.AppendSeq(make([]wire.MissingRegion, 0, len(missing)), maps.Values(missing))
	slices.SortFunc(out, func(a, b wire.MissingRegion) int { return strings.Compare(a.Region, b.Region) })
	return out
}

// merge fills in the hits, newest first, and the next cursor.
func (c *Client) merge(out *wire.LogPage, results []result, limit int, cur *pageCursor) {
	at := make([]int, len(results)) // of each result's next hit
	shown := map[string]bool{}      // positions of the results that a shown hit came from
	var last *wire.LogHit
	size := 0
	for len(out.Hits) < limit && size < c.opts.MaxPageBytes {
		best, blind := -1, false
		for i, r := range results {
			if at[i] < len(r.Hits) {
				if best < 0 || r.Hits[at[i]].Compare(&results[best].Hits[at[best]]) > 0 {
					best = i
				}
			} else if r.Next != "" {
				blind = true // its next hit may be newer than all that is left
			}
		}
		if best < 0 || blind {
			break
		}
		h := &results[best].Hits[at[best]]
		at[best]++
		shown[results[best].position] = true
		if last != nil && h.Compare(last) == 0 {
			continue // the same record, in two regions
		}
		last = h
		out.Hits = append(out.Hits, *h)
		out.Hits[len(out.Hits)-1].Cursor = "" // of one region
		size += h.Size()
	}
	more := false
	for i, r := range results {
		for last != nil && at[i] < len(r.Hits) && r.Hits[at[i]].Compare(last) == 0 {
			at[i]++
			shown[r.position] = true
		}
		more = more || at[i] < len(r.Hits) || r.Next != ""
	}
	if !more {
		return
	}
	positions, order := map[string]string{}, make([]string, 0, len(c.opts.Regionals))
	for _, r := range c.opts.Regionals {
		positions[r.Name] = cur.position(r.Name)
		order = append(order, r.Name)
	}
	for _, r := range results {
		// From here on, all that stands above the last hit has been shown of every result
		// of this position: one of them has shown a hit, which is not below the last one.
		if shown[r.position] {
			for _, name := range r.regions {
				positions[name] = last.Cursor
			}
		}
	}
	out.NextCursor = cur.next(positions, order)
}

// sum adds up histograms. They have the same steps unless the regions keep their
// records for different times and the search has no beginning; then the longest step is
// taken, and a bucket of a shorter one counts where it starts.
func sum(in []*wire.LogHistogram) *wire.LogHistogram {
	var start, end, step int64 // Unix seconds; seconds
	some := false
	for _, h := range in {
		if h == nil {
			continue
		}
		from := h.Start.Unix()
		to := from + h.StepSeconds*int64(len(h.Counts))
		if !some {
			some, start, end = true, from, to
		}
		start, end, step = min(start, from), max(end, to), max(step, h.StepSeconds)
	}
	if !some {
		return nil
	}
	start = start / step * step
	n := (end - start + step - 1) / step
	if n > 4000 {
		return nil // regions that speak of wholly different times
	}
	out := &wire.LogHistogram{Start: time.Unix(start, 0).UTC(), StepSeconds: step, Counts: make([]int64, n)}
	for _, h := range in {
		if h == nil {
			continue
		}
		for i, count := range h.Counts {
			out.Counts[(h.Start.Unix()+int64(i)*h.StepSeconds-start)/step] += count
		}
	}
	return out
}

// garbage is an answer that is none.
type garbage struct{ err error }

func (g *garbage) Error() string { return "gave no usable answer: " + g.err.Error() }
func (g *garbage) Unwrap() error { return g.err }

// reason says to users why a region is missing.
func (c *Client) reason(err error) string {
	var (
		p *wire.Problem
		g *garbage
	)
	switch {
	case errors.As(err, &p):
		return p.Detail
	case wire.IsLate(err):
		return err.Error()
	case errors.Is(err, errTooLarge):
		return "its answer is too large; ask for less with limit"
	case errors.Is(err, context.DeadlineExceeded):
		return "did not answer within " + c.opts.PerRegionTimeout.String()
	case errors.As(err, &g):
		return "gave no usable answer"
	}
	return "can't be reached"
}

func kindOf(err error) string {
	var (
		p *wire.Problem
		g *garbage
	)
	switch {
	case err == nil:
		return "ok"
	case wire.IsLate(err):
		return "late"
	case errors.As(err, &p):
		return "refused"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, errTooLarge), errors.As(err, &g):
		return "garbage"
	}
	return "unreachable"
}

// askUnit asks one regional, and then those that share its store, until one answers.
func (c *Client) askUnit(ctx context.Context, tenant string, req *request, u unit) result {
	var r result
	for _, way := range u.regional.ways() {
		u.regional = way
		r = c.askOnce(ctx, tenant, req, u)
		var wrong *wire.Problem
		if r.err == nil || ctx.Err() != nil || errors.As(r.err, &wrong) && wrong.Status < 500 {
			break
		}
	}
	return r
}

// askOnce asks one question, within the time limit.
func (c *Client) askOnce(parent context.Context, tenant string, req *request, u unit) result {
	start := time.Now()
	ctx, cancel := context.WithTimeout(parent, c.opts.PerRegionTimeout)
	defer cancel()
	q := req.values()
	q.Set("limit", strconv.Itoa(req.limit))
	q.Set("buckets", strconv.Itoa(buckets))
	if u.position != "" {
		q.Set("cursor", u.position)
	}
	if u.local() {
		q.Set("local", "1")
	}
	a, err := c.fetch(ctx, u.regional, tenant, q, req.limit)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	c.took.WithLabelValues(u.regional.Name).Observe(time.Since(start).Seconds())
	c.count(parent, u.regional.Name, "search", err)
	return result{unit: u, RegionLogs: a, err: err}
}

// count counts a request and, now and then, logs what is wrong with it.
func (c *Client) count(parent context.Context, region, kind string, err error) {
	k := kindOf(err)
	if parent.Err() != nil && k != "late" {
		return // our own caller gave up
	}
	c.asked.WithLabelValues(region, kind, k).Inc()
	if err != nil && k != "refused" && k != "late" {
		c.complain.Do(func() { c.log.Warn("a region can't be asked for logs", "region", region, "kind", kind, "err", err) })
	}
}

func (c *Client) fetch(ctx context.Context, r Regional, tenant string, q url.Values, limit int) (*wire.RegionLogs, error) {
	res, err := c.get(ctx, r, tenant, pathSearch, q, "application/json")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	a, err := decodeAnswer(res.Body, c.opts.MaxAnswerBytes, tenant, limit)
	if err != nil {
		return nil, &garbage{err}
	}
	return a, nil
}

// get sends a request to a regional and returns an answer of the wanted type.
func (c *Client) get(ctx context.Context, r Regional, tenant, path string, q url.Values, want string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+path+"?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set(wire.TenantHeader, tenant)
	req.Header.Set("Accept", want+", "+wire.ProblemMediaType)
	res, err := c.opts.Client.Do(req)
	if err != nil {
		return nil, err
	}
	have, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	if res.StatusCode == http.StatusOK && have == want {
		return res, nil
	}
	defer res.Body.Close()
	p := wire.ReadProblem(res)
	if p == nil {
		return nil, &garbage{fmt.Errorf("status %d, content type %q", res.StatusCode, clean(have))}
	}
	out := wire.Failure(res.StatusCode, "%s", clean(p.Detail))
	for i, e := range p.Errors {
		if i < 10 {
			out.Errors = append(out.Errors, wire.FieldError{Field: clean(e.Field), Detail: clean(e.Detail)})
		}
	}
	return nil, out
}
