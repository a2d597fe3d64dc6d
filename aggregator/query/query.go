// Package query asks a Prometheus HTTP API, Cortex' or an engine's, on behalf of
// one tenant: as a client for our own code, and as a proxy handler for users.
//
// The tenant always comes from the server, never from the user's request. Time
// and size of every answer are bounded. It must not import Cortex, and it decides
// nothing about who may see what: the caller names the tenant. internal/app
// hands it to the console and to the health engine.
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
	"github.com/prometheus/common/model"

	"muster.dev/muster/internal/fleet"
)

// TenantHeader is how Cortex is told the tenant.
const TenantHeader = "X-Scope-OrgID"

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
	// MaxConcurrent bounds the queries in flight; more wait for their turn until
	// their time is up. Default 16.
	MaxConcurrent int
	// Registerer gets muster_query_*; nil: none.
	Registerer prometheus.Registerer
}

// Client asks one Prometheus API. Safe for concurrent use.
type Client struct {
	o       Options
	base    string // ends with /api/v1
	slots   chan struct{}
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
		slots: make(chan struct{}, o.MaxConcurrent),
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

// Error is an answer that is not a result. Status is the HTTP status; Type and
// Message are the API's own (bad_data, timeout, execution, …). A caller can tell
// a wrong query (400, 422) from a store that is down (5xx, or another error).
type Error struct {
	Status  int
	Type    string
	Message string
}

func (e *Error) Error() string {
	if e.Type == "" {
		return fmt.Sprintf("%d: %s", e.Status, e.Message)
	}
	return fmt.Sprintf("%d %s: %s", e.Status, e.Type, e.Message)
}

// ErrTooLarge says that an answer was over MaxResponseBytes.
var ErrTooLarge = errors.New("the answer is too large; ask for fewer series or a larger step")

// Result is what a query returned.
type Result struct {
	Value    model.Value // Vector, Matrix, *Scalar or *String
	Warnings []string
}

// Query evaluates expr for the tenant at one instant; the zero time means now by
// the server's clock. An empty tenant sends no tenant header, for an engine that
// has none.
func (c *Client) Query(ctx context.Context, tenant, expr string, at time.Time) (Result, error) {
	form := url.Values{"query": {expr}}
	if !at.IsZero() {
		form.Set("time", stamp(at))
	}
	return c.ask(ctx, tenant, "/query", form)
}

// QueryRange evaluates expr for the tenant from start to end, both inclusive.
func (c *Client) QueryRange(ctx context.Context, tenant, expr string, start, end time.Time, step time.Duration) (Result, error) {
	return c.ask(ctx, tenant, "/query_range", url.Values{
		"query": {expr}, "start": {stamp(start)}, "end": {stamp(end)}, "step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)},
	})
}

func stamp(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

func (c *Client) ask(ctx context.Context, tenant, path string, form url.Values) (Result, error) {
	status, body, err := c.do(ctx, tenant, http.MethodPost, path, path, form)
	if err != nil {
		return Result{}, fmt.Errorf("query %s: %w", tenant, err)
	}
	r, err := decode(status, body)
	if err != nil {
		return r, fmt.Errorf("query %s: %w", tenant, err)
	}
	return r, nil
}

// decode parses an answer of the Prometheus API.
func decode(status int, body []byte) (Result, error) {
	var env struct {
		Status    string   `json:"status"`
		ErrorType string   `json:"errorType"`
		Error     string   `json:"error"`
		Warnings  []string `json:"warnings"`
		Data      struct {
			Type   string          `json:"resultType"`
			Result json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &env); err != nil {
		if status/100 == 2 {
			return Result{}, fmt.Errorf("the answer is no JSON of the Prometheus API: %w", err)
		}
		return Result{}, &Error{Status: status, Message: strings.TrimSpace(string(body[:min(len(body), 300)]))}
	}
	if status/100 != 2 || env.Status != "success" {
		return Result{}, &Error{Status: status, Type: env.ErrorType, Message: env.Error}
	}
	r := Result{Warnings: env.Warnings}
	var err error
	switch env.Data.Type {
	case "vector":
		var v model.Vector
		err = json.Unmarshal(env.Data.Result, &v)
		r.Value = v
	case "matrix":
		var v model.Matrix
		err = json.Unmarshal(env.Data.Result, &v)
		r.Value = v
	case "scalar":
		v := new(model.Scalar)
		err = json.Unmarshal(env.Data.Result, v)
		r.Value = v
	case "string":
		v := new(model.String)
		err = json.Unmarshal(env.Data.Result, v)
		r.Value = v
	default:
		err = fmt.Errorf("result type %q", env.Data.Type)
	}
	if err != nil {
		return Result{}, fmt.Errorf("the answer is no result of the Prometheus API: %w", err)
	}
	return r, nil
}

// do sends one request and reads its bounded answer. label is the path without
// what users chose, for the metrics.
func (c *Client) do(ctx context.Context, tenant, method, path, label string, form url.Values) (status int, body []byte, err error) {
	if tenant != "" {
		if err := fleet.ValidateTenant(tenant); err != nil { // also keeps '|', which joins tenants, out
			return 0, nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	began := time.Now()
	defer func() {
		result := "error"
		if err == nil {
			result = strconv.Itoa(status/100) + "xx"
		}
		c.seconds.WithLabelValues(label, result).Observe(time.Since(began).Seconds())
	}()
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		c.refused.WithLabelValues("busy").Inc()
		return 0, nil, fmt.Errorf("%d queries are running already: %w", c.o.MaxConcurrent, ctx.Err())
	}

	target, payload := c.base+path, io.Reader(nil)
	if method == http.MethodPost {
		payload = strings.NewReader(form.Encode())
	} else if len(form) > 0 {
		target += "?" + form.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, payload)
	if err != nil {
		return 0, nil, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if tenant != "" {
		req.Header.Set(TenantHeader, tenant)
	}
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
		return 0, nil, fmt.Errorf("more than %d bytes: %w", c.o.MaxResponseBytes, ErrTooLarge)
	}
	return resp.StatusCode, body, nil
}
