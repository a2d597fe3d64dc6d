package elastic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"muster.dev/muster/regional/logs/store"
)

const retentionInterval = 10 * time.Minute

func (s *Store) retentionLoop() {
	tick := time.NewTicker(retentionInterval)
	defer tick.Stop()
	for {
		ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
		if _, err := s.Retain(ctx); err != nil && s.ctx.Err() == nil {
			s.opts.Logger.Warn("retention of the log store; tried again later", "err", err, "in", retentionInterval)
		}
		cancel()
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Retain deletes the indices whose day is past the retention, and returns their names. It
// runs by itself every ten minutes; several regionals on one cluster may do it at once.
func (s *Store) Retain(ctx context.Context) ([]string, error) {
	all, err := s.Indices(ctx)
	if err != nil {
		return nil, err
	}
	oldest := store.Day(s.opts.Now().Add(-s.opts.Retention))
	var gone []string
	var errs []error
	for _, name := range all {
		if day, _ := s.parseIndexName(name); !day.Before(oldest) {
			continue
		}
		err := s.do(ctx, esapi.IndicesDeleteRequest{Index: []string{name}}, nil)
		var e *Error
		if err != nil && !(errors.As(err, &e) && e.Status == http.StatusNotFound) {
			errs = append(errs, fmt.Errorf("delete index %s: %w", name, err))
			continue
		}
		gone = append(gone, name)
		s.deleted.Inc()
		s.opts.Logger.Info("deleted an index past the retention", "index", name, "retention", s.opts.Retention)
	}
	slices.Sort(gone)
	return gone, errors.Join(errs...)
}

// Indices lists the indices of the store, of all tenants.
func (s *Store) Indices(ctx context.Context) ([]string, error) {
	var all map[string]struct{}
	yes := true
	if err := s.do(ctx, esapi.IndicesGetSettingsRequest{Index: []string{s.opts.Prefix + "-*"}, Name: []string{"index.uuid"}, AllowNoIndices: &yes, IgnoreUnavailable: &yes}, &all); err != nil {
		return nil, fmt.Errorf("list indices: %w", err)
	}
	return slices.Sorted(func(yield func(string) bool) {
		for name := range all {
			if _, ok := s.parseIndexName(name); ok && !yield(name) {
				return
			}
		}
	}), nil
}
