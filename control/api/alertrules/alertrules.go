// Package alertrules reads the AlertRules object: it turns it into a Prometheus rule
// file and says what is wrong with it, with Prometheus' own parsers. It is pure. The
// admission plugin asks it before an object is let in, and alerting/rules asks again
// before it evaluates one.
package alertrules

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/templates"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/promcost"
)

// EngineLocal is the engine that only the platform's operators may use.
const EngineLocal = "local"

// MinInterval of a group.
const MinInterval = 5 * time.Second

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
		errs = append(errs, CheckGroup(at.Child("groups").Index(i), g, tenant)...)
	}
	return errs
}

// CheckGroup says what is wrong with one group of a tenant.
func CheckGroup(at *field.Path, g v1alpha1.RuleGroup, tenant string) field.ErrorList {
	var errs field.ErrorList
	alone := g
	alone.Rules = nil
	if err := parses(alone); err != nil {
		return append(errs, field.Invalid(at, g.Name, err.Error()))
	}
	if d, err := model.ParseDuration(g.Interval); g.Interval != "" && (err != nil || time.Duration(d) < MinInterval) {
		errs = append(errs, field.Invalid(at.Child("interval"), g.Interval, fmt.Sprintf("want %s or more: the engine evaluates the rules of all tenants", MinInterval)))
	}
	errs = append(errs, checkLabels(at.Child("labels"), g.Labels, tenant)...) // they are every rule's
	for j, r := range g.Rules {
		errs = append(errs, checkRule(at.Child("rules").Index(j), r, tenant)...)
	}
	return errs
}

func checkLabels(at *field.Path, l map[string]string, tenant string) field.ErrorList {
	errs := checkTemplates(at, l)
	if _, ok := l[fleet.SeriesTenant]; ok && tenant != fleet.PlatformTenant {
		errs = append(errs, field.Forbidden(at.Key(fleet.SeriesTenant), "the tenant is set by Muster; remove the label"))
	}
	return errs
}

func checkRule(at *field.Path, r v1alpha1.Rule, tenant string) field.ErrorList {
	var errs field.ErrorList
	if _, err := promcost.Rule.Parse(r.Expr, promcost.Window{}); err != nil {
		return append(errs, field.Invalid(at.Child("expr"), brief(r.Expr), err.Error()))
	}
	if err := valid(r); err != nil {
		return append(errs, field.Invalid(at, r.Alert+r.Record, err.Error()))
	}
	if n := r.Record; strings.HasPrefix(n, "muster_") || n == "ALERTS" || n == "ALERTS_FOR_STATE" {
		errs = append(errs, field.Invalid(at.Child("record"), n, "Muster and Prometheus write series of this name themselves; choose another"))
	}
	errs = append(errs, checkLabels(at.Child("labels"), r.Labels, tenant)...)
	return append(errs, checkTemplates(at.Child("annotations"), r.Annotations)...)
}

// parses asks Prometheus' own parser about a group without rules.
func parses(g v1alpha1.RuleGroup) error {
	b, err := File([]v1alpha1.RuleGroup{g})
	if err != nil {
		return err
	}
	_, errs := rulefmt.Parse(b, false, model.UTF8Validation)
	return errors.Join(errs...)
}

// valid asks Prometheus about a rule. By way of a file, ten thousand rules took seconds.
func valid(r v1alpha1.Rule) error {
	out := rulefmt.Rule{Record: r.Record, Alert: r.Alert, Expr: r.Expr, Labels: r.Labels, Annotations: r.Annotations}
	for _, d := range []struct {
		name, text string
		to         *model.Duration
	}{{"for", r.For, &out.For}, {"keep_firing_for", r.KeepFiringFor, &out.KeepFiringFor}} {
		if d.text == "" {
			continue
		}
		var err error
		if *d.to, err = model.ParseDuration(d.text); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	var errs []error
	for _, e := range out.Validate(rulefmt.RuleNode{}, model.UTF8Validation) {
		errs = append(errs, e.Unwrap())
	}
	return errors.Join(errs...)
}

func checkTemplates(at *field.Path, texts map[string]string) field.ErrorList {
	var errs field.ErrorList
	for _, k := range slices.Sorted(maps.Keys(texts)) {
		if err := templates.Rules.Check(texts[k]); err != nil {
			errs = append(errs, field.Invalid(at.Key(k), brief(texts[k]), err.Error()))
		}
	}
	return errs
}

func brief(s string) string {
	if len(s) > 100 {
		return strings.ToValidUTF8(s[:97], "") + "..."
	}
	return s
}
