package wire

import (
	"net/http"
	"slices"
	"strings"

	"muster.dev/muster/internal/fleet"
)

// Scope is what a request from the console may read and asks for.
type Scope struct {
	All     bool     // it may read all tenants
	Allowed []string // the tenants that it may read, sorted
	Asked   []string // of these, those that it asks for; empty: all
}

// ScopeOf reads TenantsHeader, and which of those tenants are asked for.
func ScopeOf(r *http.Request, asked []string) (*Scope, *Problem) {
	values := r.Header.Values(TenantsHeader)
	if len(values) != 1 || strings.TrimSpace(values[0]) == "" {
		return nil, Failure(http.StatusForbidden, "the request doesn't say which tenants it may read: it must come through the console, which sets %s", TenantsHeader)
	}
	sc := &Scope{}
	for name := range strings.SplitSeq(values[0], ",") {
		switch name = strings.TrimSpace(name); {
		case name == AllTenants:
			sc.All = true
		case fleet.ValidateTenant(name) != nil:
			return nil, Failure(http.StatusForbidden, "%s: %q is no tenant", TenantsHeader, name)
		default:
			sc.Allowed = append(sc.Allowed, name)
		}
	}
	slices.Sort(sc.Allowed)
	for _, name := range Values(asked) {
		if !sc.All && !slices.Contains(sc.Allowed, name) {
			return nil, Failure(http.StatusForbidden, "tenant: you may not read %.100q", name)
		}
		sc.Asked = append(sc.Asked, name)
	}
	return sc, nil
}

// Has says whether a tenant is among those that are asked for.
func (sc *Scope) Has(tenant string) bool {
	if len(sc.Asked) > 0 {
		return slices.Contains(sc.Asked, tenant)
	}
	return sc.All || slices.Contains(sc.Allowed, tenant)
}

// One is the only tenant that is asked for, if there is just one.
func (sc *Scope) One() (string, bool) {
	t := sc.Asked
	if len(t) == 0 && !sc.All {
		t = sc.Allowed
	}
	if len(t) != 1 {
		return "", false
	}
	return t[0], true
}

// Fleet says that it asks for all tenants and may: it comes from somebody who runs the
// platform.
func (sc *Scope) Fleet() bool { return sc.All && len(sc.Asked) == 0 }
