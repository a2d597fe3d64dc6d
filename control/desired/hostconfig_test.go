package desired

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/hostconfig"
	"muster.dev/muster/internal/inventory"
)

// Objects are joined setting by setting, the strongest first; dry runs count only for what
// would be; a site that nothing selects has no item.
func TestHostConfigurationsAreJoined(t *testing.T) {
	book := inventory.NewBook("acme")
	put := func(name string, generation int64, spec v1alpha1.HostConfigurationSpec) {
		spec.SiteSelector.MatchLabels = map[string]string{"in": "yes"}
		book.Put(&v1alpha1.HostConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: name, Generation: generation}, Spec: spec})
	}
	for name, in := range map[string]string{"one": "yes", "two": "yes", "out": "no"} {
		book.Put(&v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: name, Labels: map[string]string{"in": in}}, Spec: v1alpha1.SiteSpec{Approved: true}})
	}
	put("strong", 1, v1alpha1.HostConfigurationSpec{Priority: 9, Sysctls: map[string]string{"vm.swappiness": "10"}, NTP: &v1alpha1.HostNTP{Servers: []string{"one"}}})
	put("weak", 1, v1alpha1.HostConfigurationSpec{Sysctls: map[string]string{"vm.swappiness": "20", "fs.file-max": "99999"}, OnDrift: hostconfig.Report, NTP: &v1alpha1.HostNTP{Servers: []string{"one"}}, Hugepages: []v1alpha1.HostHugepages{{Size: "2Mi", Count: 4}},
		Hosts: []v1alpha1.HostEntry{{Address: "192.0.2.1", Names: []string{"a", "b"}}, {Address: "2001:db8::1", Names: []string{"a", "a"}}}})
	put("dry", 1, v1alpha1.HostConfigurationSpec{Priority: 20, DryRun: true, Sysctls: map[string]string{"vm.swappiness": "1"}})
	s := New(Options{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	s.Apply(book.Snapshot())
	s.Start()
	at := func(site string) *hostconfig.Wanted {
		digest := s.HostDigest(fleet.SiteID{Tenant: "acme", Name: site})
		if digest == "" {
			return nil
		}
		b, _ := s.Blob(digest)
		w, err := hostconfig.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	if w := at("out"); w != nil {
		t.Errorf("%+v", w)
	}
	w := at("one")
	if got := fmt.Sprintln(w.Settings.Sysctls, w.Settings.Hugepages, w.Settings.Hosts, w.Settings.NTP, w.OnDrift, w.Would.Sysctls); got != "map[fs.file-max:99999 vm.swappiness:10] map[2Mi:4] map[a:[192.0.2.1 2001:db8::1] b:[192.0.2.1]] [one] Report map[fs.file-max:99999 vm.swappiness:1]\n" {
		t.Error(got)
	}
	if a, b := s.HostDigest(fleet.SiteID{Tenant: "acme", Name: "one"}), s.HostDigest(fleet.SiteID{Tenant: "acme", Name: "two"}); a != b {
		t.Error("two sites with the same objects have two blobs")
	}
	known := book.Snapshot()
	conflicts := HostConflicts(known.Sites[known.Find("acme", "one")].PoliciesOf(hostconfig.Kind))
	if got := fmt.Sprint(conflicts); got != "[{sysctl vm.swappiness weak strong}]" {
		t.Error(got) // the same servers are no conflict, and a dry run is none
	}
	// It is rendered anew when an object changes, and goes with the last.
	put("strong", 2, v1alpha1.HostConfigurationSpec{Priority: 9, Sysctls: map[string]string{"vm.swappiness": "11"}})
	s.Apply(book.Snapshot())
	if v := at("one").Settings.Sysctls["vm.swappiness"]; v != "11" || s.HostGenerations("acme")["strong"] != 2 {
		t.Error(v)
	}
	for _, name := range []string{"strong", "weak", "dry"} {
		book.Drop(&v1alpha1.HostConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: name}})
	}
	s.Apply(book.Snapshot())
	if w := at("one"); w != nil {
		t.Errorf("%+v", w)
	}
}
