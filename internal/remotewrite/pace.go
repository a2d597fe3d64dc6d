package remotewrite

import (
	"context"
	"sync"
	"time"
)

// sleep waits for d; false means that ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// gate holds back all workers while a receiver asked for a pause.
type gate struct {
	mu    sync.Mutex
	until time.Time
}

func (g *gate) closeFor(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := time.Now().Add(d); at.After(g.until) {
		g.until = at
	}
}

// wait returns false if ctx ended before the gate opened.
func (g *gate) wait(ctx context.Context) bool {
	for {
		g.mu.Lock()
		d := time.Until(g.until)
		g.mu.Unlock()
		if d <= 0 {
			return ctx.Err() == nil
		}
		if !sleep(ctx, d) {
			return false
		}
	}
}

// logLimiter lets one line a reason through per period, and counts the others.
type logLimiter struct {
	period time.Duration

	mu   sync.Mutex
	last map[string]*logState
}

type logState struct {
	at         time.Time
	suppressed int
}

func newLogLimiter(period time.Duration) *logLimiter {
	return &logLimiter{period: period, last: map[string]*logState{}}
}

// allow tells whether to log now, and how many lines were held back since the last.
func (l *logLimiter) allow(reason string) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	st := l.last[reason]
	if st == nil {
		l.last[reason] = &logState{at: now}
		return 0, true
	}
	if now.Sub(st.at) < l.period {
		st.suppressed++
		return 0, false
	}
	suppressed = st.suppressed
	st.at, st.suppressed = now, 0
	return suppressed, true
}
