// Package relay is a regional's connection to control. It forwards registrations
// and renewals, keeps one stream over which sites' comings, reports and desired
// states go, caches what sites need, and goes on serving it while control is away.
// It keeps what the regional itself holds, each tenant's sites and rules, likewise.
//
// It holds no opinion on desired states and reports: it passes them on. It must
// never give a site what belongs to another. The gateway calls it through
// regional.Upstream; cmd/internal makes it.
package relay

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muster.dev/muster/internal/backoff"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/fairshare"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/revoked"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional"
)

// Options of New. Name, Dir and Control are required.
type Options struct {
	Name    string // of the regional
	Version string
	Dir     string
	// Control is a client of control's fleet API over the regional's certificate.
	// The connection should have keepalive on, so that a dead control is noticed.
	Control wire.ControlClient
	// CacheBytes bounds the blobs on disk. Default 1 GiB.
	CacheBytes int64
	// ClusterBytes bounds what is kept of what runs on sites, of which a tenant's have as
	// much as they leave free. Default 2 GiB.
	ClusterBytes int
	// AliveInterval is how often heartbeats are passed on. Default 30 s.
	AliveInterval time.Duration
	// MinBackoff and MaxBackoff bound the pause between attempts to reach control,
	// which has full jitter. Defaults 500 ms and 30 s.
	MinBackoff, MaxBackoff time.Duration
	// OnRegional takes what the regional itself holds, each tenant's sites and rules,
	// whole: first, if there is one, the last good set from the disk, then each set
	// that differs from the one before, and says which items are not in effect. Of
	// these the consumer should keep what it had. It is called from Run, never
	// concurrently. nil: nothing is taken.
	OnRegional func([]Item) []ItemError
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
}

// settleTime is after how long a stream that control did not refuse is a good one.
const settleTime = time.Second

// callTimeout bounds a forwarded registration or renewal.
const callTimeout = 20 * time.Second

// Relay implements regional.Upstream. Safe for concurrent use.
type Relay struct {
	opts    Options
	log     *slog.Logger
	blobs   *blobCache
	desired *desiredStore
	denied  *revoked.List
	held    *held // nil: no Options.OnRegional
	wake    chan struct{}
	metrics *metrics

	mu        sync.Mutex
	sites     map[fleet.SiteID]*siteState
	connected bool
	since     time.Time
	lastErr   string

	clusters map[fleet.SiteID]*cluster // what runs on sites; outlives their streams
	room     *fairshare.Shares         // bytes of all of these
	tunnels  map[string]pendingTunnel  // that control asked for, by id

	conditions map[fleet.SiteID][]*wire.Condition // what this regional says of sites
	condsDue   map[fleet.SiteID]bool
	use        *wire.TenantsUse // as told last; nil: nothing yet
	useDue     bool
}

// siteState is what has to be told to control about one site. Only the newest
// counts, so a long absence of control costs no more memory than a short one.
type siteState struct {
	session  regional.Session // nil: no stream
	hello    *wire.Hello
	lastSeen time.Time
	report   *wire.Report // the latest

	upDue, downDue, reportDue, aliveDue bool
	announced                           bool // control thinks the site is up
}

var _ regional.Upstream = (*Relay)(nil)

// New opens the caches in Options.Dir; Run connects.
func New(o Options) (*Relay, error) {
	if o.Name == "" || o.Dir == "" || o.Control == nil {
		return nil, errors.New("relay: Name, Dir and Control must be set")
	}
	o.AliveInterval = cmp.Or(max(o.AliveInterval, 0), 30*time.Second)
	o.MinBackoff = cmp.Or(max(o.MinBackoff, 0), 500*time.Millisecond)
	o.MaxBackoff = cmp.Or(max(o.MaxBackoff, 0), 30*time.Second)
	if o.CacheBytes <= 0 {
		o.CacheBytes = 1 << 30
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Relay{opts: o, log: o.Logger.With("part", "relay"), wake: make(chan struct{}, 1), sites: map[fleet.SiteID]*siteState{}, since: o.Now(),
		clusters: map[fleet.SiteID]*cluster{}, room: fairshare.NewShares(cmp.Or(o.ClusterBytes, 2<<30)), tunnels: map[string]pendingTunnel{},
		conditions: map[fleet.SiteID][]*wire.Condition{}, condsDue: map[fleet.SiteID]bool{}}
	if err := disk.MkdirAll(disk.OS{}, filepath.Join(o.Dir, "blobs"), 0o750); err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	var err error
	r.desired = openDesired(filepath.Join(o.Dir, "desired.sets"), r.log)
	if r.blobs, err = openBlobs(filepath.Join(o.Dir, "blobs"), o.CacheBytes, r.desired.tenants(), o.Control, r.log); err != nil {
		return nil, fmt.Errorf("relay: blob cache: %w", err)
	}
	if r.denied, err = revoked.Open(filepath.Join(o.Dir, "revoked.json"), 0o640, o.Now()); err != nil {
		// To start without it would let revoked sites in again.
		return nil, fmt.Errorf("relay: revoked sites: %w; remove the file only if control is up, which repeats them", err)
	}
	if o.OnRegional != nil {
		dir := filepath.Join(o.Dir, "regional")
		if err := disk.MkdirAll(disk.OS{}, dir, 0o750); err != nil {
			return nil, fmt.Errorf("relay: %w", err)
		}
		r.held = newHeld(dir, o.OnRegional, r.fetchRegional, r.poke, r.log)
	}
	r.metrics = newMetrics(r, o.Registerer)
	return r, nil
}

// fetchRegional gets a blob of what the regional itself holds, which sites can't ask for.
func (r *Relay) fetchRegional(ctx context.Context, digest string, size int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	var b bytes.Buffer
	if _, err := fetcher.To(ctx, r.opts.Control, digest, size, &b); err != nil {
		return nil, fmt.Errorf("blob %s: fetch from control: %w", digest, err)
	}
	return b.Bytes(), nil
}

// Run keeps the stream to control until ctx ends.
func (r *Relay) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { r.desired.run(ctx) })
	// Until the last stream has ended: what it told is in effect, and on disk when this returns.
	keep, kept := context.WithCancel(context.WithoutCancel(ctx))
	defer kept()
	wg.Go(func() {
		r.denied.Run(keep, func(err error) {
			r.log.Error("revocations are in effect but could not be saved; a restart forgets them until control repeats them", "err", err)
		})
	})
	if r.held != nil {
		wg.Go(func() { r.held.run(ctx) })
	}
	for attempt := 0; ; attempt++ {
		began := r.opts.Now()
		err := r.stream(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if r.opts.Now().Sub(began) > r.opts.MaxBackoff {
			attempt = 0
		}
		r.lost(err)
		t := time.NewTimer(backoff.FullJitter(attempt, r.opts.MinBackoff, r.opts.MaxBackoff))
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}

// lost notes that the stream ended.
func (r *Relay) lost(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connected {
		r.log.Warn("lost control; sites go on with what is cached", "err", err)
		r.since = r.opts.Now()
	} else {
		r.log.Debug("control can't be reached", "err", err)
	}
	r.connected = false
	if err != nil {
		r.lastErr = err.Error()
	}
}

// stream runs one stream to control until it ends.
func (r *Relay) stream(ctx context.Context) error {
	var receiver sync.WaitGroup
	defer receiver.Wait() // nothing of this stream is taken once there is another
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := r.opts.Control.Relay(ctx)
	if err != nil {
		return err
	}
	hello := &wire.RelayHello{Capability: wire.Capability, Regional: r.opts.Name, Version: r.opts.Version}
	received := make(chan error, 1)
	receiver.Go(func() { received <- r.receive(st) })
	// A failed Send says EOF only; why is told to the receiver, and soon.
	cause := func(err error) error {
		if errors.Is(err, io.EOF) {
			return <-received
		}
		return err
	}
	if err := st.Send(&wire.RelayUp{Msg: &wire.RelayUp_Hello{Hello: hello}}); err != nil {
		return cause(err)
	}
	r.allDue()
	// A stream that opens says little: control may refuse it a moment later. It
	// counts once control answers, or has not refused for a while. What is known of
	// sites that are away now is sent only then, because it is sent only once.
	answered := make(chan struct{})
	go func() {
		// A refusal has no header, and that is not an error to gRPC.
		if md, err := st.Header(); err == nil && md.Len() > 0 {
			close(answered)
		}
	}()
	settled := time.NewTimer(settleTime)
	defer settled.Stop()
	alive := time.NewTicker(r.opts.AliveInterval)
	defer alive.Stop()
	for {
		if err := r.flush(st); err != nil {
			return cause(err)
		}
		select {
		case err := <-received:
			return err
		case <-r.wake:
		case <-answered:
			answered = nil
			r.reached()
		case <-settled.C:
			r.reached()
		case <-alive.C:
			r.denied.Prune(r.opts.Now())
			r.sweepClusters()
			if err := r.sendAlive(st); err != nil {
				return cause(err)
			}
		}
	}
}

// allDue makes everything due that a control that just started has to know.
func (r *Relay) allDue() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != nil {
		r.held.newStream()
	}
	for id := range r.conditions {
		r.condsDue[id] = true
	}
	r.useDue = r.use != nil
	for _, s := range r.sites {
		s.announced = false
		if s.session != nil {
			s.upDue = true
			s.reportDue = s.report != nil
		}
	}
}

// reached notes that control is there.
func (r *Relay) reached() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connected {
		return
	}
	r.connected, r.since, r.lastErr = true, r.opts.Now(), ""
	r.log.Info("connected to control", "sites", len(r.sites))
}

// flush sends what is due. Sending waits when control is slow; meanwhile newer
// states replace older ones.
func (r *Relay) flush(st grpc.BidiStreamingClient[wire.RelayUp, wire.RelayDown]) error {
	r.mu.Lock()
	var due []fleet.SiteID
	for id, s := range r.sites {
		if (s.upDue || s.downDue || s.reportDue || r.condsDue[id] || (s.announced && r.clusters[id].isDue())) && (s.session != nil || r.connected) {
			due = append(due, id)
		}
	}
	for id := range r.condsDue {
		if r.sites[id] == nil && r.connected { // else they follow what there is to say of the site
			due = append(due, id)
		}
	}
	var use *wire.TenantsUse
	if r.useDue {
		use, r.useDue = r.use, false
	}
	r.mu.Unlock()
	if use != nil {
		if err := st.Send(&wire.RelayUp{Msg: &wire.RelayUp_TenantsUse{TenantsUse: use}}); err != nil {
			return err // it is told anew on the next stream
		}
	}
	if r.held != nil {
		if rep := r.held.takeDue(); rep != nil {
			if err := st.Send(&wire.RelayUp{Msg: &wire.RelayUp_RegionalReport{RegionalReport: rep}}); err != nil {
				return err // control asks again on the next stream
			}
		}
	}
	for _, id := range due {
		for _, m := range r.takeDue(id) {
			if err := st.Send(m); err != nil {
				r.giveBack(id, m)
				return err
			}
		}
		for _, m := range r.takeCluster(id) {
			if err := st.Send(m); err != nil {
				return err // the next stream begins with the version
			}
		}
	}
	return nil
}

func (r *Relay) takeDue(id fleet.SiteID) []*wire.RelayUp {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sites[id]
	var out []*wire.RelayUp
	if s == nil {
		return r.takeConditionsLocked(id, out)
	}
	// A site that is away now but has something to say is announced first, so that
	// control sees the same order as it would have.
	if s.upDue || (s.reportDue && !s.announced) {
		hello := s.hello
		if hello == nil {
			hello = &wire.Hello{}
		}
		out = append(out, &wire.RelayUp{Msg: &wire.RelayUp_Up{Up: &wire.SiteUp{Tenant: id.Tenant, Site: id.Name, Hello: hello, Holds: r.desired.get(id).GetRevision()}}})
		s.upDue, s.announced = false, true
		r.condsDue[id] = true // also if there are none: a former regional's have to go
		if m := r.clusters[id].announce(id); m != nil {
			out = append(out, m)
		}
	}
	if s.reportDue && s.report != nil {
		out = append(out, &wire.RelayUp{Msg: &wire.RelayUp_Report{Report: &wire.SiteReport{Tenant: id.Tenant, Site: id.Name, Report: s.report}}})
	}
	s.reportDue = false
	if s.downDue && s.session == nil {
		out = append(out, &wire.RelayUp{Msg: &wire.RelayUp_Down{Down: &wire.SiteDown{Tenant: id.Tenant, Site: id.Name, LastSeen: timestamppb.New(s.lastSeen)}}})
		s.announced = false
	}
	s.downDue = false
	if s.session == nil {
		delete(r.sites, id)
	}
	return r.takeConditionsLocked(id, out)
}

func (r *Relay) takeConditionsLocked(id fleet.SiteID, out []*wire.RelayUp) []*wire.RelayUp {
	if !r.condsDue[id] {
		return out
	}
	delete(r.condsDue, id)
	conds := r.conditions[id]
	if len(conds) == 0 {
		delete(r.conditions, id)
	}
	return append(out, &wire.RelayUp{Msg: &wire.RelayUp_SiteConditions{SiteConditions: &wire.SiteConditions{Tenant: id.Tenant, Site: id.Name, Conditions: conds}}})
}

// SiteConditions tells control how this regional sees a site. The list replaces the
// one before, and is told anew on each stream; an empty one ends what was told. The
// conditions must not be changed afterwards. Control takes the types that it knows
// of regionals, such as LogBudgetExceeded, and of sites that are or were last
// connected here.
func (r *Relay) SiteConditions(id fleet.SiteID, conds []*wire.Condition) {
	if id.Validate() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conditions[id] = slices.Clone(conds)
	r.condsDue[id] = true
	r.poke()
}

// TenantsUse tells control what tenants use of their quotas here. It replaces what was
// told before, and is told anew on each stream.
func (r *Relay) TenantsUse(list []*wire.TenantUse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.use, r.useDue = &wire.TenantsUse{Tenants: list}, true
	r.poke()
}

// RulesFail tells control which objects are in effect here and fail at work, such as rules
// that give too much; kind and name as in ItemError. The list replaces the one before.
func (r *Relay) RulesFail(errs []ItemError) {
	if r.held != nil {
		r.held.fail(slices.Clone(errs))
	}
}

// Connected tells whether control can be reached.
func (r *Relay) Connected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connected
}

// giveBack keeps what could not be sent for the next stream.
func (r *Relay) giveBack(id fleet.SiteID, m *wire.RelayUp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch m.Msg.(type) {
	case *wire.RelayUp_SiteConditions:
		r.condsDue[id] = true
		return
	case *wire.RelayUp_SiteKubernetes:
		return // it follows the site's Up on the next stream
	}
	s := r.sites[id]
	if s == nil {
		s = &siteState{}
		r.sites[id] = s
	}
	switch msg := m.Msg.(type) {
	case *wire.RelayUp_Up:
		if s.hello == nil {
			s.hello = msg.Up.Hello
		}
		s.upDue = true
	case *wire.RelayUp_Report:
		if s.report == nil {
			s.report = msg.Report.Report
		}
		s.reportDue = true
	case *wire.RelayUp_Down:
		if s.session == nil {
			s.lastSeen, s.downDue = msg.Down.LastSeen.AsTime(), true
		}
	}
}

func (r *Relay) sendAlive(st grpc.BidiStreamingClient[wire.RelayUp, wire.RelayDown]) error {
	alive := &wire.SitesAlive{}
	r.mu.Lock()
	for id, s := range r.sites {
		if s.aliveDue && s.session != nil {
			alive.Sites = append(alive.Sites, &wire.SiteSeen{Tenant: id.Tenant, Site: id.Name, LastSeen: timestamppb.New(s.lastSeen)})
			s.aliveDue = false
		}
	}
	r.mu.Unlock()
	if len(alive.Sites) == 0 {
		return nil
	}
	return st.Send(&wire.RelayUp{Msg: &wire.RelayUp_Alive{Alive: alive}})
}

// receive takes what control says until the stream ends.
func (r *Relay) receive(st grpc.BidiStreamingClient[wire.RelayUp, wire.RelayDown]) error {
	for {
		m, err := st.Recv()
		if err != nil {
			return err
		}
		switch msg := m.GetMsg().(type) {
		case *wire.RelayDown_Desired:
			onDesired(r, msg.Desired.GetDesired(), msg.Desired)
		case *wire.RelayDown_SitesDesired:
			onDesired(r, msg.SitesDesired.GetDesired(), msg.SitesDesired.GetSites()...)
		case *wire.RelayDown_SitesChange:
			r.onChange(msg.SitesChange.GetChange(), msg.SitesChange.GetSites())
		case *wire.RelayDown_Revoked:
			r.onRevoked(msg.Revoked)
		case *wire.RelayDown_KubernetesResync:
			r.onResync(msg.KubernetesResync)
		case *wire.RelayDown_OpenTunnel:
			r.onOpenTunnel(msg.OpenTunnel)
		case *wire.RelayDown_Regional:
			if r.held != nil {
				r.held.want(msg.Regional.GetDesired())
			}
		}
	}
}

// onDesired takes what sites should hold. They are told before it is on disk: thousands
// wait for it.
func onDesired[S interface {
	GetTenant() string
	GetSite() string
}](r *Relay, st *wire.DesiredState, sites ...S) {
	if st == nil {
		r.log.Warn("control sent a message without a desired state; ignored")
		return
	}
	if want := wire.RevisionOf(st.Items); st.Revision != want {
		r.log.Warn("control sent a desired state whose revision does not match its items; ignored", "sites", len(sites), "revision", st.Revision, "want", want)
		return
	}
	for _, s := range sites {
		id := fleet.SiteID{Tenant: s.GetTenant(), Name: s.GetSite()}
		if err := id.Validate(); err != nil {
			r.log.Warn("control sent a desired state of a site that makes no sense; ignored", "site", id, "err", err)
			continue
		}
		st = r.desired.set(id, st)
		r.mu.Lock()
		var sess regional.Session
		if s := r.sites[id]; s != nil {
			sess = s.session
		}
		r.mu.Unlock()
		if sess != nil {
			sess.Desired(st)
		}
	}
}

// onChange takes what is other in what sites should hold. Control is asked for the whole of
// it where that does not follow what is held.
func (r *Relay) onChange(c *wire.DesiredChange, sites []*wire.SiteName) {
	var from, to *wire.DesiredState // of the site before: those that hold the same share it
	for _, s := range sites {
		id := fleet.SiteID{Tenant: s.GetTenant(), Name: s.GetSite()}
		held := r.desired.get(id)
		if to == nil || held != from {
			var err error
			if to, err = wire.Changed(held, c); err != nil {
				r.log.Warn("a change of what a site should hold can't be followed; asking for the whole of it", "site", id, "err", err)
				r.askAnew(id)
				continue
			}
			from = held
		}
		onDesired(r, to, s)
	}
}

// askAnew has control say anew what a site should hold.
func (r *Relay) askAnew(id fleet.SiteID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sites[id]; s != nil && s.session != nil {
		s.upDue = true
		r.poke()
	}
}

func (r *Relay) onRevoked(m *wire.SiteRevoked) {
	id := fleet.SiteID{Tenant: m.GetTenant(), Name: m.GetSite()}
	if err := id.Validate(); err != nil {
		r.log.Warn("control revoked a site that makes no sense", "site", id, "err", err)
		return
	}
	e := revoked.Entry{Reason: m.Reason, Until: r.opts.Now().Add(revoked.UnknownLife)}
	if m.IssuedBefore != nil {
		e.IssuedBefore = m.IssuedBefore.AsTime()
	}
	if m.Until != nil {
		e.Until = m.Until.AsTime()
	}
	r.denied.Add(id, e)
	r.mu.Lock()
	var sess regional.Session
	if s := r.sites[id]; s != nil {
		sess = s.session
	} else {
		delete(r.conditions, id)
		delete(r.condsDue, id)
	}
	r.mu.Unlock()
	if sess != nil {
		// Control repeats revocations on each stream. The machine that has since
		// registered anew under the name is not meant.
		if _, denied := r.denied.Check(id, sess.Certificate()); !denied {
			return
		}
		sess.Revoke(m.Reason)
	}
	r.desired.remove(id)
	r.mu.Lock()
	r.forgetClusterLocked(id)
	r.mu.Unlock()
	r.log.Info("site revoked", "site", id, "reason", m.Reason)
}

// Denied implements regional.Upstream.
func (r *Relay) Denied(id fleet.SiteID, cert *x509.Certificate) (string, bool) {
	return r.denied.Check(id, cert)
}

func (r *Relay) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *Relay) stateLocked(id fleet.SiteID) *siteState {
	s := r.sites[id]
	if s == nil {
		s = &siteState{}
		r.sites[id] = s
	}
	return s
}

// SiteUp implements regional.Upstream.
func (r *Relay) SiteUp(id fleet.SiteID, hello *wire.Hello, sess regional.Session) {
	r.mu.Lock()
	s := r.stateLocked(id)
	s.session, s.hello, s.lastSeen = sess, hello, r.opts.Now()
	s.report, s.reportDue, s.downDue, s.upDue = nil, false, false, true
	r.clusters[id].interrupted()
	r.mu.Unlock()
	r.poke()
	for d := r.desired.get(id); d != nil; {
		sess.Desired(d)
		now := r.desired.get(id)
		if now == d {
			return
		}
		d = now // it came meanwhile, and may have been told before the other
	}
}

// SiteDown implements regional.Upstream.
func (r *Relay) SiteDown(id fleet.SiteID, sess regional.Session, last time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sites[id]
	if s == nil || s.session != sess {
		return
	}
	s.session, s.lastSeen, s.downDue = nil, last, true
	if c := r.clusters[id]; c != nil {
		c.left = r.opts.Now()
	}
	r.poke()
}

// Report implements regional.Upstream.
func (r *Relay) Report(id fleet.SiteID, rep *wire.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sites[id]
	if s == nil || s.session == nil || (s.report != nil && rep.Seq <= s.report.Seq) {
		return
	}
	s.report, s.reportDue = rep, true
	r.poke()
}

// Alive implements regional.Upstream.
func (r *Relay) Alive(id fleet.SiteID, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sites[id]; s != nil && s.session != nil {
		s.lastSeen, s.aliveDue = at, true
	}
}

// Blob implements regional.Upstream.
func (r *Relay) Blob(ctx context.Context, id fleet.SiteID, digest string, offset int64, send func([]byte) error) error {
	size := int64(-1)
	if d := r.desired.get(id); d != nil {
		for _, it := range d.Items {
			if it.GetDigest() == digest {
				size = it.GetSize()
				break
			}
		}
	}
	if size < 0 {
		return regional.ErrUnknownBlob
	}
	if offset > size {
		return status.Errorf(codes.OutOfRange, "offset %d of a blob of %d bytes", offset, size)
	}
	return r.blobs.stream(ctx, id.Tenant, digest, size, offset, send)
}

// Items of one kind that the site should hold; ok is false while control has not said
// anything of the site. They must not be changed.
func (r *Relay) Items(id fleet.SiteID, kind string) (items []*wire.Item, ok bool) {
	d := r.desired.get(id)
	for _, it := range d.GetItems() {
		if it.GetKind() == kind {
			items = append(items, it)
		}
	}
	return items, d != nil
}

// Status is what /debug/ shows.
type Status struct {
	Connected    bool      `json:"connected"`
	Since        time.Time `json:"since"` // of being connected, or not
	LastError    string    `json:"lastError,omitempty"`
	Sites        int       `json:"sites"`
	Due          int       `json:"due"` // sites with something that control does not know yet
	Revoked      int       `json:"revoked"`
	DesiredState int       `json:"desiredStates"`
	Blobs        int       `json:"blobs"`
	BlobBytes    int64     `json:"blobBytes"`
	// Held is what the regional itself holds.
	Held HeldStatus `json:"held"`
}

// Status returns the state now.
func (r *Relay) Status() Status {
	r.mu.Lock()
	st := Status{Connected: r.connected, Since: r.since, LastError: r.lastErr}
	for _, s := range r.sites {
		if s.session != nil {
			st.Sites++
		}
		if s.upDue || s.downDue || s.reportDue {
			st.Due++
		}
	}
	r.mu.Unlock()
	st.Revoked, st.DesiredState = r.denied.Len(), r.desired.len()
	st.Blobs, st.BlobBytes = r.blobs.size()
	if r.held != nil {
		st.Held = r.held.statusNow()
	}
	return st
}
