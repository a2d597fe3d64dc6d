package fleetapi

import (
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
