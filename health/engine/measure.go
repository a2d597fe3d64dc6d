package engine

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Measure asks regionals for figures of the sites of a view: PromQL that returns one series
// by (tenant, site), of all tenants. It answers with a value a query and site, in the order
// of view.Sites, NaN where there is none, and with what went wrong by regional.
//
// It is for what people look at now and then, and scores don't read; the store is not
// asked. A regional is asked Options.Concurrency queries at a time, beside those of ticks.
func (e *Engine) Measure(ctx context.Context, view *View, queries []string) (values [][]float64, failed map[string]error) {
	values = make([][]float64, len(queries))
	for q := range values {
		values[q] = slices.Repeat([]float64{math.NaN()}, len(view.Sites))
	}
	at := e.now()
	errs := make([]error, len(e.opts.Regionals))
	var all errgroup.Group
	for r, reg := range e.opts.Regionals {
		all.Go(func() error {
			var g errgroup.Group
			g.SetLimit(e.opts.Concurrency)
			for q, text := range queries {
				g.Go(func() error { return e.measure(ctx, view, reg, text, at, values[q]) })
			}
			errs[r] = g.Wait()
			return nil
		})
	}
	_ = all.Wait() // each regional's error is in errs
	failed = map[string]error{}
	for r, err := range errs {
		if err != nil {
			failed[e.opts.Regionals[r].Name] = err
		}
	}
	return values, failed
}

// measure asks one regional and keeps the values of its sites. Regionals write to different
// sites, so they need no lock.
func (e *Engine) measure(ctx context.Context, view *View, reg Regional, text string, at time.Time, values []float64) error {
	// An answer is in the order of the sites, more or less.
	next := 0
	err := e.ask(ctx, target{name: reg.Name, url: reg.URL + "/edge/api/v1"}, query{text: text}, at, func(answer []byte) error {
		return decodeVector(answer, func(tenant, site []byte, v float64) error {
			if len(tenant) == 0 || len(site) == 0 {
				return errNoSite
			}
			i := next
			if i >= len(view.Sites) || view.Sites[i].ID.Tenant != string(tenant) || view.Sites[i].ID.Name != string(site) {
				i = view.Snapshot.Find(string(tenant), string(site))
			}
			if i < 0 || view.Sites[i].Home != reg.Name {
				return nil
			}
			values[i], next = v, i+1
			return nil
		})
	})
	if err != nil && ctx.Err() != nil {
		return errors.New("no answer in time")
	}
	return err
}
