package engine

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/wire"
)

// TestVectorType: who accepts it gets a vector in few bytes; all else, and everybody else,
// has JSON.
func TestVectorType(t *testing.T) {
	e := open(t, Options{})
	srv := serve(t, e)
	now := time.Now()
	add(t, e, now, 1.5, "__name__", "up", "site", "paris", "tenant", "acme", "region", "eu")
	add(t, e, now, 2, "__name__", "up", "site", "rome", "tenant", "acme", "region", "eu")
	ask := func(query, accept string) (kind string, body []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/edge/api/v1/query", strings.NewReader(url.Values{"query": {query}}.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if accept != "" {
			req.Header.Set("Accept", accept)
		}
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err = io.ReadAll(resp.Body); err != nil {
			t.Fatal(err)
		}
		return resp.Header.Get("Content-Type"), body
	}
	const health = wire.VectorType + ", application/json;q=0.9"
	for _, query := range []string{"sum by (tenant, site) (up)", "up", "missing"} { // the first is compiled when it is asked again
		for range 3 {
			kind, body := ask(query, health)
			if kind != wire.VectorType || !wire.IsVector(body) {
				t.Fatalf("%s: %s: %q", query, kind, body)
			}
			r, err := wire.ReadVector(body)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]float64{}
			for more, err := r.More(); more || err != nil; more, err = r.More() {
				tenant, site, v, err2 := r.Next()
				if err != nil || err2 != nil {
					t.Fatal(err, err2)
				}
				got[string(tenant)+"/"+string(site)] = v
			}
			if query != "missing" && (len(got) != 2 || got["acme/paris"] != 1.5 || got["acme/rome"] != 2) || query == "missing" && len(got) != 0 {
				t.Errorf("%s: %v", query, got)
			}
		}
	}
	for query, accept := range map[string]string{"up": "", "up + 0": "*/*", "up * 1": "application/json", "up{": health, "1": health, "up[1m]": health} {
		if kind, body := ask(query, accept); kind != "application/json" || body[0] != '{' {
			t.Errorf("%s, to one who accepts %q: %s: %q", query, accept, kind, body)
		}
	}
}
