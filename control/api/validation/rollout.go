package validation

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/promcost"
)

// Rollout checks what its schema can't say.
func Rollout(r *v1alpha1.Rollout) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, c := range r.Spec.Changes {
		at := spec.Child("changes").Index(i)
		given := 0
		for _, has := range []bool{len(c.Images) > 0, c.Content != nil, c.Revision != nil} {
			if has {
				given++
			}
		}
		if given > 1 {
			errs = append(errs, field.Invalid(at, c.Name, "want one of images, content and revision"))
		}
		key := c.APIVersion + " " + c.Kind + " " + c.Name
		if seen[key] {
			errs = append(errs, field.Duplicate(at, c.Kind+" "+c.Name))
		}
		seen[key] = true
	}
	return append(errs, rolloutPlan(&r.Spec.RolloutPlan)...)
}

// RolloutPolicy checks what its schema can't say.
func RolloutPolicy(p *v1alpha1.RolloutPolicy) field.ErrorList {
	errs := selector(spec.Child("selector"), &p.Spec.Selector)
	if i := slices.Index(p.Spec.Kinds, "Secret"); i >= 0 {
		errs = append(errs, field.Invalid(spec.Child("kinds").Index(i), "Secret", "a rollout's state tells its contents to whoever may read the namespace: give each version of a Secret a name of its own, and roll out what names it"))
	}
	return append(errs, rolloutPlan(&p.Spec.RolloutPlan)...)
}

// GateCheck checks what its schema can't say.
func GateCheck(g *v1alpha1.GateCheck) field.ErrorList {
	var errs field.ErrorList
	if (g.Spec.VirtualSite == "") == (len(g.Spec.Sites) == 0) {
		errs = append(errs, field.Required(spec.Child("virtualSite"), "want either the virtual site whose sites have the change, or sites"))
	}
	return append(errs, gates(spec.Child("gates"), g.Spec.Gates)...)
}

func rolloutPlan(p *v1alpha1.RolloutPlan) field.ErrorList {
	errs := gates(spec.Child("gates"), p.Gates)
	if p.Soak.Duration < 0 {
		errs = append(errs, field.Invalid(spec.Child("soak"), p.Soak.Duration.String(), "want a duration such as 15m, or 0s"))
	}
	if p.Settle != nil && p.Settle.Duration < 0 {
		errs = append(errs, field.Invalid(spec.Child("settle"), p.Settle.Duration.String(), "want a duration such as 15m, or 0s"))
	}
	if d := p.Budget.ReadyWithin.Duration; d < 0 {
		errs = append(errs, field.Invalid(spec.Child("budget", "readyWithin"), d.String(), "want a duration such as 10m"))
	}
	strategy := spec.Child("strategy")
	if p.Strategy.Type == v1alpha1.StrategyBlueGreen && p.Strategy.Blue == "" {
		errs = append(errs, field.Required(strategy.Child("blue"), "want the virtual site whose sites change first"))
	}
	last := int32(0)
	for i, w := range p.Strategy.Waves {
		at := strategy.Child("waves").Index(i)
		given := 0
		for _, has := range []bool{w.Percent != nil, w.Count != nil, w.VirtualSite != "", w.Label != ""} {
			if has {
				given++
			}
		}
		if given != 1 {
			errs = append(errs, field.Invalid(at, w.Name, "want exactly one of percent, count, virtualSite and label"))
		}
		if w.Percent != nil {
			if *w.Percent <= last {
				errs = append(errs, field.Invalid(at.Child("percent"), *w.Percent, fmt.Sprintf("percentages count earlier waves in, so they rise: want more than %d", last)))
			}
			last = *w.Percent
		}
		if key, _, ok := strings.Cut(w.Label, "="); w.Label != "" && (!ok || key == "") {
			errs = append(errs, field.Invalid(at.Child("label"), w.Label, "want KEY=VALUE"))
		}
		if w.Soak != nil && w.Soak.Duration < 0 {
			errs = append(errs, field.Invalid(at.Child("soak"), w.Soak.Duration.String(), "want a duration such as 15m"))
		}
	}
	for i, f := range p.Freezes {
		at := spec.Child("freezes").Index(i)
		from, errFrom := time.Parse(time.DateOnly, f.From)
		to, errTo := time.Parse(time.DateOnly, f.To)
		switch {
		case errFrom != nil:
			errs = append(errs, field.Invalid(at.Child("from"), f.From, "want a day, such as 2026-12-20"))
		case errTo != nil:
			errs = append(errs, field.Invalid(at.Child("to"), f.To, "want a day, such as 2027-01-02"))
		case to.Before(from):
			errs = append(errs, field.Invalid(at.Child("to"), f.To, "want a day that is not before from"))
		}
	}
	for i, w := range p.Windows {
		if w.From == w.To {
			errs = append(errs, field.Invalid(spec.Child("windows").Index(i).Child("to"), w.To, "want another time than from; a window past midnight ends the next day"))
		}
	}
	return errs
}

func gates(at *field.Path, list []v1alpha1.RolloutGate) field.ErrorList {
	var errs field.ErrorList
	for i, g := range list {
		at := at.Index(i)
		if n := kindsOf(g); n != 1 {
			errs = append(errs, field.Invalid(at, g.Name, "want exactly one of ready, score, unhealthy, before, peers, alerts, query, logs and webhook"))
			continue
		}
		for name, c := range map[string]*v1alpha1.GateChange{"before": g.Before, "peers": g.Peers} {
			switch {
			case c == nil:
			case c.Query != "" && len(c.Dimensions) > 0:
				errs = append(errs, field.Invalid(at.Child(name), g.Name, "want dimensions or a query"))
			case c.Query != "" && c.MaxRise == nil:
				errs = append(errs, field.Required(at.Child(name, "maxRise"), "want how much the query's value may rise, in its own unit"))
			case c.Query != "":
				errs = append(errs, promQL(at.Child(name, "query"), c.Query)...)
			}
		}
		if g.Query != nil {
			if g.Query.Min == nil && g.Query.Max == nil {
				errs = append(errs, field.Required(at.Child("query", "max"), "want max, min or both"))
			}
			errs = append(errs, promQL(at.Child("query", "query"), g.Query.Query)...)
		}
	}
	return errs
}

// kindsOf is how many kinds of gate are set in one.
func kindsOf(g v1alpha1.RolloutGate) int {
	n := 0
	v := reflect.ValueOf(g)
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			n++
		}
	}
	return n
}

// promQL checks an expression of a gate and what it costs.
func promQL(at *field.Path, query string) field.ErrorList {
	if _, err := promcost.Rule.Parse(query, promcost.Window{}); err != nil {
		return field.ErrorList{field.Invalid(at, query, err.Error())}
	}
	return nil
}
