package fakeregional

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// Reach implements wire.UplinkServer.
func (r *Regional) Reach(stream grpc.BidiStreamingServer[wire.TunnelData, wire.TunnelData]) error {
	id, first, err := r.host(stream)
	if err != nil {
		return err
	}
	return r.opts.Hosts.Reach(stream.Context(), r, id, first.GetId(), stream)
}

// Answer implements wire.UplinkServer.
func (r *Regional) Answer(stream grpc.BidiStreamingServer[wire.TunnelData, wire.TunnelData]) error {
	id, first, err := r.host(stream)
	if err != nil {
		return err
	}
	return r.opts.Hosts.Answer(stream.Context(), id, first.GetId(), first.GetRefused(), stream)
}

func (r *Regional) host(stream grpc.BidiStreamingServer[wire.TunnelData, wire.TunnelData]) (fleet.SiteID, *wire.TunnelData, error) {
	if r.opts.Hosts == nil {
		return fleet.SiteID{}, nil, status.Error(codes.Unimplemented, "no hosts")
	}
	_, id, err := certOf(stream.Context())
	if err != nil {
		return id, nil, err
	}
	first, err := stream.Recv()
	return id, first, err
}

// OpenHost implements hosts.Sites.
func (r *Regional) OpenHost(id fleet.SiteID, call, host string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sites[id]
	if s == nil || !s.seen.Connected {
		return false
	}
	select {
	case s.host <- &wire.OpenHost{Id: call, Host: host}:
		return true
	default:
		return false
	}
}
