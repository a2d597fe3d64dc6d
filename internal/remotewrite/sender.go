package remotewrite

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/internal/backoff"
	"muster.dev/muster/internal/spool"
)

// Source is the queue that a Sender drains; *spool.Spool is one.
type Source interface {
	Next(ctx context.Context) (spool.Record, error)
	Ack(seq uint64)
	Stats() spool.Stats
}

// SenderOptions configures NewSender. Source and Endpoint are needed.
type SenderOptions struct {
	Source Source
	// Endpoint and Client are asked for each request: the endpoint changes on
	// failover, and the client when certificates rotate. An empty endpoint means
	// that there is none now; the sender waits.
	Endpoint func() string
	Client   func() *http.Client
	// Header returns further request headers for the records of a key.
	Header func(key string) http.Header
	// Concurrency is how many lanes are sent at a time; default 1. A lane has one
	// request in flight, and its records go in order, whatever fails.
	Concurrency int
	// MaxSamples bounds a request that is put together from records that wait in one
	// lane, so that the way there and back does not bound how fast a backlog drains;
	// default 10,000. A record with more goes alone.
	MaxSamples int
	// Linger is for how long a record that is alone in its lane waits for others, to go
	// with them in one request; default 0: not at all.
	Linger     time.Duration
	MinBackoff time.Duration // default 250 ms
	MaxBackoff time.Duration // default 30 s
	Timeout    time.Duration // of one request; default 30 s
	// V1Memory is for how long an endpoint that did not take 2.0 is sent 1.0
	// before 2.0 is tried again; default 10 min.
	V1Memory   time.Duration
	UserAgent  string // default "muster-remotewrite"
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Status is what a Sender is doing.
type Status struct {
	Endpoint            string        `json:"endpoint"`
	Protocol            string        `json:"protocol"` // "2.0" or "1.0"
	LastSuccess         time.Time     `json:"lastSuccess"`
	LastError           string        `json:"lastError,omitempty"`
	LastErrorTime       time.Time     `json:"lastErrorTime"`
	ConsecutiveFailures int           `json:"consecutiveFailures"`
	InFlight            int           `json:"inFlight"`
	Pending             uint64        `json:"pending"` // records in the source that are not acknowledged
	OldestAge           time.Duration `json:"oldestAgeNanos"`
	// HighestTimestamp is that of the newest sample that was acknowledged,
	// milliseconds since 1970; 0 before the first.
	HighestTimestamp int64 `json:"highestTimestampMillis"`

	SentSamples, RetriedSamples, FailedSamples, DroppedSamples uint64
	SentBytes                                                  uint64 // of acknowledged request bodies
	FailedRequests                                             uint64
}

// Sender drains a queue to a remote write endpoint. Safe for concurrent use.
type Sender struct {
	opts    SenderOptions
	log     *slog.Logger
	metrics *senderMetrics
	gate    gate
	limit   *logLimiter

	mu     sync.Mutex
	status Status
	v1     map[string]time.Time // endpoint → until when it is sent 1.0
}

// NewSender returns a sender; Run starts it.
func NewSender(o SenderOptions) *Sender {
	o.Concurrency = cmp.Or(max(o.Concurrency, 0), 1)
	o.MaxSamples = cmp.Or(max(o.MaxSamples, 0), 10_000)
	o.MinBackoff = cmp.Or(max(o.MinBackoff, 0), 250*time.Millisecond)
	o.MaxBackoff = cmp.Or(max(o.MaxBackoff, 0), 30*time.Second)
	o.Timeout = cmp.Or(max(o.Timeout, 0), 30*time.Second)
	o.V1Memory = cmp.Or(max(o.V1Memory, 0), 10*time.Minute)
	if o.Client == nil {
		o.Client = func() *http.Client { return http.DefaultClient }
	}
	if o.UserAgent == "" {
		o.UserAgent = "muster-remotewrite"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Sender{opts: o, log: o.Logger, v1: map[string]time.Time{}, limit: newLogLimiter(time.Minute)}
	s.metrics = newSenderMetrics(s, o.Registerer)
	return s
}

func (s *Sender) backoff(attempt int) time.Duration {
	return backoff.FullJitter(attempt, s.opts.MinBackoff, s.opts.MaxBackoff)
}

type verdict int

const (
	verdictDone    verdict = iota // taken
	verdictRefused                // for good
	verdictRetry                  // later
	verdictAgain                  // now, in the other protocol
)

type result struct {
	verdict    verdict
	reason     string // of a failure: a status code, "network", …; few values
	err        error
	retryAfter time.Duration
	written    int // samples that the receiver says it took, of a refused request
	bytes      int // of the request body
}

// try makes one request.
func (s *Sender) try(ctx context.Context, endpoint string, info Info, body []byte, attempt int) result {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	useV1 := s.usesV1(endpoint)
	if useV1 {
		series, err := decodeBody(body, true)
		if err != nil {
			return result{verdict: verdictRefused, reason: "undecodable", err: err}
		}
		body = EncodeV1(series)
	}
	req, err := s.request(ctx, endpoint, info.Key, body, useV1, attempt)
	if err != nil {
		return result{verdict: verdictRetry, reason: "endpoint", err: err}
	}
	s.inFlight(1)
	resp, err := s.opts.Client().Do(req)
	s.inFlight(-1)
	if err != nil {
		return result{verdict: verdictRetry, reason: "network", err: err}
	}
	defer func() {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is used again
		_ = resp.Body.Close()
	}()
	res := s.judge(resp, info, useV1)
	res.bytes = len(body)
	return res
}

func (s *Sender) request(ctx context.Context, endpoint, key string, body []byte, useV1 bool, attempt int) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	h := req.Header
	h.Set("Content-Encoding", "snappy")
	h.Set("User-Agent", s.opts.UserAgent)
	if useV1 {
		h.Set("Content-Type", ContentTypeV1)
		h.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	} else {
		h.Set("Content-Type", ContentTypeV2)
		h.Set("X-Prometheus-Remote-Write-Version", "2.0.0")
	}
	if attempt > 0 {
		h.Set("Retry-Attempt", strconv.Itoa(attempt))
	}
	if s.opts.Header != nil {
		for name, values := range s.opts.Header(key) {
			h[http.CanonicalHeaderKey(name)] = values
		}
	}
	return req, nil
}

// judge decides what an answer means. 4xx is about the request and final, but
// for those that are about who asks, when or where: an expired certificate or a
// wrong address must not cost samples that the spool would have kept.
func (s *Sender) judge(resp *http.Response, info Info, useV1 bool) result {
	written, confirmed := writtenSamples(resp.Header)
	code := resp.StatusCode
	switch {
	case code/100 == 2:
		if !useV1 && !confirmed && info.All() > 0 {
			// A 1.0 receiver that took the 2.0 request for an empty one.
			return result{verdict: verdictAgain, reason: "unconfirmed", err: errors.New("2xx without the headers of remote write 2.0: sending 1.0")}
		}
		res := result{verdict: verdictDone, written: info.All()}
		if !useV1 && confirmed && written < info.All() {
			res.written, res.reason = written, "partial"
			res.err = fmt.Errorf("the receiver took %d of %d samples", written, info.All())
		}
		return res
	case code == http.StatusUnsupportedMediaType && !useV1:
		return result{verdict: verdictAgain, reason: "415", err: statusError(resp)}
	}
	res := result{verdict: verdictRetry, reason: strconv.Itoa(code), err: statusError(resp), retryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return res
	}
	if code/100 == 4 {
		res.verdict, res.written = verdictRefused, written
	}
	return res // 5xx, and redirects that the client did not follow
}

func statusError(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
	return fmt.Errorf("%s: %s", resp.Status, strings.Join(strings.Fields(string(b)), " "))
}

// writtenSamples reads the headers with which a 2.0 receiver confirms what it took.
func writtenSamples(h http.Header) (n int, confirmed bool) {
	for _, name := range []string{"Samples", "Histograms"} {
		if v := h.Get("X-Prometheus-Remote-Write-" + name + "-Written"); v != "" {
			if c, err := strconv.Atoi(v); err == nil && c >= 0 {
				n, confirmed = n+c, true
			}
		}
	}
	return n, confirmed
}

// maxRetryAfter bounds what a receiver can ask for.
const maxRetryAfter = 10 * time.Minute

// retryAfter parses the header's two forms; 0 means none.
func retryAfter(v string, now time.Time) time.Duration {
	var d time.Duration
	if n, err := strconv.Atoi(v); err == nil {
		d = time.Duration(min(max(n, 0), int(maxRetryAfter/time.Second))) * time.Second
	} else if at, err := http.ParseTime(v); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter)
}

func (s *Sender) usesV1(endpoint string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.v1[endpoint]
	if ok && time.Now().After(until) {
		delete(s.v1, endpoint)
		ok = false
	}
	return ok
}

func (s *Sender) inFlight(d int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.InFlight += d
}

// record counts a request's outcome and logs failures, once a reason and minute.
func (s *Sender) record(endpoint string, info Info, res result) {
	now := time.Now()
	s.mu.Lock()
	st := &s.status
	n := uint64(info.All())
	switch res.verdict {
	case verdictDone:
		st.SentSamples += uint64(res.written)
		st.SentBytes += uint64(res.bytes)
		st.DroppedSamples += n - uint64(res.written)
		st.LastSuccess, st.ConsecutiveFailures = now, 0
		st.HighestTimestamp = max(st.HighestTimestamp, info.MaxT)
	case verdictRefused:
		taken := min(uint64(res.written), n)
		st.SentSamples += taken
		st.FailedSamples += n - taken
		st.FailedRequests++
		st.LastError, st.LastErrorTime = res.err.Error(), now
		st.ConsecutiveFailures = 0 // the endpoint works; it is this request that doesn't
	case verdictRetry:
		st.RetriedSamples += n
		st.FailedRequests++
		st.LastError, st.LastErrorTime = res.err.Error(), now
		st.ConsecutiveFailures++
	case verdictAgain:
		if len(s.v1) > 16 {
			clear(s.v1)
		}
		s.v1[endpoint] = now.Add(s.opts.V1Memory)
	}
	s.mu.Unlock()
	s.metrics.count(info, res)
	if res.err != nil {
		s.logFailure(endpoint, info, res)
	}
}

func (s *Sender) logFailure(endpoint string, info Info, res result) {
	suppressed, ok := s.limit.allow(res.reason)
	if !ok {
		return
	}
	log := s.log.With("endpoint", endpoint, "reason", res.reason, "samples", info.All(), "err", res.err)
	if suppressed > 0 {
		log = log.With("alike_since_last_line", suppressed)
	}
	if info.Key != "" {
		log = log.With("key", info.Key)
	}
	switch res.verdict {
	case verdictDone:
		log.Warn("remote write was taken in part")
	case verdictRefused:
		log.Error("remote write refused; its samples are dropped")
	case verdictRetry:
		log.Warn("remote write failed; will retry")
	case verdictAgain:
		log.Info("remote write falls back to protocol 1.0")
	}
}

func (s *Sender) dropped(info Info, reason string, err error) {
	s.mu.Lock()
	s.status.DroppedSamples += uint64(info.All())
	s.mu.Unlock()
	s.metrics.droppedSamples.WithLabelValues(reason).Add(float64(info.All()))
	if _, ok := s.limit.allow(reason); ok {
		s.log.Error("dropping a queued record", "reason", reason, "err", err)
	}
}

// Status returns what the sender is doing now.
func (s *Sender) Status() Status {
	q := s.opts.Source.Stats()
	endpoint := s.opts.Endpoint()
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.status
	st.Endpoint, st.Pending, st.OldestAge, st.Protocol = endpoint, q.Pending, q.OldestAge, "2.0"
	if until, ok := s.v1[endpoint]; ok && time.Now().Before(until) {
		st.Protocol = "1.0"
	}
	return st
}
