package fleetapi

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

func TestACertificateIsKnownBeforeItIsWritten(t *testing.T) {
	w := newWorld(t).started()
	s := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "new"}, Spec: v1alpha1.SiteSpec{Approved: true, PublicKey: "k"}}
	if err := w.client.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	until := w.now().Add(90 * 24 * time.Hour).Truncate(time.Second)
	if !w.server.Certified(s.DeepCopy(), until) {
		t.Error("the first certificate is not said to be the first")
	}
	if w.server.Certified(s.DeepCopy(), until) {
		t.Error("a second one is said to be the first")
	}
	w.server.mu.Lock()
	if wait := w.server.sites[acme("new")].settles.Sub(w.now()); wait <= settle {
		t.Errorf("a site that has just registered is written after %s, too soon for it to connect", wait)
	}
	w.server.mu.Unlock()
	w.regional("eu-1").up(acme("new"), nil)
	w.phase("new", fleet.PhaseOnline)
	if c := w.get("new").Status.CertificateNotAfter; c == nil || !c.Time.Equal(until) {
		t.Errorf("certificateNotAfter %v, want %s", c, until)
	}

	// One that is deleted before anything was written stays revoked as long as it could connect.
	gone := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "gone"}, Spec: v1alpha1.SiteSpec{Approved: true, PublicKey: "k"}}
	w.server.Certified(gone, until)
	w.server.DeleteSite(acme("gone"))
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	if r, _ := w.server.revoked.Get(acme("gone")); r.Until.Before(until) {
		t.Errorf("revoked until %s, its certificate lasts until %s", r.Until, until)
	}
}

// A fleet that joins at once comes late: what is written of sites that have not come takes a
// fifth of what may be written, and nobody waits for longer than a minute. One that joins
// alone is written as soon as ever.
func TestSitesThatJoinTogetherAreGivenTimeToCome(t *testing.T) {
	w := newWorld(t).started()
	// join is when the site is written if it does not come; least and most are how long it has,
	// by the clocks after and before it joined.
	join := func(name string) (at time.Time, least, most time.Duration) {
		s := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: name}, Spec: v1alpha1.SiteSpec{Approved: true, PublicKey: "k"}}
		before := w.now()
		w.server.SetSite(acme(name), s) // the watch
		w.server.Certified(s.DeepCopy(), w.now().Add(time.Hour))
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		at = w.server.sites[acme(name)].settles
		return at, at.Sub(w.now()), at.Sub(before)
	}
	alone := func(name string) {
		t.Helper()
		if _, least, most := join(name); least > comes || most < comes {
			t.Errorf("site %s alone has %s to %s to come, want %s", name, least, most, comes)
		}
	}
	alone("first")
	const n = 3000
	soon := w.now().Add(10 * time.Second)
	within := 0
	var last time.Time
	for i := range n {
		at, least, most := join(fmt.Sprintf("s-%d", i))
		if at.Before(last) || least > comesLate || i == n-1 && most < comesLate {
			t.Fatalf("site %d has %s to %s to come, at most %s, and the one before %s", i, least, most, comesLate, last.Sub(at)+least)
		}
		if last = at; at.Before(soon) {
			within++
		}
	}
	if want := int(10*time.Second/comesEvery) + 1; within > want {
		t.Errorf("of %d sites that joined together %d are written within ten seconds, want at most %d", n, within, want)
	}
	// What somebody decides meanwhile is not kept waiting.
	w.server.SetSite(acme("s-2999"), &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "s-2999"}, Spec: v1alpha1.SiteSpec{Approved: true, PublicKey: "k", Decommissioned: true}})
	if n := w.server.queue.Len(); n != 1 {
		t.Errorf("of a site that is decommissioned before it has come %d writes are due at once, want 1", n)
	}
	w.pass(10 * time.Minute)
	alone("later")
}
