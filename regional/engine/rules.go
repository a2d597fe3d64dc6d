package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"

	"muster.dev/muster/internal/promcost"
	"muster.dev/muster/internal/turns"
)

// RuleGroup is a file of Prometheus rule groups. Without Content it is read from
// the disk.
type RuleGroup struct {
	File string
	// Tenant whose rules they are: they share its slots and are held to what a tenant may
	// use. Empty: the platform's, with reserved slots.
	Tenant  string
	Content []byte
}

// RuleError is a group, or a whole file, that is not evaluated. The others are.
type RuleError struct {
	File, Group string // Group is empty for a file that can't be read
	Err         error
}

func (e RuleError) Error() string {
	if e.Group == "" {
		return fmt.Sprintf("rules %s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("rules %s: group %s: %v", e.File, e.Group, e.Err)
}

func (e RuleError) Unwrap() error { return e.Err }

// ruleLoader gives the rule manager groups that are already parsed, whether they
// came from a file or from memory.
type ruleLoader struct {
	limits promcost.Limits

	mu     sync.Mutex
	files  map[string]*ruleFile
	tenant map[string]string // of each file
	loaded *ruleFile         // that the manager asked for last; it parses what is in it next
}

// ruleFile is a file as it was read. It does not change.
type ruleFile struct {
	tenant  string
	content []byte
	groups  *rulefmt.RuleGroups
	exprs   map[string]parser.Expr
	refused []RuleError
}

func newRuleLoader() *ruleLoader { return &ruleLoader{limits: promcost.Rule} }

// set takes what can be parsed and paid for, and returns its names and what is refused. A
// file that was there before and is the same is not parsed again. changed are the groups, as
// rules.GroupKey names them, that were there before and are not the same now.
func (l *ruleLoader) set(groups []RuleGroup) (files, changed []string, refused []RuleError) {
	l.mu.Lock()
	before := l.files // which nobody else changes
	l.mu.Unlock()
	parsed, tenant := map[string]*ruleFile{}, map[string]string{}
	for _, g := range groups {
		if parsed[g.File] != nil {
			refused = append(refused, RuleError{File: g.File, Err: errors.New("named twice")})
			continue
		}
		f, err := l.parse(g, before[g.File])
		if err != nil {
			refused = append(refused, RuleError{File: g.File, Err: err})
			continue
		}
		refused = append(refused, f.refused...)
		parsed[g.File], tenant[g.File] = f, g.Tenant
		files = append(files, g.File)
	}
	for file, was := range before {
		if parsed[file] == was {
			continue
		}
		now := map[string]rulefmt.RuleGroup{}
		if f := parsed[file]; f != nil && f.tenant == was.tenant {
			for _, g := range f.groups.Groups {
				now[g.Name] = g
			}
		}
		for _, g := range was.groups.Groups {
			if !reflect.DeepEqual(now[g.Name], g) {
				changed = append(changed, rules.GroupKey(file, g.Name))
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files, l.tenant = parsed, tenant
	return files, changed, refused
}

// parse reads a file and leaves out the groups that cost too much. What admission
// let in, an older version may have; what admission never saw may come from a blob.
func (l *ruleLoader) parse(f RuleGroup, was *ruleFile) (*ruleFile, error) {
	content := f.Content
	if content == nil {
		var err error
		if content, err = os.ReadFile(f.File); err != nil {
			return nil, err
		}
	}
	if was != nil && was.tenant == f.Tenant && bytes.Equal(was.content, content) {
		return was, nil
	}
	rg, errs := rulefmt.Parse(content, false, model.UTF8Validation)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	out := &ruleFile{tenant: f.Tenant, content: content, groups: rg, exprs: map[string]parser.Expr{}}
	rg.Groups = slices.DeleteFunc(rg.Groups, func(g rulefmt.RuleGroup) bool {
		for i, r := range g.Rules {
			expr, err := parser.ParseExpr(r.Expr)
			if err == nil {
				err = l.limits.Check(expr, promcost.Window{})
			}
			if err != nil {
				out.refused = append(out.refused, RuleError{File: f.File, Group: g.Name, Err: fmt.Errorf("rule %d (%s%s): %w", i+1, r.Alert, r.Record, err)})
				return true
			}
			out.exprs[r.Expr] = expr
		}
		return false
	})
	return out, nil
}

// tenants of the files; the map is not changed any more.
func (l *ruleLoader) tenants() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tenant
}

// Load implements rules.GroupLoader.
func (l *ruleLoader) Load(name string, _ bool, _ model.ValidationScheme) (*rulefmt.RuleGroups, []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loaded = l.files[name]; l.loaded != nil {
		return l.loaded.groups, nil
	}
	return nil, []error{fmt.Errorf("rules %s: not loaded", name)}
}

// Parse implements rules.GroupLoader.
func (l *ruleLoader) Parse(q string) (parser.Expr, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loaded != nil {
		if expr, ok := l.loaded.exprs[q]; ok {
			return expr, nil
		}
	}
	return parser.ParseExpr(q)
}

// evaluations are those that run, so that a change of rules can end the ones it
// makes obsolete: the rule manager itself would wait for them.
type evaluations struct {
	mu         sync.Mutex
	generation int
	running    map[*rules.Group]context.CancelFunc
	// obsolete groups, and since which generation. An older one of that name, which the
	// manager is about to stop, must not begin again.
	obsolete map[string]int
	wg       sync.WaitGroup // of queries; a cancelled one goes on until it looks at its context
}

// begin returns the context of one evaluation; false: the group is about to stop.
func (v *evaluations) begin(ctx context.Context, g *rules.Group, generation int) (context.Context, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if since, ok := v.obsolete[rules.GroupKey(g.File(), g.Name())]; ok && generation < since {
		return nil, false
	}
	ctx, cancel := context.WithCancel(ctx)
	v.running[g] = cancel
	return ctx, true
}

func (v *evaluations) end(g *rules.Group) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if cancel := v.running[g]; cancel != nil {
		cancel()
		delete(v.running, g)
	}
}

// retire cancels what runs of these groups, and returns the generation that follows.
func (v *evaluations) retire(keys []string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.generation++
	for _, k := range keys {
		v.obsolete[k] = v.generation
	}
	for g, cancel := range v.running {
		if _, ok := v.obsolete[rules.GroupKey(g.File(), g.Name())]; ok {
			cancel()
		}
	}
	return v.generation
}

func (v *evaluations) retired() {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.obsolete)
}

// all cancels everything, for the end.
func (v *evaluations) all() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, cancel := range v.running {
		cancel()
	}
}

// evaluate is one round of a group, of this generation of rules.
func (e *Engine) evaluate(generation int) rules.GroupEvalIterationFunc {
	tenants := e.loader.tenants()
	return func(ctx context.Context, g *rules.Group, at time.Time) {
		ctx, ok := e.evals.begin(ctx, g, generation)
		if !ok {
			return
		}
		defer e.evals.end(g)
		tenant := tenants[g.File()]
		ctx = withClass(ctx, class{Class: turns.Class{Platform: tenant == "", Tenant: tenant, Background: true}, admitted: true})
		if tenant != "" {
			r := &round{m: e.memory, tenant: tenant, processors: e.opts.Processors, left: g.Rules(), drained: map[rules.Rule]error{}}
			defer r.end()
			ctx = context.WithValue(ctx, roundKey{}, r)
		}
		rules.DefaultEvalIterationFunc(ctx, g, at)
	}
}

// queryRule evaluates a rule's expression. It returns when ctx ends, whether or not the
// evaluation has noticed: that one's result is dropped.
func (e *Engine) queryRule(ctx context.Context, qs string, at time.Time) (promql.Vector, error) {
	type result struct {
		v   promql.Vector
		err error
	}
	var rule *rules.AlertingRule
	r, ofTenant := ctx.Value(roundKey{}).(*round)
	if ofTenant {
		rule = r.next(ctx, qs)
	}
	done := make(chan result, 1)
	e.evals.wg.Add(1)
	go func() {
		defer e.evals.wg.Done()
		v, err := rules.EngineQueryFunc(e.guard, e.db)(ctx, qs, at)
		done <- result{v, err}
	}()
	select {
	case got := <-done:
		if ctx.Err() != nil {
			return nil, promql.ErrQueryCanceled("rule evaluation: the rule was changed")
		}
		if got.err == nil {
			got.err = e.checkOutput(ctx, len(got.v))
		}
		if got.err == nil && ofTenant && len(got.v) > 0 && r.take(ctx) != nil {
			got.err = promql.ErrQueryCanceled("the queue for what a rule does with its result")
		}
		if got.err == nil && rule != nil {
			got.v, got.err = e.memory.admit(ctx, r, rule, got.v, at)
		}
		if ofTenant {
			e.memory.count(r.tenant, got.err)
		}
		return got.v, got.err
	case <-ctx.Done():
		return nil, promql.ErrQueryCanceled("rule evaluation: the rule was changed")
	}
}

// checkOutput bounds what one rule of a tenant may give.
func (e *Engine) checkOutput(ctx context.Context, n int) error {
	c, _ := ctx.Value(classKey{}).(class)
	if c.Platform || n <= e.opts.RuleMaxSeries {
		return nil
	}
	what := "series"
	if rules.FromOriginContext(ctx).Kind == rules.KindAlerting {
		what = "alerts"
	}
	return &Excess{Kind: what, Text: fmt.Sprintf("the rule gives more than %d %s, which a tenant's rule may give; aggregate, or select fewer", e.opts.RuleMaxSeries, what)}
}

// SetRules replaces all rule groups without a restart, and never waits for one that is
// being evaluated: what runs of changed groups is cancelled and its results dropped. A
// group that did not change keeps its state and runs on. What can't be used is left out
// and returned. After an error, which is none of the rules', the old rules run on.
func (e *Engine) SetRules(groups []RuleGroup) ([]RuleError, error) {
	e.setRules.Lock()
	defer e.setRules.Unlock()
	files, changed, refused := e.loader.set(groups)
	err := e.updateRules(files, changed)
	if err != nil {
		err = fmt.Errorf("engine %s: %w", e.opts.Name, err)
	}
	e.refused.Store(&refused)
	return refused, err
}

func (e *Engine) updateRules(files, changed []string) error {
	generation := e.evals.retire(changed)
	defer e.evals.retired()
	err := e.rules.Update(e.opts.EvaluationInterval, files, e.opts.ExternalLabels, e.opts.ExternalURL, e.evaluate(generation))
	groups := e.rules.RuleGroups()
	e.groups.Store(&groups)
	e.memory.keep(groups)
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	return nil
}
