package fleetapi

import (
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// tenantUse is what a tenant uses on one regional.
type tenantUse struct {
	series, logBytes int64
	day              string
}

// tenantsUse takes what tenants use of their quotas on a regional. It holds while the
// regional is away.
func (s *Server) tenantsUse(sess *session, m *wire.TenantsUse) {
	now := map[string]tenantUse{}
	for i, t := range m.GetTenants() {
		if i >= maxItemStates {
			s.opts.Logger.Warn("a regional reports the use of too many tenants; the rest is left out", "regional", sess.regional, "limit", maxItemStates)
			break
		}
		if fleet.ValidateTenant(t.GetTenant()) == nil {
			now[t.GetTenant()] = tenantUse{max(0, t.GetSeries()), max(0, t.GetLogBytes()), t.GetDay()}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[sess.regional] == sess {
		s.use[sess.regional] = now
	}
}

// TenantUse is what a tenant uses on all regionals, as they told last: series, and
// bytes of logs since midnight UTC.
func (s *Server) TenantUse(tenant string) (series, logBytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	today := s.opts.Now().UTC().Format(time.DateOnly)
	for _, regional := range s.use {
		u := regional[tenant]
		series += u.series
		if u.day == today {
			logBytes += u.logBytes
		}
	}
	return series, logBytes
}
