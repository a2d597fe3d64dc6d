package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/promcost"
	"muster.dev/muster/internal/promexpr"
)

// Replay is what a policy that is not in force would have made of some sites' history.
type Replay struct {
	From, To time.Time
	// Step is how far apart the readings are. Between them the last one holds, and the
	// evaluations go on tick by tick while a colour waits.
	Step  time.Duration
	Sites []Replayed
	// Done of Total sites, these included. Next is where to go on; "": all are done.
	Done, Total int
	Next        string
	Signals     []SignalStat
}

// Replayed is one site's history.
type Replayed struct {
	Site *Site
	// Would are the changes of colour by the tried policy, Did those that are on record.
	Would, Did []Recolour
	// WouldBegin and DidBegin are the colours before the first changes, From and To alike; no
	// colour: there is none on record.
	WouldBegin, DidBegin Recolour
	// Last is how it would end.
	Last health.State
}

// Recolour is a change of colour.
type Recolour struct {
	At       time.Time
	From, To fleet.Colour
	// Reason is the first; "" for what is on record.
	Reason string
}

const (
	// MinSince and MaxSince bound how far a replay looks back.
	MinSince, MaxSince = 10 * time.Minute, 7 * 24 * time.Hour
	// replayPoints of a series, at most; replaySites in one go, whose queries have tryFor: a day
	// of ten sites of three nodes did not fit in it beside other work.
	replayPoints, replaySites = 1440, 4
)

// ErrStore: the history can't be read.
var ErrStore = errors.New("the history can't be read from the metric store")

// TryHistory does what Try does, with what the store has of the time since. It takes some
// sites in one go, those by name after the one that is named.
func (e *Engine) TryHistory(caller context.Context, tenant string, candidate *v1alpha1.HealthPolicy, since time.Duration, after string) (*Replay, error) {
	if since < MinSince || since > MaxSince {
		return nil, fmt.Errorf("since: %s: want %s to %s", since, MinSince, MaxSince)
	}
	if e.opts.StoreQueryURL == "" {
		return nil, fmt.Errorf("%w: there is none", ErrStore)
	}
	v, c, end, err := e.rehearse(caller, tenant, candidate)
	if err != nil {
		return nil, err
	}
	defer end()
	h := &history{e: e, tenant: tenant, tick: e.opts.Tick}
	h.times(e.now(), since)
	out := &Replay{From: h.at(0), To: h.at(h.n - 1), Step: h.step}
	for _, j := range c.sites {
		if c.after[j].plain() != c.candidate {
			continue
		}
		out.Total++
		name := v.Sites[j].ID.Name
		switch {
		case name <= after:
			out.Done++
		case len(h.sites) < replaySites:
			h.sites = append(h.sites, v.Sites[j])
			h.of = append(h.of, c.after[j])
		}
	}
	if len(h.sites) == 0 {
		return out, nil
	}
	if out.Done += len(h.sites); out.Done < out.Total {
		out.Next = h.sites[len(h.sites)-1].ID.Name
	}
	ctx, cancel := context.WithTimeout(caller, tryFor)
	defer cancel()
	if err := h.askPaces(ctx); err != nil {
		return nil, err
	}
	policies := h.variants(c)
	h.plan = e.planOnce(policies)
	if err := h.ask(ctx); err != nil {
		return nil, err
	}
	for i, s := range h.sites {
		if caller.Err() != nil {
			return nil, caller.Err() // nobody waits for it any more
		}
		r := Replayed{Site: s}
		r.DidBegin, r.Did = h.did(i)
		r.WouldBegin, r.Would, r.Last = h.replay(i)
		out.Sites = append(out.Sites, r)
	}
	out.Signals = h.plan.binding(policies[0]).stats(func(s *SignalStat, q int) { s.Err = h.errs[q] })
	for i := range out.Signals {
		for _, p := range policies { // what fails at one pace alone
			b := h.plan.binding(p)
			if q := b.query[i]; out.Signals[i].Err == "" && q >= 0 {
				out.Signals[i].Err = h.errs[q]
			} else if out.Signals[i].Err == "" {
				out.Signals[i].Err = b.err[i]
			}
		}
		for _, r := range out.Sites {
			if r.Last.Signals[i].Known {
				out.Signals[i].SitesKnown++
			}
		}
	}
	return out, nil
}

// history holds what the store had of some sites.
type history struct {
	e      *Engine
	tenant string
	tick   time.Duration
	start  time.Time
	step   time.Duration
	n      int
	sites  []*Site
	of     []*policy // of each site, as it is scraped now
	// Of each site and point, how often it was scraped then, and the policy for that.
	pace [][]time.Duration
	then [][]*policy
	plan *plan
	// Of each query, and after them of the recorded colours and streams, at site·n + point.
	value [][]float64
	have  [][]bool
	errs  []string
}

// times lays points over the time since: on full steps, which are full ticks.
func (h *history) times(now time.Time, since time.Duration) {
	h.step = h.tick
	if least := since / replayPoints; h.step < least {
		h.step = (least + h.tick - 1) / h.tick * h.tick
	}
	end := now.Truncate(h.step)
	h.n = int(since/h.step) + 1
	h.start = end.Add(-time.Duration(h.n-1) * h.step)
}

func (h *history) at(i int) time.Time { return h.start.Add(time.Duration(i) * h.step) }

// colourQuery reads the recorded colours.
const colourQuery = "max by (tenant, site) (" + fleet.MetricSiteColour + ")"

// paceQuery reads how seldom a site was scraped, in seconds: 0 where the gateway wrote of it, and not that.
const paceQuery = "max by (tenant, site) (" + fleet.MetricSitePace + ") or max by (tenant, site) (0 * " + fleet.MetricSiteConnected + ")"

// only chooses the sites of the history.
func (h *history) only() (*labels.Matcher, map[string]int) {
	names, at := make([]string, len(h.sites)), make(map[string]int, len(h.sites))
	for i, s := range h.sites {
		names[i], at[s.ID.Name] = regexp.QuoteMeta(s.ID.Name), i
	}
	return labels.MustNewMatcher(labels.MatchRegexp, fleet.SeriesSite, strings.Join(names, "|")), at
}

// askPaces asks the store how often the sites were scraped: a policy of now may scrape them more often, or less.
// Where nothing is on record they are taken to have been as they were before, and at the beginning as they are now.
func (h *history) askPaces(ctx context.Context) error {
	expr, err := parser.ParseExpr(paceQuery)
	if err != nil {
		return err
	}
	only, at := h.only()
	promexpr.Narrow(expr, only)
	h.value, h.have = [][]float64{make([]float64, len(h.sites)*h.n)}, [][]bool{make([]bool, len(h.sites)*h.n)}
	if err := h.askOne(ctx, 0, expr.String(), at); err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	h.pace = make([][]time.Duration, len(h.sites))
	for site := range h.sites {
		now := h.sites[site].Pace()
		was := now
		h.pace[site] = make([]time.Duration, h.n)
		for i := range h.n {
			if h.have[0][site*h.n+i] {
				// Up to a minute, whatever of that it was, is asked as now if that is so now.
				was = fleet.Slow(time.Duration(h.value[0][site*h.n+i]) * time.Second)
				if was == 0 && now <= fleet.Quick {
					was = now
				}
			}
			h.pace[site][i] = was
		}
	}
	return nil
}

// variants are the policies of all paces that occur, those of now first.
func (h *history) variants(c *cast) []*policy {
	var out []*policy
	add := func(p *policy) *policy {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
		return p
	}
	h.then = make([][]*policy, len(h.sites))
	for site, p := range h.of {
		add(p)
		by := map[time.Duration]*policy{}
		h.then[site] = make([]*policy, h.n)
		for i, pace := range h.pace[site] {
			if by[pace] == nil {
				by[pace] = add(c.at(p, h.sites[site].Site, pace))
			}
			h.then[site][i] = by[pace]
		}
	}
	return out
}

// recorded is how far apart a gateway's records of streams and pushes are.
const recorded = 15 * time.Second

// streamQuery reads whether a stream was on record within the patience. Of a break that is
// shorter there may be a record that it was, but no two.
func streamQuery(patience time.Duration) string {
	return fmt.Sprintf("max by (tenant, site) (max_over_time(%s[%s]))", fleet.MetricSiteConnected, model.Duration(patience+recorded))
}

// ask asks the store for everything. What fails of the policy's queries is noted; a query
// that would be too dear over this time is an error.
func (h *history) ask(ctx context.Context) error {
	only, at := h.only()
	texts := make([]string, 0, len(h.plan.queries)+2)
	over := promcost.Window{Span: h.at(h.n - 1).Sub(h.start), Step: h.step}
	for q := range h.plan.queries {
		query := &h.plan.queries[q]
		if query.tenant == "" && q != h.plan.pushed {
			texts = append(texts, "")
			continue
		}
		expr, err := promcost.Query.Parse(query.text, over)
		if err != nil {
			return fmt.Errorf("over this time a query is too dear: %w; look back less far", err)
		}
		promexpr.Narrow(expr, only)
		texts = append(texts, strings.ReplaceAll(expr.String(), sitesMark, ".+"))
	}
	for _, text := range []string{colourQuery, streamQuery(h.e.opts.Patience)} {
		expr, err := parser.ParseExpr(text)
		if err != nil {
			return err
		}
		promexpr.Narrow(expr, only)
		texts = append(texts, expr.String())
	}
	h.value, h.have, h.errs = make([][]float64, len(texts)), make([][]bool, len(texts)), make([]string, len(texts))
	var wg sync.WaitGroup
	free := make(chan struct{}, h.e.opts.Concurrency)
	for q, text := range texts {
		h.value[q], h.have[q] = make([]float64, len(h.sites)*h.n), make([]bool, len(h.sites)*h.n)
		if text == "" {
			continue
		}
		wg.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			if err := h.askOne(ctx, q, text, at); err != nil {
				h.errs[q] = "store: " + err.Error()
			}
		})
	}
	wg.Wait()
	for _, q := range []int{h.colours(), h.streams()} {
		if why := h.errs[q]; why != "" {
			return fmt.Errorf("%w: %s", ErrStore, why)
		}
	}
	return nil
}

// colours and streams are where their answers stand.
func (h *history) colours() int { return len(h.plan.queries) }
func (h *history) streams() int { return len(h.plan.queries) + 1 }

func (h *history) askOne(ctx context.Context, q int, text string, at map[string]int) error {
	seconds := func(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
	form := url.Values{"query": {text}, "start": {seconds(h.start)}, "end": {seconds(h.at(h.n - 1))}, "step": {strconv.FormatFloat(h.step.Seconds(), 'f', 3, 64)}}
	if h.plan != nil && q < len(h.plan.queries) {
		h.plan.queries[q].within(form)
	}
	var m model.Matrix
	err := h.e.post(ctx, h.e.opts.StoreQueryURL+"/query_range", h.tenant, false, form, func(body []byte) (err error) {
		m, err = decodeMatrix(body)
		return err
	})
	if err != nil {
		return err
	}
	return h.take(q, m, at)
}

func (h *history) take(q int, m model.Matrix, at map[string]int) error {
	for _, s := range m {
		site, ok := at[string(s.Metric[fleet.SeriesSite])]
		switch tenant := string(s.Metric[fleet.SeriesTenant]); {
		case tenant == "" || s.Metric[fleet.SeriesSite] == "":
			return errNoSite
		case tenant != h.tenant:
			return fmt.Errorf("the query returns a series of tenant %q: it must not change the label tenant", tenant)
		case !ok:
			continue
		}
		for _, p := range s.Values {
			i := int(p.Timestamp.Time().Sub(h.start) / h.step)
			if i < 0 || i >= h.n {
				continue
			}
			if i += site * h.n; h.have[q][i] {
				return fmt.Errorf("the query returns more than one series for site %s; aggregate `by (tenant, site)`", s.Metric[fleet.SeriesSite])
			}
			h.value[q][i], h.have[q][i] = float64(p.Value), true
		}
	}
	return nil
}

// decodeMatrix reads the Prometheus API's answer to a range query.
func decodeMatrix(data []byte) (model.Matrix, error) {
	var a struct {
		Status    string `json:"status"`
		ErrorType string `json:"errorType"`
		Error     string `json:"error"`
		Data      struct {
			ResultType string       `json:"resultType"`
			Result     model.Matrix `json:"result"`
		} `json:"data"`
	}
	switch err := json.Unmarshal(data, &a); {
	case a.Status == "error":
		return nil, &queryError{kind: a.ErrorType, text: a.Error}
	case err != nil:
		return nil, fmt.Errorf("not an answer of the Prometheus API: %w", err)
	case a.Status != "success" || a.Data.ResultType != "matrix":
		return nil, fmt.Errorf("not an answer of the Prometheus API: status %q, result %q", a.Status, a.Data.ResultType)
	}
	for _, s := range a.Data.Result {
		if s == nil {
			return nil, errors.New("not an answer of the Prometheus API: a series is null")
		}
	}
	return a.Data.Result, nil
}

// replay evaluates one site's history with the tried policy.
func (h *history) replay(site int) (begin Recolour, changes []Recolour, last health.State) {
	b := h.plan.binding(h.of[site])
	r := health.Readings{Signals: make([]health.Reading, len(b.query)), Packs: make([]bool, len(b.packs))}
	var prev *health.State
	for i := range h.n {
		if i < h.n-1 && h.at(i).Before(h.sites[site].CreatedAt) {
			continue // of another site that had the name
		}
		b = h.plan.binding(h.then[site][i])
		h.read(&r, b, site, i)
		until := h.at(i).Add(h.step)
		for at := h.at(i); at.Before(until); at = at.Add(h.tick) {
			st := health.Evaluate(b.model, r, prev, at)
			c := Recolour{At: at, From: st.Colour, To: st.Colour}
			if len(st.Reasons) > 0 {
				c.Reason = st.Reasons[0].Text
			}
			switch {
			case prev == nil:
				begin = c
			case st.Colour != prev.Colour:
				c.From = prev.Colour
				changes = append(changes, c)
			}
			if prev = &st; st.Needed == 0 {
				break // the same readings say the same until the next
			}
		}
	}
	return begin, changes, *prev
}

// read takes what the store had at one point.
func (h *history) read(r *health.Readings, b *binding, site, point int) {
	at := site*h.n + point
	for i, q := range b.query {
		r.Signals[i] = health.Reading{}
		switch {
		case q < 0:
			r.Signals[i].Err = b.err[i]
		case h.errs[q] != "":
			r.Signals[i].Err = h.errs[q]
		case h.have[q][at]:
			r.Signals[i] = health.Reading{Value: h.value[q][at], Known: true}
		}
	}
	for i, q := range b.packs {
		r.Packs[i] = q >= 0 && h.have[q][at] && h.value[q][at] > 0
	}
	link := h.link(site, point)
	if link != r.Link {
		r.Link, r.LinkSince = link, h.at(point)
	}
	r.Reconnects = 0
	if i, ok := b.model.Index(health.SignalFlapping); ok && r.Signals[i].Known {
		r.Reconnects = int(r.Signals[i].Value)
	}
}

// link is what the live engine would have made of the recorded streams and pushes: a site is
// down when it had neither for its patience.
func (h *history) link(site, point int) health.Link {
	at, streams, pushed := site*h.n+point, h.streams(), h.plan.pushed
	young := func(patience time.Duration) bool {
		return h.have[pushed][at] && h.at(point).Sub(time.UnixMilli(int64(h.value[pushed][at]*1000))) < patience
	}
	switch {
	case h.value[streams][at] >= 0.5: // 0 without an answer
		return health.LinkUp
	case !h.streamed(site) && young(h.e.opts.patienceAt(h.pace[site][point])), young(h.e.opts.Patience + recorded):
		return health.LinkUp
	case h.have[streams][at]:
		return health.LinkDown
	}
	return health.LinkUnknown
}

// streamed says whether a site ever had a stream in this time. One without only pushes.
func (h *history) streamed(site int) bool {
	return slices.ContainsFunc(h.value[h.streams()][site*h.n:(site+1)*h.n], func(v float64) bool { return v >= 0.5 })
}

// did are the changes of colour on record.
func (h *history) did(site int) (begin Recolour, changes []Recolour) {
	q := h.colours()
	was := fleet.Colour("")
	for i := range h.n {
		if !h.have[q][site*h.n+i] || h.at(i).Before(h.sites[site].CreatedAt) {
			continue
		}
		for _, c := range []fleet.Colour{fleet.Grey, fleet.Green, fleet.Orange, fleet.Red} {
			if float64(c.Number()) != h.value[q][site*h.n+i] || c == was {
				continue
			}
			if was == "" {
				begin = Recolour{At: h.at(i), From: c, To: c}
			} else {
				changes = append(changes, Recolour{At: h.at(i), From: was, To: c})
			}
			was = c
			break
		}
	}
	return begin, changes
}
