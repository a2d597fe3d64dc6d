package fleetapi

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/revoked"
	"muster.dev/muster/internal/wire"
)

// A revocation outlives its Site until the last certificate that was issued before
// is over. Each regional is told on each new stream. They are told before it is on
// disk, which is the safe order: what control forgets if it is killed in that moment, they
// know.

func revokedMessage(id fleet.SiteID, r revoked.Entry) *wire.SiteRevoked {
	m := &wire.SiteRevoked{Tenant: id.Tenant, Site: id.Name, Reason: r.Reason, Until: timestamppb.New(r.Until)}
	if !r.IssuedBefore.IsZero() {
		m.IssuedBefore = timestamppb.New(r.IssuedBefore)
	}
	return m
}

// certificateGrace is how long after its end a certificate stays revoked: somebody's clock
// may be slow.
const certificateGrace = time.Hour

// newRevocation refuses the certificates that were issued until now; all, also
// later ones, of a Site that is decommissioned. obj may be nil.
func newRevocation(obj *v1alpha1.Site, reason string, now time.Time) revoked.Entry {
	r := revoked.Entry{Reason: reason, Until: now.Add(revoked.UnknownLife)}
	if obj != nil && obj.Status.CertificateNotAfter != nil {
		r.Until = obj.Status.CertificateNotAfter.Add(certificateGrace)
	}
	if obj == nil || !obj.Spec.Decommissioned {
		// A certificate begins Backdate before it was signed, cut to the second.
		r.IssuedBefore = now.Add(time.Second - pki.Backdate).Truncate(time.Second)
	}
	return r
}

// mayHaveCertificateLocked: a Site that somebody has made, and that no machine has come for,
// has none to revoke.
func (st *siteState) mayHaveCertificateLocked() bool {
	return !st.certified.IsZero() || !st.lastSeen.IsZero() || st.obj.Spec.PublicKey != "" || st.obj.Status.CertificateNotAfter != nil || st.obj.Status.LastSeen != nil
}

// revokeLocked tells every regional, not just the site's own: its certificate is
// good anywhere.
func (s *Server) revokeLocked(st *siteState, reason string) {
	now := s.opts.Now()
	r := newRevocation(st.obj, reason, now)
	if until := st.certified.Add(certificateGrace); until.After(r.Until) {
		r.Until = until // the status does not tell of it yet
	}
	st.owner, st.online, st.offlineAt = nil, false, time.Time{}
	if !now.Before(r.Until) || !st.mayHaveCertificateLocked() {
		return
	}
	s.revoked.Add(st.id, r)
	for _, x := range s.sessions {
		x.revoke(revokedMessage(st.id, r))
	}
}

func (s *Server) revocations() []*wire.SiteRevoked {
	now := s.opts.Now()
	var out []*wire.SiteRevoked
	for id, r := range s.revoked.All() {
		if now.Before(r.Until) {
			out = append(out, revokedMessage(id, r))
		}
	}
	return out
}

// keepRevocations writes them until ctx ends.
func (s *Server) keepRevocations(ctx context.Context) {
	s.revoked.Run(ctx, func(err error) {
		s.opts.Logger.Error("revocations are lost if control restarts; trying on", "err", err)
	})
}

func (s *Server) loadRevocations() (err error) {
	file := s.opts.RevocationsFile
	if file != "" {
		if err := disk.MkdirAll(disk.OS{}, filepath.Dir(file), 0o700); err != nil {
			return fmt.Errorf("revocations: %w", err)
		}
	}
	if s.revoked, err = revoked.Open(file, 0o600, s.opts.Now()); err != nil {
		return fmt.Errorf("revocations: %w; restore the file from a backup, or remove it (sites deleted in the last day could then still send until their certificates end)", err)
	}
	return nil
}
