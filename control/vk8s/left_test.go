package vk8s_test

import (
	"context"
	"encoding/json"
	"io/fs"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/vk8s"
	"muster.dev/muster/control/vk8s/sum"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit/kubeapi"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// TestWhoMayNotGetAnObject is told that it is otherwise on a site, and that fields were left
// out; nothing of a Secret that is in it, whatever sites say. Who may is told. Others have no
// answer at all.
func TestWhoMayNotGetAnObject(t *testing.T) {
	admin, edits := start(t)
	kube := kubernetes.NewForConfigOrDie(admin)
	const looks = "vk-looks"
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: looks, Namespace: mine}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"muster.dev"}, Resources: []string{"virtualkubernetes"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"its"}, Verbs: []string{"get"}}}}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: looks, Namespace: mine}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: looks},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: kubeapi.Prefix + looks}}}
	if _, err := kube.RbacV1().Roles(mine).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kube.RbacV1().Roles(mine).Delete(context.Background(), looks, metav1.DeleteOptions{}) })
	if _, err := kube.RbacV1().RoleBindings(mine).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = kube.RbacV1().RoleBindings(mine).Delete(context.Background(), looks, metav1.DeleteOptions{})
	})
	kubeapi.WaitAllowed(t, admin, kubeapi.Prefix+looks, nil, "get", "configmaps", mine)

	rome, oslo := fleet.SiteID{Tenant: "vk", Name: "rome"}, fleet.SiteID{Tenant: "vk", Name: "oslo"}
	const word = "sesame" // a key, told in each way that a site has
	items := map[string]string{}
	for kind, names := range map[string][]string{"ConfigMap": {"flags"}, "Secret": {"key", "its"}} {
		for _, name := range names {
			items[workload.ItemName("", kind, mine, name)] = kind
		}
	}
	c := sum.New(sum.Options{
		Items: func(string) (out []string) {
			for item := range items {
				out = append(out, item)
			}
			return out
		},
		Online: func(fleet.SiteID) bool { return true },
		Placed: func(item string) (sum.Placement, bool) {
			return sum.Placement{Digests: map[fleet.SiteID]string{rome: "new", oslo: "new"}}, items[item] != ""
		},
		States: func(string) map[fleet.SiteID]*wire.WorkloadStatus {
			return map[fleet.SiteID]*wire.WorkloadStatus{
				rome: {Wanted: "new", Digest: "new", State: string(workload.Failed), Drifted: true, Reason: "Invalid", Message: "data[" + word + "] is not allowed", Changed: []string{"data[" + word + "]"}},
				oslo: {Wanted: "new", Digest: "old", State: string(workload.Failed), Reason: "Invalid", Message: "data[" + word + "] is too long"},
			}
		},
		Content: func(_ context.Context, digest string) ([]byte, error) {
			switch digest {
			case "new":
				return []byte(`{"kind":"ConfigMap","data":{"sesame":"a"}}`), nil
			case "old":
				return []byte(`{"kind":"ConfigMap","data":{"sesame":"b"}}`), nil
			}
			return nil, fs.ErrNotExist
		},
	})
	kinds := offered.NewSet()
	kubeapi.Mount(t).Serve(vk8s.Backend{Virtual: func(ns, name string) (vk8s.Virtual, bool) {
		return vk8s.Virtual{Namespace: ns, Name: name}, name == "vk8s" && (ns == mine || ns == theirs)
	}, Report: c.Handler(func(ctx context.Context) (string, bool) {
		of, ok := vk8s.VirtualOf(ctx)
		return of.Namespace, ok
	}, func(ctx context.Context, gk schema.GroupKind, name string) bool {
		kind, ok := kinds.Of(gk)
		return ok && vk8s.MayGet(ctx, kind.Group, kind.Version, kind.Resource, name)
	})})

	get := func(cfg *rest.Config, ns, path string, query ...string) (string, error) {
		req := kubernetes.NewForConfigOrDie(cfg).CoreV1().RESTClient().Get().AbsPath(wire.VirtualPath(ns, "vk8s"), "muster", path)
		for i := 0; i < len(query); i += 2 {
			req = req.Param(query[i], query[i+1])
		}
		b, err := req.Do(t.Context()).Raw()
		return string(b), err
	}
	one := func(cfg *rest.Config, path string) (is wire.Workload, body string) {
		t.Helper()
		body, err := get(cfg, mine, path, "fields", "1")
		if err == nil {
			err = json.Unmarshal([]byte(body), &is)
		}
		if err != nil || len(is.Sites) != 2 || is.Sites[0].Site != "oslo" {
			t.Fatalf("%s: %s, %v", path, body, err)
		}
		return is, body
	}
	looker := kubeapi.As(t, looks)
	for _, path := range []string{"workloads/ConfigMap/flags", "workloads/Secret/its"} {
		if is, body := one(looker, path); is.Sites[0].NoFields != "" || len(is.Sites[0].Fields) == 0 || len(is.Sites[1].Fields) == 0 || is.Sites[1].Message == "" {
			t.Errorf("who may get %s is told %s", path, body)
		}
	}
	for _, path := range []string{"workloads/Secret/key"} {
		is, body := one(looker, path)
		if strings.Contains(body, word) {
			t.Errorf("who may not get %s is told what is in it: %s", path, body)
		}
		for _, s := range is.Sites {
			if s.NoFields != wire.FieldsForbidden || len(s.Fields) != 0 || s.Reason != "Invalid" {
				t.Errorf("who may not get %s is not told that something was left out: %s", path, body)
			}
		}
		if is, body := one(edits, path); len(is.Sites[0].Fields) == 0 || is.Sites[0].NoFields != "" {
			t.Errorf("an editor is told %s", body)
		}
	}
	for _, query := range [][]string{nil, {"site", "rome"}} {
		body, err := get(looker, mine, "workloads", query...)
		var list wire.WorkloadList
		if err != nil || json.Unmarshal([]byte(body), &list) != nil || len(list.Items) != 3 {
			t.Fatalf("%s, %v", body, err)
		}
		for _, w := range list.Items {
			b, _ := json.Marshal(w)
			if hidden := w.Kind == "Secret" && w.Name == "key"; hidden == strings.Contains(string(b), word) {
				t.Errorf("a list, %v, tells %s", query, b)
			}
		}
	}
	for who, cfg := range map[string]*rest.Config{"nobody": kubeapi.As(t, "vk-nobody"), "a looker elsewhere": looker, "an editor elsewhere": edits} {
		ns := theirs
		if who == "nobody" {
			ns = mine
		}
		if body, err := get(cfg, ns, "workloads"); err == nil || strings.Contains(body, word) {
			t.Errorf("%s is told %s", who, body)
		}
	}
}
