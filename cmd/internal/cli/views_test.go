package cli

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"muster.dev/muster/internal/wire"
)

func TestGetSitesByView(t *testing.T) {
	var asked url.Values
	view := func(tenant, name string, shared bool, q wire.SavedQuestion) wire.SavedView {
		return wire.SavedView{Name: name, Tenant: tenant, Shared: shared, SavedQuestion: q}
	}
	h := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == wire.ViewsPath {
			_ = json.NewEncoder(w).Encode(wire.SavedViewList{Views: []wire.SavedView{
				view("acme", "Flagships", true, wire.SavedQuestion{Query: "everybody's"}),
				view("acme", "Flagships", false, wire.SavedQuestion{Query: "tier=gold OR tier=silver", Sort: "-alerts", Columns: []string{"name", "score"}}),
				view("acme", "By version", true, wire.SavedQuestion{Group: "version"}),
				view("acme", "Both", true, wire.SavedQuestion{}), view("globex", "Both", true, wire.SavedQuestion{}),
			}})
			return
		}
		asked = r.URL.Query()
		_ = json.NewEncoder(w).Encode(wire.SitePage{Columns: []string{"name"}})
	}
	for args, want := range map[string]string{
		"--view Flagships": "columns=name,score&limit=10000&q=tier=gold OR tier=silver&sort=-alerts&tenant=acme",
		"--view Flagships -q score<60 --sort-by name":    "columns=name,score&limit=10000&q=(tier=gold OR tier=silver) (score<60)&sort=name&tenant=acme",
		"--view Flagships --columns region --group-by k": "columns=region&group=k&limit=0&q=tier=gold OR tier=silver&sort=-alerts&tenant=acme",
	} {
		if _, _, err := run(t, t.Context(), h, append([]string{"get", "sites", "-T", "acme"}, strings.Fields(args)...)...); err != nil {
			t.Errorf("%s: %v", args, err)
		}
		if got, _ := url.QueryUnescape(asked.Encode()); got != want {
			t.Errorf("%s asked\n%s, want\n%s", args, got, want)
		}
	}
	if _, _, err := run(t, t.Context(), h, "get", "sites", "--view", "By version"); err != nil || asked.Get("group") != "version" {
		t.Errorf("%v %v", err, asked)
	}
	for name, want := range map[string]string{"flagship": `no view "flagship"; there are Both, By version, Flagships`, "Both": "2 tenants have a view"} {
		if _, _, err := run(t, t.Context(), h, "get", "sites", "--view", name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
