package gateway

import (
	"context"
	"iter"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"google.golang.org/protobuf/proto"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// ConditionLimits is the condition that the gateway adds to a site's report: True
// while the site runs into a limit, with the limit as the reason.
const ConditionLimits = "GatewayLimits"

// limitState is guarded by site.mu.
type limitState struct {
	reason string
	text   string
	at     time.Time
}

// siteLog bounds the lines that one site makes the regional log, by changing all the time
// what is wrong with it or by connecting without end: maxLines in linesWithin. It is
// guarded by site.mu.
type siteLog struct {
	since   time.Time
	lines   int
	leftOut int
}

const (
	maxLines    = 10
	linesWithin = time.Minute
)

// pass tells whether a line may be logged at now, and how many were not since the last.
func (l *siteLog) pass(now time.Time) (leftOut int, ok bool) {
	if now.Sub(l.since) >= linesWithin {
		l.since, l.lines = now, 0
	}
	if l.lines >= maxLines {
		l.leftOut++
		return 0, false
	}
	l.lines++
	leftOut, l.leftOut = l.leftOut, 0
	return leftOut, true
}

// limitedFor is how long after its last refusal a site counts as limited.
const limitedFor = 5 * time.Minute

// camelReason is the condition's reason for a metric's reason.
var camelReason = map[string]string{
	reasonSeries: "SeriesLimit", reasonTenant: "TenantSeriesLimit", reasonRate: "RateLimit", reasonTenantRate: "TenantRateLimit", reasonBody: "BodyLimit", reasonInFlight: "RequestsLimit",
	reasonInvalid: "InvalidSeries", reasonFuture: "FutureSamples", reasonTooOld: "TooOldSamples",
	reasonDuplicate: "DuplicateSamples", reasonMemory: "MemoryLimit", reasonUnread: "MemoryLimit", reasonDisk: "DiskNearlyFull", reasonConns: "ConnectionsLimit", reasonMalformed: "MalformedRequest",
}

// noteLimit remembers why something of the site was refused, and tells control
// when that is new.
func (g *Gateway) noteLimit(s *site, reason, text string) {
	now := g.now()
	s.mu.Lock()
	isNew := s.limit.reason != reason || now.Sub(s.limit.at) > limitedFor
	s.limit = limitState{reason: reason, text: text, at: now}
	s.showLocked()
	report := isNew && s.live.session != nil && s.live.report != nil
	leftOut, log := 0, false
	if isNew {
		leftOut, log = s.logged.pass(now)
	}
	s.mu.Unlock()
	if log {
		g.log.Warn("site is limited", "site", s.id, "reason", reason, "text", text, "left_out", leftOut)
	}
	if report {
		g.report(s)
	}
}

// limited is the reason why a site is limited now; "": it is not.
func (l limitState) limited(now time.Time) string {
	if l.reason == "" || now.Sub(l.at) > limitedFor {
		return ""
	}
	return camelReason[l.reason]
}

// Live is what is known of every site now, by tenant and name.
func (g *Gateway) Live() iter.Seq[wire.SiteLive] {
	return func(yield func(wire.SiteLive) bool) {
		now := g.now()
		for _, s := range g.allSites() {
			is := s.shown()
			l := wire.SiteLive{
				Tenant: s.id.Tenant, Site: s.id.Name, Region: is.region, Connected: is.connected(now),
				LastHeartbeat: millis(is.heartbeat), LastPush: millis(is.push),
				AgentVersion: is.version, Limited: is.limit.limited(now),
			}
			if l.Connected {
				l.ConnectedSince = millis(is.since)
			}
			if !yield(l) {
				return
			}
		}
	}
}

// connected does not wait for the stream's own watchdog.
func (is *signs) connected(now time.Time) bool {
	return is.stream && now.Sub(is.heartbeat) < HeartbeatTimeout
}

func millis(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Millisecond)
}

// LiveHandler serves wire.LiveView, for GET wire.LivePath. There is no authentication: mount it on the
// regional's own listener, not on the gateway's.
//
// It comes before all else where the regional has more to do than it can, and nothing gives a
// goroutine priority over others: so it does little, leaves no garbage and, compressed, writes
// no more than the socket takes, for at each write it may lose its processor to those who wait.
func (g *Gateway) LiveHandler() http.Handler {
	compress, err := gzhttp.NewWrapper(gzhttp.MinSize(4<<10), gzhttp.CompressionLevel(gzip.BestSpeed))
	if err != nil {
		panic(err) // the options are ours
	}
	var buffers sync.Pool // of *[]byte
	return compress(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		b, _ := buffers.Get().(*[]byte)
		if b == nil {
			b = new([]byte)
		}
		defer buffers.Put(b)
		*b = wire.LiveView{Regional: g.opts.Name, Region: g.opts.Region, AsOf: millis(g.now())}.Append((*b)[:0], g.Live())
		_, _ = w.Write(*b) // the asker is gone
	}))
}

// SelfInterval is how often the gateway writes what it knows into the engine.
const SelfInterval = 15 * time.Second

// forgetAfter is how long after it was last heard of a site stays in the live view.
const forgetAfter = 24 * time.Hour

// runSelf writes muster_site_connected and muster_site_last_push_timestamp_seconds of every
// site, muster_site_scrape_pace_seconds of slow ones, and forgets sites that are gone, until ctx ends.
func (g *Gateway) runSelf(ctx context.Context) {
	t := time.NewTicker(SelfInterval)
	defer t.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		g.endRefused(ctx)
		g.writeSelf(ctx)
		if n%4 == 0 {
			g.expire()
		}
	}
}

// writeSelf appends through the tee, so that the series reach the store too. They
// carry the label regional: a site that moved is known to two of them, and the one
// that lost it must not overwrite the other's word in the store.
func (g *Gateway) writeSelf(ctx context.Context) {
	if g.opts.Self == nil {
		return
	}
	now := g.now()
	app := g.opts.Self.Appender(ctx)
	for _, s := range g.allSites() {
		s.mu.Lock()
		connected, push, region := 0.0, s.live.push, s.live.region
		if is := s.shown(); is.connected(now) {
			connected = 1
		}
		pace, was := time.Duration(0), s.live.slow
		if g.opts.Pace != nil {
			pace = g.opts.Pace(s.id)
		}
		s.live.slow = pace > 0
		s.mu.Unlock()
		g.appendSelf(app, s, region, fleet.MetricSiteConnected, now, connected)
		switch {
		case pace > 0:
			g.appendSelf(app, s, region, fleet.MetricSitePace, now, pace.Seconds())
		case was:
			g.appendSelf(app, s, region, fleet.MetricSitePace, now, math.Float64frombits(value.StaleNaN))
		}
		if !push.IsZero() {
			g.appendSelf(app, s, region, fleet.MetricSiteLastPush, now, float64(push.UnixMilli())/1000)
		}
	}
	if err := app.Commit(); err != nil {
		g.logEvery("self", "the sites' connection series can't be written", "err", err)
	}
}

func (g *Gateway) appendSelf(app storage.Appender, s *site, region, name string, t time.Time, v float64) {
	ls := labels.FromStrings(labels.MetricName, name, "regional", g.opts.Name,
		fleet.SeriesRegion, region, fleet.SeriesSite, s.id.Name, fleet.SeriesTenant, s.id.Tenant)
	if region == "" {
		ls = labels.NewBuilder(ls).Del(fleet.SeriesRegion).Labels()
	}
	if _, err := app.Append(0, ls, t.UnixMilli(), v); err != nil {
		g.logEvery("self", "the sites' connection series can't be written", "err", err)
	}
}

// expire forgets series that the head has dropped, and sites that were not heard of for
// long.
func (g *Gateway) expire() {
	now := g.now()
	var gone []*site
	app := g.opts.Edge.Appender(context.Background()) // to look up series
	defer func() { _ = app.Rollback() }()
	for _, s := range g.allSites() {
		s.series.Lock()
		s.sweepLocked(app, g.opts.Series)
		s.series.Unlock()
		s.mu.Lock()
		seen := s.live.seen
		idle := s.refs.Load() == 0 && now.Sub(seen) > forgetAfter
		was := s.limit.reason != "" && now.Sub(s.limit.at) > limitedFor
		if was {
			s.limit = limitState{}
			s.showLocked()
		}
		report := was && s.live.session != nil && s.live.report != nil
		s.mu.Unlock()
		if report {
			g.report(s)
		}
		if idle {
			gone = append(gone, s)
		}
	}
	g.forget(context.Background(), gone)
}

// report passes the site's last report on, with the gateway's own condition.
func (g *Gateway) report(s *site) {
	now := g.now()
	s.mu.Lock()
	if s.live.report == nil || s.live.session == nil {
		s.mu.Unlock()
		return
	}
	last := s.live.report
	seq := s.live.session.seq.Add(1)
	limit := s.limit
	limited := limit.limited(now)
	s.mu.Unlock()

	// The gateway's own condition goes first: receivers may cut a long list.
	cond := &wire.Condition{Type: ConditionLimits, Status: "False", Reason: "WithinLimits", Message: "The regional takes everything that the site sends."}
	if limited != "" {
		cond.Status, cond.Reason, cond.Message = "True", limited, strings.ToValidUTF8(limit.text[:min(len(limit.text), 1000)], "")
	}
	out := proto.CloneOf(last) // all that a report has, also what is added to it one day
	out.ProtoReflect().SetUnknown(nil)
	out.Seq, out.Conditions = seq, []*wire.Condition{cond}
	for _, c := range last.Conditions {
		if c != nil && c.Type != ConditionLimits { // a site can't speak for the gateway
			out.Conditions = append(out.Conditions, c)
		}
	}
	g.opts.Upstream.Report(s.id, out)
}
