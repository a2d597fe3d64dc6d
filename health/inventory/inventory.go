// Package inventory keeps what the API server knows about the fleet in the shape
// that the health engine reads: sites, virtual sites with their members, and which
// HealthPolicy applies to which site. It also writes the transitions of health
// back into status.
//
// It watches Sites, VirtualSites, HealthPolicies, Tenants and Namespaces, works
// out changes as they come, and hands out immutable snapshots. It knows nothing of
// metrics. internal/app runs it; health/engine reads it.
package inventory

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health"
	"muster.dev/muster/internal/fleet"
)

// Site is one site as the API server has it. It is never changed once made.
type Site struct {
	ID        fleet.SiteID
	Namespace string
	Region    string // the region label
	Labels    map[string]string
	Phase     fleet.Phase
	LastSeen  time.Time // zero: never
	Regional  string
	CreatedAt time.Time
	Place     *Place
	// Maintenance by hand, or by a window that is open, of the site or a virtual site of it.
	Maintenance *Maintenance
	// VirtualSites that it belongs to, as "namespace/name" without the tenant's
	// prefix, sorted. Sites that are Pending or Decommissioned belong to none.
	VirtualSites []string
	// Policy that applies; nil: none does, so the shipped one does.
	Policy *Policy

	health  *v1alpha1.SiteHealth
	windows []v1alpha1.MaintenanceWindow // the site's own
}

// Counts says whether the site is part of the fleet's health: approved, and not
// decommissioned.
func (s *Site) Counts() bool {
	return s.Phase != fleet.PhasePending && s.Phase != fleet.PhaseDecommissioned
}

// Listed says whether the site is shown beside those that count: a pending one is,
// so that people see a new site on the map at once; a decommissioned one is asked
// for by its phase.
func (s *Site) Listed() bool { return s.Phase != fleet.PhaseDecommissioned }

// InMaintenance says whether planned work is going on at now.
func (s *Site) InMaintenance(now time.Time) bool {
	return s.Maintenance != nil && (s.Maintenance.Until.IsZero() || now.Before(s.Maintenance.Until))
}

// Place is where a site stands, in degrees.
type Place struct {
	Latitude, Longitude float64
	Address             string
}

// Maintenance is a stretch of planned work; a zero Until has no end.
type Maintenance struct {
	Reason string
	Until  time.Time
}

// VirtualSite is a set of sites.
type VirtualSite struct {
	Tenant      string
	Namespace   string // as users type it, e.g. "shared"
	Name        string
	Description string
	Members     []int32 // positions in Snapshot.Sites, rising
}

// Key is "namespace/name", unique within the tenant.
func (v *VirtualSite) Key() string { return v.Namespace + "/" + v.Name }

// Policy is one HealthPolicy. It is never changed once made: an edited policy is
// another *Policy.
type Policy struct {
	Tenant     string
	Namespace  string
	Name       string
	Generation int64
	// Model is nil if the policy has never been valid; with an Err it is the last
	// valid one.
	Model *health.Model
	// Err says what is wrong with the policy as it stands.
	Err error
}

// Snapshot is the fleet at one moment. It is never changed once made.
type Snapshot struct {
	Version      uint64
	Sites        []*Site        // sorted by tenant and name
	VirtualSites []*VirtualSite // sorted by tenant, namespace and name
	Policies     []*Policy      // sorted by tenant and name
	Tenants      []string       // sorted
	index        map[string]map[string]int32
}

// NewSnapshot makes a snapshot of sites and virtual sites that come from elsewhere
// than an API server, for tests and tools. It fills in Members.
func NewSnapshot(version uint64, sites []*Site, virtual []*VirtualSite, policies []*Policy) *Snapshot {
	s := &Snapshot{Version: version, Sites: slices.Clone(sites), Policies: policies}
	slices.SortFunc(s.Sites, compareSites)
	for _, v := range virtual {
		v := *v
		v.Members = nil
		s.VirtualSites = append(s.VirtualSites, &v)
	}
	s.fill()
	return s
}

func compareSites(a, b *Site) int {
	if c := strings.Compare(a.ID.Tenant, b.ID.Tenant); c != 0 {
		return c
	}
	return strings.Compare(a.ID.Name, b.ID.Name)
}

// fill makes the index and the members from the sorted sites.
func (s *Snapshot) fill() {
	slices.SortFunc(s.VirtualSites, func(a, b *VirtualSite) int {
		if c := strings.Compare(a.Tenant, b.Tenant); c != 0 {
			return c
		}
		return strings.Compare(a.Key(), b.Key())
	})
	virtual := make(map[[2]string]*VirtualSite, len(s.VirtualSites))
	for _, v := range s.VirtualSites {
		virtual[[2]string{v.Tenant, v.Key()}] = v
	}
	s.index = map[string]map[string]int32{}
	tenants := map[string]bool{}
	for i, site := range s.Sites {
		byName := s.index[site.ID.Tenant]
		if byName == nil {
			byName = map[string]int32{}
			s.index[site.ID.Tenant] = byName
		}
		byName[site.ID.Name] = int32(i)
		tenants[site.ID.Tenant] = true
		for _, key := range site.VirtualSites {
			if v := virtual[[2]string{site.ID.Tenant, key}]; v != nil {
				v.Members = append(v.Members, int32(i))
			}
		}
	}
	for _, t := range s.Tenants {
		tenants[t] = true
	}
	s.Tenants = s.Tenants[:0]
	for t := range tenants {
		s.Tenants = append(s.Tenants, t)
	}
	slices.Sort(s.Tenants)
}

// Find returns the position of a site in Sites, or -1.
func (s *Snapshot) Find(tenant, name string) int {
	if i, ok := s.index[tenant][name]; ok {
		return int(i)
	}
	return -1
}

// Tenant returns the positions of a tenant's sites by name. Callers must not
// change the map. It spares decoders of many series one lookup each.
func (s *Snapshot) Tenant(tenant string) map[string]int32 { return s.index[tenant] }

// Options of an Inventory.
type Options struct {
	// Client reads and watches; NewClient makes one.
	Client     client.WithWatch
	Logger     *slog.Logger
	Registerer prometheus.Registerer // may be nil
	Now        func() time.Time      // nil: time.Now
	// WritesPerSecond bounds the writes of status; 0: 50.
	WritesPerSecond float64
}

// Inventory watches the API server. Safe for concurrent use.
type Inventory struct {
	opts    Options
	log     *slog.Logger
	now     func() time.Time
	changed chan struct{}
	writer  *writer

	mu         sync.Mutex
	synced     map[string]bool
	namespaces map[string]namespace // by full name
	sites      map[objectKey]*siteRecord
	virtual    map[objectKey]*virtualRecord
	policies   map[objectKey]*policyRecord
	tenants    map[string]bool
	byTenant   map[string]*tenantIndex
	dirty      map[*siteRecord]bool
	dirtyAll   map[string]bool // tenants whose sites must all be looked at again
	stale      bool            // snapshot is out of date
	nextEdge   time.Time       // when some site's maintenance window opens or closes; zero: none has any
	snapshot   *Snapshot
}

type objectKey struct{ namespace, name string }

// NewClient returns a client for the types that an Inventory needs.
func NewClient(cfg *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return client.NewWithWatch(cfg, client.Options{Scheme: scheme})
}

// New returns an inventory that is empty until Run.
func New(o Options) (*Inventory, error) {
	if o.Client == nil || o.Logger == nil {
		return nil, errors.New("inventory: Client and Logger must be set")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.WritesPerSecond == 0 {
		o.WritesPerSecond = 50
	}
	inv := &Inventory{
		opts: o, log: o.Logger, now: o.Now, changed: make(chan struct{}, 1),
		synced: map[string]bool{}, namespaces: map[string]namespace{}, sites: map[objectKey]*siteRecord{}, virtual: map[objectKey]*virtualRecord{},
		policies: map[objectKey]*policyRecord{}, tenants: map[string]bool{}, byTenant: map[string]*tenantIndex{},
		dirty: map[*siteRecord]bool{}, dirtyAll: map[string]bool{}, stale: true,
	}
	inv.writer = newWriter(o)
	return inv, nil
}

// Changed receives after the snapshot changed; several changes may come as one.
func (inv *Inventory) Changed() <-chan struct{} { return inv.changed }

// Synced says whether every kind has been listed once.
func (inv *Inventory) Synced() bool {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return len(inv.synced) == len(kinds())
}

// Ready is nil once every kind has been listed, else it names the missing ones.
func (inv *Inventory) Ready() error {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	var missing []string
	for _, k := range kinds() {
		if !inv.synced[k.name] {
			missing = append(missing, k.name)
		}
	}
	if len(missing) > 0 {
		return errors.New("not yet listed from the API server: " + strings.Join(missing, ", "))
	}
	return nil
}

// Snapshot returns the fleet as it is now. It costs nothing while nothing changed
// and no maintenance window opened or closed, else time in the number of sites.
func (inv *Inventory) Snapshot() *Snapshot {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	inv.passEdges()
	if inv.stale {
		inv.refreshLocked()
	}
	return inv.snapshot
}
