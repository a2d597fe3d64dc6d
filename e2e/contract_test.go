package e2e

import (
	"context"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// testContract holds the answers of the real health role, which the console passes
// on, and of the console itself against the OpenAPI document that it serves.
func testContract(t *testing.T, f *fleet) {
	fetch := func(path string) (*http.Request, *http.Response, []byte) {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, console+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+f.token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return req, resp, b
	}
	_, _, spec := fetch("/api/v1/openapi.json")
	doc, err := openapi3.NewLoader().LoadFromData(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatal(err)
	}
	doc.Servers = nil
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	good := []string{ // their answer is a good one
		"/api/v1/sites?limit=5&q=score%3C101&columns=name,score,lastSeen&sort=-score", "/api/v1/sites?limit=0&group=region", "/api/v1/sites?q=colour%3Dred",
		"/api/v1/site-fields", "/api/v1/site-map?by=cpuUsed", "/api/v1/site-distributions?of=cpuUsed,memoryUsed", "/api/v1/views?tenant=demo", "/api/v1/timeline?tenant=demo&limit=20", "/api/v1/timeline?tenant=demo&site=paris",
		"/api/v1/alerts/groups?tenant=demo", "/api/v1/alerts/notifications?tenant=demo", "/api/v1/metrics/names?tenant=demo", "/api/v1/metrics/names?tenant=demo&label=__name__&q=node_cpu", "/api/v1/metrics/condition?query=up%3E0",
		"/api/v1/cost", "/api/v1/cost?by=tenant", "/api/v1/cost/names?tenant=demo", "/api/v1/kubernetes", "/api/v1/tenants", "/api/v1/virtualhosts", "/api/v1/vk8s", "/api/v1/vk8s/shop/vk8s?tenant=demo", "/api/v1/vk8s/shop/vk8s/workloads?tenant=demo",
		"/api/v1/sites/paris/workloads?tenant=demo", "/api/v1/rollouts",
	}
	for _, path := range append(good,
		"/api/v1/health/sites?limit=1000", "/api/v1/health/sites?limit=3&sort=score", "/api/v1/health/sites/paris?tenant=demo", "/api/v1/health/sites/this-machine",
		"/api/v1/health/sites/nowhere", "/api/v1/health/sites?colour=purple", "/api/v1/health/virtualsites", "/api/v1/health/virtualsites/europe?tenant=demo&namespace=shared",
		"/api/v1/health/policies", "/api/v1/sites/paris", "/api/v1/links?limit=5", "/api/v1/links?by=virtualSite&sort=-link.roundTrip", "/api/v1/links?by=name", "/api/v1/registrations", "/api/v1/session",
		"/api/v1/metrics/query?query=up&tenant=demo",
		"/api/v1/logs/search?tenant=demo&from=now-1h", "/api/v1/logs/search?tenant=demo&query=%22", "/api/v1/alerts?tenant=demo", "/api/v1/alerts?severity=purple",
		"/api/v1/alerts/state?virtualSite=shared/all&tenant=demo", "/api/v1/alerts/0000000000000000?tenant=demo", "/api/v1/silences?tenant=demo",
	) {
		req, resp, body := fetch(path)
		if slices.Contains(good, path) && resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s: %.300s", path, resp.Status, body)
		}
		route, params, err := router.FindRoute(req)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		in := &openapi3filter.ResponseValidationInput{
			RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, Route: route, PathParams: params},
			Status:                 resp.StatusCode, Header: resp.Header, Options: &openapi3filter.Options{IncludeResponseStatus: true},
		}
		if err := openapi3filter.ValidateResponse(context.Background(), in.SetBodyBytes(body)); err != nil {
			t.Errorf("%s answers %s against the document: %.600v", path, resp.Status, err)
		}
	}
}
