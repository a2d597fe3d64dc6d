package source_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/dashboards/grafana/plugin/pkg/protocoltest"
)

// momentOf is when the query of a panel has to have something in it: "always", while its site has a
// "fault", for which it was in maintenance before, or after a "rollout" at it.
func momentOf(t *testing.T, target json.RawMessage) string {
	t.Helper()
	var q struct{ QueryType, Health, Annotations, Kinds, Site string }
	if err := json.Unmarshal(target, &q); err != nil {
		t.Fatal(err)
	}
	switch {
	case q.QueryType == "rollouts", q.QueryType == "annotations" && (q.Kinds == "rollout" || q.Annotations == "rollouts"):
		return "rollout"
	case q.QueryType == "annotations", q.QueryType == "health" && q.Health == "reasons", q.QueryType == "alerts" && q.Site != "":
		return "fault"
	}
	return "always"
}

// TestAgainstAConsole asks a running console what the dashboards ask of this data source at one
// moment. The e2e of the whole fleet runs it at each of them, with the demo's console.
func TestAgainstAConsole(t *testing.T) {
	url, site, moment := os.Getenv("MUSTER_CONSOLE"), os.Getenv("MUSTER_SITE"), os.Getenv("MUSTER_MOMENT")
	if url == "" {
		t.Skip("set MUSTER_CONSOLE and MUSTER_TOKEN to those of a fleet, MUSTER_SETTINGS to the jsonData of a data source ({\"tenant\":\"demo\"}), MUSTER_MOMENT to always, fault or rollout and MUSTER_SITE to a site that has that, or run make test-e2e")
	}
	p := protocoltest.Start(t, url, os.Getenv("MUSTER_SETTINGS"), os.Getenv("MUSTER_TOKEN"))
	if ok, msg := p.CheckHealth(); !ok {
		t.Fatal(msg)
	}
	files, err := filepath.Glob("../../../dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	fill := strings.NewReplacer("${site}", site, "${virtual_site}", "shared/all")
	asked := 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Panels []struct {
				Title   string            `json:"title"`
				Targets []json.RawMessage `json:"targets"`
			} `json:"panels"`
			Annotations struct {
				List []struct {
					Name   string          `json:"name"`
					Target json.RawMessage `json:"target"`
				} `json:"list"`
			} `json:"annotations"`
		}
		if err := json.Unmarshal(b, &d); err != nil {
			t.Fatal(err)
		}
		ask := func(title string, target json.RawMessage) {
			if !strings.Contains(string(target), "muster-fleet-datasource") || momentOf(t, target) != moment {
				return
			}
			asked++
			frames, err := p.Query(fill.Replace(string(target)))
			if err != nil {
				t.Errorf("%s, %s: %v", filepath.Base(file), title, err)
				return
			}
			rows := 0
			for _, f := range frames {
				rows += f.Rows()
			}
			t.Logf("%s, %s: %d rows", filepath.Base(file), title, rows)
			if rows == 0 {
				t.Errorf("%s, %s: an empty answer", filepath.Base(file), title)
			}
		}
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				ask(panel.Title, target)
			}
		}
		for _, a := range d.Annotations.List {
			ask(a.Name, a.Target)
		}
	}
	if least := map[string]int{"always": 8, "fault": 11, "rollout": 4}[moment]; least == 0 || asked < least {
		t.Errorf("moment %q: only %d queries were found, want %d", moment, asked, least)
	}
	if moment != "always" {
		return
	}
	p.From = time.Now().Add(-10 * time.Minute)
	for _, query := range []string{
		`{"queryType":"health","health":"history","virtualSite":"shared/all","stat":"mean"}`, `{"queryType":"health","health":"history","site":"` + site + `","dimension":"all"}`,
		`{"queryType":"health","health":"virtualSites"}`, `{"queryType":"health","health":"live","site":"` + site + `"}`, `{"queryType":"sites"}`, `{"queryType":"sites","sites":"conditions"}`,
		`{"queryType":"metrics","expr":"up{site=\"` + site + `\"}"}`, `{"queryType":"health","numeric":true}`,
	} {
		frames, err := p.Query(query)
		if err != nil || len(frames) == 0 || frames[0].Rows() == 0 {
			t.Errorf("%s: %d frames, %v", query, len(frames), err)
		}
	}
	for _, path := range []string{"values/virtual-sites", "values/sites?virtualSite=shared/all", "values/regions", "values/label-keys", "values/labels?key=region"} {
		if code, body := p.Resource(path); code != 200 || len(body) < 5 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}
