package validation

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
)

func TestWorkloadAnnotations(t *testing.T) {
	all := func(string) bool { return true }
	deployment, _ := offered.NewSet().Of(schema.GroupKind{Group: "apps", Kind: "Deployment"})
	secret, _ := offered.NewSet().Of(schema.GroupKind{Kind: "Secret"})
	for _, c := range []struct {
		kind       offered.Kind
		key, value string
		want       string // part of the error; "": none
	}{
		{deployment, "ves.io/workload-flavor", "large", ""}, {deployment, "ves.io/workload-flavor", "", "want the name of a flavor"}, {deployment, "ves.io/workload-flavor", "xl", "tiny, medium, large"},
		{secret, "ves.io/workload-flavor", "tiny", "StatefulSet"}, {secret, "ves.io/overrides", "a", "a Secret has none"},
		{deployment, "muster.dev/apply", "Pessimistic", ""}, {deployment, "muster.dev/apply", "pessimistic", "Optimistic or Pessimistic"},
		{deployment, "muster.dev/apply-deadline", "90s", ""}, {deployment, "muster.dev/apply-deadline", "0s", "1s and 24h"}, {deployment, "muster.dev/prepull-deadline", "25h", "1s and 24h"},
		{deployment, "muster.dev/prepull", "yes", "true or false"}, {deployment, "muster.dev/bundle", "shop", ""}, {deployment, "muster.dev/bundle", "The Shop", "the objects of the bundle share"},
		{secret, "muster.dev/drift", "Leave", ""}, {secret, "muster.dev/offline-sites", "Skip", "Wait or Ignore"}, {deployment, "team", "huge", ""}, {deployment, "muster.dev/rollout", "web-1", ""},
	} {
		errs, warnings := WorkloadAnnotations(c.kind, map[string]string{c.key: c.value}, all)
		if err := errs.ToAggregate(); (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "metadata.annotations["+c.key+"]")) {
			t.Errorf("%s %s=%s: %v, want %q", c.kind.Kind, c.key, c.value, err, c.want)
		}
		if len(warnings) != 0 {
			t.Errorf("%s: %v", c.key, warnings)
		}
	}
	if errs, warnings := WorkloadAnnotations(deployment, map[string]string{"ves.io/virtual-site": "a/b"}, all); len(errs) != 0 || len(warnings) != 1 || !strings.Contains(warnings[0], "ves.io/virtual-sites") {
		t.Errorf("a slip of the pen: %v, %v", errs, warnings)
	}
	if errs, _ := WorkloadAnnotations(deployment, map[string]string{"muster.dev/drift": "old"}, func(string) bool { return false }); len(errs) != 0 {
		t.Errorf("what was let in before: %v", errs)
	}
}

func TestPodSecurity(t *testing.T) {
	template := func(pod map[string]any) map[string]any { return map[string]any{"spec": pod} }
	plain := template(map[string]any{"containers": []any{map[string]any{"name": "a", "image": "a"}}})
	host := template(map[string]any{"hostNetwork": true, "containers": []any{map[string]any{"name": "a", "image": "a"}}})
	for _, c := range []struct {
		level    v1alpha1.PodSecurityLevel
		template map[string]any
		want     string
	}{
		{v1alpha1.PodSecurityPrivileged, host, ""}, {v1alpha1.PodSecurityBaseline, plain, ""}, {v1alpha1.PodSecurityBaseline, host, "hostNetwork=true"}, {"", host, "hostNetwork=true"},
		{v1alpha1.PodSecurityRestricted, plain, "runAsNonRoot"}, {v1alpha1.PodSecurityBaseline, map[string]any{"spec": "x"}, "can't be read"}, {v1alpha1.PodSecurityBaseline, nil, ""},
	} {
		if err := PodSecurity(c.level, c.template); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.level, err, c.want)
		}
	}
}

func TestOverride(t *testing.T) {
	override := func(raw string, sites ...string) *v1alpha1.Override {
		return &v1alpha1.Override{Spec: v1alpha1.OverrideSpec{SiteList: sites, Spec: runtime.RawExtension{Raw: []byte(raw)}}}
	}
	for _, c := range []struct {
		o    *v1alpha1.Override
		want string
	}{
		{override(`{"replicas":1}`, "paris"), ""}, {override(`{}`, "paris"), "the whole spec"}, {override(`[]`, "paris"), "the whole spec"},
		{override(`{"replicas":1}`, "paris", "acme/berlin"), "spec.siteList[1]"}, {override(`{"spec":{}}`, "paris"), "not the object"},
	} {
		if err := Override(c.o).ToAggregate(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.o.Spec.Spec.Raw, err, c.want)
		}
	}
}
