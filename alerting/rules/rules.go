// Package rules turns tenants' AlertRules, and those that ship with Muster, into
// rule files for a regional's Prometheus engines. A tenant's rule sees that tenant's
// series and nothing else: matchers are put into the parsed expression, never into its
// text.
//
// It is pure: it evaluates nothing and sends nothing. cmd/internal/regional gives the
// files to the engines.
package rules

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/alertrules"
	"muster.dev/muster/control/api/region"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/promexpr"
)

// Engines of a regional.
const (
	Edge  = "edge"
	Local = "local"
)

// LabelSeverity of an alert: critical, warning or info. DefaultSeverity is what a
// rule gives that says nothing.
const (
	LabelSeverity   = "severity"
	DefaultSeverity = "warning"
)

// MaxGroups and MaxRules are how many of a tenant's an engine evaluates: each group is a
// goroutine there and each rule state, whatever it costs to evaluate it. Objects go by their
// order; one that does not fit in whole is left out.
const (
	MaxGroups = 1_000
	MaxRules  = 10_000
)

//go:embed shipped/*.yaml
var shipped embed.FS

// File is a Prometheus rule file.
type File struct {
	Name    string // muster/shipped-edge, or TENANT/OBJECT
	Tenant  string // who answers for it; empty: those that ship with Muster
	Content []byte
}

// Error is an object of which some groups can't be used, or all. Its others, and those
// of other objects, are not disturbed.
type Error struct {
	Tenant, Name string
	Err          error
}

func (e Error) Error() string {
	return fmt.Sprintf("alert rules %s/%s: %v", e.Tenant, e.Name, e.Err)
}
func (e Error) Unwrap() error { return e.Err }

// Shipped returns the rules that ship with Muster for an engine. Their runbooks are paths
// of the console.
func Shipped(engine string) File {
	b, err := shipped.ReadFile("shipped/" + engine + ".yaml")
	if err != nil {
		panic(err) // embedded: a test reads both
	}
	return File{Name: fleet.PlatformTenant + "/shipped-" + engine, Content: b}
}

// Compiler makes rule files of tenants' objects, and remembers what it made: of a change of
// one object the others cost nothing. The zero value is one, for one goroutine at a time.
type Compiler struct {
	// Console is where browsers open the console: runbooks of shipped rules begin with it.
	Console string
	// Paces of the slow sites that the engine has, see fleet.Pace: the shipped rules are evaluated once more for each.
	Paces []time.Duration
	made  map[object]made
}

type object struct{ tenant, name, engine string }

// made is what became of an object.
type made struct {
	spec v1alpha1.AlertRulesSpec
	file File
	err  error
}

// Compile returns the files of one engine, one for each object, in order of their names.
// They must not be changed.
func (c *Compiler) Compile(engine string, tenants []region.Rules, withShipped bool) ([]File, []Error) {
	var files []File
	var errs []Error
	if withShipped {
		f := Shipped(engine)
		f.Content = bytes.ReplaceAll(f.Content, []byte("runbook_url: /"), []byte("runbook_url: "+c.Console+"/"))
		if engine == Edge && len(c.Paces) > 0 {
			var err error
			if f, err = paced(f, c.Paces); err != nil {
				panic(err) // embedded: a test reads it
			}
		}
		files = append(files, f)
	}
	now := map[object]made{}
	for o, m := range c.made {
		if o.engine != engine {
			now[o] = m
		}
	}
	for _, t := range tenants {
		room := room{groups: MaxGroups, rules: MaxRules}
		for _, set := range t.Alerts {
			if cmp.Or(set.Spec.Engine, Edge) != engine {
				continue
			}
			if err := room.take(set.Spec.Groups); err != nil && t.Tenant != fleet.PlatformTenant {
				errs = append(errs, Error{t.Tenant, set.Name, err})
				continue
			}
			o := object{t.Tenant, set.Name, engine}
			m, had := c.made[o]
			if !had || !reflect.DeepEqual(m.spec, set.Spec) {
				m.spec = set.Spec
				m.file, m.err = compile(t.Tenant, set)
			}
			now[o] = m
			if m.err != nil {
				errs = append(errs, Error{t.Tenant, set.Name, m.err})
			}
			if m.file.Name != "" {
				files = append(files, m.file)
			}
		}
	}
	c.made = now
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return files, errs
}

// room is for how much more of a tenant an engine has.
type room struct{ groups, rules int }

func (r *room) take(groups []v1alpha1.RuleGroup) error {
	n := 0
	for i := range groups {
		n += len(groups[i].Rules)
	}
	if len(groups) > r.groups || n > r.rules {
		return fmt.Errorf("with its %d groups of %d rules the tenant would have more than %d groups or %d rules; delete some, or put rules of one interval into one group", len(groups), n, MaxGroups, MaxRules)
	}
	r.groups, r.rules = r.groups-len(groups), r.rules-n
	return nil
}

// compile leaves out the groups that can't be used, and says why. An object of an older
// version, or from elsewhere, loses those and nothing else.
func compile(tenant string, set region.AlertRuleSet) (f File, err error) {
	var groups []v1alpha1.RuleGroup
	var errs []error
	names := map[string]bool{}
	if bad := alertrules.Check(v1alpha1.AlertRulesSpec{Engine: set.Spec.Engine}, tenant); len(bad) > 0 {
		return File{}, bad.ToAggregate()
	}
	for i, g := range set.Spec.Groups {
		g = *g.DeepCopy()
		if bad := alertrules.CheckGroup(field.NewPath("spec", "groups").Index(i), g, tenant); len(bad) > 0 {
			errs = append(errs, bad.ToAggregate())
			continue
		}
		if names[g.Name] {
			errs = append(errs, fmt.Errorf("group %s: named twice", g.Name))
			continue
		}
		if err := compileGroup(tenant, g); err != nil {
			errs = append(errs, fmt.Errorf("group %s: %w", g.Name, err))
			continue
		}
		names[g.Name] = true
		groups = append(groups, g)
	}
	if len(groups) == 0 {
		return File{}, errors.Join(errs...)
	}
	b, err := alertrules.File(groups)
	return File{Name: tenant + "/" + set.Name, Tenant: tenant, Content: b}, errors.Join(append(errs, err)...)
}

func compileGroup(tenant string, g v1alpha1.RuleGroup) error {
	for j := range g.Rules {
		if err := compileRule(tenant, g.Labels, &g.Rules[j]); err != nil {
			return fmt.Errorf("rule %d: %w", j+1, err)
		}
	}
	return nil
}

func compileRule(tenant string, ofGroup map[string]string, r *v1alpha1.Rule) error {
	set := func(name, value string) {
		if r.Labels == nil {
			r.Labels = map[string]string{}
		}
		r.Labels[name] = value
	}
	if r.Alert != "" && r.Labels[LabelSeverity] == "" && ofGroup[LabelSeverity] == "" {
		set(LabelSeverity, DefaultSeverity)
	}
	if tenant == fleet.PlatformTenant {
		return nil
	}
	expr, err := Confine(r.Expr, tenant)
	if err != nil {
		return err
	}
	r.Expr = expr
	// Labels of the rule overwrite those of the result, so neither an aggregation nor
	// label_replace takes the tenant away.
	set(fleet.SeriesTenant, tenant)
	return nil
}

// Confine returns the expression with a matcher on the tenant in every selector. A
// matcher that the expression has already stays and can only narrow.
func Confine(expr, tenant string) (string, error) {
	if err := fleet.ValidateTenant(tenant); err != nil {
		return "", err
	}
	tree, err := parser.ParseExpr(expr)
	if err != nil {
		return "", err
	}
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		// info() takes series by itself.
		if call, ok := n.(*parser.Call); ok && call.Func.Name == "info" {
			err = errors.New("the function info is not available in a tenant's rules")
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	promexpr.Narrow(tree, labels.MustNewMatcher(labels.MatchEqual, fleet.SeriesTenant, tenant))
	out := tree.String()
	// What was printed is what will be evaluated: look at it once more.
	again, err := parser.ParseExpr(out)
	if err != nil {
		return "", fmt.Errorf("expression can't be written out again: %w", err)
	}
	for _, v := range selectors(again) {
		if !slices.ContainsFunc(v.LabelMatchers, func(m *labels.Matcher) bool {
			return m.Name == fleet.SeriesTenant && m.Type == labels.MatchEqual && m.Value == tenant
		}) {
			return "", fmt.Errorf("selector %s can't be confined to the tenant", v)
		}
	}
	return out, nil
}

func selectors(tree parser.Expr) []*parser.VectorSelector {
	found := map[*parser.VectorSelector]bool{}
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			found[v] = true
		}
		return nil
	})
	return slices.Collect(maps.Keys(found))
}
