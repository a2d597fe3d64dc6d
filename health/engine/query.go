package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster.dev/muster/internal/wire"
)

// target is a Prometheus API that answers queries.
type target struct {
	name string // for errors and metrics
	url  string // up to and without /query
	// org is sent as X-Scope-OrgID if set.
	org string
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

// ask runs one instant query at one moment.
func (e *Engine) ask(ctx context.Context, t target, text string, at time.Time, label func(name, value []byte), add func(tenant, site []byte, v float64) error) error {
	lane := ctx
	ctx, cancel := context.WithTimeout(ctx, e.opts.QueryTimeout)
	defer cancel()
	form := url.Values{"query": {text}, "time": {strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)}, "timeout": {e.opts.QueryTimeout.String()}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url+"/query", strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set(wire.HeaderPurpose, wire.PurposeHealth)
	if t.org != "" {
		req.Header.Set("X-Scope-OrgID", t.org)
	}
	err = e.fetch(req, func(code int, body []byte) error {
		err := decodeLabelled(body, label, add)
		var q *queryError
		if err != nil && !errors.As(err, &q) && code != http.StatusOK {
			return fmt.Errorf("HTTP status %d: %.200s", code, strings.TrimSpace(string(body)))
		}
		return err
	})
	if lane.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer: the signals of the tenant's own policies together took longer than %s; make them cheaper, or fewer", e.opts.QueryTimeout)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", e.opts.QueryTimeout)
	}
	return err
}

func (e *Engine) askLive(ctx context.Context, r Regional) (wire.LiveView, error) {
	ctx, cancel := context.WithTimeout(ctx, e.opts.LiveTimeout)
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
		err = fmt.Errorf("no live view within %s", e.opts.LiveTimeout)
	}
	return a, err
}

// answers holds what one tick's queries returned, for the sites of one snapshot.
type answers struct {
	snap *roster
	plan *plan
	at   time.Time
	// home of each site when the tick began: the place whose word counts. Places are
	// the regionals by position, and after them the store, once for each tenant.
	home []int32
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
}

// homeUnknown sites were never heard of: nothing can be asked about them.
const homeUnknown = int32(-1)

// reset makes room, reusing what a former tick has left.
func (a *answers) reset(snap *roster, p *plan, at time.Time) {
	a.snap, a.plan, a.at = snap, p, at
	n := len(snap.Sites)
	grow := func(s [][]float64, k int) [][]float64 {
		for len(s) < k {
			s = append(s, nil)
		}
		return s[:k]
	}
	a.value = grow(a.value, len(p.queries))
	for len(a.have) < len(p.queries) {
		a.have = append(a.have, nil)
	}
	a.have = a.have[:len(p.queries)]
	for q := range p.queries {
		if cap(a.value[q]) < n {
			a.value[q], a.have[q] = make([]float64, n, n+n/8+16), make([]bool, n, n+n/8+16)
		}
		a.value[q], a.have[q] = a.value[q][:n], a.have[q][:n]
		clear(a.have[q])
	}
	a.errs = make([]map[int32]string, len(p.queries))
	a.millis = make([]int64, len(p.queries))
	a.named = make([]map[int32][]string, len(p.objects))
	if cap(a.home) < n {
		a.home = make([]int32, n, n+n/8+16)
	}
	a.home = a.home[:n]
}

// run asks one query of one place and keeps the values of the sites that have
// their home there. Places write to different sites, so they need no lock.
func (e *Engine) run(ctx context.Context, a *answers, q int, t target, place int32) {
	began := e.now()
	var tenant string
	var byName map[string]int32
	only := a.plan.queries[q].tenant
	value, have := a.value[q], a.have[q]
	err := e.ask(ctx, t, a.plan.queries[q].text, a.at, nil, func(ten, site []byte, v float64) error {
		if len(ten) == 0 || len(site) == 0 {
			return errNoSite
		}
		if string(ten) != tenant || byName == nil {
			tenant = string(ten)
			byName = a.snap.Positions(tenant)
		}
		if only != "" && tenant != only {
			return fmt.Errorf("the query returns a series of tenant %q: it must not change the label tenant", tenant)
		}
		i, ok := byName[string(site)]
		if !ok || a.home[i] != place {
			return nil
		}
		if have[i] {
			return fmt.Errorf("the query returns more than one series for site %s; aggregate `by (tenant, site)`", site)
		}
		value[i], have[i] = v, true
		return nil
	})
	took := e.now().Sub(began)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.millis[q] = max(a.millis[q], took.Milliseconds())
	if err != nil {
		if a.errs[q] == nil {
			a.errs[q] = map[int32]string{}
		}
		a.errs[q][place] = t.name + ": " + err.Error()
	}
}
