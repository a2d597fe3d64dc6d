package fleetapi

import "muster.dev/muster/internal/fleet"

// Tell writes a Kubernetes event on a Site, within the bounds of its tenant's events; nothing
// if there is no such Site.
func (s *Server) Tell(id fleet.SiteID, kind, reason, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.sites[id]; st != nil && st.obj != nil {
		s.tellLocked(id.Tenant, st.obj, kind, reason, message)
	}
}
