package apiserver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/internal/testkit/kubeapi"
)

var resources = map[string]string{
	"Tenant": "tenants", "Site": "sites", "VirtualSite": "virtualsites", "RegistrationToken": "registrationtokens",
	"CollectionPolicy": "collectionpolicies", "HealthPolicy": "healthpolicies",
}

func object(t *testing.T, kind, name, spec string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	doc := fmt.Sprintf("apiVersion: muster.dev/v1alpha1\nkind: %s\nmetadata: {name: %s}\nspec: %s\n", kind, name, spec)
	if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
		t.Fatalf("%v in\n%s", err, doc)
	}
	return u
}

func resource(c dynamic.Interface, kind, ns string) dynamic.ResourceInterface {
	r := c.Resource(schema.GroupVersionResource{Group: "muster.dev", Version: "v1alpha1", Resource: resources[kind]})
	if kind == "Tenant" {
		return r
	}
	return r.Namespace(ns)
}

func namespace(t *testing.T, cfg *rest.Config, name string) {
	t.Helper()
	if _, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().Namespaces().Create(context.Background(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

const signal = `{signals: [{name: a, dimension: security, good: "0", bad: "1", query: %q}]}`

func TestObjectsAreValidated(t *testing.T) {
	cfg := kubeapi.Start(t)
	namespace(t, cfg, "v-system")
	c := dynamic.NewForConfigOrDie(cfg)
	for i, tc := range []struct{ kind, name, spec, want string }{ // want: part of the error; empty: accepted
		{"Tenant", "acme", "{namespaces: [payments]}", ""},
		{"Tenant", "muster", "{}", "reserved"},
		{"Tenant", "a-name-that-is-far-too-long-for-it", "{}", "at most 30"},
		{"Tenant", "bad", "{namespaces: [Pay_ments]}", "spec.namespaces[0]"},
		{"Tenant", "neg", "{quotas: {sites: -1}}", "spec.quotas.sites"},

		{"Site", "paris", `{place: {latitude: "48.85", longitude: "2.35"}}`, ""},
		{"Site", "dotted.name", "{}", "metadata.name"},
		{"Site", "north", `{place: {latitude: "91", longitude: "0"}}`, "spec.place.latitude"},
		{"Site", "east", `{place: {latitude: "1", longitude: "181"}}`, "spec.place.longitude"},
		{"Site", "words", `{place: {latitude: "north", longitude: "0"}}`, "spec.place.latitude"},
		{"Site", "quiet", "{maintenance: {reason: ''}}", "spec.maintenance.reason"},

		{"VirtualSite", "eu", "{siteSelector: {matchExpressions: [{key: region, operator: In, values: [eu, uk]}, {key: old, operator: DoesNotExist}]}}", ""},
		{"VirtualSite", "op", "{siteSelector: {matchExpressions: [{key: region, operator: Like, values: [eu]}]}}", "spec.siteSelector.matchExpressions[0].operator"},
		{"VirtualSite", "novalues", "{siteSelector: {matchExpressions: [{key: region, operator: In}]}}", "spec.siteSelector.matchExpressions[0].values"},

		{"RegistrationToken", "t1", "{secretHash: " + strings.Repeat("a", 64) + ", siteNamePattern: 'paris-[0-9]+'}", ""},
		{"RegistrationToken", "t2", "{secretHash: secret}", "spec.secretHash"},
		{"RegistrationToken", "t3", "{secretHash: " + strings.Repeat("a", 64) + ", siteNamePattern: 'paris-['}", "spec.siteNamePattern"},
		{"RegistrationToken", "t4", "{secretHash: " + strings.Repeat("a", 64) + ", siteLabels: {muster.dev/tenant: other}}", "spec.siteLabels"},
		{"RegistrationToken", "t5", "{secretHash: " + strings.Repeat("a", 64) + ", siteLabels: {region: 'e u'}}", "spec.siteLabels[region]"},

		{"CollectionPolicy", "good", "{interval: 30s, seriesBudget: 500, allow: {names: [up], patterns: ['node_.*']}, dropLabels: [id], aggregations: [{metric: m, op: sum}], spool: {maxBytes: 64Mi, maxAge: 48h}}", ""},
		{"CollectionPolicy", "regex", "{allow: {patterns: ['node_(']}}", "spec.allow.patterns[0]"},
		{"CollectionPolicy", "budget", "{seriesBudget: 0}", "spec.seriesBudget"},
		{"CollectionPolicy", "blocksite", "{dropLabels: [site]}", "spec.dropLabels"},
		{"CollectionPolicy", "blockname", "{dropLabels: [__name__]}", "spec.dropLabels"},
		{"CollectionPolicy", "interval", "{interval: 1ms}", "spec.interval"},
		{"CollectionPolicy", "op", "{aggregations: [{metric: m, op: avg}]}", "spec.aggregations[0].op"},
		{"CollectionPolicy", "twice", "{aggregations: [{metric: m, op: sum}, {metric: m, op: max}]}", "spec.aggregations[1].metric"},
		{"CollectionPolicy", "spool", "{spool: {maxBytes: 1Ki}}", "spec.spool.maxBytes"},
		{"CollectionPolicy", "age", "{spool: {maxAge: 1s}}", "spec.spool.maxAge"},
		{"CollectionPolicy", "name", "{allow: {names: ['a b']}}", "spec.allow.names[0]"},

		{"HealthPolicy", "good", fmt.Sprintf(signal, "min by (tenant, site) (up)"), ""},
		{"HealthPolicy", "plain", fmt.Sprintf(signal, "muster_site_connected"), ""},
		{"HealthPolicy", "syntax", fmt.Sprintf(signal, "min by (site (up)"), "spec.signals[0].query"},
		{"HealthPolicy", "scalar", fmt.Sprintf(signal, "1"), "spec.signals[0].query"},
		{"HealthPolicy", "drops", fmt.Sprintf(signal, "sum by (site) (up)"), "drops the label tenant"},
		{"HealthPolicy", "all", fmt.Sprintf(signal, "sum(up)"), "spec.signals[0].query"},
		{"HealthPolicy", "same", `{signals: [{name: a, dimension: security, good: "1", bad: "1", query: up}]}`, "good and bad must differ"},
		{"HealthPolicy", "dim", `{signals: [{name: a, dimension: luck, good: "0", bad: "1", query: up}]}`, "spec.signals[0].dimension"},
		{"HealthPolicy", "none", "{signals: []}", "spec.signals"},
		{"HealthPolicy", "dup", `{signals: [{name: a, dimension: security, good: "0", bad: "1", query: up}, {name: a, dimension: security, good: "0", bad: "1", query: up}]}`, "spec.signals[1]"},
	} {
		_, err := resource(c, tc.kind, "v-system").Create(context.Background(), object(t, tc.kind, tc.name, tc.spec), metav1.CreateOptions{FieldValidation: "Strict"})
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%d %s %s: refused: %v", i, tc.kind, tc.name, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%d %s %s: err = %v, want %q", i, tc.kind, tc.name, err, tc.want)
		}
	}
}

func TestWhatCannotBeUndone(t *testing.T) {
	cfg := kubeapi.Start(t)
	namespace(t, cfg, "w-system")
	sites := resource(dynamic.NewForConfigOrDie(cfg), "Site", "w-system")
	if _, err := sites.Create(context.Background(), object(t, "Site", "gone", "{decommissioned: true, publicKey: "+strings.Repeat("a", 64)+"}"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for patch, want := range map[string]string{
		`{"spec":{"decommissioned":false}}`:                        "spec.decommissioned",
		`{"spec":{"publicKey":"` + strings.Repeat("b", 64) + `"}}`: "spec.publicKey",
	} {
		_, err := sites.Patch(context.Background(), "gone", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: err = %v, want %q", patch, err, want)
		}
	}
}

// Labels under muster.dev/ are Muster's: a user who may edit sites can't forge what
// an agent discovered or move a site to another tenant.
func TestReservedLabels(t *testing.T) {
	cfg := kubeapi.Start(t)
	namespace(t, cfg, "r-system")
	ctx := context.Background()
	k := kubernetes.NewForConfigOrDie(cfg)
	if _, err := k.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "edit-sites"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"muster.dev"}, Resources: []string{"sites"}, Verbs: []string{"*"}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "edit-sites"},
		RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "edit-sites"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "eve"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eve := rest.CopyConfig(cfg)
	eve.Impersonate.UserName = "eve"
	mine, hers := resource(dynamic.NewForConfigOrDie(cfg), "Site", "r-system"), resource(dynamic.NewForConfigOrDie(eve), "Site", "r-system")
	site := object(t, "Site", "s", "{}")
	site.SetLabels(map[string]string{"muster.dev/tenant": "r"})
	if _, err := mine.Create(ctx, site, metav1.CreateOptions{}); err != nil {
		t.Fatalf("Muster itself: %v", err)
	}
	for patch, ok := range map[string]bool{
		`{"metadata":{"labels":{"region":"eu"}}}`:              true,
		`{"metadata":{"labels":{"muster.dev/tenant":"x"}}}`:    false,
		`{"metadata":{"labels":{"muster.dev/tenant":null}}}`:   false,
		`{"metadata":{"labels":{"muster.dev/system-os":"x"}}}`: false,
	} {
		_, err := hers.Patch(ctx, "s", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if ok && err != nil {
			t.Errorf("%s: %v", patch, err)
		}
		if !ok && (err == nil || !strings.Contains(err.Error(), "metadata.labels[muster.dev/")) {
			t.Errorf("%s: err = %v", patch, err)
		}
	}
}

func TestAnonymousIsRefused(t *testing.T) {
	cfg := rest.AnonymousClientConfig(kubeapi.Start(t))
	_, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().Namespaces().List(context.Background(), metav1.ListOptions{})
	if err == nil || !strings.Contains(err.Error(), "Unauthorized") {
		t.Errorf("err = %v", err)
	}
}
