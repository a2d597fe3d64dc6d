// Package validation holds what a CRD's schema and CEL rules can't express about
// Muster's API objects: regular expressions that compile, PromQL that parses,
// label selectors, coordinates. Its functions are pure; the admission plugin in
// control/apiserver calls them, and so may any client before it writes.
package validation

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// ReservedLabelPrefix begins the label keys that only Muster itself sets.
const ReservedLabelPrefix = "muster.dev/"

var spec = field.NewPath("spec")

// Site checks the place; coordinates match a pattern already, but 91 degrees does too.
func Site(s *v1alpha1.Site) field.ErrorList {
	var errs field.ErrorList
	if p := s.Spec.Place; p != nil {
		errs = append(errs, degrees(spec.Child("place", "latitude"), p.Latitude, 90)...)
		errs = append(errs, degrees(spec.Child("place", "longitude"), p.Longitude, 180)...)
	}
	return errs
}

func degrees(at *field.Path, s string, limit float64) field.ErrorList {
	if v, err := strconv.ParseFloat(s, 64); err != nil || v < -limit || v > limit {
		return field.ErrorList{field.Invalid(at, s, "want degrees between -"+strconv.Itoa(int(limit))+" and "+strconv.Itoa(int(limit)))}
	}
	return nil
}

// VirtualSite checks the selector.
func VirtualSite(v *v1alpha1.VirtualSite) field.ErrorList {
	return selector(spec.Child("siteSelector"), &v.Spec.SiteSelector)
}

func selector(at *field.Path, s *metav1.LabelSelector) field.ErrorList {
	return metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, at)
}

// RegistrationToken checks the name pattern and the labels that it stamps.
func RegistrationToken(t *v1alpha1.RegistrationToken) field.ErrorList {
	errs := regex(spec.Child("siteNamePattern"), t.Spec.SiteNamePattern)
	at := spec.Child("siteLabels")
	for k, v := range t.Spec.SiteLabels {
		for _, msg := range validation.IsQualifiedName(k) {
			errs = append(errs, field.Invalid(at, k, msg))
		}
		for _, msg := range validation.IsValidLabelValue(v) {
			errs = append(errs, field.Invalid(at.Key(k), v, msg))
		}
	}
	return errs
}

func regex(at *field.Path, pattern string) field.ErrorList {
	if _, err := regexp.Compile("^(?:" + pattern + ")$"); err != nil {
		return field.ErrorList{field.Invalid(at, pattern, "not a regular expression in RE2 syntax: "+strings.TrimPrefix(err.Error(), "error parsing regexp: "))}
	}
	return nil
}

// CollectionPolicy checks patterns, the selector and repeated aggregations.
func CollectionPolicy(p *v1alpha1.CollectionPolicy) field.ErrorList {
	errs := selector(spec.Child("siteSelector"), &p.Spec.SiteSelector)
	for i, pat := range p.Spec.Allow.Patterns {
		errs = append(errs, regex(spec.Child("allow", "patterns").Index(i), pat)...)
	}
	seen := map[string]bool{}
	for i, a := range p.Spec.Aggregations {
		if seen[a.Metric] {
			errs = append(errs, field.Duplicate(spec.Child("aggregations").Index(i).Child("metric"), a.Metric))
		}
		seen[a.Metric] = true
	}
	return errs
}

// HealthPolicy checks the selector and that every query is PromQL whose result can
// be told apart by tenant and site.
func HealthPolicy(p *v1alpha1.HealthPolicy) field.ErrorList {
	errs := selector(spec.Child("siteSelector"), &p.Spec.SiteSelector)
	for i, s := range p.Spec.Signals {
		at := spec.Child("signals").Index(i)
		if s.Good.Cmp(s.Bad) == 0 {
			errs = append(errs, field.Invalid(at.Child("bad"), s.Bad.String(), "good and bad must differ: between them the score falls from 1 to 0"))
		}
		if s.Weight != nil && s.Weight.Sign() <= 0 {
			errs = append(errs, field.Invalid(at.Child("weight"), s.Weight.String(), "want a weight greater than 0; leave a signal out to ignore it"))
		}
		at = at.Child("query")
		expr, err := parser.ParseExpr(s.Query)
		if err != nil {
			errs = append(errs, field.Invalid(at, s.Query, "not PromQL: "+err.Error()))
			continue
		}
		if expr.Type() != parser.ValueTypeVector {
			errs = append(errs, field.Invalid(at, s.Query, "a signal needs one value for each site, so an instant vector; this is a "+parser.DocumentedType(expr.Type())))
			continue
		}
		if missing := droppedLabel(expr); missing != "" {
			errs = append(errs, field.Invalid(at, s.Query, "the outermost aggregation drops the label "+missing+"; aggregate by ("+fleet.SeriesTenant+", "+fleet.SeriesSite+")"))
		}
	}
	return errs
}

// droppedLabel names the label, tenant or site, that the outermost aggregation of
// the expression takes away; empty if it keeps both. Binary operations are followed
// on their left side, whose labels they keep.
func droppedLabel(e parser.Expr) string {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return droppedLabel(e.Expr)
	case *parser.UnaryExpr:
		return droppedLabel(e.Expr)
	case *parser.StepInvariantExpr:
		return droppedLabel(e.Expr)
	case *parser.BinaryExpr:
		if e.LHS.Type() == parser.ValueTypeScalar {
			return droppedLabel(e.RHS)
		}
		return droppedLabel(e.LHS)
	case *parser.AggregateExpr:
		if e.Op == parser.TOPK || e.Op == parser.BOTTOMK || e.Op == parser.LIMITK || e.Op == parser.LIMIT_RATIO {
			return ""
		}
		for _, l := range []string{fleet.SeriesTenant, fleet.SeriesSite} {
			named := false
			for _, g := range e.Grouping {
				named = named || g == l
			}
			if named == e.Without {
				return l
			}
		}
	}
	return ""
}

// ReservedLabels refuses a change of labels under muster.dev/ by anybody but
// Muster itself.
func ReservedLabels(old, new map[string]string) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("metadata", "labels")
	for k, v := range new {
		if o, had := old[k]; strings.HasPrefix(k, ReservedLabelPrefix) && (!had || o != v) {
			errs = append(errs, field.Forbidden(at.Key(k), "labels under muster.dev/ are discovered or set by Muster; use a key of your own"))
		}
	}
	for k := range old {
		if _, has := new[k]; strings.HasPrefix(k, ReservedLabelPrefix) && !has {
			errs = append(errs, field.Forbidden(at.Key(k), "labels under muster.dev/ are discovered or set by Muster and can't be removed"))
		}
	}
	return errs
}
