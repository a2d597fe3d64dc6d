package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health"
	"muster.dev/muster/internal/fairshare"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/internal/wire"
)

// Trial is what a policy that is not in force would make of a tenant's sites.
type Trial struct {
	AsOf time.Time
	// Sites that the policy would be in force for, or no longer would be.
	Sites []Tried
	// Signals of the policy, with what its queries answered.
	Signals []SignalStat
	// Late are the regionals, or the store, that were not waited for any longer, in order, and
	// Waiting the sites of which they would have told, which are not among Sites.
	Late    []wire.MissingRegion
	Waiting int
}

// Tried is a site, and what the policy in force and the tried one make of the same
// readings in the long run.
type Tried struct {
	Site          *Site
	Before, After health.State
}

var (
	// ErrTrying: the tenant tries a policy already, or too many tenants do.
	ErrTrying = errors.New("another policy is being tried; try again in a few seconds")
	// ErrNotEvaluated: there is nothing to compare with yet.
	ErrNotEvaluated = errors.New("the first evaluation is not done yet; try again in a few seconds")
)

const (
	// maxTrials at one time, of different tenants.
	maxTrials = 3
	// tryFor is how long the queries of one may take.
	tryFor = 20 * time.Second
	// waitFor is how long one waits for its turn. Whoever tried least of late goes first.
	waitFor = 8 * time.Second
	// maxWaiting of all tenants, of which one may hold as many as it leaves free.
	maxWaiting = 16
)

// trials are the turns of those that run.
type trials struct {
	slots   *turns.Slots
	waiting *fairshare.Shares
}

func newTrials() trials {
	return trials{turns.New(maxTrials, maxTrials, 1), fairshare.NewShares(maxWaiting)}
}

func (t *trials) begin(ctx context.Context, tenant string) (end func(), err error) {
	if !t.waiting.Take(tenant) {
		return nil, ErrTrying
	}
	defer t.waiting.Give(tenant)
	wait, cancel := context.WithTimeout(ctx, waitFor)
	defer cancel()
	end, err = t.slots.Acquire(wait, turns.Class{Tenant: tenant})
	switch {
	case ctx.Err() != nil && err != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, ErrTrying
	}
	return end, nil
}

// Try evaluates a tenant's sites as the candidate would, and as the policies in force do,
// with readings of this moment. A policy of the candidate's name is replaced by it. All
// queries are confined to the tenant. Whether it is in shadow makes no difference. An error other than ErrTrying and ErrNotEvaluated
// says what is wrong with the candidate. Once one regional has answered, the others are waited for until patience
// is at its end; 0: as long as they may take. Any goroutine may call it.
func (e *Engine) Try(caller context.Context, tenant string, candidate *v1alpha1.HealthPolicy, patience time.Duration) (*Trial, error) {
	v, c, end, err := e.rehearse(caller, tenant, candidate)
	if err != nil {
		return nil, err
	}
	defer end()
	a := e.answersFor(v, c)
	ctx, cancel := context.WithTimeout(caller, tryFor)
	defer cancel()
	late := e.askTrial(ctx, a, patience)
	out := &Trial{AsOf: v.AsOf, Signals: statsOf(c.candidate, a), Late: late.regions}
	for _, j := range c.sites {
		if caller.Err() != nil {
			return nil, caller.Err() // nobody waits for it any more
		}
		if late.places[a.home[j]] {
			out.Waiting++
			continue
		}
		s := v.Sites[j]
		before := e.settle(a, j, c.before[j], s, v.AsOf)
		after := e.settle(a, j, c.after[j], s, v.AsOf)
		out.Sites = append(out.Sites, Tried{s, before, after})
		if c.after[j].plain() != c.candidate {
			continue
		}
		for i := range out.Signals {
			if after.Signals[i].Known {
				out.Signals[i].SitesKnown++
			}
		}
	}
	return out, nil
}

// rehearse begins a trial: the view that it is about, and who plays in it. If there is no
// error, end must be called.
func (e *Engine) rehearse(ctx context.Context, tenant string, candidate *v1alpha1.HealthPolicy) (v *View, c *cast, end func(), err error) {
	if end, err = e.trials.begin(ctx, tenant); err != nil {
		return nil, nil, nil, err
	}
	if v = e.view.Load(); v == nil {
		err = ErrNotEvaluated
	} else {
		c, err = e.cast(v, tenant, candidate)
	}
	if err != nil {
		end()
	}
	return v, c, end, err
}

// cast is who plays in a trial.
type cast struct {
	candidate     *policy
	sites         []int     // positions of those for which something changes
	before, after []*policy // of each site
	plan          *plan

	variants *rosters
	of       *roster // that has them
}

// at is a policy of the cast as it is for a site at another pace.
func (c *cast) at(p *policy, site *inventory.Site, pace time.Duration) *policy {
	if p.pace == pace {
		return p
	}
	base := p
	if p.base != nil {
		base = p.base
	}
	return c.variants.with(c.of, base, p.overrides, site, pace)
}

func (e *Engine) cast(v *View, tenant string, hp *v1alpha1.HealthPolicy) (*cast, error) {
	selector, err := metav1.LabelSelectorAsSelector(&hp.Spec.SiteSelector)
	if err != nil {
		return nil, fmt.Errorf("spec.siteSelector: %w", err)
	}
	p := &policy{Policy: &inventory.Policy{Kind: healthPolicies, Tenant: tenant, Name: hp.Name, Priority: hp.Spec.Priority, Object: hp}}
	if p.model, err = modelOf(&hp.Spec); err != nil {
		return nil, fmt.Errorf("spec.%w", err)
	}
	// Queries of the shipped policy are confined to the tenant here as well: nobody else's
	// sites are looked at.
	shipped := &policy{Policy: &inventory.Policy{Kind: healthPolicies, Tenant: tenant}, model: e.opts.Shipped}
	r := &rosters{e: e}
	now := e.now()
	current := r.cast(v.Snapshot, now)
	next := &roster{Snapshot: v.Snapshot}
	out := &cast{candidate: p, variants: r, of: next, before: make([]*policy, len(v.Sites)), after: make([]*policy, len(v.Sites))}
	all := []*policy{p}
	use := func(p *policy, site *inventory.Site) *policy {
		if p.plain() == nil {
			p = r.variant(next, shipped, site, now)
		}
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
		return p
	}
	for j, s := range v.Sites {
		if s.ID.Tenant != tenant || !s.Counts() || s.State == nil || len(s.State.Signals) == 0 {
			continue
		}
		before := current.of[j]
		was := before.plain() != nil && before.Name == hp.Name
		after := before
		if was {
			after = nil // what takes its place if the candidate doesn't
		}
		selects := selector.Matches(labels.Set(s.Labels))
		for _, other := range s.PoliciesOf(healthPolicies) {
			x := r.made[other]
			if other.Name == hp.Name || other.Shadow() || x == nil || x.model == nil {
				continue
			}
			if selects && !stronger(other, p.Policy) {
				break
			}
			after, selects = r.variant(next, x, s.Site, now), false
			break
		}
		if selects {
			after = r.variant(next, p, s.Site, now)
		} else if !was {
			continue
		}
		out.sites = append(out.sites, j)
		out.before[j], out.after[j] = use(before, s.Site), use(after, s.Site)
	}
	out.plan = e.planOnce(all)
	return out, nil
}

// planOnce is a plan of a trial: all of its queries are confined to a tenant, the shipped
// ones too.
func (e *Engine) planOnce(policies []*policy) *plan {
	return (&planner{shipped: e.opts.Shipped, parsed: map[question]parsedQuery{}}).plan(policies)
}

// stronger says whether a policy goes before another, as the inventory has it.
func stronger(a, b *inventory.Policy) bool {
	return a.Priority > b.Priority || a.Priority == b.Priority && a.Name < b.Name
}

// answersFor makes room for the answers about the sites of a trial. Where they are asked
// for is what the view says.
func (e *Engine) answersFor(v *View, c *cast) *answers {
	a := &answers{}
	a.reset(&roster{Snapshot: v.Snapshot}, c.plan, e.now())
	for j := range a.home {
		a.home[j], a.regional[j] = homeUnknown, homeUnknown
	}
	a.places = map[int32]*place{}
	for _, j := range c.sites {
		s := v.Sites[j]
		at := s.home
		if at == homeUnknown || s.FromStore && e.opts.StoreQueryURL == "" {
			continue
		}
		a.regional[j] = at
		if s.FromStore {
			at = int32(len(e.opts.Regionals))
		}
		a.home[j] = at
		if a.places[at] != nil {
			continue
		}
		p := &place{}
		if s.FromStore {
			p.target = target{name: "store", url: e.opts.StoreQueryURL, org: s.ID.Tenant}
		} else {
			reg := e.opts.Regionals[at]
			p.target = target{name: "regional " + reg.Name, url: reg.URL + "/edge/api/v1"}
		}
		a.places[at] = p
	}
	return a
}

// latecomers are the places that a trial did not wait for.
type latecomers struct {
	places  map[int32]bool
	regions []wire.MissingRegion
}

// askTrial returns when all places have answered or failed, or when one has answered and patience is at its end.
func (e *Engine) askTrial(ctx context.Context, a *answers, patience time.Duration) latecomers {
	for q := range a.have {
		clear(a.have[q])
	}
	answered := make(chan struct{})
	ctx, stop := wire.Impatient(ctx, patience, answered)
	defer stop()
	type end struct {
		place int32
		heard bool
	}
	ended := make(chan end, len(a.places))
	for at, p := range a.places {
		var due []int
		for q := range a.plan.queries {
			if query := &a.plan.queries[q]; query.tenant != "" && (!query.storeOnly || p.org != "") {
				due = append(due, q)
			}
		}
		go func() {
			e.runAll(ctx, a, due, p.target, at, e.opts.Concurrency)
			ended <- end{at, a.heard(at, due)}
		}()
	}
	out, first := latecomers{places: map[int32]bool{}}, true
	for range a.places {
		x := <-ended
		if late := context.Cause(ctx); wire.IsLate(late) {
			out.places[x.place] = true
			out.regions = append(out.regions, wire.MissingRegion{Region: strings.TrimPrefix(a.places[x.place].name, "regional "), Reason: late.Error(), Late: true})
		} else if x.heard && first {
			close(answered)
			first = false
		}
	}
	for _, errs := range a.errs {
		for at := range out.places {
			delete(errs, at) // that it was cut off is no fault of the query
		}
	}
	slices.SortFunc(out.regions, func(a, b wire.MissingRegion) int { return strings.Compare(a.Region, b.Region) })
	return out
}

// heard says whether a place has answered any of the queries.
func (a *answers) heard(place int32, queries []int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(queries, func(q int) bool {
		_, failed := a.errs[q][place]
		return !failed
	})
}

func (e *Engine) settle(a *answers, j int, p *policy, s *Site, now time.Time) health.State {
	b := a.plan.binding(p)
	r := health.Readings{Link: s.State.Link, LinkSince: s.State.LinkSince, Signals: make([]health.Reading, len(b.query)), Plain: make([]float64, len(b.query)), Packs: make([]bool, len(b.packs))}
	if i, ok := s.State.Model.Index(health.SignalFlapping); ok && s.State.Signals[i].Known {
		r.Reconnects = int(s.State.Signals[i].Value)
	}
	a.read(&r, j, b, "the site's regional can't be asked")
	return health.Settle(b.model, r, s.State, now, e.opts.Tick)
}

// statsOf are the signals of a policy, with what went wrong with their queries.
func statsOf(p *policy, a *answers) []SignalStat {
	return a.plan.binding(p).stats(func(s *SignalStat, q int) { s.Millis, s.Err = a.millis[q], joinErrors(a.errs[q]) })
}

// stats are the signals of a binding; answered adds what became of the query of one.
func (b *binding) stats(answered func(s *SignalStat, q int)) []SignalStat {
	out := make([]SignalStat, len(b.model.Signals))
	for i := range out {
		out[i] = SignalStat{Name: b.model.Signals[i].Name, Dimension: b.model.Signals[i].Dimension, Err: b.err[i]}
		if q := b.query[i]; q >= 0 {
			answered(&out[i], q)
		}
	}
	return out
}
