package gateway

import (
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"golang.org/x/time/rate"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/wire"
)

// tenant is what all sites of a tenant share on this regional.
type tenant struct {
	bucket bucket
}

// site is what the gateway keeps of one site.
type site struct {
	id       fleet.SiteID
	tenant   *tenant
	inFlight atomic.Int32  // pushes
	streams  atomic.Int32  // gRPC requests
	uplink   *rate.Limiter // bytes of their bodies, but for tunnels
	tunnels  *rate.Limiter // bytes of those
	hosts    *rate.Limiter // bytes of connections to virtual hosts, and from them
	hosted   atomic.Int32  // such connections
	opens    *rate.Limiter // such connections that it asks for, or answers
	connects *rate.Limiter // its streams
	renewals *rate.Limiter
	examples *rate.Limiter // exemplars
	refs     atomic.Int32  // see Gateway.acquire
	unread   unread
	bucket   bucket
	use      siteUse

	// series is held while a push is appended, which may take long: nothing that says how
	// the site is waits for it. It guards what follows, up to mu.
	series sync.Mutex
	cache  seriesCache
	spare  cached // a series that is not in the cache, while its samples are appended
	swept  uint64 // HeadSeries.dropped when the cache was last swept
	extra  int    // the sum of the cache's

	mu     sync.Mutex // is never held for long
	live   liveState
	limit  limitState
	logged siteLog

	// signs are what the live view shows of live and limit: see showLocked.
	signs atomic.Pointer[signs]
}

// signs are the signs of life of a site, and what it runs into.
type signs struct {
	region, version        string
	stream                 bool // it has one
	since, heartbeat, push time.Time
	limit                  limitState
}

// showLocked has to be called after each change of what the live view shows. The view is read
// without a lock: where thousands of pushes wait for a processor, whoever holds the lock of a
// site may be one of them, and the view would wait for its turn once for each such site.
func (s *site) showLocked() {
	s.signs.Store(&signs{
		region: s.live.region, version: s.live.version, stream: s.live.session != nil,
		since: s.live.since, heartbeat: s.live.heartbeat, push: s.live.push, limit: s.limit,
	})
}

// shown is what showLocked showed last.
func (s *site) shown() signs {
	if is := s.signs.Load(); is != nil {
		return *is
	}
	return signs{}
}

// liveState is guarded by site.mu.
type liveState struct {
	region    string
	session   *session // nil: no stream
	since     time.Time
	heartbeat time.Time
	push      time.Time
	pushed    bool // since the last write of the site's own series
	slow      bool // its pace was in the last write
	version   string
	report    *wire.Report      // the last one, as the site sent it
	seen      time.Time         // of anything
	cert      *x509.Certificate // that it showed last
}

// Names of series that only Muster itself may write. A site can say what it likes
// about itself, but these speak of its health and of virtual sites.
var reservedNames = []string{
	fleet.MetricSiteScore, fleet.MetricDimensionScore, fleet.MetricSiteColour, fleet.MetricVirtualSite,
	fleet.MetricVirtualSiteScore, fleet.MetricSiteConnected, fleet.MetricSiteLastPush,
	fleet.MetricSitePace,
}

// stamp makes the stored labels out of the sent ones: tenant, site and region are
// what the certificate says, whatever was sent. An error says what is wrong with
// the labels. They alias what was sent, which lives in a buffer that is used again: who
// keeps them has labelStrings share them first.
func stamp(b *labels.ScratchBuilder, pairs []string, id fleet.SiteID, region string, lim Limits) (labels.Labels, error) {
	none := labels.EmptyLabels()
	if len(pairs)%2 != 0 {
		return none, errors.New("an odd number of label references")
	}
	b.Reset()
	name, size, count := "", 0, len(fleet.StampedLabels)
	for i := 0; i < len(pairs); i += 2 {
		n, v := pairs[i], pairs[i+1]
		size += len(n) + len(v)
		switch {
		case slices.Contains(fleet.StampedLabels, n), v == "":
			continue // an empty value is a label that isn't there
		case n == "":
			return none, errors.New("a label without a name")
		case len(n) > maxLabelName:
			return none, fmt.Errorf("a label name of %d bytes, want at most %d", len(n), maxLabelName)
		case len(v) > maxLabelValue:
			return none, fmt.Errorf("label %.64q: a value of %d bytes, want at most %d", n, len(v), maxLabelValue)
		case n == model.MetricNameLabel:
			name = v
		}
		if count++; count > lim.Labels {
			return none, fmt.Errorf("more than %d labels (limit labels)", lim.Labels)
		}
		b.Add(n, v)
	}
	switch {
	case name == "":
		return none, errors.New("no metric name")
	case slices.Contains(reservedNames, name):
		return none, fmt.Errorf("the metric name %s is reserved for Muster", name)
	case size > lim.LabelBytes:
		return none, fmt.Errorf("%d bytes of labels, want at most %d (limit label bytes)", size, lim.LabelBytes)
	}
	b.Add(fleet.SeriesTenant, id.Tenant)
	b.Add(fleet.SeriesSite, id.Name)
	if region != "" {
		b.Add(fleet.SeriesRegion, region)
	}
	b.Sort()
	ls := b.Labels()
	if dup, ok := ls.HasDuplicateLabelNames(); ok {
		return none, fmt.Errorf("label %.64q twice", dup)
	}
	if !ls.IsValid(model.UTF8Validation) {
		return none, fmt.Errorf("labels %.200q are not valid UTF-8", ls.String())
	}
	return ls, nil
}

// plain tells whether nothing but the stamp is between what was sent and what is stored.
func plain(pairs []string) bool {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" || i > 0 && pairs[i-2] >= pairs[i] || slices.Contains(fleet.StampedLabels, pairs[i]) {
			return false
		}
	}
	return true
}

// sweepLocked forgets what the head has dropped since the last time: whatever comes of
// it is a new series again.
func (s *site) sweepLocked(app storage.Appender, head *HeadSeries) {
	dropped := head.dropped.Load()
	known, ok := app.(storage.GetRef)
	if s.swept == dropped || !ok {
		return
	}
	s.swept = dropped
	s.cache.sweep(func(c *cached) bool {
		ref, _ := known.GetRef(c.labels, c.labels.Hash())
		if ref == c.ref && ref != 0 {
			return false
		}
		s.extra -= int(c.extra)
		head.release(s.id, int(c.extra))
		return true
	})
}

// resolveLocked returns the cache entry of the series that the decoder stands on. It is
// good until the next call.
func (s *site) resolveLocked(p *pusher, d *remotewrite.Decoder, who caller, lim Limits, head *HeadSeries) (*cached, error) {
	hash := d.Hash(p.region)
	if c := s.cache.get(hash); c != nil {
		return c, nil
	}
	pairs := d.Pairs()
	ls, err := stamp(&p.builder, pairs, s.id, who.region, lim)
	if err != nil {
		return nil, err
	}
	c := cached{labels: ls, hash: hash, plain: plain(pairs)}
	// The head may know the series in another form, or since before a restart: it goes
	// on, with the head's copy of the labels.
	if known, ok := p.app.(storage.GetRef); ok {
		if ref, have := known.GetRef(ls, ls.Hash()); ref != 0 {
			c.ref, c.labels = ref, have
			if s.cache.len() < lim.Series { // it is kept, so that its buckets are released one day
				_, n := head.adopt(chunks.HeadSeriesRef(ref))
				c.extra = int16(min(n, math.MaxInt16))
				s.extra += int(c.extra)
				head.release(s.id, n-int(c.extra))
			}
			s.spare = c
			return &s.spare, nil
		}
	}
	if n := head.Site(s.id); n >= lim.Series {
		return nil, fmt.Errorf("%w: site %s has %d series here, its limit is %d (limits.series); one that gets no more samples counts until the regional drops it from memory, within a few hours",
			errSeriesLimit, s.id, n, lim.Series)
	}
	head.strings.share(&c.labels)
	s.spare = c
	return &s.spare, nil
}

// bucketsPerSeries is how many buckets of a native histogram take about what a series of
// floats takes: the head keeps the last value as it is, and chunks of ten at least.
const bucketsPerSeries = 16

// growLocked returns what makes room for the buckets of a series, inside the limits: a
// histogram that grew must not be a way round them.
func (s *site) growLocked(c *cached, lim Limits, head *HeadSeries) func(remotewrite.Histogram) error {
	return func(h remotewrite.Histogram) error {
		more := min(h.Buckets()/bucketsPerSeries, math.MaxInt16) - int(c.extra)
		if more <= 0 {
			return nil
		}
		if c == &s.spare && s.cache.len() >= lim.Series {
			return fmt.Errorf("%w: site %s sends its series in more forms than it may have series, %d (limits.series); send their labels in one order", errSeriesLimit, s.id, lim.Series)
		}
		if err := head.reserve(s.id, more, lim.Series); err != nil {
			return err
		}
		c.extra += int16(more)
		s.extra += more
		return nil
	}
}

// keepLocked remembers a series that resolveLocked returned, if the head has it now.
func (s *site) keepLocked(c *cached, lim Limits, head *HeadSeries) {
	switch {
	case c != &s.spare:
	case c.ref != 0 && s.cache.len() < lim.Series:
		s.cache.add(*c)
	case c.extra > 0: // nothing came of it
		s.extra -= int(c.extra)
		head.release(s.id, int(c.extra))
	}
}
