package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
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

const vector = `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"site":"a"},"value":[1700000000,"4.5"]}]},"warnings":["careful"]}`

func TestQuery(t *testing.T) {
	var got *http.Request
	_, c := store(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		got = r
		if r.URL.Path == "/prometheus/api/v1/query_range" {
			_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2"],[3,"NaN"]]}]}}`)
			return
		}
		_, _ = io.WriteString(w, vector)
	})
	r, err := c.Query(t.Context(), "acme", `up{a="b"}`, time.UnixMilli(1700000000123))
	if err != nil {
		t.Fatal(err)
	}
	v, ok := r.Value.(model.Vector)
	if !ok || len(v) != 1 || v[0].Value != 4.5 || v[0].Metric["site"] != "a" || len(r.Warnings) != 1 {
		t.Errorf("result = %+v", r)
	}
	if got.URL.Path != "/prometheus/api/v1/query" || got.Header.Get(TenantHeader) != "acme" || got.PostForm.Get("query") != `up{a="b"}` || got.PostForm.Get("time") != "1700000000.123" {
		t.Errorf("asked %s %v for %q", got.URL, got.PostForm, got.Header.Get(TenantHeader))
	}
	r, err = c.QueryRange(t.Context(), "acme", "up", time.Unix(1, 0), time.Unix(3, 0), 1500*time.Millisecond)
	if m, ok := r.Value.(model.Matrix); err != nil || !ok || len(m[0].Values) != 2 || got.PostForm.Get("step") != "1.5" {
		t.Errorf("range = %+v, %v", r, err)
	}
	if _, err := c.Query(t.Context(), "", "up", time.Time{}); err != nil || got.Header.Get(TenantHeader) != "" || got.PostForm.Has("time") {
		t.Errorf("without a tenant: %v, %v", err, got.Header)
	}
	for _, bad := range []string{"acme|globex", "*", "Acme", "a/b"} {
		if _, err := c.Query(t.Context(), bad, "up", time.Time{}); err == nil {
			t.Errorf("tenant %q accepted", bad)
		}
	}
}

func TestQueryErrors(t *testing.T) {
	status, body := 200, ""
	s, c := store(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
	for _, tc := range []struct {
		status int
		body   string
		want   Error
	}{
		{400, `{"status":"error","errorType":"bad_data","error":"parse error"}`, Error{400, "bad_data", "parse error"}},
		{422, `{"status":"error","errorType":"execution","error":"limit"}`, Error{422, "execution", "limit"}},
		{503, "empty ring\n", Error{503, "", "empty ring"}},
	} {
		status, body = tc.status, tc.body
		_, err := c.Query(t.Context(), "acme", "up", time.Time{})
		var e *Error
		if !errors.As(err, &e) || *e != tc.want {
			t.Errorf("%d: err = %v", tc.status, err)
		}
	}
	for _, bad := range []string{"", "[]", `{"status":"success"}`, `{"status":"success","data":{"resultType":"vector","result":{}}}`} {
		status, body = 200, bad
		if r, err := c.Query(t.Context(), "acme", "up", time.Time{}); err == nil {
			t.Errorf("%q gave %+v", bad, r)
		}
	}
	c.o.MaxResponseBytes, body = 10, vector
	if _, err := c.Query(t.Context(), "acme", "up", time.Time{}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("err = %v", err)
	}
	s.Close()
	var e *Error
	if _, err := c.Query(t.Context(), "acme", "up", time.Time{}); err == nil || errors.As(err, &e) {
		t.Errorf("a store that is down: %v", err)
	}
	for _, bad := range []string{"", "cortex", "ftp://x", "http://h?x=1"} {
		if _, err := New(Options{URL: bad}); err == nil {
			t.Errorf("url %q accepted", bad)
		}
	}
}

type denied struct{}

func (denied) Error() string   { return "log in first" }
func (denied) StatusCode() int { return http.StatusUnauthorized }

func TestProxy(t *testing.T) {
	var got *http.Request
	_, c := store(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		got = r
		_, _ = io.WriteString(w, vector)
	})
	h := c.ProxyHandler(func(r *http.Request) (string, error) {
		switch u := r.Header.Get("User"); u {
		case "":
			return "", denied{}
		case "eve":
			return "", errors.New("eve may read no tenant")
		default:
			return "acme", nil
		}
	})
	ask := func(method, target, user string, form url.Values) (*httptest.ResponseRecorder, *http.Request) {
		got = nil
		r := httptest.NewRequest(method, target, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set(TenantHeader, "globex")
		r.Header.Set("Cookie", "muster_session=secret")
		r.Header.Set("User", user)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w, got
	}

	// The tenant is the server's; the user's headers and unknown parameters stay behind.
	w, r := ask("GET", "/api/v1/metrics/query_range?query=up&start=1&end=2&step=1&tenant=globex&x=y", "bob", nil)
	if w.Code != 200 || r == nil || r.URL.Path != "/prometheus/api/v1/query_range" || fmt.Sprint(r.Header.Values(TenantHeader)) != "[acme]" ||
		r.Header.Get("Cookie") != "" || r.Form.Has("tenant") || r.Form.Has("x") || r.Form.Get("step") != "1" {
		t.Errorf("%d, asked %+v", w.Code, r)
	}
	if w, r = ask("POST", "/x/api/v1/series", "bob", url.Values{"match[]": {"a", "b"}}); w.Code != 200 || len(r.Form["match[]"]) != 2 {
		t.Errorf("series: %d, %+v", w.Code, r)
	}
	if w, r = ask("GET", "/prometheus/api/v1/label/site/values?match[]=up", "bob", nil); w.Code != 200 || r.URL.Path != "/prometheus/api/v1/label/site/values" || r.Method != "GET" {
		t.Errorf("label values: %d, %+v", w.Code, r)
	}
	for _, tc := range []struct {
		method, target, user string
		want                 int
	}{
		{"GET", "/query", "", 401},
		{"GET", "/query", "eve", 403},
		{"DELETE", "/query", "bob", 405},
		{"POST", "/metadata", "bob", 405},
		{"GET", "/api/v1/admin/tsdb/delete_series", "bob", 404},
		{"GET", "/api/v1/read", "bob", 404},
		{"GET", "/api/v1/push", "bob", 404},
		{"GET", "/api/v1/label/a%2f..%2f..%2fpush/values", "bob", 404},
		{"GET", "/api/v1/label/..%2f..%2f..%2fvalues", "bob", 404},
		{"GET", "/", "bob", 404},
	} {
		w, r := ask(tc.method, tc.target, tc.user, nil)
		if w.Code != tc.want || r != nil || !strings.Contains(w.Body.String(), `"status":"error"`) {
			t.Errorf("%s %s by %q: %d %s, passed on: %v", tc.method, tc.target, tc.user, w.Code, w.Body, r != nil)
		}
	}
	if w, r := ask("POST", "/query", "bob", url.Values{"query": {strings.Repeat("x", maxFormBytes)}}); w.Code != 400 || r != nil {
		t.Errorf("a huge form: %d", w.Code)
	}
}

func TestProxyBounds(t *testing.T) {
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
	h := c.ProxyHandler(func(*http.Request) (string, error) { return "acme", nil })
	ask := func(q string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/query?query="+q, nil))
		return w.Code, w.Body.String()
	}
	if code, body := ask("large"); code != 422 || !strings.Contains(body, "too large") {
		t.Errorf("large: %d %s", code, body)
	}
	if code, body := ask("slow"); code != 504 || !strings.Contains(body, `"errorType":"timeout"`) {
		t.Errorf("slow: %d %s", code, body)
	}
	status = 500
	if code, body := ask("plain"); code != 500 || !strings.Contains(body, `"error":"plain text"`) {
		t.Errorf("plain: %d %s", code, body)
	}
	s.Close()
	if code, body := ask("any"); code != 502 || strings.Contains(body, "127.0.0.1") {
		t.Errorf("down: %d %s", code, body)
	}
}

func TestQueriesWaitForTheirTurn(t *testing.T) {
	release := make(chan struct{})
	entered := make(chan struct{}, 2)
	_, c := store(t, func(w http.ResponseWriter, _ *http.Request) {
		entered <- struct{}{}
		<-release
		_, _ = io.WriteString(w, vector)
	})
	c.slots = make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() {
		_, err := c.Query(context.Background(), "acme", "up", time.Time{})
		done <- err
	}()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Query(ctx, "acme", "up", time.Time{}); !errors.Is(err, context.DeadlineExceeded) || len(entered) != 0 {
		t.Errorf("err = %v, %d entered", err, len(entered))
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(200, []byte(vector))
	f.Add(200, []byte(`{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`))
	f.Add(500, []byte("oops"))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		r, err := decode(status, body)
		if err == nil && r.Value == nil {
			t.Errorf("%q: neither a value nor an error", body)
		}
	})
}

func FuzzAPIPath(f *testing.F) {
	f.Add("/api/v1/label/site/values")
	f.Add("/query")
	f.Fuzz(func(t *testing.T, p string) {
		path, label, ok := apiPath(p)
		if ok && (strings.Contains(path, "..") || strings.ContainsAny(path, "?#% ") || passed[label] == nil) {
			t.Errorf("%q passes as %q", p, path)
		}
	})
}
