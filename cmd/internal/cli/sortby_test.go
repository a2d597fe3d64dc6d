package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"muster.dev/muster/internal/wire"
)

func TestSortBy(t *testing.T) {
	now := time.Now()
	alert := func(name, severity, site string, age time.Duration) *wire.KnownAlert {
		a := &wire.KnownAlert{}
		a.Name, a.Severity, a.Site, a.StartsAt = name, severity, site, now.Add(-age)
		return a
	}
	h := func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(wire.AlertList{Alerts: []*wire.KnownAlert{alert("Old", "warning", "b", 30*time.Hour), alert("New", "critical", "", 90*time.Second), alert("Mid", "info", "a", 5*time.Hour), alert("Twin", "warning", "a", 5*time.Hour)}})
	}
	for sort, want := range map[string]string{
		"alert": "Mid New Old Twin", "since": "New Mid Twin Old", "-since": "Old Mid Twin New", "-severity,since": "New Twin Old Mid", "severity,-ALERT": "Mid Twin Old New",
		"site": "Mid Twin Old New", "-site": "Old Mid Twin New", // what has no site is last, either way
	} {
		out, _, err := run(t, t.Context(), h, "alerts", "--no-headers", "--sort-by", sort)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(out) {
			got = append(got, strings.Fields(line)[0])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("--sort-by %s: %s, want %s", sort, got, want)
		}
		out, _, err = run(t, t.Context(), h, "alerts", "-o", "json", "--sort-by", sort)
		var list []wire.KnownAlert
		if err != nil || json.Unmarshal([]byte(out), &list) != nil || len(list) != 4 || list[0].Name != got[0] || list[3].Name != got[3] {
			t.Errorf("--sort-by %s -o json: %v %+v", sort, err, list)
		}
	}
	for _, bad := range []string{"nope", "alert,since,site,state", ""} {
		_, _, err := run(t, t.Context(), h, "alerts", "--sort-by", bad)
		if want := bad != ""; (err != nil) != want || want && !strings.Contains(err.Error(), "virtualSites") {
			t.Errorf("--sort-by %q: %v", bad, err)
		}
	}
}

func TestCellsCompareAsPeopleRead(t *testing.T) {
	for _, cells := range [][]string{{"2", "10", "-"}, {"45s", "90s", "5m10s", "3h", "2d3h", "2y10d", "-"}, {"5/9", "40/50"}, {"info", "warning", "critical"}, {"a", "B", "c"}, {"-3", "0.5", "12%"}} {
		for i := range cells[1:] {
			if compareCells(cells[i], cells[i+1], false) >= 0 {
				t.Errorf("%s is not before %s", cells[i], cells[i+1])
			}
		}
	}
}

func TestQueriesAreCompleted(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != wire.SiteFieldsPath {
			t.Errorf("asked %s", r.URL)
		}
		_ = json.NewEncoder(w).Encode(wire.SiteFields{
			Fields: []wire.SiteField{{Name: "name"}, {Name: "score"}, {Name: "colour", Aliases: []string{"color"}, Values: []string{"green", "red"}}, {Name: "maintenance", Kind: "flag"}, {Name: "measured", Keyed: true}, {Name: "label", Keyed: true}, {Name: "version", Keyed: true}},
			Labels: []wire.SiteKey{{Key: "tier", Values: []string{"gold", "very good"}}}, Versions: []wire.SiteKey{{Key: "agent", Values: []string{"1.4"}}, {Key: "os", Values: []string{"24.04"}}}, Measured: []string{"disk-used", "packet-loss"},
		})
	}
	kubeconfig, url := serveConsole(t, h)
	g := &Globals{Kubeconfig: kubeconfig, Console: url}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	for _, c := range []struct{ flag, typed, want string }{
		{"-q", "sc", "score"},
		{"-q", "score<60 me", "score<60 measured.disk-used score<60 measured.packet-loss"},
		{"-q", "measured.p", "measured.packet-loss"},
		{"-q", "ti", "tier"},
		{"-q", "(tier=", `(tier=gold (tier="very good"`},
		{"-q", "label.tier=g", "label.tier=gold"},
		{"-q", "color in (green, ", "color in (green, green color in (green, red"},
		{"-q", "version.os=", "version.os=24.04"},
		{"-q", "maintenance=", "maintenance=true maintenance=false"},
		{"-q", `"me`, ""},
		{"--sort-by", "score,-measured.d", "score,-measured.disk-used"},
		{"--columns", "name,label.", "name,label.tier"},
		{"--group-by", "vers", "version.agent version.os"},
	} {
		complete := map[string]cobra.CompletionFunc{"-q": g.completeQuery}[c.flag]
		if complete == nil {
			complete = g.completeColumns
		}
		lines, _ := complete(cmd, nil, c.typed)
		if got := strings.Join(lines, " "); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.flag, c.typed, got, c.want)
		}
	}
}
