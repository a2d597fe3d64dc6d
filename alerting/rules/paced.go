package rules

import (
	"fmt"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/promexpr"
)

// ofMuster are the series of each site that Muster itself writes, as often of a slow site as of any.
var ofMuster = []string{fleet.MetricSiteScore, fleet.MetricSiteConnected, fleet.MetricSiteLastPush, fleet.MetricSitePace}

// slowInterval is how often rules about slow sites are evaluated: they say nothing else in between.
const slowInterval = model.Duration(time.Minute)

// paced is a shipped file where there are sites that are scraped less than once a minute: its rules leave
// those out, and there is each of them once more for each pace, with what promexpr makes of it for that. What
// reads nothing but Muster's own series stays as it is.
func paced(f File, paces []time.Duration) (File, error) {
	var doc rulefmt.RuleGroups
	if err := yaml.Unmarshal(f.Content, &doc); err != nil {
		return f, err
	}
	var slow []rulefmt.RuleGroup
	for g := range doc.Groups {
		group := &doc.Groups[g]
		of := make([][]rulefmt.Rule, len(paces))
		for i, r := range group.Rules {
			expr, err := parser.ParseExpr(r.Expr)
			if err != nil {
				return f, fmt.Errorf("%s: %w", r.Alert, err)
			}
			if promexpr.Reads(expr, ofMuster...) {
				continue
			}
			for p, pace := range paces {
				again, err := parser.ParseExpr(r.Expr)
				if err != nil {
					return f, err
				}
				again = promexpr.Held(promexpr.Paced(again, pace), fleet.Lookback(pace))
				one := r
				one.Expr = fmt.Sprintf("(%s) and on (tenant, site) %s == %v", again, fleet.MetricSitePace, pace.Seconds())
				of[p] = append(of[p], one)
			}
			group.Rules[i].Expr = fmt.Sprintf("(%s) unless on (tenant, site) %s", expr, fleet.MetricSitePace)
		}
		for p, pace := range paces {
			if len(of[p]) > 0 {
				slow = append(slow, rulefmt.RuleGroup{Name: group.Name + "-every-" + model.Duration(pace).String(), Interval: slowInterval, Rules: of[p]})
			}
		}
	}
	doc.Groups = append(doc.Groups, slow...)
	content, err := yaml.Marshal(doc)
	f.Content = content
	return f, err
}
