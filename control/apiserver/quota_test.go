package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/quota"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// tenantWithUser makes a tenant with its namespaces, and a user who may do everything
// in them and nothing elsewhere.
func tenantWithUser(t *testing.T, name, quotas string) *rest.Config {
	t.Helper()
	cfg := kubeapi.Start(t)
	k := kubernetes.NewForConfigOrDie(cfg)
	if _, err := resource(dynamic.NewForConfigOrDie(cfg), "Tenant", "").Create(t.Context(), object(t, "Tenant", name, "{quotas: "+quotas+"}"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{name + "-system", name + "-shop"} {
		if _, err := k.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{fleet.LabelTenant: name}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := k.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "all"},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: kubeapi.Prefix + name}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		kubeapi.WaitAllowed(t, cfg, kubeapi.Prefix+name, nil, "create", "configmaps", ns)
		testkit.Eventually(t, "what each namespace has, which counts", func() error {
			_, err := k.CoreV1().ServiceAccounts(ns).Get(t.Context(), "default", metav1.GetOptions{})
			_, err2 := k.CoreV1().ConfigMaps(ns).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
			return errors.Join(err, err2)
		})
	}
	user := kubeapi.As(t, name)
	user.QPS = -1
	return user
}

// agree waits until the count has caught up, and holds it against a reading of etcd
// from nothing, as after a restart.
func agree(t *testing.T, tenant string) quota.Usage {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(kubeapi.Dir(t), "apiserver", "etcd", "client.sock")}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var got quota.Usage
	testkit.Eventually(t, "the count is what is stored", func() error {
		fresh := quota.New(quota.Options{})
		if _, err := fresh.Load(t.Context(), c); err != nil {
			return err
		}
		if got = kubeapi.Server(t).Usage(tenant); got != fresh.Usage(tenant) {
			return fmt.Errorf("counted %+v, stored %+v", got, fresh.Usage(tenant))
		}
		return nil
	})
	return got
}

// A tenant's users fill etcd up to the tenant's quota, with whatever kind, however many
// at once; the refusal says which quota, how much is used and what to do.
func TestQuotaOfObjects(t *testing.T) {
	const limit = 30
	user := tenantWithUser(t, "qo", fmt.Sprintf("{objects: %d}", limit))
	k := kubernetes.NewForConfigOrDie(user)
	have := agree(t, "qo").Objects // the bindings, and what each namespace has
	makes := []func(ctx context.Context, name string) error{
		func(ctx context.Context, name string) error {
			_, err := k.CoreV1().ConfigMaps("qo-shop").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err
		},
		func(ctx context.Context, name string) error {
			_, err := k.CoreV1().Secrets("qo-system").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"}}, metav1.CreateOptions{})
			return err
		},
		func(ctx context.Context, name string) error {
			_, err := k.CoreV1().Events("qo-shop").Create(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name}, InvolvedObject: corev1.ObjectReference{Namespace: "qo-shop"}}, metav1.CreateOptions{})
			return err
		},
		func(ctx context.Context, name string) error {
			_, err := resource(dynamic.NewForConfigOrDie(user), "VirtualSite", "qo-shop").Create(ctx, object(t, "VirtualSite", name, "{siteSelector: {}}"), metav1.CreateOptions{})
			return err
		},
	}
	var wg sync.WaitGroup
	var made atomic.Int64
	var refused atomic.Value
	for i := range 80 {
		wg.Go(func() {
			if err := makes[i%len(makes)](t.Context(), fmt.Sprintf("x%d", i)); err == nil {
				made.Add(1)
			} else {
				refused.Store(err)
			}
		})
	}
	wg.Wait()
	if got := made.Load() + have; got != limit {
		t.Errorf("%d objects, the quota is %d", got, limit)
	}
	err, _ := refused.Load().(error)
	if !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, v1alpha1.CauseQuotaExceeded) || !strings.Contains(err.Error(), "spec.quotas.objects") || !strings.Contains(err.Error(), "of 30") {
		t.Errorf("the refusal: %v", err)
	}
	if got := agree(t, "qo").Objects; got != limit {
		t.Errorf("counted %d", got)
	}
	// A neighbour and the operator go on.
	tenantWithUser(t, "qo-eu", "{}")
	if err := makes[0](t.Context(), "more"); err == nil {
		t.Error("one more passed")
	}
	admin := kubernetes.NewForConfigOrDie(kubeapi.Start(t))
	if _, err := admin.CoreV1().ConfigMaps("qo-shop").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "operators"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("the operator: %v", err)
	}
	// Whichever kinds were the fastest: at most 20 of those that passed are config maps.
	if err := errors.Join(
		k.CoreV1().Secrets("qo-system").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}),
		k.CoreV1().Events("qo-shop").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}),
		resource(dynamic.NewForConfigOrDie(user), "VirtualSite", "qo-shop").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}),
	); err != nil {
		t.Fatal(err)
	}
	agree(t, "qo")
	if err := makes[0](t.Context(), "more"); err != nil {
		t.Errorf("after a deletion: %v", err)
	}
}

func TestQuotaOfBytes(t *testing.T) {
	user := tenantWithUser(t, "qb", "{objectBytes: 2000000}")
	maps := kubernetes.NewForConfigOrDie(user).CoreV1().ConfigMaps("qb-shop")
	big := func(name string, bytes int) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"x": strings.Repeat("y", bytes)}}
	}
	made := 0
	var err error
	for ; made < 10; made++ {
		if _, err = maps.Create(t.Context(), big(fmt.Sprint("m", made), 500_000), metav1.CreateOptions{}); err != nil {
			break
		}
	}
	if made != 3 || !strings.Contains(err.Error(), "spec.quotas.objectBytes") {
		t.Errorf("%d of half a megabyte were taken: %v", made, err)
	}
	if got := agree(t, "qb").ObjectBytes; got < 1_500_000 || got > 2_000_000 {
		t.Errorf("counted %d", got)
	}
	if _, err := maps.Update(t.Context(), big("m0", 1_000_001), metav1.UpdateOptions{}); !apierrors.HasStatusCause(err, v1alpha1.CauseQuotaExceeded) {
		t.Errorf("an object that grows: %v", err)
	}
	if _, err := maps.Update(t.Context(), big("m0", 10), metav1.UpdateOptions{}); err != nil {
		t.Errorf("an object that shrinks: %v", err)
	}
	agree(t, "qb")
	// Annotations of a site are bytes, too, though sites are not objects.
	sites := resource(dynamic.NewForConfigOrDie(user), "Site", "qb-system")
	if _, err := sites.Create(t.Context(), object(t, "Site", "s", "{}"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Create(t.Context(), big("m4", 800_000), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"x":%q}}}`, strings.Repeat("z", 250_000))
	if _, err := sites.Patch(t.Context(), "s", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); !apierrors.HasStatusCause(err, v1alpha1.CauseQuotaExceeded) {
		t.Errorf("a site that grows: %v", err)
	}
}

func TestQuotaOfSites(t *testing.T) {
	user := tenantWithUser(t, "qs", "{sites: 2}")
	mine := resource(dynamic.NewForConfigOrDie(user), "Site", "qs-system")
	all := resource(dynamic.NewForConfigOrDie(kubeapi.Start(t)), "Site", "qs-system")
	for i, c := range []struct {
		name string
		ok   bool
	}{{"a", true}, {"b", true}, {"c", false}} {
		for _, as := range []string{"user", "muster"} {
			create := mine
			if as == "muster" && !c.ok {
				create = all
			} else if as == "muster" {
				continue
			}
			_, err := create.Create(t.Context(), object(t, "Site", c.name, "{}"), metav1.CreateOptions{})
			if c.ok != (err == nil) || !c.ok && !apierrors.HasStatusCause(err, v1alpha1.CauseQuotaExceeded) {
				t.Errorf("%d, %s by %s: %v", i, c.name, as, err)
			}
		}
	}
	tenants := resource(dynamic.NewForConfigOrDie(kubeapi.Start(t)), "Tenant", "")
	if _, err := tenants.Patch(t.Context(), "qs", types.MergePatchType, []byte(`{"spec":{"quotas":{"sites":1}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	approve := func(name string) error {
		_, err := mine.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"approved":true}}`), metav1.PatchOptions{})
		return err
	}
	if err := approve("a"); err != nil {
		t.Errorf("the first approval: %v", err)
	}
	agree(t, "qs")
	testkit.Eventually(t, "the second approval is over the quota", func() error {
		if err := approve("b"); !apierrors.HasStatusCause(err, v1alpha1.CauseQuotaExceeded) {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	if _, err := mine.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec":{"decommissioned":true}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	agree(t, "qs")
	if err := approve("b"); err != nil {
		t.Errorf("in place of a decommissioned one: %v", err)
	}
}

// Rewriting one object again and again would fill etcd with its versions. Clients are
// told to wait, and client-go does.
func TestQuotaOfWrites(t *testing.T) {
	user := tenantWithUser(t, "qw", "{}")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := ""
	user.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return testkit.RoundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil && resp.StatusCode == http.StatusTooManyRequests {
				told = resp.Header.Get("Retry-After")
				cancel() // else it would be tried again, later and later
			}
			return resp, err
		})
	})
	maps := kubernetes.NewForConfigOrDie(user).CoreV1().ConfigMaps("qw-shop")
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Data: map[string]string{}}
	if _, err := maps.Create(ctx, m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for written := range 2000 {
		m.Data["x"] = fmt.Sprint(written) + strings.Repeat("y", 900_000)
		if _, err := maps.Update(ctx, m, metav1.UpdateOptions{}); err == nil {
			continue
		} else if told == "" {
			t.Fatal(err)
		}
		if limit := (quota.WriteBurst+int(time.Since(began).Seconds()+1)*quota.WriteBytesPerSecond)/900_000 + 1; written > limit {
			t.Errorf("%d writes of 0.9 MB passed, the budget is for %d", written, limit)
		}
		return
	}
	t.Error("1.8 GB were written")
}
