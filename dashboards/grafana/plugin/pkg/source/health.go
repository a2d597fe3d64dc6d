package source

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"muster.dev/muster/dashboards/grafana/plugin/pkg/console"
)

var (
	healthKinds = []string{"sites", "virtualSites", "reasons", "signals", "history", "live"}
	dimensions  = []string{"connectivity", "reliability", "security", "performance"}
)

func (s *Source) health(ctx context.Context, c *console.Client, q query) (data.Frames, error) {
	if q.Health == "" {
		q.Health = "sites"
	}
	switch q.Health {
	case "sites":
		return siteScores(ctx, c, q)
	case "live":
		if q.Numeric {
			return siteScores(ctx, c, q)
		}
		return s.live(ctx, c, q)
	case "virtualSites":
		return virtualSites(ctx, c, q)
	case "reasons", "signals":
		return ofOneSite(ctx, c, q)
	case "history":
		return history(ctx, c, q)
	}
	return nil, oneOf("health", q.Health, healthKinds...)
}

// chosen are the parameters that choose sites.
func (q *query) chosen() url.Values {
	return url.Values{"virtualSite": {q.VirtualSite}, "region": {q.Region}, "colour": {q.Colour}, "phase": {q.Phase}, "q": {q.Text}, "sort": {q.Sort}}
}

func siteScores(ctx context.Context, c *console.Client, q query) (data.Frames, error) {
	sites, total, err := find(ctx, c, q)
	if err != nil {
		return nil, err
	}
	if q.Numeric {
		f := numericScores(sites)
		cut(f, len(sites), total)
		return data.Frames{f}, nil
	}
	f := scoreTable(sites)
	cut(f, len(sites), total)
	return data.Frames{f}, nil
}

// find is the one site that is named, or those that the rest of the query chooses.
func find(ctx context.Context, c *console.Client, q query) ([]console.SiteHealth, int, error) {
	if q.Site == "" {
		return c.SiteHealths(ctx, q.chosen(), q.Limit)
	}
	one, err := c.SiteHealth(ctx, q.Site)
	if console.StatusOf(err) == http.StatusNotFound {
		return nil, 0, nil
	}
	return []console.SiteHealth{one}, 1, err
}

type siteRow = console.SiteHealth

// scoreTable has a row for each site.
func scoreTable(sites []siteRow) *data.Frame {
	fields := []*data.Field{
		column("site", sites, func(s *siteRow) string { return s.Name }),
		column("tenant", sites, func(s *siteRow) string { return s.Tenant }),
		column("region", sites, func(s *siteRow) string { return s.Region }),
		column("phase", sites, func(s *siteRow) string { return s.Phase }),
		score(column("score", sites, func(s *siteRow) *float64 { return s.Score })),
		column("colour", sites, func(s *siteRow) string { return s.Colour }),
	}
	for _, d := range dimensions {
		fields = append(fields, score(column(d, sites, func(s *siteRow) *float64 { return s.Dimensions[d].Score })))
	}
	fields = append(fields,
		column("reasons", sites, func(s *siteRow) string {
			var out []string
			for _, r := range s.Reasons {
				out = append(out, r.Text)
			}
			return strings.Join(out, "; ")
		}),
		column("since", sites, func(s *siteRow) *time.Time { return s.Since }),
		column("last seen", sites, func(s *siteRow) *time.Time { return s.LastSeen }),
		column("maintenance", sites, func(s *siteRow) string {
			if s.Maintenance == nil {
				return ""
			}
			return s.Maintenance.Reason
		}),
		column("virtual sites", sites, func(s *siteRow) string { return strings.Join(s.VirtualSites, ", ") }),
		column("latitude", sites, func(s *siteRow) *float64 { return placed(s, func(p *console.Place) float64 { return p.Latitude }) }),
		column("longitude", sites, func(s *siteRow) *float64 { return placed(s, func(p *console.Place) float64 { return p.Longitude }) }),
	)
	return table("sites", fields...)
}

func placed(s *siteRow, of func(*console.Place) float64) *float64 {
	if s.Place == nil {
		return nil
	}
	v := of(s.Place)
	return &v
}

// numericScores is what alert rules take: one series a site, told apart by its strings. An
// unknown score is no number, which a rule answers as its own settings say.
func numericScores(sites []siteRow) *data.Frame {
	fields := []*data.Field{
		column("tenant", sites, func(s *siteRow) string { return s.Tenant }),
		column("site", sites, func(s *siteRow) string { return s.Name }),
		column("region", sites, func(s *siteRow) string { return s.Region }),
		column("score", sites, func(s *siteRow) *float64 { return s.Score }),
	}
	return data.NewFrame("scores", fields...).SetMeta(&data.FrameMeta{Type: data.FrameTypeNumericLong, TypeVersion: data.FrameTypeVersion{0, 1}})
}

func virtualSites(ctx context.Context, c *console.Client, q query) (data.Frames, error) {
	all, err := c.VirtualSites(ctx, maxLimit)
	if err != nil {
		return nil, err
	}
	type row = console.VirtualSite
	rows := all[:0]
	for _, v := range all {
		if name := v.Namespace + "/" + v.Name; (q.VirtualSite == "" || q.VirtualSite == name) && strings.Contains(name, q.Text) {
			rows = append(rows, v)
		}
	}
	total := len(rows)
	rows = rows[:min(total, q.Limit)]
	name := column("virtual site", rows, func(v *row) string { return v.Namespace + "/" + v.Name })
	tenant := column("tenant", rows, func(v *row) string { return v.Tenant })
	mean := column("mean", rows, func(v *row) *float64 { return v.Mean })
	p10 := column("p10", rows, func(v *row) *float64 { return v.P10 })
	worst := column("worst", rows, func(v *row) *float64 {
		if v.Worst == nil {
			return nil
		}
		return v.Worst.Score
	})
	if q.Numeric {
		return data.Frames{data.NewFrame("virtual sites", tenant, name, mean, p10, worst).SetMeta(&data.FrameMeta{Type: data.FrameTypeNumericLong, TypeVersion: data.FrameTypeVersion{0, 1}})}, nil
	}
	fields := []*data.Field{name, tenant, column("sites", rows, func(v *row) int64 { return v.Sites }), score(mean), score(p10), score(worst),
		column("worst site", rows, func(v *row) string {
			if v.Worst == nil {
				return ""
			}
			return v.Worst.Site
		}),
		with(column("unhealthy", rows, func(v *row) *float64 { return v.PercentUnhealthy }), data.FieldConfig{Unit: "percent"}),
		column("maintenance", rows, func(v *row) int64 { return v.Maintenance })}
	for _, colour := range []string{"green", "orange", "red", "grey"} {
		fields = append(fields, column(colour, rows, func(v *row) int64 { return v.Counts[colour] }))
	}
	f := table("virtual sites", fields...)
	cut(f, len(rows), total)
	return data.Frames{f}, nil
}

// ofOneSite is why a site has its score: its reasons, or all its signals.
func ofOneSite(ctx context.Context, c *console.Client, q query) (data.Frames, error) {
	if q.Site == "" {
		return nil, wrong("site", "name one")
	}
	site, err := c.SiteHealth(ctx, q.Site)
	if err != nil {
		return nil, err
	}
	if q.Health == "reasons" {
		rows := site.Reasons
		type row = console.Reason
		return data.Frames{table("reasons",
			column("text", rows, func(r *row) string { return r.Text }),
			column("dimension", rows, func(r *row) string { return r.Dimension }),
			column("signal", rows, func(r *row) string { return r.Signal }),
			column("points lost", rows, func(r *row) float64 { return r.PointsLost }),
			column("value", rows, func(r *row) *float64 { return r.Value }),
			column("threshold", rows, func(r *row) *float64 { return r.Threshold }),
			column("since", rows, func(r *row) *time.Time { return r.Since }),
		)}, nil
	}
	type row = console.Signal
	var rows []row
	for _, s := range site.Signals {
		if s.Applies {
			rows = append(rows, s)
		}
	}
	return data.Frames{table("signals",
		column("signal", rows, func(r *row) string { return r.Name }),
		column("dimension", rows, func(r *row) string { return r.Dimension }),
		column("value", rows, func(r *row) *float64 { return r.Value }),
		column("unit", rows, func(r *row) string { return r.Unit }),
		column("score", rows, func(r *row) *float64 { return r.Score }),
		column("good", rows, func(r *row) float64 { return r.Good }),
		column("bad", rows, func(r *row) float64 { return r.Bad }),
		column("weight", rows, func(r *row) float64 { return r.Weight }),
		column("critical", rows, func(r *row) bool { return r.Critical }),
		column("unknown because", rows, func(r *row) string { return r.Error }),
		column("as of", rows, func(r *row) *time.Time { return r.AsOf }),
	)}, nil
}
