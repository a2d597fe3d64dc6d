package query

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/internal/wire"
)

// store is a Prometheus API that says what it was asked.
func store(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) (*httptest.Server, *Client) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(answer))
	t.Cleanup(s.Close)
	c, err := New(Options{URL: s.URL + "/", Client: s.Client(), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

const vector = `{"status":"success","data":{"resultType":"vector","result":[]}}`

func TestAsk(t *testing.T) {
	var got *http.Request
	_, c := store(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		got = r
		_, _ = io.WriteString(w, vector)
	})
	for _, tc := range []struct {
		r    Request
		path string
		want url.Values
	}{
		{Request{Expr: `up{a="b"}`, Time: time.UnixMilli(1700000000123), Limit: 7}, "/query", url.Values{"query": {`up{a="b"}`}, "time": {"1700000000.123"}, "limit": {"7"}}},
		{Request{Expr: "up", Lookback: time.Minute}, "/query", url.Values{"query": {"up"}, "lookback_delta": {"60"}}},
		{Request{Expr: "up"}, "/query", url.Values{"query": {"up"}}},
		{Request{Expr: "up", Start: time.Unix(1, 0), End: time.Unix(3, 0), Step: 1500 * time.Millisecond, Timeout: 5 * time.Second}, "/query_range",
			url.Values{"query": {"up"}, "start": {"1.000"}, "end": {"3.000"}, "step": {"1.5"}, "timeout": {"5"}}},
	} {
		if status, body := c.Ask(t.Context(), "acme", tc.r); status != 200 || string(body) != vector {
			t.Errorf("%d %s", status, body)
		}
		if got.URL.Path != "/prometheus/api/v1"+tc.path || got.Header.Get(wire.OrgHeader) != "acme" || got.PostForm.Encode() != tc.want.Encode() {
			t.Errorf("asked %s %v for %q", got.URL, got.PostForm, got.Header.Get(wire.OrgHeader))
		}
	}
	for _, bad := range []string{"", "cortex", "ftp://x", "http://h?x=1"} {
		if _, err := New(Options{URL: bad}); err == nil {
			t.Errorf("url %q accepted", bad)
		}
	}
}

// What no timeout of the store would stop is not passed on.
func TestAskRefuses(t *testing.T) {
	_, c := store(t, func(http.ResponseWriter, *http.Request) { t.Error("it was passed on") })
	hour := Request{Start: time.Unix(0, 0), End: time.Unix(10_000, 0), Step: time.Second}
	with := func(r Request, expr string) Request { r.Expr = expr; return r }
	for _, tc := range []struct {
		tenant string
		r      Request
		status int
		want   string
	}{
		{"acme", Request{Expr: "sum_over_time(sum_over_time(vector(1)[1d:1s])[1d:1s])"}, 400, "longer step"},
		{"acme", with(hour, "avg_over_time(x[30d])"), 400, "longer step"},
		{"acme", Request{Expr: "up{"}, 400, "bad_data"},
		{"acme", Request{Expr: "up", Start: time.Unix(1, 0), Step: time.Second}, 400, "backwards"},
		{"acme|umbrella", Request{Expr: "up"}, 403, "tenant"},
		{"", Request{Expr: "up"}, 403, "tenant"},
	} {
		if status, body := c.Ask(t.Context(), tc.tenant, tc.r); status != tc.status || !strings.Contains(string(body), tc.want) {
			t.Errorf("%q, %+v: %d %s", tc.tenant, tc.r, status, body)
		}
	}
}

func TestAskIsBounded(t *testing.T) {
	release := make(chan struct{})
	status := 200
	s, c := store(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.FormValue("query") {
		case "slow":
			select {
			case <-release:
			case <-r.Context().Done():
			}
		case "large":
			fmt.Fprint(w, strings.Repeat("x", 1000))
		default:
			w.WriteHeader(status)
			fmt.Fprint(w, "plain text")
		}
	})
	t.Cleanup(func() { close(release) })
	c.o.MaxResponseBytes, c.o.Timeout = 100, 50*time.Millisecond
	ask := func(q string) (int, string) {
		code, body := c.Ask(t.Context(), "acme", Request{Expr: q})
		return code, string(body)
	}
	if code, body := ask("large"); code != 422 || !strings.Contains(body, "too large") {
		t.Errorf("large: %d %s", code, body)
	}
	if code, body := ask("slow"); code != 504 || !strings.Contains(body, `"errorType":"timeout"`) {
		t.Errorf("slow: %d %s", code, body)
	}
	c.o.Timeout = time.Minute
	status = 500
	if code, body := ask("plain"); code != 500 || !strings.Contains(body, `"error":"plain text"`) {
		t.Errorf("plain: %d %s", code, body)
	}
	s.Close()
	if code, body := ask("any"); code != 502 || strings.Contains(body, "127.0.0.1") {
		t.Errorf("down: %d %s", code, body)
	}
}

// A tenant whose queries all hang keeps no other from its answers.
func TestOneTenantDoesNotTakeAllTurns(t *testing.T) {
	release := make(chan struct{})
	entered := make(chan struct{}, 100)
	_, c := store(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(wire.OrgHeader) == "greedy" {
			entered <- struct{}{}
			<-release
		}
		_, _ = io.WriteString(w, vector)
	})
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() { c.Ask(context.Background(), "greedy", Request{Expr: "up"}) })
	}
	for range DefaultMaxConcurrent / 4 {
		<-entered
	}
	if status, body := c.Ask(t.Context(), "acme", Request{Expr: "up"}); status != 200 {
		t.Errorf("another tenant: %d %s", status, body)
	}
	if n := len(entered); n > 0 {
		t.Errorf("%d more of the greedy one were let in", n)
	}
	close(release)
	wg.Wait()
}

func TestCut(t *testing.T) {
	vec := `{"status":"success","warnings":["x"],"data":{"resultType":"vector","result":[{"metric":{"a":"1"},"value":[1,"2"]},{"metric":{"a":"2"},"value":[1,"2"]}]}}`
	for in, want := range map[string]string{
		vec: `{"data":{"result":[{"metric":{"a":"1"},"value":[1,"2"]}],"resultType":"vector"},"status":"success","warnings":["x","results truncated due to limit"]}`,
		`{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`: "",
		`{"status":"success","data":{"resultType":"matrix","result":[{}]}}`:    "",
		`oops`: "", `{"data":7}`: "", `[]`: "",
	} {
		if want == "" {
			want = in
		}
		if got := string(cut([]byte(in), 1)); got != want {
			t.Errorf("%s\n gives %s\n want  %s", in, got, want)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add([]byte(`{"status":"success","data":{"resultType":"vector","result":[1,2]}}`), 1)
	f.Fuzz(func(t *testing.T, body []byte, n int) {
		if n > 0 && json.Valid(body) && !json.Valid(cut(body, n)) {
			t.Errorf("%q is cut into no JSON", body)
		}
	})
}
