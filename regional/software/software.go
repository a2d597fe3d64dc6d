// Package software serves files of software to the sites of a regional: what the centre
// has, fetched once, however many sites want it. It stands behind the gateway, which says
// who asks, and holds downloads to a share of the regional, so that pushes of samples go
// before them.
//
// It gives a site the files that control's word for it names (Desired), and no others. It
// verifies nothing, since sites do (internal/software/bundle), and decides neither what a
// site shall run nor when. cmd/internal/regional connects it to the gateway and to control.
package software

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"muster.dev/muster/internal/fairshare"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/software/delivery"
)

// Prefix of the paths on the gateway's listener; package delivery says what follows.
const Prefix = "/software"

const (
	// siteDownloads at once of one site: a download, and metadata beside it.
	siteDownloads = 2
	// greed is how many times the free places one tenant may take: one alone gets four
	// fifths, two get four ninths each.
	greed = 4
	// chunk is what one download writes before the next one has its turn.
	chunk = 32 << 10
)

// Questions that one site, and all of a tenant, may cost the centre: files that are
// neither here nor known to be missing. A site asks for a handful in a year.
const (
	siteQuestions, siteQuestionsEvery     = 20, 10 * time.Second
	tenantQuestions, tenantQuestionsEvery = 200, time.Second
)

// What a tenant's questions may have the centre send: that part of the cache at once, and as
// much again in an hour. A release is a small part of it; whoever asks for all old ones
// again and again, of which the cache can't hold all, would have them sent again and again.
const (
	tenantPart  = 4
	tenantLeast = 1 << 30
)

// Options of New. Dir, Centre, Identify and Desired are required.
type Options struct {
	Dir    string // of the cache, which outlives a restart
	Centre delivery.Upstream
	// Identify says which site sent a request that the gateway passed on.
	Identify func(*http.Request) (fleet.SiteID, string, error)
	// Desired says what each site shall run.
	Desired Desired

	MaxBytes       int64 // of the cache; 0: delivery's default
	BytesPerSecond int   // that all downloads take together; 0: no limit
	Downloads      int   // at once, of all sites; default 1000

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Server serves sites. Safe for concurrent use.
type Server struct {
	o       Options
	cache   *delivery.Cache
	selects selection
	pace    *rate.Limiter // nil: none
	m       *metrics

	mu       sync.Mutex
	used     int
	byTenant map[string]int
	bySite   map[fleet.SiteID]int
	asks     map[any]*rate.Limiter    // of sites and tenants that asked for what is not here
	fetches  map[string]*rate.Limiter // of tenants, in KiB of what was fetched for them
}

// New takes what an earlier one left in the directory.
func New(o Options) (*Server, error) {
	if o.Downloads <= 0 {
		o.Downloads = 1000
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	s := &Server{o: o, selects: selection{desired: o.Desired, read: map[string]map[string]bool{}}, byTenant: map[string]int{}, bySite: map[fleet.SiteID]int{}, asks: map[any]*rate.Limiter{}, fetches: map[string]*rate.Limiter{}}
	if o.BytesPerSecond > 0 {
		s.pace = rate.NewLimiter(rate.Limit(o.BytesPerSecond), max(o.BytesPerSecond/10, chunk))
	}
	var err error
	if s.cache, err = delivery.NewCache(delivery.CacheOptions{Dir: o.Dir, Upstream: o.Centre, MaxBytes: o.MaxBytes, MayAsk: s.mayAsk, Fetching: s.fetching, Log: o.Logger}); err != nil {
		return nil, fmt.Errorf("cache of software: %w", err)
	}
	s.m = newMetrics(o.Registerer, s)
	return s, nil
}

type siteKey struct{}

// ServeHTTP implements http.Handler, below Prefix.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := &paced{ResponseWriter: w, ctx: r.Context(), s: s, code: http.StatusOK}
	defer func() { s.m.requests.WithLabelValues(strconv.Itoa(out.code)).Inc() }()
	id, _, err := s.o.Identify(r)
	if err != nil {
		http.Error(out, err.Error(), http.StatusUnauthorized)
		return
	}
	if strings.Contains(r.Header.Get("Range"), ",") {
		http.Error(out, "one range at a time", http.StatusRequestedRangeNotSatisfiable)
		return
	}
	free, code := s.acquire(id)
	if code != 0 {
		out.Header().Set("Retry-After", strconv.Itoa(comeBack(id)))
		http.Error(out, "too many downloads at once; come again", code)
		return
	}
	defer free()
	if !s.selected(out, r, id) {
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), siteKey{}, id))
	http.StripPrefix(Prefix, s.cache).ServeHTTP(out, r)
}

// comeBack spreads sites over seconds, so that those who were refused at once do not come
// again at once.
func comeBack(id fleet.SiteID) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id.String()))
	return 5 + int(h.Sum32()%20)
}

// acquire takes a place, or says with which status there is none.
func (s *Server) acquire(id fleet.SiteID) (free func(), code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bySite[id] >= siteDownloads {
		return nil, http.StatusTooManyRequests
	}
	if !fairshare.Fits(int64(s.byTenant[id.Tenant]), 1, int64(s.used), int64(s.o.Downloads), greed) {
		return nil, http.StatusServiceUnavailable
	}
	s.used++
	s.byTenant[id.Tenant]++
	s.bySite[id]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.used--
		if s.byTenant[id.Tenant]--; s.byTenant[id.Tenant] == 0 {
			delete(s.byTenant, id.Tenant)
		}
		if s.bySite[id]--; s.bySite[id] == 0 {
			delete(s.bySite, id)
		}
	}, 0
}

// mayAsk holds whoever asks for names that nobody has ever made away from the centre.
func (s *Server) mayAsk(r *http.Request) bool {
	id, ok := r.Context().Value(siteKey{}).(fleet.SiteID)
	if !ok {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asks) > 10_000 {
		for who, l := range s.asks {
			if l.Tokens() >= float64(l.Burst()) {
				delete(s.asks, who) // as if it had never asked
			}
		}
	}
	of := func(who any, burst int, every time.Duration) *rate.Limiter {
		l := s.asks[who]
		if l == nil {
			l = rate.NewLimiter(rate.Every(every), burst)
			s.asks[who] = l
		}
		return l
	}
	ok = of(id, siteQuestions, siteQuestionsEvery).Allow() && of(id.Tenant, tenantQuestions, tenantQuestionsEvery).Allow() && s.fetchesLocked(id.Tenant).Tokens() > 0
	if !ok {
		s.m.held.Inc()
	}
	return ok
}

// fetching charges the tenant of a request with what is fetched for it, which others that
// want the same have for nothing.
func (s *Server) fetching(r *http.Request, bytes int64) {
	id, ok := r.Context().Value(siteKey{}).(fleet.SiteID)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.fetchesLocked(id.Tenant)
	l.ReserveN(time.Now(), int(min(bytes>>10+1, int64(l.Burst()))))
}

func (s *Server) fetchesLocked(tenant string) *rate.Limiter {
	if len(s.fetches) > 10_000 {
		for t, l := range s.fetches {
			if l.Tokens() >= float64(l.Burst()) {
				delete(s.fetches, t)
			}
		}
	}
	l := s.fetches[tenant]
	if l == nil {
		kib := max(cmp.Or(s.o.MaxBytes, delivery.DefaultBytes)/tenantPart, tenantLeast) >> 10
		l = rate.NewLimiter(rate.Limit(float64(kib)/time.Hour.Seconds()), int(kib))
		s.fetches[tenant] = l
	}
	return l
}

// Status is for /debug/.
func (s *Server) Status() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return struct {
		Downloads int
		Places    int
		Tenants   int
		Cache     delivery.CacheStats
	}{s.used, s.o.Downloads, len(s.byTenant), s.cache.Stats()}
}

// paced lets downloads write in turns, in the order in which they ask.
type paced struct {
	http.ResponseWriter
	ctx  context.Context
	s    *Server
	code int
}

// WriteHeader implements http.ResponseWriter.
func (p *paced) WriteHeader(code int) {
	p.code = code
	p.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (p *paced) Write(b []byte) (written int, err error) {
	for len(b) > 0 && err == nil {
		if err := p.ctx.Err(); err != nil { // such as that the site's certificate has expired
			return written, err
		}
		part := b[:min(len(b), chunk)]
		if p.s.pace != nil {
			if err := p.s.pace.WaitN(p.ctx, len(part)); err != nil {
				return written, err
			}
		}
		var n int
		n, err = p.ResponseWriter.Write(part)
		written += n
		p.s.m.sent.Add(float64(n))
		b = b[n:]
	}
	return written, err
}

// Unwrap is for http.ResponseController.
func (p *paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }
