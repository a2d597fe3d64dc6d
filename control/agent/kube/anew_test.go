package kube_test

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/workload"
)

// madeAnew: objects of which only another UID at the centre tells that they are others.
func (s *site) madeAnew() {
	ctx := s.t.Context()
	headless := func(uid, ip string) string {
		return s.object("v1", "Service", "anew", fmt.Sprintf(`,"spec":{%s"selector":{"app":"anew"},"ports":[{"port":80}]}`, ip), workload.Origin, uid)
	}
	stateful := func(uid, service, size string) string {
		return s.object("apps/v1", "StatefulSet", "anew", fmt.Sprintf(`,"spec":{"serviceName":%q,"selector":{"matchLabels":{"app":"anew"}},"volumeClaimTemplates":[{"metadata":{"name":"d"},"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"none","resources":{"requests":{"storage":%q}}}}],`, service, size)+template("anew", "")+`}`, workload.Origin, uid)
	}
	selecting := func(uid, app string) string {
		return s.object("apps/v1", "Deployment", "anew", fmt.Sprintf(`,"spec":{"selector":{"matchLabels":{"app":%q}},`, app)+template(app, "")+`}`, workload.Origin, uid)
	}
	const service, set, deploy = "Service/" + ns + "/anew", "StatefulSet.apps/" + ns + "/anew", "Deployment.apps/" + ns + "/anew"
	s.put(headless("a", ""), stateful("a", "one", "1Gi"), selecting("a", "anew-1"))
	s.is(service, workload.Ready, "")
	s.is(deploy, workload.Ready, "")
	s.is(set, workload.Progressing, "")

	// The same one can't be changed: nothing of it is removed.
	s.put(headless("a", `"clusterIP":"None",`), stateful("a", "two", "2Gi"), selecting("a", "anew-2"))
	for _, item := range []string{service, set, deploy} {
		s.is(item, workload.Failed, "Invalid: ", workload.Ready)
	}
	// Another one replaces it.
	s.put(headless("b", `"clusterIP":"None",`), stateful("b", "two", "2Gi"), selecting("b", "anew-2"))
	s.is(service, workload.Ready, "")
	s.is(deploy, workload.Ready, "")
	s.is(set, workload.Progressing, "")
	if got, err := s.Client.CoreV1().Services(ns).Get(ctx, "anew", metav1.GetOptions{}); err != nil || got.Spec.ClusterIP != "None" {
		s.t.Errorf("%v, %v", got, err)
	}
	if got, err := s.Client.AppsV1().StatefulSets(ns).Get(ctx, "anew", metav1.GetOptions{}); err != nil || got.Spec.ServiceName != "two" {
		s.t.Errorf("%v, %v", got, err)
	}
	testkit.Eventually(s.t, "its pods are the new one's, and no others", func() error {
		var apps []string
		for _, p := range s.centre.pods(ns) {
			if app := p.Labels["app"]; strings.HasPrefix(app, "anew-") {
				apps = append(apps, app)
			}
		}
		if len(apps) != 1 || apps[0] != "anew-2" {
			return fmt.Errorf("%v", apps)
		}
		return nil
	})
	if claims, err := s.Client.CoreV1().PersistentVolumeClaims(ns).List(ctx, metav1.ListOptions{}); err != nil || len(claims.Items) == 0 {
		s.t.Errorf("the claims of the StatefulSet went with it: %v, %v", claims, err)
	}
	// One that can be changed is changed in place.
	was := s.deployment("anew").UID
	s.put(strings.Replace(selecting("c", "anew-2"), "nginx:1", "nginx:2", 1))
	s.is(deploy, workload.Ready, "")
	if d := s.deployment("anew"); d.UID != was || d.Spec.Template.Spec.Containers[0].Image != "nginx:2" {
		s.t.Errorf("it was replaced: %v", d.Spec)
	}

	// A claim holds data: it is left, and said.
	claim := func(uid, class string) string {
		return s.object("v1", "PersistentVolumeClaim", "anew", fmt.Sprintf(`,"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":%q,"resources":{"requests":{"storage":"1Gi"}}}`, class), workload.Origin, uid)
	}
	const data = "PersistentVolumeClaim/" + ns + "/anew"
	s.put(claim("a", "slow"))
	s.is(data, workload.Progressing, "")
	old, err := s.Client.CoreV1().PersistentVolumeClaims(ns).Get(ctx, "anew", metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.put(claim("b", "fast"))
	s.is(data, workload.Failed, "MadeAnew: it was deleted and made anew at the centre", workload.Waiting)
	if got, err := s.Client.CoreV1().PersistentVolumeClaims(ns).Get(ctx, "anew", metav1.GetOptions{}); err != nil || got.UID != old.UID || got.DeletionTimestamp != nil {
		s.t.Errorf("the claim: %v, %v", got, err)
	}
	if err := s.Client.CoreV1().PersistentVolumeClaims(ns).Delete(ctx, "anew", metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.is(data, workload.Progressing, "")
	if got, err := s.Client.CoreV1().PersistentVolumeClaims(ns).Get(ctx, "anew", metav1.GetOptions{}); err != nil || *got.Spec.StorageClassName != "fast" {
		s.t.Errorf("the claim: %v, %v", got, err)
	}
	s.set(map[string]string{service: "", set: "", deploy: "", data: ""})
	for _, item := range []string{service, set, deploy, data} {
		s.gone(item)
	}
}
