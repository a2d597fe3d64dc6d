package vk8s

import (
	"net/url"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	const root = "/api/vK8s/namespaces/demo-shop/vk8s"
	for in, want := range map[string]string{ // want: the path for the stock API server; empty: refused
		root + "/api/v1/pods":                                         "/api/v1/namespaces/demo-shop/pods",
		root + "/api/v1/namespaces/other/pods":                        "/api/v1/namespaces/demo-shop/pods",
		root + "/apis/apps/v1/namespaces/demo-shop/deployments/web":   "/apis/apps/v1/namespaces/demo-shop/deployments/web",
		root + "/apis/apps/v1/namespaces/x/deployments/web/scale":     "/apis/apps/v1/namespaces/demo-shop/deployments/web/scale",
		root + "/apis/apps/v1/deployments/":                           "/apis/apps/v1/namespaces/demo-shop/deployments",
		root + "/version":                                             "/version",
		root + "/openapi/v3/apis/apps/v1":                             "/openapi/v3/apis/apps/v1",
		root + "/api/v1/namespaces/demo-shop/configmaps/a%3Ab":        "/api/v1/namespaces/demo-shop/configmaps/a:b",
		root + "/api/v1/namespaces/demo-shop/configmaps/..%2f..%2fx":  "",
		root + "/api/v1/namespaces/demo-shop/configmaps/%2e%2e":       "",
		root + "/api/v1/namespaces/demo-shop/configmaps/../../secret": "",
		root + "/api/v1//pods":                                        "",
		"//api/vK8s/namespaces/a/b/version":                           "",
		root + "/api/v1/watch/pods":                                   "",
		root + "/api/v1/namespaces/demo-shop/pods/a/proxy/b":          "",
		root + "/metrics":                                             "",
		root + "/debug/pprof":                                         "",
		root + "/logs":                                                "",
		root + "/readyz/etcd":                                         "",
		root + "/.well-known/openid-configuration":                    "",
		root:                                   "",
		"/api/vK8s/namespaces/a":               "",
		"/api/vK8s/others/a/b/version":         "",
		"/api/vK8s%2fnamespaces/a/b/version":   "",
		root + "/api/v1/configmaps/%00":        "",
		root + "/api/v1/configmaps/a%5c..%5cb": "",
	} {
		u, err := url.ParseRequestURI(in)
		if err != nil {
			t.Fatal(err)
		}
		if !under(u) {
			t.Errorf("%s would reach the stock API server as it is", in)
		}
		c, err := parse(u)
		switch {
		case want == "" && err == nil:
			t.Errorf("%s: becomes %s", in, c.path(true))
		case want != "" && (err != nil || c.path(true) != want):
			t.Errorf("%s: %s, %v; want %s", in, c.path(true), err, want)
		}
	}
}

// Whatever is asked, what goes on is in the namespace.
func FuzzParse(f *testing.F) {
	f.Add("/api/vK8s/namespaces/ns/n/api/v1/namespaces/x/pods/y/log")
	f.Add("/api/vK8s/namespaces/ns/n/apis/apps/v1/%6eamespaces/x/deployments")
	f.Add("/api/vK8s/namespaces/ns/n/api/v1/namespaces/x/status")
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.ParseRequestURI("/" + strings.TrimPrefix(path, "/"))
		if err != nil || !under(u) {
			return
		}
		c, err := parse(u)
		if err != nil || c.what != resource {
			return
		}
		got := c.path(true)
		p := strings.Split(got, "/")
		at := 3 // "", api, VERSION, namespaces, NAMESPACE, ...
		if p[1] == "apis" {
			at = 4
		}
		if len(p) < at+3 || len(p) > at+5 || p[at] != "namespaces" || p[at+1] != c.namespace {
			t.Errorf("%q becomes %q", path, got)
		}
		for _, part := range p[1:] {
			if part == "" || part == "." || part == ".." {
				t.Errorf("%q becomes %q", path, got)
			}
		}
	})
}
