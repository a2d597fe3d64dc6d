// Package shipper is the Fluent Bit of simulated sites: it takes a site's lines at an
// interval and posts them to the gateway, with the site's own certificate, as Fluent
// Bit's http output does: what was not acknowledged is sent again, in bounded memory.
//
// Real sites run the real Fluent Bit; only the demo and load tests use this.
package shipper

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"
)

// MaxBuffered bounds what waits for an acknowledgement, in bytes; the oldest chunk
// goes first, as with storage.total_limit_size.
const MaxBuffered = 1 << 20

// Options of New; all but Interval are required.
type Options struct {
	// Collect appends the lines written after from and not after to, as NDJSON.
	Collect func(b []byte, from, to time.Time) []byte
	// Endpoint is the gateway, https://HOST:PORT; empty: not yet known.
	Endpoint func() string
	Client   func() *http.Client
	Interval time.Duration // default 2 s
	Logger   *slog.Logger
}

// Stats of a Shipper.
type Stats struct{ Sent, Dropped, Failures uint64 } // chunks, chunks, attempts

// Shipper ships one site's logs.
type Shipper struct {
	opts   Options
	chunks [][]byte
	held   int

	sent, dropped, failures atomic.Uint64
}

// New returns a Shipper that does nothing until Run.
func New(o Options) *Shipper {
	if o.Interval <= 0 {
		o.Interval = 2 * time.Second
	}
	return &Shipper{opts: o}
}

// Stats returns what was done so far.
func (s *Shipper) Stats() Stats {
	return Stats{Sent: s.sent.Load(), Dropped: s.dropped.Load(), Failures: s.failures.Load()}
}

// Run ships until ctx ends.
func (s *Shipper) Run(ctx context.Context) error {
	t := time.NewTicker(s.opts.Interval)
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-t.C:
			s.take(last, now)
			last = now
			s.flush(ctx)
		}
	}
}

func (s *Shipper) take(from, to time.Time) {
	lines := s.opts.Collect(nil, from, to)
	if len(lines) == 0 {
		return
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(lines) // to memory: can't fail
	_ = z.Close()
	s.chunks = append(s.chunks, b.Bytes())
	s.held += b.Len()
	for s.held > MaxBuffered {
		s.held -= len(s.chunks[0])
		s.chunks = s.chunks[1:]
		s.dropped.Add(1)
	}
}

// flush sends chunks, oldest first, until one fails.
func (s *Shipper) flush(ctx context.Context) {
	endpoint := s.opts.Endpoint()
	if endpoint == "" {
		return
	}
	for len(s.chunks) > 0 {
		again, err := s.post(ctx, endpoint+"/api/v1/logs", s.chunks[0])
		if again {
			s.failures.Add(1)
			s.opts.Logger.Debug("logs wait", "err", err, "chunks", len(s.chunks))
			return
		}
		if err != nil {
			s.dropped.Add(1)
			s.opts.Logger.Warn("a chunk of logs was refused for good", "err", err)
		} else {
			s.sent.Add(1)
		}
		s.held -= len(s.chunks[0])
		s.chunks = s.chunks[1:]
	}
}

// post sends one chunk; again says that it should be sent once more.
func (s *Shipper) post(ctx context.Context, url string, chunk []byte) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(chunk))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("Content-Encoding", "gzip")
	resp, err := s.opts.Client().Do(req)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
	switch {
	case resp.StatusCode < 300:
		return false, nil
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		return true, errors.New(resp.Status)
	default:
		return false, fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(body))
	}
}
