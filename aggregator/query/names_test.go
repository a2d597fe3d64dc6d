package query

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/wire"
)

func TestNames(t *testing.T) {
	var got *http.Request
	answer := `{"status":"success","data":["up","node_cpu","NODE_b","kube_node_info"]}`
	_, c := store(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		_, _ = io.WriteString(w, answer)
	})
	ask := func(r NamesRequest) Names {
		t.Helper()
		r.Start, r.End = time.Unix(1, 0), time.Unix(2, 0)
		status, body := c.Names(t.Context(), "acme", r)
		var out Names
		if err := json.Unmarshal(body, &out); err != nil || status != 200 {
			t.Fatalf("%d %s: %v", status, body, err)
		}
		return out
	}
	if n := ask(NamesRequest{Label: "__name__", Match: `{job="kubelet"}`, Contains: "node", Limit: 2}); !slices.Equal(n.Names, []string{"NODE_b", "node_cpu"}) || !n.More {
		t.Errorf("%+v", n)
	}
	q := got.URL.Query()
	if got.Method != "GET" || got.URL.Path != "/prometheus/api/v1/label/__name__/values" || got.Header.Get(wire.OrgHeader) != "acme" || q.Get("match[]") != `{job="kubelet"}` || q.Get("start") != "1.000" || q.Get("end") != "2.000" {
		t.Errorf("asked %s for %q", got.URL, got.Header.Get(wire.OrgHeader))
	}
	if n := ask(NamesRequest{}); got.URL.Path != "/prometheus/api/v1/labels" || len(n.Names) != 4 || n.More {
		t.Errorf("%s gave %+v", got.URL, n)
	}
	answer = `{"status":"success"}`
	if n := ask(NamesRequest{}); n.Names == nil || len(n.Names) != 0 {
		t.Errorf("%+v", n)
	}
	answer = "<html>"
	if status, _ := c.Names(t.Context(), "acme", NamesRequest{}); status != 502 {
		t.Errorf("no JSON: %d", status)
	}
}

func TestNamesRefuses(t *testing.T) {
	_, c := store(t, func(http.ResponseWriter, *http.Request) { t.Error("it was passed on") })
	for _, tc := range []struct {
		tenant string
		r      NamesRequest
		status int
	}{
		{"acme", NamesRequest{Match: "sum(up)"}, 400},
		{"acme", NamesRequest{Match: "up{"}, 400},
		{"acme", NamesRequest{Match: `{a=~"` + strings.Repeat("(x{100})", 100) + `"}`}, 400},
		{"acme", NamesRequest{Label: "../query"}, 400},
		{"acme|globex", NamesRequest{}, 403},
	} {
		if status, body := c.Names(t.Context(), tc.tenant, tc.r); status != tc.status || !strings.Contains(string(body), `"error"`) {
			t.Errorf("%+v: %d %s", tc.r, status, body)
		}
	}
}
