// Package routes makes one Alertmanager configuration out of all tenants'
// AlertRoutes: each tenant's below a matcher on its tenant, so that none sees
// another's alerts, with the inhibitions that Muster ships. A watcher does it anew
// whenever an AlertRoute or one of its secrets changes, and keeps the last result on
// disk for a start without control.
//
// It does not send anything: the configuration goes to the function that it is given,
// which is the embedded Alertmanager's SetConfig. cmd/internal runs the watcher.
package routes

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/pkg/labels"

	"muster.dev/muster/control/api/alertroute"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/egress"
	"muster.dev/muster/internal/fleet"
)

// None is the receiver that drops. Others have slashes in their names.
const None = "none"

// maxRoutes of a tenant. Every alert of the tenant is held against each.
const maxRoutes = 2000

// tenantLabel is on every alert.
const tenantLabel = fleet.SeriesTenant

// Reasons of a Result.
const (
	ReasonApplied = "Applied"
	ReasonInvalid = "Invalid"
	ReasonSecret  = "SecretNotUsable"
	ReasonRefused = "ConfigurationRefused"
	ReasonAway    = "AlertmanagerAway"
	// ReasonTooMany: the tenant's other AlertRoutes have all the routes that it may have.
	ReasonTooMany = "TooManyRoutes"
	// ReasonUnreachable: a receiver is where none may connect to.
	ReasonUnreachable = "DestinationRefused"
)

// ID names an AlertRoute.
type ID struct{ Tenant, Name string }

func (id ID) String() string { return id.Tenant + "/" + id.Name }

// Object is one AlertRoute.
type Object struct {
	ID
	Spec *v1alpha1.AlertRouteSpec
}

// Result of one object.
type Result struct {
	Receivers int
	Reason    string
	Err       error // nil: it is in the configuration
}

// SecretFunc returns a value of a tenant's Secret. An error that is a TryLater ends
// the merge; any other one leaves out the object that asked.
type SecretFunc func(tenant, name, key string) (string, error)

// TryLater wraps an error that says nothing about the secret itself.
type TryLater struct{ Err error }

func (e *TryLater) Error() string { return e.Err.Error() }
func (e *TryLater) Unwrap() error { return e.Err }

// Merge returns the configuration and what became of each object. Equal input gives
// equal bytes, in whatever order. An object that can't be used is left out, and the
// others are as if it were not there. reach says whether a receiver may connect to
// HOST:PORT; nil: to all.
func Merge(objects []Object, secret SecretFunc, reach func(address string) error) ([]byte, map[ID]Result, error) {
	alertroute.UseAlertmanagerParsers()
	objects = slices.SortedFunc(slices.Values(objects), func(a, b Object) int {
		return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Name, b.Name))
	})
	results := make(map[ID]Result, len(objects))
	var parts []part
	routes := map[string]int{} // by tenant
	for _, o := range objects {
		p, result := prepare(o, secret, reach)
		var later *TryLater
		if errors.As(result.Err, &later) {
			return nil, nil, fmt.Errorf("alert route %s: %w", o.ID, result.Err)
		}
		if routes[o.Tenant] += p.routes; result.Err == nil && routes[o.Tenant] > maxRoutes && o.Tenant != fleet.PlatformTenant {
			result = Result{Reason: ReasonTooMany, Err: fmt.Errorf("with it the tenant's AlertRoutes would have %d routes; want at most %d", routes[o.Tenant], maxRoutes)}
			routes[o.Tenant] -= p.routes
		}
		results[o.ID] = result
		if result.Err == nil {
			parts = append(parts, p)
		}
	}
	b, err := assemble(parts)
	if err != nil {
		return nil, nil, fmt.Errorf("merge %d alert routes: %w", len(parts), err)
	}
	return b, results, nil
}

// hide leaves an address out of an error: it may come from a Secret, which not everybody
// may read who reads the status.
func hide(reach func(string) error) func(string) error {
	if reach == nil {
		return nil
	}
	return func(address string) error {
		if reach(address) != nil {
			return egress.ErrRefused
		}
		return nil
	}
}

// part is an object, ready to stand beside others.
type part struct {
	id        ID
	routes    int
	route     map[string]any
	receivers []any
	inhibit   []any
	intervals []any
}

func prepare(o Object, secret SecretFunc, reach func(string) error) (part, Result) {
	spec, errs := alertroute.Parse(o.Spec)
	if len(errs) > 0 {
		return part{}, Result{Reason: ReasonInvalid, Err: errs.ToAggregate()}
	}
	spec, err := spec.Resolve(func(name, key string) (string, error) { return secret(o.Tenant, name, key) })
	if err != nil {
		return part{}, Result{Reason: ReasonSecret, Err: err}
	}
	if errs := spec.Unreachable(hide(reach)); len(errs) > 0 {
		return part{}, Result{Reason: ReasonUnreachable, Err: errs.ToAggregate()}
	}
	p := rename(o.ID, spec)
	p.routes, _ = spec.Routes()
	// By itself first: names can't meet those of others, so what loads alone loads
	// together with them.
	if _, err := assemble([]part{p}); err != nil {
		return part{}, Result{Reason: ReasonInvalid, Err: errors.New("it can't be merged with others; the alerting role's log says why")}
	}
	return p, Result{Reason: ReasonApplied, Receivers: len(p.receivers)}
}

// rename moves an object's names below tenant/object/ and confines it to its tenant.
func rename(id ID, s *alertroute.Spec) part {
	p := part{id: id, route: s.Route}
	full := func(name any) any {
		if n, is := name.(string); is && n != "" {
			return id.String() + "/" + n
		}
		return name
	}
	for _, r := range s.Receivers {
		r["name"] = full(r["name"])
		p.receivers = append(p.receivers, r)
	}
	for _, t := range s.TimeIntervals {
		t["name"] = full(t["name"])
		p.intervals = append(p.intervals, t)
	}
	for _, r := range s.InhibitRules {
		if r["name"] != nil {
			r["name"] = full(r["name"])
		}
		if id.Tenant != fleet.PlatformTenant {
			r["source_matchers"] = append(list(r["source_matchers"]), only(id.Tenant))
			r["target_matchers"] = append(list(r["target_matchers"]), only(id.Tenant))
			r["equal"] = with(list(r["equal"]), tenantLabel)
		}
		p.inhibit = append(p.inhibit, r)
	}
	renameRoute(p.route, full)
	if p.route["group_by"] == nil {
		p.route["group_by"] = []any{tenantLabel}
	}
	p.route["continue"] = true // on to the tenant's other objects
	return p
}

func renameRoute(r map[string]any, full func(any) any) {
	if r["receiver"] != nil {
		r["receiver"] = full(r["receiver"])
	}
	for _, k := range []string{"mute_time_intervals", "active_time_intervals"} {
		l := list(r[k])
		for i := range l {
			l[i] = full(l[i])
		}
	}
	if r["group_by"] != nil && !slices.Contains(list(r["group_by"]), any("...")) {
		r["group_by"] = with(list(r["group_by"]), tenantLabel)
	}
	for _, sub := range list(r["routes"]) {
		if m, is := sub.(map[string]any); is {
			renameRoute(m, full)
		}
	}
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func with(l []any, name string) []any {
	if slices.Contains(l, any(name)) {
		return l
	}
	return append(l, name)
}

// only is the matcher of a tenant's alerts.
func only(tenant string) string {
	m, err := labels.NewMatcher(labels.MatchEqual, tenantLabel, tenant)
	if err != nil {
		panic(err) // no regular expression in it
	}
	return m.String()
}

// assemble writes the configuration and has Alertmanager load it.
func assemble(parts []part) ([]byte, error) {
	receivers, inhibit, intervals, routes := []any{map[string]any{"name": None}}, shipped(), []any{}, []any{}
	byTenant := map[string][]any{}
	for _, p := range parts {
		byTenant[p.id.Tenant] = append(byTenant[p.id.Tenant], p.route)
		receivers = append(receivers, p.receivers...)
		inhibit = append(inhibit, p.inhibit...)
		intervals = append(intervals, p.intervals...)
	}
	for _, t := range slices.Sorted(maps.Keys(byTenant)) {
		if t == fleet.PlatformTenant {
			routes = append(routes, byTenant[t]...)
			continue
		}
		routes = append(routes, map[string]any{
			"receiver": None, // for what none of the tenant's objects takes
			"matchers": []any{only(t)},
			"continue": true, // on to the platform's
			"routes":   byTenant[t],
		})
	}
	b, err := alertroute.Encode(map[string]any{
		"route":          map[string]any{"receiver": None, "group_by": []any{tenantLabel}, "routes": routes},
		"receivers":      receivers,
		"inhibit_rules":  inhibit,
		"time_intervals": intervals,
	})
	if err != nil {
		return nil, err
	}
	if _, err := config.Load(string(b)); err != nil {
		return nil, err
	}
	return b, nil
}

// Names of the alerts that tell of a silence as a whole; alerting's dead-man raises them.
const (
	SiteDown     = "SiteDown"
	RegionalDown = "RegionalDown"
	RegionDown   = "RegionDown"
)

// shipped inhibitions. A label that is absent on both sides counts as equal, so each
// source is asked to have what equal names.
func shipped() []any {
	rule := func(name string, source, target, equal []any) any {
		return map[string]any{"name": "muster/" + name, "source_matchers": source, "target_matchers": target, "equal": append([]any{tenantLabel}, equal...)}
	}
	return []any{
		rule("site-down", []any{`alertname="` + SiteDown + `"`, `site!=""`}, []any{`alertname!="` + SiteDown + `"`}, []any{"site"}),
		rule("regional-down", []any{`alertname="` + RegionalDown + `"`, `regional!=""`}, []any{`alertname="` + SiteDown + `"`}, []any{"regional"}),
		rule("region-down", []any{`alertname="` + RegionDown + `"`, `region!=""`}, []any{`alertname="` + SiteDown + `"`}, []any{"region"}),
		rule("region-of-regionals", []any{`alertname="` + RegionDown + `"`, `region!=""`}, []any{`alertname="` + RegionalDown + `"`}, []any{"region"}),
		rule("critical-over-warning", []any{`severity="critical"`, `site!=""`}, []any{`severity="warning"`}, []any{"alertname", "site"}),
	}
}
