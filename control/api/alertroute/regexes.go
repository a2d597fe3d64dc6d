package alertroute

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/internal/regexcost"
)

// MaxRegex is how many instructions the regular expressions of an object's matchers may have
// together: Alertmanager holds them compiled, and runs them for each alert.
const MaxRegex = 20_000

// regexes bounds the regular expressions before anything compiles them.
func (s *Spec) regexes(at *field.Path) field.ErrorList {
	left := &regexcost.Budget{Left: MaxRegex}
	errs := regexesIn(at.Child("route"), s.Route, false, left)
	for i, r := range s.InhibitRules {
		errs = append(errs, regexesIn(at.Child("inhibit_rules").Index(i), r, false, left)...)
	}
	return errs
}

func regexesIn(at *field.Path, v any, matchers bool, left *regexcost.Budget) (errs field.ErrorList) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range keys(v) {
			errs = append(errs, regexesIn(at.Child(k), v[k], matchers || strings.HasSuffix(k, "match_re") || strings.HasSuffix(k, "matchers"), left)...)
		}
	case []any:
		for i := range v {
			errs = append(errs, regexesIn(at.Index(i), v[i], matchers, left)...)
		}
	case string:
		if !matchers {
			return nil
		}
		if err := left.TakeText(v); err != nil {
			errs = append(errs, field.Invalid(at, brief(v), err.Error()))
		}
	}
	return errs
}
