package fleetapi

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// session is one regional's open stream. What is to be sent is kept as a set of
// sites, not as a queue of messages: a slow regional gets the newest state once
// and holds up nobody.
type session struct {
	regional   string
	capability uint32
	wake       chan struct{} // something is to be sent
	replaced   chan struct{} // closed when the regional opened another stream

	mu      sync.Mutex
	dirty   map[fleet.SiteID]bool
	revoked map[fleet.SiteID]*wire.SiteRevoked
	sent    map[fleet.SiteID]*wire.DesiredState // of each site that is or was up here
	holds   map[fleet.SiteID]string             // revision that the regional has, of sites that have just come
	resyncs map[fleet.SiteID]bool               // sites that are asked for a snapshot of their cluster
	older   map[fleet.SiteID]uint32             // capability of sites whose agents do not know all kinds
	tunnels []*wire.SiteOpenTunnel

	regionalDirty bool   // what the regional itself holds may have changed
	regionalSent  string // its revision
}

// The first capabilities of regionals that take a RegionalDesired, a SitesDesired, and
// what has to do with sites' clusters.
const (
	regionalDesiredCapability = 2
	sitesDesiredCapability    = 3
	clusterCapability         = 4
)

// alike is how many sites that wait are looked at for those that hold the same as the
// first, so that one message tells all of them.
const alike = 512

func newSession(regional string, capability uint32) *session {
	return &session{
		regional: regional, capability: capability, regionalDirty: true, wake: make(chan struct{}, 1), replaced: make(chan struct{}),
		dirty: map[fleet.SiteID]bool{}, revoked: map[fleet.SiteID]*wire.SiteRevoked{}, sent: map[fleet.SiteID]*wire.DesiredState{}, holds: map[fleet.SiteID]string{}, resyncs: map[fleet.SiteID]bool{}, older: map[fleet.SiteID]uint32{},
	}
}

// up says that a site is up here, for which the regional holds a revision; it is not sent
// kinds that came after its capability.
func (x *session) up(id fleet.SiteID, holds string, capability uint32) {
	x.mu.Lock()
	if was := x.sent[id]; was == nil {
		x.holds[id] = holds
	} else if was.Revision != holds { // something is under way to it, or it could not be followed
		delete(x.sent, id)
	}
	if capability < newest {
		x.older[id] = capability
	} else {
		delete(x.older, id)
	}
	x.mu.Unlock()
	x.push(id)
}

// push says that the site's desired state may have changed.
func (x *session) push(id fleet.SiteID) {
	x.mu.Lock()
	x.dirty[id] = true
	x.mu.Unlock()
	x.poke()
}

func (x *session) revoke(r *wire.SiteRevoked) {
	id := fleet.SiteID{Tenant: r.Tenant, Name: r.Site}
	x.mu.Lock()
	x.revoked[id] = r
	delete(x.dirty, id)
	delete(x.sent, id)
	delete(x.holds, id)
	delete(x.resyncs, id)
	x.mu.Unlock()
	x.poke()
}

// resync asks for a snapshot of the site's cluster.
func (x *session) resync(id fleet.SiteID) {
	x.mu.Lock()
	x.resyncs[id] = true
	x.mu.Unlock()
	x.poke()
}

// openTunnel asks for a tunnel to a site; false: the regional knows of none.
func (x *session) openTunnel(m *wire.SiteOpenTunnel) bool {
	if x.capability < clusterCapability {
		return false
	}
	x.mu.Lock()
	x.tunnels = append(x.tunnels, m)
	x.mu.Unlock()
	x.poke()
	return true
}

// forget says that a site is up here no more; what was sent of it is the regional's still.
func (x *session) forget(id fleet.SiteID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.dirty, id)
	delete(x.holds, id)
	delete(x.older, id)
}

// pushRegional says that what regionals hold may have changed.
func (x *session) pushRegional() {
	x.mu.Lock()
	x.regionalDirty = true
	x.mu.Unlock()
	x.poke()
}

func (x *session) poke() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// next returns one message to send, revocations first, or nil. state is asked for
// the site's desired state as it is now, for an older agent if it is one, regional for the
// regional's.
func (x *session) next(state func(id fleet.SiteID, capability uint32) *wire.DesiredState, regional func() *wire.DesiredState) *wire.RelayDown {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, r := range x.revoked {
		delete(x.revoked, id)
		return &wire.RelayDown{Msg: &wire.RelayDown_Revoked{Revoked: r}}
	}
	if x.regionalDirty && x.capability >= regionalDesiredCapability {
		x.regionalDirty = false
		if st := regional(); st != nil && x.regionalSent != st.Revision {
			x.regionalSent = st.Revision
			return &wire.RelayDown{Msg: &wire.RelayDown_Regional{Regional: &wire.RegionalDesired{Desired: st}}}
		}
	}
	if len(x.tunnels) > 0 {
		m := x.tunnels[0]
		x.tunnels = x.tunnels[1:]
		return &wire.RelayDown{Msg: &wire.RelayDown_OpenTunnel{OpenTunnel: m}}
	}
	for id := range x.resyncs {
		delete(x.resyncs, id)
		return &wire.RelayDown{Msg: &wire.RelayDown_KubernetesResync{KubernetesResync: &wire.SiteKubernetesResync{Tenant: id.Tenant, Site: id.Name}}}
	}
	return x.nextDesiredLocked(state)
}

func (x *session) nextDesiredLocked(state func(id fleet.SiteID, capability uint32) *wire.DesiredState) *wire.RelayDown {
	var set, before *wire.DesiredState
	var sites []*wire.SiteName
	looked := 0
	for id := range x.dirty {
		capability, older := x.older[id]
		if !older {
			capability = newest
		}
		st, had := state(id, capability), x.sent[id]
		if st == nil { // not rendered yet: the store will tell
			delete(x.dirty, id)
			continue
		}
		if holds, fresh := x.holds[id]; fresh && holds == st.Revision {
			had = st
		}
		delete(x.holds, id)
		if had.GetRevision() == st.Revision {
			delete(x.dirty, id)
			x.sent[id] = st
			continue
		}
		if set == nil {
			set, before = st, had
		}
		if st.Revision == set.Revision && had.GetRevision() == before.GetRevision() {
			delete(x.dirty, id)
			x.sent[id] = st
			sites = append(sites, &wire.SiteName{Tenant: id.Tenant, Site: id.Name})
		}
		if looked++; looked == alike || x.capability < sitesDesiredCapability {
			break
		}
	}
	if len(sites) == 0 {
		return nil
	}
	if x.capability >= wire.ChangeCapability {
		if change := wire.ChangeBetween(before, set); change != nil {
			return &wire.RelayDown{Msg: &wire.RelayDown_SitesChange{SitesChange: &wire.SitesChange{Change: change, Sites: sites}}}
		}
	}
	if len(sites) == 1 {
		return &wire.RelayDown{Msg: &wire.RelayDown_Desired{Desired: &wire.SiteDesired{Tenant: sites[0].Tenant, Site: sites[0].Site, Desired: set}}}
	}
	return &wire.RelayDown{Msg: &wire.RelayDown_SitesDesired{SitesDesired: &wire.SitesDesired{Desired: set, Sites: sites}}}
}

// open makes the regional's session; an older one of the same regional ends.
func (s *Server) open(regional string, capability uint32) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.synced || !s.opts.Desired.Started() {
		return nil, status.Error(codes.Unavailable, "control is starting; try again")
	}
	if old := s.sessions[regional]; old != nil {
		close(old.replaced)
		s.orphanLocked(old)
	} else {
		s.metrics.streams.Inc()
	}
	x := newSession(regional, capability)
	x.poke()
	s.sessions[regional] = x
	for _, r := range s.revocations() {
		x.revoke(r)
	}
	return x, nil
}

func (s *Server) close(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[x.regional] == x {
		delete(s.sessions, x.regional)
		s.metrics.streams.Dec()
		s.orphanLocked(x)
	}
}

// orphanLocked: the sites of a broken stream have a while to come back, over a new
// stream or another regional.
func (s *Server) orphanLocked(x *session) {
	at := s.opts.Now().Add(s.opts.OrphanGrace)
	for _, st := range s.sites {
		if st.owner == x {
			st.owner, st.offlineAt = nil, at
		}
	}
}
