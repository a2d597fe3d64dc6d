package validation

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/v1alpha1"
)

func TestSavedViews(t *testing.T) {
	good := v1alpha1.SavedView{Name: "Läden im Süden", Query: `kind=store score<60 "disk"`, Sort: "-alerts,score", Columns: []string{"name", "label.tier", "version.os"}, Group: "region"}
	for what, c := range map[string]struct {
		owner, name string
		view        v1alpha1.SavedView
		want        []string // fields
	}{
		"a person's":          {"alice", v1alpha1.ViewsName("alice"), good, nil},
		"everybody's":         {"", "shared", good, nil},
		"somebody else's":     {"alice", v1alpha1.ViewsName("bob"), good, []string{"metadata.name"}},
		"shared, of somebody": {"alice", "shared", good, []string{"metadata.name"}},
		"all wrong": {"", "shared", v1alpha1.SavedView{Name: "a/b", Query: "score<", Sort: "no such column", Columns: []string{"name", "(bad)"}, Group: "version."},
			[]string{"spec.views[0].columns[1]", "spec.views[0].group", "spec.views[0].name", "spec.views[0].query", "spec.views[0].sort"}},
		"a name that turns the text round": {"", "shared", v1alpha1.SavedView{Name: "a\u202eb"}, []string{"spec.views[0].name"}},
		"a name of spaces":                 {"", "shared", v1alpha1.SavedView{Name: "  "}, []string{"spec.views[0].name"}},
		"too long":                         {"", "shared", v1alpha1.SavedView{Name: strings.Repeat("x", 61), Query: strings.Repeat("x", 2001)}, []string{"spec.views[0].name", "spec.views[0].query"}},
		"too many columns":                 {"", "shared", v1alpha1.SavedView{Name: "x", Columns: make([]string, 101)}, []string{"spec.views[0].columns"}},
	} {
		errs := SavedViews(&v1alpha1.SavedViews{ObjectMeta: metav1.ObjectMeta{Name: c.name}, Spec: v1alpha1.SavedViewsSpec{Owner: c.owner, Views: []v1alpha1.SavedView{c.view}}})
		if got := fieldsOf(errs); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want errors of %v", what, errs, c.want)
		}
	}
}

func fieldsOf(errs field.ErrorList) []string {
	var out []string
	for _, e := range errs {
		out = append(out, e.Field)
	}
	slices.Sort(out)
	return out
}
