package fleetapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// Recorder writes Kubernetes events without waiting; a record.EventRecorder is one.
type Recorder interface {
	Event(object runtime.Object, eventtype, reason, message string)
}

// A tenant's sites have so many events at once, and so many in the long run; what comes
// beyond is counted, and told of in one event on the Tenant. A fleet that comes back
// changes by the thousand, and etcd keeps each event for an hour.
const (
	eventBurst = 50
	eventEvery = 5 * time.Second
	sumEvery   = time.Minute
	// eventKept of them are kept from what one edit does at a thousand sites.
	eventKept = eventBurst / 2
)

// teller bounds the events of one tenant.
type teller struct {
	limit *rate.Limiter
	more  map[string]int // by reason, since
	since time.Time
}

// tellLocked writes an event on a Site, or counts it.
func (s *Server) tellLocked(tenant string, obj *v1alpha1.Site, kind, reason, message string) {
	s.tellUnlessLocked(0, tenant, obj, kind, reason, message)
}

// tellUnlessLocked writes an event on a Site, or counts it where the tenant's sites may have no
// more than kept others now.
func (s *Server) tellUnlessLocked(kept float64, tenant string, obj *v1alpha1.Site, kind, reason, message string) {
	if s.opts.Recorder == nil {
		return
	}
	t := s.tellers[tenant]
	if t == nil {
		t = &teller{limit: rate.NewLimiter(rate.Every(eventEvery), eventBurst), more: map[string]int{}}
		s.tellers[tenant] = t
	}
	now := s.opts.Now()
	if t.limit.TokensAt(now) >= kept+1 && t.limit.AllowN(now, 1) {
		s.opts.Recorder.Event(obj, kind, reason, message)
		return
	}
	if len(t.more) == 0 {
		t.since = now
	}
	t.more[reason]++
}

// tellSumsLocked tells of what was only counted.
func (s *Server) tellSumsLocked(now time.Time) {
	for name, t := range s.tellers {
		if len(t.more) == 0 || now.Sub(t.since) < sumEvery {
			continue
		}
		var sums []string
		for _, reason := range slices.Sorted(maps.Keys(t.more)) {
			sums = append(sums, fmt.Sprintf("%d %s", t.more[reason], reason))
		}
		clear(t.more)
		// In the tenant's namespace, where its users read events.
		about := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: fleet.SystemNamespace(name)}}
		s.opts.Recorder.Event(about, corev1.EventTypeNormal, "SitesChanged", "more changes of sites than events: "+strings.Join(sums, ", "))
	}
}

// noticeLocked tells people how a Site differs from what it was. Messages hold nothing
// that changes from time to time, so that repetitions are counted in one event.
func (s *Server) noticeLocked(id fleet.SiteID, before, now *v1alpha1.Site) {
	if before == nil || before.UID != now.UID {
		return // it is read for the first time: nobody knows what changed
	}
	tell := func(kind, reason, format string, args ...any) {
		s.tellLocked(id.Tenant, now, kind, reason, fmt.Sprintf(format, args...))
	}
	if was, is := before.Status.Phase, now.Status.Phase; was != is {
		switch is {
		case fleet.PhaseOnline:
			tell(corev1.EventTypeNormal, "Online", "connected to regional %s", now.Status.Regional)
		case fleet.PhaseOffline:
			tell(corev1.EventTypeWarning, "Offline", "not connected any more; it was on regional %s", now.Status.Regional)
		case fleet.PhaseApproved:
			tell(corev1.EventTypeNormal, "Approved", "may have a certificate and connect")
		case fleet.PhaseDecommissioned:
			tell(corev1.EventTypeNormal, "Decommissioned", "refused for good")
		}
	}
	if a, b := before.Status.CertificateNotAfter, now.Status.CertificateNotAfter; a != nil && b != nil && a.Before(b) {
		tell(corev1.EventTypeNormal, "CertificateRenewed", "until %s", b.UTC().Format(time.RFC3339))
	}
	if was, is := colourOf(before), colourOf(now); was != is {
		switch {
		case is == fleet.Red:
			tell(corev1.EventTypeWarning, "TurnedRed", "was %s: %s", was, now.Status.Health.Reason)
		case was == fleet.Red:
			tell(corev1.EventTypeNormal, "NoLongerRed", "is %s", is)
		case is == fleet.Orange:
			tell(corev1.EventTypeWarning, "TurnedOrange", "was %s: %s", was, now.Status.Health.Reason)
		case is == fleet.Green && was == fleet.Orange:
			tell(corev1.EventTypeNormal, "TurnedGreen", "was %s", was)
		}
	}
	switch was, is := before.Status.Maintenance, now.Status.Maintenance; {
	case was == nil && is != nil:
		tell(corev1.EventTypeNormal, "MaintenanceBegan", "%s", is.Text())
	case was != nil && is == nil:
		tell(corev1.EventTypeNormal, "MaintenanceEnded", "%s", was.Text())
	}
	if was, is := before.Status.PolicyHash, now.Status.PolicyHash; was != "" && is != "" && was != is {
		s.tellUnlessLocked(eventKept, id.Tenant, now, corev1.EventTypeNormal, "PolicyApplied", "another collection policy than before is applied")
	}
	if c := refusal(now); c != nil && refusal(before) == nil {
		tell(corev1.EventTypeWarning, "PolicyRefused", "keeps its last good collection policy: %s", c.Message)
	}
}

// noticeTimeLocked tells of what came by time alone, since the last look.
func (s *Server) noticeTimeLocked(last, now time.Time) {
	for id, st := range s.sites {
		if st.obj == nil || st.obj.Status.CertificateNotAfter == nil || !welcome(st.obj) {
			continue
		}
		if end := st.obj.Status.CertificateNotAfter.Time; end.After(last) && !end.After(now) {
			s.tellLocked(id.Tenant, st.obj, corev1.EventTypeWarning, "CertificateExpired", "it has to enrol again with its old key, and by its token's policy or a person's approval")
		}
	}
}

func colourOf(s *v1alpha1.Site) fleet.Colour {
	if s.Status.Health == nil {
		return fleet.Grey
	}
	return s.Status.Health.Colour
}

// refusal is the site's condition by which it refuses its collection policy; nil: it does not.
func refusal(s *v1alpha1.Site) *metav1.Condition {
	c := meta.FindStatusCondition(s.Status.Conditions, conditionPolicyApplied)
	if c == nil || c.Status != metav1.ConditionFalse {
		return nil
	}
	return c
}
