package obs

import (
	"context"
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Limit hands on a record to h only if none of its kind was handed on within the last
// interval, and says on the next how many were left out. Records are of one kind that
// have the same message and level, and came by the same With.
func Limit(h slog.Handler, interval time.Duration) slog.Handler {
	return &limited{Handler: h, seen: &seen{interval: interval, kinds: map[string]*kind{}}}
}

type limited struct {
	slog.Handler
	with string // what With added, as part of the kind
	seen *seen
}

// seen is shared by all that With made of one handler.
type seen struct {
	interval time.Duration

	mu    sync.Mutex
	kinds map[string]*kind
}

type kind struct {
	last    time.Time
	leftOut int
}

// maxKinds bounds what is remembered: a message may hold what a peer chose.
const maxKinds = 1024

// pass tells whether a record goes on, and how many of its kind did not before it.
func (s *seen) pass(key string) (leftOut int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	k := s.kinds[key]
	if k == nil {
		if len(s.kinds) >= maxKinds {
			clear(s.kinds)
		}
		s.kinds[key] = &kind{last: now}
		return 0, true
	}
	if now.Sub(k.last) < s.interval {
		k.leftOut++
		return 0, false
	}
	leftOut, k.leftOut, k.last = k.leftOut, 0, now
	return leftOut, true
}

// Handle implements slog.Handler.
func (l *limited) Handle(ctx context.Context, r slog.Record) error {
	leftOut, ok := l.seen.pass(r.Level.String() + l.with + r.Message)
	if !ok {
		return nil
	}
	if leftOut > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("left_out", leftOut))
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l *limited) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := l.with
	for _, a := range attrs {
		with += a.String() + "\x00"
	}
	return &limited{Handler: l.Handler.WithAttrs(attrs), with: with, seen: l.seen}
}

// WithGroup implements slog.Handler.
func (l *limited) WithGroup(name string) slog.Handler {
	return &limited{Handler: l.Handler.WithGroup(name), with: l.with + name + "\x00", seen: l.seen}
}

// ServerLog is the ErrorLog of an http.Server. What handlers did wrong, a panic above
// all, is an error and has its stack; what else a server says, mostly of peers that
// speak no HTTP or TLS, is a warning. One line of a kind goes out a minute.
func ServerLog(l *slog.Logger) *log.Logger {
	return log.New(&serverLog{slog.New(Limit(l.Handler(), time.Minute))}, "", 0)
}

type serverLog struct{ log *slog.Logger }

// Write takes one line of net/http, which for a panic has the stack below it.
func (s *serverLog) Write(p []byte) (int, error) {
	text := strings.TrimSpace(string(p))
	line, stack, _ := strings.Cut(text, "\n")
	if what, found := strings.CutPrefix(line, "http: panic serving "); found {
		_, what, _ = strings.Cut(what, ": ") // the peer's address
		s.log.Error("a request's handler panicked: "+what, "stack", stack)
	} else if what, found := strings.CutPrefix(line, "http2: panic serving "); found {
		_, what, _ = strings.Cut(what, ": ")
		s.log.Error("a request's handler panicked: "+what, "stack", stack)
	} else {
		s.log.Warn(kindOf(line), "detail", text)
	}
	return len(p), nil
}

// kindOf is a line up to what differs from peer to peer.
func kindOf(line string) string {
	if i := strings.IndexAny(line, "0123456789[\""); i > 0 && !strings.HasPrefix(line, "http2") {
		line = line[:i]
	}
	if before, _, found := strings.Cut(line, " from "); found {
		line = before
	}
	return strings.TrimSpace(line)
}
