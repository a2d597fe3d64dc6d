package gateway

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/remotewrite"
)

// endedAtOnce is how many series' ends go to the forward queue in one batch.
const endedAtOnce = 2000

// endRefused ends the sites that are refused since they were here last, because they were
// deleted or revoked: they leave the live view, and so do all of their series, which would
// stand in answers for as long as PromQL looks back, and in alerts. A machine that has
// joined since under the name came with a certificate of its own, and is not meant.
func (g *Gateway) endRefused(ctx context.Context) {
	var gone []*site
	for _, s := range g.allSites() {
		s.mu.Lock()
		cert := s.live.cert
		s.mu.Unlock()
		if cert == nil || s.refs.Load() > 0 {
			continue
		}
		if reason, denied := g.opts.Upstream.Denied(s.id, cert); denied {
			g.log.Info("a site that is refused is forgotten, and its series end", "site", s.id, "reason", reason)
			g.endSeries(ctx, s)
			gone = append(gone, s)
		}
	}
	g.forget(ctx, gone)
}

// endSeries appends a stale marker to each series that the site sent, here and in the
// store. What can't be written ends five minutes after its last sample, as if nothing had
// been done.
func (g *Gateway) endSeries(ctx context.Context, s *site) {
	s.series.Lock()
	defer s.series.Unlock()
	now := g.now().UnixMilli()
	end := remotewrite.Sample{T: now, V: math.Float64frombits(value.StaleNaN)}
	app := g.opts.Edge.Appender(ctx)
	batch := make([]remotewrite.Series, 0, min(endedAtOnce, s.cache.len()))
	forward := func() {
		if _, err := g.opts.Forward(s.id.Tenant, batch); err != nil {
			g.logEvery("end", "the ends of a site's series don't reach the store", "site", s.id, "err", err)
		}
		batch = batch[:0]
	}
	ended := map[uint64]bool{} // one series may have been sent in several forms
	for i := range s.cache.slots {
		c := &s.cache.slots[i]
		if c.ref == 0 || ended[uint64(c.ref)] {
			continue
		}
		ended[uint64(c.ref)] = true
		if _, err := app.Append(c.ref, c.labels, end.T, end.V); err != nil {
			continue // its newest sample is of the future
		}
		if batch = append(batch, remotewrite.Series{Labels: c.labels, Samples: []remotewrite.Sample{end}}); len(batch) == endedAtOnce {
			forward()
		}
	}
	if len(batch) > 0 {
		forward()
	}
	if err := app.Commit(); err != nil {
		g.logEvery("end", "a site's series can't be ended", "site", s.id, "err", err)
	}
}

// forget drops sites and ends the series that the gateway writes about them.
func (g *Gateway) forget(ctx context.Context, gone []*site) {
	if len(gone) == 0 {
		return
	}
	now := g.now()
	if g.opts.Self != nil {
		app := g.opts.Self.Appender(ctx)
		for _, s := range gone {
			g.endSelf(app, s, now)
		}
		if err := app.Commit(); err != nil {
			g.logEvery("self", "the sites' connection series can't be ended", "err", err)
		}
	}
	var forgotten []*site
	g.mu.Lock()
	for _, s := range gone {
		if s.refs.Load() == 0 {
			delete(g.sites, s.id)
			g.sorted.Store(nil)
			forgotten = append(forgotten, s)
		}
	}
	g.mu.Unlock()
	for _, s := range forgotten {
		g.leaveExtra(ctx, s)
	}
}

// leaveExtra lets what the histograms of a forgotten site take count until the head drops
// them: a tenant that deletes its sites has its memory back when it is free.
func (g *Gateway) leaveExtra(ctx context.Context, s *site) {
	s.series.Lock()
	defer s.series.Unlock()
	if s.extra == 0 {
		return
	}
	head := g.opts.Series
	for i := range s.cache.slots {
		if c := &s.cache.slots[i]; c.extra > 0 {
			head.leave(c.ref, s.id, int(c.extra))
		}
	}
	s.extra = 0
	app := g.opts.Edge.Appender(ctx)
	defer func() { _ = app.Rollback() }()
	known, ok := app.(storage.GetRef)
	for i := range s.cache.slots {
		c := &s.cache.slots[i]
		if c.extra == 0 || !ok {
			continue
		}
		if ref, _ := known.GetRef(c.labels, c.labels.Hash()); ref != c.ref { // dropped since the last push
			head.release(head.adopt(chunks.HeadSeriesRef(c.ref)))
		}
	}
}

// endSelf ends what writeSelf writes.
func (g *Gateway) endSelf(app storage.Appender, s *site, now time.Time) {
	s.mu.Lock()
	region, push, slow := s.live.region, s.live.push, s.live.slow
	s.mu.Unlock()
	stale := math.Float64frombits(value.StaleNaN)
	g.appendSelf(app, s, region, fleet.MetricSiteConnected, now, stale)
	if !push.IsZero() {
		g.appendSelf(app, s, region, fleet.MetricSiteLastPush, now, stale)
	}
	if slow {
		g.appendSelf(app, s, region, fleet.MetricSitePace, now, stale)
	}
}
