package collector

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"muster.dev/muster/internal/fleet"
)

// requestPage is what an ingress of each kind serves: two services, many methods, paths and hosts.
func requestPage() string {
	var b strings.Builder
	for _, service := range []string{"shop", "pay"} {
		for i, method := range []string{"GET", "POST", "PUT"} {
			for j, code := range []string{"200", "204", "404", "503"} {
				n := 1 + i + j
				fmt.Fprintf(&b, "traefik_service_requests_total{code=%q,method=%q,protocol=\"http\",service=%q} %d\n", code, method, service, n)
				for k := range 5 {
					fmt.Fprintf(&b, "nginx_ingress_controller_requests{status=%q,method=%q,host=\"h%d\",path=\"/p%d\",ingress=\"web\",exported_service=%q,controller_pod=\"c\"} %d\n", code, method, k, k, service, n)
				}
			}
		}
		for k := range 20 {
			for _, class := range []string{"success", "failure"} {
				fmt.Fprintf(&b, "response_total{direction=\"inbound\",classification=%q,client_id=\"c%d\",target_addr=\"10.0.0.%d:80\",tls=\"true\",status_code=\"200\",app=%q} 2\n", class, k, k, service)
			}
		}
	}
	b.WriteString("other_total{method=\"GET\",path=\"/\",code=\"200\"} 1\n")
	return b.String()
}

// TestRequestsByService: of what an ingress tells, services and classes of status leave the
// site, and their sums are right; other metrics keep their labels.
func TestRequestsByService(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	p := newPage(t, requestPage())
	names := []string{"traefik_service_requests_total", "nginx_ingress_controller_requests", "response_total"}
	start(t, r, func(o *Options) {
		o.ScrapeConfigs = []byte(static("app", p.addr()))
		o.Policy = policy(append(slices.Clone(names), "other_total")...)
		o.Policy.DropLabels = []string{requestDetail}
		o.Policy.Aggregations = map[string]string{}
		for _, n := range names {
			o.Policy.Aggregations[n] = "sum"
		}
	})
	want := map[string]float64{
		// Codes 200 and 204 of three methods: 1+2+3 and 2+3+4.
		`code="2xx", instance="I", job="app", service="shop"`:                               15,
		`code="5xx", instance="I", job="app", service="pay"`:                                15,
		`exported_service="shop", ingress="web", instance="I", job="app", status="2xx"`:     75,
		`app="pay", classification="failure", direction="inbound", instance="I", job="app"`: 40,
		`code="200", instance="I", job="app", method="GET", path="/"`:                       1,
	}
	got := map[string]float64{}
	eventually(t, func() string {
		clear(got)
		for _, n := range append(slices.Clone(names), "other_total") {
			for key, points := range r.series(t, n) {
				_, key, _ = strings.Cut(strings.ReplaceAll(key, p.addr(), "I"), `", `)
				got[strings.TrimSuffix(key, "}")] = points[len(points)-1].v
			}
		}
		for key := range want {
			if _, ok := got[key]; !ok {
				return fmt.Sprintf("%s among %v", key, slices.Sorted(maps.Keys(got)))
			}
		}
		return ""
	})
	for key, v := range want {
		if got[key] != v {
			t.Errorf("%s: %v, want %v", key, got[key], v)
		}
	}
	// Two services with three classes each of two ingresses, two outcomes of Linkerd's two, and the other one.
	if len(got) != 2*3*2+2*2+1 {
		t.Errorf("%d series: %v", len(got), slices.Sorted(maps.Keys(got)))
	}
}

// TestRequestsAsTheyAre of a policy that does not ask for fewer.
func TestRequestsAsTheyAre(t *testing.T) {
	if rules := requestRules(fleet.CollectionPolicy{DropLabels: []string{"uid"}}); len(rules) != 0 {
		t.Errorf("%d rules", len(rules))
	}
}
