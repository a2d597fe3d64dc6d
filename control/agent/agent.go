// Package agent is the edge half of control: it enrols the machine as a site, keeps
// its certificate fresh, holds the one stream to a regional, fetches the site's
// desired state and hands each item to the Applier of its kind, and reports back.
//
// What it was told survives a restart, and is applied again with control and
// regional away. It applies nothing itself (the collector and others do, as
// Appliers) and links neither Kubernetes nor any central code. muster-edge and the
// simulated sites run it.
package agent

import (
	"cmp"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/control/agent/linkmeter"
	"muster.dev/muster/internal/backoff"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/holdings"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/mirror"
	"muster.dev/muster/internal/wire"
)

// Applier puts items of one kind into effect. Calls for one kind never overlap.
type Applier interface {
	// Apply makes the site hold the item. On an error the applier must keep what it
	// held before; the agent reports the error and tries again.
	Apply(ctx context.Context, item *wire.Item, blob []byte) error
}

// Remover is an Applier whose items can be taken away.
type Remover interface {
	Remove(ctx context.Context, item *wire.Item) error
}

// Options of New; Dir, Version and Logger are required.
type Options struct {
	Dir      string // state; made if missing, 0700
	Version  string // of the agent
	Appliers map[string]Applier
	// Sets are the appliers of kinds whose items come all at once.
	Sets map[string]SetApplier
	// SwitchedOff are kinds that this build knows and this site does not take.
	SwitchedOff []string
	// SystemLabels are asked at each enrolment and connection, Versions for each
	// report; nil: none. Keys as in package facts.
	SystemLabels func() map[string]string
	Versions     func() map[string]string
	// Software is asked for each report: every component that the site can replace; nil: none.
	Software func() []*wire.SoftwareStatus
	// FactoryReset is asked for each report: what the site answers to a request for a factory
	// reset; nil, or a result of nil: there is none.
	FactoryReset func() *wire.FactoryResetAnswer
	// Tunnel serves a connection that control asked for, until it ends; nil: the site
	// takes none.
	Tunnel func(ctx context.Context, conn net.Conn)
	// OpenHost is called when the server asks for a connection to a virtual host that this
	// site serves; it must be quick, and have Answer or Refuse called. nil: it serves none.
	OpenHost   func(server, id, host string)
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics

	// Timing; the defaults are for the field.
	ReportEvery    time.Duration // at the latest, default 5 min
	MirrorEvery    time.Duration // at the earliest, what changed on the cluster; default 1 s
	ConditionEvery time.Duration // at the earliest, of one type's changes; default 30 s
	MinBackoff     time.Duration // default 1 s
	MaxBackoff     time.Duration // default 30 s; refusals are retried ten times as rarely
	ReturnEvery    time.Duration // how often to look for the first server again, default 5 min
	ConnectTimeout time.Duration // default 15 s
	// MaxBlob is the largest blob, in bytes, that is fetched; default 64 MiB.
	MaxBlob int64
	// Dial replaces the network, for tests and simulated faults.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	Now  func() time.Time
}

// Agent is one site's agent. Safe for concurrent use.
type Agent struct {
	opts   Options
	client *http.Client

	mu         sync.Mutex
	join       JoinConfig
	key        crypto.Signer
	cert       *tls.Certificate // nil: not enrolled yet
	renewFrom  time.Time        // when its life began, for this machine
	id         identity.Identity
	bundle     []*x509.Certificate
	pool       *x509.CertPool
	server     int // index of the server in use or tried last
	phase      Phase
	message    string // one line for a person about the phase
	since      time.Time
	connected  *wire.Welcome // nil: not
	lastErr    string
	lastErrAt  time.Time
	enrolled   chan struct{}
	conditions map[string]*wire.Condition
	told       map[string]time.Time // when a change of a condition's type is or was reported

	blobs   *holdings.Dir // belongs to applyLoop alone
	desired desiredState
	report  chan struct{} // the report changed
	mirror  *mirror.Mirror
	changes chan struct{} // the mirror has something to tell
	hosts   hostConns
	metrics metrics
	link    *linkmeter.Meter
}

// Phase is what the agent is doing.
type Phase string

// The phases.
const (
	PhaseStarting   Phase = "starting"
	PhaseEnrolling  Phase = "enrolling"  // asks for a certificate
	PhasePending    Phase = "pending"    // waits for approval
	PhaseRefused    Phase = "refused"    // was told no; a person has to act
	PhaseConnecting Phase = "connecting" // has a certificate, no stream
	PhaseConnected  Phase = "connected"
)

type metrics struct {
	connected prometheus.Gauge
	notAfter  prometheus.Gauge
	connects  *prometheus.CounterVec
	applies   *prometheus.CounterVec
	renewals  *prometheus.CounterVec
}

// New loads what the directory holds. It fails if the directory can't be used or
// its content can't be read; not being joined yet is no failure.
func New(o Options) (*Agent, error) {
	o.ReportEvery = cmp.Or(max(o.ReportEvery, 0), 5*time.Minute)
	o.MirrorEvery = cmp.Or(max(o.MirrorEvery, 0), time.Second)
	o.ConditionEvery = cmp.Or(max(o.ConditionEvery, 0), 30*time.Second)
	o.MinBackoff = cmp.Or(max(o.MinBackoff, 0), time.Second)
	o.MaxBackoff = cmp.Or(max(o.MaxBackoff, 0), 30*time.Second)
	o.ReturnEvery = cmp.Or(max(o.ReturnEvery, 0), 5*time.Minute)
	o.ConnectTimeout = cmp.Or(max(o.ConnectTimeout, 0), 15*time.Second)
	if o.MaxBlob <= 0 {
		o.MaxBlob = 64 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Dial == nil {
		o.Dial = dial
	}
	none := func() map[string]string { return nil }
	if o.SystemLabels == nil {
		o.SystemLabels = none
	}
	if o.Versions == nil {
		o.Versions = none
	}
	a := &Agent{
		opts: o, phase: PhaseStarting, since: o.Now(), enrolled: make(chan struct{}), conditions: map[string]*wire.Condition{}, told: map[string]time.Time{},
		report: make(chan struct{}, 1), changes: make(chan struct{}, 1), link: linkmeter.New(),
		metrics: metrics{
			connected: prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_agent_connected", Help: "1 while the stream to a regional is open."}),
			notAfter:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_agent_certificate_not_after_seconds", Help: "When the site's certificate ends, Unix time."}),
			connects:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_agent_connects_total", Help: "Attempts to open the stream by result."}, []string{"result"}),
			applies:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_agent_applies_total", Help: "Items of the desired state applied, by kind and result."}, []string{"kind", "result"}),
			renewals:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_agent_renewals_total", Help: "Renewals of the certificate by result."}, []string{"result"}),
		},
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(a.metrics.connected, a.metrics.notAfter, a.metrics.connects, a.metrics.applies, a.metrics.renewals)
	}
	a.mirror = mirror.New(mirror.DefaultLimits, func() { poke(a.changes) })
	if err := a.load(); err != nil {
		return nil, err
	}
	if err := a.loadDesired(); err != nil {
		return nil, err
	}
	a.client = &http.Client{Transport: a.link.Transport(&http.Transport{
		DialTLSContext:      a.dialTLS,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     90 * time.Second,
	})}
	return a, nil
}

// ErrNotJoined is returned by Run and Enrol when nobody told the agent its servers.
var ErrNotJoined = errors.New("this machine has not joined a fleet; run the command that `muster token create` prints: muster-edge join --server … --token … --ca-hash …")

// Run enrols if need be, and holds the stream until ctx ends. It applies the last
// known desired state at once, before anything else answers.
func (a *Agent) Run(ctx context.Context) error {
	a.mu.Lock()
	joined := len(a.join.Servers) > 0
	a.mu.Unlock()
	if !joined {
		return ErrNotJoined
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { a.applyLoop(ctx) })
	defer a.client.CloseIdleConnections()
	defer a.hosts.close()

	failed := 0
	for ctx.Err() == nil {
		if a.needsEnrolment() {
			wait, err := a.Enrol(ctx)
			if err == nil && wait == 0 {
				failed = 0
				continue
			}
			if err != nil {
				failed++
				wait = a.backoff(failed)
				if after, ok := wire.RetryAfter(err); ok {
					wait += after // it is well, and busy: so would the others be
				} else if isRefusal(err) {
					wait *= 10
				} else if a.nextServer() {
					wait = 0 // the others first
				}
			}
			a.sleep(ctx, wait)
			continue
		}
		began := time.Now()
		up, err := a.session(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errReconnect):
			failed = 0
		case up: // the same server again, and soon if it worked for a while
			failed = inARow(failed, time.Since(began), a.opts.ConnectTimeout)
			a.sleep(ctx, a.backoff(failed))
		default:
			failed++
			wait := a.backoff(failed)
			switch {
			case refusesCertificate(err), failed%8 == 0:
				// The certificate may be over by the gateway's clock, or revoked before the
				// site was let in anew; a TLS alert doesn't say. A new one settles it.
				if _, rerr := a.Enrol(ctx); isRefusal(rerr) {
					wait *= 10
				}
			case isRefusal(err):
				wait *= 10
			case a.nextServer():
				wait = 0
			}
			a.sleep(ctx, wait)
		}
	}
	return ctx.Err()
}

// inARow is how many sessions have failed in a row, with one that was welcomed and broke: a server
// that is too busy to keep those that it lets in is not to be asked each second by all of them.
func inARow(failed int, lasted, long time.Duration) int {
	if lasted >= long {
		return 1
	}
	return failed + 1
}

// backoff is how long to wait after so many failures in a row.
func (a *Agent) backoff(failed int) time.Duration {
	return backoff.FullJitter(failed-1, a.opts.MinBackoff, a.opts.MaxBackoff)
}

func (a *Agent) sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// nextServer moves on to the next server; false when it has come round to the first.
func (a *Agent) nextServer() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.server = (a.server + 1) % len(a.join.Servers)
	return a.server != 0
}

// offset spreads sites over an interval: always the same for one site, so that a
// fleet never acts in step.
func (a *Agent) offset(interval time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := fnv.New64a()
	h.Write([]byte(a.id.Site.String()))
	return time.Duration(h.Sum64() % uint64(max(interval, 1)))
}

func (a *Agent) setPhase(p Phase, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != p {
		a.phase, a.since = p, a.opts.Now()
	}
	a.message = message
}

func (a *Agent) noteError(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lastErr, a.lastErrAt = err.Error(), a.opts.Now()
}

// Identity returns who this site is: tenant and name, and the region (may be
// empty); ok is false until it is enrolled.
func (a *Agent) Identity() (site fleet.SiteID, region string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.id.Site, a.id.Region, a.cert != nil
}

// Enrolled is closed once the site has a certificate.
func (a *Agent) Enrolled() <-chan struct{} { return a.enrolled }

// Endpoint is the gateway to push to, e.g. "https://eu.example.com:7443": the one
// that the stream is open to, else the one that is tried. Ask before each request.
func (a *Agent) Endpoint() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.join.Servers) == 0 {
		return ""
	}
	return "https://" + a.join.Servers[a.server]
}

// HTTPClient speaks to gateways with the site's certificate, HTTP/2, verified
// against today's trust bundle. It stays good when either rotates.
func (a *Agent) HTTPClient() *http.Client { return a.client }

// Link is what was measured of the site's link to its regionals, to be served with the
// site's own series.
func (a *Agent) Link() prometheus.Collector { return a.link }

// TLSClientConfig is for connections to one gateway's host with the site's
// certificate; both ends' certificates are taken anew for each connection.
func (a *Agent) TLSClientConfig(host string) *tls.Config {
	return identity.ClientConfig(host, a.current, identity.IsRegional)
}

func (a *Agent) current() (*tls.Certificate, *x509.CertPool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pool == nil {
		return a.cert, nil, errors.New("not enrolled yet")
	}
	return a.cert, a.pool, nil
}

func (a *Agent) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("gateway address: %w", err)
	}
	raw, err := a.link.Dial(ctx, linkmeter.Requests, func(ctx context.Context) (net.Conn, error) { return a.opts.Dial(ctx, network, addr) })
	if err != nil {
		return nil, err
	}
	cfg := a.TLSClientConfig(host)
	cfg.NextProtos = []string{"h2", "http/1.1"}
	conn := tls.Client(raw, cfg)
	began := time.Now()
	err = conn.HandshakeContext(ctx)
	a.link.Handshake(linkmeter.Requests, time.Since(began), err)
	if err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

// SetCondition sets a condition of the site that the next report carries; status is
// True, False or Unknown, reason is CamelCase. Another status or reason is reported at
// once, but not more often than ConditionEvery a type; another message alone goes with
// the next report.
func (a *Agent) SetCondition(typ, status, reason, message string) {
	c := &wire.Condition{Type: typ, Status: status, Reason: reason, Message: message}
	a.mu.Lock()
	old := a.conditions[typ]
	a.conditions[typ] = c
	if old != nil && old.Status == status && old.Reason == reason {
		a.mu.Unlock()
		return
	}
	now := time.Now()
	wait := max(0, a.told[typ].Add(a.opts.ConditionEvery).Sub(now))
	if old == nil {
		wait = 0
	}
	pending := a.told[typ].After(now)
	if !pending {
		a.told[typ] = now.Add(wait)
	}
	a.mu.Unlock()
	switch {
	case pending: // a report is on its way that will say it
	case wait > 0:
		time.AfterFunc(wait, a.reportChanged)
	default:
		a.reportChanged()
	}
}

func (a *Agent) reportChanged() { poke(a.report) }

// ReportChanged has a report sent soon, because Options.Software or Versions has other
// things to say.
func (a *Agent) ReportChanged() { a.reportChanged() }

// Connected is nil while a regional answers: it has welcomed the site on the stream that
// is open.
func (a *Agent) Connected() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.connected == nil {
		return fmt.Errorf("it is not connected to a regional: %s", cmp.Or(a.message, string(a.phase)))
	}
	return nil
}

func poke(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// Mirror is where the site's cluster is kept for the centre. Nothing of it is told before
// its Begin.
func (a *Agent) Mirror() *mirror.Mirror { return a.mirror }
