package intake

import (
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/obs"
)

// SiteLimits is what one site may send. A zero field means the default.
type SiteLimits struct {
	// BytesPerSecond is the average, uncompressed, and lineBytes for each line;
	// default 1 MiB/s. A site may send burstSeconds of it at once.
	BytesPerSecond int64
	// LinesPerSecond is the average of lines; default one for each 512 of
	// BytesPerSecond, and 100 at least. burstSeconds of them may come at once.
	LinesPerSecond int64
	// Connections at a time, of the forward protocol and requests over HTTP
	// together; default 32.
	Connections int
	// Allow and Deny select streams. A stream's name is pod/NAMESPACE/POD/CONTAINER,
	// unit/NAME, or other; in a pattern * stands for any characters, / included.
	// Nothing in Allow allows all; Deny wins. Lines of other streams are dropped,
	// counted and acknowledged.
	Allow, Deny []string

	asked int64 // what BytesPerSecond was before the regional limited it; 0: it did not
}

// Defaults of SiteLimits.
const (
	DefaultBytesPerSecond    = 1 << 20
	DefaultMaxBytesPerSecond = 16 << 20 // of Options.SiteBytesPerSecond
	DefaultConnections       = 32
	burstSeconds             = 30
	// chunksRemembered of each site: a chunk is sent again within seconds or minutes
	// of its first time. Older ones are told by the ids of their records.
	chunksRemembered = 256
)

func (l SiteLimits) withDefaults() SiteLimits {
	if l.BytesPerSecond <= 0 {
		l.BytesPerSecond = DefaultBytesPerSecond
	}
	if l.LinesPerSecond <= 0 {
		l.LinesPerSecond = max(l.BytesPerSecond/512, 100)
	}
	l.LinesPerSecond = min(l.LinesPerSecond, 1<<30)
	if l.Connections <= 0 {
		l.Connections = DefaultConnections
	}
	return l
}

// site is what is kept of a site while it is connected and an hour longer: a few
// kilobytes, whatever it sends.
type site struct {
	id fleet.SiteID

	mu       sync.Mutex
	region   string
	conns    int
	lastSeen time.Time
	// The budgets may go into debt, so that no message is too large to ever pass.
	byteRate, lineRate *rate.Limiter
	memory             int64 // held by the site's messages; guarded by memory.mu
	allow              []string
	deny               []string
	asked              int64             // see SiteLimits
	chunks             map[hash]struct{} // acknowledged lately
	ring               []hash            // the same, oldest at next
	next               int
	warned             *obs.Every

	lines, bytes, dropped, malformed, duplicates uint64
	overBudget, overQuota                        bool
	refusedAt                                    time.Time // when the queue had no room for it last; zero: not lately
	lastError                                    string
	lastErrorAt                                  time.Time
}

func newSite(id fleet.SiteID, l SiteLimits) *site {
	bucket := func(perSecond int64) *rate.Limiter {
		return rate.NewLimiter(rate.Limit(perSecond), int(perSecond)*burstSeconds)
	}
	return &site{id: id, chunks: map[hash]struct{}{}, warned: obs.NewEvery(time.Minute), byteRate: bucket(l.BytesPerSecond), lineRate: bucket(l.LinesPerSecond)}
}

func (s *site) configure(now time.Time, l SiteLimits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range []struct {
		bucket *rate.Limiter
		limit  int64
	}{{s.byteRate, l.BytesPerSecond}, {s.lineRate, l.LinesPerSecond}} {
		if b.bucket.Limit() != rate.Limit(b.limit) {
			b.bucket.SetLimitAt(now, rate.Limit(b.limit))
			b.bucket.SetBurstAt(now, int(b.limit)*burstSeconds)
		}
	}
	s.allow, s.deny, s.asked = l.Allow, l.Deny, l.asked
}

// debt is how long until the site may send again; 0: now.
func (s *site) debt(now time.Time) time.Duration {
	var longest time.Duration
	for _, b := range []*rate.Limiter{s.byteRate, s.lineRate} {
		if tokens := b.TokensAt(now); tokens < 0 {
			longest = max(longest, time.Duration(-tokens/float64(b.Limit())*float64(time.Second)))
		}
	}
	return longest
}

// pay takes bytes and lines from the budget, into debt if need be.
func (s *site) pay(now time.Time, bytes, lines int) {
	take(s.byteRate, now, bytes+lines*lineBytes)
	take(s.lineRate, now, lines)
}

func take(b *rate.Limiter, now time.Time, n int) {
	for n > 0 {
		part := min(n, b.Burst())
		b.ReserveN(now, part)
		n -= part
	}
}

// known tells whether a message was acknowledged lately.
func (s *site) known(h hash) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.chunks[h]
	return ok
}

func (s *site) remember(h hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.chunks[h]; ok {
		return
	}
	if len(s.ring) < chunksRemembered {
		s.ring = append(s.ring, h)
	} else {
		delete(s.chunks, s.ring[s.next])
		s.ring[s.next] = h
		s.next = (s.next + 1) % chunksRemembered
	}
	s.chunks[h] = struct{}{}
}

// streams decides what a site's lines may be. It remembers the last answer, since
// lines of one stream come together.
type streams struct {
	allow, deny []string
	name, last  []byte
	allowed     bool
}

func (s *site) streams() streams {
	s.mu.Lock()
	defer s.mu.Unlock()
	return streams{allow: s.allow, deny: s.deny}
}

func (s *streams) wants(l *line) bool {
	if len(s.allow) == 0 && len(s.deny) == 0 {
		return true
	}
	s.name = s.name[:0]
	switch {
	case len(l.pod) > 0:
		for i, part := range [][]byte{[]byte("pod"), l.namespace, l.pod, l.container} {
			if i > 0 {
				s.name = append(s.name, '/')
			}
			s.name = append(s.name, part...)
		}
	case len(l.unit) > 0:
		s.name = append(append(s.name, "unit/"...), l.unit...)
	default:
		s.name = append(s.name, "other"...)
	}
	if string(s.name) != string(s.last) {
		s.last = append(s.last[:0], s.name...)
		match := func(p string) bool { return glob(p, string(s.name)) }
		s.allowed = (len(s.allow) == 0 || slices.ContainsFunc(s.allow, match)) && !slices.ContainsFunc(s.deny, match)
	}
	return s.allowed
}

// glob matches with * for any characters. Each part between stars is searched for
// once, from the left, so that it takes linear time.
func glob(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	rest, ok := strings.CutPrefix(s, parts[0])
	if !ok {
		return false
	}
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, p)
		if i < 0 {
			return false
		}
		rest = rest[i+len(p):]
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}
