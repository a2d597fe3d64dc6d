package readings

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/decide"
)

// figures count what sources were asked.
type figures struct {
	asked *prometheus.CounterVec
	took  *prometheus.HistogramVec
}

// forgetAfter is how long after it was asked last an answer is kept, for those that may
// be late: by then it is long too old.
const forgetAfter = 5 * time.Minute

// shared asks a source once for all who want the same at one time, and gives its answer to
// all who come while it is new. Who asks waits no longer than their own context: a source
// that hangs keeps one goroutine for limit, and nobody.
type shared[T any] struct {
	source       string
	every, limit time.Duration
	// late: an answer that is newer than fresh serves while the next one is under way. A
	// failure replaces it.
	late bool
	m    *figures

	mu    sync.Mutex
	of    map[string]*entry[T]
	swept time.Time
}

type entry[T any] struct {
	running chan struct{} // closed when an answer has come; nil: none is under way
	wanted  time.Time     // last
	// The newest answer, and when it was asked for; zero: none has come yet.
	at    time.Time
	value T
	err   error
}

func newShared[T any](source string, every, limit time.Duration, late bool, m *figures) *shared[T] {
	return &shared[T]{source: source, every: every, limit: limit, late: late, m: m, of: map[string]*entry[T]{}}
}

// get returns the answer of this key, and when it was asked for. ask must end when its
// context does; its value is given to many and must not be changed by them.
func (s *shared[T]) get(ctx context.Context, key string, ask func(context.Context) (T, error)) (T, time.Time, error) {
	s.mu.Lock()
	now := time.Now()
	s.sweepLocked(now)
	e := s.of[key]
	if e == nil {
		e = &entry[T]{}
		s.of[key] = e
	}
	e.wanted = now
	if !e.at.IsZero() && now.Sub(e.at) < s.every {
		defer s.mu.Unlock()
		return e.value, e.at, e.err
	}
	if e.running == nil {
		e.running = make(chan struct{})
		go s.ask(e, now, ask)
	}
	running := e.running
	s.mu.Unlock()
	select {
	case <-running:
		s.mu.Lock()
		defer s.mu.Unlock()
		return e.value, e.at, e.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late && !e.at.IsZero() && e.err == nil && time.Since(e.at) < fresh {
		return e.value, e.at, nil
	}
	var none T
	return none, time.Time{}, fmt.Errorf("has not answered within %s", time.Since(now).Round(100*time.Millisecond))
}

// ask is the one goroutine that an entry has at one time.
func (s *shared[T]) ask(e *entry[T], now time.Time, ask func(context.Context) (T, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), s.limit)
	defer cancel()
	value, err := ask(ctx)
	result := "ok"
	if err != nil {
		result = "error"
	}
	s.m.asked.WithLabelValues(s.source, result).Inc()
	s.m.took.WithLabelValues(s.source).Observe(time.Since(now).Seconds())
	s.mu.Lock()
	defer s.mu.Unlock()
	e.value, e.err, e.at = value, err, now
	close(e.running)
	e.running = nil
}

// sweepLocked forgets what nobody has asked for of late.
func (s *shared[T]) sweepLocked(now time.Time) {
	if now.Sub(s.swept) < time.Minute {
		return
	}
	s.swept = now
	for key, e := range s.of {
		if e.running == nil && now.Sub(e.wanted) > forgetAfter {
			delete(s.of, key)
		}
	}
}

// unknown is a reading that holds, and why.
func unknown(format string, args ...any) decide.Outside {
	return decide.Outside{Verdict: v1alpha1.GateUnknown, Text: fmt.Sprintf(format, args...)}
}
