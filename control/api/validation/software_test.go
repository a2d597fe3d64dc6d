package validation

import (
	"strings"
	"testing"

	"muster.dev/muster/control/api/v1alpha1"
)

func TestSoftwareVersion(t *testing.T) {
	release := func(edit func(*v1alpha1.SoftwareVersionSpec)) *v1alpha1.SoftwareVersion {
		s := &v1alpha1.SoftwareVersion{Spec: v1alpha1.SoftwareVersionSpec{Component: v1alpha1.SoftwareOS, Version: "1.4.2-rc.1",
			Bundles:  []v1alpha1.SoftwareBundle{{Architecture: "amd64", Target: "os/1.4.2/amd64.img", Digest: strings.Repeat("0", 64), Size: 1}},
			Requires: map[v1alpha1.SoftwareComponent]string{"os": "1.4.1", "agent": "2.0.0"}}}
		edit(&s.Spec)
		return s
	}
	expect(t, "a good one", SoftwareVersion(release(func(*v1alpha1.SoftwareVersionSpec) {})))
	expect(t, "four numbers", SoftwareVersion(release(func(s *v1alpha1.SoftwareVersionSpec) { s.Version = "1.2.3.4" })), "spec.version", "1.4.2-rc.1")
	expect(t, "a v", SoftwareVersion(release(func(s *v1alpha1.SoftwareVersionSpec) { s.Requires["agent"] = "v2.0.0" })), "spec.requires[agent]", "without a v")
	expect(t, "itself", SoftwareVersion(release(func(s *v1alpha1.SoftwareVersionSpec) { s.Requires["os"] = "1.4.2" })), "spec.requires[os]", "older")
	expect(t, "any and one more", SoftwareVersion(release(func(s *v1alpha1.SoftwareVersionSpec) {
		s.Bundles = append(s.Bundles, v1alpha1.SoftwareBundle{Architecture: "any"})
	})), "spec.bundles", "either")
	expect(t, "an image beside a file for any machine", SoftwareVersion(release(func(s *v1alpha1.SoftwareVersionSpec) {
		s.Component, s.Requires = v1alpha1.SoftwareAgent, nil
		s.Bundles = []v1alpha1.SoftwareBundle{{Architecture: "any"}, {Architecture: "kubernetes"}}
	})))
	expect(t, "an operating system as an image of pods", SoftwareVersion(release(func(s *v1alpha1.SoftwareVersionSpec) { s.Bundles[0].Architecture = "kubernetes" })), "spec.bundles", "agent alone")
	expect(t, "a site's wish", Site(&v1alpha1.Site{Spec: v1alpha1.SiteSpec{Software: map[v1alpha1.SoftwareComponent]string{"os": "latest"}}}), "spec.software[os]", "1.4.2")
	expect(t, "an empty one", Site(&v1alpha1.Site{Spec: v1alpha1.SiteSpec{Software: map[v1alpha1.SoftwareComponent]string{"os": ""}}}), "spec.software[os]")
}
