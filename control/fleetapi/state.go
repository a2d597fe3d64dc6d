package fleetapi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// siteState is what is known of one site now. Guarded by Server.mu.
type siteState struct {
	id  fleet.SiteID
	obj *v1alpha1.Site // as last read or written; never changed; nil: no such Site known

	owner     *session // that the site is up on; nil: none
	online    bool     // what the phase says; outlives owner by a grace time
	offlineAt time.Time
	lastSeen  time.Time
	regional  string // that it is or was up on

	labels map[string]string // discovered, from the last Hello; nil: none yet
	agent  string            // version, from the last Hello
	// capability from the last Hello; 0: none yet.
	capability uint32
	report     *report // nil: none since this process runs
	// regionalView is what the site's regional says of it, without times; nil: nothing
	// since this process runs.
	regionalView *[]metav1.Condition

	// cluster is what could not be taken of what it says of its cluster; nil: it has said
	// nothing since this process runs.
	cluster *string

	// settles is until when the site, which has just come, is likely to tell more: what
	// it tells by then goes into one write.
	settles time.Time
	// certified is until when the newest certificate lasts that was issued since this
	// process runs; zero: none was.
	certified time.Time

	// rekeyed is the key that it came back with, once the one before is refused.
	rekeyed string

	reports *rate.Limiter // what the site may say
	writes  *rate.Limiter // what may be written because of it
}

// Limits of one site: the first against floods of reports, the second bounds what
// a site that changes its mind all the time costs the API server.
const (
	reportEvery = 2 * time.Second
	reportBurst = 20
	writeEvery  = 5 * time.Second
	writeBurst  = 6
)

func (s *Server) siteLocked(id fleet.SiteID) *siteState {
	st := s.sites[id]
	if st == nil {
		st = &siteState{id: id, reports: rate.NewLimiter(rate.Every(reportEvery), reportBurst), writes: rate.NewLimiter(rate.Every(writeEvery), writeBurst)}
		s.sites[id] = st
	}
	return st
}

// phaseLocked is the phase that the site is in now.
func (st *siteState) phaseLocked() fleet.Phase {
	switch {
	case st.obj.Spec.Decommissioned:
		return fleet.PhaseDecommissioned
	case !st.obj.Spec.Approved:
		return fleet.PhasePending
	case st.online:
		return fleet.PhaseOnline
	case !st.lastSeen.IsZero() || st.obj.Status.LastSeen != nil:
		return fleet.PhaseOffline
	default:
		return fleet.PhaseApproved
	}
}

// welcome tells whether the site may be connected.
func welcome(obj *v1alpha1.Site) bool { return obj.Spec.Approved && !obj.Spec.Decommissioned }

// SetSite tells of a Site that exists or changed. The object must not be changed
// afterwards.
func (s *Server) SetSite(id fleet.SiteID, obj *v1alpha1.Site) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setSiteLocked(id, obj)
}

func (s *Server) setSiteLocked(id fleet.SiteID, obj *v1alpha1.Site) {
	st := s.siteLocked(id)
	if st.obj != nil && st.obj.UID == obj.UID && older(obj.ResourceVersion, st.obj.ResourceVersion) {
		return // the watch is behind what was written or read
	}
	before := st.obj
	st.obj = obj
	if before == nil {
		s.expectLocked(st)
	}
	s.noticeLocked(id, before, obj)
	if before == nil && obj.Status.Phase == fleet.PhaseOnline && st.owner == nil {
		// Online when the control before this one stopped: wait for its regional.
		st.online, st.offlineAt, st.regional = true, s.began.Add(2*s.opts.OrphanGrace), obj.Status.Regional
	}
	certified := obj.Status.CertificateNotAfter != nil && s.opts.Now().Before(obj.Status.CertificateNotAfter.Time)
	if !welcome(obj) && ((before == nil && certified) || (before != nil && welcome(before))) {
		reason := "the site's approval was withdrawn"
		if obj.Spec.Decommissioned {
			reason = "the site was decommissioned"
		}
		s.revokeLocked(st, reason)
		s.clusterGoneLocked(id)
	}
	s.rekeyedLocked(st)
	s.changedLocked(st)
}

// older compares resource versions; what is not a number is not older.
func older(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x < y
}

// DeleteSite tells that a Site is gone.
func (s *Server) DeleteSite(id fleet.SiteID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleteSiteLocked(id)
}

func (s *Server) deleteSiteLocked(id fleet.SiteID) {
	st := s.sites[id]
	if st == nil {
		return
	}
	if st.obj != nil {
		s.revokeLocked(st, "the site was deleted")
	}
	delete(s.sites, id)
	s.clusterGoneLocked(id)
}

// Synced tells that every Site that exists has been set; streams are taken from now on.
func (s *Server) Synced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = true
}

// handle takes one message of a regional.
func (s *Server) handle(sess *session, msg *wire.RelayUp) {
	switch m := msg.GetMsg().(type) {
	case *wire.RelayUp_Up:
		s.siteUp(sess, m.Up)
	case *wire.RelayUp_Down:
		s.siteDown(sess, idOf(m.Down), m.Down.GetLastSeen().AsTime())
	case *wire.RelayUp_Report:
		s.siteReport(sess, idOf(m.Report), m.Report.GetReport())
	case *wire.RelayUp_SiteConditions:
		s.siteConditions(sess, idOf(m.SiteConditions), m.SiteConditions.GetConditions())
	case *wire.RelayUp_RegionalReport:
		s.regionalReport(sess, m.RegionalReport)
	case *wire.RelayUp_SiteKubernetes:
		s.siteKubernetes(sess, idOf(m.SiteKubernetes), m.SiteKubernetes)
	case *wire.RelayUp_TenantsUse:
		s.tenantsUse(sess, m.TenantsUse)
	case *wire.RelayUp_Alive:
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, seen := range m.Alive.GetSites() {
			if st := s.sites[idOf(seen)]; st != nil && st.owner == sess {
				st.seenLocked(seen.GetLastSeen().AsTime(), s.opts.Now())
			}
		}
	}
}

func idOf(m interface {
	GetTenant() string
	GetSite() string
}) fleet.SiteID {
	return fleet.SiteID{Tenant: m.GetTenant(), Name: m.GetSite()}
}

// seenLocked moves lastSeen forward, never into the future: a regional's clock may be off.
func (st *siteState) seenLocked(at, now time.Time) {
	if at.After(now) {
		at = now
	}
	if at.After(st.lastSeen) {
		st.lastSeen = at
	}
}

func (s *Server) siteUp(sess *session, up *wire.SiteUp) {
	id := idOf(up)
	if id.Validate() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.sites[id]; st != nil && st.obj != nil {
		s.siteUpLocked(sess, id, up)
		return
	}
	// Not heard of yet. It may have registered a moment ago and the watch is behind:
	// ask before turning it away. Until then it just waits.
	go func() {
		s.lookups <- struct{}{}
		defer func() { <-s.lookups }()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		var obj v1alpha1.Site
		err := s.opts.Client.Get(ctx, types.NamespacedName{Namespace: fleet.SystemNamespace(id.Tenant), Name: id.Name}, &obj)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.sessions[sess.regional] != sess {
			return
		}
		switch {
		case err == nil:
			s.setSiteLocked(id, &obj)
			s.siteUpLocked(sess, id, up)
		case apierrors.IsNotFound(err):
			sess.revoke(revokedMessage(id, newRevocation(nil, "there is no such site (any more); register the machine anew", s.opts.Now())))
		default:
			s.opts.Logger.Warn("can't look up a site that connected; it waits for the watch", "site", id, "err", err)
			s.siteUpLocked(sess, id, up)
		}
	}()
}

func (s *Server) siteUpLocked(sess *session, id fleet.SiteID, up *wire.SiteUp) {
	st, hello := s.siteLocked(id), up.GetHello()
	if st.obj != nil && !welcome(st.obj) {
		sess.revoke(revokedMessage(id, newRevocation(st.obj, "the site is not approved, or was decommissioned", s.opts.Now())))
		return
	}
	if st.owner != nil && st.owner != sess {
		st.owner.forget(id)
	}
	now := s.opts.Now()
	if !st.online {
		st.settles = now.Add(settle)
	}
	st.owner, st.online, st.offlineAt, st.regional = sess, true, time.Time{}, sess.regional
	st.seenLocked(now, now)
	if l := fleet.SystemLabels(hello.GetSystemLabels()); len(l) > 0 {
		st.labels = l
	}
	st.agent, st.capability = clip(hello.GetAgentVersion(), maxVersion), max(hello.GetCapability(), 1)
	sess.up(id, up.GetHolds(), st.capability)
	s.clusterUpLocked(id)
	s.changedLocked(st)
}

func (s *Server) siteDown(sess *session, id fleet.SiteID, lastSeen time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.sites[id]
	if st == nil || st.owner != sess {
		return // it is up on another regional by now
	}
	now := s.opts.Now()
	st.seenLocked(lastSeen, now)
	st.owner, st.offlineAt = nil, now.Add(s.opts.DownGrace)
	sess.forget(id)
}

func (s *Server) siteReport(sess *session, id fleet.SiteID, r *wire.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.sites[id]
	if st == nil || st.owner != sess || r == nil {
		s.metrics.reports.WithLabelValues("not_connected").Inc()
		return
	}
	now := s.opts.Now()
	st.seenLocked(now, now)
	if !st.reports.AllowN(now, 1) {
		s.metrics.reports.WithLabelValues("too_many").Inc()
		if st.report != nil {
			st.report.flood = true
			s.changedLocked(st)
		}
		return
	}
	clean := clean(r)
	if len(clean.problems) > 0 {
		s.metrics.reports.WithLabelValues("clamped").Inc()
	} else {
		s.metrics.reports.WithLabelValues("taken").Inc()
	}
	before := st.report
	st.report = clean
	s.changedLocked(st)
	if before == nil || before.policyHash != clean.policyHash || !before.sameHost(clean) || before.refusesPolicy() != clean.refusesPolicy() || !sameSoftware(before.software, clean.software) {
		for _, sub := range s.policySubs {
			sub(id.Tenant)
		}
	}
}

// PolicyOf is the hash of the collection policy that a site said last that it has in
// effect, and whether it refuses the one that it should have; told is false if it has said
// nothing since this process runs. The Site's status says the same a little later: it is
// written at a bounded rate.
func (s *Server) PolicyOf(id fleet.SiteID) (hash string, refused, told bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.sites[id]
	if st == nil || st.report == nil {
		return "", false, false
	}
	return st.report.policyHash, st.report.refusesPolicy(), true
}

// HostSaid is what a site says of the configuration of its host.
type HostSaid struct {
	// Told: it has said something since this process runs; else nothing is known.
	Told bool
	// Hash is of the item that is in effect; empty: none.
	Hash string
	// Refused: it could not do what it should, because of Why.
	Refused bool
	Why     string
	// TooOld: the agent that is, or was last, connected does not know of it, and is given none.
	TooOld bool
}

// HostOf is what a site said last of the configuration of its host.
func (s *Server) HostOf(id fleet.SiteID) HostSaid {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.sites[id]
	if st == nil {
		return HostSaid{}
	}
	out := HostSaid{TooOld: st.capability != 0 && st.capability < wire.HostConfigurationCapability}
	if st.report != nil {
		out.Told, out.Hash = true, st.report.hostHash
		out.Why, out.Refused = st.report.refusesHost()
	}
	if out.TooOld {
		out.Refused, out.Why = true, fmt.Sprintf("the agent %s of the site can't configure its host: update it", cmp.Or(st.agent, "(version unknown)"))
	}
	return out
}

func (r *report) sameHost(o *report) bool {
	why, refused := r.refusesHost()
	why2, refused2 := o.refusesHost()
	return r.hostHash == o.hostHash && refused == refused2 && why == why2
}

// SubscribePolicies calls fn with each tenant for one of whose sites PolicyOf, HostOf or SoftwareOf
// answers otherwise than before. fn must be quick, and must not call the Server.
func (s *Server) SubscribePolicies(fn func(tenant string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policySubs = append(s.policySubs, fn)
}

// siteConditions takes what a regional says of a site that is, or was last, up on it.
func (s *Server) siteConditions(sess *session, id fleet.SiteID, conds []*wire.Condition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.sites[id]
	if st == nil || st.regional != sess.regional || s.sessions[sess.regional] != sess {
		return
	}
	now := cleanRegional(conds)
	if st.regionalView != nil && equality.Semantic.DeepEqual(*st.regionalView, now) {
		return
	}
	st.regionalView = &now
	s.changedLocked(st)
}

// sweep turns sites whose grace time is over Offline, and lets lastSeen be written
// where it is old.
func (s *Server) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.opts.Now()
	s.noticeTimeLocked(s.swept, now)
	s.tellSumsLocked(now)
	s.swept = now
	every := max(s.opts.LastSeenEvery, time.Duration(len(s.sites))*time.Second/10)
	for id, st := range s.sites {
		if st.online && st.owner == nil && !now.Before(st.offlineAt) {
			st.online = false
			s.clusterDownLocked(id)
			s.changedLocked(st)
		}
		if st.obj == nil {
			if st.owner == nil {
				delete(s.sites, id) // was never more than a lookup that failed
			}
			continue
		}
		if st.lastSeenDueLocked(every) || st.resetDueLocked(now) {
			s.changedLocked(st)
		}
	}
	s.revoked.Prune(now)
}

func (st *siteState) lastSeenDueLocked(every time.Duration) bool {
	written := st.obj.Status.LastSeen
	return !st.lastSeen.IsZero() && (written == nil || st.lastSeen.Sub(written.Time) >= every)
}

// desiredChanged is the subscriber of the desired-state store.
func (s *Server) desiredChanged(id fleet.SiteID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.sites[id]; st != nil && st.owner != nil {
		st.owner.push(id)
	}
}

// regionalChanged is the subscriber of what regionals hold.
func (s *Server) regionalChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.sessions {
		x.pushRegional()
	}
}

// systemLabels are the discovered labels of a Site.
func systemLabels(all map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(k, _ string) bool { return !strings.HasPrefix(k, fleet.SystemLabelPrefix) })
	return out
}
