package gateway

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// tenant is what all sites of a tenant share on this regional.
type tenant struct {
	series atomic.Int64
	bucket bucket
}

// site is what the gateway keeps of one site.
type site struct {
	id       fleet.SiteID
	tenant   *tenant
	inFlight atomic.Int32 // pushes
	refs     atomic.Int32 // see Gateway.acquire
	bucket   bucket

	mu    sync.Mutex
	cache seriesCache
	live  liveState
	limit limitState
}

// liveState is guarded by site.mu.
type liveState struct {
	region    string
	session   *session // nil: no stream
	since     time.Time
	heartbeat time.Time
	push      time.Time
	pushed    bool // since the last write of the site's own series
	version   string
	report    *wire.Report // the last one, as the site sent it
	seen      time.Time    // of anything
}

// cached is one active series: what it became, and where it is in the database.
type cached struct {
	labels labels.Labels
	ref    storage.SeriesRef
	hash   uint64
	seen   int64 // seconds since 1970; 0: a free slot
}

// seriesCache maps what a site sends to what is stored, and by that counts the
// site's active series. It is keyed by a hash with a secret, random seed of 64
// bits: for two of a site's 10,000 series to meet is a matter of 1 in 10^11, and
// nobody can make them meet.
type seriesCache struct {
	index map[uint64]int32
	slots []cached
	free  []int32
}

func (c *seriesCache) get(hash uint64) *cached {
	if i, ok := c.index[hash]; ok {
		return &c.slots[i]
	}
	return nil
}

func (c *seriesCache) add(s cached) *cached {
	if c.index == nil {
		c.index = map[uint64]int32{}
	}
	var i int32
	if n := len(c.free); n > 0 {
		i, c.free = c.free[n-1], c.free[:n-1]
		c.slots[i] = s
	} else {
		i = int32(len(c.slots))
		c.slots = append(c.slots, s)
	}
	c.index[s.hash] = i
	return &c.slots[i]
}

func (c *seriesCache) len() int { return len(c.index) }

// expire forgets series that were not heard of since before and returns how many.
func (c *seriesCache) expire(before int64) int {
	n := 0
	for i := range c.slots {
		if s := &c.slots[i]; s.seen != 0 && s.seen < before {
			delete(c.index, s.hash)
			*s = cached{}
			c.free = append(c.free, int32(i))
			n++
		}
	}
	if len(c.free) > 1024 && len(c.free) > len(c.slots)/2 {
		c.compact()
	}
	return n
}

func (c *seriesCache) compact() {
	slots := make([]cached, 0, len(c.index))
	index := make(map[uint64]int32, len(c.index))
	for _, s := range c.slots {
		if s.seen != 0 {
			index[s.hash] = int32(len(slots))
			slots = append(slots, s)
		}
	}
	c.index, c.slots, c.free = index, slots, nil
}

// hashPairs hashes names and values in the order in which they were sent.
func hashPairs(h *maphash.Hash, buf *[]byte, pairs []string) uint64 {
	b := (*buf)[:0]
	for _, s := range pairs {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	*buf = b
	h.Reset()
	_, _ = h.Write(b)
	return h.Sum64()
}

// Names of series that only Muster itself may write. A site can say what it likes
// about itself, but these speak of its health and of virtual sites.
var reservedNames = []string{
	fleet.MetricSiteScore, fleet.MetricDimensionScore, fleet.MetricSiteColour, fleet.MetricVirtualSite,
	fleet.MetricVirtualSiteScore, fleet.MetricSiteConnected, fleet.MetricSiteLastPush,
}

// Reasons for which series are refused.
var errSeriesLimit = errors.New("series limit")

// stamp makes the stored labels out of the sent ones: tenant, site and region are
// what the certificate says, whatever was sent. An error says what is wrong with
// the labels.
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
		b.Add(strings.Clone(n), strings.Clone(v)) // what was sent lives in a buffer that is used again
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

// setRegionLocked drops the cache when the site's region changed: every series is
// then a new one.
func (s *site) setRegionLocked(region string) {
	if s.live.region == region {
		return
	}
	s.live.region = region
	s.tenant.series.Add(-int64(s.cache.len()))
	s.cache = seriesCache{}
}

// resolveLocked returns the cache entry of the series that the decoder stands on.
func (s *site) resolveLocked(p *pusher, d *decoder, lim Limits, now int64) (*cached, error) {
	hash := hashPairs(&p.hash, &p.buf, d.pairs)
	if c := s.cache.get(hash); c != nil {
		c.seen = now
		return c, nil
	}
	ls, err := stamp(&p.builder, d.pairs, s.id, s.live.region, lim)
	if err != nil {
		return nil, err
	}
	if s.cache.len() >= lim.Series {
		return nil, fmt.Errorf("%w: site %s has %d active series, its limit (limits.series)", errSeriesLimit, s.id, s.cache.len())
	}
	if n := s.tenant.series.Add(1); n > int64(lim.TenantSeries) {
		s.tenant.series.Add(-1)
		return nil, fmt.Errorf("%w: tenant %s has %d active series here, its limit (limits.tenantSeries)", errSeriesLimit, s.id.Tenant, n-1)
	}
	c := cached{labels: ls, hash: hash, seen: now}
	// After a restart the database may know the series: use its copy of the labels.
	if g, ok := p.app.(storage.GetRef); ok {
		if ref, have := g.GetRef(ls, ls.Hash()); ref != 0 {
			c.ref, c.labels = ref, have
		}
	}
	return s.cache.add(c), nil
}
