package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"muster.dev/muster/internal/wire"
)

// savedViews are those that the user has, of one tenant or of all.
func (g *Globals) savedViews(ctx context.Context, a *api) ([]wire.SavedView, error) {
	var list wire.SavedViewList
	err := a.get(ctx, wire.ViewsPath, g.query(), &list)
	return list.Views, err
}

func viewNames(views []wire.SavedView) []string {
	names := make([]string, len(views))
	for i, v := range views {
		names[i] = v.Name
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// openView fills in what the flags leave open from the view that they name: the user's own
// before one that is shared. A query narrows the view's.
func (g *Globals) openView(ctx context.Context, a *api, t siteQuestion) (siteQuestion, error) {
	views, err := g.savedViews(ctx, a)
	if err != nil {
		return t, err
	}
	named := func(shared bool) []wire.SavedView {
		return slices.DeleteFunc(slices.Clone(views), func(v wire.SavedView) bool { return v.Name != t.view || v.Shared != shared })
	}
	found := named(false)
	if len(found) == 0 {
		found = named(true)
	}
	switch {
	case len(found) == 0 && len(views) == 0:
		return t, fmt.Errorf("--view: there is no view %q, nor any other: the page Sites keeps them, under Views", t.view)
	case len(found) == 0:
		return t, fmt.Errorf("--view: there is no view %q; there are %s", t.view, strings.Join(viewNames(views), ", "))
	case len(found) > 1:
		return t, fmt.Errorf("--view: %d tenants have a view %q: name one with --tenant", len(found), t.view)
	}
	v := found[0]
	switch {
	case t.query == "":
		t.query = v.Query
	case v.Query != "":
		t.query = "(" + v.Query + ") (" + t.query + ")"
	}
	if t.sort == "" {
		t.sort = v.Sort
	}
	if t.columns == "" {
		t.columns = strings.Join(v.Columns, ",")
	}
	if t.group == "" && g.Output != "csv" {
		t.group = v.Group
	}
	return t, nil
}
