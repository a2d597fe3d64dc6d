// Package query asks a Prometheus HTTP API, Cortex', on behalf of one tenant.
//
// Cost, time and size of every query are bounded, and no tenant takes all turns. It must
// not import Cortex, and it decides nothing about who may see what: the caller names the
// tenant. cmd/internal hands it to the console.
package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/promcost"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/internal/wire"
)

// Defaults of Options.
const (
	DefaultPathPrefix       = "/prometheus"
	DefaultTimeout          = 30 * time.Second
	DefaultMaxResponseBytes = 32 << 20
	DefaultMaxConcurrent    = 16
)

// Options of a Client.
type Options struct {
	// URL is the base, e.g. http://127.0.0.1:9009 of Cortex.
	URL string
	// PathPrefix stands between URL and /api/v1; default /prometheus, as in Cortex.
	// "/" means none, as in Prometheus itself.
	PathPrefix string
	// Client does the requests; default: one of its own with no timeout but Timeout.
	Client *http.Client
	// Timeout bounds one query, waiting included; default 30s.
	Timeout time.Duration
	// MaxResponseBytes bounds one answer, decompressed; default 32 MiB.
	MaxResponseBytes int64
	// MaxConcurrent bounds the queries in flight, a quarter of them of one tenant; more
	// wait for their turn until their time is up. Default 16.
	MaxConcurrent int
	// Registerer gets muster_query_*; nil: none.
	Registerer prometheus.Registerer
}

// Client asks one Prometheus API. Safe for concurrent use.
type Client struct {
	o       Options
	base    string // ends with /api/v1
	slots   *turns.Slots
	seconds *prometheus.HistogramVec
	refused *prometheus.CounterVec
}

// New checks the options.
func New(o Options) (*Client, error) {
	u, err := url.Parse(strings.TrimRight(o.URL, "/"))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" {
		return nil, fmt.Errorf("query: url %q: want http(s)://HOST[:PORT][/PATH]", o.URL)
	}
	if o.PathPrefix == "" {
		o.PathPrefix = DefaultPathPrefix
	}
	if o.Client == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = DefaultMaxConcurrent
		o.Client = &http.Client{Transport: t}
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxResponseBytes <= 0 {
		o.MaxResponseBytes = DefaultMaxResponseBytes
	}
	if o.MaxConcurrent <= 0 {
		o.MaxConcurrent = DefaultMaxConcurrent
	}
	c := &Client{
		o:     o,
		base:  u.String() + strings.TrimRight(o.PathPrefix, "/") + "/api/v1",
		slots: turns.New(o.MaxConcurrent, o.MaxConcurrent, max(1, o.MaxConcurrent/4)),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_query_duration_seconds", Help: "Time that queries to the metric store took, waiting included, by path and result.",
			Buckets: []float64{.005, .02, .1, .5, 2, 10, 30},
		}, []string{"path", "result"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_query_refused_total", Help: "Queries that were not passed on or whose answer was dropped, by reason.",
		}, []string{"reason"}),
	}
	if o.Registerer != nil {
		for _, col := range []prometheus.Collector{c.seconds, c.refused} {
			if err := o.Registerer.Register(col); err != nil {
				return nil, fmt.Errorf("query: register metrics: %w", err)
			}
		}
	}
	return c, nil
}

// Request is an instant query at Time, or with a Step one over a range.
type Request struct {
	Expr       string
	Time       time.Time // zero: now, by the store's clock
	Start, End time.Time // both inclusive
	Step       time.Duration
	Timeout    time.Duration // 0: the store's own
	Limit      int           // of series; 0: none
	// Lookback is how old the last sample of a series may be; 0: the store's own, 5 min.
	Lookback time.Duration
}

func (r Request) window() promcost.Window {
	if r.Step <= 0 {
		return promcost.Window{}
	}
	return promcost.Window{Span: r.End.Sub(r.Start), Step: r.Step}
}

func (r Request) form() (path string, form url.Values) {
	form = url.Values{"query": {r.Expr}}
	if r.Timeout > 0 {
		form.Set("timeout", seconds(r.Timeout))
	}
	if r.Limit > 0 {
		form.Set("limit", strconv.Itoa(r.Limit))
	}
	if r.Lookback > 0 {
		form.Set("lookback_delta", seconds(r.Lookback))
	}
	if r.Step > 0 {
		form.Set("start", stamp(r.Start))
		form.Set("end", stamp(r.End))
		form.Set("step", seconds(r.Step))
		return "/query_range", form
	}
	if !r.Time.IsZero() {
		form.Set("time", stamp(r.Time))
	}
	return "/query", form
}

func stamp(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// errTooLarge says that an answer was over MaxResponseBytes.
var errTooLarge = errors.New("the answer is too large; ask for fewer series or a larger step")

// Ask evaluates a query for the tenant. What it returns is a status and a body of the
// Prometheus HTTP API, also when the query is refused here or the store is down. A query
// that costs more than promcost.Query allows is not passed on: the store's own timeout
// does not stop it.
func (c *Client) Ask(ctx context.Context, tenant string, r Request) (status int, body []byte) {
	if _, err := promcost.Query.Parse(r.Expr, r.window()); err != nil {
		c.refused.WithLabelValues("bad_query").Inc()
		return http.StatusBadRequest, errorJSON("bad_data", err.Error())
	}
	path, form := r.form()
	status, body, err := c.do(ctx, tenant, http.MethodPost, path, form)
	if err != nil {
		return c.failed(err)
	}
	if r.Limit > 0 && status == http.StatusOK {
		body = cut(body, r.Limit)
	}
	return status, jsonOrError(status, body)
}

// failed is the answer in place of one that the store did not give.
func (c *Client) failed(err error) (status int, body []byte) {
	switch {
	case errors.Is(err, errTooLarge):
		return http.StatusUnprocessableEntity, errorJSON("execution", err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout, errorJSON("timeout", "the query took longer than "+c.o.Timeout.String()+", waiting for its turn included")
	case errors.Is(err, errTenant):
		return http.StatusForbidden, errorJSON("forbidden", err.Error())
	}
	return http.StatusBadGateway, errorJSON("unavailable", "the metric store can't be reached; regionals and scores go on without it")
}

// cut leaves n series of an answer and warns as Prometheus does, because Cortex ignores the
// limit. Whatever has no list of series stays as it is.
func cut(body []byte, n int) []byte {
	var answer, data map[string]json.RawMessage
	var series []json.RawMessage
	var kind string
	var warnings []string
	if json.Unmarshal(body, &answer) != nil || json.Unmarshal(answer["data"], &data) != nil || json.Unmarshal(data["resultType"], &kind) != nil ||
		(kind != "vector" && kind != "matrix") || json.Unmarshal(data["result"], &series) != nil || len(series) <= n {
		return body
	}
	if w, ok := answer["warnings"]; ok && json.Unmarshal(w, &warnings) != nil {
		return body
	}
	set := func(m map[string]json.RawMessage, key string, v any) {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err) // what was unmarshalled marshals
		}
		m[key] = b
	}
	set(data, "result", series[:n])
	set(answer, "data", data)
	set(answer, "warnings", append(warnings, "results truncated due to limit"))
	out, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	return out
}

func errorJSON(kind, text string) []byte {
	b, err := json.Marshal(map[string]string{"status": "error", "errorType": kind, "error": text})
	if err != nil {
		panic(err) // a map of strings always marshals
	}
	return b
}

// jsonOrError wraps the plain text that Cortex answers some errors with.
func jsonOrError(status int, body []byte) []byte {
	if status/100 == 2 || json.Valid(body) {
		return body
	}
	return errorJSON("execution", strings.TrimSpace(string(body[:min(len(body), 500)])))
}

var errTenant = errors.New("no such tenant")

// do sends one request and reads its bounded answer.
func (c *Client) do(ctx context.Context, tenant, method, path string, form url.Values) (status int, body []byte, err error) {
	if fleet.ValidateTenant(tenant) != nil { // also keeps '|', which joins tenants, out
		return 0, nil, errTenant
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	began := time.Now()
	defer func() {
		result := "error"
		if err == nil {
			result = strconv.Itoa(status/100) + "xx"
		}
		c.seconds.WithLabelValues(pattern(path), result).Observe(time.Since(began).Seconds())
	}()
	release, err := c.slots.Acquire(ctx, turns.Class{Tenant: tenant})
	if err != nil {
		c.refused.WithLabelValues("busy").Inc()
		return 0, nil, fmt.Errorf("%d queries are running already: %w", c.o.MaxConcurrent, err)
	}
	defer release()

	target, sent := c.base+path, form.Encode()
	if method == http.MethodGet {
		target, sent = target+"?"+sent, ""
	}
	req, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(sent))
	if err != nil {
		return 0, nil, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	req.Header.Set(wire.OrgHeader, tenant)
	resp, err := c.o.Client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, c.o.MaxResponseBytes+1))
	if err != nil {
		return 0, nil, fmt.Errorf("read the answer: %w", err)
	}
	if int64(len(body)) > c.o.MaxResponseBytes {
		c.refused.WithLabelValues("too_large").Inc()
		return 0, nil, fmt.Errorf("more than %d bytes: %w", c.o.MaxResponseBytes, errTooLarge)
	}
	return resp.StatusCode, body, nil
}
