package logrules

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"muster.dev/muster/control/api/logrule"
	"muster.dev/muster/control/api/region"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/logquery"
)

// RuleError is an object that can't be used; what it said before stays in effect.
type RuleError struct {
	Tenant, Name string
	Err          error
}

func (e RuleError) Error() string { return fmt.Sprintf("log rules %s/%s: %v", e.Tenant, e.Name, e.Err) }
func (e RuleError) Unwrap() error { return e.Err }

// objectID is a LogRules object.
type objectID struct{ tenant, name string }

// plan is a rule, ready to be evaluated.
type plan struct {
	object   objectID
	rule     v1alpha1.LogRule
	selector labels.Selector
	hash     string // of what decides what the rule counts and finds
	// labelHash is of what an alert's labels come from.
	labelHash string

	keys      []logrule.Field // query_key
	queries   []query
	timeframe int64 // milliseconds, all below; a multiple of step
	segment   int64 // of timeframe, by bucket_interval; without that all of it
	step      int64
	delay     int64
	hold      int64 // how long an alert fires after its match, for its realert
	keep      int64 // and at least
	realert   int64
	longest   int64 // realert of exponential_realert; 0: it does not grow

	height          float64 // spike
	low, high       float64 // thresholds; NaN-free: see hasLow, hasHigh
	hasLow, hasHigh bool
	listed          map[string]bool // blacklist, whitelist
	fromInventory   bool            // every site has a window, heard of or not
	perValue        bool            // the last values of a group's key are not of query_key
	// Of aggregation_key: the fields that query_key has not, and where in a key, and the values of those
	// after it, the alert's are; nil: the alert is of the key itself.
	more     []logrule.Field
	together []int
	alertOf  []logrule.Field // whose values an alert has as labels
	include  []logrule.Field // whose values its annotations may have
	kind     kind
	traits   traits
}

// query is one question to the Source.
type query struct {
	text, metric string
	spread       bool
	by           []string
}

const defaultStep = 10 * time.Second

// forgetAfter is how long a value of query_key is known that no line comes for.
const forgetAfter = 7 * 24 * time.Hour

// made is of what an object's plans are, or why there are none of it.
type made struct {
	spec v1alpha1.LogRulesSpec
	err  error
}

// MaxRules are how many of a tenant's are evaluated; an object that does not fit in whole is
// left out. Each is a question to the store every round, however cheap.
const MaxRules = 500

// SetRules takes the rules of all tenants. An object that can't be used keeps what it
// said before, and is reported. Of a change of one object the others cost nothing.
func (r *Runner) SetRules(tenants []region.Rules) []RuleError {
	r.mu.Lock()
	defer r.mu.Unlock()
	plans, bad, now := map[objectID][]*plan{}, map[objectID]bool{}, map[objectID]made{}
	var errs []RuleError
	for _, t := range tenants {
		room := MaxRules
		for _, set := range t.Logs {
			id := objectID{t.Tenant, set.Name}
			if room -= len(set.Spec.Rules); room < 0 && t.Tenant != fleet.PlatformTenant {
				errs = append(errs, RuleError{t.Tenant, set.Name, fmt.Errorf("with its %d rules the tenant would have more than %d; delete some", len(set.Spec.Rules), MaxRules)})
				room += len(set.Spec.Rules)
				continue
			}
			p := r.plans[id]
			m, had := r.made[id]
			if !had || !reflect.DeepEqual(m.spec, set.Spec) {
				m.spec = set.Spec
				var fresh []*plan
				if fresh, m.err = compile(t.Tenant, set); m.err == nil {
					p = fresh
				}
			}
			if m.err != nil {
				errs = append(errs, RuleError{t.Tenant, set.Name, m.err})
				bad[id] = true
			}
			plans[id], now[id] = p, m
		}
	}
	r.plans, r.bad, r.made, r.known, r.ruleErr = plans, bad, now, true, errs
	return errs
}

func compile(tenant string, set region.LogRuleSet) ([]*plan, error) {
	if errs := logrule.Check(set.Spec); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	selector, err := metav1.LabelSelectorAsSelector(&set.Spec.SiteSelector)
	if err != nil {
		return nil, fmt.Errorf("siteSelector: %w", err)
	}
	var plans []*plan
	for _, r := range set.Spec.Rules {
		p := &plan{object: objectID{tenant, set.Name}, rule: r, selector: selector}
		if err := p.prepare(); err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.Name, err)
		}
		plans = append(plans, p)
	}
	return plans, nil
}

func (p *plan) prepare() error {
	r := p.rule
	var err error
	if p.hash, err = hashOf(decisive(r)); err != nil {
		return err
	}
	labels := []any{r.Name, r.Labels, logrule.Severity(r), r.QueryKey}
	if len(r.AggregationKey) > 0 {
		labels = append(labels, r.AggregationKey)
	}
	if p.labelHash, err = hashOf(labels); err != nil {
		return err
	}
	by := []string{logquery.FieldSite}
	for _, name := range r.QueryKey {
		f, err := logrule.ParseField(name)
		if err != nil {
			return err
		}
		p.keys, by = append(p.keys, f), append(by, f.Name)
	}
	for _, name := range r.Include {
		f, err := logrule.ParseField(name)
		if err != nil {
			return err
		}
		p.include = append(p.include, f)
	}
	p.alertOf = p.keys
	if len(r.AggregationKey) > 0 {
		if by, err = p.aggregate(by); err != nil {
			return err
		}
	}
	p.realert, p.longest = logrule.Realert(r).Milliseconds(), millis(r.ExponentialRealert)
	p.delay = millis(r.QueryDelay)
	p.step, p.timeframe = steps(millis(r.Timeframe))
	p.segment = p.timeframe
	if r.BucketInterval != nil {
		p.timeframe, p.segment = millis(r.Timeframe), millis(r.BucketInterval)
		p.step = stepOfSegment(p.timeframe, p.segment, r.SyncBucketInterval)
	}
	p.hold = max(p.realert, minute)
	if err := p.numbers(); err != nil {
		return err
	}
	if err := p.plan(by); err != nil {
		return err
	}
	if p.traits.repeats {
		// What lasts matches again at the first end of a step after realert, and after
		// aggregation: it fires until then, a step and a minute more.
		p.hold = (p.realert+p.step-1)/p.step*p.step + p.step + millis(r.Aggregation) + minute
	}
	p.keep = logrule.KeepFiringFor(r).Milliseconds()
	return nil
}

// included are the fields that the store is asked for beside a line's message.
func (p *plan) included() (names []string) {
	for _, f := range p.include {
		names = append(names, f.Name)
	}
	return names
}

// aggregate finds where the values of aggregation_key are, and returns what to ask for.
func (p *plan) aggregate(by []string) ([]string, error) {
	p.more, p.alertOf = logrule.Together(p.rule), nil
	for _, f := range p.more {
		by = append(by, f.Name)
	}
	for _, name := range p.rule.AggregationKey {
		f, err := logrule.ParseField(name)
		if err != nil {
			return nil, err
		}
		p.alertOf = append(p.alertOf, f)
		p.together = append(p.together, slices.Index(by, f.Name))
	}
	return by, nil
}

func (p *plan) plan(by []string) error {
	r := p.rule
	ask := func(text, metric string, fields ...string) error {
		q := query{text: text, metric: metric, spread: metric != "" && r.PercentileRange > 0, by: by[:len(by):len(by)]}
		for _, name := range fields {
			f, err := logrule.ParseField(name)
			if err != nil {
				return err
			}
			q.by, p.perValue = append(q.by, f.Name), true
		}
		p.queries = append(p.queries, q)
		return nil
	}
	var err error
	p.kind = kinds[r.Type]
	if p.kind == nil {
		return fmt.Errorf("type %q is not known here", r.Type)
	}
	p.traits, err = p.kind.plan(p, ask)
	p.fromInventory = p.traits.inventory && len(p.keys) == 0
	return err
}

func (p *plan) numbers() error {
	r := p.rule
	parse := func(s string, to *float64, has *bool) error {
		if s == "" {
			return nil
		}
		f, err := strconv.ParseFloat(s, 64)
		if has != nil {
			*has = true
		}
		*to = f
		return err
	}
	for _, n := range []struct {
		s   string
		to  *float64
		has *bool
	}{{r.SpikeHeight, &p.height, nil}, {r.MinThreshold, &p.low, &p.hasLow}, {r.MaxThreshold, &p.high, &p.hasHigh},
		{r.MinPercentage, &p.low, &p.hasLow}, {r.MaxPercentage, &p.high, &p.hasHigh}} {
		if err := parse(n.s, n.to, n.has); err != nil {
			return err
		}
	}
	if r.MinCardinality != nil {
		p.low, p.hasLow = float64(*r.MinCardinality), true
	}
	if r.MaxCardinality != nil {
		p.high, p.hasHigh = float64(*r.MaxCardinality), true
	}
	return nil
}

func millis(d *metav1.Duration) int64 {
	if d == nil {
		return 0
	}
	return d.Milliseconds()
}

// steps returns the step for a timeframe, and the timeframe in whole steps. The step
// is the longest of whole seconds of which 20 to 60 make the timeframe exactly. For a
// timeframe that no such step divides, it is a twentieth, rounded up, and 20 of it are the
// timeframe: 20 seconds more at the most. Under 20 s the step is a second. No step is longer than
// a day, so that a timeframe of a quarter of a year is looked at daily: that makes 90 of it.
func steps(timeframe int64) (step, rounded int64) {
	const second = 1000
	if timeframe == 0 {
		return defaultStep.Milliseconds(), 0
	}
	seconds := timeframe / second
	if seconds <= 20 {
		return second, timeframe
	}
	const day = 24 * 60 * 60
	least := max(20, (seconds+day-1)/day)
	for n := least; n <= max(least, 60); n++ {
		if seconds%n == 0 {
			return seconds / n * second, timeframe
		}
	}
	step = (seconds + least - 1) / least * second
	return step, least * step
}

// stepOfSegment is the shortest step of whole seconds that divides a segment, and of which 60 at most
// are the timeframe. Segments in step with the clock are looked at where they end.
func stepOfSegment(timeframe, segment int64, synced bool) int64 {
	const second = 1000
	if synced {
		return segment
	}
	for n := logrule.MaxSegments * segment / timeframe; n > 1; n-- {
		if segment%(n*second) == 0 {
			return segment / n
		}
	}
	return segment
}

// decisive is the rule without what only says whom to tell what and for how long: another word
// there must not make it forget what it has counted and seen.
func decisive(r v1alpha1.LogRule) v1alpha1.LogRule {
	r.Name, r.Severity, r.Labels, r.Annotations = "", "", nil, nil
	r.Realert, r.ExponentialRealert, r.KeepFiringFor = nil, nil, nil
	r.TopCountKeys, r.TopCountNumber, r.Include = nil, 0, nil
	return r
}

func hashOf(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:12]), nil
}

// selects tells whether the rule looks at a site.
func (p *plan) selects(s Site) bool { return p.selector.Matches(labels.Set(s.Labels)) }
