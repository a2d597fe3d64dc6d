package dashboards

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Query is PromQL of a panel.
type Query struct {
	Dashboard, Panel string // uid and title
	Source           string // Metrics or Platform
	Expr             string // with the variables filled in
	Instant          bool
	Legend           string
}

// Queries are those of a dashboard that are PromQL, with variables filled in as Grafana
// does: ours from vars, by name, and Grafana's own for a scrape every 15 s.
func (d Dashboard) Queries(vars map[string]string) ([]Query, error) {
	var doc struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr       string `json:"expr"`
				Instant    bool   `json:"instant"`
				Legend     string `json:"legendFormat"`
				Datasource struct {
					Type string `json:"type"`
					UID  string `json:"uid"`
				} `json:"datasource"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(d.JSON, &doc); err != nil {
		return nil, fmt.Errorf("dashboard %s: %w", d.UID, err)
	}
	pairs := []string{"$__rate_interval", "1m", "$__interval", "15s", "$__range", "6h"}
	for name, value := range vars {
		pairs = append(pairs, "${"+name+"}", value, "$"+name, value)
	}
	fill := strings.NewReplacer(pairs...)
	var out []Query
	for _, p := range doc.Panels {
		for _, t := range p.Targets {
			if t.Datasource.Type == "prometheus" {
				out = append(out, Query{Dashboard: d.UID, Panel: p.Title, Source: strings.Trim(t.Datasource.UID, "${}"), Expr: fill.Replace(t.Expr), Instant: t.Instant, Legend: t.Legend})
			}
		}
	}
	return out, nil
}
