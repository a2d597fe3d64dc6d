package state

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

const (
	defaultGroups = 100
	// shownOfGroup bounds the alerts of a group in an answer.
	shownOfGroup = 50
)

// groups lists what fires as the routes' group_by groups it: a group is what a receiver gets in
// one notification. An alert that several routes take is in several.
func (s *State) groups(r *http.Request, q url.Values, sc *wire.Scope) (int, any, *wire.Problem) {
	v, p := s.current()
	if p != nil {
		return 0, nil, p
	}
	wanted, p := filterOf(q)
	if p != nil {
		return 0, nil, p
	}
	limit, p := limitOf(q, defaultGroups)
	if p != nil {
		return 0, nil, p
	}
	order := q.Get("sort")
	if order != "" && groupOrders[order] == nil {
		return 0, nil, wire.Failure(http.StatusBadRequest, "sort: %.20q: want severity, count or newest", order)
	}
	member := map[string]*wire.KnownAlert{}
	for _, a := range v.within(sc, wire.Values(q["site"]), virtualSites(q)) {
		if wanted(a) {
			member[a.Fingerprint] = a
		}
	}
	var filter []wire.Matcher
	if t, ok := sc.One(); ok {
		filter = []wire.Matcher{wire.EqualMatcher(fleet.SeriesTenant, t)}
	}
	listed, err := s.opts.Source.Groups(r.Context(), filter...)
	if err != nil {
		return 0, nil, s.upstream("list groups", err)
	}
	out := wire.AlertGroupList{AsOf: v.at.UTC(), Groups: []wire.AlertGroup{}}
	for i := range listed {
		if g, ok := groupOf(&listed[i], member); ok {
			out.Groups = append(out.Groups, g)
		}
	}
	slices.SortStableFunc(out.Groups, groupOrders[cmp.Or(order, "severity")])
	out.Total = len(out.Groups)
	out.Groups = out.Groups[:min(limit, out.Total)]
	return http.StatusOK, out, nil
}

// groupOf makes the group of those alerts that are members; ok is false if none is.
func groupOf(in *wire.GroupedAlerts, member map[string]*wire.KnownAlert) (g wire.AlertGroup, ok bool) {
	for _, id := range in.Fingerprints {
		a := member[id]
		if a == nil {
			continue
		}
		g.Tenant = a.Tenant
		g.Alerts = append(g.Alerts, a)
		if a.State == wire.AlertSuppressed {
			g.Suppressed++
		} else {
			g.Counts.Add(a.Severity)
		}
		if g.StartsAt.IsZero() || a.StartsAt.Before(g.StartsAt) {
			g.StartsAt = a.StartsAt
		}
		if a.StartsAt.After(g.NewestAt) {
			g.NewestAt = a.StartsAt
		}
	}
	if len(g.Alerts) == 0 {
		return g, false
	}
	slices.SortFunc(g.Alerts, func(a, b *wire.KnownAlert) int { return positionOf(a).compare(positionOf(b)) })
	g.Total = len(g.Alerts)
	g.Alerts = g.Alerts[:min(shownOfGroup, g.Total)]
	// Receivers are called TENANT/ROUTE/NAME in Alertmanager; people know the name.
	if at := strings.LastIndexByte(in.Receiver, '/'); at >= 0 {
		g.Receiver = in.Receiver[at+1:]
	}
	g.Labels = maps.Clone(in.Labels)
	delete(g.Labels, fleet.SeriesTenant)
	if g.Labels == nil {
		g.Labels = map[string]string{}
	}
	return g, true
}

// groupOrders sort groups.
var groupOrders = map[string]func(a, b wire.AlertGroup) int{
	"severity": func(a, b wire.AlertGroup) int {
		return cmp.Or(b.Counts.Critical-a.Counts.Critical, b.Counts.Warning-a.Counts.Warning, b.Counts.Info-a.Counts.Info, byNewest(a, b))
	},
	"count":  func(a, b wire.AlertGroup) int { return cmp.Or(b.Total-a.Total, byNewest(a, b)) },
	"newest": byNewest,
}

func byNewest(a, b wire.AlertGroup) int {
	since := func(t time.Time) int64 { return t.UnixNano() }
	return cmp.Or(cmp.Compare(since(b.NewestAt), since(a.NewestAt)), strings.Compare(a.Receiver, b.Receiver))
}
