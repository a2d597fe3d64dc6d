package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/controllers"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/granted"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
	"muster.dev/muster/internal/workload"
)

// startWorkloads runs the controllers and the desired states with all that brings
// workloads to them. again begins anew with the desired states, as after a restart.
func startWorkloads(t *testing.T) (_ client.Client, _ *desired.Store, again func() *desired.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	log := slog.New(slog.DiscardHandler)
	objects, err := dynamic.NewForConfig(kubeapi.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	grants := granted.New(objects, log)
	var wg sync.WaitGroup
	wg.Go(func() { _ = grants.Run(ctx) })
	var o controllers.Options
	store := desired.New(desired.Options{Logger: log, Registerer: prometheus.NewRegistry()})
	c, ended := start(t, ctx, func(given *controllers.Options) {
		given.Workloads, given.Offered = store, grants
		o = *given
	})
	t.Cleanup(func() { cancel(); wg.Wait(); <-ended })
	for _, role := range controllers.ClusterRoles() {
		if err := c.Create(ctx, role); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	feed := func(store *desired.Store) *desired.Store {
		if err := errors.Join(desired.FeedWorkloads(ctx, desired.Workloads{Cache: o.Cache, Client: objects, Offered: grants, Patience: time.Second, Logger: log,
			// As the count of what is in etcd says it, which this API server has for itself.
			Holds: func(namespace string, of schema.GroupResource) bool {
				return namespace == "tau-shop" && of.Resource == "machines"
			}}, store), desired.Feed(ctx, o.Cache, o.Inventory, store)); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { _ = store.Run(ctx) })
		return store
	}
	return c, feed(store), func() *desired.Store {
		return feed(desired.New(desired.Options{Logger: log, Registerer: prometheus.NewRegistry()}))
	}
}

func parse(t *testing.T, doc string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
		t.Fatalf("%v in\n%s", err, doc)
	}
	return u
}

const pod = "selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {%s containers: [{name: a, image: 'a:1' %s}]}}"

func deployment(name, annotations, ofPod, ofContainer string) string {
	return fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata: {namespace: tau-shop, name: %s, annotations: {%s}}\nspec: {"+pod+"}", name, annotations, ofPod, ofContainer)
}

func TestWorkloadsFromTheAPIToSites(t *testing.T) {
	c, store, again := startWorkloads(t)
	ctx := t.Context()
	vs := func(ns, name, key, value string) client.Object {
		return &v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1alpha1.VirtualSiteSpec{SiteSelector: metav1.LabelSelector{MatchLabels: map[string]string{key: value}}}}
	}
	create(t, c, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "tau"}, Spec: v1alpha1.TenantSpec{Namespaces: []string{"shop", "later", "race"}}},
		vs("tau-shared", "eu", "region", "eu"), vs("tau-shop", "lab", "ring", "lab"),
		site("tau", "paris", map[string]string{"region": "eu"}), site("tau", "bench", map[string]string{"ring": "lab"}))
	vk := &v1alpha1.VirtualKubernetes{ObjectMeta: metav1.ObjectMeta{Namespace: "tau-shop", Name: "vk8s"}, Spec: v1alpha1.VirtualKubernetesSpec{DefaultVirtualSite: "shared/eu"}}
	create(t, c, vk)

	t.Run("admission", func(t *testing.T) { admission(t, c) })
	t.Run("one of two that come at once", func(t *testing.T) { oneOfTwo(t, c) })
	t.Run("warnings", func(t *testing.T) { warnings(t) })
	t.Run("virtual hosts", func(t *testing.T) { virtualHosts(t, c, store) })

	create(t, c, parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: tau-shop, name: config}"),
		parse(t, "apiVersion: v1\nkind: Secret\nmetadata: {namespace: tau-shop, name: key}"),
		parse(t, deployment("web", "", "", "")), parse(t, deployment("lab", "ves.io/virtual-sites: lab", "", "")),
		parse(t, "apiVersion: v1\nkind: Service\nmetadata: {namespace: tau-shop, name: web}\nspec: {selector: {app: a}, type: NodePort, ports: [{port: 80}]}"),
		parse(t, "apiVersion: batch/v1\nkind: Job\nmetadata: {namespace: tau-shop, name: once}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}"))
	has := func(site string, want ...string) {
		t.Helper()
		testkit.Eventually(t, "objects of "+site, func() error {
			got := ""
			for _, it := range store.State(fleet.SiteID{Tenant: "tau", Name: site}).GetItems() {
				if it.Kind == workload.Kind {
					got += " " + it.Name
				}
			}
			for _, w := range want {
				if absent := strings.HasPrefix(w, "!"); absent == strings.Contains(got+" ", " "+strings.TrimPrefix(w, "!")+" ") {
					return fmt.Errorf("%s: %s", w, got)
				}
			}
			return nil
		})
	}
	has("paris", "Namespace/-/tau-shop", "ConfigMap/tau-shop/config", "Deployment.apps/tau-shop/web", "!Deployment.apps/tau-shop/lab", "Job.batch/tau-shop/once", "!ConfigMap/tau-shop/kube-root-ca.crt")
	has("bench", "Namespace/-/tau-shop", "ConfigMap/tau-shop/config", "!Deployment.apps/tau-shop/web", "Deployment.apps/tau-shop/lab")
	for _, it := range store.State(fleet.SiteID{Tenant: "tau", Name: "paris"}).Items {
		b, _ := store.Blob(it.Digest)
		for _, own := range []string{"10.96.", "nodePort", "controller-uid", "managedFields", "resourceVersion", "creationTimestamp", `"uid"`, `"status"`} {
			if strings.Contains(string(b), own) {
				t.Errorf("%s holds what the centre's API server said for itself, %s: %s", it.Name, own, b)
			}
		}
	}

	t.Run("the tenant's limits", func(t *testing.T) { limitsOnSites(t, c, store) })
	t.Run("a rollout", func(t *testing.T) { rolled(t, c, store, again) })

	override := &v1alpha1.Override{ObjectMeta: metav1.ObjectMeta{Namespace: "tau-shop", Name: "gone-sites"},
		Spec: v1alpha1.OverrideSpec{SiteList: []string{"paris", "nowhere"}, Spec: runtime.RawExtension{Raw: []byte(`{"replicas":7}`)}}}
	create(t, c, override)
	testkit.Eventually(t, "the Override tells which sites are missing", func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(override), override); err != nil {
			return err
		}
		cond := meta.FindStatusCondition(override.Status.Conditions, "SitesExist")
		if override.Status.Sites != 1 || override.Status.Missing != 1 || cond == nil || !strings.Contains(cond.Message, "nowhere") {
			return fmt.Errorf("%+v", override.Status)
		}
		return nil
	})
	testkit.Eventually(t, "the virtual Kubernetes tells what it reaches", func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(vk), vk); err != nil {
			return err
		}
		if st := vk.Status; st.Sites != 2 || st.Objects < 5 || st.URL != "/api/vK8s/namespaces/tau-shop/vk8s" || !meta.IsStatusConditionTrue(st.Conditions, "Ready") {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})

	// A CRD that is granted is carried, and its users have rights on it.
	crd := parse(t, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: machines.vm.example.com, labels: {muster.dev/vk8s: offered}},
  spec: {group: vm.example.com, scope: Namespaced, names: {kind: Machine, plural: machines}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`)
	create(t, c, crd, parse(t, "apiVersion: vm.example.com/v1\nkind: Machine\nmetadata: {namespace: tau-shop, name: till}\nspec: {running: true}"))
	has("paris", "Machine.vm.example.com/tau-shop/till")
	testkit.Eventually(t, "rights on what is granted", func() error {
		var role rbacv1.ClusterRole
		if err := c.Get(ctx, client.ObjectKey{Name: "muster:workload-editor"}, &role); err != nil {
			return err
		}
		if !strings.Contains(fmt.Sprint(role.Rules), "vm.example.com") {
			return errors.New("none")
		}
		return nil
	})
	t.Run("a kind that can't be listed", func(t *testing.T) { unlisted(t, c, crd, store, again) })

	if err := c.Patch(ctx, crd, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"muster.dev/vk8s":null}}}`))); err != nil {
		t.Fatal(err)
	}
	has("paris", "!Machine.vm.example.com/tau-shop/till", "Deployment.apps/tau-shop/web")

	// What stands in a namespace before it has a virtual Kubernetes is carried from then on.
	early := parse(t, "apiVersion: v1\nkind: Secret\nmetadata: {namespace: tau-later, name: early}")
	create(t, c, parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: tau-later, name: early}"), early)
	create(t, c, &v1alpha1.VirtualKubernetes{ObjectMeta: metav1.ObjectMeta{Namespace: "tau-later", Name: "vk8s"}, Spec: v1alpha1.VirtualKubernetesSpec{DefaultVirtualSite: "shop/lab"}})
	has("bench", "ConfigMap/tau-later/early", "Secret/tau-later/early", "Secret/tau-shop/key")
	if err := c.Delete(ctx, early); err != nil {
		t.Fatal(err)
	}
	has("bench", "!Secret/tau-later/early", "Secret/tau-shop/key")
	if err := c.Delete(ctx, vk); err != nil {
		t.Fatal(err)
	}
	has("paris", "!Namespace/-/tau-shop", "!Deployment.apps/tau-shop/web")
}

// unlisted: after a start the sites of who has objects of a kind that can't be listed stay as
// they are until it can, and others get theirs.
func unlisted(t *testing.T, c client.Client, crd client.Object, running *desired.Store, again func() *desired.Store) {
	create(t, c, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "phi"}}, site("phi", "rome", nil))
	set := func(patch string) {
		t.Helper()
		if err := c.Patch(t.Context(), crd, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	const version = `"served": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}`
	set(`{"spec": {"versions": [{"name": "v1", "storage": false, ` + version + `}, {"name": "v2", "storage": true, ` + version + `}],
		"conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/convert"}}}}}`)
	var list unstructured.UnstructuredList
	list.SetAPIVersion("vm.example.com/v2")
	list.SetKind("MachineList")
	testkit.Eventually(t, "nobody converts", func() error {
		if err := c.List(t.Context(), &list, client.InNamespace("tau-shop")); !strings.Contains(fmt.Sprint(err), "conversion webhook") {
			return fmt.Errorf("list: %v", err)
		}
		return nil
	})
	store := again()
	paris := fleet.SiteID{Tenant: "tau", Name: "paris"}
	testkit.Eventually(t, "the other tenant's site has a desired state", func() error {
		if store.State(fleet.SiteID{Tenant: "phi", Name: "rome"}) == nil {
			return errors.New("none")
		}
		return nil
	})
	if st := store.State(paris); st != nil || store.Stats().TenantsHeld != 1 {
		t.Fatalf("paris is given %v, without its Machine; %+v", st, store.Stats())
	}
	set(`{"spec": {"conversion": {"strategy": "None", "webhook": null}}}`)
	for what, store := range map[string]*desired.Store{"the control that was running": running, "the one that began": store} {
		// Its watch tries again after half a minute at the latest, or twice that.
		testkit.EventuallyWithin(t, "paris has its Machine in the new version, by "+what, 3*time.Minute, func() error {
			for _, it := range store.State(paris).GetItems() {
				if b, _ := store.Blob(it.Digest); it.Name == "Machine.vm.example.com/tau-shop/till" && strings.Contains(string(b), "vm.example.com/v2") {
					return nil
				}
			}
			return fmt.Errorf("%v", store.State(paris).GetItems())
		})
	}
}

// oneOfTwo makes virtual Kubernetes in one namespace at the same time.
func oneOfTwo(t *testing.T, c client.Client) {
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			errs[i] = c.Create(context.Background(), &v1alpha1.VirtualKubernetes{ObjectMeta: metav1.ObjectMeta{Namespace: "tau-race", Name: fmt.Sprintf("vk-%d", i)}, Spec: v1alpha1.VirtualKubernetesSpec{DefaultVirtualSite: "shared/eu"}})
		})
	}
	wg.Wait()
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
		} else if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "has a virtual Kubernetes already, vk-") {
			t.Error(err)
		}
	}
	if made != 1 {
		t.Errorf("%d of them were made", made)
	}
	if err := c.DeleteAllOf(context.Background(), &v1alpha1.VirtualKubernetes{}, client.InNamespace("tau-race")); err != nil {
		t.Fatal(err)
	}
}

// warned keeps what the API server warns of.
type warned struct {
	mu   sync.Mutex
	said []string
}

func (w *warned) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

// warnings are for what may be a slip of the pen, and for what runs nowhere.
func warnings(t *testing.T) {
	cfg := rest.CopyConfig(kubeapi.Start(t))
	w := &warned{}
	cfg.WarningHandler = w
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d := parse(t, deployment("warned", "ves.io/virtual-site: lab, team: shop, ves.io/overrides: canary", "", ""))
	d.SetNamespace("tau-race") // has none any more
	if _, err := c.Resource(appsv1.SchemeGroupVersion.WithResource("deployments")).Namespace("tau-race").Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if said := strings.Join(w.said, "; "); len(w.said) != 3 || !strings.Contains(said, "there is no Override canary in this namespace: it counts as soon as there is one") || !strings.Contains(said, "annotation ves.io/virtual-site is none that Muster knows; it knows muster.dev/apply") || !strings.Contains(said, "namespace tau-race has no VirtualKubernetes") {
		t.Errorf("%q", w.said)
	}
}

// admission tries what is refused, on a tenant tau with the virtual sites shared/eu and
// shop/lab.
func admission(t *testing.T, c client.Client) {
	create(t, c, &v1alpha1.Override{ObjectMeta: metav1.ObjectMeta{Namespace: "tau-shop", Name: "jobs"}, Spec: v1alpha1.OverrideSpec{Kind: "Job", SiteList: []string{"paris"}, Spec: runtime.RawExtension{Raw: []byte(`{"backoffLimit":1}`)}}})
	things := grant(t, c, "large.example.com")
	for name, tc := range map[string]struct{ doc, want string }{
		"a virtual site that is not there":     {deployment("a", "ves.io/virtual-sites: 'shared/us'", "", ""), "there is no virtual site shared/us; want some of shared/eu, shop/lab"},
		"another tenant's":                     {deployment("a", "ves.io/virtual-sites: 'globex-shared/eu'", "", ""), "there is no virtual site globex-shared/eu"},
		"no virtual site at all":               {deployment("a", "ves.io/virtual-sites: ','", "", ""), "names no virtual site"},
		"an unknown flavor":                    {deployment("a", "ves.io/workload-flavor: huge", "", ""), "want one of tiny, medium, large"},
		"a flavor of what has no pods":         {"apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: tau-shop, name: a, annotations: {ves.io/workload-flavor: tiny}}", "a flavor is for what makes pods: Deployment"},
		"an Override of another kind":          {deployment("a", "ves.io/overrides: jobs", "", ""), "Override jobs is for a Job, and this is a Deployment"},
		"an Override of what has no spec":      {"apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: tau-shop, name: a, annotations: {ves.io/overrides: jobs}}", "a ConfigMap has none"},
		"a way to apply":                       {deployment("a", "muster.dev/apply: Bold", "", ""), "want Optimistic or Pessimistic"},
		"a deadline":                           {deployment("a", "muster.dev/apply-deadline: soon", "", ""), "want a duration between 1s and 24h"},
		"drift":                                {deployment("a", "muster.dev/drift: Ignore", "", ""), "want Mend or Leave"},
		"a host path":                          {deployment("a", "", "volumes: [{name: h, hostPath: {path: /}}],", ""), `tenant tau runs pods of the Pod Security Standard "Baseline": hostPath`},
		"a privileged container":               {deployment("a", "", "", ", securityContext: {privileged: true}"), `tenant tau runs pods of the Pod Security Standard "Baseline": privileged`},
		"one in a CronJob":                     {"apiVersion: batch/v1\nkind: CronJob\nmetadata: {namespace: tau-shop, name: a}\nspec: {schedule: '@daily', jobTemplate: {spec: {template: {spec: {hostNetwork: true, restartPolicy: Never, containers: [{name: a, image: a}]}}}}}", "host namespaces"},
		"one in an Override":                   {"apiVersion: muster.dev/v1alpha1\nkind: Override\nmetadata: {namespace: tau-shop, name: a}\nspec: {siteList: [paris], spec: {template: {spec: {hostPID: true, containers: [{name: a, image: a}]}}}}", "host namespaces"},
		"an Override that is a whole object":   {"apiVersion: muster.dev/v1alpha1\nkind: Override\nmetadata: {namespace: tau-shop, name: a}\nspec: {siteList: [paris], spec: {metadata: {}, spec: {}}}", "want what stands under spec of the object"},
		"a second virtual Kubernetes":          {"apiVersion: muster.dev/v1alpha1\nkind: VirtualKubernetes\nmetadata: {namespace: tau-shop, name: second}\nspec: {defaultVirtualSite: lab}", "has a virtual Kubernetes already, vk8s"},
		"one in the system namespace":          {"apiVersion: muster.dev/v1alpha1\nkind: VirtualKubernetes\nmetadata: {namespace: tau-system, name: a}\nspec: {defaultVirtualSite: lab}", "no workloads run in a tenant's system namespace"},
		"one outside of tenants":               {"apiVersion: muster.dev/v1alpha1\nkind: VirtualKubernetes\nmetadata: {namespace: default, name: a}\nspec: {defaultVirtualSite: lab}", "none of a tenant's where workloads run"},
		"too large":                            {"apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: tau-shop, name: a}\ndata: {a: '" + strings.Repeat(`"`, 600<<10) + "'}", "more than the 1048576 that one object may have"},
		"too large of a granted CRD":           {"apiVersion: large.example.com/v1\nkind: Thing\nmetadata: {namespace: tau-shop, name: a}\nspec: {a: '" + strings.Repeat("a", 1100<<10) + "'}", "Thing a: it has 1126"},
		"too large with annotations of ours":   {"apiVersion: large.example.com/v1\nkind: Thing\nmetadata: {namespace: tau-shop, name: a, annotations: {muster.dev/drift: Leave}}\nspec: {a: '" + strings.Repeat("a", 1100<<10) + "'}", "more than the 1048576 that one object may have; split it"},
		"a large Override":                     {"apiVersion: muster.dev/v1alpha1\nkind: Override\nmetadata: {namespace: tau-shop, name: a}\nspec: {siteList: [paris], kind: Thing, spec: {a: '" + strings.Repeat("a", 520<<10) + "'}}", "Override a: its spec has 532488 bytes, which is more than the 524288"},
		"the name of what every namespace has": {"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: tau-shop, name: muster-isolation}\nspec: {podSelector: {}}", "choose another name"},
	} {
		if err := c.Create(context.Background(), parse(t, tc.doc)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	// What is not carried may be larger than what is.
	if err := c.Patch(context.Background(), things, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`))); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(context.Background(), parse(t, "apiVersion: large.example.com/v1\nkind: Thing\nmetadata: {namespace: tau-shop, name: a}\nspec: {a: '"+strings.Repeat("a", 1100<<10)+"'}")); err != nil {
		t.Errorf("a large one of a CRD that is not granted: %v", err)
	}
	if err := c.Delete(context.Background(), things); err != nil {
		t.Error(err)
	}
	// Who may have such pods has them.
	level := func(is string) {
		t.Helper()
		if err := c.Patch(context.Background(), &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "tau"}}, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"podSecurity":`+is+`}}`))); err != nil {
			t.Fatal(err)
		}
	}
	level(`"Privileged"`)
	testkit.Eventually(t, "a tenant of the level Privileged has a privileged pod", func() error {
		return c.Create(context.Background(), parse(t, deployment("privileged", "", "hostNetwork: true,", ", securityContext: {privileged: true}")))
	})
	if err := c.Delete(context.Background(), parse(t, deployment("privileged", "", "", ""))); err != nil {
		t.Error(err)
	}
	level("null")
	// What was let in before its virtual site went can still be changed.
	create(t, c, &v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: "tau-shop", Name: "short-lived"}})
	d := parse(t, deployment("editable", "ves.io/virtual-sites: short-lived, ves.io/overrides: ''", "", ""))
	if err := c.Create(context.Background(), d); err == nil {
		t.Error("an empty list of Overrides was let in")
	}
	d = parse(t, deployment("editable", "ves.io/virtual-sites: short-lived", "", ""))
	create(t, c, d)
	if err := c.Delete(context.Background(), &v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: "tau-shop", Name: "short-lived"}}); err != nil {
		t.Fatal(err)
	}
	if err := c.Patch(context.Background(), d, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":4}}`))); err != nil {
		t.Errorf("a change beside the annotation: %v", err)
	}
	if err := c.Patch(context.Background(), d, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"ves.io/virtual-sites":"short-lived,lab"}}}`))); !apierrors.IsInvalid(err) {
		t.Errorf("a change of the annotation: %v", err)
	}
	if err := c.Delete(context.Background(), d); err != nil {
		t.Error(err)
	}
}

// limitsOnSites: what the tenant tau may have on a site follows its object, also when that changes.
func limitsOnSites(t *testing.T, c client.Client, store *desired.Store) {
	for _, tc := range []struct{ spec, namespace, quota string }{
		{`{"podSecurity":"Restricted","siteQuotas":{"pods":7,"cpu":"3"}}`, `"pod-security.kubernetes.io/enforce":"restricted"`, `"hard":{"pods":7,"requests.cpu":"3","services.nodeports":`},
		{`{"podSecurity":null,"siteQuotas":{"pods":8,"cpu":null}}`, `"pod-security.kubernetes.io/enforce":"baseline"`, `"hard":{"pods":8,"services.nodeports":`},
		{`{"siteQuotas":null}`, `"pod-security.kubernetes.io/enforce":"baseline"`, `"hard":{"services.nodeports":`},
	} {
		if err := c.Patch(t.Context(), &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "tau"}}, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+tc.spec+`}`))); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"Namespace/-/tau-shop": tc.namespace, "ResourceQuota/tau-shop/muster-quota": tc.quota} {
			testkit.Eventually(t, name+" after "+tc.spec, func() error {
				for _, it := range store.State(fleet.SiteID{Tenant: "tau", Name: "paris"}).GetItems() {
					if it.Name != name {
						continue
					}
					if b, _ := store.Blob(it.Digest); !strings.Contains(string(b), want) {
						return fmt.Errorf("%s", b)
					}
					return nil
				}
				return errors.New("there is none")
			})
		}
	}
}

// grant makes and grants a CRD of Things.
func grant(t *testing.T, c client.Client, group string) *unstructured.Unstructured {
	t.Helper()
	crd := parse(t, "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things."+group+", labels: {muster.dev/vk8s: offered}}\n"+
		"spec: {group: "+group+", scope: Namespaced, names: {kind: Thing, plural: things, singular: thing}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}")
	create(t, c, crd)
	testkit.Eventually(t, "the kind is served", func() error {
		u := parse(t, "apiVersion: "+group+"/v1\nkind: Thing\nmetadata: {namespace: tau-shop, name: first}")
		return client.IgnoreAlreadyExists(c.Create(t.Context(), u))
	})
	return crd
}
