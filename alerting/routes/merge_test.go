package routes

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/dispatch"
	"github.com/prometheus/alertmanager/pkg/labels"
	"github.com/prometheus/common/model"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/v1alpha1"
)

func object(t testing.TB, tenant, name, text string) Object {
	t.Helper()
	spec := &v1alpha1.AlertRouteSpec{}
	if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return Object{ID: ID{tenant, name}, Spec: spec}
}

func noSecrets(_, name, _ string) (string, error) {
	return "", fmt.Errorf("there is no secret %s", name)
}

func merged(t testing.TB, objects ...Object) (*config.Config, map[ID]Result) {
	t.Helper()
	b, results, err := Merge(objects, noSecrets, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(string(b))
	if err != nil {
		t.Fatal(err)
	}
	return c, results
}

// receivers an alert goes to, in order.
func receivers(c *config.Config, labels map[string]string) []string {
	set := model.LabelSet{}
	for k, v := range labels {
		set[model.LabelName(k)] = model.LabelValue(v)
	}
	var out []string
	for _, r := range dispatch.NewRoute(c.Route, nil).Match(set) {
		if r.RouteOpts.Receiver != None {
			out = append(out, r.RouteOpts.Receiver)
		}
		if _, by := r.RouteOpts.GroupBy[tenantLabel]; !by && !r.RouteOpts.GroupByAll {
			out = append(out, r.RouteOpts.Receiver+" is not grouped by tenant")
		}
	}
	return out
}

const team = `
route:
  receiver: team
  group_by: [alertname]
  routes: [{receiver: phone, matchers: [severity="critical"], mute_time_intervals: [nights]}]
receivers: [{name: team}, {name: phone}]
time_intervals: [{name: nights, time_intervals: [{weekdays: [monday]}]}]
inhibit_rules: [{name: x, source_matchers: [alertname="A"], target_matchers: [alertname="B"], equal: [site]}]
`

func TestMerge(t *testing.T) {
	all := `{route: {receiver: ops}, receivers: [{name: ops}]}`
	c, results := merged(t, object(t, "acme", "two", all), object(t, "acme", "one", team), object(t, "zeta", "one", team), object(t, "muster", "ops", all))
	for id, r := range results {
		if r.Err != nil || r.Reason != ReasonApplied || r.Receivers == 0 {
			t.Errorf("%s: %+v", id, r)
		}
	}
	for _, x := range []struct{ labels, want string }{
		{"tenant=acme severity=critical", "acme/one/phone acme/two/ops muster/ops/ops"},
		{"tenant=acme severity=info", "acme/one/team acme/two/ops muster/ops/ops"},
		{"tenant=zeta severity=info", "muster/ops/ops zeta/one/team"},
		{"tenant=muster severity=info", "muster/ops/ops"},
		{"tenant=other", "muster/ops/ops"},
		{"alertname=WithoutTenant", "muster/ops/ops"},
	} {
		labels := map[string]string{}
		for f := range strings.FieldsSeq(x.labels) {
			k, v, _ := strings.Cut(f, "=")
			labels[k] = v
		}
		if got := strings.Join(receivers(c, labels), " "); got != x.want {
			t.Errorf("%s goes to %q, want %q", x.labels, got, x.want)
		}
	}
	var own []config.InhibitRule
	for _, r := range c.InhibitRules {
		if strings.HasPrefix(r.Name, "acme/") {
			own = append(own, r)
		}
	}
	if len(own) != 1 || own[0].Name != "acme/one/x" || !slices.Equal(own[0].Equal, []string{"site", "tenant"}) {
		t.Fatalf("inhibitions of acme: %+v", own)
	}
	for _, m := range []config.Matchers{own[0].SourceMatchers, own[0].TargetMatchers} {
		if !slices.ContainsFunc(m, func(x *labels.Matcher) bool { return x.String() == `tenant="acme"` }) {
			t.Errorf("matchers of an inhibition: %v", m)
		}
	}
	if got := c.Route.Routes[0].Routes[0].Routes[0].MuteTimeIntervals; !slices.Equal(got, []string{"acme/one/nights"}) {
		t.Errorf("intervals %v", got)
	}
}

func TestBadObjectsStandAlone(t *testing.T) {
	good := object(t, "acme", "good", team)
	alone, _, err := Merge([]Object{good}, noSecrets, nil)
	if err != nil {
		t.Fatal(err)
	}
	bad := []Object{
		object(t, "acme", "misspelt", `{route: {receiver: x}, receivers: [{name: r}]}`),
		object(t, "acme", "secret", `{route: {receiver: r}, receivers: [{name: r, webhook_configs: [{url: {secretKeyRef: {name: gone, key: url}}}]}]}`),
		object(t, "acme", "number", `{route: {receiver: "5"}, receivers: [{name: 5}]}`),
		{ID: ID{"acme", "empty"}, Spec: &v1alpha1.AlertRouteSpec{}},
		{ID: ID{"zeta", "rubbish"}, Spec: &v1alpha1.AlertRouteSpec{Route: apiextensionsv1.JSON{Raw: []byte(`{"receiver`)}}},
		object(t, "zeta", "certificate", `{route: {receiver: r}, receivers: [{name: r, webhook_configs: [{url: 'http://x', http_config: {tls_config: {ca: {secretKeyRef: {name: nopem, key: ca}}}}}]}]}`),
	}
	secrets := func(tenant, name, key string) (string, error) {
		if name == "nopem" {
			return "hunter2", nil
		}
		return noSecrets(tenant, name, key)
	}
	b, results, err := Merge(append(bad, good), secrets, nil)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != string(alone) {
		t.Errorf("bad objects change the configuration:\n%s\n%s", b, alone)
	}
	for _, o := range bad {
		r := results[o.ID]
		if r.Err == nil || r.Reason == ReasonApplied || strings.Contains(r.Err.Error(), "hunter2") {
			t.Errorf("%s: %+v", o.ID, r)
		}
	}
	if r := results[ID{"acme", "secret"}]; r.Reason != ReasonSecret || !strings.Contains(r.Err.Error(), "secret gone, key url") {
		t.Errorf("a missing secret: %+v", r)
	}
	if r := results[good.ID]; r.Err != nil || r.Receivers != 2 {
		t.Errorf("the good one: %+v", r)
	}

	if _, _, err := Merge(append(bad, good), func(string, string, string) (string, error) { return "", &TryLater{errors.New("no answer")} }, nil); err == nil {
		t.Error("merged without an answer about secrets")
	}
}

// A tenant's objects share a number of routes; the first by name have them.
func TestMergeBoundsTheRoutesOfATenant(t *testing.T) {
	wide := `{route: {receiver: a, routes: [` + strings.Repeat(`{receiver: a, continue: true}, `, 498) + `]}, receivers: [{name: a}]}`
	var objects []Object
	for i := range 6 {
		objects = append(objects, object(t, "evil", fmt.Sprint("o", i), wide))
	}
	_, results, err := Merge(append(objects, object(t, "good", "team", team)), noSecrets, nil)
	if err != nil {
		t.Fatal(err)
	}
	for id, r := range results {
		if want := id.Tenant == "good" || id.Name < "o4"; (r.Err == nil) != want || !want && r.Reason != ReasonTooMany {
			t.Errorf("%s: %s, %v", id, r.Reason, r.Err)
		}
	}
}

// What receivers may not connect to keeps its object out, written out or from a Secret;
// the status names the field and not the Secret's value.
func TestMergeLeavesOutWhatIsOutOfReach(t *testing.T) {
	reach := func(address string) error {
		if strings.HasPrefix(address, "127.") {
			return fmt.Errorf("connect to %s: no", address)
		}
		return nil
	}
	b, results, err := Merge([]Object{
		object(t, "acme", "literal", `{route: {receiver: a}, receivers: [{name: a, webhook_configs: [{url: "http://127.0.0.1:9009/ingester/shutdown"}]}]}`),
		object(t, "acme", "secret", `{route: {receiver: a}, receivers: [{name: a, slack_configs: [{channel: x, api_url: {secretKeyRef: {name: s, key: u}}}]}]}`),
		object(t, "acme", "good", `{route: {receiver: a}, receivers: [{name: a, webhook_configs: [{url: "http://example.com/"}]}]}`),
	}, func(string, string, string) (string, error) { return "http://127.0.0.1:9009/x", nil }, reach)
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]string{"literal": "spec.receivers[0].webhook_configs[0].url", "secret": "spec.receivers[0].slack_configs[0].api_url"} {
		r := results[ID{"acme", name}]
		if r.Reason != ReasonUnreachable || !strings.Contains(r.Err.Error(), at) || strings.Contains(r.Err.Error(), "127.0.0.1") {
			t.Errorf("%s: %s, %v", name, r.Reason, r.Err)
		}
	}
	if strings.Contains(string(b), "9009") || results[ID{"acme", "good"}].Err != nil {
		t.Errorf("%+v, %s", results, b)
	}
}

// random writes the spec of an AlertRoute from labels that several tenants use,
// the tenant label among them.
func random(r *rand.Rand, tenants []string) *v1alpha1.AlertRouteSpec {
	names := []string{"a", "b", "none", "acme/x/a"}
	intervals := []string{"i", "j"}
	values := append([]string{"x", "y", ".*", ""}, tenants...)
	pick := func(l []string) string { return l[r.IntN(len(l))] }
	matcher := func() any {
		return fmt.Sprintf("%s%s%q", pick([]string{"tenant", "site", "severity"}), pick([]string{"=", "!=", "=~", "!~"}), pick(values))
	}
	matchers := func() []any {
		l := []any{}
		for range r.IntN(3) {
			l = append(l, matcher())
		}
		return l
	}
	var route func(depth int) map[string]any
	route = func(depth int) map[string]any {
		m := map[string]any{"matchers": matchers()}
		if depth == 0 || r.IntN(2) == 0 {
			m["receiver"] = pick(names)
		}
		if depth > 0 {
			m["continue"] = r.IntN(2) == 0
		}
		switch r.IntN(5) {
		case 0:
			m["group_by"] = []any{"..."}
		case 1:
			m["group_by"] = []any{"site", "tenant"}
		case 2:
			m["group_by"] = []any{}
		case 3:
			m["group_by"] = []any{"alertname"}
		}
		if r.IntN(3) == 0 {
			m["mute_time_intervals"] = []any{pick(intervals)}
		}
		if r.IntN(6) == 0 {
			m["match"] = map[string]any{"tenant": pick(tenants)}
		}
		var subs []any
		for range r.IntN(3) {
			if depth < 3 {
				subs = append(subs, route(depth+1))
			}
		}
		if subs != nil {
			m["routes"] = subs
		}
		return m
	}
	raw := func(v any) apiextensionsv1.JSON {
		b, _ := json.Marshal(v)
		return apiextensionsv1.JSON{Raw: b}
	}
	s := &v1alpha1.AlertRouteSpec{Route: raw(route(0))}
	for _, n := range names {
		s.Receivers = append(s.Receivers, raw(map[string]any{"name": n}))
	}
	for _, n := range intervals {
		s.TimeIntervals = append(s.TimeIntervals, raw(map[string]any{"name": n, "time_intervals": []any{}}))
	}
	for range r.IntN(3) {
		s.InhibitRules = append(s.InhibitRules, raw(map[string]any{"name": "r", "source_matchers": matchers(), "target_matchers": matchers(), "equal": []any{}}))
	}
	return s
}

// No alert of one tenant matches a receiver of another, and each object of a tenant
// sees the tenant's alerts as if it were alone.
func TestTenantsAreApart(t *testing.T) {
	tenants := []string{"acme", "acme-two", "zeta", "muster"}
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		var objects []Object
		for _, tenant := range tenants {
			for i := range r.IntN(3) {
				objects = append(objects, Object{ID{tenant, string(rune('x' + i))}, random(r, tenants)})
			}
		}
		c, results := merged(t, objects...)
		for id, res := range results {
			if res.Err != nil {
				t.Fatalf("seed %d: %s: %v", seed, id, res.Err)
			}
		}
		alone := map[ID]*config.Config{}
		for _, o := range objects {
			alone[o.ID], _ = merged(t, o)
		}
		for range 30 {
			tenant := append([]string{"nobody"}, tenants...)[r.IntN(5)]
			labels := map[string]string{"tenant": tenant, "site": []string{"x", "y", ""}[r.IntN(3)], "severity": []string{"x", "acme"}[r.IntN(2)], "alertname": "A"}
			got := receivers(c, labels)
			var want []string
			for _, o := range objects {
				want = append(want, receivers(alone[o.ID], labels)...)
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: alert %v goes to %v, want %v", seed, labels, got, want)
			}
			for _, name := range got {
				if of, _, _ := strings.Cut(name, "/"); of != tenant && of != "muster" {
					t.Fatalf("seed %d: alert %v goes to %s", seed, labels, name)
				}
			}
		}
		for _, rule := range c.InhibitRules {
			tenant, _, _ := strings.Cut(rule.Name, "/")
			if tenant == "muster" {
				continue
			}
			confined := func(m config.Matchers) bool {
				return slices.ContainsFunc(m, func(x *labels.Matcher) bool { return x.String() == fmt.Sprintf("tenant=%q", tenant) })
			}
			if !slices.Contains(tenants, tenant) || !confined(rule.SourceMatchers) || !confined(rule.TargetMatchers) || !slices.Contains(rule.Equal, "tenant") {
				t.Fatalf("seed %d: inhibition %+v is not confined", seed, rule)
			}
		}
	}
}
