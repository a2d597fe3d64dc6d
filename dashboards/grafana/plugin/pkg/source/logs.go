package source

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"muster.dev/muster/dashboards/grafana/plugin/pkg/console"
)

// patience is how long a region is waited for once another has answered: those that are late are named.
const patience = "2s"

// logs are the lines as Grafana's Explore and log panels take them, and how many there
// were over time.
func (s *Source) logs(ctx context.Context, c *console.Client, q query) (data.Frames, error) {
	if q.Numeric {
		q.Limit = 1 // how many there are is told all the same
	}
	page, err := c.Logs(ctx, url.Values{"query": {q.Query}, "from": {q.from.UTC().Format(time.RFC3339Nano)}, "to": {q.to.UTC().Format(time.RFC3339Nano)},
		"virtualSite": {q.VirtualSite}, "site": {q.Site}, "namespace": {q.Namespace}, "severity": {q.Severity}, "patience": {patience}}, q.Limit)
	if err != nil {
		return nil, err
	}
	histogram := logHistogram(page)
	if q.Numeric {
		return data.Frames{histogram}, nil
	}
	type row = console.LogRecord
	rows := page.Hits
	lines := data.NewFrame("logs",
		column("timestamp", rows, func(r *row) time.Time { return r.Timestamp }),
		column("body", rows, func(r *row) string { return r.Message }),
		column("severity", rows, func(r *row) string { return r.Severity }),
		column("id", rows, func(r *row) string { return r.Timestamp.UTC().Format(time.RFC3339Nano) + "_" + r.ID }),
		column("labels", rows, func(r *row) json.RawMessage { return labelsJSON(logLabels(r)) }),
	).SetMeta(&data.FrameMeta{Type: data.FrameTypeLogLines, TypeVersion: data.FrameTypeVersion{0, 0}, PreferredVisualization: data.VisTypeLogs,
		Custom: map[string]any{"total": page.Total}})
	cut(lines, len(rows), int(page.Total))
	if len(page.Missing) > 0 {
		var who []string
		for _, m := range page.Missing {
			who = append(who, fmt.Sprintf("%s (%s)", m.Region, m.Reason))
		}
		notice(lines, data.NoticeSeverityWarning, "Without the regions %s", strings.Join(who, ", "))
	}
	return data.Frames{lines, histogram}, nil
}

func logLabels(r *console.LogRecord) map[string]string {
	out := map[string]string{}
	for k, v := range r.Labels {
		out[k] = v
	}
	for k, v := range map[string]string{"tenant": r.Tenant, "site": r.Site, "region": r.Region, "node": r.Node, "namespace": r.Namespace, "pod": r.Pod, "container": r.Container, "unit": r.Unit} {
		if v != "" {
			out[k] = v
		}
	}
	return out
}

// logHistogram counts lines, in buckets from their time on.
func logHistogram(p console.LogPage) *data.Frame {
	var at []time.Time
	var counts []float64
	var interval float64
	if h := p.Histogram; h != nil {
		interval = float64(h.StepSeconds) * 1000
		for i, n := range h.Counts {
			at, counts = append(at, h.Start.Add(time.Duration(i)*time.Duration(h.StepSeconds)*time.Second)), append(counts, float64(n))
		}
	}
	return data.NewFrame("histogram", with(data.NewField("time", nil, at), data.FieldConfig{Interval: interval}), data.NewField("lines", nil, counts)).
		SetMeta(&data.FrameMeta{Type: data.FrameTypeTimeSeriesWide, TypeVersion: data.FrameTypeVersion{0, 1}, PreferredVisualization: data.VisTypeGraph})
}
