package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"muster.dev/muster/health"
	"muster.dev/muster/health/engine"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

var update = flag.Bool("update", false, "write testdata anew")

// troubled is a site with a disk that fills, a crash loop, an exporter whose query failed,
// and a colour that waits. Its policy is its own: the shipped one changes.
func troubled(t *testing.T) *engine.View {
	t.Helper()
	signal := func(name string, d fleet.Dimension, good, bad, limit float64, unit, pack, text string) health.Signal {
		return health.Signal{Name: name, Dimension: d, Query: "x", Good: good, Bad: bad, Weight: 3, Cap: limit, Unit: unit, Pack: pack, Text: text, Source: "an exporter"}
	}
	m, err := health.NewModel(health.Options{
		Weights: [4]float64{1, 1, 1, 1}, WorstShare: health.DefaultWorstShare,
		Packs: []health.Pack{{Name: "kubernetes"}, {Name: "linux"}, {Name: "openebs"}, {Name: "gpu"}},
		Signals: []health.Signal{
			signal("packet-loss", fleet.Connectivity, 1, 10, 60, "percent", "linux", "{value} of TCP segments are sent again"),
			signal("crash-looping", fleet.Reliability, 0, 1.2, 39, "count", "kubernetes", "containers that crash and restart over and over: {value}"),
			signal("nodes-not-ready", fleet.Reliability, 0, 25, fleet.CriticalCap, "percent", "kubernetes", "{value} of the nodes are not ready"),
			signal("pools-degraded", fleet.Reliability, 1, 3, 45, "", "openebs", ""),
			signal("gpu-errors", fleet.Reliability, 0, 1, 60, "count", "gpu", ""),
			signal("certificate-days", fleet.Security, 30, 1, fleet.CriticalCap, "days", "kubernetes", "a node's certificate expires in {value}"),
			signal("clock-offset", fleet.Security, 0.1, 1, health.NoCap, "seconds", "linux", ""),
			signal("disk-used", fleet.Performance, 70, 95, fleet.CriticalCap, "percent", "linux", "the fullest filesystem is {value} full"),
			signal("cpu-used", fleet.Performance, 60, 97, health.NoCap, "percent", "linux", "{value} of the CPU is in use"),
			signal("memory-available", fleet.Performance, 25, 5, fleet.CriticalCap, "percent", "linux", ""),
			signal("pool-used", fleet.Performance, 80, 98, 60, "percent", "openebs", ""),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	readings := func(values map[string]float64) health.Readings {
		r := health.Readings{Link: health.LinkUp, LinkSince: now.Add(-time.Hour), Packs: make([]bool, len(m.Packs))}
		for i, p := range m.Packs {
			r.Packs[i] = p.Name == "kubernetes" || p.Name == "linux"
		}
		for i := range m.Signals {
			s := &m.Signals[i]
			x := health.Reading{Value: s.Good, Known: s.Pack == "" || slices.Contains([]string{"kubernetes", "linux"}, s.Pack)}
			if v, ok := values[s.Name]; ok {
				x.Value = v
			}
			r.Signals = append(r.Signals, x)
		}
		return r
	}
	at := now.Add(-time.Hour)
	st := health.Evaluate(m, readings(nil), nil, at)
	broken := func(disk float64) health.Readings {
		r := readings(map[string]float64{"disk-used": disk, "crash-looping": 1, "cpu-used": 71})
		for i := range m.Signals {
			switch m.Signals[i].Name {
			case "disk-used":
				r.Signals[i].Objects = []string{"/ on n1 (" + health.FormatValue(disk, "percent") + ")"}
			case "crash-looping":
				r.Signals[i].Objects = []string{"shop/till-1/till"}
			case "clock-offset":
				r.Signals[i] = health.Reading{Err: "regional eu-1: HTTP status 422: many-to-many matching not allowed"}
			}
		}
		return r
	}
	for range 12 {
		at = at.Add(15 * time.Second)
		st = health.Evaluate(m, broken(96.2), &st, at)
	}
	st = health.Evaluate(m, broken(90.5), &st, at.Add(15*time.Second))
	site := &inventory.Site{ID: fleet.SiteID{Tenant: "acme", Name: "paris-07"}, Region: "eu-west", Phase: fleet.PhaseOnline}
	v := &engine.View{Version: 1, Tick: 1, AsOf: now, Snapshot: inventory.NewSnapshot(1, []*inventory.Site{site}, nil, nil)}
	v.Sites = []*engine.Site{{Site: site, State: &st, Phase: site.Phase}}
	return v
}

// TestExplanationIsTheSameEverywhere keeps the API's answer and what the CLI makes of it
// in testdata: the CLI's tests and the console's read the same files.
func TestExplanationIsTheSameEverywhere(t *testing.T) {
	f := &fake{}
	f.view.Store(troubled(t))
	srv := serve(t, f)
	resp, body := get(t, srv, "sites/paris-07/explain", "acme")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", resp.Status, body)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, []byte(body), "", "  "); err != nil {
		t.Fatal(err)
	}
	golden(t, "explanation.json", indented.Bytes())
	var x Explanation
	if err := json.Unmarshal([]byte(body), &x); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := x.WriteText(&text, false); err != nil {
		t.Fatal(err)
	}
	golden(t, "explanation.txt", text.Bytes())
}

// What the policy in shadow gives is shown beside, under its name.
func TestShadowIsShown(t *testing.T) {
	f := &fake{}
	v := troubled(t)
	st := health.Evaluate(model(t), health.Readings{Link: health.LinkUp, Signals: []health.Reading{{Value: 80, Known: true}}}, nil, now)
	s := *v.Sites[0]
	f.view.Store(v)
	srv := serve(t, f)
	if resp, body := get(t, srv, "sites/paris-07/explain?shadow=true", "acme"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("without a policy in shadow: %s %s", resp.Status, body)
	}
	if d := read[SiteDetail](t, srv, "sites/paris-07", "acme"); d.Shadow != nil {
		t.Errorf("%+v", d.Shadow)
	}
	s.Shadow, s.ShadowPolicy = &st, "next"
	next := *v
	next.Sites, next.Version = []*engine.Site{&s}, v.Version+1
	next.Policies = []*engine.Policy{{Tenant: "acme", Name: "next", Sites: 1, Shadow: true, WouldChange: 1, Examples: []string{"paris-07: red → orange"}}}
	f.view.Store(&next)
	if d := read[SiteDetail](t, srv, "sites/paris-07", "acme"); d.Shadow == nil || d.Shadow.Policy != "next" || *d.Shadow.Score != 60 || d.Shadow.Colour != fleet.Orange || d.Colour != fleet.Red || d.Shadow.Reason == "" {
		t.Errorf("%+v", d.Shadow)
	}
	if x := read[Explanation](t, srv, "sites/paris-07/explain?shadow=true", "acme"); !x.Shadow || x.Policy != "next" || *x.Score != 60 {
		t.Errorf("%+v", x)
	}
	if x := read[Explanation](t, srv, "sites/paris-07/explain", "acme"); x.Shadow || *x.Score != 39 {
		t.Errorf("%+v", x)
	}
	if p := read[PolicyList](t, srv, "policies", "acme").Policies[0]; !p.Shadow || p.WouldChange != 1 || len(p.Examples) != 1 {
		t.Errorf("%+v", p)
	}
	if resp, _ := get(t, srv, "sites/paris-07/explain?shadow=x", "acme"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("shadow=x: %s", resp.Status)
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s has changed; if it should, run go test ./health/api -update\n%s", path, got)
	}
}
