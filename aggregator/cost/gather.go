package cost

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"muster.dev/muster/internal/wire"
)

// gathering is one question to all regionals, and their answers as they come in. Whoever waits
// for it may leave, and take what there is: the others, and who comes later, still get all of it.
type gathering[T any] struct {
	s     *Server
	at    time.Time
	first chan struct{} // closed with the first good answer
	all   chan struct{} // closed when all have answered or failed

	mu      sync.Mutex
	answers []*T // by regional; nil: none so far
	errs    []error
}

// gather asks all regionals at once.
func gather[T any](ctx context.Context, s *Server, ask func(context.Context, Regional) (*T, error)) *gathering[T] {
	n := len(s.opts.Regionals)
	g := &gathering[T]{s: s, at: s.opts.Now(), first: make(chan struct{}), all: make(chan struct{}), answers: make([]*T, n), errs: make([]error, n)}
	// Whoever asked and went away must not spoil it for those that wait for the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Timeout)
	var wg sync.WaitGroup
	var once sync.Once
	for i, r := range s.opts.Regionals {
		wg.Go(func() {
			answer, err := ask(ctx, r)
			g.mu.Lock()
			g.answers[i], g.errs[i] = answer, err
			g.mu.Unlock()
			if err == nil {
				s.asked.WithLabelValues(r.Name, "ok").Inc()
				once.Do(func() { close(g.first) })
				return
			}
			s.asked.WithLabelValues(r.Name, "failed").Inc()
			if _, ok := s.logged.Pass(r.Name, s.opts.Now()); ok {
				s.log.Warn("a regional does not say what its sites cost", "regional", r.Name, "err", err)
			}
		})
	}
	go func() {
		defer cancel()
		wg.Wait()
		close(g.all)
	}()
	return g
}

// over reports whether all have answered or failed.
func (g *gathering[T]) over() bool {
	select {
	case <-g.all:
		return true
	default:
		return false
	}
}

// wait waits for all regionals or, if patience is not 0, until it is at its end and one has
// answered. It returns the answers, and by name who has not given one.
func (g *gathering[T]) wait(patience time.Duration) (good []*T, missing []wire.MissingRegion) {
	ctx, stop := wire.Impatient(context.Background(), patience, g.first)
	defer stop()
	select {
	case <-g.all:
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	missing = []wire.MissingRegion{}
	for i, r := range g.s.opts.Regionals {
		switch {
		case g.answers[i] != nil:
			good = append(good, g.answers[i])
		case g.errs[i] != nil:
			missing = append(missing, wire.MissingRegion{Region: r.Name, Reason: g.s.reason(g.errs[i])})
		default:
			missing = append(missing, wire.MissingRegion{Region: r.Name, Reason: context.Cause(ctx).Error(), Late: true})
		}
	}
	slices.SortFunc(missing, func(a, b wire.MissingRegion) int { return strings.Compare(a.Region, b.Region) })
	return good, missing
}
