package relay

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/internal/wire"
)

// Register implements regional.Upstream.
func (r *Relay) Register(ctx context.Context, req *wire.RelayedRegister) (*wire.RegisterResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := r.opts.Control.Register(ctx, req)
	return resp, forSite(err)
}

// Renew implements regional.Upstream.
func (r *Relay) Renew(ctx context.Context, req *wire.RelayedRenew) (*wire.Issued, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := r.opts.Control.Renew(ctx, req)
	return resp, forSite(err)
}

// forSite tells a site what it can use: why control refused it, but not why this
// regional can't reach control.
func forSite(err error) error {
	switch status.Code(err) {
	case codes.OK, codes.PermissionDenied, codes.AlreadyExists, codes.InvalidArgument, codes.NotFound,
		codes.FailedPrecondition, codes.ResourceExhausted, codes.Canceled, codes.Aborted:
		return err
	case codes.Unauthenticated:
		// It is this regional that control does not know, not the site.
		return status.Error(codes.Unavailable, "this regional is not let in by control now; try again later")
	default:
		return status.Error(codes.Unavailable, "control can't be reached by this regional now; try again later")
	}
}
