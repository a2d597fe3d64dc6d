package fleetapi

import (
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// settle is how long a site that has come needs to fetch and apply what it should hold,
// and to report that.
const settle = time.Second

// comes is how long a site that was just given a certificate has to connect, so that its
// first status is one write. Where it takes longer there are two.
//
// Sites that join together come late, since control and their regional are busy with the
// others: so the first statuses of those that have not come are comesEvery apart, and none
// waits for longer than comesLate.
const (
	comes      = 5 * time.Second
	comesEvery = 50 * time.Millisecond
	comesLate  = time.Minute
)

// awaitLocked gives a site that is to come its time to do so.
func (s *Server) awaitLocked(st *siteState) {
	now := s.opts.Now()
	if st.settles.Sub(now) >= comes {
		return // it has it since the watch told of it
	}
	if s.firstAt = s.firstAt.Add(comesEvery); s.firstAt.Before(now) {
		s.firstAt = now
	}
	st.settles = now.Add(min(max(comes, s.firstAt.Sub(now)), comesLate))
}

// changedLocked lets what is known of the site be written.
func (s *Server) changedLocked(st *siteState) {
	if wait := st.settles.Sub(s.opts.Now()); wait > 0 && (st.obj == nil || welcome(st.obj)) {
		s.queue.AddAfter(st.id, wait)
		return
	}
	s.queue.Add(st.id)
}

// Certified tells of a certificate that a site was given: its Site, as SetSite takes it,
// and until when it lasts. The Site's status says so with what is written of it next.
// First: it is the first certificate of the site.
func (s *Server) Certified(obj *v1alpha1.Site, notAfter time.Time) (first bool) {
	tenant, ok := fleet.TenantOfSystemNamespace(obj.Namespace)
	if !ok {
		return false
	}
	id := fleet.SiteID{Tenant: tenant, Name: obj.Name}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.siteLocked(id)
	first = st.certified.IsZero() && obj.Status.CertificateNotAfter == nil
	st.certified = notAfter
	if !st.online {
		s.awaitLocked(st)
	}
	s.setSiteLocked(id, obj)
	s.changedLocked(st)
	return first
}

// expectLocked waits for a site that has just been registered: the watch may tell of it
// before its certificate is signed.
func (s *Server) expectLocked(st *siteState) {
	if st.obj.Spec.PublicKey != "" && st.obj.Status.Phase == "" && welcome(st.obj) && st.settles.IsZero() {
		s.awaitLocked(st)
	}
}
