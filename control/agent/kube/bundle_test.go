package kube_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/workload"
)

// TestBundles: what moves together on a real API server, where one of it can't.
func TestBundles(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := newSite(t)
	s.put(namespace(ns))
	s.is(nsItem, workload.Ready, "")
	t.Run("one that is refused after a good dry run", func(t *testing.T) { s.t = t; s.refusedAfterDryRun() })
	t.Run("one that no room is left for, beside the rest", func(t *testing.T) { s.t = t; s.noRoomForAll() })
	t.Run("one that became immutable", func(t *testing.T) { s.t = t; s.backFromImmutable() })
	t.Run("one that can't go back", func(t *testing.T) { s.t = t; s.oneStays() })
	t.Run("one that is removed to be made anew, and can't be", func(t *testing.T) { s.t = t; s.removedAndRefused() })
}

// refusedAfterDryRun: the bundle goes back, says whose fault it is, is tried again without
// touching anything else of it, and comes into effect when the cause goes.
func (s *site) refusedAfterDryRun() {
	s.stop()
	direct := s.cfg
	defer func() { s.stop(); s.cfg = direct; s.start() }()
	var refusing atomic.Bool
	var refused atomic.Int32
	s.cfg = beforeAnd(s.root, direct, func(w http.ResponseWriter, req *http.Request) bool {
		if !refusing.Load() || req.Method != http.MethodPatch || !strings.HasSuffix(req.URL.Path, "/deployments/app") || req.URL.Query().Get("dryRun") != "" {
			return false
		}
		var sent struct {
			Spec struct {
				Template struct {
					Spec struct{ Containers []struct{ Image string } }
				}
			}
		}
		b, err := io.ReadAll(req.Body)
		req.Body = io.NopCloser(bytes.NewReader(b))
		if err != nil || json.Unmarshal(b, &sent) != nil || sent.Spec.Template.Spec.Containers[0].Image != "app:2" {
			return false
		}
		refused.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"a webhook says no","code":403}`)
		return true
	})
	s.start()
	in := []string{workload.Bundle, "b"}
	a, app := "ConfigMap/"+ns+"/a", "Deployment.apps/"+ns+"/app"
	s.put(configMap("a", "1", in...), deployment("app", "app:1", 1, in...))
	s.is(a, workload.Ready, "")
	s.is(app, workload.Ready, "")
	testkit.EventuallyTrue(s.t, "they are good", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.good[a] != "" && s.good[app] != "" })

	refusing.Store(true)
	s.put(configMap("a", "2", in...), deployment("app", "app:2", 1, in...), configMap("beside", "1"))
	s.is(app, workload.Failed, "Forbidden: the site's API server: a webhook says no", workload.RolledBack)
	s.is(a, workload.Waiting, "Bundle: waits for "+app, workload.RolledBack)
	s.is("ConfigMap/"+ns+"/beside", workload.Ready, "")
	testkit.EventuallyTrue(s.t, "both are as they were", func() bool {
		return s.configMap("a").Data["v"] == "1" && s.deployment("app").Spec.Template.Spec.Containers[0].Image == "app:1"
	})
	was, n := s.configMap("a").ResourceVersion, refused.Load()
	testkit.EventuallyTrue(s.t, "it is tried again", func() bool { return refused.Load() >= n+2 })
	if now := s.configMap("a"); now.ResourceVersion != was {
		s.t.Errorf("the other one is changed forth and back: %v", now)
	}
	// Nor does a restart give it up, or forget to try.
	s.stop()
	s.start()
	s.is(app, workload.Failed, "a webhook says no", workload.RolledBack)
	refusing.Store(false)
	s.is(app, workload.Ready, "", workload.RolledBack)
	s.is(a, workload.Ready, "")
	if v := s.configMap("a").Data["v"]; v != "2" {
		s.t.Errorf("it is %q", v)
	}
	s.set(map[string]string{a: "", app: "", "ConfigMap/" + ns + "/beside": ""})
	s.gone(app)
}

// noRoomForAll: a quota has room for each of two new objects and not for both.
func (s *site) noRoomForAll() {
	quota := func(n int) {
		s.t.Helper()
		s.put(s.object("v1", "ResourceQuota", "few-room", fmt.Sprintf(`,"spec":{"hard":{"services":"%d"}}`, n)))
		testkit.EventuallyTrue(s.t, "the quota counts", func() bool {
			q, err := s.Client.CoreV1().ResourceQuotas(ns).Get(s.t.Context(), "few-room", metav1.GetOptions{})
			return err == nil && len(q.Status.Used) == 1 && q.Status.Hard.Name("services", "").Value() == int64(n)
		})
	}
	in := []string{workload.Bundle, "room"}
	service := func(name string) string {
		return s.object("v1", "Service", name, `,"spec":{"ports":[{"port":80}]}`, in...)
	}
	a, one, two := "ConfigMap/"+ns+"/room", "Service/"+ns+"/one", "Service/"+ns+"/two"
	quota(1)
	s.put(configMap("room", "1", in...))
	s.is(a, workload.Ready, "")
	s.put(configMap("room", "2", in...), service("one"), service("two"))
	testkit.Eventually(s.t, "one of the two says so, and the rest waits for it", func() error {
		var failed []string
		for _, item := range []string{a, one, two} {
			st := s.centre.item(item)
			if st.GetState() == string(workload.Failed) && strings.Contains(st.Message, "exceeded quota: few-room") {
				failed = append(failed, item)
			} else if st.GetState() != string(workload.Waiting) || st.Reason != "Bundle" {
				return fmt.Errorf("%v", st)
			}
		}
		if len(failed) != 1 || s.configMap("room").Data["v"] != "1" {
			return fmt.Errorf("failed: %v", failed)
		}
		return nil
	})
	quota(2)
	for _, item := range []string{a, one, two} {
		s.is(item, workload.Ready, "", workload.RolledBack)
	}
	s.set(map[string]string{a: "", one: "", two: "", "ResourceQuota/" + ns + "/few-room": ""})
	s.gone(one)
}

// backFromImmutable: what has become immutable can be gone back from by removal alone.
func (s *site) backFromImmutable() {
	in := []string{workload.Bundle, "back", workload.Apply, workload.Pessimistic, workload.ApplyDeadline, "3s"}
	a, app := "ConfigMap/"+ns+"/back", "Deployment.apps/"+ns+"/back"
	s.put(configMap("back", "1", in...), deployment("back", "app:1", 1, in...))
	s.is(app, workload.Ready, "")
	s.is(a, workload.Ready, "")
	s.FailPull("app:3")
	s.put(strings.Replace(configMap("back", "3", in...), `"data"`, `"immutable":true,"data"`, 1), deployment("back", "app:3", 1, in...))
	s.is(app, workload.RolledBack, "not ready within", workload.Failed)
	s.is(a, workload.RolledBack, "")
	testkit.EventuallyTrue(s.t, "both are as they were", func() bool {
		cm := s.configMap("back")
		return cm != nil && cm.Data["v"] == "1" && s.deployment("back").Spec.Template.Spec.Containers[0].Image == "app:1"
	})
	s.HealPull("app:3")
	in[len(in)-1] = "60s" // it is to become ready now
	s.put(configMap("back", "4", in...), deployment("back", "app:4", 1, in...))
	s.is(app, workload.Ready, "")
	s.is(a, workload.Ready, "")
	s.set(map[string]string{a: "", app: ""})
	s.gone(app)
}

// oneStays: a claim does not shrink. What can go back does, and the claim says why it can't.
func (s *site) oneStays() {
	ctx, yes := s.t.Context(), true
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "grows"}, Provisioner: "example.com/none", AllowVolumeExpansion: &yes}
	if _, err := s.Client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	in := []string{workload.Bundle, "stays", workload.Apply, workload.Pessimistic, workload.ApplyDeadline, "3s"}
	claim := func(size string) string {
		return s.object("v1", "PersistentVolumeClaim", "data", fmt.Sprintf(`,"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"grows","volumeName":"data","resources":{"requests":{"storage":%q}}}`, size), in...)
	}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: "grows", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
	}}
	if _, err := s.Client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	data, app := "PersistentVolumeClaim/"+ns+"/data", "Deployment.apps/"+ns+"/stays"
	s.put(claim("1Gi"), deployment("stays", "app:1", 1, in...))
	s.is(data, workload.Ready, "")
	s.is(app, workload.Ready, "")
	s.FailPull("app:2")
	s.put(claim("2Gi"), deployment("stays", "app:2", 1, in...))
	s.is(app, workload.RolledBack, "not ready within")
	testkit.EventuallyTrue(s.t, "the Deployment is as it was", func() bool { return s.deployment("stays").Spec.Template.Spec.Containers[0].Image == "app:1" })
	s.is(data, workload.Failed, "Invalid: ")
	s.HealPull("app:2")
	in[len(in)-1] = "60s" // it is to become ready now
	s.put(claim("2Gi"), deployment("stays", "app:3", 1, in...))
	s.is(app, workload.Ready, "")
	s.is(data, workload.Ready, "")
	s.set(map[string]string{data: "", app: ""})
	s.gone(app)
}

// removedAndRefused: a quota has no room for the new one once the old one is gone; nobody says
// of the old one that somebody else removed it.
func (s *site) removedAndRefused() {
	in := func(uid string) []string {
		return []string{workload.Bundle, "anew", workload.Origin, uid, workload.Drift, workload.Leave}
	}
	fixed := func(uid string) string {
		return strings.Replace(configMap("fixed", uid, in(uid)...), `"data"`, `"immutable":true,"data"`, 1)
	}
	quota := func(n int) {
		s.t.Helper()
		s.put(s.object("v1", "ResourceQuota", "few-anew", fmt.Sprintf(`,"spec":{"hard":{"configmaps":"%d"}}`, n)))
		testkit.EventuallyTrue(s.t, "the quota counts", func() bool {
			q, err := s.Client.CoreV1().ResourceQuotas(ns).Get(s.t.Context(), "few-anew", metav1.GetOptions{})
			return err == nil && len(q.Status.Used) == 1 && q.Status.Hard.Name("configmaps", "").Value() == int64(n)
		})
	}
	item, app := "ConfigMap/"+ns+"/fixed", "Deployment.apps/"+ns+"/anew"
	s.put(fixed("a"), deployment("anew", "app:1", 1, in("x")...))
	s.is(item, workload.Ready, "")
	s.is(app, workload.Ready, "")
	quota(1) // kube-root-ca.crt is there, too
	s.put(fixed("b"), deployment("anew", "app:2", 1, in("x")...))
	s.is(item, workload.Failed, "exceeded quota: few-anew", workload.RolledBack)
	s.is(app, workload.Waiting, "Bundle: waits for "+item, workload.RolledBack, workload.Failed)
	quota(2)
	s.is(item, workload.Ready, "", workload.RolledBack)
	s.is(app, workload.Ready, "")
	if v := s.configMap("fixed").Data["v"]; v != "b" {
		s.t.Errorf("it is %q", v)
	}
	s.set(map[string]string{item: "", app: "", "ResourceQuota/" + ns + "/few-anew": ""})
	s.gone(app)
}
