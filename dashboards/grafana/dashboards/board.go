package dashboards

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// PluginID is the type of Muster's own data source, in dashboards/grafana/plugin.
const PluginID = "muster-fleet-datasource"

// The variables that stand for data sources.
const (
	// Metrics is a Prometheus data source at Cortex, with the tenant in X-Scope-OrgID.
	Metrics = "metrics"
	// Platform is one at a regional's local engine: Muster about itself. The first
	// regional's has every role.
	Platform = "platform"
	// Fleet is Muster's own data source.
	Fleet = "fleet"
)

// Dashboard is one, built.
type Dashboard struct {
	UID  string // fixed: links and bookmarks hold it
	JSON []byte
}

// File is its name among the generated files.
func (d Dashboard) File() string { return d.UID + ".json" }

// All builds the dashboards, in the order in which people meet them.
func All() ([]Dashboard, error) {
	var out []Dashboard
	for _, make := range []func() *board{wholeFleet, virtualSite, site, node, workloads, load, connectivity, security, regional, aggregator, cost} {
		b := make()
		built, err := b.b.Build()
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", b.uid, err)
		}
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(built); err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", b.uid, err)
		}
		out = append(out, Dashboard{UID: b.uid, JSON: buf.Bytes()})
	}
	return out, nil
}

// board is a dashboard in the making. Panels get consecutive ids and places in the order
// in which they are added.
type board struct {
	uid string
	b   *dashboard.DashboardBuilder
	id  uint32
}

func newBoard(uid, title, description string, vars ...cog.Builder[dashboard.VariableModel]) *board {
	b := dashboard.NewDashboardBuilder("Muster / "+title).
		Uid(uid).Description(description).Tags([]string{"muster"}).
		Time("now-6h", "now").Refresh("30s").Timezone("browser").Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Link(dashboard.NewDashboardLinkBuilder("Muster").Type(dashboard.DashboardLinkTypeDashboards).Tags([]string{"muster"}).
			AsDropdown(true).IncludeVars(true).KeepTime(true))
	for _, v := range vars {
		b.WithVariable(v)
	}
	return &board{uid: uid, b: b}
}

func (b *board) next() uint32 { b.id++; return b.id }

// row begins a part of the dashboard.
func (b *board) row(title string) *board {
	b.b.WithRow(dashboard.NewRowBuilder(title).Id(b.next()))
	return b
}

// annotate marks what happened to what the field and variable choose, from Muster's own
// data source.
func (b *board) annotate(field, variable string) *board {
	for _, a := range []struct{ name, kind, colour string }{{"Colours", "colour", "orange"}, {"Alerts", "alert", "red"}, {"Rollouts", "rollout", "blue"}, {"Maintenance", "maintenance", "purple"}} {
		b.b.Annotation(dashboard.NewAnnotationQueryBuilder().Name(a.name).Datasource(source(Fleet)).Enable(true).IconColor(a.colour).
			Target(fleetQuery{"refId": "Anno", "queryType": "annotations", "annotations": "timeline", "kinds": a.kind, field: "${" + variable + "}"}))
	}
	return b
}

// source is a variable of a data source.
func source(v string) common.DataSourceRef {
	kind := "prometheus"
	if v == Fleet {
		kind = PluginID
	}
	ref := "${" + v + "}"
	return common.DataSourceRef{Type: &kind, Uid: &ref}
}

// sourceVar lets people choose which data source a variable of data sources stands for.
func sourceVar(name, label, description string) cog.Builder[dashboard.VariableModel] {
	return dashboard.NewDatasourceVariableBuilder(name).Label(label).Description(description).Type(*source(name).Type)
}

func metricsVar() cog.Builder[dashboard.VariableModel] {
	return sourceVar(Metrics, "Metrics", "Prometheus data source at Cortex, with the tenant in X-Scope-OrgID")
}

func platformVar() cog.Builder[dashboard.VariableModel] {
	return sourceVar(Platform, "Regional", "Prometheus data source at a regional's local engine; the first regional's has every role")
}

func fleetVar() cog.Builder[dashboard.VariableModel] {
	return sourceVar(Fleet, "Muster", "Muster's own data source")
}

// labelVar offers the values of a label. With all, everything can be chosen.
func labelVar(name, label, from, query string, all bool) cog.Builder[dashboard.VariableModel] {
	v := dashboard.NewQueryVariableBuilder(name).Label(label).Datasource(source(from)).
		Query(dashboard.StringOrMap{Map: map[string]any{"qryType": 1, "query": query, "refId": "Variable"}}).Definition(query).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortAlphabeticalAsc)
	if all {
		v.IncludeAll(true).AllValue(".*").Multi(true)
	}
	return v
}

func virtualSiteVar() cog.Builder[dashboard.VariableModel] {
	return labelVar("virtual_site", "Virtual site", Metrics, "label_values(muster_virtual_site_member, virtual_site)", false)
}

func siteVar() cog.Builder[dashboard.VariableModel] {
	return labelVar("site", "Site", Metrics, "label_values(muster_site_health_score, site)", false)
}
