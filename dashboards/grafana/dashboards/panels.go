package dashboards

import (
	"encoding/json"
	"reflect"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/histogram"
	"github.com/grafana/grafana-foundation-sdk/go/logs"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// query is one of PromQL with its legend.
type query struct{ expr, legend string }

func q(expr, legend string) query { return query{expr, legend} }

// look is what panels of all kinds have in common.
type look struct {
	title, help, unit string
	from              string // the data source; default Metrics
	span, height      uint32 // of 24 columns, in rows of 30 px
	limits            *limits
	max               float64 // of the axis; 0: as it comes
}

// limits are where values turn orange and red; when less is worse red is under orange.
type limits struct{ orange, red float64 }

func (l look) source() common.DataSourceRef {
	if l.from == "" {
		return source(Metrics)
	}
	return source(l.from)
}

func (l limits) build() cog.Builder[dashboard.ThresholdsConfig] {
	steps := []dashboard.Threshold{{Color: "green"}, {Color: "orange", Value: &l.orange}, {Color: "red", Value: &l.red}}
	if l.red < l.orange {
		steps = []dashboard.Threshold{{Color: "red"}, {Color: "orange", Value: &l.red}, {Color: "green", Value: &l.orange}}
	}
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps)
}

// score are the limits of Muster's colours.
var score = &limits{orange: 75, red: 40}

func target(from common.DataSourceRef, n int, x query) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().Datasource(from).Expr(x.expr).LegendFormat(x.legend).RefId(string(rune('A' + n))).EditorMode(prometheus.QueryEditorModeCode)
}

func lastValue() cog.Builder[common.ReduceDataOptions] {
	return common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})
}

// figure is one number, or one a series.
func (b *board) figure(l look, qs ...query) *board {
	p := stat.NewPanelBuilder().Id(b.next()).Title(l.title).Description(l.help).Datasource(l.source()).Unit(l.unit).Span(l.span).Height(or(l.height, 4)).
		GraphMode(common.BigValueGraphModeArea).ReduceOptions(lastValue())
	if l.limits != nil {
		p.Thresholds(l.limits.build()).ColorMode(common.BigValueColorModeValue)
	}
	for n, x := range qs {
		p.WithTarget(target(l.source(), n, x).Range())
	}
	b.b.WithPanel(p)
	return b
}

// chart is values over time.
func (b *board) chart(l look, qs ...query) *board {
	p := timeseries.NewPanelBuilder().Id(b.next()).Title(l.title).Description(l.help).Datasource(l.source()).Unit(l.unit).Span(l.span).Height(or(l.height, 8)).
		FillOpacity(10).ShowPoints(common.VisibilityModeNever).Min(0).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	if l.limits != nil {
		p.Thresholds(l.limits.build()).ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().Mode(common.GraphThresholdsStyleModeDashed))
	}
	if l.max != 0 {
		p.Max(l.max)
	}
	for n, x := range qs {
		p.WithTarget(target(l.source(), n, x).Range())
	}
	b.b.WithPanel(p)
	return b
}

// ranked is a bar for each series as it is now.
func (b *board) ranked(l look, x query) *board {
	p := bargauge.NewPanelBuilder().Id(b.next()).Title(l.title).Description(l.help).Datasource(l.source()).Unit(l.unit).Span(l.span).Height(or(l.height, 10)).
		Orientation(common.VizOrientationHorizontal).DisplayMode(common.BarGaugeDisplayModeBasic).ReduceOptions(lastValue()).Min(0).
		WithTarget(target(l.source(), 0, x).Instant())
	if l.limits != nil {
		p.Thresholds(l.limits.build())
	}
	if l.max != 0 {
		p.Max(l.max)
	}
	b.b.WithPanel(p)
	return b
}

// spread is how the values of many series are distributed now.
func (b *board) spread(l look, bucket int32, x query) *board {
	b.b.WithPanel(histogram.NewPanelBuilder().Id(b.next()).Title(l.title).Description(l.help).Datasource(l.source()).Unit(l.unit).Span(l.span).Height(or(l.height, 8)).
		BucketSize(bucket).Combine(true).Legend(common.NewVizLegendOptionsBuilder().ShowLegend(false)).
		WithTarget(target(l.source(), 0, x).Instant()))
	return b
}

// list is a table of what is now: the labels and the value of each series. Columns that
// say nothing are left out.
func (b *board) list(l look, value string, x query) *board {
	p := table.NewPanelBuilder().Id(b.next()).Title(l.title).Description(l.help).Datasource(l.source()).Span(l.span).Height(or(l.height, 10)).
		WithTarget(target(l.source(), 0, x).Instant().Format(prometheus.PromQueryFormatTable)).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
			"excludeByName": map[string]bool{"Time": true, "tenant": true, "__name__": true, "instance": true, "job": true},
			"renameByName":  map[string]string{"Value": value},
		}}).
		OverrideByName(value, unitOf(l))
	if l.from == "" {
		p.OverrideByName("site", linkTo("Open the site", "muster-site", "site")).OverrideByName("node", linkTo("Open the node", "muster-node", "node"))
	}
	b.b.WithPanel(p)
	return b
}

func unitOf(l look) []dashboard.DynamicConfigValue {
	out := []dashboard.DynamicConfigValue{{Id: "unit", Value: l.unit}}
	if l.limits != nil {
		t, _ := l.limits.build().Build() // fixed values
		out = append(out, dashboard.DynamicConfigValue{Id: "thresholds", Value: t}, dashboard.DynamicConfigValue{Id: "custom.cellOptions", Value: map[string]any{"type": "color-text"}})
	}
	return out
}

// linkTo makes a cell lead to another dashboard, with the cell's row as its variable.
func linkTo(title, uid, variable string) []dashboard.DynamicConfigValue {
	return []dashboard.DynamicConfigValue{{Id: "links", Value: []map[string]any{{
		"title": title, "url": "/d/" + uid + "?${__url_time_range}&${metrics:queryparam}&${fleet:queryparam}&var-site=${__data.fields.site}&var-" + variable + "=${__value.raw}",
	}}}}
}

// fleetQuery is one of Muster's own data source; its fields are in the plugin's README.
type fleetQuery map[string]any

func (fleetQuery) ImplementsDataqueryVariant()          {}
func (fleetQuery) DataqueryType() string                { return PluginID }
func (fleetQuery) Validate() error                      { return nil }
func (f fleetQuery) Build() (variants.Dataquery, error) { return f, nil }
func (f fleetQuery) Equals(o variants.Dataquery) bool   { return reflect.DeepEqual(f, o) }

// MarshalJSON adds the data source.
func (f fleetQuery) MarshalJSON() ([]byte, error) {
	m := map[string]any{"datasource": source(Fleet), "refId": "A"}
	for k, v := range f {
		m[k] = v
	}
	return json.Marshal(m)
}

// rows is a table of Muster's own data source.
func (b *board) rows(l look, f fleetQuery) *board {
	b.b.WithPanel(table.NewPanelBuilder().Id(b.next()).Title(l.title).Description(l.help).Datasource(source(Fleet)).Span(l.span).Height(or(l.height, 10)).
		WithTarget(f).
		OverrideByName("site", linkTo("Open the site", "muster-site", "site")))
	return b
}

// lines is log lines of Muster's own data source.
func (b *board) lines(l look, f fleetQuery) *board {
	b.b.WithPanel(logs.NewPanelBuilder().Id(b.next()).Title(l.title).Description(l.help).Datasource(source(Fleet)).Span(l.span).Height(or(l.height, 10)).
		ShowTime(true).WrapLogMessage(true).EnableLogDetails(true).SortOrder(common.LogsSortOrderDescending).
		WithTarget(f))
	return b
}

func or(v, otherwise uint32) uint32 {
	if v == 0 {
		return otherwise
	}
	return v
}
