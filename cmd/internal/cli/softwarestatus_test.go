package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
)

// fleetWithSoftware is five sites on their way from agent 1.0.0 to 1.1.0.
func fleetWithSoftware(t *testing.T) client.Client {
	t.Helper()
	forty, later := int32(40), metav1.NewTime(time.Date(2026, 12, 1, 2, 0, 0, 0, time.UTC))
	var objs []client.Object
	for name, s := range map[string]v1alpha1.SiteSoftware{
		"berlin": {Running: "1.1.0", Wanted: "1.1.0", State: v1alpha1.SoftwareDone},
		"lyon":   {Running: "1.0.0", Wanted: "1.1.0", State: v1alpha1.SoftwareDownloading, Percent: &forty},
		"oslo":   {Running: "1.0.0", Wanted: "1.1.0", State: v1alpha1.SoftwareScheduled, StartsAt: &later},
		"paris":  {Running: "1.0.0", Wanted: "1.1.0", State: v1alpha1.SoftwareFailed, Message: "not well within 10m0s; \x1b[31m1.0.0 runs"},
	} {
		s.Component = v1alpha1.SoftwareAgent
		objs = append(objs, &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: name, Labels: map[string]string{"city": name}}, Status: v1alpha1.SiteStatus{Software: []v1alpha1.SiteSoftware{s}}})
	}
	objs = append(objs, &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "quiet"}})
	for _, number := range []string{"1.0.0", "1.1.0", "1.10.0"} {
		objs = append(objs, &v1alpha1.SoftwareVersion{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "agent-" + number},
			Spec: v1alpha1.SoftwareVersionSpec{Component: v1alpha1.SoftwareAgent, Version: number, Bundles: []v1alpha1.SoftwareBundle{{Architecture: "amd64", Size: 100 << 20}}}})
	}
	return fakeClient(t, objs...)
}

func TestSoftwareStatus(t *testing.T) {
	c := fleetWithSoftware(t)
	show := func(change func(*softwareView)) string {
		t.Helper()
		v := &softwareView{g: &Globals{}, c: c, tenants: []v1alpha1.Tenant{{ObjectMeta: metav1.ObjectMeta{Name: "acme"}}}, selector: labels.Everything()}
		change(v)
		var b bytes.Buffer
		if err := v.show(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	got := show(func(*softwareView) {})
	for _, want := range []string{"agent 1.1.0             1 done, 1 downloading, 1 scheduled, 1 failed\n", "1 of 5 sites report no software yet", "Downloading 40 %", "Scheduled for 2026-12-01T02:00:00Z", "Failed, on 1.0.0", "not well within 10m0s"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "berlin") || strings.Contains(got, "\x1b") {
		t.Errorf("what is done is not listed, and what a site says is no escape sequence:\n%s", got)
	}
	if got := show(func(v *softwareView) { v.all = true }); !strings.Contains(got, "berlin") {
		t.Errorf("--all:\n%s", got)
	}
	if got := show(func(v *softwareView) { v.selector = labels.SelectorFromSet(labels.Set{"city": "lyon"}) }); strings.Contains(got, "paris") || !strings.Contains(got, "1 downloading") {
		t.Errorf("a selector:\n%s", got)
	}
	if got := show(func(v *softwareView) { v.component = "os" }); strings.Contains(got, "agent") {
		t.Errorf("another component:\n%s", got)
	}
}

func TestSoftwareList(t *testing.T) {
	versions, sites, err := softwareOf(t.Context(), fleetWithSoftware(t), "acme")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"agent 1.10.0 amd64 100MiB 0 0 0", "agent 1.1.0 amd64 100MiB 1 2 1", "agent 1.0.0 amd64 100MiB 3 0 0"} // run, on their way, failed
	for i := range versions {
		if got := strings.Join(versionRow("acme", &versions[i], sites)[1:7], " "); got != want[i] {
			t.Errorf("%q, want %q", got, want[i])
		}
	}
}
