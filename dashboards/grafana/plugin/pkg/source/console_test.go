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

// TestAgainstAConsole asks a running console what the dashboards ask of this data source.
// The e2e of the whole fleet runs it, with the demo's console.
func TestAgainstAConsole(t *testing.T) {
	url := os.Getenv("MUSTER_CONSOLE")
	if url == "" {
		t.Skip("set MUSTER_CONSOLE, MUSTER_TOKEN and MUSTER_TENANT to those of a fleet with the site paris, or run make test-e2e")
	}
	settings, _ := json.Marshal(map[string]string{"tenant": os.Getenv("MUSTER_TENANT")})
	p := protocoltest.Start(t, url, string(settings), os.Getenv("MUSTER_TOKEN"))
	if ok, msg := p.CheckHealth(); !ok {
		t.Fatal(msg)
	}
	files, err := filepath.Glob("../../../dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	fill := strings.NewReplacer("${site}", "paris", "${virtual_site}", "shared/all")
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
			if !strings.Contains(string(target), "muster-fleet-datasource") {
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
			// A site may be without fault, and nothing may have happened yet.
			if rows == 0 && !strings.Contains(string(target), `"annotations"`) && !strings.Contains(string(target), `"reasons"`) && !strings.Contains(string(target), `"rollouts"`) && !(strings.Contains(string(target), `"alerts"`) && strings.Contains(string(target), `"site"`)) {
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
	if asked < 15 {
		t.Errorf("only %d queries were found", asked)
	}
	p.From = time.Now().Add(-10 * time.Minute)
	for _, query := range []string{
		`{"queryType":"health","health":"history","virtualSite":"shared/all","stat":"mean"}`, `{"queryType":"health","health":"history","site":"paris","dimension":"all"}`,
		`{"queryType":"health","health":"virtualSites"}`, `{"queryType":"health","health":"live","site":"paris"}`, `{"queryType":"sites"}`, `{"queryType":"sites","sites":"conditions"}`,
		`{"queryType":"metrics","expr":"up{site=\"paris\"}"}`, `{"queryType":"health","numeric":true}`,
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
