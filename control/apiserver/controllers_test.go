package apiserver_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
	"muster.dev/muster/internal/testkit/testca"
)

// installKind installs a CRD for Widgets of its own group.
func installKind(t *testing.T, cfg *rest.Config, group string) dynamic.NamespaceableResourceInterface {
	t.Helper()
	open := true
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets." + group}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: group, Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &open}}}},
	}}
	if _, err := apiextensionsclient.NewForConfigOrDie(cfg).ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return dynamic.NewForConfigOrDie(cfg).Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"})
}

// Deletions end, and take or leave what is owned as they were told to; also of kinds
// that are installed while the server runs.
func TestDeletionsOfOwners(t *testing.T) {
	cfg := kubeapi.Start(t)
	namespace(t, cfg, "owners")
	widgets := installKind(t, cfg, "gc.example.com").Namespace("owners")
	configs := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("owners")
	for _, how := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		name := strings.ToLower(string(how))
		var owner *unstructured.Unstructured
		testkit.Eventually(t, "the new kind is served", func() (err error) {
			owner, err = widgets.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{"apiVersion": "gc.example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name}}}, metav1.CreateOptions{})
			return err
		})
		block := true
		if _, err := configs.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "gc.example.com/v1", Kind: "Widget", Name: name, UID: owner.GetUID(), BlockOwnerDeletion: &block}}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := widgets.Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &how}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, string(how)+": the owner is gone", func() error {
			if o, err := widgets.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%v, %v", o, err)
			}
			return nil
		})
		if how == metav1.DeletePropagationOrphan {
			if c, err := configs.Get(t.Context(), name, metav1.GetOptions{}); err != nil || len(c.OwnerReferences) > 0 || c.DeletionTimestamp != nil {
				t.Errorf("the orphan: %+v, %v", c, err)
			}
			continue
		}
		testkit.Eventually(t, string(how)+": what it owned is gone", func() error {
			if c, err := configs.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%v, %v", c.ObjectMeta, err)
			}
			return nil
		})
	}
}

// whoami is the user that the API server takes the token for.
func whoami(t *testing.T, cfg *rest.Config, token string) (string, error) {
	t.Helper()
	as := rest.AnonymousClientConfig(cfg)
	as.BearerToken = token
	got, err := kubernetes.NewForConfigOrDie(as).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return got.Status.UserInfo.Username, nil
}

func TestServiceAccounts(t *testing.T) {
	cfg := kubeapi.Start(t)
	namespace(t, cfg, "accounts")
	core := kubernetes.NewForConfigOrDie(cfg).CoreV1()
	testkit.Eventually(t, "the default service account", func() error {
		_, err := core.ServiceAccounts("accounts").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	asked, err := core.ServiceAccounts("accounts").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const me = "system:serviceaccount:accounts:default"
	if who, err := whoami(t, cfg, asked.Status.Token); err != nil || who != me {
		t.Errorf("with a token that was asked for: %s, %v", who, err)
	}
	if _, err := core.Secrets("accounts").Create(t.Context(), &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken,
		ObjectMeta: metav1.ObjectMeta{Name: "long", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var secret *corev1.Secret
	testkit.Eventually(t, "the Secret has its token", func() (err error) {
		if secret, err = core.Secrets("accounts").Get(t.Context(), "long", metav1.GetOptions{}); err == nil && len(secret.Data["token"]) == 0 {
			err = fmt.Errorf("%v", slices.Collect(maps.Keys(secret.Data)))
		}
		return err
	})
	testkit.Eventually(t, "the token is good", func() error {
		who, err := whoami(t, cfg, string(secret.Data["token"]))
		if err == nil && who != me {
			err = fmt.Errorf("it is %s", who)
		}
		return err
	})
}

// Each namespace has the CAs of today.
func TestNamespacesHaveTheCA(t *testing.T) {
	cfg := kubeapi.Start(t)
	namespace(t, cfg, "roots")
	configs := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("roots")
	holds := func(want []byte) {
		t.Helper()
		testkit.Eventually(t, "kube-root-ca.crt", func() error {
			c, err := configs.Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
			if err == nil && c.Data["ca.crt"] != string(want) {
				err = fmt.Errorf("%d bytes, want %d", len(c.Data["ca.crt"]), len(want))
			}
			return err
		})
	}
	now := cfg.CAData
	holds(now)
	server := kubeapi.Server(t)
	t.Cleanup(func() {
		if err := server.Trust(now); err != nil {
			t.Error(err)
		}
	})
	both := append(bytes.Clone(now), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: testca.New(t).Cert.Raw})...)
	if err := server.Trust(both); err != nil {
		t.Fatal(err)
	}
	holds(both)
}

func TestAggregatedRoles(t *testing.T) {
	roles := kubernetes.NewForConfigOrDie(kubeapi.Start(t)).RbacV1().ClusterRoles()
	mine := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "aggregate-widgets", Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"agg.example.com"}, Resources: []string{"widgets"}, Verbs: []string{"get"}}}}
	if _, err := roles.Create(t.Context(), mine, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	may := func(r *rbacv1.ClusterRole, resource, verb string) bool {
		return slices.ContainsFunc(r.Rules, func(p rbacv1.PolicyRule) bool {
			return slices.Contains(p.Resources, resource) && slices.Contains(p.Verbs, verb)
		})
	}
	for name, want := range map[string][2]string{"view": {"configmaps", "get"}, "edit": {"deployments", "create"}, "admin": {"rolebindings", "create"}} {
		testkit.Eventually(t, name+" is made of its parts", func() error {
			r, err := roles.Get(t.Context(), name, metav1.GetOptions{})
			if err == nil && (!may(r, want[0], want[1]) || !may(r, "widgets", "get")) {
				err = fmt.Errorf("%d rules", len(r.Rules))
			}
			return err
		})
	}
	if v, err := roles.Get(t.Context(), "view", metav1.GetOptions{}); err != nil || may(v, "secrets", "get") {
		t.Errorf("view reads secrets, or %v", err)
	}
}

// A ResourceQuota counts what is there, of Muster's and of anybody's kinds, too.
func TestResourceQuotasCount(t *testing.T) {
	cfg := kubeapi.Start(t)
	namespace(t, cfg, "counted")
	k := kubernetes.NewForConfigOrDie(cfg)
	widgets := installKind(t, cfg, "quota.example.com").Namespace("counted")
	widget := func(name string) error {
		_, err := widgets.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{"apiVersion": "quota.example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name}}}, metav1.CreateOptions{})
		return err
	}
	testkit.Eventually(t, "the new kind is served", func() error { return widget("one") })
	labels := map[string]string{"app": "a"}
	deploy := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}}}
	if _, err := k.AppsV1().Deployments("counted").Create(t.Context(), deploy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := virtualSites(cfg, "counted").Create(t.Context(), object(t, "VirtualSite", "x", "{siteSelector: {}}"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	quotas := k.CoreV1().ResourceQuotas("counted")
	hard := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{"count/widgets.quota.example.com", "count/deployments.apps", "count/virtualsites.muster.dev", "services", "pods"} {
		hard[name] = quantity.MustParse("1")
	}
	if _, err := quotas.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	used := func(want map[corev1.ResourceName]string) {
		t.Helper()
		testkit.Eventually(t, "the quota counts", func() error {
			q, err := quotas.Get(t.Context(), "q", metav1.GetOptions{})
			if err != nil {
				return err
			}
			for name, n := range want {
				if got := q.Status.Used[name]; got.String() != n || q.Status.Hard[name] != hard[name] {
					return fmt.Errorf("%s: %s of %v", name, got.String(), q.Status.Hard[name])
				}
			}
			return nil
		})
	}
	used(map[corev1.ResourceName]string{"count/widgets.quota.example.com": "1", "count/deployments.apps": "1", "count/virtualsites.muster.dev": "1", "services": "0", "pods": "0"})
	if err := widget("two"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: q") {
		t.Errorf("one too many: %v", err)
	}
	if err := widgets.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	used(map[corev1.ResourceName]string{"count/widgets.quota.example.com": "0"})
	if err := widget("two"); err != nil {
		t.Errorf("after a deletion: %v", err)
	}
}

// Who asks for a certificate is told where to get one, instead of waiting for ever.
func TestCertificateRequestsAreRefused(t *testing.T) {
	cfg := kubeapi.Start(t)
	requests := kubernetes.NewForConfigOrDie(cfg).CertificatesV1().CertificateSigningRequests()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(name, signer string) {
		t.Helper()
		if _, err := requests.Create(t.Context(), &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: signer, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ask("theirs", "acme.example.com/signer")
	ask("ours", "kubernetes.io/kube-apiserver-client")
	testkit.Eventually(t, "the request is refused", func() error {
		r, err := requests.Get(t.Context(), "ours", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range r.Status.Conditions {
			if c.Type == certificatesv1.CertificateDenied && c.Reason == "NotSignedHere" && strings.Contains(c.Message, "muster token create") {
				return nil
			}
		}
		return fmt.Errorf("%+v", r.Status)
	})
	if r, err := requests.Get(t.Context(), "theirs", metav1.GetOptions{}); err != nil || len(r.Status.Conditions) > 0 {
		t.Errorf("another signer's: %+v, %v", r.Status, err)
	}
}

// A namespace with what hangs on finalizers of the garbage collector ends, too.
func TestNamespaceOfOwnersGoes(t *testing.T) {
	cfg := kubeapi.Start(t)
	namespace(t, cfg, "deep")
	core := kubernetes.NewForConfigOrDie(cfg).CoreV1()
	owner, err := core.ConfigMaps("deep").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner", Finalizers: []string{metav1.FinalizerDeleteDependents}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	block := true
	if _, err := core.Secrets("deep").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID, BlockOwnerDeletion: &block}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := core.Namespaces().Delete(t.Context(), "deep", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyWithin(t, "the namespace is gone", time.Minute, func() error {
		if ns, err := core.Namespaces().Get(t.Context(), "deep", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%v, %v", ns.Status, err)
		}
		return nil
	})
}

func virtualSites(cfg *rest.Config, ns string) dynamic.ResourceInterface {
	return resource(dynamic.NewForConfigOrDie(cfg), "VirtualSite", ns)
}

// What Muster tells of a tenant's sites counts for nobody, so nobody else may say that
// he is Muster.
func TestEventsInTheNameOfMuster(t *testing.T) {
	cfg := kubeapi.Start(t)
	namespace(t, cfg, "said")
	k := kubernetes.NewForConfigOrDie(cfg)
	if _, err := k.RbacV1().RoleBindings("said").Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "mallory"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "mallory"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubeapi.WaitAllowed(t, cfg, "mallory", nil, "create", "events", "said")
	as := rest.CopyConfig(cfg)
	as.Impersonate.UserName = "mallory"
	say := func(cfg *rest.Config, name, component string) error {
		_, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().Events("said").Create(t.Context(), &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name},
			InvolvedObject: corev1.ObjectReference{Namespace: "said", Kind: "ConfigMap", Name: "x"}, Source: corev1.EventSource{Component: component}}, metav1.CreateOptions{})
		return err
	}
	if err := say(as, "a", "muster-control"); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "reportingComponent") {
		t.Errorf("in Muster's name: %v", err)
	}
	if err := say(as, "b", "mallory"); err != nil {
		t.Errorf("in the own name: %v", err)
	}
	if err := say(cfg, "c", "muster-control"); err != nil {
		t.Errorf("Muster itself: %v", err)
	}
}
