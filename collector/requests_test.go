package collector

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

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
					fmt.Fprintf(&b, "nginx_ingress_controller_requests{status=%q,method=%q,host=\"h%d\",path=\"/p%d\",ingress=\"web\",service=%q,controller_pod=\"c\"} %d\n", code, method, k, k, service, n)
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
		`ingress="web", instance="I", job="app", service="shop", status="2xx"`:              75,
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

// shippedPolicy is what the shipped CollectionPolicy says of metrics and labels.
func shippedPolicy(t *testing.T) fleet.CollectionPolicy {
	t.Helper()
	raw, err := os.ReadFile("../health/defaults/collectionpolicy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var shipped struct {
		Spec struct {
			Allow        struct{ Names []string }
			DropSeries   []fleet.SeriesDrop
			DropLabels   []string
			Aggregations []struct{ Metric, Op string }
		}
	}
	if err := yaml.Unmarshal(raw, &shipped); err != nil {
		t.Fatal(err)
	}
	p := policy()
	p.AllowNames, p.DropSeries, p.DropLabels, p.Aggregations = shipped.Spec.Allow.Names, shipped.Spec.DropSeries, shipped.Spec.DropLabels, map[string]string{}
	for _, a := range shipped.Spec.Aggregations {
		p.Aggregations[a.Metric] = a.Op
	}
	return p
}

// TestRequestsOfRealProxies: of what Envoy, Traefik and NGINX ingress' collector really served, and of what Linkerd's
// proxy does by its sources (testdata says which version, and what they had been asked), the shipped policy's
// requests, errors and time to answer leave the site.
func TestRequestsOfRealProxies(t *testing.T) {
	t.Parallel()
	for file, x := range map[string]struct {
		labels string // of the target
		want   map[string]float64
	}{
		"envoy-1.40.0.txt": {"", map[string]float64{
			`envoy_cluster_upstream_rq_xx{envoy_cluster_name="shop", envoy_response_code_class="2", instance="I", job="app"}`: 6,
			`envoy_cluster_upstream_rq_xx{envoy_cluster_name="shop", envoy_response_code_class="4", instance="I", job="app"}`: 2,
			`envoy_cluster_upstream_rq_xx{envoy_cluster_name="shop", envoy_response_code_class="5", instance="I", job="app"}`: 1,
			`envoy_cluster_upstream_rq_xx{envoy_cluster_name="pay", envoy_response_code_class="2", instance="I", job="app"}`:  4,
			`envoy_cluster_upstream_rq_xx{envoy_cluster_name="gone", envoy_response_code_class="5", instance="I", job="app"}`: 3,
			`envoy_cluster_upstream_rq_time_count{envoy_cluster_name="shop", instance="I", job="app"}`:                        9,
			`envoy_cluster_upstream_rq_time_count{envoy_cluster_name="pay", instance="I", job="app"}`:                         4,
			`envoy_cluster_upstream_rq_time_sum{envoy_cluster_name="shop", instance="I", job="app"}`:                          139.57286754677565,
			`envoy_cluster_upstream_rq_time_sum{envoy_cluster_name="pay", instance="I", job="app"}`:                           158.93627065302911,
		}},
		"traefik-3.7.15.txt": {"", map[string]float64{
			`traefik_service_requests_total{code="2xx", instance="I", job="app", service="shop@file"}`:                 6,
			`traefik_service_requests_total{code="4xx", instance="I", job="app", service="shop@file"}`:                 2,
			`traefik_service_requests_total{code="5xx", instance="I", job="app", service="shop@file"}`:                 1,
			`traefik_service_requests_total{code="2xx", instance="I", job="app", service="pay@file"}`:                  4,
			`traefik_service_requests_total{code="5xx", instance="I", job="app", service="gone@file"}`:                 3,
			`traefik_service_request_duration_seconds_count{code="2xx", instance="I", job="app", service="shop@file"}`: 6,
			`traefik_service_request_duration_seconds_sum{code="2xx", instance="I", job="app", service="shop@file"}`:   0.015436533 + 0.002661398,
			`traefik_service_request_duration_seconds_sum{code="2xx", instance="I", job="app", service="pay@file"}`:    0.043791364 + 0.081748864,
		}},
		"ingress-nginx-1.15.1.txt": {"{namespace: ingress-nginx, pod: ingress-nginx-controller-6d5f8c7b9-x2lqz, node: n1}", map[string]float64{
			`nginx_ingress_controller_requests{ingress="web", instance="I", job="app", namespace="shop", node="n1", service="shop", status="2xx"}`:                       6,
			`nginx_ingress_controller_requests{ingress="web", instance="I", job="app", namespace="shop", node="n1", service="shop", status="4xx"}`:                       2,
			`nginx_ingress_controller_requests{ingress="web", instance="I", job="app", namespace="shop", node="n1", service="shop", status="5xx"}`:                       1,
			`nginx_ingress_controller_requests{ingress="web", instance="I", job="app", namespace="shop", node="n1", service="pay", status="2xx"}`:                        4,
			`nginx_ingress_controller_requests{ingress="web", instance="I", job="app", namespace="shop", node="n1", service="gone", status="5xx"}`:                       3,
			`nginx_ingress_controller_request_duration_seconds_count{ingress="web", instance="I", job="app", namespace="shop", node="n1", service="shop", status="2xx"}`: 6,
			`nginx_ingress_controller_request_duration_seconds_sum{ingress="web", instance="I", job="app", namespace="shop", node="n1", service="shop", status="2xx"}`:   4*0.02 + 2*0.05,
		}},
		"linkerd2-proxy-29637b6.txt": {"{namespace: shop, pod: checkout-5597c667f6-4ttcq, node: n1}", map[string]float64{
			`response_total{classification="success", direction="inbound", instance="I", job="app", namespace="shop", node="n1", pod="checkout-5597c667f6-4ttcq", service="checkout"}`: 4 + 2 + 2 + 2,
			`response_total{classification="failure", direction="inbound", instance="I", job="app", namespace="shop", node="n1", pod="checkout-5597c667f6-4ttcq", service="checkout"}`: 3,
			`response_latency_ms_count{direction="inbound", instance="I", job="app", namespace="shop", node="n1", pod="checkout-5597c667f6-4ttcq", service="checkout"}`:                13,
			`response_latency_ms_sum{direction="inbound", instance="I", job="app", namespace="shop", node="n1", pod="checkout-5597c667f6-4ttcq", service="checkout"}`:                  26 + 4 + 950 + 10001 + 85 + 16 + 30,
		}},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join("testdata", file))
			if err != nil {
				t.Fatal(err)
			}
			r := newReceiver(t)
			p := newPage(t, string(text))
			shipped := shippedPolicy(t)
			start(t, r, func(o *Options) {
				o.ScrapeConfigs = []byte(strings.Replace(static("app", p.addr()), "]}]", "], labels: "+cmp.Or(x.labels, "{}")+"}]", 1))
				o.Policy = shipped
			})
			got := map[string]float64{}
			eventually(t, func() string {
				clear(got)
				for key, points := range r.series(t, "(envoy|traefik|nginx|response|route|request)_.*") {
					// {__name__="N", more} is N{more}.
					name, rest, _ := strings.Cut(strings.TrimPrefix(key, `{__name__="`), `", `)
					got[name+"{"+strings.ReplaceAll(rest, p.addr(), "I")] = points[len(points)-1].v
				}
				for key := range x.want {
					if _, ok := got[key]; !ok {
						return fmt.Sprintf("%s among %v", key, slices.Sorted(maps.Keys(got)))
					}
				}
				return ""
			})
			for key, v := range x.want {
				if math.Abs(got[key]-v) > 1e-9 {
					t.Errorf("%s: %v, want %v", key, got[key], v)
				}
			}
			for key := range got {
				if strings.Contains(key, "prometheus_stats") {
					t.Errorf("%s: that is Envoy's own", key)
				}
			}
			if len(got) > 30 {
				t.Errorf("%d series of a page of two services and one that is gone: %v", len(got), slices.Sorted(maps.Keys(got)))
			}
		})
	}
}

// TestRequestsAsTheyAre of a policy that does not ask for fewer.
func TestRequestsAsTheyAre(t *testing.T) {
	if rules := requestRules(fleet.CollectionPolicy{DropLabels: []string{"uid"}}); len(rules) != 0 {
		t.Errorf("%d rules", len(rules))
	}
}
