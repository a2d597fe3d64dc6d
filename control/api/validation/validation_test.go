package validation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/v1alpha1"
)

func expect(t *testing.T, what string, errs field.ErrorList, want ...string) {
	t.Helper()
	if len(want) == 0 && len(errs) > 0 {
		t.Errorf("%s: refused: %v", what, errs.ToAggregate())
		return
	}
	if len(want) > 0 && len(errs) != 1 {
		t.Errorf("%s: %d errors, want 1: %v", what, len(errs), errs.ToAggregate())
		return
	}
	for _, w := range want {
		if !strings.Contains(errs[0].Error(), w) {
			t.Errorf("%s: %q does not say %q", what, errs[0].Error(), w)
		}
	}
}

func query(q string) field.ErrorList {
	return HealthPolicy(&v1alpha1.HealthPolicy{Spec: v1alpha1.HealthPolicySpec{Signals: []v1alpha1.Signal{
		{Name: "a", Query: q, Good: resource.MustParse("0"), Bad: resource.MustParse("1")}}}})
}

func TestQueries(t *testing.T) {
	for _, ok := range []string{
		"muster_site_connected",
		"min by (tenant, site) (up)",
		"min by (tenant, site, region) (up)",
		"sum without (instance) (rate(x_total[5m]))",
		"(1 - sum by (tenant, site) (a)) * 100",
		"time() - muster_site_last_push_timestamp_seconds",
		"sum by (tenant, site) (a) / sum by (tenant, site) (b)",
		"sum by (tenant, site) (a) / on (tenant, site) sum by (tenant, site) (b)",
		"a / on (tenant, site) group_left b",
		"a * on (site) group_left (x) b",
		"sum by (node) (b) * on (node) group_right c",
		"sum by (tenant, site) (a) or 0 * max by (tenant, site) (up)",
		"clamp_max(sum by (tenant, site) (a), 1)",
		"max_over_time(sum by (tenant, site) (a)[5m:15s])",
		"histogram_quantile(0.99, sum by (tenant, site, le) (rate(x_bucket[5m])))",
		"topk(1, a)",
		`label_replace(label_replace(sum by (job) (a), "site", "$1", "job", "(.*)"), "tenant", "x", "", "")`,
		"sum by (tenant, site) (a) > 5",
		"a > ignoring (tenant, site) b",
	} {
		expect(t, ok, query(ok))
	}
	for q, want := range map[string]string{
		"sum by (tenant, site) (sum_over_time(sum_over_time(x[1d:1s])[1d:1s]))": "longer step",
		"x + on (tenant, site) x offset 5y":                                     "further than 92d",
		"min by (site (up)":                                                     "not PromQL",
		"":                                                                      "not PromQL",
		"1":                                                                     "instant vector",
		"up[5m]":                                                                "instant vector",
		`"text"`:                                                                "instant vector",
		"sum(up)":                                                               "label tenant",
		"sum by (site) (up)":                                                    "label tenant",
		"sum by (tenant) (up)":                                                  "label site",
		"sum without (site) (up)":                                               "label site",
		"vector(1)":                                                             "label tenant",
		"(100 * sum by (tenant) (up)) > 3":                                      "label site",
		"clamp_max(sum(up), 1)":                                                 "label tenant",
		"sum by (tenant, site) (sum by (site) (up))": "label tenant",
		"max_over_time(sum by (site) (a)[5m:15s])":   "label tenant",
		"a / on (site) b":                                         "label tenant",
		"a / ignoring (site) b":                                   "label site",
		"a == bool on (site) b":                                   "label tenant",
		"sum by (tenant, site) (a) or sum by (site) (a)":          "label tenant",
		"sum by (site) (a) * on (site) group_left sum by (x) (b)": "label tenant",
	} {
		expect(t, q, query(q), "spec.signals[0].query", want)
	}
}

func TestHealthPolicyNumbers(t *testing.T) {
	s := v1alpha1.Signal{Name: "a", Query: "up", Good: resource.MustParse("1"), Bad: resource.MustParse("1000m")}
	p := &v1alpha1.HealthPolicy{Spec: v1alpha1.HealthPolicySpec{Signals: []v1alpha1.Signal{s}}}
	expect(t, "equal thresholds", HealthPolicy(p), "spec.signals[0].bad", "must differ")
	s.Bad = resource.MustParse("0")
	zero := resource.MustParse("0")
	s.Weight = &zero
	p.Spec.Signals[0] = s
	expect(t, "no weight", HealthPolicy(p), "spec.signals[0].weight")
}

func TestSelectors(t *testing.T) {
	bad := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpExists}, {Key: "region", Operator: "Like"}}}
	at := "spec.siteSelector.matchExpressions[1].operator"
	expect(t, "VirtualSite", VirtualSite(&v1alpha1.VirtualSite{Spec: v1alpha1.VirtualSiteSpec{SiteSelector: bad}}), at)
	expect(t, "CollectionPolicy", CollectionPolicy(&v1alpha1.CollectionPolicy{Spec: v1alpha1.CollectionPolicySpec{SiteSelector: bad}}), at)
	expect(t, "HealthPolicy", HealthPolicy(&v1alpha1.HealthPolicy{Spec: v1alpha1.HealthPolicySpec{SiteSelector: bad}}), at)
	expect(t, "empty", VirtualSite(&v1alpha1.VirtualSite{}))
}

func TestRegularExpressions(t *testing.T) {
	policy := func(p ...string) field.ErrorList {
		return CollectionPolicy(&v1alpha1.CollectionPolicy{Spec: v1alpha1.CollectionPolicySpec{Allow: v1alpha1.MetricAllow{Patterns: p}}})
	}
	expect(t, "good", policy("node_.*", "a|b", "(?i)x"))
	expect(t, "open group", policy("node_.*", "node_("), "spec.allow.patterns[1]", "missing closing )")
	expect(t, "closes ours", policy("a)|(b"), "spec.allow.patterns[0]")
	expect(t, "not RE2", policy("a(?=b)"), "spec.allow.patterns[0]", "RE2")
	expect(t, "large once it is compiled", policy("node_.*", strings.Repeat(".{999}", 500)), "spec.allow.patterns[1]", "instructions")
	expect(t, "many that are large together", policy(slices.Repeat([]string{".{999}"}, 26)...), "spec.allow.patterns[", "instructions")
	token := func(p string) field.ErrorList {
		return RegistrationToken(&v1alpha1.RegistrationToken{Spec: v1alpha1.RegistrationTokenSpec{SiteNamePattern: p}})
	}
	expect(t, "good", token("paris-[0-9]+"))
	expect(t, "none", token(""))
	expect(t, "bad", token("paris-["), "spec.siteNamePattern")
}

func TestTokenLabels(t *testing.T) {
	token := func(k, v string) field.ErrorList {
		return RegistrationToken(&v1alpha1.RegistrationToken{Spec: v1alpha1.RegistrationTokenSpec{SiteLabels: map[string]string{k: v}}})
	}
	expect(t, "good", token("region", "eu"))
	expect(t, "key", token("a b", "eu"), "spec.siteLabels")
	expect(t, "value", token("region", "e u"), "spec.siteLabels[region]")
}

func TestPlaces(t *testing.T) {
	site := func(lat, lon string) field.ErrorList {
		return Site(&v1alpha1.Site{Spec: v1alpha1.SiteSpec{Place: &v1alpha1.Place{Latitude: lat, Longitude: lon}}})
	}
	expect(t, "poles", site("-90", "180"))
	expect(t, "north of it", site("90.1", "0"), "spec.place.latitude", "between -90 and 90")
	expect(t, "west of it", site("0", "-180.5"), "spec.place.longitude", "between -180 and 180")
	expect(t, "not a number", site("NaN", "0"), "spec.place.latitude")
}

func TestTenantNamespaces(t *testing.T) {
	tenant := func(ns ...string) field.ErrorList {
		return Tenant(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.TenantSpec{Namespaces: ns}})
	}
	expect(t, "good", tenant("pay", "systems"))
	expect(t, "built in", tenant("pay", "system"), "spec.namespaces[1]", "every tenant has")
	expect(t, "another tenant's", tenant("b-system"), "spec.namespaces[0]", "tenant a-b;")
}

func TestInSystemNamespace(t *testing.T) {
	expect(t, "good", InSystemNamespace("a-system"))
	expect(t, "elsewhere", InSystemNamespace("a-pay"), "metadata.namespace", "<tenant>-system")
}

func TestReservedLabels(t *testing.T) {
	old := map[string]string{"muster.dev/tenant": "a", "region": "eu"}
	expect(t, "user's own", ReservedLabels(old, map[string]string{"muster.dev/tenant": "a", "region": "jp", "x": "y"}))
	expect(t, "changed", ReservedLabels(old, map[string]string{"muster.dev/tenant": "b"}), "metadata.labels[muster.dev/tenant]")
	expect(t, "removed", ReservedLabels(old, nil), "can't be removed")
	expect(t, "new", ReservedLabels(nil, map[string]string{"muster.dev/system-os": "x"}), "metadata.labels[muster.dev/system-os]")
}

// Whatever a query is, it is refused or accepted, never more.
func FuzzQuery(f *testing.F) {
	for _, q := range []string{"min by (tenant, site) (up)", "a / on (site) b", `label_join(a, "site", "-", "b")`, "vector(time())", "-a[5m:] @ end()"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, q string) { _ = fmt.Sprint(query(q)) })
}

func TestMaintenanceWindows(t *testing.T) {
	bad := []v1alpha1.MaintenanceWindow{{Name: "ok", Start: &metav1.Time{}, Duration: metav1.Duration{Duration: time.Hour}}, {Name: "x", Schedule: "never", Duration: metav1.Duration{Duration: time.Hour}}}
	expect(t, "Site", Site(&v1alpha1.Site{Spec: v1alpha1.SiteSpec{MaintenanceWindows: bad}}), "spec.maintenanceWindows[1].schedule")
	expect(t, "VirtualSite", VirtualSite(&v1alpha1.VirtualSite{Spec: v1alpha1.VirtualSiteSpec{MaintenanceWindows: bad}}), "spec.maintenanceWindows[1].schedule")
}
