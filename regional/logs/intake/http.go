package intake

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"muster.dev/muster/internal/fleet"
)

// Path of the log intake over HTTP.
const Path = "/api/v1/logs"

// serveHTTP serves the handler on its own listener until ctx ends.
func (in *Intake) serveHTTP(ctx context.Context) error {
	mux := http.NewServeMux()
	h := in.Handler(nil)
	mux.Handle("POST "+Path, h)
	mux.Handle("PUT "+Path, h) // Fluent Bit's http_method
	srv := &http.Server{
		Handler: mux, TLSConfig: in.opts.TLS.Clone(), ReadHeaderTimeout: in.opts.HandshakeTime, IdleTimeout: in.opts.IdleTime, MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(in.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- srv.ServeTLS(in.httpLn, "", "") }()
	select {
	case err := <-served:
		return fmt.Errorf("log intake: HTTP: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if srv.Shutdown(stop) != nil {
		_ = srv.Close()
	}
	<-served
	return nil
}

// renewWait is how long a sender with an expired certificate waits: the agent
// renews it, and a sender that is told 401 would drop its lines.
const renewWait = 30 * time.Second

// Identify says which site a request is from, and its region. An error is answered
// with its text and 401, on which Fluent Bit drops the chunk, or with 503 if it is an
// ErrExpired, on which it sends it again.
type Identify func(*http.Request) (site fleet.SiteID, region string, err error)

// Handler serves POST /api/v1/logs: newline-delimited JSON (application/x-ndjson,
// one object a line), a JSON array or objects one after another (anything else),
// or Fluent Bit's own entries (application/msgpack), with Content-Encoding gzip,
// zstd or snappy, as Fluent Bit's http output sends them. identify is for a
// listener that checks certificates by itself; nil: the certificate that the TLS
// handshake of this request's connection has verified.
//
// A body that is sent again because an answer was lost is stored once, as far as its
// records have times of their own. One without is a line of its own each time: a
// script that posts the same text every hour, or twice in a second, loses none.
//
// The answer is 200 and {"accepted": n, "dropped": n, "malformed": n, "reason": "…"}.
// 400, 413 and 415 mean that the same body will never be taken, 429 and 503 that it
// will after Retry-After seconds; Fluent Bit acts on just that.
func (in *Intake) Handler(identify Identify) http.Handler {
	if identify == nil {
		identify = func(r *http.Request) (fleet.SiteID, string, error) {
			id, region, _, err := in.peer(r.TLS)
			return id, region, err
		}
	}
	return &handler{in: in, identify: identify}
}

type handler struct {
	in       *Intake
	identify Identify
}

// answer is an error with its status.
type answer struct {
	code  int
	retry time.Duration
	err   error
}

func (a *answer) Error() string { return a.err.Error() }

func fail(code int, format string, args ...any) *answer {
	return &answer{code: code, err: fmt.Errorf(format, args...)}
}

func later(code int, retry time.Duration, err error) *answer {
	return &answer{code: code, retry: retry, err: err}
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	in := h.in
	id, region, err := h.identify(r)
	if err != nil {
		in.metrics.refused.WithLabelValues("identity").Inc()
		a := fail(http.StatusUnauthorized, "%w", err)
		if errors.Is(err, ErrExpired) {
			a = later(http.StatusServiceUnavailable, renewWait, err)
		}
		h.reply(w, a)
		return
	}
	s, err := in.enter(id, region)
	if err != nil {
		h.reply(w, later(http.StatusTooManyRequests, time.Second, err))
		return
	}
	defer in.leave(s)
	o, a := h.take(r, http.NewResponseController(w), s, region)
	if a != nil {
		result := "broken"
		if a.retry > 0 {
			result = "delayed"
		}
		in.metrics.messages.WithLabelValues(result).Inc()
		in.warn(s, "http "+strconv.Itoa(a.code), "a request with log lines was refused", "err", a.err, "status", a.code)
		h.reply(w, a)
		return
	}
	in.metrics.messages.WithLabelValues("stored").Inc()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(struct {
		Accepted  int    `json:"accepted"`
		Dropped   int    `json:"dropped"`
		Malformed int    `json:"malformed"`
		Reason    string `json:"reason,omitempty"`
	}{o.lines, o.dropped, o.malformed, o.first})
}

func (h *handler) reply(w http.ResponseWriter, a *answer) {
	if a.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(a.retry.Seconds()))))
	}
	// What is left of the body is not worth reading.
	w.Header().Set("Connection", "close")
	http.Error(w, a.Error(), a.code)
}

// take reads one body and queues its records.
func (h *handler) take(r *http.Request, rc *http.ResponseController, s *site, region string) (outcome, *answer) {
	in := h.in
	s.configure(in.opts.Now(), in.limits(s.id))
	// Before the body is read: it would be read for nothing.
	if debt := s.debt(in.opts.Now()); debt > 0 {
		in.overBudget(s, true)
		return outcome{}, later(http.StatusTooManyRequests, debt, fmt.Errorf("site %s sends more log bytes than its budget", s.id))
	}
	if r.ContentLength > int64(in.opts.MaxMessageBytes) {
		return outcome{}, fail(http.StatusRequestEntityTooLarge, "body of %d bytes: want at most %d; send smaller batches", r.ContentLength, in.opts.MaxMessageBytes)
	}
	ctx, cancel := context.WithTimeout(r.Context(), in.opts.MaxDelay)
	defer cancel()
	l := lease{m: in.memory, s: s}
	defer l.free()
	body, a := h.body(ctx, r, rc, &l)
	if a != nil {
		return outcome{}, a
	}
	if _, ok := in.budget(nil, s, len(body)); !ok {
		return outcome{}, later(http.StatusTooManyRequests, time.Second, fmt.Errorf("site %s sends more log bytes than its budget", s.id))
	}
	if err := l.grow(ctx, int64(min(workBytes, 3*len(body)+4<<10))); err != nil {
		return outcome{}, later(http.StatusServiceUnavailable, time.Second, err)
	}
	records, wantTime := recordsOf(r.Header.Get("Content-Type"), body)
	o, err := in.newWorker().deliver(delivery{site: s, region: region, tag: tagOf(r), hash: hashOf(s.id, []byte("http"), body), records: records, wantTime: wantTime, repeats: true})
	switch {
	case err != nil:
		return o, later(http.StatusServiceUnavailable, 5*time.Second, err)
	case o.total > 0 && o.malformed == o.total:
		return o, fail(http.StatusBadRequest, "no record in it: %s", o.first)
	}
	return o, nil
}

// TagHeader has the sender's tag, percent-encoded or as it is (header_tag of Fluent
// Bit's http output).
const TagHeader = "X-Fluent-Tag"

func tagOf(r *http.Request) []byte {
	tag := r.Header.Get(TagHeader)
	if plain, err := url.PathUnescape(tag); err == nil {
		tag = plain
	}
	return []byte(tag)
}

// body reads and decompresses the body.
func (h *handler) body(ctx context.Context, r *http.Request, rc *http.ResponseController, l *lease) ([]byte, *answer) {
	in := h.in
	how := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding")))
	limit := in.opts.MaxMessageBytes
	start := time.Now()
	deadline := func(have int) {
		// Not every server can; those have deadlines of their own.
		_ = rc.SetReadDeadline(in.arriveBy(start, time.Now(), have))
	}
	raw, err := in.readAll(ctx, l, r.Body, limit, int(max(r.ContentLength, 0))+1, deadline)
	switch {
	case errors.Is(err, errLarge):
		return nil, fail(http.StatusRequestEntityTooLarge, "body: want at most %d bytes; send smaller batches", limit)
	case errors.Is(err, errMemory):
		return nil, later(http.StatusServiceUnavailable, time.Second, err)
	case err != nil:
		// The sender is gone or too slow; whatever is sent may reach it or not.
		return nil, later(http.StatusRequestTimeout, time.Second, fmt.Errorf("reading the body: %w", err))
	}
	_ = rc.SetReadDeadline(time.Time{}) // not after an error: the rest of the body is not waited for
	switch how {
	case "", "identity":
		return raw, nil
	case "gzip", "zstd", "snappy":
	default:
		return nil, fail(http.StatusUnsupportedMediaType, "Content-Encoding %.20q: want gzip, zstd or snappy", how)
	}
	out, err := in.decompress(ctx, l, how, raw)
	switch {
	case errors.Is(err, errLarge):
		return nil, fail(http.StatusRequestEntityTooLarge, "body: want at most %d bytes when decompressed; send smaller batches", in.opts.MaxPayloadBytes)
	case errors.Is(err, errMemory):
		return nil, later(http.StatusServiceUnavailable, time.Second, err)
	case err != nil:
		return nil, fail(http.StatusBadRequest, "body: %s: %w", how, err)
	}
	return out, nil
}

// recordsOf chooses the form by the content type.
func recordsOf(contentType string, body []byte) (iter.Seq2[entry, error], bool) {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		kind = strings.ToLower(strings.TrimSpace(contentType))
	}
	if strings.HasSuffix(kind, "/msgpack") || strings.HasSuffix(kind, "/x-msgpack") {
		return entries(body), false
	}
	walk := eachObject
	if strings.HasSuffix(kind, "ndjson") || strings.HasSuffix(kind, "jsonl") || strings.HasSuffix(kind, "jsonlines") {
		walk = eachLine
	}
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	return func(yield func(entry, error) bool) {
		walk(body, func(v value, err error) bool { return yield(entry{record: v}, err) })
	}, true
}
