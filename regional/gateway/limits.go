package gateway

import (
	"cmp"
	"math"
	"time"

	"golang.org/x/time/rate"

	"muster.dev/muster/internal/remotewrite"
)

// Limits bound what one site, and all sites of its tenant together, may send. A
// zero field means the default. How many series a tenant may have is HeadSeries' business.
type Limits struct {
	Series           int // of the site in the head of the engine; default 10,000
	SamplesPerSecond int // average of the site; default 5,000
	BodyBytes        int // of one compressed request; default 4 MiB
	RawBytes         int // of one uncompressed request; default 8 times BodyBytes, at most 64 MiB

	TenantSamplesPerSecond int // of all the tenant's sites on this regional; default: no limit

	HistogramBuckets int // of one native histogram; default 512

	Labels     int           // of one series, the stamped ones included; default 60
	LabelBytes int           // names and values of one series together; default 16 KiB
	Future     time.Duration // how far ahead of this machine's clock a sample may be; default 10 minutes
}

// Bounds of single labels: what Cortex takes by default.
const (
	maxLabelName  = 1024
	maxLabelValue = 2048
)

// BurstSeconds is for how many seconds of its average rate a site may send at
// once: a site that was away sends its backlog faster than it was collected.
const BurstSeconds = 30

func (l Limits) withDefaults() Limits {
	l.Series = cmp.Or(max(l.Series, 0), 10_000)
	l.SamplesPerSecond = cmp.Or(max(l.SamplesPerSecond, 0), 5_000)
	l.BodyBytes = cmp.Or(max(l.BodyBytes, 0), 4<<20)
	l.RawBytes = cmp.Or(max(l.RawBytes, 0), min(8*l.BodyBytes, 64<<20))
	l.TenantSamplesPerSecond = cmp.Or(max(l.TenantSamplesPerSecond, 0), math.MaxInt32)
	l.HistogramBuckets = cmp.Or(max(l.HistogramBuckets, 0), remotewrite.DefaultBuckets)
	l.Labels = cmp.Or(max(l.Labels, 0), 60)
	l.LabelBytes = cmp.Or(max(l.LabelBytes, 0), 16<<10)
	if l.Future <= 0 {
		l.Future = 10 * time.Minute
	}
	return l
}

// bucket is a token bucket that may go into debt: a request is let in while the
// bucket is not overdrawn, and pays afterwards, when its size is known. So a
// refusal costs nothing, and no request is too large to ever pass.
type bucket struct{ l *rate.Limiter }

func newBucket(perSecond int) bucket {
	return bucket{rate.NewLimiter(rate.Limit(perSecond), burst(perSecond))}
}

func burst(perSecond int) int { return int(min(int64(perSecond)*BurstSeconds, math.MaxInt32)) }

// set changes the rate.
func (b bucket) set(now time.Time, perSecond int) {
	if b.l.Limit() != rate.Limit(perSecond) {
		b.l.SetLimitAt(now, rate.Limit(perSecond))
		b.l.SetBurstAt(now, burst(perSecond))
	}
}

// wait is how long until the debt is paid; 0: let in.
func (b bucket) wait(now time.Time) time.Duration {
	tokens := b.l.TokensAt(now)
	if tokens >= 0 {
		return 0
	}
	return time.Duration(-tokens / float64(b.l.Limit()) * float64(time.Second))
}

// pay takes n tokens, into debt if need be.
func (b bucket) pay(now time.Time, n int) {
	for n > 0 {
		part := min(n, b.l.Burst())
		b.l.ReserveN(now, part)
		n -= part
	}
}
