package engine

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

// TestMeasure: each regional's word counts for the sites that it speaks for, and one that
// does not answer is named.
func TestMeasure(t *testing.T) {
	regional := func(series ...string) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			form, _ := url.ParseQuery(string(body))
			if r.URL.Path != "/edge/api/v1/query" || form.Get("query") == "" {
				http.Error(w, "what?", http.StatusBadRequest)
				return
			}
			if len(series) == 0 {
				http.Error(w, "busy", http.StatusServiceUnavailable)
				return
			}
			var out []string
			for _, s := range series {
				site, value, _ := strings.Cut(s, "=")
				out = append(out, fmt.Sprintf(`{"metric":{"site":%q,"tenant":"a"},"value":[1,%q]}`, site, value+form.Get("query")))
			}
			fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, strings.Join(out, ","))
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	e := &Engine{opts: Options{Concurrency: 2, QueryTimeout: time.Minute, MaxResponseBytes: 1 << 20, Client: http.DefaultClient, Logger: slog.New(slog.DiscardHandler), Regionals: []Regional{
		{Name: "east", URL: regional("berlin=1", "nowhere=9", "paris=7")}, {Name: "west", URL: regional("paris=2", "berlin=8")}, {Name: "north", URL: regional()},
	}}, now: time.Now}
	var sites []*inventory.Site
	for _, name := range []string{"berlin", "oslo", "paris", "rome"} {
		sites = append(sites, &inventory.Site{ID: fleet.SiteID{Tenant: "a", Name: name}, Phase: fleet.PhaseOnline})
	}
	v := &View{Snapshot: inventory.NewSnapshot(1, sites, nil, nil)}
	for i, s := range v.Snapshot.Sites {
		v.Sites = append(v.Sites, &Site{Site: s, Home: []string{"east", "north", "west", "east"}[i]})
	}
	values, failed := e.Measure(t.Context(), v, []string{"0", "5"})
	if got := fmt.Sprint(values); got != "[[10 NaN 20 NaN] [15 NaN 25 NaN]]" || !math.IsNaN(values[0][1]) {
		t.Error(got)
	}
	if err := failed["north"]; len(failed) != 1 || err == nil || !strings.Contains(err.Error(), "HTTP status 503: busy") {
		t.Error(failed)
	}
}
