// Package regional holds the few types that the parts of a regional share: what
// the gateway asks of the relay. The parts are
// engine (the two Prometheus engines), gateway (what sites talk to) and relay (the
// connection to control); cost tells what sites take of them.
//
// It does nothing by itself and must not import its parts; cmd/internal connects
// them.
package regional

import (
	"context"
	"crypto/x509"
	"errors"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/tunnel"
	"muster.dev/muster/internal/wire"
)

// Session is one site's stream, as the relay sees it. All methods return at once.
type Session interface {
	// Certificate is the one that the stream was opened with.
	Certificate() *x509.Certificate
	// Desired hands over a new desired state; only the newest one counts.
	Desired(*wire.DesiredState)
	// Revoke ends the stream.
	Revoke(reason string)
	// Resync asks the site for a snapshot of what runs on its cluster.
	Resync()
	// OpenTunnel asks the site to call Tunnel with the id.
	OpenTunnel(id string)
}

// ErrUnknownTunnel says that nobody asked the site for the tunnel, or not any more.
var ErrUnknownTunnel = errors.New("nobody waits for this tunnel")

// ErrUnknownBlob says that the digest is not part of the site's desired state.
var ErrUnknownBlob = errors.New("no such blob for this site")

// Upstream is the way to control. relay.Relay implements it. Safe for concurrent
// use; nothing but Register, Renew and Blob waits for the network.
type Upstream interface {
	// Register and Renew are forwarded; their errors are gRPC status errors.
	Register(context.Context, *wire.RelayedRegister) (*wire.RegisterResponse, error)
	Renew(context.Context, *wire.RelayedRenew) (*wire.Issued, error)
	// SiteUp subscribes a site; its cached desired state is handed over at once. A
	// later SiteUp of the same site takes its place.
	SiteUp(fleet.SiteID, *wire.Hello, Session)
	// SiteDown ends what SiteUp began, if the session is still the site's.
	SiteDown(fleet.SiteID, Session, time.Time)
	// Report keeps the site's latest report and passes it on. Seq must grow.
	Report(fleet.SiteID, *wire.Report)
	// KubernetesVersion is which version of the site's KubernetesStatus is held; "": none.
	KubernetesVersion(fleet.SiteID) (epoch string, seq uint64)
	// Kubernetes takes what the site says of its cluster, if the session is the site's.
	Kubernetes(fleet.SiteID, Session, *wire.KubernetesStatus)
	// Tunnel connects the site's stream with whoever asked for it, until either ends. The
	// error is ErrUnknownTunnel, or says why it ended.
	Tunnel(ctx context.Context, site fleet.SiteID, id string, stream tunnel.Stream) error
	// Alive notes that the site was heard of.
	Alive(fleet.SiteID, time.Time)
	// Blob streams a blob of the site's desired state from an offset; the error is
	// ErrUnknownBlob, one of send, or says why the blob can't be had now.
	Blob(ctx context.Context, site fleet.SiteID, digest string, offset int64, send func([]byte) error) error
	// Denied says whether the certificate of the site was revoked, and why.
	Denied(fleet.SiteID, *x509.Certificate) (reason string, denied bool)
}
