package console

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
)

// engineMetrics is a metric store of one tenant: Prometheus' engine and storage.
type engineMetrics struct {
	Metrics
	eng *promql.Engine
	st  storage.Queryable
}

func (m engineMetrics) Query(ctx context.Context, _ string, q MetricQuery) (int, []byte) {
	query, err := m.eng.NewRangeQuery(ctx, m.st, nil, q.Expr, q.Start, q.End, q.Step)
	if err != nil {
		return http.StatusBadRequest, []byte(`{"status":"error"}`)
	}
	defer query.Close()
	res := query.Exec(ctx)
	if res.Err != nil {
		return http.StatusUnprocessableEntity, []byte(`{"status":"error"}`)
	}
	body, err := json.Marshal(map[string]any{"status": "success", "data": map[string]any{"resultType": res.Value.Type(), "result": res.Value}})
	if err != nil {
		return http.StatusInternalServerError, nil
	}
	return http.StatusOK, body
}

// In 30 days of a point each 4 hours, a disk is full for one hour and says nothing for two. The
// points see neither; what is between them does, of the selector and of an expression.
func TestWithinTellsOfAnHour(t *testing.T) {
	st := promqltest.LoadedStorage(t, `
load 5m
  used{site="x"} 40x2650 97x12 40x1000 stale _x23 40x5000
`)
	defer st.Close()
	h := newHarness(t, func(o *Options, _ *timing) {
		o.Metrics = engineMetrics{eng: promqltest.NewTestEngine(t, false, 5*time.Minute, 5e6), st: st}
	})
	ask := func(query, within string) map[string]bool {
		q := url.Values{"query": {query}, "start": {"14400"}, "end": {"2592000"}, "step": {"4h"}}
		if within != "" {
			q.Set("within", within)
		}
		var a struct {
			Data struct {
				Result []struct{ Values [][2]any }
			}
		}
		if err := json.Unmarshal(h.want(200, "alice", "GET", "/api/v1/metrics/query_range?"+q.Encode(), "").body, &a); err != nil || len(a.Data.Result) != 1 {
			t.Fatalf("%s of %s: %v, %d series", within, query, err, len(a.Data.Result))
		}
		values := map[string]bool{}
		for _, v := range a.Data.Result[0].Values {
			values[v[1].(string)] = true
		}
		return values
	}
	for _, query := range []string{`used{site="x"}`, `max by (site) (used)`} {
		for within, want := range map[string]string{"": "40", "least": "40", "largest": "40 97"} {
			if got := slices.Sorted(maps.Keys(ask(query, within))); strings.Join(got, " ") != want {
				t.Errorf("%s of %s: %v, want %s", within, query, got, want)
			}
		}
		least := "1"
		for v := range ask(query, "coverage") {
			least = min(least, v)
		}
		// Two hours of four are missing.
		if least < "0.49" || least > "0.53" {
			t.Errorf("coverage of %s: %s at least, want about half", query, least)
		}
	}
}

func TestWithinIsBounded(t *testing.T) {
	h := newHarness(t)
	path := "/api/v1/metrics/query_range?start=0&end=2592000&step=4h&query="
	for query, want := range map[string]string{
		"x":                       "max_over_time(x[4h])",
		"sum(rate(x[5m]))":        "max_over_time((sum(rate(x[5m])))[4h:1m])",
		"increase(x[1h]) offset1": "", // parse error
		"avg_over_time(x[1d])":    "", // costs what is allowed by itself, but not each minute
		`"text"`:                  "",
	} {
		code := 400
		if want != "" {
			code = 200
		}
		asked := h.metrics.asked
		a := h.want(code, "alice", "GET", path+url.QueryEscape(query)+"&within=largest", "")
		if want != "" && h.metrics.query.Expr != want {
			t.Errorf("%s became %s", query, h.metrics.query.Expr)
		}
		if want == "" && h.metrics.asked != asked {
			t.Errorf("%s: %s reached the store", query, h.metrics.query.Expr)
		}
		if strings.HasPrefix(query, "avg") {
			if p := a.problem(t); len(p.Errors) != 1 || p.Errors[0].Field != "within" || !strings.Contains(p.Errors[0].Detail, "of at most 50,000,000") {
				t.Errorf("%s: %+v", query, p.Errors)
			}
			h.want(200, "alice", "GET", path+url.QueryEscape(query), "")
		}
	}
	h.want(400, "alice", "GET", path+"x&within=middle", "")
	h.want(400, "alice", "GET", "/api/v1/metrics/query?query=x&within=least", "")
	h.want(200, "alice", "POST", "/api/v1/metrics/query_range", "query=x&start=0&end=9000&step=1h&within=least", "Content-Type", "application/x-www-form-urlencoded")
	if h.metrics.query.Expr != "min_over_time(x[1h])" {
		t.Errorf("by form: %s", h.metrics.query.Expr)
	}
}
