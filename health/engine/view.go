package engine

import (
	"math"
	"strings"
	"sync"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

// Site is one site in a View. It is never changed once made.
type Site struct {
	*inventory.Site
	// State is nil for a site that is not evaluated: pending or decommissioned, or
	// new since the last tick.
	State *health.State
	// Phase is the API server's, but Online and Offline follow the live view, which
	// knows seconds earlier.
	Phase    fleet.Phase
	LastSeen time.Time // zero: never
	Home     string    // name of the regional that speaks for it, "" if none
	// FromStore says that the regional couldn't be asked, and Cortex was.
	FromStore bool
	// Maintenance that went on when the View was made; nil: none.
	Maintenance *inventory.Maintenance
	// Policy is the name of the HealthPolicy that applies; "": the shipped one.
	Policy string
	// Overrides of the policy that are in force for the site; must not be changed.
	Overrides []*v1alpha1.SignalOverride

	// Shadow is what the policy in shadow, ShadowPolicy, makes of the site; nil: there is
	// none. It counts for nothing.
	Shadow       *health.State
	ShadowPolicy string

	home   int32
	before time.Time // see memory
}

// Score returns the score and whether it is known.
func (s *Site) Score() (float64, bool) {
	if s.State == nil {
		return 0, false
	}
	return s.State.Score, s.State.Known
}

// Colour is grey for a site that is not evaluated.
func (s *Site) Colour() fleet.Colour {
	if s.State == nil {
		return fleet.Grey
	}
	return s.State.Colour
}

// VirtualSite is one virtual site in a View.
type VirtualSite struct {
	*inventory.VirtualSite
	health.Aggregate
}

// Policy is how a policy fares.
type Policy struct {
	// Tenant is "" for the shipped policy, which applies where no other does.
	Tenant  string
	Name    string
	Sites   int
	Signals []SignalStat
	Err     string // what is wrong with the policy itself
	// Spec as it was written, also one that can't be used; nil for the shipped one. It
	// must not be changed.
	Spec *v1alpha1.HealthPolicySpec
	// Shadow: it counts for nothing; WouldChange of its sites would have another colour,
	// Examples are some of them.
	Shadow      bool
	WouldChange int
	Examples    []string
}

// SignalStat is how one signal of a policy fares.
type SignalStat struct {
	Name       string
	Dimension  fleet.Dimension
	Err        string
	SitesKnown int
	Millis     int64 // the slowest answer to its query
}

// View is the health of the fleet at one moment. It is never changed once made.
type View struct {
	Version  uint64 // grows with each View
	Tick     uint64 // number of ticks so far
	AsOf     time.Time
	Snapshot *inventory.Snapshot
	// Sites in the order of Snapshot.Sites, VirtualSites of Snapshot.VirtualSites.
	Sites        []*Site
	VirtualSites []*VirtualSite
	Policies     []*Policy

	left map[fleet.SiteID]time.Time // see Engine; must not be changed
}

// Find returns a site, or nil.
func (v *View) Find(tenant, name string) *Site {
	if i := v.Snapshot.Find(tenant, name); i >= 0 {
		return v.Sites[i]
	}
	return nil
}

// Update is what changed with a new View.
type Update struct {
	View *View
	// Sites that a person would see a change of, and virtual sites likewise.
	Sites        []*Site
	VirtualSites []*VirtualSite
	// Turned tells, by the place in Sites, which are new or have another colour or phase
	// than the last time that they were in an update; nil: all of them.
	Turned  []bool
	Removed []fleet.SiteID
	// Tick says that it comes from a full tick, and not from a look at the live view.
	Tick bool
}

// Hub hands updates to subscribers and lets go of those that don't keep up. The
// zero value is ready for use, by any number of goroutines.
type Hub struct {
	mu   sync.Mutex
	subs map[*Subscription]struct{}
}

// Subscription receives updates on C until Close, or until it falls behind: then C
// is closed and Dropped is true.
type Subscription struct {
	C       <-chan *Update
	c       chan *Update
	hub     *Hub
	dropped bool
}

// Subscribe returns a subscription that holds up to size updates.
func (h *Hub) Subscribe(size int) *Subscription {
	c := make(chan *Update, size)
	s := &Subscription{C: c, c: c, hub: h}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs = map[*Subscription]struct{}{}
	}
	h.subs[s] = struct{}{}
	return s
}

// Close ends the subscription. It may be called twice.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if _, ok := s.hub.subs[s]; ok {
		delete(s.hub.subs, s)
		close(s.c)
	}
}

// Dropped says whether the subscriber fell behind.
func (s *Subscription) Dropped() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.dropped
}

// Publish hands an update to every subscriber without waiting, and returns how many
// had no room for it and were let go of.
func (h *Hub) Publish(u *Update) (dropped int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		select {
		case s.c <- u:
		default:
			s.dropped = true
			delete(h.subs, s)
			close(s.c)
			dropped++
		}
	}
	return dropped
}

// closeAll ends every subscription when the engine stops.
func (h *Hub) closeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		delete(h.subs, s)
		close(s.c)
	}
}

// Subscribe returns a subscription that holds up to size updates.
func (e *Engine) Subscribe(size int) *Subscription { return e.hub.Subscribe(size) }

// visible says whether a person would see that b is not a: a colour, half a point
// of a score, what the reasons are about, or what the site is. Values that drift
// within that are not news.
func visible(a, b *Site) bool {
	if a == nil || a.Phase != b.Phase || !sameMaintenance(a.Maintenance, b.Maintenance) || a.Policy != b.Policy || a.Home != b.Home || a.FromStore != b.FromStore {
		return true
	}
	if a.Site != b.Site && !sameSite(a.Site, b.Site) {
		return true
	}
	if (a.State == nil) != (b.State == nil) {
		return true
	}
	if a.State == b.State {
		return false
	}
	if a.ShadowPolicy != b.ShadowPolicy || (a.Shadow == nil) != (b.Shadow == nil) || a.Shadow != nil && a.Shadow.Colour != b.Shadow.Colour {
		return true
	}
	x, y := a.State, b.State
	if x.Colour != y.Colour || x.Known != y.Known || math.Abs(x.Score-y.Score) >= 0.5 || len(x.Reasons) != len(y.Reasons) {
		return true
	}
	for i := range x.Dimensions {
		p, q := &x.Dimensions[i], &y.Dimensions[i]
		if p.Known != q.Known || p.Stale != q.Stale || p.Colour != q.Colour || math.Abs(p.Score-q.Score) >= 0.5 {
			return true
		}
	}
	for i := range x.Reasons {
		p, q := &x.Reasons[i], &y.Reasons[i]
		if p.Signal != q.Signal || p.Dimension != q.Dimension || math.Abs(p.PointsLost-q.PointsLost) >= 0.5 {
			return true
		}
	}
	return false
}

func sameSite(a, b *inventory.Site) bool {
	if a.Region != b.Region || len(a.Labels) != len(b.Labels) || strings.Join(a.VirtualSites, " ") != strings.Join(b.VirtualSites, " ") {
		return false
	}
	for k, v := range a.Labels {
		if w, ok := b.Labels[k]; !ok || w != v {
			return false
		}
	}
	return (a.Place == nil) == (b.Place == nil) && (a.Place == nil || *a.Place == *b.Place)
}

func sameMaintenance(a, b *inventory.Maintenance) bool {
	return a == b || a != nil && b != nil && a.Reason == b.Reason && a.Until.Equal(b.Until)
}

func visibleVirtual(a, b *VirtualSite) bool {
	if a == nil || a.Description != b.Description {
		return true
	}
	x, y := &a.Aggregate, &b.Aggregate
	return x.Sites != y.Sites || x.Known != y.Known || x.Counts != y.Counts || x.Maintenance != y.Maintenance || x.WorstSite != y.WorstSite ||
		math.Abs(x.Mean-y.Mean) >= 0.5 || math.Abs(x.P10-y.P10) >= 0.5 || math.Abs(x.Worst-y.Worst) >= 0.5
}
