package logrules

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/control/api/logrule"
	"muster.dev/muster/control/api/region"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// outbox turns events into alerts, with realert and aggregation, in the rule's state.
type outbox struct {
	p        *plan
	st       *state
	sites    map[string]Site
	limits   limits
	now      int64 // by the own clock: alerts fire from when they were found out
	external string
	changed  bool
	raised   int
	told     []*active // whose annotations are new

	// How many there are; counted when first needed.
	alerts, collecting *quota
}

// take works through the events of a round. to is how far the round saw.
func (o *outbox) take(events []event, to int64) {
	slices.SortStableFunc(events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.seen, b.seen), cmp.Compare(a.key, b.key), cmp.Compare(a.at, b.at))
	})
	for _, e := range events {
		o.due(e.seen)
		switch e.kind {
		case ended:
			if a := o.st.Active[e.key]; a != nil && a.Lasting {
				o.end(e.key, e.at)
			}
		case holds:
			if o.st.Silenced[e.key] <= e.seen {
				o.raise(e)
			}
		case matched:
			o.matched(e)
		}
	}
	o.due(to)
	o.calm(to)
	for k, until := range o.st.Silenced {
		if until <= to {
			delete(o.st.Silenced, k)
			o.changed = true
		}
	}
}

func (o *outbox) matched(e event) {
	e.key = o.p.alertKey(e)
	if o.st.Silenced[e.key] > e.seen {
		// It is not told again, but it goes on.
		if a := o.st.Active[e.key]; a != nil && !a.Lasting && o.p.keep > 0 && a.Until >= e.seen {
			a.Until = max(a.Until, max(o.now, e.seen)+o.p.keep)
		}
		return
	}
	wait := millis(o.p.rule.Aggregation)
	if wait == 0 {
		o.raise(e)
		return
	}
	o.changed = true
	c := o.st.Collecting[e.key]
	if c == nil {
		if o.collecting == nil {
			o.collecting = count(o.st.Collecting, o.limits.keys, len(o.sites))
		}
		if !o.collecting.take(siteOf(e.key)) {
			o.st.Cut++
			return
		}
		c = &collected{Until: e.seen + wait, At: e.at}
		o.st.Collecting[e.key] = c
	}
	c.Count++
	c.At, c.Value, c.Message, c.Include, c.Summary = min(c.At, e.at), e.value, clip(e.message), e.include, e.summary
}

// due raises what aggregation has collected for long enough.
func (o *outbox) due(to int64) {
	var keys []string
	for k, c := range o.st.Collecting {
		if c.Until <= to {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		c := o.st.Collecting[k]
		delete(o.st.Collecting, k)
		o.collecting.give(siteOf(k), 1)
		what := "matches"
		if c.Count == 1 {
			what = "match"
		}
		o.raise(event{kind: matched, key: k, at: c.At, seen: c.Until, value: float64(c.Count), sample: sample{c.Message, c.Include},
			summary: fmt.Sprintf("%d %s within %s, the last: %s", c.Count, what, ms(millis(o.p.rule.Aggregation)), c.Summary)})
	}
}

// raise puts an alert into the outbox, or lets one fire on that still does.
func (o *outbox) raise(e event) {
	site, ok := o.sites[siteOf(e.key)]
	if !ok {
		return
	}
	lasting := e.kind == holds
	a := o.st.Active[e.key]
	if a != nil && !lasting && a.Lasting {
		return // it fires anyway
	}
	if a != nil && !a.Lasting && a.Until < e.seen {
		o.end(e.key, a.Until) // over, and not cleared away yet
		a = nil
	}
	if a == nil {
		if o.alerts == nil {
			o.alerts = count(o.st.Active, o.limits.keys, len(o.sites))
		}
		if !o.alerts.take(siteOf(e.key)) {
			o.st.Cut++
			return
		}
		a = &active{Site: site.Name, Labels: o.p.labels(site, e.key), StartsAt: e.at}
		o.st.Active[e.key] = a
		o.raised++
	}
	a.Lasting, a.Until, a.sent = lasting, 0, 0
	wait := o.wait(e.key, e.seen)
	if !lasting {
		a.Until = max(o.now, e.seen) + max(o.p.hold+wait-o.p.realert, o.p.keep)
	}
	a.Annotations = o.p.annotations(a.Labels, e)
	o.changed = true
	o.told = append(o.told, a)
	if wait > 0 {
		o.st.Silenced[e.key] = e.seen + wait
	}
}

func (o *outbox) end(key string, at int64) {
	o.st.end(key, at)
	o.alerts.give(siteOf(key), 1)
	o.changed = true
}

// left ends the alerts of sites that the rule looks at no more, and forgets them.
func (o *outbox) left() {
	gone := func(key string) bool {
		_, ok := o.sites[siteOf(key)]
		return !ok
	}
	for _, k := range slices.Sorted(maps.Keys(o.st.Active)) {
		if gone(k) {
			o.end(k, o.now)
		}
	}
	o.moved()
	maps.DeleteFunc(o.st.Backoff, func(k string, _ backoff) bool { return gone(k) })
	n := len(o.st.Keys) + len(o.st.Silenced) + len(o.st.Collecting) + len(o.st.Pending)
	maps.DeleteFunc(o.st.Keys, func(k string, _ *window) bool { return gone(k) })
	maps.DeleteFunc(o.st.Silenced, func(k string, _ int64) bool { return gone(k) })
	maps.DeleteFunc(o.st.Collecting, func(k string, _ *collected) bool { return gone(k) })
	o.st.Pending = slices.DeleteFunc(o.st.Pending, func(p pending) bool { return gone(p.Key) })
	o.changed = o.changed || n != len(o.st.Keys)+len(o.st.Silenced)+len(o.st.Collecting)+len(o.st.Pending)
}

// moved gives the alerts of sites that joined a virtual site, or left one, its label as
// it is now. To Alertmanager that is another alert, so the one that it knows ends.
func (o *outbox) moved() {
	for _, k := range slices.Sorted(maps.Keys(o.st.Active)) {
		a, s := o.st.Active[k], o.sites[siteOf(k)]
		want := region.VirtualSitesLabel(s.VirtualSites)
		if a.Labels[logrule.LabelVirtualSites] == want {
			continue
		}
		next := *a
		next.Labels, next.sent = maps.Clone(a.Labels), 0
		if next.Labels[logrule.LabelVirtualSites] = want; want == "" {
			delete(next.Labels, logrule.LabelVirtualSites)
		}
		if a.Taken {
			o.st.end(k, o.now)
		}
		o.st.Active[k] = &next
		o.changed = true
	}
}

// alertKey is of the alert that an event belongs to.
func (p *plan) alertKey(e event) string {
	if p.together == nil {
		return e.key
	}
	values := strings.Split(e.key, keySep)
	if len(p.more) > 0 {
		values = append(values, strings.Split(e.more, keySep)...)
	}
	key := values[:1:1]
	for _, i := range p.together {
		if i < len(values) {
			key = append(key, values[i])
		}
	}
	return joinKey(key)
}

// labels of an alert. Muster's own win over all others.
func (p *plan) labels(s Site, key string) map[string]string {
	out := maps.Clone(p.rule.Labels)
	if out == nil {
		out = map[string]string{}
	}
	set := func(name, value string) {
		delete(out, name)
		if value != "" {
			out[name] = value
		}
	}
	for i, v := range strings.Split(key, keySep)[1:] {
		if i < len(p.alertOf) {
			set(p.alertOf[i].Label, v)
		}
	}
	set(logrule.LabelName, p.rule.Name)
	set(fleet.SeriesTenant, s.Tenant)
	set(fleet.SeriesSite, s.Name)
	set(fleet.SeriesRegion, s.Region)
	set(logrule.LabelVirtualSites, region.VirtualSitesLabel(s.VirtualSites))
	set(logrule.LabelSeverity, logrule.Severity(p.rule))
	return out
}

// annotations are the rule's, filled in, and a summary where the rule has none.
func (p *plan) annotations(labels map[string]string, e event) map[string]string {
	out := map[string]string{"summary": e.summary}
	told := logrule.Told{Labels: labels, Value: e.value, Message: e.message, Fields: map[string]string{}}
	for i, f := range p.include[:min(len(p.include), len(e.include))] {
		told.Fields[f.Label] = e.include[i]
	}
	for k, v := range p.rule.Annotations {
		out[k] = logrule.Expand(v, told, time.UnixMilli(e.seen))
	}
	return out
}

// Times of sending, in milliseconds: an alert is sent again so often that an
// Alertmanager that restarted knows it soon, and one that lasts resolves by itself when
// nobody sends it any more. Its end is sent, so that may take as long as a log store is
// usually down: an alert that resolved meanwhile would be told again after it.
const (
	resend     = minute
	lastingFor = 30 * minute
	// An end that moved is sent before what was sent of it has come.
	margin = minute / 2
)

// toSend lists what the Sink has to be given now; taken is called when it took it.
func (o *outbox) toSend() (alerts []wire.Alert, taken func()) {
	var sent []*active
	add := func(a *active, ends int64) {
		alerts = append(alerts, wire.Alert{Labels: a.Labels, Annotations: a.Annotations, StartsAt: time.UnixMilli(a.StartsAt).UTC(),
			EndsAt: time.UnixMilli(ends).UTC(), GeneratorURL: o.link(a)})
		sent = append(sent, a)
	}
	// What ended comes first: the same alert may fire again, and an Alertmanager takes
	// them in their order.
	for _, a := range o.st.Ended {
		if !a.Taken { // somebody wants to know that it was
			a.Until = max(a.Until, o.now+minute)
		}
		add(a, a.Until)
	}
	for _, k := range slices.Sorted(maps.Keys(o.st.Active)) {
		a := o.st.Active[k]
		switch {
		case !a.Lasting && a.Taken && a.Until <= o.now:
			delete(o.st.Active, k)
			o.alerts.give(siteOf(k), 1)
			o.changed = true
		case a.Taken && a.sent > 0 && o.now-a.sent < resend && (a.Lasting || a.Until == a.ends || a.ends-o.now > margin):
		case a.Lasting:
			add(a, o.now+lastingFor)
		default:
			if !a.Taken { // it waited for the Sink: it fires from now on
				a.Until = max(a.Until, o.now+minute)
			}
			add(a, a.Until)
		}
	}
	ends := o.st.Ended
	return alerts, func() {
		for i, a := range sent {
			until := alerts[i].EndsAt.UnixMilli()
			o.changed = o.changed || !a.Taken || !a.Lasting && a.ends != until
			a.sent, a.ends, a.Taken = o.now, until, true
		}
		if len(ends) > 0 {
			o.st.Ended, o.changed = nil, true
		}
	}
}

// linkMargin is what a link to the lines shows before and after.
const linkMargin = 5 * minute

func (o *outbox) link(a *active) string {
	if o.external == "" {
		return ""
	}
	q := url.Values{"tenant": {a.Labels[fleet.SeriesTenant]}, "site": {a.Labels[fleet.SeriesSite]}}
	if o.p != nil && o.p.rule.Filter != "" {
		q.Set("query", o.p.rule.Filter)
	}
	if o.p != nil && a.StartsAt > 0 { // the lines that it began with, and how it went on
		at := func(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }
		q.Set("from", at(a.StartsAt-o.p.timeframe-linkMargin))
		q.Set("to", at(a.StartsAt+linkMargin))
	}
	return strings.TrimSuffix(o.external, "/") + "/logs?" + q.Encode()
}
