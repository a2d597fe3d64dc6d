package fleetapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// revocation outlives its Site until the last certificate that was issued before
// is over. Each regional is told on each new stream.
type revocation struct {
	Reason string `json:"reason"`
	// IssuedBefore: certificates whose life begins earlier are refused; zero: all.
	IssuedBefore time.Time `json:"issuedBefore,omitzero"`
	Until        time.Time `json:"until"`
}

func revokedMessage(id fleet.SiteID, r revocation) *wire.SiteRevoked {
	m := &wire.SiteRevoked{Tenant: id.Tenant, Site: id.Name, Reason: r.Reason}
	if !r.IssuedBefore.IsZero() {
		m.IssuedBefore = timestamppb.New(r.IssuedBefore)
	}
	return m
}

// unknownCertificateLife is assumed for a Site whose status does not say how long
// its certificate lasts.
const unknownCertificateLife = 48 * time.Hour

// certificateGrace is how long after its end a certificate stays revoked: somebody's clock
// may be slow.
const certificateGrace = time.Hour

// newRevocation refuses the certificates that were issued until now; all, also
// later ones, of a Site that is decommissioned. obj may be nil.
func newRevocation(obj *v1alpha1.Site, reason string, now time.Time) revocation {
	r := revocation{Reason: reason, Until: now.Add(unknownCertificateLife)}
	if obj != nil && obj.Status.CertificateNotAfter != nil {
		r.Until = obj.Status.CertificateNotAfter.Add(certificateGrace)
	}
	if obj == nil || !obj.Spec.Decommissioned {
		// A certificate begins Backdate before it was signed, cut to the second.
		r.IssuedBefore = now.Add(time.Second - pki.Backdate).Truncate(time.Second)
	}
	return r
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
	if !now.Before(r.Until) {
		return
	}
	s.revoked[st.id] = r
	for _, x := range s.sessions {
		x.revoke(revokedMessage(st.id, r))
	}
	if err := s.saveRevocationsLocked(); err != nil {
		s.opts.Logger.Error("a revocation is lost if control restarts", "site", st.id, "err", err)
	}
}

func (s *Server) revocationsLocked() []*wire.SiteRevoked {
	now := s.opts.Now()
	var out []*wire.SiteRevoked
	for id, r := range s.revoked {
		if now.Before(r.Until) {
			out = append(out, revokedMessage(id, r))
		}
	}
	return out
}

func (s *Server) pruneRevocationsLocked(now time.Time) {
	pruned := false
	for id, r := range s.revoked {
		if !now.Before(r.Until) {
			delete(s.revoked, id)
			pruned = true
		}
	}
	if pruned {
		if err := s.saveRevocationsLocked(); err != nil {
			s.opts.Logger.Warn("can't write revocations", "err", err)
		}
	}
}

func (s *Server) saveRevocationsLocked() error {
	if s.opts.RevocationsFile == "" {
		return nil
	}
	byName := map[string]revocation{}
	for id, r := range s.revoked {
		byName[id.String()] = r
	}
	b, err := json.MarshalIndent(byName, "", " ")
	if err != nil {
		return fmt.Errorf("revocations: %w", err)
	}
	return atomicfile.Write(s.opts.RevocationsFile, b, 0o600)
}

func (s *Server) loadRevocations() error {
	if s.opts.RevocationsFile == "" {
		return nil
	}
	if err := disk.MkdirAll(disk.OS{}, filepath.Dir(s.opts.RevocationsFile), 0o700); err != nil {
		return fmt.Errorf("revocations: %w", err)
	}
	b, err := os.ReadFile(s.opts.RevocationsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("revocations: %w", err)
	}
	var byName map[string]revocation
	if err := json.Unmarshal(b, &byName); err != nil {
		return fmt.Errorf("revocations: %s: %w; restore it from a backup, or remove it (sites deleted in the last day could then still send until their certificates end)", s.opts.RevocationsFile, err)
	}
	for name, r := range byName {
		id, err := fleet.ParseSiteID(name)
		if err != nil {
			return fmt.Errorf("revocations: %s: %w", s.opts.RevocationsFile, err)
		}
		s.revoked[id] = r
	}
	return nil
}
