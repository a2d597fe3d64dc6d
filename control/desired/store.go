// Package desired renders what each site should hold: a list of content-addressed
// blobs a site, from everything that selects the site. Equal results share one
// blob, and a change renders only the sites that it touches.
//
// A site gets its collection policy, always one, and the objects of virtual Kubernetes
// (package render), the virtual hosts that it serves or reaches, which version of its
// software it shall run, how its host is configured, and that it shall reset itself. What every regional holds, the tenants' sites and
// rules (control/api/region), is rendered beside it. Who is in the fleet, and what selects
// whom, comes from internal/inventory; rules are told by Set and Delete calls, which Feed
// connects to a Kubernetes cache. The package sends nothing: control/fleetapi asks for
// states and blobs and is told which sites changed.
package desired

import (
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/internal/factoryreset"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/hostconfig"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/software"
	"muster.dev/muster/internal/vhost"
	"muster.dev/muster/internal/wire"
)

// Piece is one rendered item of what regionals hold.
type Piece struct {
	Name   string // unique within the kind
	Blob   []byte // must not change after it was returned
	Digest string // wire.DigestOf(Blob)
}

// NewPiece computes the digest.
func NewPiece(name string, blob []byte) Piece {
	return Piece{Name: name, Blob: blob, Digest: wire.DigestOf(blob)}
}

// shared is the desired state of all sites that hold the same lists.
type shared struct {
	state *wire.DesiredState // never changed
	lists []*render.List
	refs  int // sites
	hash  uint64
}

// Options of New; Logger and Registerer are required.
type Options struct {
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Grace is how long a blob that no site needs any more can still be fetched,
	// for downloads under way. Default 10 min.
	Grace time.Duration
	// Regionals are the names of all that there should be. A site that never
	// connected, or was last on one that is not among them, is given to one of them.
	Regionals []string
	// Quotas of a tenant that sets none; 0: no limit.
	Quotas v1alpha1.TenantQuotas
	// ShippedHealth is the policy in effect where no HealthPolicy selects a site. What it
	// or the site's own reads has reserved places in the site's series budget.
	ShippedHealth *v1alpha1.HealthPolicySpec
	// MaxItems is how many items a site takes; default wire.MaxItems. Of one that would get more,
	// the objects stay as they were.
	MaxItems int
	// SoftwareRoot is the root metadata of the repository of software as of now (TUF, JSON),
	// which sites are given with what they shall run; nil, or a result of nil: there is none.
	// SoftwareChanged tells that it answers otherwise. It must be quick and must not call
	// the Store.
	SoftwareRoot func() []byte
	// RenderEvery is how often, at most, what regionals hold is rendered. Default 3 s.
	RenderEvery time.Duration
	// Content keeps what sites were given beyond the process; nil: nobody does.
	Content Content
	// KeepContent is how long it keeps what no site needs any more. Default 24 h.
	KeepContent time.Duration
	Now         func() time.Time
}

// Store holds the desired state of every site. Safe for concurrent use. Until
// Start it collects and answers nothing: a state rendered from half of the
// policies would be wrong, and sites would apply it.
type Store struct {
	opts     Options
	policies *policies
	kube     *workloads
	hosts    *hosts
	software *releases
	host     hostConfigurations
	resets   resets
	wake     chan struct{} // something changed for the regionals

	mu      sync.RWMutex
	started bool
	known   *inventory.Snapshot // as applied last; nil: nothing yet
	sites   map[fleet.SiteID]*shared
	states  map[uint64][]*shared // by the hash of their lists
	seed    maphash.Seed
	blobs   map[string]*blob
	orphans []orphan
	subs    map[int]func(fleet.SiteID)
	nextSub int
	// tooMany are the sites that would get more than MaxItems, with how many.
	tooMany map[fleet.SiteID]int
	// heldTenants are those whose sites are not rendered: not all that they should have is
	// known.
	heldTenants map[string]int
	// workloadSubs are told of tenants whose workloads were rendered.
	workloadSubs []func(tenant string)

	regional     *wire.DesiredState // never changed, only replaced; nil: not rendered yet
	regionalSubs map[int]func()
	rules        map[string]*tenantRules
	dirty        map[string]bool // tenants that are to be rendered for the regionals
	// contents tells which specs, by digest, a Rules blob is made of; by the blob's
	// digest, then KIND/NAME. history has each tenant's blobs, oldest first.
	contents map[string]map[string]string
	history  map[string][]string

	content *content

	rendering sync.Mutex
	items     map[itemKey]Piece // as last published; guarded by rendering

	// changed is what to tell once the lock is given back.
	changed []fleet.SiteID

	rendered       prometheus.Counter
	pushes         prometheus.Counter
	regionalPushes prometheus.Counter
}

type blob struct {
	data []byte
	refs int
}

type orphan struct {
	digest string
	until  time.Time
}

// regionalGrace replaces Options.Grace for what regionals hold: an inventory may be
// large and change every few seconds, and who misses one fetches the next.
const regionalGrace = time.Minute

// New returns an empty Store.
func New(o Options) *Store {
	if o.Grace <= 0 {
		o.Grace = 10 * time.Minute
	}
	if o.MaxItems <= 0 {
		o.MaxItems = wire.MaxItems
	}
	if o.RenderEvery <= 0 {
		o.RenderEvery = 3 * time.Second
	}
	if o.KeepContent <= 0 {
		o.KeepContent = 24 * time.Hour
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Store{
		opts: o, policies: newPolicies(o.ShippedHealth), wake: make(chan struct{}, 1), sites: map[fleet.SiteID]*shared{}, states: map[uint64][]*shared{}, tooMany: map[fleet.SiteID]int{}, heldTenants: map[string]int{}, seed: maphash.MakeSeed(), kube: newWorkloads(), hosts: newHosts(), software: newReleases(o.SoftwareRoot, o.Logger),
		blobs: map[string]*blob{}, subs: map[int]func(fleet.SiteID){}, regionalSubs: map[int]func(){}, rules: map[string]*tenantRules{}, dirty: map[string]bool{},
		contents: map[string]map[string]string{}, history: map[string][]string{}, items: map[itemKey]Piece{}, content: newContent(o.Registerer),
		rendered:       prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_desired_renders_total", Help: "Sites rendered."}),
		pushes:         prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_desired_changes_total", Help: "Renders that changed a site's desired state."}),
		regionalPushes: prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_desired_regional_changes_total", Help: "Changes of what regionals hold: the tenants' sites and rules."}),
	}
	o.Registerer.MustRegister(s.rendered, s.pushes, s.regionalPushes,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_desired_blobs", Help: "Blobs held, those in their grace time included."},
			func() float64 { return float64(s.Stats().Blobs) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_desired_blob_bytes", Help: "Bytes of blobs held."},
			func() float64 { return float64(s.Stats().BlobBytes) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_desired_sites", Help: "Sites with a desired state."},
			func() float64 { return float64(s.Stats().Sites) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_desired_objects", Help: "Objects of virtual Kubernetes that are carried to sites."},
			func() float64 { return float64(s.Stats().Objects) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_desired_tenants_held", Help: "Tenants whose sites stay as they are, because objects of a granted kind can't be listed."},
			func() float64 { return float64(s.Stats().TenantsHeld) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_desired_content_objects", Help: "Blobs that are kept beyond the process, those that no site needs any more included."},
			func() float64 { return float64(s.Stats().Kept) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_desired_content_pending", Help: "Blobs that are not kept beyond the process yet."},
			func() float64 { return float64(s.Stats().Unkept) }),
	)
	return s
}

// Stats counts what the Store holds.
type Stats struct {
	Sites, Blobs int
	BlobBytes    int64
	// States that sites hold, which are fewer than sites: equal ones are one. Objects are
	// those of virtual Kubernetes.
	States, Objects int
	// Kept are the blobs that Options.Content has, Unkept those that it shall have yet.
	Kept, Unkept int
	// TenantsHeld are those whose sites stay as they are.
	TenantsHeld int
}

// Stats returns current figures.
func (s *Store) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	st := Stats{Sites: len(s.sites), Blobs: len(s.blobs), Objects: s.kube.objects(), Kept: len(s.content.there), Unkept: len(s.content.todo), TenantsHeld: len(s.heldTenants)}
	for _, list := range s.states {
		st.States += len(list)
	}
	for _, b := range s.blobs {
		st.BlobBytes += int64(len(b.data))
	}
	return st
}

// Start renders every site, and what regionals hold, and tells the subscribers.
// Call it once everything that exists has been told.
func (s *Store) Start() {
	s.update(func() {
		s.started = true
		s.renderSitesLocked(nil)
	})
	s.renderRegional()
}

// Apply takes the fleet as it is now. Sites whose policies changed are rendered, and
// tenants in whose membership something changed are rendered for the regionals soon.
func (s *Store) Apply(now *inventory.Snapshot) {
	s.update(func() {
		before := s.known
		s.known = now
		if before == nil {
			before = &inventory.Snapshot{}
		}
		for _, t := range inventory.DifferBy(before, now, sameForRegionals) {
			s.touchLocked(t)
		}
		if !slices.Equal(before.Policies, now.Policies) {
			s.policies.forget()
			s.software.forget()
			s.host.forget()
		}
		if s.started {
			s.renderSitesLocked(before)
		}
		s.applyHostsLocked()
	})
}

// renderSitesLocked renders the sites that something changed for since before; nil:
// all of them.
func (s *Store) renderSitesLocked(before *inventory.Snapshot) {
	if s.known == nil {
		return
	}
	for _, site := range s.known.Sites {
		if !site.Listed() { // decommissioned: it holds nothing
			continue
		}
		if before != nil && s.sites[site.ID] != nil {
			if i := before.Find(site.ID.Tenant, site.ID.Name); i >= 0 && (before.Sites[i] == site || slices.Equal(before.Sites[i].Policies, site.Policies) && slices.Equal(before.Sites[i].VirtualSites, site.VirtualSites) && sameForSoftware(before.Sites[i], site) && sameReset(before.Sites[i], site)) {
				continue
			}
		}
		s.renderLocked(site)
	}
	for id, held := range s.sites {
		if i := s.known.Find(id.Tenant, id.Name); i < 0 || !s.known.Sites[i].Listed() {
			s.leaveLocked(held)
			delete(s.sites, id)
			delete(s.tooMany, id)
			s.changed = append(s.changed, id)
		}
	}
}

// Started tells whether Start was called.
func (s *Store) Started() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.started
}

// State returns the site's desired state, or nil if the site is not known or the
// Store has not started. The result must not be changed.
func (s *Store) State(id fleet.SiteID) *wire.DesiredState {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if held := s.sites[id]; held != nil {
		return held.state
	}
	return nil
}

// Regional returns what every regional should hold, or nil before Start. The result
// must not be changed.
func (s *Store) Regional() *wire.DesiredState {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.regional
}

// SubscribeRegional calls fn after each change of Regional until cancel; fn must be quick.
func (s *Store) SubscribeRegional(fn func()) (cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nextSub
	s.nextSub++
	s.regionalSubs[n] = fn
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.regionalSubs, n)
	}
}

// setRegional replaces what regionals should hold.
func (s *Store) setRegional(state *wire.DesiredState, blobs [][]byte) {
	var subs []func()
	s.update(func() {
		if s.regional != nil && s.regional.Revision == state.Revision {
			return
		}
		s.refLocked(state, blobs, nil) // regionals get it anew from whoever runs next
		s.unrefLocked(s.regional, min(regionalGrace, s.opts.Grace))
		s.regional = state
		subs = slices.Collect(maps.Values(s.regionalSubs))
		s.regionalPushes.Inc()
	})
	for _, sub := range subs {
		sub()
	}
}

// Blob returns the content of a digest that somebody needs, or needed until lately. It must
// not be changed.
func (s *Store) Blob(digest string) ([]byte, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b, ok := s.blobs[digest]
	if !ok {
		return nil, false
	}
	return b.data, true
}

// PolicyHash returns the digest of the site's effective collection policy; empty
// if the site is not known.
func (s *Store) PolicyHash(id fleet.SiteID) string {
	for _, it := range s.State(id).GetItems() {
		if it.Kind == fleet.KindCollectionPolicy {
			return it.Digest
		}
	}
	return ""
}

// PolicyGenerations are the generations of a tenant's collection policies, by name, that
// PolicyHash answers from. Never nil.
func (s *Store) PolicyGenerations(tenant string) map[string]int64 {
	return s.generations(tenant, fleet.KindCollectionPolicy)
}

func (s *Store) generations(tenant, kind string) map[string]int64 {
	out := map[string]int64{}
	s.mu.RLock()
	known := s.known
	s.mu.RUnlock()
	if known == nil {
		return out
	}
	for _, p := range known.PoliciesOf(tenant, kind) {
		out[p.Name] = p.Generation
	}
	return out
}

// Subscribe calls fn with each site whose desired state changed, after the change,
// until cancel. fn is called from whoever made the change: it must be quick and
// must not call Apply, Set or Delete methods.
func (s *Store) Subscribe(fn func(fleet.SiteID)) (cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nextSub
	s.nextSub++
	s.subs[n] = fn
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subs, n)
	}
}

// update runs fn under the lock and then tells the subscribers what it changed.
func (s *Store) update(fn func()) {
	s.mu.Lock()
	fn()
	s.sweepLocked()
	changed := s.changed
	s.changed = nil
	subs := slices.Collect(maps.Values(s.subs))
	s.mu.Unlock()
	for _, id := range changed {
		for _, sub := range subs {
			sub(id)
		}
	}
}

func (s *Store) renderLocked(site *inventory.Site) {
	if s.heldTenants[site.ID.Tenant] > 0 {
		return
	}
	s.rendered.Inc()
	old := s.sites[site.ID]
	lists := s.policies.Render(site)
	objects := s.kube.Render(site)
	delete(s.tooMany, site.ID)
	if n := count(objects) + count(lists); n > s.opts.MaxItems {
		// It would refuse all of it, its policies too. What it has of objects stays.
		s.tooMany[site.ID] = n
		if objects = nil; old != nil {
			objects = slices.DeleteFunc(slices.Clone(old.lists[len(lists):]), func(l *render.List) bool {
				return slices.Contains([]string{vhost.Kind, software.Kind, hostconfig.Kind, factoryreset.Kind}, l.Pieces[0].Item.Kind)
			})
		}
	}
	lists = slices.Concat(lists, objects, s.hosts.Render(site), s.software.Render(site), s.host.Render(site), s.resets.Render(site))
	if old != nil && slices.Equal(old.lists, lists) {
		return
	}
	held := s.joinLocked(lists)
	s.sites[site.ID] = held
	if old != nil {
		s.leaveLocked(old)
		if old.state.Revision == held.state.Revision {
			return
		}
	}
	s.changed = append(s.changed, site.ID)
	s.pushes.Inc()
}

func count(lists []*render.List) (n int) {
	for _, l := range lists {
		n += len(l.Pieces)
	}
	return n
}

// joinLocked returns the state of these lists for one more site.
func (s *Store) joinLocked(lists []*render.List) *shared {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for _, l := range lists {
		maphash.WriteComparable(&h, l)
	}
	hash := h.Sum64()
	for _, held := range s.states[hash] {
		if slices.Equal(held.lists, lists) {
			held.refs++
			return held
		}
	}
	n := count(lists)
	items, blobs, secret := make([]*wire.Item, 0, n), make([][]byte, 0, n), make([]bool, 0, n)
	for _, l := range lists {
		for _, p := range l.Pieces {
			items, blobs, secret = append(items, p.Item), append(blobs, p.Blob), append(secret, p.Secret)
		}
	}
	held := &shared{state: &wire.DesiredState{Revision: wire.RevisionOf(items), Items: items}, lists: lists, refs: 1, hash: hash}
	s.refLocked(held.state, blobs, func(i int) bool { return !secret[i] })
	s.states[hash] = append(s.states[hash], held)
	return held
}

// leaveLocked is told when a site has another state.
func (s *Store) leaveLocked(held *shared) {
	if held.refs--; held.refs > 0 {
		return
	}
	s.unrefLocked(held.state, s.opts.Grace)
	rest := slices.DeleteFunc(s.states[held.hash], func(x *shared) bool { return x == held })
	if len(rest) == 0 {
		delete(s.states, held.hash)
	} else {
		s.states[held.hash] = rest
	}
}

// refLocked: keep tells which of what is new shall outlive the process; nil: nothing.
func (s *Store) refLocked(state *wire.DesiredState, blobs [][]byte, keep func(i int) bool) {
	for i, it := range state.Items {
		b := s.blobs[it.Digest]
		if b == nil {
			b = &blob{data: blobs[i]}
			s.blobs[it.Digest] = b
			if s.opts.Content != nil && keep != nil && keep(i) {
				s.content.wantLocked(it.Digest, b.data)
			}
		}
		b.refs++
	}
}

func (s *Store) unrefLocked(state *wire.DesiredState, grace time.Duration) {
	for _, it := range state.GetItems() {
		b := s.blobs[it.Digest]
		if b.refs--; b.refs == 0 {
			s.orphans = append(s.orphans, orphan{it.Digest, s.opts.Now().Add(grace)})
		}
	}
}

func (s *Store) sweepLocked() {
	if len(s.orphans) == 0 {
		return
	}
	now := s.opts.Now()
	var over []string
	s.orphans = slices.DeleteFunc(s.orphans, func(o orphan) bool {
		if now.Before(o.until) {
			return false
		}
		over = append(over, o.digest)
		return true
	})
	for _, digest := range over {
		// It may be in use again, or orphaned a second time, later.
		later := slices.ContainsFunc(s.orphans, func(o orphan) bool { return o.digest == digest })
		if b := s.blobs[digest]; b != nil && b.refs == 0 && !later {
			delete(s.blobs, digest)
		}
	}
}
