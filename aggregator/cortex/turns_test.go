package cortex

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/internal/turns"
)

// A query of eleven thousand points, the most that one may have, over more series than it
// has room for is the asker's mistake, and one that comes to its end too late was not served:
// neither is an error of the store's.
func TestWhoseFaultAQueryIs(t *testing.T) {
	c, _ := start(t, Options{DataDir: t.TempDir(), Limits: Limits{SamplesPerQuery: 200_000}})
	base := "http://" + c.Addr()
	now := time.Now()
	var samples []sample
	for i := range 100 {
		samples = append(samples, sample{strconv.Itoa(i), now, 1})
	}
	if _, err := pushV2(base, "acme", samples...); err != nil {
		t.Fatal(err)
	}
	ask := func(expr string, timeout time.Duration) (int, string) {
		t.Helper()
		form := url.Values{"query": {expr}, "start": {fmt.Sprint(now.Unix() - 10_990)}, "end": {fmt.Sprint(now.Unix() + 10)}, "step": {"1"}, "timeout": {timeout.String()}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/prometheus/api/v1/query_range", strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		code, b := answerTo(t, r)
		return code, string(b)
	}
	for _, q := range []struct {
		expr    string
		timeout time.Duration
		code    int
		says    string
	}{
		{`sum(test_metric)`, time.Minute, http.StatusUnprocessableEntity, "selects too many series"},
		{`sum(test_metric)`, 0, http.StatusServiceUnavailable, "timed out"},
		{`sum(test_metric{series="1"})`, time.Minute, http.StatusOK, `"values"`},
	} {
		if code, body := ask(q.expr, q.timeout); code != q.code || !strings.Contains(body, q.says) {
			t.Errorf("%s within %s: %d %.300s, want %d", q.expr, q.timeout, code, body, q.code)
		}
	}
}

// A query whose time is over before it begins is late each time, whatever else goes on; the
// store answered half of them as if they were wrong.
func TestQueriesThatAreLate(t *testing.T) {
	c, _ := start(t, Options{DataDir: t.TempDir()})
	for i := range 40 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.Addr()+"/prometheus/api/v1/query?query=vector(1)&timeout=0.000001", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Scope-OrgID", "acme")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("query %d: %d %s", i, resp.StatusCode, b)
		}
	}
}

// One tenant's queries that take long leave slots to others', and to health.
func TestATenantsQueriesLeaveSlots(t *testing.T) {
	q := newQueryTurns()
	for range maxQueries / 2 {
		if _, err := q.slots.Acquire(t.Context(), turns.Class{Tenant: "evil"}); err != nil {
			t.Fatal(err)
		}
	}
	h := q.each(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	call := func(tenant, purpose string, gone bool) int {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if gone {
			cancel() // it would wait for its own tenant
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/prometheus/api/v1/query", nil)
		r.Header.Set("X-Scope-OrgID", tenant)
		r.Header.Set("X-Muster-Purpose", purpose)
		h.ServeHTTP(w, r)
		return w.Code
	}
	if code := call("evil", "", true); code != http.StatusServiceUnavailable {
		t.Errorf("one more of the tenant: %d", code)
	}
	if code := call("acme", "", false); code != http.StatusOK {
		t.Errorf("another tenant's: %d", code)
	}
	if code := call("acme", "health", false); code != http.StatusOK {
		t.Errorf("health's: %d", code)
	}
}

func TestAnswered(t *testing.T) {
	for _, err := range []error{context.DeadlineExceeded, fmt.Errorf("ingester: %w", status.Error(codes.DeadlineExceeded, "late"))} {
		if _, late := answered(err).(promql.ErrQueryTimeout); !late {
			t.Errorf("%v: %v", err, answered(err))
		}
	}
	if _, gone := answered(status.Error(codes.Canceled, "gone")).(promql.ErrQueryCanceled); !gone {
		t.Error("a query that was given up")
	}
	if err := io.ErrUnexpectedEOF; answered(err) != err || answered(nil) != nil {
		t.Error("what is not known changes")
	}
}

// A tenant's query waits for the turns of others, and health's goes first; what is no query
// waits for nobody.
func TestQueriesHaveTurns(t *testing.T) {
	q := newQueryTurns()
	q.processors = turns.NewProcessors(2) // of which tenants have one
	h := q.each(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := q.pass(r.Context()); err != nil {
			t.Error(err)
		}
	}))
	held, err := q.processors.Begin(t.Context(), turns.Class{Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	defer held.End()
	call := func(path, purpose string) int {
		ctx, cancel := context.WithCancel(t.Context())
		if path == "/prometheus/api/v1/query" && purpose == "" {
			cancel() // it would wait for its own tenant
		}
		defer cancel()
		w := httptest.NewRecorder()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Scope-OrgID", "acme")
		r.Header.Set("X-Muster-Purpose", purpose)
		h.ServeHTTP(w, r)
		return w.Code
	}
	for _, x := range []struct {
		path, purpose string
		code          int
	}{{"/prometheus/api/v1/query", "", http.StatusServiceUnavailable}, {"/prometheus/api/v1/query", "health", http.StatusOK}, {"/api/v1/push", "", http.StatusOK}} {
		if code := call(x.path, x.purpose); code != x.code {
			t.Errorf("%s for %q: %d, want %d", x.path, x.purpose, code, x.code)
		}
	}
}
