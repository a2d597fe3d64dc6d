package intake

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
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
// zstd or snappy, as Fluent Bit's http output sends them. identify says who has sent a
// request: the listener checks certificates.
//
// A body that is sent again because an answer was lost is stored once if it is sure
// that it is the same one: see DeliveryHeader. Otherwise it is another one, so that a
// script that posts the same text every hour, or twice in a second, loses nothing.
//
// The answer is 200 and {"accepted": n, "dropped": n, "malformed": n, "reason": "…"}.
// 400, 413 and 415 mean that the same body will never be taken, 429 and 503 that it
// will after Retry-After seconds; Fluent Bit acts on just that.
func (in *Intake) Handler(identify Identify) http.Handler {
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
	rc := http.NewResponseController(w)
	o, a := h.take(r, rc, s, region)
	if a != nil {
		result := "broken"
		if a.retry > 0 {
			result = "delayed"
		}
		in.metrics.messages.WithLabelValues(result).Inc()
		in.warn(s, "http "+strconv.Itoa(a.code), "a request with log lines was refused", "err", a.err, "status", a.code)
		h.drain(r, rc)
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
	}{o.lines, o.dropped + o.tooOld, o.malformed, o.first})
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
func (h *handler) take(r *http.Request, rc *http.ResponseController, s *site, region string) (_ outcome, a *answer) {
	in := h.in
	s.configure(in.opts.Now(), in.limits(s.id))
	// Before the body is read: it would be read for nothing.
	if debt := s.debt(in.opts.Now()); debt > 0 {
		in.overBudget(s, true)
		return outcome{}, later(http.StatusTooManyRequests, debt, fmt.Errorf("site %s: %w", s.id, errOverBudget))
	}
	if err := in.quota.spent(s.id.Tenant); err != nil {
		return outcome{}, later(http.StatusTooManyRequests, in.overQuota(s, err), err)
	}
	if r.ContentLength > int64(times(in.opts.MaxMessageBytes, oversize)) {
		return outcome{}, fail(http.StatusRequestEntityTooLarge, "body of %d bytes: want at most %d; send smaller batches", r.ContentLength, in.opts.MaxMessageBytes)
	}
	ctx, cancel := context.WithTimeout(r.Context(), in.opts.MaxDelay)
	defer cancel()
	l := lease{m: in.memory, s: s}
	defer l.free()
	body, a := h.body(ctx, r, rc, s, &l)
	if a != nil {
		return outcome{}, a
	}
	if after, err := in.budget(noWait, s, len(body)); err != nil {
		return outcome{}, later(http.StatusTooManyRequests, after, fmt.Errorf("site %s: %w", s.id, err))
	}
	defer func() {
		if a != nil && a.retry > 0 {
			in.quota.add(s.id.Tenant, -int64(len(body))) // it comes again
		}
	}()
	if err := l.grow(ctx, int64(min(workBytes, 3*len(body)+4<<10))); err != nil {
		return outcome{}, later(http.StatusServiceUnavailable, time.Second, err)
	}
	records, wantTime := recordsOf(r.Header.Get("Content-Type"), body)
	w, tag := in.newWorker(), tagOf(r)
	delivered := r.Header.Get(DeliveryHeader)
	id := w.identifyHTTP(s, delivered, tag, body, records, wantTime)
	o, err := w.deliver(delivery{site: s, region: region, tag: tag, hash: id, records: records, wantTime: wantTime, repeats: delivered == ""})
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

// body reads and decompresses the body, and cuts its overlong texts.
func (h *handler) body(ctx context.Context, r *http.Request, rc *http.ResponseController, s *site, l *lease) ([]byte, *answer) {
	in := h.in
	how := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding")))
	switch how {
	case "identity":
		how = ""
	case "", "gzip", "zstd", "snappy":
	default:
		return nil, fail(http.StatusUnsupportedMediaType, "Content-Encoding %.20q: want gzip, zstd or snappy", how)
	}
	start, limit := time.Now(), times(in.opts.MaxMessageBytes, oversize)
	src := &paced{r: r.Body, limit: limit, before: func(have int) {
		// Not every server can; those have deadlines of their own.
		_ = rc.SetReadDeadline(in.arriveBy(start, time.Now(), have))
	}}
	broken := &remember{r: src}
	trim := in.trimEntries
	if !isMsgpack(r.Header.Get("Content-Type")) {
		trim = func(r io.Reader) io.Reader {
			return &jsonTrimmer{r: bufio.NewReaderSize(r, 32<<10), max: in.textLimit()}
		}
	}
	guess := 0
	if how == "" && r.ContentLength < int64(in.opts.MaxPayloadBytes) {
		guess = int(max(r.ContentLength, 0)) + 1
	}
	out, err := in.unpackFrom(ctx, l, how, broken, guess, trim)
	switch {
	case errors.Is(err, errMemory):
		return nil, later(http.StatusServiceUnavailable, time.Second, err)
	case errors.Is(broken.err, errLarge):
		return nil, fail(http.StatusRequestEntityTooLarge, "body: want at most %d bytes; send smaller batches", in.opts.MaxMessageBytes)
	case errors.Is(err, errLarge):
		return nil, fail(http.StatusRequestEntityTooLarge, "body: want at most %d bytes when decompressed; send smaller batches", in.opts.MaxPayloadBytes)
	case broken.err != nil && !errors.Is(broken.err, io.EOF):
		// The sender is gone or too slow; whatever is sent may reach it or not.
		return nil, later(http.StatusRequestTimeout, time.Second, fmt.Errorf("reading the body: %w", broken.err))
	case err != nil:
		return nil, fail(http.StatusBadRequest, "body: %s: %w", how, err)
	}
	_ = rc.SetReadDeadline(time.Time{}) // not after an error: the rest of the body is not waited for
	// What was cut off has been sent, too.
	s.pay(in.opts.Now(), max(0, src.have-len(out)), 0)
	return out, nil
}

// remember keeps the error of a reader, which a decompressor may replace by its own.
type remember struct {
	r   io.Reader
	err error
}

func (r *remember) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil {
		r.err = err
	}
	return n, err
}

// drainTime is how long the rest of a refused body is read for nothing.
const drainTime = 30 * time.Second

// drain reads what is left of a body that was refused, within bounds: a sender that
// writes all of its body before it reads would see the connection reset and not the answer.
// Over HTTP/2 an answer is read all the same.
func (h *handler) drain(r *http.Request, rc *http.ResponseController) {
	if r.ProtoMajor != 1 {
		return
	}
	start := time.Now()
	src := &paced{r: r.Body, limit: 4 * times(h.in.opts.MaxMessageBytes, oversize), before: func(have int) {
		by := h.in.arriveBy(start, time.Now(), have)
		if end := start.Add(drainTime); end.Before(by) {
			by = end
		}
		_ = rc.SetReadDeadline(by)
	}}
	_, _ = io.Copy(io.Discard, src)
}

func isMsgpack(contentType string) bool {
	kind := mediaType(contentType)
	return strings.HasSuffix(kind, "/msgpack") || strings.HasSuffix(kind, "/x-msgpack")
}

func mediaType(contentType string) string {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		kind = strings.ToLower(strings.TrimSpace(contentType))
	}
	return kind
}

// recordsOf chooses the form by the content type.
func recordsOf(contentType string, body []byte) (iter.Seq2[entry, error], bool) {
	if isMsgpack(contentType) {
		return entries(body), false
	}
	kind := mediaType(contentType)
	walk := eachObject
	if strings.HasSuffix(kind, "ndjson") || strings.HasSuffix(kind, "jsonl") || strings.HasSuffix(kind, "jsonlines") {
		walk = eachLine
	}
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	return func(yield func(entry, error) bool) {
		walk(body, func(v value, err error) bool { return yield(entry{record: v}, err) })
	}, true
}
