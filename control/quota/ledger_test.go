package quota

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

func namespaceValue(t *testing.T, name, tenant string) []byte {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"muster.dev/tenant": tenant}}}
	b, err := runtime.Encode(scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), ns)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func ledger(t *testing.T, quotas string) *Ledger {
	t.Helper()
	l := New(Options{})
	for _, ns := range []string{"acme-system", "acme-shop"} {
		l.Set("namespaces/"+ns, namespaceValue(t, ns, "acme"))
	}
	l.Set("namespaces/acme-eu-shop", namespaceValue(t, "acme-eu-shop", "acme-eu"))
	l.Set("namespaces/default", namespaceValue(t, "default", ""))
	l.Set("muster.dev/tenants/acme", []byte(`{"spec":{"quotas":`+quotas+`}}`))
	return l
}

func over(t *testing.T, err error) string {
	t.Helper()
	var e *Exceeded
	if err == nil {
		return ""
	}
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	return e.Quota
}

func create(ns, name string, bytes int64) Write {
	return Write{Resource: "configmaps", Namespace: ns, Name: name, Create: true, New: bytes}
}

func TestObjectsOfAllNamespacesCountTogether(t *testing.T) {
	l := ledger(t, `{"objects":3}`)
	l.Set("configmaps/acme-shop/a", make([]byte, 100))
	l.Set("secrets/acme-system/b", make([]byte, 100))
	if err := l.Admit(create("acme-shop", "c", 10)); err != nil {
		t.Fatal(err)
	}
	err := l.Admit(create("acme-system", "d", 10))
	if over(t, err) != "objects" || !strings.Contains(err.Error(), "3 of 3") || !strings.Contains(err.Error(), "spec.quotas.objects") {
		t.Errorf("the fourth, while the third is under way: %v", err)
	}
	if err := l.Admit(create("acme-shop", "c", 10)); err != nil {
		t.Errorf("another try of the third: %v", err)
	}
	l.Set("configmaps/acme-shop/c", make([]byte, 10))
	if got := l.Usage("acme"); got.Objects != 3 {
		t.Errorf("%+v", got)
	}
	for _, free := range []Write{create("acme-eu-shop", "x", 10), create("default", "x", 10), {Resource: "configmaps", Namespace: "acme-shop", Name: "a", Old: 100, New: 90}} {
		if err := l.Admit(free); err != nil {
			t.Errorf("%+v: %v", free, err)
		}
	}
	trusted := create("acme-shop", "e", 10)
	if trusted.Trusted = true; l.Admit(trusted) != nil {
		t.Error("Muster itself was refused")
	}
	l.Delete("configmaps/acme-shop/e")
	l.Delete("secrets/acme-system/b")
	l.Delete("secrets/acme-system/b")
	if got := l.Usage("acme"); got.Objects != 2 {
		t.Errorf("after a deletion: %+v", got)
	}
}

// What Muster tells a tenant's users takes no room of the tenant's; what they write does.
func TestOwnEventsCountForNobody(t *testing.T) {
	l := ledger(t, `{}`)
	event := func(source, reporter string) []byte {
		t.Helper()
		b, err := runtime.Encode(scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}, Source: corev1.EventSource{Component: source}, ReportingController: reporter})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	l.Set("events/acme-system/a", event("muster-control", ""))
	l.Set("events/acme-system/b", event("", "muster-control"))
	if got := l.Usage("acme"); got != (Usage{}) {
		t.Errorf("Muster's: %+v", got)
	}
	l.Set("events/acme-system/c", event("operator", "operator"))
	l.Set("events/acme-system/d", []byte("no event"))
	if got := l.Usage("acme"); got.Objects != 2 {
		t.Errorf("others': %+v", got)
	}
	l.Set("events/acme-system/c", event("muster-control", ""))
	l.Delete("events/acme-system/a")
	if got := l.Usage("acme"); got.Objects != 1 {
		t.Errorf("in the end: %+v", got)
	}
}

func TestBytes(t *testing.T) {
	l := ledger(t, `{"objectBytes":1000}`)
	l.Set("configmaps/acme-shop/a", make([]byte, 878)) // and 22 of its key
	if got := l.Usage("acme").ObjectBytes; got != 900 {
		t.Fatalf("%d bytes", got)
	}
	if err := l.Admit(create("acme-shop", "b", 200)); over(t, err) != "objectBytes" || !strings.Contains(err.Error(), "900 of 1000") {
		t.Errorf("%v", err)
	}
	grow := Write{Resource: "configmaps", Namespace: "acme-shop", Name: "a", Old: 878, New: 1200}
	if err := l.Admit(grow); over(t, err) != "objectBytes" {
		t.Errorf("an object that grows: %v", err)
	}
	if grow.New = 500; l.Admit(grow) != nil {
		t.Error("an object that shrinks was refused")
	}
	l.Set("configmaps/acme-shop/a", make([]byte, 478))
	if err := l.Admit(create("acme-shop", "b", 200)); err != nil {
		t.Errorf("after it has shrunk: %v", err)
	}
}

func TestSites(t *testing.T) {
	l := ledger(t, `{"sites":2,"objects":1}`)
	site := func(name, spec string) { l.Set("muster.dev/sites/acme-system/"+name, []byte(`{"spec":`+spec+`}`)) }
	add := func(name string, s Site) error {
		return l.Admit(Write{Resource: "muster.dev/sites", Namespace: "acme-system", Name: name, Create: true, New: 100, Is: &s, Trusted: true})
	}
	change := func(was, is Site) error {
		return l.Admit(Write{Resource: "muster.dev/sites", Namespace: "acme-system", Name: "x", New: 100, Old: 100, Was: &was, Is: &is, DryRun: true})
	}
	site("a", `{"approved":true}`)
	site("gone", `{"approved":true,"decommissioned":true}`)
	if err := add("b", Site{}); err != nil {
		t.Errorf("the second: %v", err)
	}
	if err := add("c", Site{}); over(t, err) != "sites" || !strings.Contains(err.Error(), "spec.quotas.sites") {
		t.Errorf("the third, by Muster itself: %v", err)
	}
	site("b", `{}`)
	if got := l.Usage("acme"); got.Sites != 2 || got.Objects != 0 {
		t.Errorf("%+v", got)
	}
	if err := change(Site{}, Site{Approved: true}); err != nil {
		t.Errorf("the second's approval: %v", err)
	}
	l.Set("muster.dev/tenants/acme", []byte(`{"spec":{"quotas":{"sites":1}}}`))
	if err := change(Site{}, Site{Approved: true}); over(t, err) != "sites" {
		t.Errorf("an approval over a quota that became smaller: %v", err)
	}
	if err := change(Site{Approved: true}, Site{Approved: true, Decommissioned: true}); err != nil {
		t.Errorf("a decommissioning: %v", err)
	}
	if err := change(Site{Approved: true}, Site{Approved: true}); err != nil {
		t.Errorf("a label: %v", err)
	}
}

// A tenant that says nothing has the installation's limits, one that says -1 none. Who has
// more sites than a limit that came later keeps them.
func TestDefaultsOfTheInstallation(t *testing.T) {
	l := New(Options{Defaults: v1alpha1.TenantQuotas{Sites: 2, Objects: 1}})
	spaces := []string{"silent", "free"}
	for _, tenant := range spaces {
		l.Set("namespaces/"+tenant+"-system", namespaceValue(t, tenant+"-system", tenant))
		for _, name := range []string{"a", "b", "c"} { // from before there was a limit
			l.Set("muster.dev/sites/"+tenant+"-system/"+name, []byte(`{"spec":{"approved":true}}`))
		}
		l.Set("configmaps/"+tenant+"-system/x", []byte("{}"))
	}
	l.Set("muster.dev/tenants/silent", []byte(`{"spec":{"quotas":{"sites":0}}}`))
	l.Set("muster.dev/tenants/free", []byte(`{"spec":{"quotas":{"sites":-1,"objects":-1}}}`))
	site := func(tenant, name string, isNew bool) error {
		w := Write{Resource: "muster.dev/sites", Namespace: tenant + "-system", Name: name, Create: isNew, New: 100, Is: &Site{Approved: true}, Trusted: true}
		if !isNew {
			w.Was = &Site{Approved: true}
		}
		return l.Admit(w)
	}
	for _, tenant := range spaces {
		if err := site(tenant, "a", false); err != nil {
			t.Errorf("a site that %s has: %v", tenant, err)
		}
	}
	if err := site("silent", "d", true); over(t, err) != "sites" || !strings.Contains(err.Error(), "3 of 2") || !strings.Contains(err.Error(), "spec.quotas.sites") {
		t.Errorf("one more: %v", err)
	}
	if err := l.Admit(create("silent-system", "y", 10)); over(t, err) != "objects" {
		t.Errorf("one more object: %v", err)
	}
	if err := errors.Join(site("free", "d", true), l.Admit(create("free-system", "y", 10))); err != nil {
		t.Errorf("without a limit: %v", err)
	}
}

// Whoever writes the same object again and again fills etcd with its versions.
func TestWritesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger(t, `{}`)
		again := Write{Resource: "configmaps", Namespace: "acme-shop", Name: "a", Old: 1 << 20, New: 1 << 20}
		passed, refused := 0, error(nil)
		for range 600 { // ten minutes, a write a second
			if err := l.Admit(again); err == nil {
				passed++
			} else {
				refused = err
			}
			time.Sleep(time.Second)
		}
		if limit := (WriteBurst + 600*WriteBytesPerSecond) / (1 << 20); passed > limit || passed < limit*9/10 {
			t.Errorf("%d MiB in ten minutes, the budget is %d", passed, limit)
		}
		var e *Exceeded
		if !errors.As(refused, &e) || e.Retry < 1 || e.Retry > 10 {
			t.Errorf("%+v", e)
		}
		if err := l.Admit(create("acme-eu-shop", "x", 1<<20)); err != nil {
			t.Errorf("a neighbour: %v", err)
		}
	})
}

func TestAWriteThatFailedStopsCounting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger(t, `{"objects":1}`)
		if err := l.Admit(create("acme-shop", "a", 10)); err != nil {
			t.Fatal(err)
		}
		if err := l.Admit(create("acme-shop", "b", 10)); err == nil {
			t.Error("two pass while one is under way")
		}
		time.Sleep(pendingFor + time.Second)
		if err := l.Admit(create("acme-shop", "b", 10)); err != nil {
			t.Errorf("what was never stored counts for ever: %v", err)
		}
	})
}

func TestNamespaceChangesHands(t *testing.T) {
	l := ledger(t, `{}`)
	l.Set("configmaps/default/a", make([]byte, 10))
	l.Set("namespaces/default", namespaceValue(t, "default", "acme"))
	if got := l.Usage("acme").Objects; got != 1 {
		t.Errorf("%d", got)
	}
	l.Set("namespaces/default", namespaceValue(t, "default", "acme-eu"))
	if a, b := l.Usage("acme").Objects, l.Usage("acme-eu").Objects; a != 0 || b != 1 {
		t.Errorf("%d, %d", a, b)
	}
	l.Delete("namespaces/default")
	if got := l.Usage("acme-eu"); got != (Usage{}) {
		t.Errorf("%+v", got)
	}
}

func TestStoreKeepsRoomForMuster(t *testing.T) {
	l := ledger(t, `{}`)
	l.SetStore(Store{InUse: 85, Size: 90, Quota: 100})
	w := create("acme-shop", "a", 10)
	if err := l.Admit(w); err == nil || !strings.Contains(err.Error(), "store") {
		t.Errorf("%v", err)
	}
	if w.Trusted = true; l.Admit(w) != nil {
		t.Error("Muster itself was refused")
	}
	if err := l.Admit(Write{Resource: "configmaps", Namespace: "acme-shop", Name: "a", Old: 100, New: 10}); err != nil {
		t.Errorf("an object that shrinks: %v", err)
	}
}

func TestConcurrentWritesDoNotPassTogether(t *testing.T) {
	l := ledger(t, `{"objects":10}`)
	var wg sync.WaitGroup
	var mu sync.Mutex
	passed := 0
	for i := range 100 {
		wg.Go(func() {
			if l.Admit(create("acme-shop", fmt.Sprint(i), 10)) == nil {
				mu.Lock()
				passed++
				mu.Unlock()
				l.Set(fmt.Sprintf("configmaps/acme-shop/%d", i), make([]byte, 10))
			}
		})
	}
	wg.Wait()
	if passed != 10 {
		t.Errorf("%d of 10 passed", passed)
	}
}

// Whatever stands in etcd, the sum of what was booked is what would be booked anew.
func FuzzLedger(f *testing.F) {
	f.Add("configmaps/acme-shop/a", []byte("x"), "muster.dev/sites/acme-system/s", []byte(`{"spec":{"approved":true}}`))
	f.Add("services/specs/acme-shop/a", []byte{}, "muster.dev/tenants/acme", []byte(`{"spec":`))
	f.Add("namespaces/acme-shop", []byte("k8s\x00"), "a/b", []byte("{}"))
	f.Fuzz(func(t *testing.T, k1 string, v1 []byte, k2 string, v2 []byte) {
		l := ledger(t, `{}`)
		before := l.Usage("acme")
		for range 2 {
			l.Set(k1, v1)
			l.Set(k2, v2)
		}
		l.Delete(k2)
		l.Delete(k1)
		for name := range l.tenants {
			if u := l.Usage(name); u.Objects < 0 || u.ObjectBytes < 0 || u.Sites < 0 {
				t.Errorf("%s: %+v", name, u)
			}
		}
		if got := l.Usage("acme"); got != before {
			t.Errorf("%+v after %+v", got, before)
		}
	})
}

func TestComingNamespaces(t *testing.T) {
	l := New(Options{})
	l.Set("muster.dev/tenants/acme-eu", []byte(`{"spec":{"namespaces":["shop"]}}`))
	for ns, want := range map[string]bool{"acme-eu-system": true, "acme-eu-shared": true, "acme-eu-shop": true, "acme-eu-pay": false, "acme-eu": false, "acme-system": false, "": false} {
		if got := l.Coming(ns); got != want {
			t.Errorf("%q: %v", ns, got)
		}
	}
	l.Set("namespaces/acme-eu-shop", namespaceValue(t, "acme-eu-shop", "acme-eu"))
	if l.Coming("acme-eu-shop") {
		t.Error("it is there")
	}
	l.Delete("muster.dev/tenants/acme-eu")
	if l.Coming("acme-eu-system") {
		t.Error("of a tenant that is gone")
	}
}

func TestHolds(t *testing.T) {
	l := ledger(t, `{}`)
	l.Set("vm.example.com/machines/acme-shop/till", []byte(`{}`))
	for _, c := range []struct {
		namespace, resource string
		want                bool
	}{
		{"acme-shop", "vm.example.com/machines", true}, {"acme-shop", "vm.example.com/machine", false}, {"acme-shop", "vm.example.com", false},
		{"acme-shop", "example.com/machines", false}, {"acme-system", "vm.example.com/machines", false}, {"nowhere", "vm.example.com/machines", false},
	} {
		if got := l.Holds(c.namespace, c.resource); got != c.want {
			t.Errorf("%s in %s: %t", c.resource, c.namespace, got)
		}
	}
	l.Delete("vm.example.com/machines/acme-shop/till")
	if l.Holds("acme-shop", "vm.example.com/machines") {
		t.Error("it is deleted")
	}
}

// A request is charged when it comes, whoever of the tenant sends it and whatever comes of it;
// what it stores is not charged a second time.
func TestRequestsAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger(t, `{}`)
		small := Request{Tenant: "acme"}
		passed := 0
		for ; passed < 100_000; passed++ {
			if _, err := l.Charge(small); err != nil {
				var e *Exceeded
				if !errors.As(err, &e) || e.Retry != 1 || e.Tenant != "acme" {
					t.Errorf("%+v", err)
				}
				break
			}
		}
		if passed != WriteBurst/RequestOverhead {
			t.Errorf("%d small requests at once", passed)
		}
		for _, r := range []Request{{Tenant: "acme-eu", Body: 1 << 20}, {Person: "eve"}, {Tenant: fleet.PlatformTenant, Body: 1 << 30}} {
			if _, err := l.Charge(r); err != nil {
				t.Errorf("%+v: %v", r, err)
			}
		}
		if err := l.Admit(Write{Resource: "configmaps", Namespace: "acme-shop", Name: "a", Create: true, New: 1 << 20, Paid: 2 << 20}); err != nil {
			t.Errorf("what was paid: %v", err)
		}
		if err := l.Admit(Write{Resource: "configmaps", Namespace: "acme-shop", Name: "b", Create: true, New: 1 << 20, Paid: RequestOverhead}); over(t, err) != "of bytes written a second" {
			t.Errorf("what grew on the way: %v", err)
		}
		// An object is read for a change of it, however short.
		l.Set("configmaps/acme-eu-shop/big", make([]byte, 1<<20))
		if cost, err := l.Charge(Request{Tenant: "acme-eu", Resource: "configmaps", Namespace: "acme-eu-shop", Name: "big", Body: 2}); err != nil || cost < 1<<20 {
			t.Errorf("a short change of a large object costs %d, %v", cost, err)
		}
	})
}
