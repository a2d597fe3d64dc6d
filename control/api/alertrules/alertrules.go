// Package alertrules reads the AlertRules object: it turns it into a Prometheus rule
// file and says what is wrong with it, with Prometheus' own parsers. It is pure. The
// admission plugin asks it before an object is let in, and alerting/rules asks again
// before it evaluates one.
package alertrules

import (
	"errors"
	"fmt"
	"strings"
	"text/template/parse"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// EngineLocal is the engine that only the platform's operators may use.
const EngineLocal = "local"

// File returns the groups as a Prometheus rule file.
func File(groups []v1alpha1.RuleGroup) ([]byte, error) {
	return yaml.Marshal(map[string]any{"groups": groups})
}

// Check says what is wrong with the rules of a tenant.
func Check(spec v1alpha1.AlertRulesSpec, tenant string) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("spec")
	if spec.Engine == EngineLocal && tenant != fleet.PlatformTenant {
		errs = append(errs, field.Invalid(at.Child("engine"), spec.Engine, "the local engines hold the platform's own series; want edge, or put the object into "+fleet.SystemNamespace(fleet.PlatformTenant)))
	}
	for i, g := range spec.Groups {
		at := at.Child("groups").Index(i)
		alone := g
		alone.Rules = nil
		if err := parses(alone); err != nil {
			errs = append(errs, field.Invalid(at, g.Name, err.Error()))
			continue
		}
		for j, r := range g.Rules {
			errs = append(errs, checkRule(at.Child("rules").Index(j), g, r, tenant)...)
		}
	}
	return errs
}

func checkRule(at *field.Path, g v1alpha1.RuleGroup, r v1alpha1.Rule, tenant string) field.ErrorList {
	var errs field.ErrorList
	if _, err := parser.ParseExpr(r.Expr); err != nil {
		return append(errs, field.Invalid(at.Child("expr"), r.Expr, err.Error()))
	}
	g.Rules, g.Labels = []v1alpha1.Rule{r}, nil
	if err := parses(g); err != nil {
		return append(errs, field.Invalid(at, r.Alert+r.Record, err.Error()))
	}
	if n := r.Record; strings.HasPrefix(n, "muster_") || n == "ALERTS" || n == "ALERTS_FOR_STATE" {
		errs = append(errs, field.Invalid(at.Child("record"), n, "Muster and Prometheus write series of this name themselves; choose another"))
	}
	if _, ok := r.Labels[fleet.SeriesTenant]; ok && tenant != fleet.PlatformTenant {
		errs = append(errs, field.Forbidden(at.Child("labels").Key(fleet.SeriesTenant), "the tenant is set by Muster; remove the label"))
	}
	for name, m := range map[string]map[string]string{"labels": r.Labels, "annotations": r.Annotations} {
		for k, v := range m {
			if err := checkTemplate(v); err != nil {
				errs = append(errs, field.Invalid(at.Child(name).Key(k), v, err.Error()))
			}
		}
	}
	return errs
}

// parses asks Prometheus' own parser.
func parses(g v1alpha1.RuleGroup) error {
	b, err := File([]v1alpha1.RuleGroup{g})
	if err != nil {
		return err
	}
	_, errs := rulefmt.Parse(b, false, model.UTF8Validation)
	for i, err := range errs {
		var e *rulefmt.Error
		if errors.As(err, &e) {
			errs[i] = e.Err.Unwrap()
		}
	}
	return errors.Join(errs...)
}

// checkTemplate refuses templates that ask for series: they would see those of all
// tenants.
func checkTemplate(text string) error {
	if !strings.Contains(text, "{{") {
		return nil
	}
	tree := parse.New("text")
	tree.Mode = parse.SkipFuncCheck
	trees := map[string]*parse.Tree{}
	const defs = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"
	if _, err := tree.Parse(defs+text, "{{", "}}", trees); err != nil {
		return err
	}
	for _, t := range trees {
		if t.Root != nil && asks(t.Root) {
			return fmt.Errorf("the template function query is not available here: it would see other tenants' series; compute the value in expr")
		}
	}
	return nil
}

// asks tells whether a template calls query.
func asks(n parse.Node) bool {
	some := func(nodes []parse.Node) bool {
		for _, n := range nodes {
			if n != nil && asks(n) {
				return true
			}
		}
		return false
	}
	pipe := func(p *parse.PipeNode) bool {
		if p == nil {
			return false
		}
		for _, c := range p.Cmds {
			if some(c.Args) {
				return true
			}
		}
		return false
	}
	list := func(l *parse.ListNode) bool { return l != nil && some(l.Nodes) }
	branch := func(b parse.BranchNode) bool { return pipe(b.Pipe) || list(b.List) || list(b.ElseList) }
	switch n := n.(type) {
	case *parse.ListNode:
		return list(n)
	case *parse.ActionNode:
		return pipe(n.Pipe)
	case *parse.PipeNode:
		return pipe(n)
	case *parse.ChainNode:
		return asks(n.Node)
	case *parse.IfNode:
		return branch(n.BranchNode)
	case *parse.RangeNode:
		return branch(n.BranchNode)
	case *parse.WithNode:
		return branch(n.BranchNode)
	case *parse.TemplateNode:
		return pipe(n.Pipe)
	case *parse.IdentifierNode:
		return n.Ident == "query"
	}
	return false
}
