package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"muster.dev/muster/internal/wire"
)

func TestCost(t *testing.T) {
	var asked []string
	h := func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		asked = append(asked, q.Encode())
		p := wire.CostPage{By: q.Get("by"), Total: 3, Sum: wire.Use{Series: 600, SamplesPerSecond: 40}, MissingRegions: []wire.MissingRegion{{Region: "two", Reason: "it can't be reached"}}}
		row := func(n int64) wire.CostRow {
			return wire.CostRow{Tenant: "acme", Namespace: "shared", Name: fmt.Sprintf("s%d", n), Sites: int(n), Regionals: []string{"one"}, Use: wire.Use{Series: n * 100, SamplesPerSecond: 6.67, WireBytesPerSecond: 2048, LogLinesPerSecond: 0.5, CPUCores: 0.00123, MemoryBytes: 3 << 20}}
		}
		switch q.Get("cursor") {
		case "":
			p.Rows, p.NextCursor = []wire.CostRow{row(3), row(2)}, "c1"
		case "c1":
			p.Rows = []wire.CostRow{row(1)}
		}
		_ = json.NewEncoder(w).Encode(p)
	}
	out, errOut, err := run(t, t.Context(), h, "cost", "--sort", "cpu", "--virtual-site", "all-eu", "-T", "acme")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"SITE    TENANT   SERIES   SAMPLES/S   BYTES/S", "s3      acme     300      6.7         2.0KiB    0.5", "0.0012", "3.0MiB", "all 3            600      40"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if !strings.Contains(errOut, "regional two is missing from these figures: it can't be reached") {
		t.Errorf("stderr: %q", errOut)
	}
	if want := "by=site&limit=20&patience=2s&sort=cpu&tenant=acme&virtualSite=all-eu|by=site&cursor=c1&limit=18&patience=2s&sort=cpu&tenant=acme&virtualSite=all-eu"; strings.Join(asked, "|") != want {
		t.Errorf("asked %v", asked)
	}
	if out, _, err = run(t, t.Context(), h, "cost", "--by", "virtualsite", "-n", "2", "-o", "wide"); err != nil || !strings.Contains(out, "shared/s3      acme     3       300") || !strings.Contains(out, "REGIONALS") || !strings.Contains(out, "2 of 3; more with -n") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _, err = run(t, t.Context(), h, "cost", "--by", "tenant", "-o", "json"); err != nil || !strings.Contains(out, `"cpuCores": 0.00123`) {
		t.Errorf("%v\n%s", err, out)
	}
	if _, _, err = run(t, t.Context(), h, "cost", "-n", "0"); err == nil || !strings.Contains(err.Error(), "--limit") {
		t.Errorf("%v", err)
	}
}

// Who is late is told, and the figures are those of all.
func TestCostDoesNotWaitSilently(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		n, missing := int64(300), []wire.MissingRegion{}
		if r.URL.Query().Get("patience") != "" {
			n, missing = 100, []wire.MissingRegion{{Region: "two", Reason: "has not answered yet, after 2s", Late: true}}
		}
		if r.URL.Path == wire.CostNamesPath {
			_ = json.NewEncoder(w).Encode(wire.NamesPage{Series: n, MissingRegions: missing})
			return
		}
		_ = json.NewEncoder(w).Encode(wire.CostPage{By: wire.CostBySite, Total: 1, Rows: []wire.CostRow{{Tenant: "acme", Name: "paris", Use: wire.Use{Series: n}}}, Sum: wire.Use{Series: n}, MissingRegions: missing})
	}
	for _, verb := range [][]string{{"cost"}, {"cost", "names", "paris"}} {
		out, errOut, err := run(t, t.Context(), h, verb...)
		if err != nil || errOut != "no answer yet from two: waiting\n" || !strings.Contains(out, "300") || strings.Contains(out, "100") {
			t.Errorf("%v: %v, %q\n%s", verb, err, errOut, out)
		}
	}
}

func TestHeadroomText(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	memory := []wire.Resource{{Name: "memory", Used: 1 << 30, Limit: 8 << 30, PerSite: 7 << 20, MoreSites: n(907)}}
	for want, h := range map[string]wire.Headroom{
		"regional one has no sites yet":                                                                                   {},
		"regional one, 3 sites: how many more it carries is not known yet":                                                {Sites: 3},
		"regional one carries about 900 more sites like its 60 (memory ends first, 1.0GiB of 8.0GiB used, 7.0MiB a site)": {Sites: 60, MoreSites: n(907), First: "memory", Resources: memory},
		"regional one carries no more sites like its 60 (cpu ends first, 0.4 of 0.5 used, 0.03 a site; other processes of its machine take 1.5 more, without which it would carry more)": {Sites: 60, MoreSites: n(0), First: "cpu", Resources: []wire.Resource{{Name: "cpu", Used: 0.4, Limit: 0.5, Others: 1.5, PerSite: 0.03, MoreSites: n(0)}}},
		"regional one carries no more sites like its 60 (cpu ends first, 1.9 of 2.0 used, 0.03 a site)":                                                                                  {Sites: 60, MoreSites: n(0), First: "cpu", Resources: []wire.Resource{{Name: "cpu", Used: 1.9, Limit: 2, PerSite: 0.03, MoreSites: n(0)}}},
	} {
		if got := headroomText(wire.RegionalRoom{Name: "one", Headroom: h}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestCostNames(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != wire.CostNamesPath || r.URL.Query().Get("site") != "paris" {
			t.Errorf("request %s", r.URL)
		}
		_ = json.NewEncoder(w).Encode(wire.NamesPage{Series: 200, Sampled: true, Names: []wire.HeavyName{
			{NameSeries: wire.NameSeries{Name: "node_cpu_seconds_total", Series: 150}, KeptBy: []wire.PolicyField{{Policy: "base", Field: "spec.allow.names"}, {Policy: "more", Field: "spec.allow.patterns[0]", Value: "node_.*"}}},
			{NameSeries: wire.NameSeries{Name: "up", Series: 50}},
		}})
	}
	out, _, err := run(t, t.Context(), h, "cost", "names", "paris")
	for _, want := range []string{"node_cpu_seconds_total   150      75%     base: spec.allow.names, more: spec.allow.patterns[0] node_.*", "up                       50       25%     -", "of 200 series; the figures are estimates"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if err != nil {
		t.Error(err)
	}
}
