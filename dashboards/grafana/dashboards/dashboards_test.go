package dashboards

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

func all(t *testing.T) []Dashboard {
	t.Helper()
	ds, err := All()
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// People hold these in links and bookmarks: a uid that is gone breaks them.
var uids = []string{"muster-aggregator", "muster-collector-cost", "muster-connectivity", "muster-fleet", "muster-load", "muster-node", "muster-regional",
	"muster-security", "muster-site", "muster-virtual-site", "muster-workloads"}

func TestGeneratedFilesAreCurrent(t *testing.T) {
	var got []string
	for _, d := range all(t) {
		got = append(got, d.UID)
		file, err := os.ReadFile(d.File())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(file, d.JSON) {
			t.Errorf("%s is not what the code makes: run make generate", d.File())
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, uids) {
		t.Errorf("uids: %v, want %v", got, uids)
	}
	files, _ := filepath.Glob("*.json")
	if len(files) != len(uids) {
		t.Errorf("files without a dashboard: %v", files)
	}
}

var testVars = map[string]string{"site": "paris", "node": "paris-n1", "virtual_site": "shared/all", "namespace": ".*"}

func TestEveryQueryIsPromQL(t *testing.T) {
	n := 0
	for _, d := range all(t) {
		qs, err := d.Queries(testVars)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range qs {
			n++
			if strings.Contains(strings.ReplaceAll(q.Expr, `"$1"`, ""), "$") {
				t.Errorf("%s, %s: a variable that nobody fills in: %s", d.UID, q.Panel, q.Expr)
			}
			if _, err := parser.ParseExpr(q.Expr); err != nil {
				t.Errorf("%s, %s: %v\n%s", d.UID, q.Panel, err, q.Expr)
			}
			if q.Source != Metrics && q.Source != Platform {
				t.Errorf("%s, %s: data source %q", d.UID, q.Panel, q.Source)
			}
		}
	}
	if n < 150 {
		t.Errorf("only %d queries were found", n)
	}
}

type shape struct {
	UID           string `json:"uid"`
	SchemaVersion int    `json:"schemaVersion"`
	Panels        []struct {
		ID      int                      `json:"id"`
		Type    string                   `json:"type"`
		Title   string                   `json:"title"`
		Grid    struct{ X, Y, W, H int } `json:"gridPos"`
		Targets []map[string]any         `json:"targets"`
	} `json:"panels"`
	Templating struct {
		List []struct{ Name, Type string } `json:"list"`
	} `json:"templating"`
}

var variable = regexp.MustCompile(`\$\{?([a-z][a-z_]*)`)

func TestShape(t *testing.T) {
	for _, d := range all(t) {
		var s shape
		if err := json.Unmarshal(d.JSON, &s); err != nil {
			t.Fatal(err)
		}
		if s.SchemaVersion != 42 || s.UID != d.UID {
			t.Errorf("%s: schemaVersion %d, uid %s", d.UID, s.SchemaVersion, s.UID)
		}
		defined := map[string]bool{}
		for _, v := range s.Templating.List {
			defined[v.Name] = true
		}
		ids, taken := map[int]bool{}, map[[2]int]string{}
		for _, p := range s.Panels {
			if p.Title == "" || ids[p.ID] || p.ID == 0 {
				t.Errorf("%s: panel %d %q has no title, or no id of its own", d.UID, p.ID, p.Title)
			}
			ids[p.ID] = true
			if p.Type != "row" && len(p.Targets) == 0 {
				t.Errorf("%s, %s: no query", d.UID, p.Title)
			}
			if p.Grid.X+p.Grid.W > 24 {
				t.Errorf("%s, %s: wider than the page", d.UID, p.Title)
			}
			for x := p.Grid.X; x < p.Grid.X+p.Grid.W; x++ {
				for y := p.Grid.Y; y < p.Grid.Y+p.Grid.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" {
						t.Fatalf("%s: %q lies on %q", d.UID, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
		for _, m := range variable.FindAllSubmatch(d.JSON, -1) {
			if !defined[string(m[1])] {
				t.Errorf("%s: the variable %s is not defined", d.UID, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`"url": "/d/([a-z-]+)`).FindAllSubmatch(d.JSON, -1) {
			if !slices.Contains(uids, string(m[1])) {
				t.Errorf("%s: a link leads to %s, which is no dashboard", d.UID, m[1])
			}
		}
	}
}

// A dashboard has to work in everybody's Grafana, so it asks for its data sources.
func TestNoDataSourceIsHardCoded(t *testing.T) {
	var walk func(t *testing.T, at string, v any)
	walk = func(t *testing.T, at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if ds, ok := v["datasource"].(map[string]any); ok {
				if uid, _ := ds["uid"].(string); !slices.Contains([]string{"${metrics}", "${platform}", "${fleet}"}, uid) {
					t.Errorf("%s: data source %v", at, ds)
				}
			}
			for k, e := range v {
				walk(t, at+"."+k, e)
			}
		case []any:
			for _, e := range v {
				walk(t, at, e)
			}
		}
	}
	for _, d := range all(t) {
		var doc any
		if err := json.Unmarshal(d.JSON, &doc); err != nil {
			t.Fatal(err)
		}
		walk(t, d.UID, doc)
	}
}

// The map is drawn of what Grafana has: an edge's Grafana may reach no tile server.
func TestMapsAskNoTileServer(t *testing.T) {
	type layer struct {
		Type   string
		Config struct{ Src string }
	}
	maps := 0
	for _, d := range all(t) {
		var doc struct {
			Panels []struct {
				Type    string
				Options struct {
					Basemap layer
					Layers  []layer
				}
			}
		}
		if err := json.Unmarshal(d.JSON, &doc); err != nil {
			t.Fatal(err)
		}
		for _, p := range doc.Panels {
			if p.Type != "geomap" {
				continue
			}
			maps++
			if b := p.Options.Basemap; b.Type != "geojson" || !strings.HasPrefix(b.Config.Src, "public/maps/") {
				t.Errorf("%s: below the map is %+v", d.UID, b)
			}
			for _, l := range p.Options.Layers {
				if l.Type != "markers" {
					t.Errorf("%s: a layer of %s, which may be tiles", d.UID, l.Type)
				}
			}
		}
	}
	if maps == 0 {
		t.Error("there is no map")
	}
}

// What load is, the dashboards, the shipped policy and the console say alike.
func TestLoadIsWhatThePolicySays(t *testing.T) {
	for file, has := range map[string][]string{
		"../../../health/defaults/healthpolicy.yaml": {realFS, notUsed, "min by (tenant, site) (node_memory_MemAvailable_bytes / (node_memory_MemTotal_bytes > 0))"},
		"../../console/ui/src/lib/load.ts":           {realFS, notUsed, "min by (site) (node_memory_MemAvailable_bytes / (node_memory_MemTotal_bytes > 0))"},
	} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range has {
			if !strings.Contains(string(b), part) {
				t.Errorf("%s has no %s", file, part)
			}
		}
	}
	if got := memoryOf("site"); !strings.Contains(got, "min by (site) (node_memory_MemAvailable_bytes{} / (node_memory_MemTotal_bytes{} > 0))") {
		t.Error(got)
	}
}
