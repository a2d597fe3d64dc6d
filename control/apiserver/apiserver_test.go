package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
)

var resources = map[string]string{
	"Tenant": "tenants", "Site": "sites", "VirtualSite": "virtualsites", "RegistrationToken": "registrationtokens",
	"CollectionPolicy": "collectionpolicies", "HealthPolicy": "healthpolicies", "SoftwareVersion": "softwareversions",
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
		{"Tenant", "own", "{namespaces: [a, system]}", "spec.namespaces[1]"},
		{"Tenant", "theirs", "{namespaces: [b-system]}", "spec.namespaces[0]"},
		{"Tenant", "neg", "{quotas: {sites: -2}}", "spec.quotas.sites"},
		{"Tenant", "unlimited", "{quotas: {sites: -1, series: -1, logBytesPerDay: -1, objects: -1, objectBytes: -1}}", ""},

		{"Site", "paris", `{place: {latitude: "48.85", longitude: "2.35"}}`, ""},
		{"Site", "dotted.name", "{}", "metadata.name"},
		{"Site", "north", `{place: {latitude: "91", longitude: "0"}}`, "spec.place.latitude"},
		{"Site", "east", `{place: {latitude: "1", longitude: "181"}}`, "spec.place.longitude"},
		{"Site", "words", `{place: {latitude: "north", longitude: "0"}}`, "spec.place.latitude"},
		{"Site", "quiet", "{maintenance: {reason: ''}}", "spec.maintenance.reason"},

		{"Site", "wants", "{software: {os: 1.4.2, agent: 2.0.0}}", ""},
		{"Site", "newest", "{software: {os: newest}}", "spec.software[os]"},
		{"Site", "firmware", "{software: {firmware: 1.0.0}}", "spec.software"},

		{"SoftwareVersion", "os-1.4.2", "{component: os, version: 1.4.2, requires: {os: 1.3.0}, bundles: [{target: os/1.4.2.img, size: 9, digest: " + strings.Repeat("a", 64) + "}]}", ""},
		{"SoftwareVersion", "newest", "{component: os, version: 1.4.2, bundles: [{target: os/1.4.2.img, size: 9, digest: " + strings.Repeat("a", 64) + "}]}", "metadata.name"},
		{"SoftwareVersion", "os-1.4", "{component: os, version: '1.4', bundles: [{target: os/1.4.2.img, size: 9, digest: " + strings.Repeat("a", 64) + "}]}", "spec.version"},
		{"SoftwareVersion", "os-1.4.3", "{component: os, version: 1.4.3, bundles: [{target: ../1.4.3, size: 9, digest: " + strings.Repeat("a", 64) + "}]}", "spec.bundles[0].target"},
		{"SoftwareVersion", "os-1.4.4", "{component: os, version: 1.4.4, requires: {os: 1.5.0}, bundles: [{target: a, size: 9, digest: " + strings.Repeat("a", 64) + "}]}", "spec.requires[os]"},

		{"VirtualSite", "eu", "{siteSelector: {matchExpressions: [{key: region, operator: In, values: [eu, uk]}, {key: old, operator: DoesNotExist}]}}", ""},
		{"VirtualSite", "op", "{siteSelector: {matchExpressions: [{key: region, operator: Like, values: [eu]}]}}", "spec.siteSelector.matchExpressions[0].operator"},
		{"VirtualSite", "novalues", "{siteSelector: {matchExpressions: [{key: region, operator: In}]}}", "spec.siteSelector.matchExpressions[0].values"},

		{"RegistrationToken", "t1", "{secretHash: " + strings.Repeat("a", 64) + ", siteNamePattern: 'paris-[0-9]+'}", ""},
		{"RegistrationToken", "t2", "{secretHash: secret}", "spec.secretHash"},
		{"RegistrationToken", "t3", "{secretHash: " + strings.Repeat("a", 64) + ", siteNamePattern: 'paris-['}", "spec.siteNamePattern"},
		{"RegistrationToken", "t4", "{secretHash: " + strings.Repeat("a", 64) + ", siteLabels: {muster.dev/tenant: other}}", "spec.siteLabels"},
		{"RegistrationToken", "t6", "{secretHash: " + strings.Repeat("a", 64) + ", maxUses: -1}", "spec.maxUses"},
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
		{"HealthPolicy", "joins", fmt.Sprintf(signal, "a / on (site) b"), "spec.signals[0].query"},
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
	versions := resource(dynamic.NewForConfigOrDie(cfg), "SoftwareVersion", "w-system")
	if _, err := versions.Create(context.Background(), object(t, "SoftwareVersion", "os-1.0.0", "{component: os, version: 1.0.0, bundles: [{target: a, size: 1, digest: "+strings.Repeat("a", 64)+"}]}"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for patch, want := range map[string]string{
		`{"spec":{"bundles":[{"target":"b","size":1,"digest":"` + strings.Repeat("a", 64) + `"}]}}`: "spec.bundles",
		`{"spec":{"requires":{"os":"0.9.0"}}}`:                                                      "spec.requires",
		`{"spec":{"withdrawn":"loses disks"}}`:                                                      "",
	} {
		_, err := versions.Patch(context.Background(), "os-1.0.0", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: err = %v, want %q", patch, err, want)
		}
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
	kubeapi.WaitAllowed(t, cfg, "eve", nil, "patch", "sites.muster.dev", "r-system")
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

// In another namespace than <tenant>-system nobody would look at them.
func TestObjectsBelongInTheSystemNamespace(t *testing.T) {
	cfg := kubeapi.Start(t)
	namespace(t, cfg, "u-pay")
	c := dynamic.NewForConfigOrDie(cfg)
	for kind, spec := range map[string]string{
		"Site": "{}", "RegistrationToken": "{secretHash: " + strings.Repeat("a", 64) + "}", "CollectionPolicy": "{}", "HealthPolicy": fmt.Sprintf(signal, "up"),
	} {
		_, err := resource(c, kind, "u-pay").Create(t.Context(), object(t, kind, "x", spec), metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "metadata.namespace") || !strings.Contains(err.Error(), "<tenant>-system") {
			t.Errorf("%s: err = %v", kind, err)
		}
	}
	if _, err := resource(c, "VirtualSite", "u-pay").Create(t.Context(), object(t, "VirtualSite", "x", "{siteSelector: {}}"), metav1.CreateOptions{}); err != nil {
		t.Errorf("a virtual site may stand in any namespace: %v", err)
	}
}

// A deleted namespace goes, with what is in it, although no kube-controller-manager
// runs.
func TestDeletedNamespaceGoes(t *testing.T) {
	cfg := kubeapi.Start(t)
	namespace(t, cfg, "gone-system")
	if _, err := resource(dynamic.NewForConfigOrDie(cfg), "Site", "gone-system").Create(t.Context(), object(t, "Site", "s", "{}"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	spaces := kubernetes.NewForConfigOrDie(cfg).CoreV1().Namespaces()
	if err := spaces.Delete(t.Context(), "gone-system", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the namespace is gone", func() error {
		if ns, err := spaces.Get(t.Context(), "gone-system", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%v, %v", ns.Status, err)
		}
		return nil
	})
}

// The audit log says who changed what, and never what was in it.
func TestAuditLog(t *testing.T) {
	cfg := kubeapi.Start(t)
	namespace(t, cfg, "audited")
	secrets := kubernetes.NewForConfigOrDie(cfg).CoreV1().Secrets("audited")
	if _, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "password"}, StringData: map[string]string{"p": "open-sesame"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := secrets.Get(t.Context(), "password", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(kubeapi.Dir(t), "apiserver", "audit.log")
	testkit.Eventually(t, "the write is in the audit log", func() error {
		b, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		found := 0
		for line := range strings.Lines(string(b)) {
			if !strings.Contains(line, `"password"`) {
				continue
			}
			found++
			if !strings.Contains(line, `"verb":"create"`) || !strings.Contains(line, `"username":"muster:admin"`) {
				t.Errorf("not the write: %s", line)
			}
		}
		if strings.Contains(string(b), "open-sesame") || strings.Contains(string(b), "b3Blbi1zZXNhbWU") {
			t.Error("the audit log holds the secret")
		}
		if found != 1 {
			return fmt.Errorf("%d records", found)
		}
		return nil
	})
	if fi, err := os.Stat(log); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
}

// Whoever wants what they did forgotten would have to write the audit log full: requests that
// are refused, or change nothing, and parts of a request that the client chooses do not.
func TestNobodyRollsTheAuditLogOver(t *testing.T) {
	user := tenantWithUser(t, "forget", "{}")
	log := filepath.Join(kubeapi.Dir(t), "apiserver", "audit.log")
	size := func() int64 {
		fi, err := os.Stat(log)
		if err != nil {
			t.Fatal(err)
		}
		return fi.Size()
	}
	who, stranger := senderOf(t, "a user", user), senderOf(t, "a stranger", rest.AnonymousClientConfig(user))
	const shop = "/api/v1/namespaces/forget-shop/configmaps"
	before := size()
	long := strings.Repeat("x", 50_000)
	for range 200 {
		for _, s := range []sender{who, stranger} {
			if got := s.send(t, http.MethodDelete, shop+"/"+long, ""); got.status < 400 {
				t.Fatalf("%s: %d %s", s.name, got.status, got.body)
			}
		}
		who.send(t, http.MethodHead, "/version?"+long, "")
	}
	if grown := size() - before; grown > 2*100*8<<10 || grown < 1000 {
		t.Errorf("600 requests that changed nothing, of 50 kB each, took %d bytes of the audit log", grown)
	}
	before = size()
	if got := who.send(t, http.MethodPost, shop+"?fieldManager=x&"+long, `{"metadata":{"name":"deed"}}`); got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if grown := size() - before; grown > 8<<10 || grown < 100 {
		t.Errorf("a write took %d bytes of it", grown)
	}
}

// What an operator sees with the kubeconfig that stands in the data directory.
func TestKubectlColumns(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("no kubectl on this machine")
	}
	cfg := kubeapi.Start(t)
	namespace(t, cfg, "k-system")
	sites := resource(dynamic.NewForConfigOrDie(cfg), "Site", "k-system")
	site := object(t, "Site", "paris", "{approved: true}")
	site.SetLabels(map[string]string{"region": "eu-west"})
	if _, err := sites.Create(t.Context(), site, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	status := fmt.Sprintf(`{"status":{"phase":"Online","lastSeen":%q,"versions":{"agent":"v1.2.3","os":"debian-13","kubernetes":"v1.35.0"},
		"health":{"score":87,"colour":"green","reason":"1 pod pending"}}}`, time.Now().UTC().Format(time.RFC3339))
	if _, err := sites.Patch(t.Context(), "paris", types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", filepath.Join(kubeapi.Dir(t), "admin.kubeconfig"),
		"--cache-dir", t.TempDir(), "-n", "k-system", "get", "sites", "-o", "wide").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	head, row, _ := strings.Cut(string(out), "\n")
	if got, want := strings.Join(strings.Fields(head), " "), "NAME PHASE REGION SCORE COLOUR MAINTENANCE LAST SEEN AGENT OS KUBERNETES REASON AGE"; got != want {
		t.Errorf("columns %q, want %q", got, want)
	}
	for _, want := range []string{"paris", "Online", "eu-west", "87", "green", "v1.2.3", "debian-13", "v1.35.0", "1 pod pending"} {
		if !strings.Contains(row, want) {
			t.Errorf("no %q in %q", want, row)
		}
	}
	for _, short := range []string{"tn", "vs", "rt", "cp", "hp"} {
		if out, err := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", filepath.Join(kubeapi.Dir(t), "admin.kubeconfig"),
			"--cache-dir", t.TempDir(), "get", short, "-A").CombinedOutput(); err != nil {
			t.Errorf("kubectl get %s: %v: %s", short, err, out)
		}
	}
	for name, want := range map[string]os.FileMode{"admin.kubeconfig": 0o600, "admin.token": 0o600, "apiserver": 0o700, "apiserver/tokens.csv": 0o600} {
		if fi, err := os.Stat(filepath.Join(kubeapi.Dir(t), name)); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", name, fi.Mode(), err, want)
		}
	}
}
