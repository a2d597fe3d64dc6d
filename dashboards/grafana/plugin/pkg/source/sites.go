package source

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"muster.dev/muster/dashboards/grafana/plugin/pkg/console"
)

// maxDetails is how many sites are asked for one by one, and detailsAtOnce of them at a
// time: the console tells conditions a site.
const (
	maxDetails    = 200
	detailsAtOnce = 8
)

var siteKinds = []string{"list", "details", "conditions"}

func (s *Source) sites(ctx context.Context, c *console.Client, q query) (data.Frames, error) {
	if q.Sites == "" {
		q.Sites = "list"
	}
	if err := oneOf("sites", q.Sites, siteKinds...); err != nil {
		return nil, err
	}
	if q.Sites == "details" {
		if q.Site == "" {
			return nil, wrong("site", "name one")
		}
		one, err := c.Site(ctx, q.Site)
		if err != nil {
			return nil, err
		}
		return data.Frames{siteDetails(one)}, nil
	}
	if q.Sites == "list" {
		return inventory(ctx, c, q)
	}
	rows, total, err := details(ctx, c, q)
	if err != nil {
		return nil, err
	}
	f := conditions(rows)
	cut(f, len(rows), total)
	return data.Frames{f}, nil
}

// How many columns the console gives, and how long their names together may be.
const (
	maxColumns      = 50
	maxColumnsBytes = 6000
)

var siteColumns = []string{"phase", "score", "colour", "region", "regional", "lastSeen", "virtualSite"}

// inventoryColumns are those of a site and of each label and version that sites have, as far as
// the console takes them, and how many it does not.
func inventoryColumns(labels, versions []string) (columns []string, left int) {
	columns = slices.Clone(siteColumns)
	size := len(strings.Join(columns, ","))
	add := func(name string, spare int) {
		if len(columns)+spare >= maxColumns || size+len(name)+1 > maxColumnsBytes {
			left++
			return
		}
		columns, size = append(columns, name), size+len(name)+1
	}
	for _, k := range labels {
		add("label."+k, min(len(versions), 5)) // versions have some places, whatever labels there are
	}
	for _, k := range versions {
		add("version."+k, 0)
	}
	return columns, left
}

// inventory has a row a site and a column for each label and version that sites have. The
// text is in the inventory's query language.
func inventory(ctx context.Context, c *console.Client, q query) (data.Frames, error) {
	labels, versions, err := c.Keys(ctx)
	if err != nil {
		return nil, err
	}
	columns, left := inventoryColumns(labels, versions)
	found, err := c.Inventory(ctx, url.Values{"q": {q.inventory()}, "sort": {q.Sort}, "columns": {strings.Join(columns, ",")}}, q.Limit)
	if err != nil {
		return nil, err
	}
	type row = console.Row
	fields := []*data.Field{column("site", found.Rows, func(r *row) string { return r.Text("name") }), column("tenant", found.Rows, func(r *row) string { return r.Text("tenant") })}
	for _, name := range columns {
		switch name {
		case "score":
			fields = append(fields, score(column(name, found.Rows, func(r *row) *float64 { return r.Number(name) })))
		case "lastSeen":
			fields = append(fields, column("last seen", found.Rows, func(r *row) *time.Time { return r.Time(name) }))
		default:
			fields = append(fields, column(name, found.Rows, func(r *row) string { return r.Text(name) }))
		}
	}
	f := table("sites", fields...)
	cut(f, len(found.Rows), found.Total)
	if left > 0 {
		notice(f, data.NoticeSeverityInfo, "%d labels and versions have no column: a table has %d", left, maxColumns)
	}
	for _, n := range found.Notes {
		notice(f, data.NoticeSeverityInfo, "%s", n)
	}
	return data.Frames{f}, nil
}

// inventory is what is chosen, in the inventory's query language.
func (q *query) inventory() string {
	var terms []string
	if q.Text != "" {
		terms = append(terms, "("+q.Text+")")
	}
	for _, t := range []struct{ field, value string }{{"virtualSite", q.VirtualSite}, {"name", q.Site}, {"region", q.Region}, {"colour", q.Colour}, {"phase", q.Phase}} {
		var quoted []string
		for _, v := range values(t.value) {
			quoted = append(quoted, `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v)+`"`)
		}
		switch len(quoted) {
		case 0:
		case 1:
			terms = append(terms, t.field+"="+quoted[0])
		default:
			terms = append(terms, t.field+" in ("+strings.Join(quoted, ", ")+")")
		}
	}
	return strings.Join(terms, " ")
}

// details are the sites that a query chooses, with their conditions, and how many there are.
func details(ctx context.Context, c *console.Client, q query) ([]console.Site, int, error) {
	q.Limit = min(q.Limit, maxDetails)
	found, total, err := find(ctx, c, q)
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := make([]console.Site, len(found))
	turns := make(chan struct{}, detailsAtOnce)
	var wg sync.WaitGroup
	for i := range found {
		turns <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-turns }()
			as := *c
			as.Tenant = found[i].Tenant // two tenants may have a site of this name
			site, err := as.Site(ctx, found[i].Name)
			if err != nil && console.StatusOf(err) != http.StatusNotFound { // it may be gone since
				cancel(err)
			}
			out[i] = site
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, 0, err
	}
	there := out[:0]
	for _, s := range out {
		if s.Name != "" {
			there = append(there, s)
		}
	}
	return there, total, nil
}

// conditions has a row for each condition of each site.
func conditions(sites []console.Site) *data.Frame {
	type row struct {
		site, tenant string
		console.Condition
	}
	var rows []row
	for _, s := range sites {
		for _, c := range s.Conditions {
			rows = append(rows, row{s.Name, s.Tenant, c})
		}
	}
	return table("conditions",
		column("site", rows, func(r *row) string { return r.site }),
		column("tenant", rows, func(r *row) string { return r.tenant }),
		column("condition", rows, func(r *row) string { return r.Type }),
		column("status", rows, func(r *row) string { return r.Status }),
		column("reason", rows, func(r *row) string { return r.Reason }),
		column("message", rows, func(r *row) string { return r.Message }),
		column("since", rows, func(r *row) *time.Time { return timeOf(r.Since) }),
	)
}

// siteDetails is all of one site, a fact a row.
func siteDetails(s console.Site) *data.Frame {
	type row struct{ what, name, value string }
	rows := []row{{"site", "phase", s.Phase}, {"site", "regional", s.Regional}}
	for _, k := range sortedKeys(s.Labels) {
		rows = append(rows, row{"label", k, s.Labels[k]})
	}
	for _, k := range sortedKeys(s.SystemLabels) {
		rows = append(rows, row{"system label", k, s.SystemLabels[k]})
	}
	for _, k := range sortedKeys(s.Versions) {
		rows = append(rows, row{"version", k, s.Versions[k]})
	}
	for _, c := range s.Conditions {
		rows = append(rows, row{"condition", c.Type, strings.TrimRight(c.Status+" "+c.Reason+": "+c.Message, ": ")})
	}
	return table("site",
		column("what", rows, func(r *row) string { return r.what }),
		column("name", rows, func(r *row) string { return r.name }),
		column("value", rows, func(r *row) string { return r.value }),
	)
}
