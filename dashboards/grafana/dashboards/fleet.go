package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/geomap"
)

// colours are the values of muster_site_health_colour, worst first.
var colours = []struct{ name, is string }{{"red", "3"}, {"orange", "2"}, {"green", "1"}, {"grey", "0"}}

// byColour counts the sites of each colour; among is what else holds of them.
func byColour(among string) (out []query) {
	for _, c := range colours {
		out = append(out, q("count((muster_site_health_colour == "+c.is+")"+among+") or vector(0)", c.name))
	}
	return out
}

func wholeFleet() *board {
	b := newBoard("muster-fleet", "Fleet", "All sites: how healthy they are, which are worst and why", metricsVar(), fleetVar())
	b.figure(look{title: "Sites", span: 3}, q("count(muster_site_health_score or muster_site_connected)", "")).
		figure(look{title: "Mean score", span: 3, limits: score}, q("avg(muster_site_health_score)", "")).
		figure(look{title: "Sites by colour", span: 9}, byColour("")...).
		figure(look{title: "Offline", span: 3, limits: &limits{orange: 1, red: 5}}, q("count(max by (site) (muster_site_connected) == 0) or vector(0)", "")).
		figure(look{title: "Nodes not ready", span: 3, limits: &limits{orange: 1, red: 5}},
			q(`count(kube_node_status_condition{condition="Ready",status="true"} == 0) or vector(0)`, "")).
		figure(look{title: "Alerts on metrics", help: "Alerts that fire of rules over metrics. Those of log rules are Alertmanager's alone: see the table of alerts, or the console's page.", span: 3, limits: &limits{orange: 1, red: 20}}, q(`count(ALERTS{alertstate="firing"}) or vector(0)`, ""))
	b.row("Where").fleetMap(look{title: "Map", help: "Every site by its score. The coast lines come with Grafana; no tile server is asked.", span: 14, height: 14}).
		rows(look{title: "Worst sites, and why", span: 10, height: 14}, fleetQuery{"queryType": "health", "health": "sites", "sort": "score", "limit": 50})
	b.row("Over time").
		chart(look{title: "Sites by colour", span: 12}, byColour("")...).
		chart(look{title: "Dimensions, mean", span: 12, limits: score, max: 100}, q("avg by (dimension) (muster_site_health_dimension_score)", "{{dimension}}")).
		chart(look{title: "Score by region, mean", span: 12, limits: score, max: 100}, q("avg by (region) (muster_site_health_score)", "{{region}}")).
		chart(look{title: "Virtual sites, mean", span: 12, limits: score, max: 100}, q(`muster_virtual_site_health_score{stat="mean"}`, "{{virtual_site}}"))
	b.row("What runs").
		list(look{title: "Agent versions", span: 8}, "sites", q("count by (version) (muster_edge_build_info)", "")).
		list(look{title: "Kernels", span: 8}, "nodes", q("count by (release) (node_uname_info)", "")).
		rows(look{title: "Alerts", span: 8}, fleetQuery{"queryType": "alerts", "limit": 100})
	return b
}

// fleetMap shows sites on Grafana's own outline of the countries.
func (b *board) fleetMap(l look) *board {

	b.b.WithPanel(geomap.NewPanelBuilder().Id(b.next()).Title(l.title).Description(l.help).Datasource(source(Fleet)).Span(l.span).Height(l.height).
		WithTarget(fleetQuery{"queryType": "health", "health": "sites", "limit": 10000}).
		View(geomap.NewMapViewConfigBuilder().Id("coords").Lat(20).Lon(0).Zoom(2).AllLayers(true)).
		Basemap(common.NewMapLayerOptionsBuilder().Type("geojson").Name("Countries").Config(map[string]any{
			"src":   "public/maps/countries.geojson",
			"rules": []any{},
			"style": map[string]any{"color": map[string]any{"fixed": "rgba(128, 128, 128, 0.35)"}, "opacity": 0.35, "lineWidth": 1},
		})).
		Layers([]cog.Builder[common.MapLayerOptions]{common.NewMapLayerOptionsBuilder().Type("markers").Name("Sites").Tooltip(true).
			Location(common.NewFrameGeometrySourceBuilder().Mode(common.FrameGeometrySourceModeCoords).Latitude("latitude").Longitude("longitude")).
			Config(map[string]any{"showLegend": true, "style": map[string]any{
				"color": map[string]any{"field": "score", "fixed": "gray"}, "opacity": 0.8,
				"size":   map[string]any{"fixed": 6, "min": 2, "max": 15},
				"symbol": map[string]any{"fixed": "img/icons/marker/circle.svg", "mode": "fixed"},
			}})}).
		Thresholds(score.build()))
	return b
}

func virtualSite() *board {
	b := newBoard("muster-virtual-site", "Virtual site", "The members of one virtual site together", metricsVar(), fleetVar(), virtualSiteVar())
	const member = ` and on (tenant, site) muster_virtual_site_member{virtual_site="$virtual_site"}`
	b.annotate("virtualSite", "virtual_site")
	b.figure(look{title: "Sites", span: 3}, q(`count(muster_virtual_site_member{virtual_site="$virtual_site"})`, "")).
		figure(look{title: "Mean, 10th percentile, worst", span: 9, limits: score}, q(`muster_virtual_site_health_score{virtual_site="$virtual_site"}`, "{{stat}}")).
		figure(look{title: "Sites by colour", span: 9}, byColour(member)...).
		figure(look{title: "Unhealthy", unit: "percent", span: 3, limits: &limits{orange: 10, red: 25}},
			q(`100 * (count((muster_site_health_colour >= 2)`+member+`) or vector(0)) / count(muster_site_health_colour`+member+`)`, ""))
	b.row("Health").
		chart(look{title: "Score", span: 12, limits: score, max: 100}, q(`muster_virtual_site_health_score{virtual_site="$virtual_site"}`, "{{stat}}")).
		chart(look{title: "Dimensions, mean", span: 12, limits: score, max: 100}, q(`avg by (dimension) (muster_site_health_dimension_score`+member+`)`, "{{dimension}}")).
		rows(look{title: "Members, worst first, and why", span: 16, height: 12}, fleetQuery{"queryType": "health", "health": "sites", "virtualSite": "${virtual_site}", "sort": "score", "limit": 1000}).
		rows(look{title: "Alerts", span: 8, height: 12}, fleetQuery{"queryType": "alerts", "virtualSite": "${virtual_site}", "limit": 200})
	b.row("Load").
		chart(look{title: "CPU in use: mean and worst site", unit: "percent", span: 8, max: 100},
			q("avg(("+cpuOf("site")+")"+memberOfSite+")", "mean"), q("max(("+cpuOf("site")+")"+memberOfSite+")", "worst")).
		chart(look{title: "Memory in use: mean and worst site", unit: "percent", span: 8, max: 100},
			q("avg(("+memoryOf("site")+")"+memberOfSite+")", "mean"), q("max(("+memoryOf("site")+")"+memberOfSite+")", "worst")).
		chart(look{title: "Fullest filesystem: mean and worst site", unit: "percent", span: 8, max: 100},
			q("avg(("+diskOf("site")+")"+memberOfSite+")", "mean"), q("max(("+diskOf("site")+")"+memberOfSite+")", "worst"))
	return b
}
