package fleetapi

import (
	"maps"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// Bounds of what a regional may say about its items: more than it has, or an error
// longer than fits into a condition, is cut.
const (
	maxItemStates = 50_000
	maxItemName   = 300
)

// regionalRules is what a regional reported last of each tenant's rules. It holds
// while the regional is away: it goes on with what it had.
type regionalRules struct {
	reported bool
	tenants  map[string]tenantRules
}

// tenantRules are one tenant's on one regional.
type tenantRules struct {
	digest string            // of the Rules item
	errs   map[string]string // by KIND/OBJECT; "" is the whole item; nil: none
}

func (a tenantRules) equal(b tenantRules) bool {
	return a.digest == b.digest && maps.Equal(a.errs, b.errs)
}

// regionalReport takes what became of a RegionalDesired.
func (s *Server) regionalReport(sess *session, r *wire.RegionalReport) {
	now := &regionalRules{reported: true, tenants: map[string]tenantRules{}}
	for i, it := range r.GetItems() {
		if i >= maxItemStates {
			s.opts.Logger.Warn("a regional reports too many items; the rest is left out", "regional", sess.regional, "items", len(r.GetItems()), "limit", maxItemStates)
			break
		}
		if len(it.GetName()) > maxItemName || !hexDigest.MatchString(it.GetDigest()) {
			continue
		}
		why := text(it.GetError(), maxMessage)
		tenant, object, _ := strings.Cut(it.GetName(), "/")
		if fleet.ValidateTenant(tenant) != nil {
			continue
		}
		t := now.tenants[tenant]
		switch it.GetKind() {
		case region.KindRules:
			t.digest, object = it.GetDigest(), ""
		case "AlertRules", "LogRules":
			object = it.GetKind() + "/" + object
		default:
			if why != "" {
				s.opts.Logger.Warn("a regional refused an item", "regional", sess.regional, "kind", clip(it.GetKind(), 40), "name", tenant, "err", why)
			}
			continue
		}
		if why != "" {
			if t.errs == nil {
				t.errs = map[string]string{}
			}
			t.errs[object] = why
		}
		now.tenants[tenant] = t
	}

	s.mu.Lock()
	if s.sessions[sess.regional] != sess {
		s.mu.Unlock()
		return
	}
	before := s.rules[sess.regional]
	if before == nil {
		before = &regionalRules{}
	}
	changed := map[string]bool{}
	for tenant, t := range now.tenants {
		if old, ok := before.tenants[tenant]; !ok || !old.equal(t) {
			changed[tenant] = true
		}
	}
	for tenant := range before.tenants {
		if _, ok := now.tenants[tenant]; !ok {
			changed[tenant] = true
		}
	}
	s.rules[sess.regional] = now
	subs := slices.Clone(s.rulesSubs)
	s.mu.Unlock()
	for _, sub := range subs {
		for tenant := range changed {
			sub(tenant)
		}
	}
}

// SubscribeRules calls fn with each tenant for which RulesState may answer otherwise
// than before. fn must be quick.
func (s *Server) SubscribeRules(fn func(tenant string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rulesSubs = append(s.rulesSubs, fn)
}

// RulesState is how far an AlertRules or LogRules object has come.
type RulesState struct {
	Applied int      // regionals that evaluate this very spec
	Waiting []string // regionals that do not yet, by name
	// RefusedBy is the first regional, by name, that refused it, and Why.
	RefusedBy, Why string
	// Settled is false while some regionals may just not have reported to this
	// process yet.
	Settled bool
}

// RulesState tells how far an object has come, kind AlertRules or LogRules, whose
// spec has the digest.
func (s *Server) RulesState(tenant, kind, name, specDigest string) RulesState {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.regionalNamesLocked()
	out := RulesState{Settled: len(names) > 0}
	for _, regional := range names {
		r := s.rules[regional]
		if r == nil || !r.reported {
			out.Waiting, out.Settled = append(out.Waiting, regional), false
			continue
		}
		t := r.tenants[tenant]
		current := t.digest != "" && s.opts.Desired.SpecIn(t.digest, kind, name) == specDigest
		why := t.errs[kind+"/"+name]
		if why == "" {
			why = t.errs[""]
		}
		switch {
		case !current:
			out.Waiting = append(out.Waiting, regional)
		case why == "":
			out.Applied++
		case out.RefusedBy == "":
			out.RefusedBy, out.Why = regional, why
		}
	}
	out.Settled = out.Settled || !s.opts.Now().Before(s.began.Add(2*max(s.opts.OrphanGrace, time.Second)))
	return out
}

// regionalNamesLocked are the regionals that should evaluate rules.
func (s *Server) regionalNamesLocked() []string {
	if len(s.opts.Regionals) > 0 {
		return slices.Sorted(slices.Values(s.opts.Regionals))
	}
	names := map[string]bool{}
	for n := range s.sessions {
		names[n] = true
	}
	for n := range s.rules {
		names[n] = true
	}
	return slices.Sorted(maps.Keys(names))
}
