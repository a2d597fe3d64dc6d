package fleetapi

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// told keeps events.
type told struct {
	mu   sync.Mutex
	said []string
}

func (e *told) Event(o runtime.Object, kind, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.said = append(e.said, fmt.Sprintf("%T %s %s %s: %s", o, o.(client.Object).GetName(), kind, reason, message))
}

func (e *told) count(part string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, s := range e.said {
		if strings.Contains(s, part) {
			n++
		}
	}
	return n
}

func TestEventsTellOfSites(t *testing.T) {
	var e told
	w := newWorld(t, func(o *Options) { o.Recorder = &e }).started()
	tells := func(what string) {
		t.Helper()
		w.eventually(what, func() bool { return e.count("*v1alpha1.Site paris "+what) > 0 })
	}
	end := metav1.NewTime(w.now().Add(time.Hour).Truncate(time.Second))
	id := w.site("paris", func(s *v1alpha1.Site) { s.Spec.Approved = false })
	w.phase("paris", fleet.PhasePending)
	w.change("paris", func(s *v1alpha1.Site) { s.Spec.Approved = true })
	tells("Normal Approved")
	r := w.regional("eu-1")
	r.up(id, nil)
	tells("Normal Online: connected to regional eu-1")
	r.report(id, &wire.Report{Conditions: []*wire.Condition{{Type: "CollectionPolicyApplied", Status: "False", Reason: "Rejected", Message: "bad regex"}}})
	tells("Warning PolicyRefused: keeps its last good collection policy: bad regex")

	// What others write, as the watch brings it.
	status := func(fn func(*v1alpha1.SiteStatus)) {
		t.Helper()
		w.eventually("a write of others", func() bool {
			s := w.get("paris")
			fn(&s.Status)
			if w.client.Status().Update(t.Context(), s) != nil {
				return false
			}
			w.server.SetSite(id, s)
			return true
		})
	}
	health := func(c fleet.Colour) {
		status(func(s *v1alpha1.SiteStatus) { s.Health = &v1alpha1.SiteHealth{Colour: c, Reason: "disk full"} })
	}
	health(fleet.Green)
	health(fleet.Orange)
	tells("Warning TurnedOrange: was green: disk full")
	health(fleet.Green)
	tells("Normal TurnedGreen: was orange")
	health(fleet.Orange)
	if n := e.count("Red"); n != 0 {
		t.Errorf("%d events of colours that nobody needs", n)
	}
	health(fleet.Red)
	tells("Warning TurnedRed: was orange: disk full")
	health(fleet.Green)
	tells("Normal NoLongerRed: is green")
	status(func(s *v1alpha1.SiteStatus) { s.Maintenance = &v1alpha1.SiteMaintenance{Reason: "new disks"} })
	tells("Normal MaintenanceBegan: new disks")
	status(func(s *v1alpha1.SiteStatus) { s.Maintenance = nil })
	tells("Normal MaintenanceEnded: new disks")
	status(func(s *v1alpha1.SiteStatus) {
		s.Maintenance = &v1alpha1.SiteMaintenance{Reason: "nightly", Window: "night"}
	})
	tells("Normal MaintenanceBegan: nightly (window night)")
	status(func(s *v1alpha1.SiteStatus) { s.CertificateNotAfter = &end })
	later := metav1.NewTime(end.Add(time.Hour))
	status(func(s *v1alpha1.SiteStatus) { s.CertificateNotAfter = &later })
	tells("Normal CertificateRenewed: until " + later.UTC().Format(time.RFC3339))
	w.pass(time.Hour + time.Minute) // after the first one's end
	if n := e.count("CertificateExpired"); n != 0 {
		t.Errorf("%d certificates expired", n)
	}
	w.pass(time.Hour)
	w.pass(time.Hour)
	if n := e.count("CertificateExpired"); n != 1 {
		t.Errorf("%d events of one certificate", n)
	}
	r.down(id)
	w.unowned(id)
	w.pass(time.Minute)
	tells("Warning Offline: not connected any more; it was on regional eu-1")
	w.change("paris", func(s *v1alpha1.Site) { s.Spec.Decommissioned = true })
	tells("Normal Decommissioned")
	if n := e.count("Normal Online"); n != 1 {
		t.Errorf("%d events of one coming", n)
	}
}

// A fleet that comes back makes a bounded number of events, and none is forgotten.
func TestAFleetThatComesBackIsSummedUp(t *testing.T) {
	var e told
	w := newWorld(t, func(o *Options) { o.Recorder = &e }).started()
	const sites = 200
	r := w.regional("eu-1")
	for i := range sites {
		r.up(w.site(fmt.Sprintf("s%d", i)), nil)
	}
	other := fleet.SiteID{Tenant: "other", Name: "x"}
	w.eventually("all are online", func() bool {
		for i := range sites {
			if w.get(fmt.Sprintf("s%d", i)).Status.Phase != fleet.PhaseOnline {
				return false
			}
		}
		return true
	})
	single := e.count("*v1alpha1.Site")
	if single < eventBurst || single > sites {
		t.Errorf("%d events of single sites", single)
	}
	w.pass(sumEvery + time.Second)
	e.mu.Lock()
	i := slices.IndexFunc(e.said, func(s string) bool {
		return strings.HasPrefix(s, "*v1alpha1.Tenant acme Normal SitesChanged: more changes")
	})
	if i < 0 || !strings.Contains(e.said[i], " Online") {
		t.Errorf("%q", e.said[max(0, len(e.said)-3):])
	}
	e.mu.Unlock()
	// What one edit does at a thousand sites leaves room for what befalls one of them.
	w.server.mu.Lock()
	for i := range sites {
		was := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%d", i), Namespace: "third-system"}, Status: v1alpha1.SiteStatus{PolicyHash: "a"}}
		is := was.DeepCopy()
		is.Status.PolicyHash = "b"
		w.server.noticeLocked(fleet.SiteID{Tenant: "third", Name: was.Name}, was, is)
		if i == sites-1 {
			lost := is.DeepCopy()
			lost.Status.Phase = fleet.PhaseOffline
			w.server.noticeLocked(fleet.SiteID{Tenant: "third", Name: was.Name}, is, lost)
		}
	}
	w.server.mu.Unlock()
	if n := e.count("Normal PolicyApplied: another collection policy"); n != eventBurst-eventKept {
		t.Errorf("%d events of an applied policy, want %d", n, eventBurst-eventKept)
	}
	if e.count("*v1alpha1.Site s199 Warning Offline") != 1 {
		t.Error("a site that was lost is not told of after an edit of the policy of all")
	}
	// A neighbour has a budget of its own.
	a := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "other-system"}}
	b := a.DeepCopy()
	b.Status.Phase = fleet.PhaseApproved
	w.server.mu.Lock()
	w.server.noticeLocked(other, a, b)
	w.server.mu.Unlock()
	if e.count("*v1alpha1.Site x Normal Approved") != 1 {
		t.Error("a neighbour's event was lost")
	}
}

// kubectl wait --for=condition=Ready ends when the site is connected, and not by an
// answer to what the Site was before.
func TestReadyFollowsThePhase(t *testing.T) {
	w := newWorld(t).started()
	ready := func(status metav1.ConditionStatus, reason string) {
		t.Helper()
		w.eventually("Ready is "+reason, func() bool {
			c := condition(w.get("paris"), v1alpha1.ConditionReady)
			return c != nil && c.Status == status && c.Reason == reason && c.ObservedGeneration == w.get("paris").Generation
		})
	}
	id := w.site("paris", func(s *v1alpha1.Site) { s.Spec.Approved, s.Generation = false, 3 })
	ready(metav1.ConditionFalse, "Pending")
	w.change("paris", func(s *v1alpha1.Site) { s.Spec.Approved, s.Generation = true, 4 })
	ready(metav1.ConditionFalse, "Approved")
	r := w.regional("eu-1")
	r.up(id, nil)
	ready(metav1.ConditionTrue, "Online")
	r.down(id)
	w.unowned(id)
	w.pass(time.Minute)
	ready(metav1.ConditionFalse, "Offline")
}
