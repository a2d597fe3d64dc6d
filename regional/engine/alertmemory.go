package engine

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/template"

	"muster.dev/muster/control/api/templates"
	"muster.dev/muster/internal/turns"
)

// Excess is why a tenant's rule gives nothing: it would give more than the engine keeps
// for one tenant. Its text is the same for as long as the rule is.
type Excess struct {
	Kind string // series, alerts, bytes or work
	Text string
}

func (e *Excess) Error() string { return e.Text }

const (
	// maxAlertBytes bounds the labels and annotations of one alert of a tenant, expanded.
	maxAlertBytes = 16 << 10
	// maxRuleWork bounds what the templates of one rule do at one evaluation, in units of
	// templates.Cost: about five seconds.
	maxRuleWork = 5_000_000_000
	// alertOverhead is what an alert takes beside its labels and annotations.
	alertOverhead = 512
	// labelCopies: an alert's labels are in the rule, in its two series and what the group
	// remembers of those, and in the notifier's queue.
	labelCopies = 6
	// resolvedKept is how long a rule keeps an alert that is over (rules.resolvedRetention).
	resolvedKept = 15 * time.Minute
)

// alertMemory bounds what alerts of one tenant's metric rules take in the engine. Prometheus
// expands the templates of all alerts of a rule before it looks at one, without a limit of
// size or time. So what they can come to is worked out from the text and the series that
// the expression gave; only if that is too much they are expanded once to be measured.
//
// Safe for concurrent use.
type alertMemory struct {
	limit    int64 // bytes of one tenant
	external map[string]string
	url      *url.URL
	urlText  string
	now      func() time.Time
	excess   *prometheus.CounterVec

	mu    sync.Mutex
	rules map[*rules.AlertingRule]*ruleMemory
	used  map[string]int64 // by tenant; the sum of its rules' bytes
}

type ruleMemory struct {
	tenant string
	bytes  int64     // that it holds, or will in a moment
	over   time.Time // since when it is over the tenant's bound; zero: it is not
	texts  []*templates.Template
	err    error // of a text
}

func newAlertMemory(o Options, ext *url.URL, reg prometheus.Registerer) *alertMemory {
	m := &alertMemory{
		limit: o.TenantAlertBytes, external: o.ExternalLabels.Map(), url: ext, urlText: o.ExternalURL, now: o.Now,
		excess: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_engine_rule_excess_total", Help: "Evaluations of a tenant's rules that were refused because they give too much: series, alerts, bytes of alerts, or work of templates.",
		}, []string{"tenant", "kind"}),
		rules: map[*rules.AlertingRule]*ruleMemory{}, used: map[string]int64{},
	}
	reg.MustRegister(m.excess, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_engine_tenant_alert_bytes", Help: "Memory of alerts of the tenant that has most."}, func() float64 {
		m.mu.Lock()
		defer m.mu.Unlock()
		most := int64(0)
		for _, n := range m.used {
			most = max(most, n)
		}
		return float64(most)
	}))
	return m
}

// round is one evaluation of a tenant's group. It belongs to the goroutine that evaluates.
type round struct {
	m          *alertMemory
	tenant     string
	processors *turns.Processors
	left       []rules.Rule // from the one that is evaluated on
	rule       *rules.AlertingRule
	turn       *turns.Turn // for what a rule does with its result, templates above all; nil: none
	// drained are rules that gave no alerts so that old ones go, and why.
	drained map[rules.Rule]error
}

type roundKey struct{}

// next finds the rule that is evaluated now: they come in order.
func (r *round) next(ctx context.Context, expr string) *rules.AlertingRule {
	r.settle()
	r.pass()
	name := rules.FromOriginContext(ctx).Name
	for i, x := range r.left {
		if x.Name() == name && x.Query().String() == expr {
			r.left = r.left[i+1:]
			rule, _ := x.(*rules.AlertingRule)
			return rule
		}
	}
	return nil
}

// settle ends the evaluation of a rule: what it holds now counts.
func (r *round) settle() {
	if r.rule != nil {
		r.m.set(r.tenant, r.rule, heldBytes(r.rule))
		r.rule = nil
	}
}

// take waits for a processor, for all that the rule does with what its expression gave.
func (r *round) take(ctx context.Context) (err error) {
	r.turn, err = r.processors.Begin(ctx, turns.Class{Tenant: r.tenant, Background: true})
	return err
}

// pass gives the processor back: before the disk is waited for, and at the end of a rule.
func (r *round) pass() {
	if r.turn != nil {
		r.turn.End()
		r.turn = nil
	}
}

func (r *round) end() {
	r.settle()
	r.pass()
	for rule, err := range r.drained {
		rule.SetHealth(rules.HealthBad)
		rule.SetLastError(err)
	}
}

func (m *alertMemory) ruleLocked(tenant string, rule *rules.AlertingRule) *ruleMemory {
	mem := m.rules[rule]
	if mem == nil {
		mem = &ruleMemory{tenant: tenant}
		for _, ls := range []labels.Labels{rule.Labels(), rule.Annotations()} {
			ls.Range(func(l labels.Label) {
				t, err := templates.Rules.Parse(l.Value)
				mem.texts, mem.err = append(mem.texts, t), errors.Join(mem.err, err)
			})
		}
		m.rules[rule] = mem
	}
	return mem
}

func (m *alertMemory) set(tenant string, rule *rules.AlertingRule, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mem := m.ruleLocked(tenant, rule)
	m.used[tenant] += n - mem.bytes
	mem.bytes = n
}

// keep forgets all other rules.
func (m *alertMemory) keep(groups []*rules.Group) {
	there := map[*rules.AlertingRule]bool{}
	for _, g := range groups {
		for _, r := range g.Rules() {
			if a, ok := r.(*rules.AlertingRule); ok {
				there[a] = true
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for rule, mem := range m.rules {
		if !there[rule] {
			if m.used[mem.tenant] -= mem.bytes; m.used[mem.tenant] == 0 {
				delete(m.used, mem.tenant)
			}
			delete(m.rules, rule)
		}
	}
}

func sizeOf(ls labels.Labels) (n int64) {
	ls.Range(func(l labels.Label) { n += int64(len(l.Name)+len(l.Value)) + 32 })
	return n
}

// nameBytes is what the label alertname takes.
func nameBytes(rule *rules.AlertingRule) int64 {
	return int64(len(labels.AlertName)+len(rule.Name())) + 32
}

func heldBytes(rule *rules.AlertingRule) (n int64) {
	rule.ForEachActiveAlert(func(a *rules.Alert) {
		n += alertOverhead + labelCopies*sizeOf(a.Labels) + sizeOf(a.Annotations)
	})
	return n
}

// admit says whether a tenant's rule may make alerts of what its expression gave. A rule
// that has been over its tenant's bound for as long as alerts that are over are kept gets
// none of it, and the error: nothing else makes it forget them.
func (m *alertMemory) admit(ctx context.Context, r *round, rule *rules.AlertingRule, v promql.Vector, at time.Time) (promql.Vector, error) {
	held := heldBytes(rule)
	m.mu.Lock()
	mem := m.ruleLocked(r.tenant, rule)
	others := m.used[r.tenant] - mem.bytes
	m.mu.Unlock()
	r.rule = rule
	if len(v) == 0 {
		return v, nil
	}
	made, err := m.measure(ctx, mem, rule, v, at, m.limit-others-held)
	if err == nil {
		m.mu.Lock()
		m.used[r.tenant] += held + made - mem.bytes
		mem.bytes, mem.over = held+made, time.Time{}
		m.mu.Unlock()
		return v, nil
	}
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if mem.over.IsZero() {
		mem.over = now
	}
	if held > 0 && now.Sub(mem.over) > resolvedKept {
		r.drained[rule] = err
		m.count(r.tenant, err)
		return nil, nil
	}
	return nil, err
}

// count counts an Excess; other errors are Prometheus' to count.
func (m *alertMemory) count(tenant string, err error) {
	var x *Excess
	if errors.As(err, &x) {
		m.excess.WithLabelValues(tenant, x.Kind).Inc()
	}
}

// measure returns how many bytes the alerts take, or an Excess if one of them, all of them
// or the making of them is too much.
func (m *alertMemory) measure(ctx context.Context, mem *ruleMemory, rule *rules.AlertingRule, v promql.Vector, at time.Time, room int64) (int64, error) {
	if mem.err != nil {
		return 0, &Excess{Kind: "work", Text: "a template can't be bounded: " + mem.err.Error()}
	}
	var bytes, work, longest int64
	names := sizeOf(rule.Labels()) + sizeOf(rule.Annotations()) + nameBytes(rule)
	known := map[[2]int64]templates.Cost{} // by the size of the input: powers of two
	for _, s := range v {
		in := templates.Input{Value: max(512, sizeOf(s.Metric), int64(len(m.urlText))), Items: int64(s.Metric.Len())}
		if s.H != nil {
			in.Value = max(in.Value, 256+64*int64(len(s.H.PositiveBuckets)+len(s.H.NegativeBuckets)+len(s.H.CustomValues)))
		}
		size := [2]int64{1 << bits.Len64(uint64(in.Value)), 1 << bits.Len64(uint64(in.Items))}
		c, ok := known[size]
		if !ok {
			for _, t := range mem.texts {
				one, err := t.Cost(templates.Input{Value: size[0], Items: size[1]})
				if err != nil {
					return 0, &Excess{Kind: "work", Text: fmt.Sprintf("a template of the rule, with labels of up to %d bytes: %v", size[0], err)}
				}
				c.Bytes, c.Work = c.Bytes+one.Bytes, c.Work+one.Work
			}
			known[size] = c
		}
		alert := sizeOf(s.Metric) + names + c.Bytes
		longest = max(longest, alert)
		bytes += alertOverhead + labelCopies*alert // which of the texts are labels does not matter here
		if work += c.Work; work > maxRuleWork {
			return 0, &Excess{Kind: "work", Text: fmt.Sprintf("its templates would take longer than %d s for so many alerts; shorten them, or give fewer alerts", maxRuleWork/1_000_000_000)}
		}
	}
	if bytes <= room && longest <= maxAlertBytes {
		return bytes, nil
	}
	return m.expand(ctx, rule, v, at, room)
}

// expand measures by doing what the rule is about to do, one alert at a time.
func (m *alertMemory) expand(ctx context.Context, rule *rules.AlertingRule, v promql.Vector, at time.Time, room int64) (int64, error) {
	none := func(context.Context, string, time.Time) (promql.Vector, error) {
		return nil, errors.New("not in a template")
	}
	var all int64
	for _, s := range v {
		if err := ctx.Err(); err != nil {
			return 0, promql.ErrQueryCanceled("expanding templates")
		}
		data := template.AlertTemplateData(s.Metric.Map(), m.external, m.urlText, s)
		size := func(ls labels.Labels) (n int64) {
			ls.Range(func(l labels.Label) {
				out, err := template.NewTemplateExpander(ctx, templates.Rules.Defs+l.Value, "__alert_"+rule.Name(), data, model.TimeFromUnixNano(at.UnixNano()), none, m.url, nil).Expand()
				if err != nil {
					out = "<error expanding template: " + err.Error() + ">"
				}
				n += int64(len(l.Name)+len(out)) + 32
			})
			return n
		}
		ls, annotations := sizeOf(s.Metric)+nameBytes(rule)+size(rule.Labels()), size(rule.Annotations())
		if ls+annotations > maxAlertBytes {
			return 0, &Excess{Kind: "bytes", Text: fmt.Sprintf("labels and annotations of an alert are longer than %d bytes together; shorten the templates", maxAlertBytes)}
		}
		if all += alertOverhead + labelCopies*ls + annotations; all > room {
			return 0, &Excess{Kind: "bytes", Text: fmt.Sprintf("the tenant's alerts would take more than %d MiB here; give fewer alerts, or shorten their labels and annotations", m.limit>>20)}
		}
	}
	return all, nil
}

// Failing are the tenants' rules that give nothing: because it would be too much, or because
// their expression fails. One that had no turn, or too little time, may have one next time.
func (e *Engine) Failing() []RuleError {
	tenants := e.loader.tenants()
	var out []RuleError
	for _, g := range (ruleView{e: e}).RuleGroups() {
		if tenants[g.File()] == "" {
			continue
		}
		for _, r := range g.Rules() {
			if err := r.LastError(); err != nil && !passing(err) {
				out = append(out, RuleError{File: g.File(), Group: g.Name(), Err: fmt.Errorf("rule %s: %w", r.Name(), err)})
			}
		}
	}
	return out
}

// passing tells of an error that it is none of the rule's.
func passing(err error) bool {
	var canceled promql.ErrQueryCanceled
	var late promql.ErrQueryTimeout
	var store promql.ErrStorage
	return errors.As(err, &canceled) || errors.As(err, &late) || errors.As(err, &store)
}
