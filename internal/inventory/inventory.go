// Package inventory is what every role knows of the fleet: the tenants, their sites
// and virtual sites, who belongs to which, which policies select which site, and who
// is in maintenance. There is one answer to each of these, and it is here.
//
// An Inventory watches the API server, gathers changes for a moment, works out what
// they touch and no more, and hands out immutable snapshots. With a file it starts from
// the last run's state, so that a role goes on while control is away. It knows nothing
// of scores, alerts or desired state, and writes nothing to the API server; health,
// alerting and control read it, cmd/internal runs it.
package inventory

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/maintenance"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/hostconfig"
)

// Site is one site. It is never changed once made: a site that changed is another
// *Site, and one that did not is the same in the next snapshot.
type Site struct {
	ID        fleet.SiteID
	Region    string // the region label
	Labels    map[string]string
	Phase     fleet.Phase // what people decided comes before what was observed
	LastSeen  time.Time   // zero: never
	Regional  string      // that it is or was last connected to
	CreatedAt time.Time
	Place     *Place
	// VirtualSites that it belongs to, as "namespace/name" without the tenant's
	// prefix, sorted. Sites that don't count belong to none.
	VirtualSites []string
	// Policies that select it, by kind, the strongest first.
	Policies []*Policy
	// ByHand is the maintenance that a person put it in, Windows its own planned ones.
	// Whether it is in maintenance says MaintenanceAt.
	ByHand  *v1alpha1.Maintenance
	Windows []v1alpha1.MaintenanceWindow
	// Health as it stands in status; nil: never written.
	Health *v1alpha1.SiteHealth
	// PolicyHash is the collection policy in effect on the site, PolicyRefused says
	// that it keeps its last good one.
	PolicyHash    string
	PolicyRefused bool
	// Versions by component, as the agent reports them.
	Versions map[string]string
	// InStatus is the maintenance that the status tells of.
	InStatus *v1alpha1.SiteMaintenance
	// Pins are the versions of components that the Site itself names: they count before
	// policies. Retry counts how often somebody asked to try again what had failed.
	Pins  map[v1alpha1.SoftwareComponent]string
	Retry int
	// Reset is the factory reset that it is asked for; nil: none is.
	Reset *v1alpha1.SiteResetStatus
	// Software is what the site said last of its own, as its status has it.
	Software []v1alpha1.SiteSoftware

	// would are the virtual sites that a pending site will belong to.
	would []string
	plans []*maintenance.Plan // its own, if it has Windows, then its virtual sites'
}

// Counts says whether the site is part of the fleet: approved, and not decommissioned.
func (s *Site) Counts() bool {
	return s.Phase != fleet.PhasePending && s.Phase != fleet.PhaseDecommissioned
}

// Listed says whether the site is shown beside those that count: a pending one is,
// so that people see a new site on the map at once; a decommissioned one is asked
// for by its phase.
func (s *Site) Listed() bool { return s.Phase != fleet.PhaseDecommissioned }

// Maintenance is a stretch of planned work; a zero Until has no end.
type Maintenance struct {
	Reason string
	Until  time.Time
	Window string // its name; "": begun by hand
}

// MaintenanceAt tells whether planned work is going on at now: by hand, in a window of
// the site or in one of its virtual sites, whichever lasts longest; nil if none is.
func (s *Site) MaintenanceAt(now time.Time) *Maintenance {
	var out *Maintenance
	if m := s.ByHand; m != nil && (m.Until == nil || now.Before(m.Until.Time)) {
		out = &Maintenance{Reason: m.Reason}
		if m.Until == nil {
			return out
		}
		out.Until = m.Until.UTC()
	}
	for _, p := range s.plans {
		if span, open := p.Open(now); open && (out == nil || out.Until.Before(span.End)) {
			out = &Maintenance{Reason: span.Reason, Until: span.End, Window: span.Name}
		}
	}
	return out
}

// Planned lists when the site's own windows are open from from to before until.
func (s *Site) Planned(from, until time.Time) []maintenance.Span {
	if len(s.Windows) == 0 {
		return nil
	}
	return s.plans[0].Between(from, until)
}

// PoliciesOf are the policies of a kind that select the site, the strongest first.
func (s *Site) PoliciesOf(kind string) []*Policy {
	from := sort.Search(len(s.Policies), func(i int) bool { return s.Policies[i].Kind >= kind })
	to := from
	for to < len(s.Policies) && s.Policies[to].Kind == kind {
		to++
	}
	return s.Policies[from:to]
}

// Interval is the time between two scrapes of the site, as its policies have it: the strongest
// that sets one decides.
func (s *Site) Interval() time.Duration {
	for _, p := range s.PoliciesOf(fleet.KindCollectionPolicy) {
		if i := p.Object.(*v1alpha1.CollectionPolicy).Spec.Interval; i != nil {
			return i.Duration
		}
	}
	return fleet.DefaultInterval
}

// Pace is that of a site that is scraped once a minute or less often (fleet.Slow); else 0.
func (s *Site) Pace() time.Duration { return fleet.Slow(s.Interval()) }

// Place is where a site stands, in degrees.
type Place struct {
	Latitude, Longitude float64
	Address             string
}

// VirtualSite is a set of sites. It is never changed once made.
type VirtualSite struct {
	Tenant      string
	Namespace   string // as users type it, e.g. "shared"
	Name        string
	Description string
	Generation  int64   // of the object that it was read from; 0: of a file
	Members     []int32 // positions in Snapshot.Sites, rising
	// Waiting are the pending sites that will be members, as many as that.
	Waiting int
	Windows []v1alpha1.MaintenanceWindow

	plan *maintenance.Plan
}

// Key is "namespace/name", unique within the tenant.
func (v *VirtualSite) Key() string { return v.Namespace + "/" + v.Name }

// Planned lists when the windows of all members are open from from to before until.
func (v *VirtualSite) Planned(from, until time.Time) []maintenance.Span {
	return v.plan.Between(from, until)
}

// Policy is an object in a tenant's system namespace that selects sites. It is never
// changed once made: an edited policy is another *Policy. Elsewhere than in the system
// namespace such an object does nothing: who may write apps may not write policies.
type Policy struct {
	Kind       string
	Tenant     string
	Name       string
	Priority   int32
	Generation int64
	Content    int           // which of a rollout's contents this is, from 1; 0: it is under none
	Object     client.Object // must not be changed; its status may be old

	selector labels.Selector
	uid      types.UID
}

// Selects tells whether the policy takes sites with these labels.
func (p *Policy) Selects(set map[string]string) bool { return p.selector.Matches(labels.Set(set)) }

// Shadow tells whether the policy is a HealthPolicy that counts for nothing.
func (p *Policy) Shadow() bool {
	hp, ok := p.Object.(*v1alpha1.HealthPolicy)
	return ok && hp.Spec.Mode == v1alpha1.HealthPolicyShadow
}

// Tenant is one tenant: of a Tenant object, or of sites without one.
type Tenant struct {
	Name   string
	Exists bool // a Tenant object says so
	Quotas v1alpha1.TenantQuotas
}

// Snapshot is the fleet at one moment. It is never changed once made.
type Snapshot struct {
	Version      uint64
	Sites        []*Site        // sorted by tenant and name
	VirtualSites []*VirtualSite // sorted by tenant, namespace and name
	Policies     []*Policy      // sorted by tenant and kind, the strongest first
	Tenants      []*Tenant      // sorted
	index        map[string]map[string]int32
}

// NewSnapshot makes a snapshot of sites and virtual sites that come from elsewhere
// than an API server, for tests and tools: sites say what virtual sites and policies
// they have. It fills in Members.
func NewSnapshot(version uint64, sites []*Site, virtual []*VirtualSite, policies []*Policy) *Snapshot {
	s := &Snapshot{Version: version, Sites: slices.Clone(sites), Policies: policies}
	slices.SortFunc(s.Sites, compareSites)
	plans := map[[2]string]*maintenance.Plan{}
	for _, v := range virtual {
		v := *v
		v.Members, v.plan = nil, maintenance.NewPlan(v.Windows)
		plans[[2]string{v.Tenant, v.Key()}] = v.plan
		s.VirtualSites = append(s.VirtualSites, &v)
	}
	sortVirtual(s.VirtualSites)
	s.index = indexOf(s.Sites)
	for t := range s.index {
		s.Tenants = append(s.Tenants, &Tenant{Name: t, Exists: true})
	}
	slices.SortFunc(s.Tenants, func(a, b *Tenant) int { return strings.Compare(a.Name, b.Name) })
	for i, site := range s.Sites {
		site.plans = nil
		if p := maintenance.NewPlan(site.Windows); p != nil {
			site.plans = append(site.plans, p)
		}
		for _, key := range site.VirtualSites {
			if p := plans[[2]string{site.ID.Tenant, key}]; p != nil {
				site.plans = append(site.plans, p)
			}
			for _, v := range s.VirtualSites {
				if v.Tenant == site.ID.Tenant && v.Key() == key {
					v.Members = append(v.Members, int32(i))
				}
			}
		}
	}
	return s
}

func compareSites(a, b *Site) int {
	return cmp.Or(strings.Compare(a.ID.Tenant, b.ID.Tenant), strings.Compare(a.ID.Name, b.ID.Name))
}

func sortVirtual(list []*VirtualSite) {
	slices.SortFunc(list, func(a, b *VirtualSite) int {
		return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
}

func indexOf(sites []*Site) map[string]map[string]int32 {
	index := map[string]map[string]int32{}
	for i, site := range sites {
		byName := index[site.ID.Tenant]
		if byName == nil {
			byName = map[string]int32{}
			index[site.ID.Tenant] = byName
		}
		byName[site.ID.Name] = int32(i)
	}
	return index
}

// Find returns the position of a site in Sites, or -1.
func (s *Snapshot) Find(tenant, name string) int {
	if i, ok := s.index[tenant][name]; ok {
		return int(i)
	}
	return -1
}

// Positions returns the positions of a tenant's sites by name. Callers must not
// change the map. It spares decoders of many series one lookup each.
func (s *Snapshot) Positions(tenant string) map[string]int32 { return s.index[tenant] }

// SitesOf are a tenant's sites, sorted by name.
func (s *Snapshot) SitesOf(tenant string) []*Site {
	return within(s.Sites, tenant, func(x *Site) string { return x.ID.Tenant })
}

// VirtualSitesOf are a tenant's virtual sites, sorted by namespace and name.
func (s *Snapshot) VirtualSitesOf(tenant string) []*VirtualSite {
	return within(s.VirtualSites, tenant, func(x *VirtualSite) string { return x.Tenant })
}

// PoliciesOf are a tenant's policies of a kind, the strongest first.
func (s *Snapshot) PoliciesOf(tenant, kind string) []*Policy {
	return within(within(s.Policies, tenant, func(x *Policy) string { return x.Tenant }), kind, func(x *Policy) string { return x.Kind })
}

// Tenant returns a tenant, or nil.
func (s *Snapshot) Tenant(name string) *Tenant {
	for _, t := range within(s.Tenants, name, func(x *Tenant) string { return x.Name }) {
		return t
	}
	return nil
}

// within is the part of a sorted list that has the key.
func within[T any](list []T, key string, of func(T) string) []T {
	from := sort.Search(len(list), func(i int) bool { return of(list[i]) >= key })
	n := sort.Search(len(list)-from, func(i int) bool { return of(list[from+i]) > key })
	return list[from : from+n]
}

// Differ are the tenants in which two snapshots differ by more than heartbeats and
// scores: by who is there, where they belong, and what their status says.
func Differ(a, b *Snapshot) []string { return DifferBy(a, b, sameSite) }

// DifferBy is Differ for who looks at other things of a site.
func DifferBy(a, b *Snapshot, sameSite func(a, b *Site) bool) []string {
	out := map[string]bool{}
	both(a.Tenants, b.Tenants, func(x *Tenant) string { return x.Name }, func(x, y *Tenant) bool { return *x == *y }, func(t *Tenant) string { return t.Name }, out)
	both(a.Sites, b.Sites, func(x *Site) string { return x.ID.Tenant + "\x00" + x.ID.Name }, sameSite, func(s *Site) string { return s.ID.Tenant }, out)
	both(a.VirtualSites, b.VirtualSites, func(x *VirtualSite) string { return x.Tenant + "\x00" + x.Key() }, sameVirtualSite, func(v *VirtualSite) string { return v.Tenant }, out)
	both(a.Policies, b.Policies, func(x *Policy) string {
		return x.Tenant + "\x00" + x.Kind + "\x00" + x.Name + "\x00" + strconv.Itoa(x.Content)
	}, func(x, y *Policy) bool { return x == y }, func(p *Policy) string { return p.Tenant }, out)
	return slices.Sorted(maps.Keys(out))
}

// both compares two lists of the same order and notes the tenants of what differs. If
// the lists have other members, all tenants of those that are not in step are noted.
func both[T comparable](a, b []T, key func(T) string, same func(T, T) bool, tenant func(T) string, out map[string]bool) {
	if len(a) == len(b) {
		step := true
		for i := range a {
			if a[i] != b[i] && key(a[i]) != key(b[i]) {
				step = false
				break
			}
		}
		if step {
			for i := range a {
				if a[i] != b[i] && !same(a[i], b[i]) {
					out[tenant(b[i])] = true
				}
			}
			return
		}
	}
	was := make(map[string]T, len(a))
	for _, x := range a {
		was[key(x)] = x
	}
	for _, y := range b {
		x, ok := was[key(y)]
		if !ok || x != y && !same(x, y) {
			out[tenant(y)] = true
		}
		delete(was, key(y))
	}
	for _, x := range was {
		out[tenant(x)] = true
	}
}

// sameVirtualSite leaves the members to their own lists: positions move when any site
// comes or goes.
func sameVirtualSite(a, b *VirtualSite) bool {
	return a.Description == b.Description && a.Generation == b.Generation && a.plan == b.plan && len(a.Members) == len(b.Members) && a.Waiting == b.Waiting
}

func sameSite(a, b *Site) bool {
	return a.sameDecisions(b) && a.sameReports(b) && slices.Equal(a.VirtualSites, b.VirtualSites) && slices.Equal(a.would, b.would) && slices.Equal(a.Policies, b.Policies) && slices.Equal(a.plans, b.plans)
}

// NextEdge is the first time after now, within a day, at which some site may enter or
// leave maintenance though nobody changed anything; zero if there is none.
func (s *Snapshot) NextEdge(now time.Time) time.Time {
	var next time.Time
	for i := 0; i < len(s.Tenants); i++ {
		next = sooner(next, s.NextEdgeOf(s.Tenants[i].Name, now))
	}
	return next
}

// NextEdgeOf is NextEdge of one tenant's sites.
func (s *Snapshot) NextEdgeOf(tenant string, now time.Time) time.Time {
	var next time.Time
	for _, site := range s.SitesOf(tenant) {
		if m := site.ByHand; m != nil && m.Until != nil && m.Until.After(now) {
			next = sooner(next, m.Until.UTC())
		}
		if len(site.Windows) > 0 {
			next = sooner(next, site.plans[0].NextEdge(now))
		}
	}
	for _, v := range s.VirtualSitesOf(tenant) {
		next = sooner(next, v.plan.NextEdge(now))
	}
	return next
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// PolicyKind is a kind of policies to watch.
type PolicyKind struct {
	Kind     string
	Resource string // in the plural, as in URLs
	List     func() client.ObjectList
	Object   func() client.Object
	// Spec returns what every policy has.
	Spec func(client.Object) (selector *metav1.LabelSelector, priority int32)
}

// HealthPolicies and CollectionPolicies are the kinds of policies that there are.
func HealthPolicies() PolicyKind {
	return PolicyKind{Kind: "HealthPolicy", Resource: "healthpolicies", List: func() client.ObjectList { return &v1alpha1.HealthPolicyList{} },
		Object: func() client.Object { return &v1alpha1.HealthPolicy{} }, Spec: func(o client.Object) (*metav1.LabelSelector, int32) {
			p := o.(*v1alpha1.HealthPolicy)
			return &p.Spec.SiteSelector, p.Spec.Priority
		}}
}

// CollectionPolicies is the other kind.
func CollectionPolicies() PolicyKind {
	return PolicyKind{Kind: fleet.KindCollectionPolicy, Resource: "collectionpolicies", List: func() client.ObjectList { return &v1alpha1.CollectionPolicyList{} },
		Object: func() client.Object { return &v1alpha1.CollectionPolicy{} }, Spec: func(o client.Object) (*metav1.LabelSelector, int32) {
			p := o.(*v1alpha1.CollectionPolicy)
			return &p.Spec.SiteSelector, p.Spec.Priority
		}}
}

// SoftwarePolicies is the third.
func SoftwarePolicies() PolicyKind {
	return PolicyKind{Kind: "SoftwarePolicy", Resource: "softwarepolicies", List: func() client.ObjectList { return &v1alpha1.SoftwarePolicyList{} },
		Object: func() client.Object { return &v1alpha1.SoftwarePolicy{} }, Spec: func(o client.Object) (*metav1.LabelSelector, int32) {
			p := o.(*v1alpha1.SoftwarePolicy)
			return &p.Spec.SiteSelector, p.Spec.Priority
		}}
}

// HostConfigurations is the fourth.
func HostConfigurations() PolicyKind {
	return PolicyKind{Kind: hostconfig.Kind, Resource: "hostconfigurations", List: func() client.ObjectList { return &v1alpha1.HostConfigurationList{} },
		Object: func() client.Object { return &v1alpha1.HostConfiguration{} }, Spec: func(o client.Object) (*metav1.LabelSelector, int32) {
			p := o.(*v1alpha1.HostConfiguration)
			return &p.Spec.SiteSelector, p.Spec.Priority
		}}
}

// Options of an Inventory. Logger and one of Client and Cache are needed.
type Options struct {
	// Client watches what the inventory needs, and keeps no object; NewClient makes one.
	Client client.WithWatch
	// Cache is asked instead, where others use one; somebody else starts it.
	Cache cache.Cache
	// Policies are the kinds of policies to match against the sites.
	Policies []PolicyKind
	// File keeps the last state for the next run; "": none does.
	File string
	// Settle is how long changes are gathered; 0: 250 ms.
	Settle time.Duration
	// SaveEvery is how often, at most, File is written; 0: 10 s.
	SaveEvery time.Duration
	Logger    *slog.Logger
	Now       func() time.Time // nil: time.Now
}

// Inventory keeps the snapshot. Safe for concurrent use.
type Inventory struct {
	opts     Options
	log      *slog.Logger
	now      func() time.Time
	kinds    []kind
	wake     chan struct{}
	snapshot atomic.Pointer[Snapshot]
	fresh    atomic.Bool

	mu        sync.Mutex
	listeners []chan struct{}
	synced    map[string]bool
	state     *state
	unsaved   bool
	unknown   *time.Timer // set while a policy waits for its rollout
}

// New returns an inventory that is empty until Run, or has what an earlier run saved.
func New(o Options) (*Inventory, error) {
	if o.Logger == nil || (o.Client == nil) == (o.Cache == nil) {
		return nil, errors.New("inventory: Logger and one of Client and Cache must be set")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Settle = cmp.Or(o.Settle, 250*time.Millisecond)
	o.SaveEvery = cmp.Or(o.SaveEvery, 10*time.Second)
	inv := &Inventory{opts: o, log: o.Logger, now: o.Now, kinds: kinds(o.Policies), wake: make(chan struct{}, 1), synced: map[string]bool{}, state: newState(o.Logger), unknown: stopped()}
	if o.File != "" {
		if err := inv.load(); err != nil {
			return nil, err
		}
	}
	return inv, nil
}

// Changed returns a channel that receives after the snapshot changed, or a window
// opened or closed; several changes may come as one. Each call makes one, for one
// reader.
func (inv *Inventory) Changed() <-chan struct{} {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	c := make(chan struct{}, 1)
	inv.listeners = append(inv.listeners, c)
	return c
}

// Ready is nil once there is a snapshot, be it from the disk; else it names what is
// missing.
func (inv *Inventory) Ready() error {
	if inv.snapshot.Load() != nil {
		return nil
	}
	inv.mu.Lock()
	defer inv.mu.Unlock()
	var missing []string
	for _, k := range inv.kinds {
		if !inv.synced[k.name] {
			missing = append(missing, k.name)
		}
	}
	return errors.New("not yet listed from the API server: " + strings.Join(missing, ", "))
}

// Fresh tells whether the snapshot is the API server's, and not one from the disk.
func (inv *Inventory) Fresh() bool { return inv.fresh.Load() }

// Snapshot returns the fleet as it was a moment ago; nil until Ready. It costs nothing.
func (inv *Inventory) Snapshot() *Snapshot { return inv.snapshot.Load() }

// Run watches until ctx ends. A lost connection is retried; meanwhile the last state
// stands.
func (inv *Inventory) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := inv.watch(ctx, &wg); err != nil {
		return err
	}
	defer inv.save()
	settle, edge, saving := stopped(), stopped(), stopped()
	defer settle.Stop()
	defer edge.Stop()
	defer saving.Stop()
	defer inv.unknown.Stop()
	at := inv.wakeAtEdge(edge)
	for gathering := false; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-inv.wake:
			if !gathering {
				gathering = true
				settle.Reset(inv.opts.Settle)
			}
		case <-settle.C:
			gathering = false
			if inv.refresh() {
				inv.notify()
			}
			at = inv.wakeAtEdge(edge)
			saving.Reset(inv.opts.SaveEvery)
		case <-inv.unknown.C:
			inv.touch()
		case <-saving.C:
			inv.save()
		case <-edge.C:
			if s := inv.snapshot.Load(); !inv.now().Before(at) { // another one, for who compares
				next := *s
				next.Version++
				inv.snapshot.Store(&next)
				inv.notify()
			}
			at = inv.wakeAtEdge(edge)
		}
	}
}

func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// wakeAtEdge sets the timer to the next time that a window opens or closes, or to an
// hour from now: the clock may be put, and NextEdge looks ahead by a day. It returns
// that time.
func (inv *Inventory) wakeAtEdge(t *time.Timer) (at time.Time) {
	s := inv.snapshot.Load()
	if s == nil {
		return time.Time{}
	}
	now := inv.now()
	if at = s.NextEdge(now); at.IsZero() {
		at = now.Add(24 * time.Hour)
	}
	t.Reset(min(at.Sub(now), time.Hour))
	return at
}

func (inv *Inventory) notify() {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	for _, c := range inv.listeners {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// refresh makes the next snapshot, once everything has been listed, and says whether
// readers should look at it.
func (inv *Inventory) refresh() bool {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	for _, k := range inv.kinds {
		if !inv.synced[k.name] {
			return false
		}
	}
	missing, until := inv.state.settleUnknown(inv.now())
	if !until.IsZero() {
		inv.unknown.Reset(max(until.Sub(inv.now()), time.Millisecond))
	}
	if missing && !inv.fresh.Load() {
		return false // sites would lose the policy for a moment
	}
	first := inv.fresh.CompareAndSwap(false, true)
	last := inv.snapshot.Load()
	next, loud := inv.state.next(last)
	if next == last {
		return first
	}
	inv.unsaved = inv.unsaved || loud
	inv.snapshot.Store(next)
	return loud || first
}

// Status is for /debug/.
func (inv *Inventory) Status() any {
	out := map[string]any{"fromTheAPIServer": inv.Fresh()}
	if s := inv.Snapshot(); s != nil {
		out["version"], out["tenants"], out["sites"], out["virtualSites"], out["policies"] = s.Version, len(s.Tenants), len(s.Sites), len(s.VirtualSites), len(s.Policies)
	}
	return out
}
