// Package intake takes in the log lines that sites send: Fluentd's forward protocol
// v1 as Fluent Bit and Fluentd speak it, and newline-delimited JSON over HTTP. It
// authenticates the sender by its certificate, stamps tenant, site and region over
// whatever the records say, holds every site to its budget, and acknowledges a
// message only after its lines are in a queue on disk, from which they go to the
// store.
//
// A message that is surely one that was sent again has the same ids for its records, so
// that the store keeps them once; see again.go. When in doubt it is another one.
//
// It must not know which store there is (a Sink is handed in), must not answer queries, and
// must never let what one sender does cost more than that sender's share of memory,
// connections or bytes. cmd/internal/regional starts it.
package intake

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/spool"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/regional/logs/store"
)

// Options of New. Name, Dir, Sink, and TLS together with a listener are required.
type Options struct {
	// Name of the regional. It is the host name of the handshake, in which it must
	// differ from the senders'.
	Name string
	// Listen is the address of the forward protocol; empty: not served. POST
	// /api/v1/logs is served by Handler.
	Listen string
	// TLS must require and verify client certificates
	// (identity.Files.ServerConfig(tls.RequireAndVerifyClientCert)).
	TLS *tls.Config
	// Denied, if not nil, refuses a site whose certificate is still good, with the reason.
	Denied func(fleet.SiteID, *x509.Certificate) (string, bool)
	// SharedKey, if not empty, makes every sender do the forward protocol's handshake, on
	// top of TLS. Without one, senders must have none either.
	SharedKey string
	// Limits, if not nil, is asked at every message: policies change.
	Limits func(fleet.SiteID) SiteLimits
	// SiteBytesPerSecond is the most that Limits may let a site send, which a tenant says;
	// default 16 MiB/s.
	SiteBytesPerSecond int64
	// TenantLogBytesPerDay, if not nil, is how much a tenant's sites together may have
	// queued here in a day of UTC; 0: no limit. It is asked at every message. What comes
	// beyond is refused until the next day, and waits at its senders.
	TenantLogBytesPerDay func(tenant string) int64

	Dir string // of the queue, the dead letters and the usage of the day
	// QueueBytes is the cap of the queue on disk; default 4 GiB. Tenants share it, and
	// the sites of each; see queueGreed. At its share's end a site is not acknowledged.
	QueueBytes int64
	QueueAge   time.Duration // older lines are dropped from the queue and counted; default 0: never
	// SyncInterval is what power loss can cost; 0: nothing, an acknowledged line is on
	// stable storage. See spool.Options.
	SyncInterval time.Duration
	FS           disk.FS // where Dir is; default disk.OS

	Sink       Sink
	Writers    int           // calls of Sink.Write at a time; default 8, of which one tenant gets half at most
	WriteLines int           // that one call of Sink.Write gets; default 2,000. A batch of the queue is never split
	MinBackoff time.Duration // between attempts of a failed write; default 100 ms
	MaxBackoff time.Duration // default 30 s
	// DeadLetterBytes is the cap of the dead letters of all tenants; default 64 MiB.
	DeadLetterBytes int64

	MaxMessageBytes int           // one message, or the body of one request, as sent; default 8 MiB
	MaxPayloadBytes int           // the same, decompressed; default twice MaxMessageBytes
	MaxLineBytes    int           // of one line's text; what is longer is cut off; default DefaultLineBytes, at most MaxLineBytes
	SiteMemory      int64         // held by the messages of one site; default: what one message of the largest size takes, 62 MiB
	Memory          int64         // held by the messages of all sites; default 512 MiB
	MaxConnections  int           // of the forward protocol; default 8,192
	HandshakeTime   time.Duration // TLS and the shared key together; default 10 s
	IdleTime        time.Duration // of a connection without a message; default 5 minutes
	// MessageTime is how long a message may pause while it arrives, and how long it
	// may take in all, plus a second for every 16 KiB that have come; default 30 s.
	MessageTime time.Duration
	// MaxDelay is how long a message waits for room in the queue or in the site's
	// budget before its connection is closed; default 20 s. (A sender that is never
	// acknowledged waits for ever.)
	MaxDelay time.Duration
	// Retention is how long the Sink keeps lines, by whole days: older ones are left out and
	// counted. 0: the Sink decides alone.
	Retention time.Duration
	MaxPast   time.Duration // older lines get the time of receipt, whatever Retention says; default 14 days
	MaxAhead  time.Duration // lines of the future likewise; default 1 hour

	// Processors are what reading records shares with other work of the process; default:
	// the intake's own.
	Processors *turns.Processors

	// OnCondition, if not nil, is called when a condition begins and when it ends.
	// It must neither block nor call the Intake.
	OnCondition func(Condition)
	Logger      *slog.Logger
	Registerer  prometheus.Registerer
	Now         func() time.Time
}

// Bounds of Options.MaxLineBytes.
const (
	DefaultLineBytes = 256 << 10
	MaxLineBytes     = store.MaxMessageBytes - 32 // room for the mark of a cut
)

// minRate is how slow a message may arrive, in bytes a second.
const minRate = 16 << 10

// arriveBy is until when more of a message must come that began at first and of
// which have bytes are there.
func (in *Intake) arriveBy(first, now time.Time, have int) time.Time {
	all, next := first.Add(in.opts.MessageTime+time.Duration(have/minRate)*time.Second), now.Add(in.opts.MessageTime)
	if next.Before(all) {
		return next
	}
	return all
}

func (o *Options) withDefaults() error {
	switch {
	case o.Name == "":
		return errors.New("log intake: Name must be set")
	case o.Dir == "":
		return errors.New("log intake: Dir must be set")
	case o.Sink == nil:
		return errors.New("log intake: Sink must be set")
	case o.Listen != "" && o.TLS == nil:
		return errors.New("log intake: TLS must be set: who a sender is comes from its certificate")
	case o.TLS != nil && o.TLS.ClientAuth != tls.RequireAndVerifyClientCert:
		return errors.New("log intake: TLS must require and verify client certificates")
	}
	o.QueueBytes = cmp.Or(max(o.QueueBytes, 0), 4<<30)
	o.Writers = cmp.Or(max(o.Writers, 0), 8)
	o.WriteLines = cmp.Or(max(o.WriteLines, 0), 2000)
	o.MinBackoff = cmp.Or(max(o.MinBackoff, 0), 100*time.Millisecond)
	o.MaxBackoff = cmp.Or(max(o.MaxBackoff, 0), 30*time.Second)
	o.DeadLetterBytes = cmp.Or(max(o.DeadLetterBytes, 0), 64<<20)
	o.MaxMessageBytes = cmp.Or(max(o.MaxMessageBytes, 0), 8<<20)
	o.MaxPayloadBytes = cmp.Or(max(o.MaxPayloadBytes, 0), 2*o.MaxMessageBytes)
	o.MaxLineBytes = cmp.Or(max(o.MaxLineBytes, 0), DefaultLineBytes)
	o.MaxLineBytes = min(o.MaxLineBytes, MaxLineBytes)
	o.SiteMemory = cmp.Or(max(o.SiteMemory, 0), 2*int64(o.MaxMessageBytes)+2*int64(o.MaxPayloadBytes)+workBytes+zstdWindow)
	o.Memory = cmp.Or(max(o.Memory, 0), max(512<<20, 2*o.SiteMemory))
	o.MaxConnections = cmp.Or(max(o.MaxConnections, 0), 8192)
	o.HandshakeTime = cmp.Or(max(o.HandshakeTime, 0), 10*time.Second)
	o.IdleTime = cmp.Or(max(o.IdleTime, 0), 5*time.Minute)
	o.MessageTime = cmp.Or(max(o.MessageTime, 0), 30*time.Second)
	o.MaxDelay = cmp.Or(max(o.MaxDelay, 0), 20*time.Second)
	o.SiteBytesPerSecond = cmp.Or(max(o.SiteBytesPerSecond, 0), DefaultMaxBytesPerSecond)
	o.MaxPast = cmp.Or(max(o.MaxPast, 0), 14*24*time.Hour)
	o.MaxAhead = cmp.Or(max(o.MaxAhead, 0), time.Hour)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Processors == nil {
		o.Processors = turns.NewProcessors(0)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.FS == nil {
		o.FS = disk.OS{}
	}
	return nil
}

// Intake is the log intake of a regional.
type Intake struct {
	opts    Options
	log     *slog.Logger
	metrics *metrics
	queue   *queue
	slots   *slots
	quota   *quota
	codec   *codec
	memory  *memory
	dead    *deadLetters
	status  conditions
	park    park

	ln net.Listener

	mu     sync.Mutex
	sites  map[fleet.SiteID]*site
	conns  sync.WaitGroup
	unpack unpackers
}

// fullFor is how long the condition of a full queue outlives the last refusal.
const fullFor = 10 * time.Second

// New opens the queue and binds the listener. Run must follow.
func New(o Options) (_ *Intake, err error) {
	if err := o.withDefaults(); err != nil {
		return nil, err
	}
	in := &Intake{opts: o, log: o.Logger, sites: map[fleet.SiteID]*site{}, memory: newMemory(o.Memory, o.SiteMemory), slots: newSlots(o.Writers)}
	in.status.changed = o.OnCondition
	in.status.now = o.Now
	in.park.in, in.park.wake = in, make(chan struct{}, 1)
	if in.codec, err = newCodec(); err != nil {
		return nil, fmt.Errorf("log intake: %w", err)
	}
	reg := prometheus.WrapRegistererWithPrefix("", o.Registerer)
	if o.Registerer == nil {
		reg = prometheus.NewRegistry()
	}
	if in.metrics, err = newMetrics(reg); err != nil {
		return nil, fmt.Errorf("log intake: metrics: %w", err)
	}
	if in.queue, err = openQueue(in, filepath.Join(o.Dir, "queue"), reg); err != nil {
		return nil, fmt.Errorf("log intake: %w", err)
	}
	defer func() {
		if err != nil {
			_ = in.Close()
		}
	}()
	if in.dead, err = openDeadLetters(o.FS, filepath.Join(o.Dir, "dead-letters"), o.DeadLetterBytes); err != nil {
		return nil, fmt.Errorf("log intake: %w", err)
	}
	var lost error
	if in.quota, lost = openQuota(o.FS, filepath.Join(o.Dir, "usage.json"), o.TenantLogBytesPerDay, o.Now); lost != nil {
		in.log.Error("log intake", "err", lost)
	}
	if o.Listen != "" {
		ln, err := net.Listen("tcp", o.Listen)
		if err != nil {
			return nil, fmt.Errorf("log intake: listen on %s: %w", o.Listen, err)
		}
		in.ln = &boundedListener{Listener: ln, slots: make(chan struct{}, o.MaxConnections), refused: in.metrics.refused.WithLabelValues("connections")}
	}
	return in, nil
}

// Addr is where the forward protocol is served; nil if it is not.
func (in *Intake) Addr() net.Addr {
	if in.ln == nil {
		return nil
	}
	return in.ln.Addr()
}

// Run serves until ctx ends, then closes every connection, stops the writers and
// closes the queue. Messages that were not acknowledged by then are their senders'
// to send again.
func (in *Intake) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	failed := make(chan error, 2)
	start := func(f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				failed <- err
				cancel()
			}
		})
	}
	if in.ln != nil {
		start(in.serveForward)
	}
	start(in.drain)
	start(in.tend)
	<-ctx.Done()
	wg.Wait()
	in.conns.Wait()
	err := in.Close()
	select {
	case failure := <-failed:
		err = errors.Join(failure, err)
	default:
	}
	return err
}

// Close frees what New took; Run does it by itself.
func (in *Intake) Close() error {
	var errs []error
	if in.ln != nil {
		if err := in.ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if in.queue != nil {
		errs = append(errs, in.queue.Close())
	}
	if in.quota != nil {
		errs = append(errs, in.quota.save())
	}
	return errors.Join(errs...)
}

// tend forgets sites that are gone, and keeps the conditions of the queue.
func (in *Intake) tend(ctx context.Context) error {
	t := time.NewTicker(5 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		in.queue.tend()
		if err := in.quota.save(); err != nil {
			in.log.Error("log intake", "err", err)
		}
		in.tendSites(in.opts.Now())
	}
}

// tendSites ends the conditions of sites that are over, and forgets the sites that are gone.
func (in *Intake) tendSites(now time.Time) {
	var all, left []*site
	in.mu.Lock()
	for id, s := range in.sites {
		s.mu.Lock()
		gone := s.conns == 0 && now.Sub(s.lastSeen) > time.Hour
		s.mu.Unlock()
		if gone {
			delete(in.sites, id)
			left = append(left, s)
		} else {
			all = append(all, s)
		}
	}
	in.mu.Unlock()
	full := 0.
	for _, s := range all {
		s.mu.Lock()
		paid := s.overBudget && s.debt(now) == 0
		room := s.overQuota && in.quota.spent(s.id.Tenant) == nil
		if room {
			s.overQuota = false
		}
		// As long as it is refused, a sender keeps trying.
		free := !s.refusedAt.IsZero() && now.Sub(s.refusedAt) > fullFor
		if free {
			s.refusedAt = time.Time{}
		} else if !s.refusedAt.IsZero() {
			full = 1
		}
		s.mu.Unlock()
		if paid {
			in.overBudget(s, false)
		}
		if room {
			in.status.set(Condition{Site: s.id, Type: ConditionOverQuota}, false)
		}
		if free {
			in.status.set(Condition{Site: s.id, Type: ConditionQueueFull}, false)
		}
	}
	in.metrics.full.Set(full)
	for _, s := range left {
		in.metrics.forget(s.id)
		in.status.forget(s.id)
	}
}

// site returns the state of a site and counts a connection in; leave counts it out.
func (in *Intake) enter(id fleet.SiteID, region string) (*site, error) {
	l := in.limits(id)
	in.mu.Lock()
	s := in.sites[id]
	if s == nil {
		s = newSite(id, l)
		in.sites[id] = s
	}
	s.mu.Lock()
	full := s.conns >= l.Connections
	if !full {
		s.conns++
		s.region, s.lastSeen = region, in.opts.Now()
	}
	s.mu.Unlock()
	in.mu.Unlock()
	if full {
		in.metrics.refused.WithLabelValues("connections").Inc()
		return nil, fmt.Errorf("site %s has %d connections open already", id, l.Connections)
	}
	s.configure(in.opts.Now(), l)
	return s, nil
}

func (in *Intake) leave(s *site) {
	s.mu.Lock()
	s.conns--
	s.lastSeen = in.opts.Now()
	s.mu.Unlock()
}

func (in *Intake) limits(id fleet.SiteID) SiteLimits {
	var l SiteLimits
	if in.opts.Limits != nil {
		l = in.opts.Limits(id)
	}
	l = l.withDefaults()
	if most := in.opts.SiteBytesPerSecond; l.BytesPerSecond > most {
		l.asked, l.BytesPerSecond = l.BytesPerSecond, most
	}
	return l
}

// peer is who a verified certificate says that the sender is.
func (in *Intake) peer(cs *tls.ConnectionState) (fleet.SiteID, string, *x509.Certificate, error) {
	if cs == nil || len(cs.VerifiedChains) == 0 {
		return fleet.SiteID{}, "", nil, errors.New("a site certificate is required; join with `muster-edge join`")
	}
	leaf := cs.VerifiedChains[0][0]
	id, region, err := identity.ParseSite(leaf)
	if err != nil {
		return id, region, leaf, err
	}
	return id, region, leaf, in.stillGood(id, leaf)
}

// ErrExpired is in the error of a certificate whose time is over.
var ErrExpired = errors.New("expired")

// stillGood is asked again at every message: connections outlive certificates.
func (in *Intake) stillGood(id fleet.SiteID, leaf *x509.Certificate) error {
	if now := in.opts.Now(); now.After(leaf.NotAfter) {
		return fmt.Errorf("the certificate of site %s is out of date: %w on %s; the agent renews it", id, ErrExpired, leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if in.opts.Denied != nil {
		if reason, denied := in.opts.Denied(id, leaf); denied {
			return fmt.Errorf("site %s is refused: %s", id, reason)
		}
	}
	return nil
}

// warn logs what a site does wrong, once a minute and kind: a flood of errors must
// not become a flood of logs.
func (in *Intake) warn(s *site, kind, msg string, args ...any) {
	now := in.opts.Now()
	s.mu.Lock()
	s.lastError, s.lastErrorAt = msg+": "+fmt.Sprint(args[1:]...), now
	s.mu.Unlock()
	if _, ok := s.warned.Pass(kind, now); ok {
		in.log.Warn(msg, append([]any{"site", s.id.String()}, args...)...)
	}
}

// Status is shown on the debug page.
type Status struct {
	Queue       spool.Stats   // of all tenants
	Tenants     []TenantQueue // what waits, by tenant
	Parked      []ParkedStatus
	DeadLetters uint64 // records, since the start
	MemoryUsed  int64  // bytes that messages hold now
	MemoryPeak  int64
	Conditions  []Condition
	Sites       []SiteStatus
}

// SiteStatus is what the intake knows of one site. The counts are since it came.
type SiteStatus struct {
	Site        fleet.SiteID
	Region      string
	Connections int
	LastSeen    time.Time
	Lines       uint64 // queued
	Bytes       uint64 // uncompressed, as sent
	Dropped     uint64 // lines of streams that the policy leaves out
	Malformed   uint64 // entries that are no records
	Duplicates  uint64 // messages that had been acknowledged before
	OverBudget  bool
	LastError   string
	LastErrorAt time.Time
}

// Status returns the state now.
func (in *Intake) Status() Status {
	st := Status{Queue: in.queue.Stats(), Tenants: in.queue.list(), Parked: in.park.list(), DeadLetters: in.dead.written.Load(), Conditions: in.status.list()}
	in.memory.mu.Lock()
	st.MemoryUsed, st.MemoryPeak = in.memory.used, in.memory.peak
	in.memory.mu.Unlock()
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, s := range in.sites {
		s.mu.Lock()
		st.Sites = append(st.Sites, SiteStatus{Site: s.id, Region: s.region, Connections: s.conns, LastSeen: s.lastSeen, Lines: s.lines, Bytes: s.bytes,
			Dropped: s.dropped, Malformed: s.malformed, Duplicates: s.duplicates, OverBudget: s.overBudget, LastError: s.lastError, LastErrorAt: s.lastErrorAt})
		s.mu.Unlock()
	}
	return st
}

// hash names a message by its content.
type hash [15]byte

// prefix is the first part of the ids of its records.
func (h hash) prefix() string { return base64.RawURLEncoding.EncodeToString(h[:]) }

// hashOf names a message by everything that it says and who says it. A chunk that
// is sent again has the same id and the same content. The content counts too: a
// sender whose ids repeat must lose nothing.
func hashOf(id fleet.SiteID, parts ...[]byte) hash {
	d := sha256.New()
	var n [8]byte
	for _, p := range append([][]byte{[]byte(id.String())}, parts...) {
		binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
		d.Write(n[:])
		d.Write(p)
	}
	return hash(d.Sum(nil)[:15])
}

func nonce() []byte {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return b
}

// boundedListener closes connections beyond its bound at once.
type boundedListener struct {
	net.Listener
	slots   chan struct{}
	refused prometheus.Counter
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &slotConn{Conn: c, free: sync.OnceFunc(func() { <-l.slots })}, nil
		default:
			l.refused.Inc()
			_ = c.Close()
		}
	}
}

type slotConn struct {
	net.Conn
	free func()
}

func (c *slotConn) Close() error {
	c.free()
	return c.Conn.Close()
}
