// Package validation holds what a CRD's schema and CEL rules can't express about
// Muster's API objects: regular expressions that compile, PromQL that parses,
// label selectors, coordinates. Its functions are pure; the admission plugin in
// control/apiserver calls them, and so may any client before it writes.
package validation

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/maintenance"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/promcost"
	"muster.dev/muster/internal/regexcost"
)

// ReservedLabelPrefix begins the label keys that only Muster itself sets.
const ReservedLabelPrefix = "muster.dev/"

var spec = field.NewPath("spec")

// InSystemNamespace checks where an object lives. Sites, tokens and policies in
// another namespace would be looked at by nobody.
func InSystemNamespace(ns string) field.ErrorList {
	if _, ok := fleet.TenantOfSystemNamespace(ns); ok {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "namespace"), ns, "want the tenant's system namespace, <tenant>-system; elsewhere it would have no effect")}
}

// OutsideSystemNamespace checks where what belongs to workloads lives: none run in a
// tenant's system namespace, where its sites and the passwords of its alert routes stand.
func OutsideSystemNamespace(ns string) field.ErrorList {
	if _, ok := fleet.TenantOfSystemNamespace(ns); !ok {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "namespace"), ns, "no workloads run in a tenant's system namespace; want another one of the tenant's, of spec.namespaces of the Tenant")}
}

// Tenant checks that its namespaces can't be taken for another tenant's.
func Tenant(t *v1alpha1.Tenant) field.ErrorList {
	var errs field.ErrorList
	for i, n := range t.Spec.Namespaces {
		for _, own := range []string{"system", "shared"} {
			if n == own {
				errs = append(errs, field.Invalid(spec.Child("namespaces").Index(i), n, "every tenant has this one; remove it from the list"))
			} else if strings.HasSuffix(n, "-"+own) {
				errs = append(errs, field.Invalid(spec.Child("namespaces").Index(i), n, t.Name+"-"+n+" would be the "+own+" namespace of a tenant "+strings.TrimSuffix(t.Name+"-"+n, "-"+own)+"; choose a name that does not end in -"+own))
			}
		}
	}
	return errs
}

// Site checks the place (coordinates match a pattern already, but 91 degrees does
// too), the wanted versions and the maintenance windows.
func Site(s *v1alpha1.Site) field.ErrorList {
	var errs field.ErrorList
	if p := s.Spec.Place; p != nil {
		errs = append(errs, degrees(spec.Child("place", "latitude"), p.Latitude, 90)...)
		errs = append(errs, degrees(spec.Child("place", "longitude"), p.Longitude, 180)...)
	}
	errs = append(errs, versions(spec.Child("software"), s.Spec.Software)...)
	return append(errs, maintenance.Check(spec.Child("maintenanceWindows"), s.Spec.MaintenanceWindows)...)
}

func degrees(at *field.Path, s string, limit float64) field.ErrorList {
	if v, err := strconv.ParseFloat(s, 64); err != nil || !(v >= -limit && v <= limit) {
		return field.ErrorList{field.Invalid(at, s, "want degrees between -"+strconv.Itoa(int(limit))+" and "+strconv.Itoa(int(limit)))}
	}
	return nil
}

// VirtualSite checks the selector and the maintenance windows.
func VirtualSite(v *v1alpha1.VirtualSite) field.ErrorList {
	return append(selector(spec.Child("siteSelector"), &v.Spec.SiteSelector), maintenance.Check(spec.Child("maintenanceWindows"), v.Spec.MaintenanceWindows)...)
}

func selector(at *field.Path, s *metav1.LabelSelector) field.ErrorList {
	return metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, at)
}

// RegistrationToken checks the name pattern and the labels that it stamps.
func RegistrationToken(t *v1alpha1.RegistrationToken) field.ErrorList {
	errs := regex(spec.Child("siteNamePattern"), t.Spec.SiteNamePattern, &regexcost.Budget{Left: maxRegex})
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

// maxRegex is how many instructions the regular expressions of a policy may have together.
const maxRegex = 50_000

func regex(at *field.Path, pattern string, left *regexcost.Budget) field.ErrorList {
	if err := left.Take(pattern); err != nil {
		return field.ErrorList{field.Invalid(at, pattern[:min(len(pattern), 100)], err.Error())}
	}
	return nil
}

// CollectionPolicy checks patterns, the selector and repeated aggregations.
func CollectionPolicy(p *v1alpha1.CollectionPolicy) field.ErrorList {
	errs := selector(spec.Child("siteSelector"), &p.Spec.SiteSelector)
	left := &regexcost.Budget{Left: maxRegex}
	for i, pat := range p.Spec.Allow.Patterns {
		errs = append(errs, regex(spec.Child("allow", "patterns").Index(i), pat, left)...)
	}
	for i, d := range p.Spec.DropSeries {
		at := spec.Child("dropSeries").Index(i)
		errs = append(append(errs, regex(at.Child("metric"), d.Metric, left)...), regex(at.Child("values"), d.Values, left)...)
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

// HealthPolicy checks the selector and that every query is PromQL that is not too dear to
// be asked for ever, and whose result can be told apart by tenant and site.
func HealthPolicy(p *v1alpha1.HealthPolicy) field.ErrorList {
	errs := selector(spec.Child("siteSelector"), &p.Spec.SiteSelector)
	signals, packs := map[string]bool{}, map[string]bool{}
	for _, s := range p.Spec.Signals {
		signals[s.Name] = true
	}
	for _, pack := range p.Spec.Packs {
		packs[pack.Name] = true
	}
	for i, s := range p.Spec.Signals {
		at := spec.Child("signals").Index(i)
		if s.Good.Cmp(s.Bad) == 0 {
			errs = append(errs, field.Invalid(at.Child("bad"), s.Bad.String(), "good and bad must differ: between them the score falls from 1 to 0"))
		}
		if s.Weight != nil && s.Weight.Sign() <= 0 {
			errs = append(errs, field.Invalid(at.Child("weight"), s.Weight.String(), "want a weight greater than 0; leave a signal out to ignore it"))
		}
		if s.Min != nil && s.Max != nil && s.Min.Cmp(*s.Max) > 0 {
			errs = append(errs, field.Invalid(at.Child("max"), s.Max.String(), "want at least min"))
		}
		if s.Pack != "" && !packs[s.Pack] {
			errs = append(errs, field.Invalid(at.Child("pack"), s.Pack, "want the name of one of spec.packs"))
		}
		for j, name := range s.Causes {
			if !signals[name] || name == s.Name {
				errs = append(errs, field.Invalid(at.Child("causes").Index(j), name, "want the name of another signal of this policy"))
			}
		}
		errs = append(errs, siteQuery(at.Child("query"), s.Query)...)
		if s.Objects != "" {
			errs = append(errs, siteQuery(at.Child("objects"), s.Objects)...)
		}
	}
	for i, pack := range p.Spec.Packs {
		errs = append(errs, siteQuery(spec.Child("packs").Index(i).Child("when"), pack.When)...)
	}
	for i, o := range p.Spec.Overrides {
		at := spec.Child("overrides").Index(i)
		if len(o.Sites)+len(o.VirtualSites) == 0 {
			errs = append(errs, field.Required(at.Child("sites"), "name sites or virtual sites"))
		}
		for j, s := range o.Signals {
			if !signals[s.Name] {
				errs = append(errs, field.Invalid(at.Child("signals").Index(j).Child("name"), s.Name, "want the name of a signal of this policy"))
			}
		}
	}
	return errs
}

// siteQuery checks one query of a health policy.
func siteQuery(at *field.Path, query string) (errs field.ErrorList) {
	expr, err := promcost.Rule.Parse(query, promcost.Window{})
	if tooMuch := (*promcost.Error)(nil); errors.As(err, &tooMuch) {
		return append(errs, field.Invalid(at, query, err.Error()))
	} else if err != nil {
		return append(errs, field.Invalid(at, query, "not PromQL: "+err.Error()))
	}
	if expr.Type() != parser.ValueTypeVector {
		return append(errs, field.Invalid(at, query, "a signal needs one value for each site, so an instant vector; this is a "+parser.DocumentedType(expr.Type())))
	}
	for _, label := range []string{fleet.SeriesTenant, fleet.SeriesSite} {
		if !keeps(expr, label) {
			return append(errs, field.Invalid(at, query, "its result drops the label "+label+", so its values can't be told apart by site; aggregate by ("+fleet.SeriesTenant+", "+fleet.SeriesSite+")"))
		}
	}
	return nil
}

// keeps tells whether the result of an expression can have a label, tenant or
// site, that the series it begins with have. It judges by the syntax alone and is
// in doubt on the user's side.
func keeps(e parser.Expr, label string) bool {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return keeps(e.Expr, label)
	case *parser.UnaryExpr:
		return keeps(e.Expr, label)
	case *parser.StepInvariantExpr:
		return keeps(e.Expr, label)
	case *parser.SubqueryExpr:
		return keeps(e.Expr, label)
	case *parser.Call:
		return callKeeps(e, label)
	case *parser.BinaryExpr:
		return binaryKeeps(e, label)
	case *parser.AggregateExpr:
		switch e.Op {
		case parser.TOPK, parser.BOTTOMK, parser.LIMITK, parser.LIMIT_RATIO:
			return keeps(e.Expr, label)
		}
		return slices.Contains(e.Grouping, label) != e.Without && keeps(e.Expr, label)
	}
	return true
}

func callKeeps(e *parser.Call, label string) bool {
	switch e.Func.Name {
	case "label_replace", "label_join": // dst_label is the second argument
		if len(e.Args) > 1 {
			if dst, ok := e.Args[1].(*parser.StringLiteral); ok && dst.Val == label {
				return true
			}
		}
	case "absent", "absent_over_time", "info":
		return true // labels come from matchers, or from elsewhere
	case "vector":
		return false
	}
	for _, arg := range e.Args {
		if t := arg.Type(); t == parser.ValueTypeVector || t == parser.ValueTypeMatrix {
			return keeps(arg, label)
		}
	}
	return false // time() and its like
}

func binaryKeeps(e *parser.BinaryExpr, label string) bool {
	left, right := e.LHS.Type() == parser.ValueTypeVector, e.RHS.Type() == parser.ValueTypeVector
	m := e.VectorMatching
	switch {
	case left && !right:
		return keeps(e.LHS, label)
	case right && !left:
		return keeps(e.RHS, label)
	case m == nil:
		return keeps(e.LHS, label)
	case e.Op == parser.LOR:
		return keeps(e.LHS, label) && keeps(e.RHS, label)
	case e.Op == parser.LAND || e.Op == parser.LUNLESS:
		return keeps(e.LHS, label)
	case m.Card == parser.CardManyToOne:
		return keeps(e.LHS, label) || slices.Contains(m.Include, label)
	case m.Card == parser.CardOneToMany:
		return keeps(e.RHS, label) || slices.Contains(m.Include, label)
	case slices.Contains(m.MatchingLabels, label) != m.On:
		// One to one, and the label is not among those that are matched: a result
		// has only those, except that a comparison hands on its left side.
		return e.Op.IsComparisonOperator() && !e.ReturnBool && keeps(e.LHS, label)
	default:
		return keeps(e.LHS, label)
	}
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
