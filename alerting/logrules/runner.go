package logrules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/turns"
)

// Runner evaluates the rules while this process owns them.
type Runner struct {
	o     Options
	lease *lease
	m     *metrics

	mu      sync.Mutex
	known   bool // SetRules was called
	plans   map[objectID][]*plan
	bad     map[objectID]bool
	made    map[objectID]made
	ruleErr []RuleError
	status  Status
	// readTo is when, by the own clock, what the rule furthest behind has read was taken
	// in. It stands still while nothing can be read, and is now where that is not asked
	// of this process.
	readTo time.Time

	// What follows belongs to the evaluation; see once.
	units map[unitID]*unit
	index *index
	epoch int64
	slots *turns.Slots
}

// Status is what a Runner is doing; it is JSON for the debug page.
type Status struct {
	Owner    bool      `json:"owner"`
	Epoch    int64     `json:"epoch,omitempty"`
	LastRun  time.Time `json:"lastRun,omitzero"`
	LastTook string    `json:"lastTook,omitempty"`
	// BehindSeconds is how far the rule furthest behind has read, before the store's now.
	BehindSeconds float64      `json:"behindSeconds"`
	Rules         int          `json:"rules"` // times tenants
	Error         string       `json:"error,omitempty"`
	Bad           []string     `json:"bad,omitempty"` // objects that can't be used
	Units         []UnitStatus `json:"units,omitempty"`
}

// UnitStatus tells what is not right with a rule over one tenant's sites.
type UnitStatus struct {
	Tenant string `json:"tenant"`
	Object string `json:"object"`
	Rule   string `json:"rule"`
	Sites  string `json:"sitesOf"`
	Error  string `json:"error,omitempty"`
	// Truncated: the store had more groups than one answer may have; Cut: so many keys
	// and values, so far, had no room.
	Truncated     bool    `json:"truncated,omitempty"`
	Cut           int64   `json:"cut,omitempty"`
	BehindSeconds float64 `json:"behindSeconds,omitempty"`
}

// New returns a Runner that has no rules yet.
func New(o Options) (*Runner, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	return &Runner{o: o, lease: newLease(o), m: newMetrics(o.Registerer), plans: map[objectID][]*plan{}, bad: map[objectID]bool{}, readTo: o.Now(), units: map[unitID]*unit{},
		slots: turns.New(o.Concurrency, o.Concurrency, max(1, o.Concurrency-1))}, nil
}

// Run evaluates until the context ends, whenever this process owns the rules.
func (r *Runner) Run(ctx context.Context) {
	done := make(chan struct{})
	r.keep(ctx)
	go func() {
		defer close(done)
		r.hold(ctx)
	}()
	tick := time.NewTicker(r.o.Interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		r.once(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	<-done
	// Only now is nothing sent any more.
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := r.lease.release(release); err != nil {
		r.o.Logger.Warn("can't give up the lease of the log rules; it runs out by itself", "error", err)
	}
}

// hold gets and renews the lease.
func (r *Runner) hold(ctx context.Context) {
	tick := time.NewTicker(max(r.o.LeaseTTL/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.keep(ctx)
		}
	}
}

func (r *Runner) keep(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, r.o.LeaseTTL/3)
	defer cancel()
	if err := r.lease.step(call); err != nil && ctx.Err() == nil {
		r.o.Logger.Warn("lease of the log rules", "error", err)
	}
	_, owner := r.lease.epoch()
	r.m.owner.Set(boolean(owner))
	r.behind() // also while an evaluation waits for a store that hangs
}

// behind works out how far the rules are behind by now, and tells it to the metrics.
func (r *Runner) behind() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.o.Now()
	others := r.lease.isOthers()
	if others {
		r.m.rules.Set(0)
	}
	if others || !r.hasRulesLocked() {
		r.readTo = now
	}
	d := max(0, now.Sub(r.readTo))
	r.m.behind.Set(d.Seconds())
	return d
}

func (r *Runner) hasRulesLocked() bool {
	for _, ps := range r.plans {
		if len(ps) > 0 {
			return true
		}
	}
	return false
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// once evaluates every rule. It is called from one goroutine.
func (r *Runner) once(ctx context.Context) {
	epoch, owner := r.lease.epoch()
	if !owner || epoch != r.epoch {
		r.units, r.index, r.epoch = map[unitID]*unit{}, nil, epoch // others may have written since
	}
	if !owner {
		behind := r.behind().Seconds()
		r.set(func(s *Status) { *s = Status{LastRun: s.LastRun, BehindSeconds: behind} })
		return
	}
	r.mu.Lock()
	known, plans, bad := r.known, r.plans, r.bad
	r.mu.Unlock()
	sites := r.o.Sites()
	if !known || sites == nil {
		behind := r.behind().Seconds()
		r.set(func(s *Status) {
			*s = Status{Owner: true, Epoch: epoch, BehindSeconds: behind, Error: "the rules or the sites are not known yet"}
		})
		return
	}
	start := r.o.Now()
	err := r.evaluate(ctx, plans, bad, sites)
	if err != nil && ctx.Err() == nil {
		r.o.Logger.Warn("log rules", "error", err)
	}
	r.report(epoch, start, err)
}

// evaluate returns what concerns all rules; what concerns one is with its unit.
func (r *Runner) evaluate(ctx context.Context, plans map[objectID][]*plan, bad map[objectID]bool, sites []Site) error {
	now, err := r.o.Source.Now(ctx)
	if err != nil {
		// What waits to be sent does not need the store, but nothing can be judged.
		err = fmt.Errorf("ask the store for its time: %w", err)
	}
	byTenant := map[string][]Site{}
	for _, s := range sites {
		byTenant[s.Tenant] = append(byTenant[s.Tenant], s)
	}
	want := map[unitID]*plan{}
	for id, ps := range plans {
		tenants := []string{id.tenant}
		if id.tenant == fleet.PlatformTenant {
			tenants = slices.Collect(maps.Keys(byTenant))
		}
		for _, p := range ps {
			for _, t := range tenants {
				want[unitID{id.tenant, id.name, p.rule.Name, t}] = p
			}
		}
	}
	w := &owner{Options: r.o, epoch: r.lease.epoch, m: r.m}
	if ierr := r.reindex(ctx, w, want, bad); ierr != nil {
		return errors.Join(err, ierr)
	}
	units := map[string][]*unit{} // by whose rule it is
	for id, p := range want {
		u := r.units[id]
		if u == nil {
			u = &unit{id: id, readTo: r.start()}
			r.units[id] = u
		}
		u.plan = p
		units[id.Tenant] = append(units[id.Tenant], u)
	}
	r.inTurns(ctx, units, func(u *unit) {
		u.err = r.guard(func() error { return u.turn(ctx, w, selected(u.plan, byTenant[u.id.Sites]), now) })
		if u.err != nil {
			r.m.errors.Inc()
		}
	})
	return err
}

// inTurns evaluates the units of all tenants, each tenant's own beginning with what had its
// turn longest ago. They share what runs at one time, and who had the time between two rounds to
// itself goes on in the next one: many rules, or slow ones, hold up their own tenant.
func (r *Runner) inTurns(ctx context.Context, units map[string][]*unit, evaluate func(*unit)) {
	began := r.o.Now()
	var all sync.WaitGroup
	for tenant, us := range units {
		slices.SortFunc(us, func(a, b *unit) int {
			return cmp.Or(a.turned.Compare(b.turned), cmp.Compare(a.id.String(), b.id.String()))
		})
		var used atomic.Int64
		var g errgroup.Group
		g.SetLimit(r.o.Concurrency)
		all.Go(func() {
			for _, u := range us {
				g.Go(func() error {
					release, err := r.slots.Acquire(ctx, turns.Class{Tenant: tenant})
					if err != nil {
						return nil // the end
					}
					defer release()
					from := r.o.Now()
					if from.Sub(began) >= r.o.Interval && time.Duration(used.Load()) >= r.o.Interval {
						return nil
					}
					u.turned = from
					evaluate(u)
					used.Add(int64(r.o.Now().Sub(from)))
					return nil
				})
			}
			_ = g.Wait()
		})
	}
	all.Wait()
}

// guard keeps a rule that panics from the others.
func (r *Runner) guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("internal error: %v", p)
			r.o.Logger.Error("log rule", "panic", p)
		}
	}()
	r.m.evaluations.Inc()
	return f()
}

// turn evaluates, and starts anew from the State after anything that went wrong there.
func (u *unit) turn(ctx context.Context, w *owner, sites map[string]Site, now time.Time) error {
	complete := false
	defer func() {
		if !complete {
			u.st = nil // it panicked half way
		}
	}()
	err := u.evaluate(ctx, w, sites, now)
	complete = true
	return err
}

func selected(p *plan, sites []Site) map[string]Site {
	out := make(map[string]Site, len(sites))
	for _, s := range sites {
		if p.selects(s) {
			out[s.Name] = s
		}
	}
	return out
}

func siteNames(sites map[string]Site) []string { return slices.Sorted(maps.Keys(sites)) }

// start is from when a rule counts as behind that was not evaluated yet.
func (r *Runner) start() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.readTo
}

func (r *Runner) set(f func(*Status)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.status)
}

func (r *Runner) report(epoch int64, start time.Time, err error) {
	s := Status{Owner: true, Epoch: epoch, LastRun: start, LastTook: r.o.Now().Sub(start).String(), Rules: len(r.units)}
	if err != nil {
		s.Error = err.Error()
	}
	now := r.o.Now()
	readTo := now
	for id, u := range r.units {
		if u.readTo.Before(readTo) {
			readTo = u.readTo
		}
		u.behind = max(0, now.Sub(u.readTo))
		us := UnitStatus{Tenant: id.Tenant, Object: id.Object, Rule: id.Rule, Sites: id.Sites, Truncated: u.truncated, Cut: u.cut, BehindSeconds: u.behind.Seconds()}
		if u.err != nil {
			us.Error = u.err.Error()
			r.o.Logger.Warn("log rule", "rule", id.String(), "error", u.err)
		}
		if us.Error != "" || us.Truncated || us.Cut > 0 {
			s.Units = append(s.Units, us)
		}
	}
	slices.SortFunc(s.Units, func(a, b UnitStatus) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Sites, b.Sites))
	})
	if err == nil { // else nothing was read, and there may be no units
		r.mu.Lock()
		r.readTo = readTo
		r.mu.Unlock()
	}
	s.BehindSeconds = r.behind().Seconds()
	r.m.rules.Set(float64(s.Rules))
	r.set(func(out *Status) { *out = s })
}

// Status returns a Status.
func (r *Runner) Status() any {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	for _, e := range r.ruleErr {
		s.Bad = append(s.Bad, e.Error())
	}
	return s
}

const indexKey = "logrules/index"

// index is which units have a state, so that what no rule stands behind any more is
// found again by an owner that never knew it.
type index struct {
	units   map[unitID]bool
	version string
}

// reindex writes new units into the index, before they get a state, and retires those
// that are no more. The units of an object that can't be read stay.
func (r *Runner) reindex(ctx context.Context, w *owner, want map[unitID]*plan, bad map[objectID]bool) error {
	if r.index == nil {
		if err := r.readIndex(ctx); err != nil {
			return err
		}
	}
	changed := false
	for id := range want {
		if !r.index.units[id] {
			r.index.units[id], changed = true, true
		}
	}
	if changed {
		if err := r.writeIndex(ctx, w); err != nil {
			return err
		}
	}
	changed = false
	var errs []error
	for id := range r.index.units {
		if want[id] != nil || bad[objectID{id.Tenant, id.Object}] {
			continue
		}
		u := cmp.Or(r.units[id], &unit{id: id})
		if err := u.retire(ctx, w); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", id, err))
			continue
		}
		delete(r.units, id)
		delete(r.index.units, id)
		changed = true
	}
	if changed {
		errs = append(errs, r.writeIndex(ctx, w))
	}
	if err := errors.Join(errs...); err != nil {
		r.o.Logger.Warn("log rules that are no more", "error", err) // tried again; the others go on
	}
	return nil
}

func (r *Runner) readIndex(ctx context.Context) error {
	b, version, err := r.o.State.Get(ctx, indexKey)
	if errors.Is(err, ErrNoState) {
		r.index = &index{units: map[unitID]bool{}}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the index: %w", err)
	}
	ids, err := decodeIndex(b)
	if err != nil {
		return fmt.Errorf("read the index: %w", err)
	}
	r.index = &index{ids, version}
	return nil
}

func decodeIndex(b []byte) (map[unitID]bool, error) {
	var list []unitID
	if err := unpack(b, &list); err != nil {
		return nil, err
	}
	out := make(map[unitID]bool, len(list))
	for _, id := range list {
		out[id] = true
	}
	return out, nil
}

func (r *Runner) writeIndex(ctx context.Context, w *owner) error {
	if _, err := w.mine(); err != nil {
		return err
	}
	list := slices.SortedFunc(maps.Keys(r.index.units), func(a, b unitID) int { return cmp.Compare(a.String(), b.String()) })
	b, err := pack(list)
	if err != nil {
		return err
	}
	version, err := r.o.State.Put(ctx, indexKey, b, r.index.version)
	if err != nil {
		r.index = nil // read it again
		return fmt.Errorf("write the index: %w", err)
	}
	r.index.version = version
	return nil
}

type metrics struct {
	owner, behind, rules                                           prometheus.Gauge
	evaluations, errors, matches, sent, sendErrors, cut, truncated prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "muster", Subsystem: "logrules", Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "muster", Subsystem: "logrules", Name: name, Help: help})
	}
	m := &metrics{
		owner:       gauge("owner", "1 while this process evaluates the log rules of its store."),
		behind:      gauge("behind_seconds", "How far the log rule furthest behind has read, before the store's now; while the store can't be read it grows, and while another process has the rules it is 0."),
		rules:       gauge("rules", "Log rules evaluated, times the tenants whose sites they look at."),
		evaluations: counter("evaluations_total", "Evaluations of a log rule."),
		errors:      counter("evaluation_errors_total", "Evaluations of a log rule that failed and are made up for by the next one."),
		matches:     counter("matches_total", "What log rules found, before realert and aggregation."),
		sent:        counter("alerts_sent_total", "Alerts handed on, those that are sent again included."),
		sendErrors:  counter("send_errors_total", "Attempts to hand alerts on that failed; they are made again."),
		cut:         counter("cut_total", "Values of query_key, terms and alerts left out because a rule had no room for more."),
		truncated:   counter("truncated_total", "Answers of the store that were cut off: some lines were not counted."),
	}
	if reg != nil {
		reg.MustRegister(m.owner, m.behind, m.rules, m.evaluations, m.errors, m.matches, m.sent, m.sendErrors, m.cut, m.truncated)
	}
	return m
}
