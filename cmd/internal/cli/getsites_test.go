package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/wire"
)

func TestGetSitesByQuery(t *testing.T) {
	var asked []url.Values
	mean := 51.5
	h := func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != wire.SitesPath {
			t.Errorf("asked %s", r.URL)
		}
		asked = append(asked, q)
		if q.Get("format") == "csv" {
			w.Header().Set("Content-Type", "text/csv")
			_, _ = io.WriteString(w, "name,score\nparis,12\n")
			return
		}
		seen := time.Now().Add(-90 * time.Second).UTC().Format(time.RFC3339)
		p := wire.SitePage{Columns: []string{"name", "score", "lastSeen", "label.tier", "virtualSite", "maintenance"}, Total: 2, Counts: map[string]int{"red": 1, "grey": 1}, Notes: []string{"no site has a label kidn"}}
		switch {
		case q.Get("group") != "":
			p.Groups = []wire.SiteGroup{{Value: "store", Query: "label.kind=store", Sites: 31, Counts: map[string]int{"red": 4, "green": 27}, Mean: &mean}, {Sites: 2, Counts: map[string]int{"grey": 2}}}
		case q.Get("cursor") == "":
			p.Sites, p.NextCursor = []wire.SiteRow{{"name": "paris", "tenant": "acme", "score": 12.5, "lastSeen": seen, "label.tier": "gold\x1b[31m", "virtualSite": []string{"shared/a", "shared/b"}, "maintenance": true}}, "c1"
		default:
			p.Sites = []wire.SiteRow{{"name": "rome", "tenant": "acme", "score": nil, "lastSeen": nil, "label.tier": "", "virtualSite": []string{}, "maintenance": false}}
		}
		_ = json.NewEncoder(w).Encode(p)
	}
	out, errOut, err := run(t, t.Context(), h, "get", "sites", "-q", `kidn=store score<60 "disk"`, "--sort-by", "-alerts,score", "--columns", "name,score", "-T", "acme")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NAME    SCORE   LAST SEEN   TIER        VIRTUAL SITE        MAINTENANCE\n", "paris   12.5    90s         gold\uFFFD[31m   shared/a,shared/b   true\n", "rome    -       -           -           -                   false\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if errOut != "note: no site has a label kidn\n" {
		t.Errorf("stderr: %q", errOut)
	}
	if len(asked) != 2 || asked[0].Encode() != "columns=name%2Cscore&limit=10000&q=kidn%3Dstore+score%3C60+%22disk%22&sort=-alerts%2Cscore&tenant=acme" || asked[1].Get("cursor") != "c1" {
		t.Errorf("asked %v", asked)
	}

	if out, _, err = run(t, t.Context(), h, "get", "sites", "--group-by", "kind"); err != nil ||
		!strings.Contains(out, "KIND     SITES   GREEN   ORANGE   RED   UNKNOWN   MEAN   WORST\nstore    31      27      0        4     0         51.5   -\n(none)   2       0       0        0     2         -      -\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _, err = run(t, t.Context(), h, "get", "sites", "-o", "csv"); err != nil || out != "name,score\nparis,12\n" {
		t.Errorf("%v\n%s", err, out)
	}
	if q := asked[len(asked)-1]; q.Get("columns") != "tenant,name,phase,region,score,colour,lastSeen,created,version,version.os,kubernetes,regional,reason" || q.Get("limit") != "" {
		t.Errorf("asked %v", q)
	}
	if out, _, err = run(t, t.Context(), h, "get", "sites", "-q", "", "-o", "json"); err != nil || !strings.Contains(out, `"total": 2`) || !strings.Contains(out, `"score": 12.5`) {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _, err = run(t, t.Context(), h, "get", "sites", "-q", "", "-o", "name"); err != nil || out != "paris\nrome\n" {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _, err = run(t, t.Context(), h, "get", "sites", "-q", "", "--no-headers"); err != nil || !strings.HasPrefix(out, "paris   12.5") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _, err = run(t, t.Context(), h, "get", "sites", "-q", ""); err != nil || !strings.HasPrefix(out, "NAME") { // all are one tenant's
		t.Errorf("%v\n%s", err, out)
	}
	if _, _, err = run(t, t.Context(), h, "get", "sites", "-q", "", "-A"); err != nil || !strings.HasPrefix(asked[len(asked)-1].Get("columns"), "tenant,") {
		t.Errorf("%v, asked %v", err, asked[len(asked)-1])
	}
	for args, want := range map[string]string{
		"kind=store score<5":             "\"kind=store\" is no name of a site; a query goes after -q: muster get sites -q 'kind=store score<5'",
		"-q score<":                      "--query: at character 7: score< needs a value",
		"-q score<5 -l a=b":              "--selector does not go with --query: put the labels into -q",
		"--columns name paris":           "names do not go with --columns: put them into -q, such as -q 'name in (paris)'",
		"--group-by kind -o csv":         "--group-by does not go with -o csv",
		"-o csv --columns name --kind x": "unknown flag: --kind",
	} {
		if _, _, err := run(t, t.Context(), h, append([]string{"get", "sites"}, strings.Fields(args)...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}
