package source

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"muster.dev/muster/dashboards/grafana/plugin/pkg/console"
)

// historyExpr is the PromQL of a history. Scores are series in the metric store, so that
// what was is asked there.
func historyExpr(q query) (string, error) {
	if q.VirtualSite != "" && q.Site == "" && q.Stat != "" {
		if err := oneOf("stat", q.Stat, "mean", "p10", "worst"); err != nil {
			return "", err
		}
		return `muster_virtual_site_health_score{virtual_site=` + strconv.Quote(q.VirtualSite) + `,stat=` + strconv.Quote(q.Stat) + `}`, nil
	}
	name, match := "muster_site_health_score", ""
	if q.Dimension != "" {
		if err := oneOf("dimension", q.Dimension, append([]string{"all"}, dimensions...)...); err != nil {
			return "", err
		}
		name = "muster_site_health_dimension_score"
		if q.Dimension != "all" {
			match = `dimension=` + strconv.Quote(q.Dimension) + `,`
		}
	}
	if q.Site != "" {
		match += `site=` + strconv.Quote(q.Site) + `,`
	}
	if q.Region != "" {
		match += `region=` + strconv.Quote(q.Region)
	}
	expr := name + "{" + match + "}"
	if q.VirtualSite != "" {
		expr += ` and on (tenant, site) muster_virtual_site_member{virtual_site=` + strconv.Quote(q.VirtualSite) + `}`
	}
	return expr, nil
}

func history(ctx context.Context, c *console.Client, q query) (data.Frames, error) {
	expr, err := historyExpr(q)
	if err != nil {
		return nil, err
	}
	q.Expr = expr
	return series(ctx, c, q)
}

// metrics is PromQL of the user's own, with the rights of the user.
func (s *Source) metrics(ctx context.Context, c *console.Client, q query) (data.Frames, error) {
	if q.Expr == "" {
		return nil, wrong("expr", "write an expression of PromQL")
	}
	q.Expr = q.filled()
	return series(ctx, c, q)
}

// scrape is how far apart samples are, as far as a rate has to know.
const scrape = 15 * time.Second

// filled is the expression with the variables of Grafana that nobody fills in for this data source, or for
// alert rules not at all: the length of a step and the like.
func (q *query) filled() string {
	whole := q.to.Sub(q.from).Round(time.Second)
	seconds := func(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
	var pairs []string
	for name, v := range map[string]string{
		"__rate_interval_ms": seconds(max(q.step+scrape, 4*scrape)) + "000", "__rate_interval": seconds(max(q.step+scrape, 4*scrape)) + "s",
		"__interval_ms": seconds(q.step) + "000", "__interval": seconds(q.step) + "s",
		"__range_ms": seconds(whole) + "000", "__range_s": seconds(whole), "__range": seconds(whole) + "s",
	} {
		pairs = append(pairs, "${"+name+"}", v)
		// Of $__range_s the longer name is meant.
		if strings.HasSuffix(name, "_ms") || strings.HasSuffix(name, "_s") {
			pairs = append([]string{"$" + name, v}, pairs...)
		} else {
			pairs = append(pairs, "$"+name, v)
		}
	}
	return strings.NewReplacer(pairs...).Replace(q.Expr)
}

// series are frames of one series each, with its labels.
func series(ctx context.Context, c *console.Client, q query) (data.Frames, error) {
	result, err := c.QueryRange(ctx, q.Expr, q.from, q.to, q.step)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(result, func(a, b console.Series) int {
		return cmp.Compare(data.Labels(a.Metric).String(), data.Labels(b.Metric).String())
	})
	frames := data.Frames{}
	for i, r := range result {
		if i == q.Limit {
			notice(frames[0], data.NoticeSeverityWarning, "%d of %d series: raise the limit, or ask for fewer", i, len(result))
			break
		}
		labels := maps.Clone(r.Metric)
		name := cmp.Or(labels["__name__"], "value")
		delete(labels, "__name__")
		times, values := make([]time.Time, len(r.Values)), make([]float64, len(r.Values))
		for j, v := range r.Values {
			times[j], values[j] = v.Time, v.Value
		}
		f := data.NewFrame(name, data.NewField("time", nil, times), data.NewField(name, labels, values))
		frames = append(frames, f.SetMeta(&data.FrameMeta{Type: data.FrameTypeTimeSeriesMulti, TypeVersion: data.FrameTypeVersion{0, 1}, ExecutedQueryString: q.Expr}))
	}
	return frames, nil
}
