package cost

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/testkit/realregional"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/cost"
)

type fixed struct{ snap *inventory.Snapshot }

func (f fixed) Snapshot() *inventory.Snapshot { return f.snap }

func site(tenant, name, region string) *v1alpha1.Site {
	return &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: tenant + "-system", Name: name, Labels: map[string]string{"region": region}}, Spec: v1alpha1.SiteSpec{Approved: true}}
}

func virtualSite(tenant, name, region string) *v1alpha1.VirtualSite {
	return &v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: tenant + "-shared", Name: name}, Spec: v1alpha1.VirtualSiteSpec{SiteSelector: metav1.LabelSelector{MatchLabels: map[string]string{"region": region}}}}
}

func book() fixed {
	return fixed{inventory.NewBook("acme", "umbrella").Put(
		site("acme", "paris", "eu"), site("acme", "rome", "eu"), site("acme", "osaka", "jp"), site("umbrella", "secret", "eu"),
		virtualSite("acme", "all-eu", "eu"), virtualSite("acme", "all-jp", "jp"), virtualSite("umbrella", "hidden", "eu"),
	).Snapshot()}
}

// regional is a real gateway and engine, and what it says of its sites over HTTP.
type regional struct {
	*realregional.Regional
	srv *httptest.Server
}

func start(t *testing.T, name string) *regional {
	r := &regional{Regional: realregional.Start(t, name, 5000)}
	m, err := cost.New(cost.Options{Regional: name, Sites: r.Gateway.Use, Series: r.Series, Names: r.Edge.HeaviestNames})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+wire.CostPath, m.Handler())
	mux.Handle("GET "+wire.CostNamesPath, m.NamesHandler())
	r.srv = httptest.NewServer(mux)
	t.Cleanup(r.srv.Close)
	return r
}

func (r *regional) push(t *testing.T, tenant, name string, series int) {
	t.Helper()
	r.pushMetric(t, tenant, name, "node_load1", series)
}

func (r *regional) pushMetric(t *testing.T, tenant, name, metric string, series int) {
	t.Helper()
	if code := r.Push(r.Client(fleet.SiteID{Tenant: tenant, Name: name}), metric, series, time.Now()); code != http.StatusNoContent {
		t.Fatalf("status %d", code)
	}
}

func newServer(t *testing.T, inv Inventory, regionals ...Regional) *http.ServeMux {
	t.Helper()
	s, err := New(Options{Regionals: regionals, Inventory: inv, Fresh: time.Nanosecond, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	s.Register(mux)
	return mux
}

func get[T any](mux *http.ServeMux, path, tenants, query string) (int, string, T) {
	req := httptest.NewRequest(http.MethodGet, path+"?"+query, nil)
	if tenants != "" {
		req.Header.Set(wire.TenantsHeader, tenants)
	}
	res := httptest.NewRecorder()
	mux.ServeHTTP(res, req)
	var p T
	_ = json.Unmarshal(res.Body.Bytes(), &p)
	return res.Code, res.Body.String(), p
}

func ask(mux *http.ServeMux, tenants, query string) (int, string, wire.CostPage) {
	return get[wire.CostPage](mux, wire.CostPath, tenants, query)
}

func names(p wire.CostPage) (out []string) {
	for _, r := range p.Rows {
		out = append(out, fmt.Sprintf("%s/%s%s=%d", r.Tenant, strings.TrimSuffix(r.Namespace+"/", "/"), r.Name, r.Series))
	}
	return out
}

// Two regionals with real gateways and engines: what a site has at both is added up, and
// nobody hears of a neighbour.
func TestTwoRegionals(t *testing.T) {
	one, two := start(t, "one"), start(t, "two")
	one.push(t, "acme", "paris", 300)
	one.push(t, "acme", "rome", 100)
	one.push(t, "umbrella", "secret", 700)
	two.push(t, "acme", "paris", 50)
	two.push(t, "acme", "osaka", 200)
	two.push(t, "acme", "deleted", 10)
	mux := newServer(t, book(), Regional{"one", one.srv.URL}, Regional{"two", two.srv.URL})

	for _, c := range []struct {
		tenants, query string
		want           []string
		sum            int64
	}{
		{"acme", "", []string{"acme/paris=350", "acme/osaka=200", "acme/rome=100"}, 650},
		{"acme", "sort=name", []string{"acme/osaka=200", "acme/paris=350", "acme/rome=100"}, 650},
		{"acme", "virtualSite=all-eu", []string{"acme/paris=350", "acme/rome=100"}, 450},
		{"acme", "q=o", []string{"acme/osaka=200", "acme/rome=100"}, 300},
		{"acme", "by=virtualsite", []string{"acme/sharedall-eu=450", "acme/sharedall-jp=200"}, 650},
		{"acme", "by=tenant", []string{"acme/=660"}, 660},
		{"*", "by=tenant", []string{"umbrella/=700", "acme/=660"}, 1360},
		{"*", "by=tenant&tenant=acme", []string{"acme/=660"}, 660},
		{"umbrella", "", []string{"umbrella/secret=700"}, 700},
		{"umbrella", "virtualSite=shared/all-eu", nil, 0},
		{"nobody", "by=tenant", nil, 0},
	} {
		code, body, p := ask(mux, c.tenants, c.query)
		if code != http.StatusOK || !slices.Equal(names(p), c.want) || p.Sum.Series != c.sum || p.Total != len(c.want) || len(p.MissingRegions) != 0 {
			t.Errorf("%s %q: %d, %v of %d, sum %d; want %v, %d", c.tenants, c.query, code, names(p), p.Total, p.Sum.Series, c.want, c.sum)
		}
		if whole := c.tenants == "*" && !strings.Contains(c.query, "tenant="); whole != (len(p.Regionals) > 0) || whole != strings.Contains(body, "headroom") {
			t.Errorf("%s %q: regionals as a whole: %s", c.tenants, c.query, body)
		}
		if c.tenants == "acme" {
			for _, secret := range []string{"umbrella", "secret", "hidden"} {
				if strings.Contains(body, secret) {
					t.Errorf("%q tells acme of %s: %s", c.query, secret, body)
				}
			}
		}
	}
	_, _, p := ask(mux, "*", "by=tenant")
	if r := p.Rows[1]; r.SeriesLimit != 10_000 || r.MoreSites == nil || *r.MoreSites != (10_000-660)*3/660 {
		t.Errorf("room of acme: %+v", r)
	}
	if r := p.Regionals[0]; r.Name != "one" || r.Process.Series != 1100 || r.Headroom.Sites != 3 || r.Headroom.MoreSites == nil || r.Headroom.First == "" {
		t.Errorf("%+v", r)
	}
	_, _, p = ask(mux, "acme", "q=paris")
	if len(p.Rows) != 1 || !slices.Equal(p.Rows[0].Regionals, []string{"one", "two"}) || p.Rows[0].WireBytesPerSecond <= 0 {
		t.Errorf("%+v", p)
	}

	// One of them goes away: the answer says which, and has what the other knows.
	one.srv.Close()
	_, body, p := ask(mux, "acme", "")
	if !slices.Equal(names(p), []string{"acme/osaka=200", "acme/paris=50", "acme/rome=0"}) || len(p.MissingRegions) != 1 || p.MissingRegions[0] != (wire.MissingRegion{Region: "one", Reason: "it can't be reached"}) {
		t.Errorf("%s", body)
	}
	if strings.Contains(body, "127.0.0.1") {
		t.Errorf("it tells where the regional is: %s", body)
	}
}

// All pages together are the list, whatever it is sorted by.
func TestPages(t *testing.T) {
	b := inventory.NewBook("acme")
	r := wire.RegionalCost{Regional: "one"}
	for i := range 25 {
		name := fmt.Sprintf("s%02d", i)
		b.Put(site("acme", name, "eu"))
		r.Sites = append(r.Sites, wire.SiteCost{Tenant: "acme", Site: name, Use: wire.Use{Series: int64(i % 4), SamplesPerSecond: float64(i)}})
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(r) }))
	defer srv.Close()
	mux := newServer(t, fixed{b.Snapshot()}, Regional{"one", srv.URL})
	for _, sort := range append([]string{"name"}, wire.CostColumns...) {
		var got []string
		last, cursor := math.Inf(1), ""
		for {
			_, body, p := ask(mux, "acme", url.Values{"sort": {sort}, "limit": {"4"}, "cursor": {cursor}}.Encode())
			if p.Total != 25 {
				t.Fatalf("%s: %s", sort, body)
			}
			for _, row := range p.Rows {
				if v := row.Column(sort); v > last {
					t.Errorf("%s: %v comes after %v", sort, v, last)
				} else {
					last = v
				}
				got = append(got, row.Name)
			}
			if cursor = p.NextCursor; cursor == "" {
				break
			}
		}
		slices.Sort(got)
		if len(slices.Compact(got)) != 25 {
			t.Errorf("sorted by %s: %v", sort, got)
		}
	}
}

func TestBadRequests(t *testing.T) {
	mux := newServer(t, book(), Regional{"one", "http://127.0.0.1:1"})
	for query, want := range map[string]string{
		"by=node": "by: ", "sort=price": "sort: ", "limit=0": "limit: ", "limit=x": "limit: ", "cursor=x": "cursor: ", "by=tenant&virtualSite=x": "virtualSite: ",
	} {
		if code, body, _ := ask(mux, "acme", query); code != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
	for tenants, query := range map[string]string{"": "", "acme": "tenant=umbrella", "Not A Tenant": ""} {
		if code, body, _ := ask(mux, tenants, query); code != http.StatusForbidden {
			t.Errorf("%q %s: %d %s", tenants, query, code, body)
		}
	}
	if code, _, _ := ask(newServer(t, fixed{}, Regional{"one", "http://127.0.0.1:1"}), "acme", ""); code != http.StatusServiceUnavailable {
		t.Errorf("without an inventory: %d", code)
	}
}

// A regional that answers with something else is missing, with a reason to read.
func TestGarbage(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"another's":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"regional":"two"}`)) },
		"no JSON":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`<html>`)) },
		"an old one": func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) },
		"not figures": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"regional":"one","sites":[{"tenant":"acme","site":"paris","use":{"series":-1}}]}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(h)
			defer srv.Close()
			_, _, p := ask(newServer(t, book(), Regional{"one", srv.URL}), "acme", "")
			if len(p.MissingRegions) != 1 || !strings.Contains(p.MissingRegions[0].Reason, "no usable answer") || p.Sum.Series != 0 {
				t.Errorf("%+v", p)
			}
		})
	}
}

func FuzzDecodeCursor(f *testing.F) {
	q := &query{by: "site", sort: "series"}
	p := position{By: "site", Sort: "series", Value: 7, Tenant: "acme", Name: "paris"}
	f.Add(p.encode())
	f.Fuzz(func(t *testing.T, s string) {
		p, err := decodeCursor(s, q)
		if err == nil && p != nil && (p.By != "site" || p.Sort != "series" || math.IsNaN(p.Value) || math.IsInf(p.Value, 0)) {
			t.Errorf("%+v", p)
		}
	})
}

// The names of a site, over two real engines, with the fields of the policies that select it.
func TestNames(t *testing.T) {
	one, two := start(t, "one"), start(t, "two")
	one.pushMetric(t, "acme", "paris", "node_cpu_seconds_total", 40)
	one.pushMetric(t, "acme", "paris", "up", 3)
	two.pushMetric(t, "acme", "paris", "node_load1", 30)
	two.pushMetric(t, "acme", "paris", "node_cpu_seconds_total", 5)
	one.pushMetric(t, "acme", "rome", "up", 500)
	one.pushMetric(t, "umbrella", "secret", "secret_metric", 100)
	policy := func(tenant, name, region string, allow v1alpha1.MetricAllow) *v1alpha1.CollectionPolicy {
		return &v1alpha1.CollectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: tenant + "-system", Name: name},
			Spec: v1alpha1.CollectionPolicySpec{SiteSelector: metav1.LabelSelector{MatchLabels: map[string]string{"region": region}}, Allow: allow}}
	}
	inv := fixed{inventory.NewBook("acme", "umbrella").Put(site("acme", "paris", "eu"), site("acme", "rome", "eu"), site("umbrella", "secret", "eu"), site("umbrella", "rome", "eu"),
		policy("acme", "base", "eu", v1alpha1.MetricAllow{Names: []string{"node_cpu_seconds_total", "node_load1"}}),
		policy("acme", "more", "eu", v1alpha1.MetricAllow{Patterns: []string{"x", "node_cpu.*"}}),
		policy("acme", "japan", "jp", v1alpha1.MetricAllow{Names: []string{"up"}}),
		policy("umbrella", "theirs", "eu", v1alpha1.MetricAllow{Names: []string{"up"}}),
	).Snapshot()}
	mux := newServer(t, inv, Regional{"one", one.srv.URL}, Regional{"two", two.srv.URL})
	names := func(tenants, query string) (int, string, wire.NamesPage) {
		return get[wire.NamesPage](mux, wire.CostNamesPath, tenants, query)
	}
	_, body, p := names("acme", "site=paris")
	want := []wire.HeavyName{
		{NameSeries: wire.NameSeries{Name: "node_cpu_seconds_total", Series: 45}, KeptBy: []wire.PolicyField{{Policy: "base", Field: "spec.allow.names"}, {Policy: "more", Field: "spec.allow.patterns[1]", Value: "node_cpu.*"}}},
		{NameSeries: wire.NameSeries{Name: "node_load1", Series: 30}, KeptBy: []wire.PolicyField{{Policy: "base", Field: "spec.allow.names"}}},
		{NameSeries: wire.NameSeries{Name: "up", Series: 3}, KeptBy: []wire.PolicyField{}},
	}
	if p.Tenant != "acme" || p.Site != "paris" || p.Series != 78 || p.Sampled || !reflect.DeepEqual(p.Names, want) {
		t.Errorf("%s", body)
	}
	// Of the tenant any of its policies counts.
	if _, body, p = names("acme", ""); p.Series != 578 || p.Names[0].Name != "up" || !reflect.DeepEqual(p.Names[0].KeptBy, []wire.PolicyField{{Policy: "japan", Field: "spec.allow.names"}}) || strings.Contains(body, "secret") {
		t.Errorf("%s", body)
	}
	for _, c := range []struct {
		tenants, query string
		code           int
	}{{"acme", "site=secret", 404}, {"acme", "tenant=umbrella", 403}, {"*", "", 400}, {"*", "site=rome", 409}, {"*", "site=rome&tenant=umbrella", 200}, {"", "", 403}} {
		if code, body, _ := names(c.tenants, c.query); code != c.code {
			t.Errorf("%s %q: %d, want %d: %s", c.tenants, c.query, code, c.code, body)
		}
	}
	two.srv.Close()
	if _, body, p = names("acme", "site=paris"); p.Series != 43 || len(p.MissingRegions) != 1 || p.MissingRegions[0].Region != "two" {
		t.Errorf("%s", body)
	}
}
