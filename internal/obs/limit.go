package obs

import (
	"context"
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Every says of each kind of thing whether it may be said now: once an interval. It is
// safe for concurrent use.
type Every struct {
	interval time.Duration

	mu    sync.Mutex
	kinds map[string]*kind
}

type kind struct {
	last    time.Time
	leftOut int
}

// maxKinds bounds what is remembered: a kind may hold what a peer chose.
const maxKinds = 1024

// NewEvery returns one that lets a kind through once an interval.
func NewEvery(interval time.Duration) *Every {
	return &Every{interval: interval, kinds: map[string]*kind{}}
}

// Pass tells whether a thing of a kind may be said at now, and if so, how many of its
// kind were left out since the last.
func (e *Every) Pass(of string, now time.Time) (leftOut int, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := e.kinds[of]
	if k == nil {
		if len(e.kinds) >= maxKinds {
			clear(e.kinds)
		}
		e.kinds[of] = &kind{last: now}
		return 0, true
	}
	if now.Sub(k.last) < e.interval {
		k.leftOut++
		return 0, false
	}
	leftOut, k.leftOut, k.last = k.leftOut, 0, now
	return leftOut, true
}

// Limit hands on a record to h only if none of its kind was handed on within the last
// interval, and says on the next how many were left out. Records are of one kind that
// have the same message and level, and came by the same With.
func Limit(h slog.Handler, interval time.Duration) slog.Handler {
	return &limited{Handler: h, every: NewEvery(interval)}
}

// LimitWarnings is Limit for warnings and errors alone, whatever With they came by: one
// that names each of thousands of peers does not make them thousands of kinds.
func LimitWarnings(h slog.Handler, interval time.Duration) slog.Handler {
	return &limited{Handler: h, every: NewEvery(interval), warnings: true}
}

type limited struct {
	slog.Handler
	with     string // what With added, as part of the kind
	warnings bool   // with is no part of it, and what is less goes through
	every    *Every // shared by all that With made of one handler
}

// Handle implements slog.Handler.
func (l *limited) Handle(ctx context.Context, r slog.Record) error {
	if l.warnings && r.Level < slog.LevelWarn {
		return l.Handler.Handle(ctx, r)
	}
	leftOut, ok := l.every.Pass(r.Level.String()+l.with+r.Message, time.Now())
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
	with := ""
	for _, a := range attrs {
		with += a.String() + "\x00"
	}
	return l.derive(l.Handler.WithAttrs(attrs), with)
}

// WithGroup implements slog.Handler.
func (l *limited) WithGroup(name string) slog.Handler {
	return l.derive(l.Handler.WithGroup(name), name+"\x00")
}

func (l *limited) derive(h slog.Handler, with string) slog.Handler {
	out := *l
	out.Handler = h
	if !l.warnings {
		out.with += with
	}
	return &out
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
