package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/tunnel"
	"muster.dev/muster/internal/vhost"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional"
	"muster.dev/muster/regional/hosts"
)

// Hosts connects sites with each other; *hosts.Broker does.
type Hosts interface {
	Reach(ctx context.Context, sites hosts.Sites, consumer fleet.SiteID, host string, stream tunnel.Stream) error
	Answer(ctx context.Context, site fleet.SiteID, id, refused string, stream tunnel.Stream) error
}

// Bounds of a site's connections to and from virtual hosts: how many streams at once, which
// is more than the Broker lets through, and bytes a second that the site sends, on average.
const (
	maxHostStreams = 512
	hostBytes      = 16 << 20
	hostBurst      = 2 << 20
	// Opened a second, on average and at once.
	hostsPerSecond = 100
	hostsBurst     = 512
)

// serveHost serves one end of a connection between sites.
func (g *Gateway) serveHost(w http.ResponseWriter, r *http.Request, s *site) {
	defer s.hosted.Add(-1)
	if s.hosted.Add(1) > maxHostStreams {
		ref := &refusal{reason: reasonInFlight, text: fmt.Sprintf("site %s has more than %d connections to and from virtual hosts", s.id, maxHostStreams)}
		grpcRefuse(w, g.limited(s, ref).text)
		return
	}
	if !s.opens.Allow() {
		ref := &refusal{reason: reasonInFlight, text: fmt.Sprintf("site %s asks for more than %d connections to and from virtual hosts a second", s.id, hostsPerSecond)}
		grpcRefuse(w, g.limited(s, ref).text)
		return
	}
	r, end := g.withBody(r, s.hosts, maxMessage, hostAhead, s.id)
	defer end()
	g.grpc.ServeHTTP(w, r)
}

// first reads who a stream is for.
func (u *uplink) first(stream grpc.BidiStreamingServer[wire.TunnelData, wire.TunnelData]) (caller, tunnel.Stream, *wire.TunnelData, error) {
	who, err := grpcCaller(stream.Context())
	if err != nil {
		return who, nil, nil, err
	}
	if u.g.opts.Hosts == nil {
		return who, nil, nil, status.Error(codes.Unimplemented, "this regional connects no sites with each other")
	}
	paced, m, err := firstOfTunnel(stream)
	return who, paced, m, err
}

// Reach implements wire.UplinkServer.
func (u *uplink) Reach(stream grpc.BidiStreamingServer[wire.TunnelData, wire.TunnelData]) error {
	who, paced, first, err := u.first(stream)
	if err != nil {
		return ended(err)
	}
	if key := first.GetId(); len(key) > vhost.MaxKey || !vhost.ValidKey(key) {
		return status.Error(codes.InvalidArgument, "want NAMESPACE/NAME of a virtual host as the id of the first message")
	}
	return u.g.untilExpiry(who, func() error { return u.g.opts.Hosts.Reach(stream.Context(), u.g, who.site, first.Id, paced) })
}

// Answer implements wire.UplinkServer.
func (u *uplink) Answer(stream grpc.BidiStreamingServer[wire.TunnelData, wire.TunnelData]) error {
	who, paced, first, err := u.first(stream)
	if err != nil {
		return ended(err)
	}
	if id := first.GetId(); id == "" || len(id) > maxTunnelID {
		return status.Errorf(codes.InvalidArgument, "want an id of 1 to %d characters in the first message", maxTunnelID)
	}
	err = u.g.untilExpiry(who, func() error {
		return u.g.opts.Hosts.Answer(stream.Context(), who.site, first.Id, first.GetRefused(), paced)
	})
	if errors.Is(err, regional.ErrUnknownTunnel) {
		return status.Error(codes.NotFound, err.Error())
	}
	return err
}

// OpenHost implements hosts.Sites.
func (g *Gateway) OpenHost(id fleet.SiteID, call, host string) bool {
	g.mu.RLock()
	s := g.sites[id]
	g.mu.RUnlock()
	if s == nil {
		return false
	}
	s.mu.Lock()
	sess := s.live.session
	s.mu.Unlock()
	if sess == nil || sess.capability < wire.HostCapability {
		return false
	}
	return sess.openHost(&wire.OpenHost{Id: call, Host: host})
}
