package kube_test

import (
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/workload"
)

// object is one of the namespace, with annotations and the rest of its JSON.
func (s *site) object(apiVersion, kind, name, rest string, annotations ...string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"namespace":%q,"annotations":{%s}}%s}`, apiVersion, kind, name, ns, quoted(annotations...), rest)
}

// template of pods of an app.
func template(app, more string) string {
	return fmt.Sprintf(`"template":{"metadata":{"labels":{"app":%q}},"spec":{"terminationGracePeriodSeconds":0,%s"containers":[{"name":"c","image":"nginx:1"}]}}`, app, more)
}

// refusedPods: a StatefulSet, a DaemonSet and a Job whose pods the site does not take say so, are
// Failed, and come up by themselves when the cause is gone: a quota of the site's, or its Pod
// Security Standard.
func (s *site) refusedPods() {
	quota := func(pods int) {
		s.t.Helper()
		s.put(s.object("v1", "ResourceQuota", "pods", fmt.Sprintf(`,"spec":{"hard":{"pods":"%d"}}`, pods)))
		s.is("ResourceQuota/"+ns+"/pods", workload.Ready, "")
		testkit.EventuallyTrue(s.t, "the quota counts", func() bool {
			q, err := s.Client.CoreV1().ResourceQuotas(ns).Get(s.t.Context(), "pods", metav1.GetOptions{})
			return err == nil && q.Status.Hard.Pods().Value() == int64(pods)
		})
	}
	items := map[string]string{"StatefulSet.apps/" + ns + "/held": "", "DaemonSet.apps/" + ns + "/held": "", "Job.batch/" + ns + "/held": ""}
	put := func(more string) {
		s.put(s.object("apps/v1", "StatefulSet", "held", `,"spec":{"serviceName":"held","selector":{"matchLabels":{"app":"held-s"}},`+template("held-s", more)+`}`),
			s.object("apps/v1", "DaemonSet", "held", `,"spec":{"selector":{"matchLabels":{"app":"held-d"}},`+template("held-d", more)+`}`),
			s.object("batch/v1", "Job", "held", `,"spec":{"backoffLimit":0,`+template("held-j", more+`"restartPolicy":"Never",`)+`}`))
	}
	quota(0)
	put("")
	for item := range items {
		s.is(item, workload.Failed, "exceeded quota")
	}
	quota(50)
	for item := range items {
		s.is(item, workload.Ready, "")
	}
	s.set(items)
	for item := range items {
		s.gone(item)
	}
	s.set(map[string]string{"ResourceQuota/" + ns + "/pods": ""})

	enforce := func(level string) {
		s.t.Helper()
		s.put(strings.Replace(namespace(ns), `"labels":{`, `"labels":{"pod-security.kubernetes.io/enforce":"`+level+`",`, 1))
		s.is(nsItem, workload.Ready, "")
	}
	enforce("baseline")
	put(`"hostNetwork":true,`)
	for item := range items {
		s.is(item, workload.Failed, "FailedCreate: ")
		s.is(item, workload.Failed, "violates PodSecurity")
	}
	enforce("privileged")
	for item := range items {
		s.is(item, workload.Ready, "")
	}
	s.set(items)
	for item := range items {
		s.gone(item)
	}
	s.put(namespace(ns))
	s.is(nsItem, workload.Ready, "")
}

// nodePorts: a namespace's Services take as many ports of the nodes as its quota has.
func (s *site) nodePorts() {
	quota := func(n int) string {
		return s.object("v1", "ResourceQuota", "muster-quota", fmt.Sprintf(`,"spec":{"hard":{"services.nodeports":"%d"}}`, n))
	}
	service := func(name string) string {
		return s.object("v1", "Service", name, `,"spec":{"type":"NodePort","ports":[{"port":80}]}`)
	}
	const first, second = "Service/" + ns + "/first", "Service/" + ns + "/second"
	s.put(quota(1), service("first")) // the quota is not counted yet
	s.is(first, workload.Ready, "", workload.Failed)
	s.put(service("second"))
	s.is(second, workload.Failed, "exceeded quota: muster-quota, requested: services.nodeports=1, used: services.nodeports=1, limited: services.nodeports=1")
	s.put(quota(2))
	s.is(second, workload.Ready, "")
	s.set(map[string]string{first: "", second: "", "ResourceQuota/" + ns + "/muster-quota": ""})
	s.gone(second)
}

// otherVersions: the site serves a kind, in another version than what comes.
func (s *site) otherVersions() {
	crd := func(versions string) string {
		return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"skews.s.com"},"spec":{"group":"s.com","scope":"Namespaced","names":{"plural":"skews","kind":"Skew","singular":"skew","listKind":"SkewList"},"versions":[` + versions + `]}}`
	}
	version := func(name string, storage bool) string {
		return fmt.Sprintf(`{"name":%q,"served":true,"storage":%v,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`, name, storage)
	}
	s.apply(crd(version("v1beta1", true)))
	bindTo(s, "skews", rbacv1.PolicyRule{APIGroups: []string{"s.com"}, Resources: []string{"skews"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}})
	const skew, beside = "Skew.s.com/" + ns + "/one", "ConfigMap/" + ns + "/beside"
	s.put(s.object("s.com/v1", "Skew", "one", `,"spec":{"a":1}`), configMap("beside", "1"))
	s.is(skew, workload.Failed, "UnknownKind: the site's Kubernetes (v")
	s.is(skew, workload.Failed, "does not know Skew of s.com/v1")
	// The centre tells it of this site alone, with the version that runs there.
	if at := s.tells(s.t, skew, workload.Failed, "UnknownKind"); at.Digest != "" || !strings.Contains(at.Message, s.kube.Version()) || s.kube.Version() == "" {
		s.t.Errorf("of a version that the site lacks: %+v", at)
	}
	s.is(beside, workload.Ready, "")
	crds := s.dyn.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	both := []byte(`{"spec":{"versions":[` + version("v1beta1", true) + "," + version("v1", false) + `]}}`)
	if _, err := crds.Patch(s.t.Context(), "skews.s.com", types.MergePatchType, both, metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.is(skew, workload.Ready, "")
	s.tells(s.t, skew, workload.Ready, "")

	// One that is larger than what the site's etcd takes is refused, and nothing else.
	large := strings.Replace(skew, "one", "large", 1)
	put := func(n int) {
		s.put(s.object("s.com/v1", "Skew", "large", `,"spec":{"a":"`+strings.Repeat("x", n)+`"}`))
	}
	put(1600 << 10)
	s.put(configMap("beside", "2"))
	s.is(large, workload.Failed, "TooLarge: the site's API server says that it is too large")
	s.is(beside, workload.Ready, "")
	put(100)
	s.is(large, workload.Ready, "")
	// One at which the API server panics, as that of 1.35 does at this, holds up no other.
	const service = "Service/" + ns + "/panics"
	s.put(s.object("v1", "Service", "panics", `,"spec":{"ports":[{"port":80}]}`))
	s.is(service, workload.Ready, "")
	s.put(s.object("v1", "Service", "panics", `,"spec":{"clusterIP":"None","ipFamilyPolicy":"RequireDualStack","ports":[{"port":80}]}`))
	s.is(service, workload.Waiting, "ApiServerError")
	s.put(configMap("beside", "3"))
	s.is(beside, workload.Ready, "")
	s.put(s.object("v1", "Service", "panics", `,"spec":{"ports":[{"port":80}]}`))
	s.is(service, workload.Ready, "")
	s.set(map[string]string{skew: "", large: "", beside: "", service: ""})
	s.gone(skew)
}
