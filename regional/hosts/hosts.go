// Package hosts connects sites with the virtual hosts of other sites of their tenant: a
// site asks for a host (Reach), the Broker chooses a connected site that serves it, asks
// that one to answer, and passes bytes on. The bytes are TLS between the two sites; a
// regional can't read them, nor choose a site that the ends don't know of.
//
// Who may reach what comes from control alone (Options.Providers), never from what a site
// says. When it changes, connections that are not allowed any more end. The gateway calls
// it, with identities out of certificates; cmd/internal/regional makes it.
package hosts

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/internal/fairshare"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/tunnel"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional"
)

// Sites are the sites that are connected to this regional.
type Sites interface {
	// OpenHost asks a site to answer; false: it is not connected, or too old to.
	OpenHost(site fleet.SiteID, id, host string) bool
}

// Provider is a site that serves a host.
type Provider struct {
	Site string
	Near bool // it is in the region of who asks
}

// Options of New; Providers is required.
type Options struct {
	// Providers lists the sites that serve the host, of the consumer's tenant; false: it is
	// not advertised to the consumer, or does not exist.
	Providers func(consumer fleet.SiteID, host string) ([]Provider, bool)
	// Connections that a tenant may have at once, and of them a site on either end;
	// defaults 2,000 and 128.
	TenantConnections, SiteConnections int
	// TenantBytesPerSecond of all connections of a tenant, both directions together;
	// default 32 MiB.
	TenantBytesPerSecond int64
	// Idle ends a connection over which nothing passed for so long; default 15 min.
	Idle time.Duration
	// AnswerWithin is how long a site may take to answer; default 10 s.
	AnswerWithin time.Duration
	Logger       *slog.Logger
	Registerer   prometheus.Registerer
}

// attempts are how many sites are asked for one connection, at most.
const attempts = 3

// perMessage is what a message costs at least of a tenant's bytes: passing on a small one
// takes as long as passing on this many.
const perMessage = 1 << 10

// burst is what a tenant may send at once, in bytes: more than any message.
const burst = 4 << 20

// Broker is safe for concurrent use.
type Broker struct {
	o       Options
	metrics metrics

	mu      sync.Mutex
	pending map[string]*call // by id
	open    map[*call]bool   // connections
	tenants map[string]*tenant
	sites   map[fleet.SiteID]int // connections, on either end, and those that it is asked for
	pairs   map[pair]int         // of them, those of one site with another
	next    uint64               // spreads connections over providers
}

type tenant struct {
	open  int
	bytes *rate.Limiter
}

type pair struct{ consumer, provider fleet.SiteID }

// call is one connection, from the question for it to its end.
type call struct {
	consumer, provider fleet.SiteID
	host               string
	since              time.Time
	bytes, active      atomic.Int64 // active is when anything last passed, Unix nanoseconds

	answered chan tunnel.Stream
	refused  chan string
	done     chan struct{} // closed when Reach is through with it
	cut      chan string   // why it has to end
}

type metrics struct {
	open     *prometheus.GaugeVec
	requests *prometheus.CounterVec
	bytes    *prometheus.CounterVec
}

// New returns a Broker.
func New(o Options) *Broker {
	o.TenantConnections, o.SiteConnections = cmp.Or(max(o.TenantConnections, 0), 2000), cmp.Or(max(o.SiteConnections, 0), 128)
	o.TenantBytesPerSecond = cmp.Or(max(o.TenantBytesPerSecond, 0), 32<<20)
	o.Idle, o.AnswerWithin = cmp.Or(max(o.Idle, 0), 15*time.Minute), cmp.Or(max(o.AnswerWithin, 0), 10*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	b := &Broker{o: o, pending: map[string]*call{}, open: map[*call]bool{}, tenants: map[string]*tenant{}, sites: map[fleet.SiteID]int{}, pairs: map[pair]int{}, metrics: metrics{
		open:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "muster_regional_host_connections", Help: "Connections between sites to virtual hosts, by tenant."}, []string{"tenant"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_regional_host_requests_total", Help: "Connections to virtual hosts that sites asked for, by tenant and result."}, []string{"tenant", "result"}),
		bytes:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_regional_host_bytes_total", Help: "Bytes passed on between sites, by tenant and direction: to the site that serves the host, or from it."}, []string{"tenant", "direction"}),
	}}
	o.Registerer.MustRegister(b.metrics.open, b.metrics.requests, b.metrics.bytes)
	return b
}

// Reach connects a site's stream with a site that serves the host, until either ends it.
// The error is a gRPC status for the site.
func (b *Broker) Reach(ctx context.Context, sites Sites, consumer fleet.SiteID, host string, stream tunnel.Stream) error {
	providers, ok := b.o.Providers(consumer, host)
	if !ok {
		b.metrics.requests.WithLabelValues(consumer.Tenant, "not_advertised").Inc()
		return status.Errorf(codes.NotFound, "no virtual host %q is advertised to site %s", host, consumer)
	}
	leave, err := b.enter(consumer)
	if err != nil {
		b.metrics.requests.WithLabelValues(consumer.Tenant, "limit").Inc()
		return err
	}
	defer leave()
	why := ""
	asked := 0
	for _, p := range b.order(consumer, providers) {
		if asked == attempts {
			break
		}
		c := &call{consumer: consumer, provider: fleet.SiteID{Tenant: consumer.Tenant, Name: p.Site}, host: host, since: time.Now(),
			answered: make(chan tunnel.Stream), refused: make(chan string), done: make(chan struct{}), cut: make(chan string, 1)}
		if !b.hold(c) {
			asked++
			why = fmt.Sprintf("; site %s: it has as many connections as it may have, or the most that %s may have of them", p.Site, consumer.Name)
			continue
		}
		there, refused, err := b.ask(ctx, sites, c)
		if err == nil && there != nil {
			b.metrics.requests.WithLabelValues(consumer.Tenant, "ok").Inc()
			err = b.join(ctx, c, stream, there)
			b.letGo(c)
			return err
		}
		b.letGo(c)
		if err != nil {
			return err
		}
		if refused != "" {
			asked++
			why = fmt.Sprintf("; site %s: %s", p.Site, refused)
		}
	}
	b.metrics.requests.WithLabelValues(consumer.Tenant, "no_provider").Inc()
	if asked == 0 {
		return status.Errorf(codes.Unavailable, "no site that serves %s is connected to this regional", host)
	}
	return status.Errorf(codes.Unavailable, "no site that serves %s answers%s", host, why)
}

// order is in which they are asked: near ones first, in turns.
func (b *Broker) order(consumer fleet.SiteID, providers []Provider) []Provider {
	b.mu.Lock()
	turn := b.next
	b.next++
	b.mu.Unlock()
	var near, far []Provider
	for _, p := range providers {
		switch {
		case p.Site == consumer.Name: // it has the Service itself
		case p.Near:
			near = append(near, p)
		default:
			far = append(far, p)
		}
	}
	for _, list := range [][]Provider{near, far} {
		if n := len(list); n > 1 {
			k := int(turn % uint64(n))
			slices.Reverse(list[:k])
			slices.Reverse(list[k:])
			slices.Reverse(list)
		}
	}
	return append(near, far...)
}

// greed is how many times the places that a site has left another one may have of them.
const greed = 4

// hold takes a place of the site that serves the host. A site gets no more of them than
// leaves some to the others to which the host is advertised.
func (b *Broker) hold(c *call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	who := pair{c.consumer, c.provider}
	if !fairshare.Fits(int64(b.pairs[who]), 1, int64(b.sites[c.provider]), int64(b.o.SiteConnections), greed) {
		return false
	}
	b.pairs[who]++
	b.sites[c.provider]++
	return true
}

func (b *Broker) letGo(c *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	who := pair{c.consumer, c.provider}
	if b.pairs[who]--; b.pairs[who] == 0 {
		delete(b.pairs, who)
	}
	b.leaveLocked(c.provider)
}

// ask has one site answer. All results are zero if it is not connected here.
func (b *Broker) ask(ctx context.Context, sites Sites, c *call) (_ tunnel.Stream, refused string, _ error) {
	id := rand.Text()
	b.mu.Lock()
	b.pending[id] = c
	b.mu.Unlock()
	stream, refused, err := b.wait(ctx, sites, id, c)
	if stream == nil {
		b.mu.Lock()
		delete(b.pending, id)
		b.mu.Unlock()
		close(c.done)
	}
	return stream, refused, err
}

func (b *Broker) wait(ctx context.Context, sites Sites, id string, c *call) (tunnel.Stream, string, error) {
	if !sites.OpenHost(c.provider, id, c.host) {
		return nil, "", nil
	}
	late := time.NewTimer(b.o.AnswerWithin)
	defer late.Stop()
	select {
	case s := <-c.answered:
		return s, "", nil
	case why := <-c.refused:
		return nil, why, nil
	case <-late.C:
		return nil, fmt.Sprintf("no answer within %s", b.o.AnswerWithin), nil
	case <-ctx.Done():
		return nil, "", status.FromContextError(ctx.Err()).Err()
	}
}

// maxRefused is how much of a site's reason is passed on, in bytes.
const maxRefused = 256

// Answer is the other end: a site's stream for the connection that it was asked for, which
// it may refuse to serve. It returns when the connection has ended. The error is
// regional.ErrUnknownTunnel if nobody waits for it.
func (b *Broker) Answer(ctx context.Context, site fleet.SiteID, id, refused string, stream tunnel.Stream) error {
	b.mu.Lock()
	c := b.pending[id]
	if c == nil || c.provider != site {
		b.mu.Unlock()
		return regional.ErrUnknownTunnel
	}
	delete(b.pending, id)
	b.mu.Unlock()
	if refused != "" {
		select {
		case c.refused <- refused[:min(len(refused), maxRefused)]:
		case <-c.done:
		}
		return nil
	}
	select {
	case c.answered <- stream:
	case <-c.done:
		return regional.ErrUnknownTunnel
	case <-ctx.Done():
		return ctx.Err()
	}
	<-c.done
	return nil
}

// enter counts a connection of a site.
func (b *Broker) enter(consumer fleet.SiteID) (leave func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tenants[consumer.Tenant]
	if t == nil {
		t = &tenant{bytes: rate.NewLimiter(rate.Limit(b.o.TenantBytesPerSecond), burst)}
		b.tenants[consumer.Tenant] = t
	}
	switch {
	case t.open >= b.o.TenantConnections:
		return nil, status.Errorf(codes.ResourceExhausted, "tenant %s has %d connections to virtual hosts on this regional, as many as it may have", consumer.Tenant, t.open)
	case b.sites[consumer] >= b.o.SiteConnections:
		return nil, status.Errorf(codes.ResourceExhausted, "site %s has %d connections to and from virtual hosts on this regional, as many as it may have", consumer, b.o.SiteConnections)
	}
	t.open++
	b.sites[consumer]++
	b.metrics.open.WithLabelValues(consumer.Tenant).Inc()
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		t.open--
		b.leaveLocked(consumer)
		b.metrics.open.WithLabelValues(consumer.Tenant).Dec()
	}, nil
}

func (b *Broker) leaveLocked(site fleet.SiteID) {
	if b.sites[site]--; b.sites[site] <= 0 {
		delete(b.sites, site)
	}
}

// join passes on until an end closes it, nothing passes for Idle, or it is cut.
func (b *Broker) join(ctx context.Context, c *call, consumer, provider tunnel.Stream) error {
	defer close(c.done)
	b.mu.Lock()
	limit := b.tenants[c.consumer.Tenant].bytes
	b.open[c] = true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.open, c)
	}()
	// It may have been withdrawn while the site was asked.
	b.recheck(c)
	counts := [2]prometheus.Counter{b.metrics.bytes.WithLabelValues(c.consumer.Tenant, "to"), b.metrics.bytes.WithLabelValues(c.consumer.Tenant, "from")}
	c.active.Store(time.Now().UnixNano())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		// Both wait for the word. A site that takes nothing holds this up, and not the end.
		for _, s := range []tunnel.Stream{consumer, provider} {
			if err := s.Send(&wire.TunnelData{}); err != nil {
				ended <- err
				return
			}
		}
		ended <- tunnel.Join(consumer, provider, func(from int, m *wire.TunnelData) error {
			n := len(m.GetData())
			c.active.Store(time.Now().UnixNano())
			c.bytes.Add(int64(n))
			counts[from].Add(float64(n))
			return limit.WaitN(ctx, max(n, perMessage))
		})
	}()
	idle := time.NewTicker(max(b.o.Idle/4, time.Millisecond))
	defer idle.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case why := <-c.cut:
			return status.Error(codes.PermissionDenied, why)
		case <-idle.C:
			if time.Since(time.Unix(0, c.active.Load())) > b.o.Idle {
				return status.Errorf(codes.DeadlineExceeded, "nothing was sent for %s", b.o.Idle)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// Recheck ends the connections that are not allowed any more. It is called after what
// Options.Providers answers from has changed.
func (b *Broker) Recheck() {
	b.mu.Lock()
	open := make([]*call, 0, len(b.open))
	for c := range b.open {
		open = append(open, c)
	}
	b.mu.Unlock()
	for _, c := range open {
		b.recheck(c)
	}
}

func (b *Broker) recheck(c *call) {
	providers, ok := b.o.Providers(c.consumer, c.host)
	if ok && slices.ContainsFunc(providers, func(p Provider) bool { return p.Site == c.provider.Name }) {
		return
	}
	select {
	case c.cut <- fmt.Sprintf("virtual host %s is not advertised from %s to %s any more", c.host, c.provider.Name, c.consumer.Name):
		b.o.Logger.Info("a connection to a virtual host is cut: it is not advertised any more", "host", c.host, "from", c.consumer, "to", c.provider)
	default:
	}
}

// Connection is one that is open, for /debug/.
type Connection struct {
	From  string    `json:"from"` // TENANT/SITE that reaches
	To    string    `json:"to"`   // TENANT/SITE that serves
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
	Bytes int64     `json:"bytes"`
}

// Status is what /debug/ shows: how many are open, and the oldest hundred.
func (b *Broker) Status() any {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]Connection, 0, len(b.open))
	for c := range b.open {
		list = append(list, Connection{From: c.consumer.String(), To: c.provider.String(), Host: c.host, Since: c.since, Bytes: c.bytes.Load()})
	}
	slices.SortFunc(list, func(x, y Connection) int { return x.Since.Compare(y.Since) })
	return map[string]any{"open": len(list), "connections": list[:min(len(list), 100)]}
}
