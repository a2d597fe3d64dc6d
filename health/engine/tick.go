package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health"
	"muster.dev/muster/health/status"
	"muster.dev/muster/internal/few"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

// collect prepares a tick and returns the function that asks its queries.
func (e *Engine) collect(ctx context.Context, done chan<- *answers) func() {
	now := e.now()
	snap := e.rosters.now()
	e.updateLinks(snap.Snapshot, now)
	a := e.answers
	e.answers = nil
	if a == nil {
		a = &answers{}
	}
	a.reset(snap, e.planner.plan(snap.asked()), now)
	targets := e.targets(a, now)
	a.hold(targets, e.young(now))
	return func() {
		var wg sync.WaitGroup
		for place, t := range targets {
			wg.Go(func() {
				if t.org == "" || e.upToDate(ctx, a, t) {
					e.askPlace(ctx, a, t, place)
				}
			})
		}
		wg.Wait()
		a.leave(targets)
		e.name(ctx, a, targets)
		if ctx.Err() == nil {
			done <- a
		}
	}
}

// askPlace asks all that is due of one place.
func (e *Engine) askPlace(ctx context.Context, a *answers, t *place, at int32) {
	shipped, lanes := a.lanes(t)
	var wg sync.WaitGroup
	wg.Go(func() { e.runAll(ctx, a, shipped, t.target, at, e.opts.Concurrency) })
	free := make(chan struct{}, maxLanes)
	for _, queries := range lanes {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			wg.Wait()
			return
		}
		wg.Go(func() {
			defer func() { <-free }()
			ctx, cancel := context.WithTimeout(ctx, e.opts.QueryTimeout)
			defer cancel()
			e.runAll(ctx, a, queries, t.target, at, 1)
		})
	}
	wg.Wait()
}

// upToDate finds out of which regionals the store has something new, and says whether
// there is one. A store that lags knows less than what holds, and has enough to do.
func (e *Engine) upToDate(ctx context.Context, a *answers, t *place) bool {
	newest, regional := map[string]time.Time{}, ""
	label := func(name, value []byte) {
		if string(name) == "regional" {
			regional = string(value)
		}
	}
	err := e.ask(ctx, t.target, query{text: newestQuery}, a.at, func(answer []byte) error {
		return decodeLabelled(answer, label, func(_, _ []byte, v float64) error {
			newest[regional], regional = time.UnixMilli(int64(v*1000)), ""
			return nil
		})
	})
	t.behind = map[int32]string{}
	for r := range t.regionals {
		name := e.opts.Regionals[r].Name
		switch at, known := newest[name]; {
		case err != nil:
			t.behind[r] = "the store: " + err.Error()
		case !known:
			t.behind[r] = "the store has nothing new of regional " + name
		case a.at.Sub(at) > storeFresh:
			t.behind[r] = fmt.Sprintf("the store's newest samples of regional %s are %s old", name, a.at.Sub(at).Round(time.Second))
		}
	}
	return len(t.behind) < len(t.regionals)
}

// leave takes the sites from the store of whose regionals it has nothing new.
func (a *answers) leave(places map[int32]*place) {
	for j, at := range a.home {
		if at == homeUnknown {
			continue
		}
		if why := places[at].behind[a.regional[j]]; why != "" {
			a.home[j] = homeUnknown
			if a.behind == nil {
				a.behind = map[int32]string{}
			}
			a.behind[int32(j)] = why
		}
	}
}

// maxLanes bounds the tenants whose own queries are asked of one place at one time.
const maxLanes = 32

// youngFor is how long after it connected a site's packs are asked for in every tick.
const youngFor = 2 * time.Minute

// young says whether there is a site that has just connected for the first time: its packs
// are asked for at once, so that it is not judged by half of its signals.
func (e *Engine) young(now time.Time) bool {
	for _, m := range e.aligned {
		if m.link != health.LinkUp || now.Sub(m.since) >= youngFor {
			continue
		}
		if m.state == nil || !slices.ContainsFunc(m.state.Packs, func(found int64) bool { return found != 0 && found < m.since.UnixMilli() }) {
			return true
		}
	}
	return false
}

// lanes parts what is due into what is asked of a place for everybody, and what for each
// tenant. A tick waits for all of them, so a tenant whose signals are slow must neither
// take the others' turns nor more time than one query may: what it does not get done in
// that time is unknown.
func (a *answers) lanes(t *place) (shipped []int, tenants [][]int) {
	of := map[string]int{}
	for q := range a.plan.queries {
		query := &a.plan.queries[q]
		if !a.due[q] || query.storeOnly && t.org == "" && !t.late || query.tenant != "" && !t.tenants[query.tenant] {
			continue
		}
		if query.tenant == "" {
			shipped = append(shipped, q)
			continue
		}
		lane, ok := of[query.tenant]
		if !ok {
			lane = len(tenants)
			of[query.tenant], tenants = lane, append(tenants, nil)
		}
		tenants[lane] = append(tenants[lane], q)
	}
	return shipped, tenants
}

// runAll asks queries of one place, some at a time.
func (e *Engine) runAll(ctx context.Context, a *answers, queries []int, t target, place int32, concurrency int) {
	jobs := make(chan int, len(queries))
	for _, q := range queries {
		jobs <- q
	}
	close(jobs)
	var wg sync.WaitGroup
	for range min(concurrency, len(queries)) {
		wg.Go(func() {
			for q := range jobs {
				e.run(ctx, a, q, t, place)
			}
		})
	}
	wg.Wait()
}

type place struct {
	target
	tenants map[string]bool // that have sites there
	// Of the store: the regionals in whose place it is asked, and those of which it has
	// nothing new, with the reason.
	regionals map[int32]bool
	behind    map[int32]string
}

// targets decides where each site's readings come from, and returns the places
// that must be asked.
func (e *Engine) targets(a *answers, now time.Time) map[int32]*place {
	out := map[int32]*place{}
	n := int32(len(e.regionals))
	tenants := make(map[string]int32, len(a.snap.Tenants))
	for i, t := range a.snap.Tenants {
		tenants[t.Name] = n + int32(i)
	}
	for i, s := range a.snap.Sites {
		m := e.aligned[i]
		a.home[i], a.regional[i] = homeUnknown, m.home
		if !s.Counts() || m.home == homeUnknown {
			continue
		}
		at := m.home
		if !e.asked(int(at), now) {
			if e.opts.StoreQueryURL == "" {
				continue
			}
			at = tenants[s.ID.Tenant]
		}
		a.home[i] = at
		p := out[at]
		if p == nil {
			p = &place{tenants: map[string]bool{}, regionals: map[int32]bool{}}
			if at < n {
				reg := &e.regionals[at]
				p.target = target{name: "regional " + reg.Name, url: reg.URL + "/edge/api/v1", late: !reg.ok || !e.fresh(reg, now)}
			} else {
				p.target = target{name: "store", url: e.opts.StoreQueryURL, org: s.ID.Tenant}
			}
			p.slow = members{}
			out[at] = p
		}
		p.tenants[s.ID.Tenant], p.regionals[m.home] = true, true
		if of := a.snap.of[i]; of != nil {
			p.slow.add(of.pace, s.ID.Name)
		}
	}
	return out
}

// updateLinks takes in what the live views say. Links that changed are marked in the
// memories until pass has evaluated them.
func (e *Engine) updateLinks(snap *inventory.Snapshot, now time.Time) {
	e.removed = append(e.removed, e.align(snap, now)...)
	said := e.listen(snap, now)
	for i, site := range snap.Sites {
		m := e.aligned[i]
		if !site.Counts() {
			m.state, m.shadow, m.link = nil, nil, health.LinkNever
		} else if e.judge(m, site, &said[i], now) {
			m.changed = true
		}
	}
}

// align brings the memories to the positions of a snapshot's sites, and forgets
// sites that are gone, also those whose name another one has now.
func (e *Engine) align(snap *inventory.Snapshot, now time.Time) (removed []fleet.SiteID) {
	if e.alignedTo == snap {
		return nil
	}
	// Views have the map too, so it is not changed but replaced.
	fresh := false
	left := func(id fleet.SiteID, at time.Time) {
		if !fresh {
			e.left, fresh = maps.Clone(e.left), true
			maps.DeleteFunc(e.left, func(_ fleet.SiteID, at time.Time) bool { return now.Sub(at) > leftFor })
		}
		e.left[id] = at
	}
	e.aligned = slices.Grow(e.aligned[:0], len(snap.Sites))
	for _, s := range snap.Sites {
		m := e.mem[s.ID]
		if m != nil && !m.born.IsZero() && !s.CreatedAt.IsZero() && !m.born.Equal(s.CreatedAt) {
			left(s.ID, earlier(s.CreatedAt, now))
			m = &memory{id: s.ID, home: homeUnknown, before: e.left[s.ID], sent: m.sent}
			e.mem[s.ID] = m
		} else if m == nil {
			m = &memory{id: s.ID, home: homeUnknown, before: e.left[s.ID]}
			e.mem[s.ID] = m
		}
		m.born = s.CreatedAt
		e.aligned = append(e.aligned, m)
	}
	if len(e.mem) > len(snap.Sites) {
		for id, m := range e.mem {
			if snap.Find(id.Tenant, id.Name) < 0 {
				delete(e.mem, id)
				left(id, now)
				if m.sent != nil {
					removed = append(removed, id)
				}
			}
		}
	}
	e.alignedTo = snap
	slices.SortFunc(removed, func(a, b fleet.SiteID) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
	})
	return removed
}

// pass looks at the live views, evaluates what is news and publishes a new View. a
// holds a tick's answers, or is nil when only connections and the inventory are
// looked at.
func (e *Engine) pass(a *answers) {
	began := e.now()
	now := began
	snap := e.rosters.now()
	e.updateLinks(snap.Snapshot, now)
	removed := e.removed
	e.removed = nil
	news := a != nil || len(removed) > 0 || e.view.Load() == nil || e.view.Load().Snapshot != snap.Snapshot
	for i, site := range snap.Sites {
		m := e.aligned[i]
		if !site.Counts() {
			continue
		}
		j := -1
		if a != nil {
			if j = i; a.snap.Snapshot != snap.Snapshot {
				j = a.snap.Find(site.ID.Tenant, site.ID.Name)
			}
		}
		if j >= 0 {
			e.evaluate(m, a, j, now)
			news = true
		} else if m.changed || m.state == nil {
			e.relink(m, snap.of[i], now)
			news = true
		}
		m.changed = false
	}
	if a != nil {
		e.ticks++
		e.answers = a
	}
	if news {
		e.publish(snap, a, removed, now)
	}
	if a != nil {
		e.metrics.tick.Observe(e.now().Sub(a.at).Seconds())
		e.metrics.evaluate.Observe(e.now().Sub(began).Seconds())
		e.metrics.lastTick.Set(float64(now.UnixMilli()) / 1000)
	}
}

// evaluate computes a site's health from a tick's answers; j is its position there.
func (e *Engine) evaluate(m *memory, a *answers, j int, now time.Time) {
	b := a.plan.binding(a.snap.of[j])
	n := len(b.query)
	r := health.Readings{Signals: slices.Grow(e.scratch[:0], n)[:n], Plain: slices.Grow(e.plain[:0], n)[:n]}
	e.scratch, e.plain = r.Signals, r.Plain
	home := a.home[j]
	store := home >= int32(len(e.regionals))
	m.fromStore = store
	switch {
	case store:
		e.fromStore(m, a, j, b)
		r.At = m.readAt
	case home != homeUnknown && a.places[home].late:
		e.fromStore(m, a, j, b) // the link alone: the readings are fresh
		m.readAt = time.Time{}
	default:
		m.store, m.readAt = health.LinkUnknown, time.Time{}
	}
	if home == homeUnknown && m.home != homeUnknown {
		r.At = e.regionals[m.home].at // what holds is as old as that
	}
	r.Signals, r.Packs = e.scratch, slices.Grow(e.found[:0], len(b.packs))[:len(b.packs)]
	e.found = r.Packs
	why := ""
	if home == homeUnknown && m.home != homeUnknown {
		why = e.away(m, a, j)
	}
	a.read(&r, j, b, why)
	b.withhold(&r, m, now)
	r.Link, r.LinkSince, r.Reconnects = m.link, m.since, m.reconnects(now)
	m.state = health.EvaluateNew(b.model, &r, m.state, now)
	p := a.snap.shadowOf(j)
	if p == nil {
		m.shadow = nil
		return
	}
	b = a.plan.binding(p)
	r.Signals, r.Plain, r.Packs = make([]health.Reading, len(b.query)), make([]float64, len(b.query)), make([]bool, len(b.packs))
	a.read(&r, j, b, why)
	b.withhold(&r, m, now)
	m.shadow = health.EvaluateNew(b.model, &r, m.shadow, now)
}

// read takes what the answers say of a site into r, whose Signals, Plain and Packs have the
// lengths of the binding's; away is why there are no answers about it.
func (a *answers) read(r *health.Readings, j int, b *binding, away string) {
	home, uplink := a.home[j], b.model.Uplink()
	for i, q := range b.query {
		if q >= 0 && home != homeUnknown && a.errs[q] == nil && a.have[q][j] {
			if v := a.value[q][j]; b.model.Well(i, v) {
				r.Plain[i] = v
				continue
			}
		}
		r.Plain[i] = math.NaN()
		rd := &r.Signals[i]
		*rd = health.Reading{}
		switch {
		case i == uplink:
		case q < 0:
			rd.Err = b.err[i]
		case home == homeUnknown:
			rd.Err = away
		case len(a.errs[q]) > 0 && a.errs[q][home] != "":
			rd.Err = a.errs[q][home]
		case a.have[q][j]:
			rd.Value, rd.Known = a.value[q][j], true
			if o := b.objects[i]; o >= 0 && !b.model.Well(i, rd.Value) {
				rd.Objects = a.named[o][int32(j)]
			}
		}
	}
	for i, q := range b.packs {
		r.Packs[i] = q >= 0 && home != homeUnknown && a.have[q][j] && a.value[q][j] > 0
	}
}

// away says why nothing is known of a site's readings.
func (e *Engine) away(m *memory, a *answers, j int) string {
	why := "regional " + e.regionals[m.home].Name + ": " + e.regionals[m.home].err
	if behind := a.behind[int32(j)]; behind != "" {
		why += "; " + behind
	}
	return why
}

// storeFresh is how old the last push may be, as the store has it, of a site that is
// connected, and what the store has of a regional: the gateway writes both every 15 s, and
// they have a way to go.
const storeFresh = time.Minute

// fromStore takes what series say about the connection of a site whose regional is away,
// or has no live view. The link itself is judged on the next look.
func (e *Engine) fromStore(m *memory, a *answers, j int, b *binding) {
	m.store, m.storeAt, m.readAt = health.LinkUnknown, a.at, a.at
	if q := b.query[b.model.Uplink()]; q >= 0 && a.have[q][j] {
		m.store = health.LinkDown
		if a.value[q][j] >= 0.5 {
			m.store = health.LinkUp
		}
	}
	if q := a.plan.pushed; a.have[q][j] {
		m.readAt = earlier(time.UnixMilli(int64(a.value[q][j]*1000)), a.at)
		if !m.streams && a.at.Sub(m.readAt) < storeFresh { // it only ever pushes
			m.store = health.LinkUp
		}
	}
}

// relink evaluates a site whose link changed since the last tick, or which is new.
func (e *Engine) relink(m *memory, p *policy, now time.Time) {
	model := e.opts.Shipped
	if p != nil {
		model = p.model
	}
	prev := m.state
	if prev != nil && prev.Model != model && len(prev.Model.Signals) > 0 {
		model = prev.Model // an edited policy waits for the tick that asks its queries
	}
	r := health.Readings{Link: m.link, LinkSince: m.since, Reconnects: m.reconnects(now), LiveOnly: true}
	m.state = health.EvaluateNew(model, &r, prev, now)
	if m.shadow != nil {
		m.shadow = health.EvaluateNew(m.shadow.Model, &r, m.shadow, now)
	}
}

func (e *Engine) publish(snap *roster, a *answers, removed []fleet.SiteID, now time.Time) {
	e.version++
	v := &View{Version: e.version, Tick: e.ticks, AsOf: now, Snapshot: snap.Snapshot, left: e.left, Sites: make([]*Site, len(snap.Sites))}
	u := &Update{View: v, Removed: removed, Tick: a != nil}
	var counts [4]int
	var reports []status.SiteReport
	if a != nil {
		reports = make([]status.SiteReport, 0, len(snap.Sites))
	}
	for i, site := range snap.Sites {
		m := e.aligned[i]
		s := &Site{Site: site, State: m.state, Phase: phaseOf(site.Phase, m.link), LastSeen: m.seen, home: m.home, before: m.before, Maintenance: site.MaintenanceAt(now)}
		if p := snap.of[i]; p.plain() != nil {
			s.Policy, s.Overrides = p.Name, p.overrides
		}
		if p := snap.shadowOf(i); p != nil && m.shadow != nil {
			s.Shadow, s.ShadowPolicy = m.shadow, p.Name
		}
		if m.home != homeUnknown {
			s.Home = e.regionals[m.home].Name
			s.FromStore = m.fromStore
		}
		v.Sites[i] = s
		seen := visible(m.sent, s)
		if seen {
			u.Sites = append(u.Sites, s)
			u.Turned = append(u.Turned, m.sent == nil || m.sent.Colour() != s.Colour() || m.sent.Phase != s.Phase)
			m.sent = s
		}
		if s.State == nil {
			continue
		}
		counts[int(s.State.Colour.Number())]++
		if a != nil || seen {
			reports = append(reports, report(s))
		}
	}
	e.aggregate(v, u)
	if a != nil {
		v.Policies = e.fare(v, a)
		e.reportPolicies(v, a)
	} else if old := e.view.Load(); old != nil {
		v.Policies = old.Policies
	}
	for c, name := range []fleet.Colour{fleet.Grey, fleet.Green, fleet.Orange, fleet.Red} {
		e.metrics.sites.WithLabelValues(string(name)).Set(float64(counts[c]))
	}
	e.view.Store(v)
	if dropped := e.hub.Publish(u); dropped > 0 {
		e.metrics.dropped.Add(float64(dropped))
	}
	e.opts.Status.ForgetSites(removed)
	e.opts.Status.ReportSites(reports)
	if a != nil {
		e.writer.take(v)
	}
}

func report(s *Site) status.SiteReport {
	r := status.SiteReport{Site: s.Site, Score: s.State.Score, Known: s.State.Known, Colour: s.State.Colour, Since: s.State.Since, Never: s.State.Link == health.LinkNever}
	if len(s.State.Reasons) > 0 {
		r.Reason = s.State.Reasons[0].Text
	}
	return r
}

func phaseOf(p fleet.Phase, l health.Link) fleet.Phase {
	if p == fleet.PhaseApproved || p == fleet.PhaseOnline || p == fleet.PhaseOffline {
		switch l {
		case health.LinkUp:
			return fleet.PhaseOnline
		case health.LinkDown:
			return fleet.PhaseOffline
		}
	}
	return p
}

func (e *Engine) aggregate(v *View, u *Update) {
	now := make(map[[2]string]*VirtualSite, len(v.Snapshot.VirtualSites))
	for _, def := range v.Snapshot.VirtualSites {
		e.members = e.members[:0]
		for _, i := range def.Members {
			s := v.Sites[i]
			score, known := s.Score()
			e.members = append(e.members, health.Member{Name: s.ID.Name, Score: score, Known: known, Colour: s.Colour(), Maintenance: s.Maintenance != nil})
		}
		x := &VirtualSite{VirtualSite: def}
		x.Aggregate, e.scores = health.Summarize(e.members, e.scores)
		v.VirtualSites = append(v.VirtualSites, x)
		key := [2]string{def.Tenant, def.Key()}
		sent := e.virtual[key]
		if visibleVirtual(sent, x) {
			u.VirtualSites = append(u.VirtualSites, x)
			sent = x
		}
		now[key] = sent
	}
	e.virtual = now
}

// shippedName is what the shipped policy is called where it applies.
const shippedName = "(shipped)"

// fare counts how each policy does.
func (e *Engine) fare(v *View, a *answers) []*Policy {
	by := map[*policy]*Policy{}
	out := []*Policy{}
	add := func(p *policy, m *health.Model) *Policy {
		x := &Policy{Name: shippedName}
		if p != nil {
			x.Tenant, x.Name, x.Shadow = p.Tenant, p.Name, p.Policy.Shadow()
			if hp, ok := p.Object.(*v1alpha1.HealthPolicy); ok {
				x.Spec = &hp.Spec
			}
			if p.err != nil {
				x.Err = p.err.Error()
			}
		}
		if m != nil {
			x.Signals = make([]SignalStat, len(m.Signals))
			b := a.plan.binding(p)
			for i := range m.Signals {
				x.Signals[i] = SignalStat{Name: m.Signals[i].Name, Dimension: m.Signals[i].Dimension}
				a.account(&x.Signals[i], b, i)
			}
			for _, slow := range a.snap.variants {
				if slow.pace > 0 && slow.plain() == p {
					for i := range x.Signals {
						a.account(&x.Signals[i], a.plan.binding(slow), i)
					}
				}
			}
		}
		by[p] = x
		out = append(out, x)
		return x
	}
	for _, p := range a.snap.policies {
		add(p, p.model)
	}
	for j, site := range a.snap.Sites {
		if !site.Counts() {
			continue
		}
		p := by[a.snap.of[j].plain()]
		if p == nil {
			p = add(nil, e.opts.Shipped) // none applies: all others are in the snapshot
		}
		p.Sites++
		i := j
		if v.Snapshot != a.snap.Snapshot {
			i = v.Snapshot.Find(site.ID.Tenant, site.ID.Name)
		}
		if i < 0 {
			continue
		}
		p.knows(v.Sites[i].State)
		if shadow := a.snap.shadowOf(j); shadow != nil {
			p := by[shadow.plain()]
			p.Sites++
			p.knows(v.Sites[i].Shadow)
			p.compare(v.Sites[i])
		}
	}
	return out
}

// account adds to a signal how its query did.
func (a *answers) account(x *SignalStat, b *binding, signal int) {
	why := b.err[signal]
	if q := b.query[signal]; q >= 0 {
		x.Millis = max(x.Millis, a.millis[q])
		why = joinErrors(a.errs[q])
	}
	if x.Err == "" {
		x.Err = why
	}
}

// knows counts the signals that have a value in a state of the policy.
func (p *Policy) knows(st *health.State) {
	if st == nil || len(st.Signals) != len(p.Signals) {
		return
	}
	for k := range st.Signals {
		if st.Signals[k].Known {
			p.Signals[k].SitesKnown++
		}
	}
}

// maxExamples of sites whose colour a policy in shadow would change are named.
const maxExamples = 5

// compare counts a site whose colour the policy in shadow would change.
func (p *Policy) compare(s *Site) {
	if s.State == nil || s.Shadow == nil || s.Shadow.Colour == s.State.Colour {
		return
	}
	if p.WouldChange++; len(p.Examples) >= maxExamples {
		return
	}
	text := fmt.Sprintf("%s: %s → %s", s.ID.Name, s.State.Colour, s.Shadow.Colour)
	if r := s.Shadow.Reasons; len(r) > 0 {
		text += ": " + r[0].Text
	}
	p.Examples = append(p.Examples, text)
}

func joinErrors(errs map[int32]string) string {
	var texts []string
	for _, place := range slices.Sorted(maps.Keys(errs)) {
		texts = append(texts, errs[place])
	}
	return few.Of(texts, 3, "; ")
}

func (e *Engine) reportPolicies(v *View, a *answers) {
	failed := 0
	for _, errs := range a.errs {
		failed += len(errs)
	}
	e.metrics.failed.Add(float64(failed))
	reports := make([]status.PolicyReport, 0, len(a.snap.policies))
	for i, p := range a.snap.policies {
		x := v.Policies[i]
		r := status.PolicyReport{Policy: p.Policy, Err: p.err, Sites: x.Sites, Shadow: x.Shadow, WouldChange: x.WouldChange, Examples: x.Examples}
		for _, s := range x.Signals {
			if s.Err != "" {
				r.Failing = append(r.Failing, s.Name+": "+s.Err)
			}
		}
		reports = append(reports, r)
	}
	e.opts.Status.ReportPolicies(reports)
}
