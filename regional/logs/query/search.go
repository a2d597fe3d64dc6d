package query

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/logs/store"
)

// hitOf is a record as others see it. When the store took it in is the store's own business.
func hitOf(r *store.Record) wire.LogHit {
	return wire.LogHit{
		Timestamp: r.Timestamp, Tenant: r.Tenant, Site: r.Site, Region: r.Region, Node: r.Node, Namespace: r.Namespace, Pod: r.Pod, Container: r.Container,
		Unit: r.Unit, Stream: r.Stream, Severity: r.Severity, Message: r.Message, Labels: r.Labels, ID: r.ID,
	}
}

// answer is a wire.RegionLogs whose hits are encoded already: their size is bounded.
type answer struct {
	wire.RegionLogs
	Hits []json.RawMessage `json:"hits"`
}

// Records of one look at the store. Lines may have 256 KiB, so it is few at first, and
// more where they are small.
const (
	firstSlice = 100
	mostSlice  = 400
)

// page is one page of the store, asked for in slices, so that a page of long lines is cut
// before all of it is in memory.
func (a *API) page(ctx context.Context, q store.Query) (store.Page, error) {
	limit := cmp.Or(q.Limit, store.DefaultLimit)
	q.Limit = min(limit, firstSlice)
	page, err := a.opts.Store.Search(ctx, q)
	if err != nil {
		return page, err
	}
	size := sizeOf(page.Hits)
	for len(page.Hits) > 0 && len(page.Hits) < limit && page.Next != "" && size < a.opts.MaxBytes {
		fits := (a.opts.MaxBytes - size) / (size/len(page.Hits) + 1)
		q.Limit = min(max(fits, 1), mostSlice, limit-len(page.Hits))
		q.Cursor, q.Buckets = page.Next, 0
		more, err := a.opts.Store.Search(ctx, q)
		if err != nil {
			return page, err
		}
		if !slices.Equal(more.Missing, page.Missing) {
			break // the next page begins where this slice would have
		}
		page.Hits, page.Next = append(page.Hits, more.Hits...), more.Next
		size += sizeOf(more.Hits)
	}
	return page, nil
}

// sizeOf is about what records take.
func sizeOf(records []store.Record) int {
	n := 0
	for _, r := range records {
		n += 256 + len(r.Message)
		for k, v := range r.Labels {
			n += len(k) + len(v)
		}
	}
	return n
}

func (a *API) search(w http.ResponseWriter, r *http.Request, req *request) *wire.Problem {
	start := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), a.opts.Timeout)
	defer cancel()
	q, p := a.query(req)
	if p != nil {
		return p
	}
	page, err := a.page(ctx, q)
	if err != nil {
		return a.storeProblem(err)
	}
	out := answer{RegionLogs: wire.RegionLogs{Regions: []string{a.opts.Regional}, Total: page.Total, Next: string(page.Next), MissingRegions: page.Missing}, Hits: []json.RawMessage{}}
	if !q.Local {
		for _, name := range a.opts.Joined {
			if !slices.ContainsFunc(page.Missing, func(m store.Missing) bool { return m.Region == name }) {
				out.Regions = append(out.Regions, name)
			}
		}
	}
	if h := page.Histogram; h != nil {
		out.Histogram = &wire.LogHistogram{Start: h.Start, StepSeconds: int64(h.Step / time.Second), Counts: h.Counts}
	}
	size := 0
	for i, rec := range page.Hits {
		h := hitOf(&rec)
		h.Cursor = string(store.PageCursor(rec))
		b, err := json.Marshal(h)
		if err != nil {
			return a.storeProblem(err)
		}
		if size += len(b); size > a.opts.MaxBytes && i > 0 {
			out.Next = string(store.PageCursor(page.Hits[i-1]))
			break
		}
		out.Hits = append(out.Hits, b)
	}
	a.sent.Add(float64(len(out.Hits)))
	body, err := json.Marshal(out)
	if err != nil {
		return a.storeProblem(err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n'))
	a.duration.Observe(time.Since(start).Seconds())
	return nil
}
