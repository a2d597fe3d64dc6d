package desired

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"muster.dev/muster/internal/backoff"
	"muster.dev/muster/internal/holdings"
)

// Content keeps what sites were given, by digest, so that a site finds it where control was
// restarted meanwhile, or the site was away when another version came. Methods may be called
// at the same time. control/desired/content has those that there are.
//
// All of it is made of what is in etcd: sites are told before it is written, and that
// nothing can be written costs nobody anything but that.
type Content interface {
	Put(ctx context.Context, digest string, b []byte) error
	// Get returns what its digest says; fs.ErrNotExist: there is none, or it was damaged.
	Get(ctx context.Context, digest string) ([]byte, error)
	Remove(ctx context.Context, digest string) error // nil, if there is none
	// Each calls fn with each digest that is there.
	Each(ctx context.Context, fn func(digest string)) error
}

const (
	// putsAtOnce of content: an object store takes some 50 ms for each.
	putsAtOnce = 8
	putTimeout = time.Minute
	// collectEvery is how often it is looked for content that nobody needs.
	collectEvery = time.Minute
)

// content is what Options.Content has, and shall have. Guarded by the Store's lock.
type content struct {
	known bool                 // there is complete
	there map[string]time.Time // since when no site needs it; zero: one does, or it was not looked
	todo  map[string][]byte
	wake  chan struct{}

	failures *prometheus.CounterVec
}

func newContent(reg prometheus.Registerer) *content {
	c := &content{there: map[string]time.Time{}, todo: map[string][]byte{}, wake: make(chan struct{}, 1),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_desired_content_failures_total", Help: "Operations on what keeps content beyond the process that failed."}, []string{"operation"})}
	for _, op := range []string{"list", "put", "get", "remove"} {
		c.failures.WithLabelValues(op)
	}
	reg.MustRegister(c.failures)
	return c
}

func (c *content) wantLocked(digest string, b []byte) {
	if _, ok := c.there[digest]; ok {
		return
	}
	c.todo[digest] = b
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Fetch returns the content of a digest: of what somebody needs, or, where there are
// Options.Content, needed until lately, before the start of this process too. It must not be
// changed. An error that is fs.ErrNotExist says that there is none.
func (s *Store) Fetch(ctx context.Context, digest string) ([]byte, error) {
	s.mu.RLock()
	b, ok := s.blobs[digest]
	_, kept := s.content.there[digest]
	known := s.content.known
	s.mu.RUnlock()
	switch {
	case ok:
		return b.data, nil
	case s.opts.Content == nil || known && !kept || !holdings.IsDigest(digest):
		return nil, fmt.Errorf("blob %.64q: %w", digest, fs.ErrNotExist)
	}
	out, err := s.opts.Content.Get(ctx, digest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.mu.Lock()
		delete(s.content.there, digest)
		s.mu.Unlock()
	case err != nil:
		s.content.failures.WithLabelValues("get").Inc()
	}
	return out, err
}

// keepContent writes what is to be kept, and removes what nobody needs, until ctx ends.
func (s *Store) keepContent(ctx context.Context) {
	collect := time.NewTicker(collectEvery)
	defer collect.Stop()
	var again <-chan time.Time // a failure is over, perhaps
	failed := 0
	for {
		err := s.listContent(ctx)
		if err == nil {
			err = s.putContent(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failed++; failed == 1 {
				s.opts.Logger.Warn("what sites are given is not kept beyond this process; sites get it all the same, and it is tried again", "err", err)
			}
			again = time.After(backoff.Bound(failed, time.Second, time.Minute))
		case failed > 0:
			failed, again = 0, nil
			s.opts.Logger.Info("what sites are given is kept beyond this process again")
		}
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case <-again:
				waiting = false
			case <-s.content.wake:
				waiting = failed > 0
			case <-collect.C:
				s.collectContent(ctx)
			}
		}
	}
}

// listContent finds what is there, once.
func (s *Store) listContent(ctx context.Context) error {
	s.mu.RLock()
	known := s.content.known
	s.mu.RUnlock()
	if known {
		return nil
	}
	found := map[string]time.Time{}
	if err := s.opts.Content.Each(ctx, func(digest string) { found[digest] = time.Time{} }); err != nil {
		s.content.failures.WithLabelValues("list").Inc()
		return fmt.Errorf("list: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.content.known, s.content.there = true, found
	for digest := range found {
		delete(s.content.todo, digest)
	}
	return nil
}

func (s *Store) putContent(ctx context.Context) error {
	s.mu.Lock()
	todo := make(map[string][]byte, len(s.content.todo))
	for digest, b := range s.content.todo {
		if s.blobs[digest] == nil { // nobody needs it any more
			delete(s.content.todo, digest)
			continue
		}
		todo[digest] = b
	}
	s.mu.Unlock()
	puts, ctx := errgroup.WithContext(ctx) // where one fails, others would
	puts.SetLimit(putsAtOnce)
	for digest, b := range todo {
		puts.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, putTimeout)
			defer cancel()
			if err := s.opts.Content.Put(ctx, digest, b); err != nil {
				s.content.failures.WithLabelValues("put").Inc()
				return fmt.Errorf("put %.12s: %w", digest, err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.content.todo, digest)
			s.content.there[digest] = time.Time{}
			return nil
		})
	}
	return puts.Wait()
}

// collectContent removes what no site has needed for KeepContent. What was there before this
// process counts from its start: when it was needed last is written nowhere.
func (s *Store) collectContent(ctx context.Context) {
	now := s.opts.Now()
	var over []string
	s.mu.Lock()
	if s.started && s.content.known {
		for digest, since := range s.content.there {
			switch {
			case s.blobs[digest] != nil:
				s.content.there[digest] = time.Time{}
			case since.IsZero():
				s.content.there[digest] = now
			case now.Sub(since) >= s.opts.KeepContent:
				// Whoever needs it from here on has it written anew, after this.
				delete(s.content.there, digest)
				over = append(over, digest)
			}
		}
	}
	s.mu.Unlock()
	for i, digest := range over {
		rctx, cancel := context.WithTimeout(ctx, putTimeout)
		err := s.opts.Content.Remove(rctx, digest)
		cancel()
		if err == nil {
			continue
		}
		if ctx.Err() == nil {
			s.content.failures.WithLabelValues("remove").Inc()
			s.opts.Logger.Warn("content that no site needs is not removed; trying again", "digest", digest, "err", err)
		}
		s.mu.Lock()
		for _, left := range over[i:] { // they would fail alike
			s.content.there[left] = now.Add(-s.opts.KeepContent)
		}
		s.mu.Unlock()
		return
	}
}
