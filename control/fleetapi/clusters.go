package fleetapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/meta"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/tunnel"
	"muster.dev/muster/internal/wire"
)

// siteKubernetes takes what a site said of its cluster, or which version of that its
// regional holds.
func (s *Server) siteKubernetes(sess *session, id fleet.SiteID, m *wire.SiteKubernetes) {
	ours := func() *siteState {
		st := s.sites[id]
		if st == nil || st.owner != sess || s.opts.Clusters == nil {
			return nil // it is up on another regional by now, or not known (any more)
		}
		return st
	}
	var apply func() bool
	if m.GetStatus() != nil {
		s.mu.Lock()
		known := ours() != nil
		s.mu.Unlock()
		if !known {
			return
		}
		apply = s.opts.Clusters.Read(id, m.GetStatus()) // other streams go on meanwhile
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := ours()
	if st == nil {
		return
	}
	if apply == nil {
		if epoch, seq := s.opts.Clusters.Version(id); epoch != m.GetEpoch() || seq != m.GetSeq() {
			sess.resync(id)
		}
		return
	}
	if !apply() {
		sess.resync(id)
	}
	p := s.opts.Clusters.Problem(id)
	if n := m.GetLeftOut(); n > 0 {
		p = strings.TrimPrefix(fmt.Sprintf("%s; %d left out: regional %s has no more room for what this site, or this tenant's sites, say", p, n, sess.regional), "; ")
	}
	if p = text(p, maxMessage); st.cluster == nil || *st.cluster != p {
		st.cluster = &p
		if p != "" || st.obj != nil && meta.IsStatusConditionFalse(st.obj.Status.Conditions, ConditionClusterAccepted) {
			s.changedLocked(st)
		}
	}
}

func (s *Server) clusterUpLocked(id fleet.SiteID) {
	if s.opts.Clusters != nil {
		s.opts.Clusters.Interrupted(id)
		s.opts.Clusters.Online(id, true)
	}
}

func (s *Server) clusterDownLocked(id fleet.SiteID) {
	if s.opts.Clusters != nil {
		s.opts.Clusters.Online(id, false)
	}
}

func (s *Server) clusterGoneLocked(id fleet.SiteID) {
	if s.opts.Clusters != nil {
		s.opts.Clusters.Gone(id)
	}
}

// waitingTunnel is one that a regional was asked for.
type waitingTunnel struct {
	site    fleet.SiteID
	session *session
	opened  chan net.Conn
	left    chan struct{} // closed when nobody waits any more
	ended   chan struct{} // closed when the connection is
}

// ErrOffline says that a site can't be reached now.
var ErrOffline = errors.New("the site is not connected")

// Dial opens a connection to the site's agent, through its regional. It waits until ctx
// ends; the connection lives on. The error is ErrOffline where the site is not connected.
func (s *Server) Dial(ctx context.Context, site fleet.SiteID) (net.Conn, error) {
	w := &waitingTunnel{site: site, opened: make(chan net.Conn), left: make(chan struct{}), ended: make(chan struct{})}
	id := rand.Text()
	s.mu.Lock()
	st := s.sites[site]
	if st == nil || st.owner == nil {
		s.mu.Unlock()
		return nil, fmt.Errorf("%s: %w", site, ErrOffline)
	}
	w.session = st.owner
	s.tunnels[id] = w
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.tunnels, id)
	}()
	if !w.session.openTunnel(&wire.SiteOpenTunnel{Tenant: site.Tenant, Site: site.Name, Id: id}) {
		return nil, fmt.Errorf("%s: its regional %s knows of no tunnels; update it", site, w.session.regional)
	}
	select {
	case conn := <-w.opened:
		return conn, nil
	case <-ctx.Done():
		close(w.left)
		return nil, fmt.Errorf("%s: its agent opened no tunnel in time: %w", site, ctx.Err())
	}
}

// Tunnel implements wire.ControlServer: the end of a tunnel that Dial asked for. It comes
// over the regional that was asked.
func (s *Server) Tunnel(stream grpc.BidiStreamingServer[wire.TunnelData, wire.TunnelData]) error {
	regional, err := regionalOf(stream.Context())
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	s.mu.Lock()
	w := s.tunnels[first.GetId()]
	if w != nil && w.session.regional != regional {
		w = nil
	}
	if w != nil {
		delete(s.tunnels, first.GetId())
	}
	s.mu.Unlock()
	if w == nil {
		return status.Error(codes.NotFound, "nobody waits for this tunnel")
	}
	conn := tunnel.Conn(stream, w.site.String(), func() { close(w.ended) })
	select {
	case w.opened <- conn:
	case <-w.left:
		return status.Error(codes.NotFound, "nobody waits for this tunnel any more")
	case <-stream.Context().Done():
		return nil
	}
	select {
	case <-w.ended:
	case <-stream.Context().Done():
	}
	return nil
}
