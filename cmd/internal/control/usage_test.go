package control

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"muster.dev/muster/aggregator/query"
	"muster.dev/muster/control/vk8s/status"
)

// TestUsage: what cAdvisor's metrics say is put together by pod and container, or by node,
// and asked for as the tenant.
func TestUsage(t *testing.T) {
	var asked []string
	sample := func(labels, value string) string {
		return fmt.Sprintf(`{"metric":{%s},"value":[1,%q]}`, labels, value)
	}
	answers := map[string][]string{
		"container_cpu_usage_seconds_total":  {sample(`"site":"paris","pod":"web","container":"app"`, "0.25")},
		"container_memory_working_set_bytes": {sample(`"site":"paris","pod":"web","container":"app"`, "1024"), sample(`"site":"rome","pod":"db","container":"db"`, "2048")},
	}
	code := 200
	use := usage(func(_ context.Context, tenant string, r query.Request) (int, []byte) {
		asked = append(asked, tenant+" "+r.Expr)
		for name, series := range answers {
			if strings.Contains(r.Expr, name) {
				return code, []byte(`{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(series, ",") + `]}}`)
			}
		}
		return 500, nil
	})
	got, err := use(t.Context(), status.UsageOf{Tenant: "acme", Namespace: "acme-shop"})
	if err != nil || len(got) != 2 || got[0].Site != "paris" || got[0].Name != "web" || got[0].Container != "app" || *got[0].CPU != 0.25 || *got[0].Memory != 1024 || got[1].CPU != nil || *got[1].Memory != 2048 {
		t.Errorf("%+v, %v", got, err)
	}
	if want := `acme max by (site, pod, container) (rate(container_cpu_usage_seconds_total{namespace="acme-shop",container!="",container!="POD"}[5m]))`; asked[0] != want {
		t.Errorf("asked %s, want %s", asked[0], want)
	}
	asked = nil
	if _, err := use(t.Context(), status.UsageOf{Tenant: "acme", Nodes: true, Site: "paris", Name: "n1"}); err != nil {
		t.Error(err)
	}
	if want := `acme max by (site, node) (container_memory_working_set_bytes{namespace="",pod="",container="",site="paris",node="n1"})`; asked[1] != want {
		t.Errorf("asked %s, want %s", asked[1], want)
	}
	code = 502
	if _, err := use(t.Context(), status.UsageOf{Tenant: "acme"}); err == nil {
		t.Error("an answer that is none is taken")
	}
}
