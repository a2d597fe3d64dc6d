package validation

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/sitequery"
)

// SavedViews checks that the object is called as whose it is, and that the inventory can
// answer each view.
func SavedViews(s *v1alpha1.SavedViews) field.ErrorList {
	var errs field.ErrorList
	if want := v1alpha1.ViewsName(s.Spec.Owner); s.Name != want {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), s.Name, "want "+want+", which follows from spec.owner; without an owner they are shared"))
	}
	for i, v := range s.Spec.Views {
		errs = append(errs, SavedView(spec.Child("views").Index(i), v)...)
	}
	return errs
}

// SavedView checks one view, at its place.
func SavedView(at *field.Path, v v1alpha1.SavedView) field.ErrorList {
	var errs field.ErrorList
	bad := func(name string, value any, err error) {
		if err != nil {
			errs = append(errs, field.Invalid(at.Child(name), value, err.Error()))
		}
	}
	if n := utf8.RuneCountInString(v.Name); n < 1 || n > 60 || !utf8.ValidString(v.Name) || strings.TrimSpace(v.Name) != v.Name || strings.Contains(v.Name, "/") ||
		strings.ContainsFunc(v.Name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		errs = append(errs, field.Invalid(at.Child("name"), v.Name, `want 1 to 60 printable characters without "/", and no space at either end`))
	}
	_, err := sitequery.Parse(v.Query)
	bad("query", v.Query, err)
	_, err = sitequery.ParseOrder(v.Sort)
	bad("sort", v.Sort, err)
	if len(v.Columns) > 100 {
		errs = append(errs, field.TooMany(at.Child("columns"), len(v.Columns), 100))
		return errs
	}
	for i, c := range v.Columns {
		if _, err := sitequery.ParseColumn(c); err != nil {
			errs = append(errs, field.Invalid(at.Child("columns").Index(i), c, err.Error()))
		}
	}
	if v.Group != "" {
		_, err = sitequery.ParseColumn(v.Group)
		bad("group", v.Group, err)
	}
	return errs
}
