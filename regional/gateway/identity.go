package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/internal/fleet"
)

// Who a peer is comes from its certificate alone. The TLS handshake asks for a
// certificate but refuses none: it only proves that the peer holds the key. The
// chain, the dates and the identity are checked here, request by request, so that
// a machine whose certificate expired is told so in words; in TLS 1.3 the client
// would see a bare alert, and often only a reset connection. A peer without a good
// certificate gets no further than one without any: to Registration.

// caller is who makes a request.
type caller struct {
	site    fleet.SiteID
	region  string
	cert    *x509.Certificate
	refused *refusal // not nil: there is no identity
}

type callerKey struct{}
type connKey struct{}

// callerOf returns the identity that ServeHTTP put into the context.
func callerOf(ctx context.Context) (caller, *refusal) {
	c, ok := ctx.Value(callerKey{}).(caller)
	if !ok {
		c.refused = &refusal{code: http.StatusUnauthorized, text: "no identity"}
	}
	return c, c.refused
}

// ErrRenew is in the error of a certificate that is not valid now but was or will be:
// the agent renews it, so it is worth trying again.
var ErrRenew = errors.New("certificate out of date")

// Identity tells a handler of Options who sent the request.
func Identity(r *http.Request) (fleet.SiteID, string, error) {
	c, ref := callerOf(r.Context())
	switch {
	case ref == nil:
		return c.site, c.region, nil
	case ref.code == http.StatusUnauthorized && c.cert != nil:
		return fleet.SiteID{}, "", fmt.Errorf("%w: %w", ErrRenew, ref)
	default:
		return fleet.SiteID{}, "", ref
	}
}

// grpcCaller is callerOf with a gRPC error.
func grpcCaller(ctx context.Context) (caller, error) {
	c, ref := callerOf(ctx)
	if ref == nil {
		return c, nil
	}
	if ref.code == http.StatusForbidden {
		return c, status.Error(codes.PermissionDenied, ref.text)
	}
	return c, status.Error(codes.Unauthenticated, ref.text)
}

// conn remembers what a connection's certificate was found to be, so that a
// signature is verified once a connection and not once a request.
type conn struct {
	net.Conn
	opened  time.Time
	strange atomic.Int32 // requests under way of a peer without an identity
	unread  connUnread

	mu   sync.Mutex
	pool *x509.CertPool // with which who was found
	who  caller
}

func (g *Gateway) connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, &conn{Conn: c, opened: g.now()})
}

// shakesHands is how often a connection with an old certificate is ended, at most: a fleet that
// can't renew must not spend its time on handshakes.
const shakesHands = 10 * time.Minute

// outlived tells whether a connection whose certificate is in the last quarter of its life is
// to be ended, so that the peer shows its newer one. Agents renew earlier and connect anew by
// themselves; a stock sender only reads its files when it connects, and what is
// refused at the end of the certificate that it still holds, it drops.
func (g *Gateway) outlived(r *http.Request, cert *x509.Certificate) bool {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok || cert == nil {
		return false
	}
	now := g.now()
	return cert.NotAfter.Sub(now) < cert.NotAfter.Sub(cert.NotBefore)/4 && now.Sub(c.opened) >= shakesHands
}

// identify returns who the peer is now: a bundle that changed, a certificate that
// ran out and a revocation take effect on open connections.
func (g *Gateway) identify(c *conn, cs *tls.ConnectionState) caller {
	pool := g.opts.Trust()
	c.mu.Lock()
	if c.pool == nil || c.pool != pool {
		c.who, c.pool = g.verify(cs, pool), pool
	}
	who := c.who
	c.mu.Unlock()
	if who.refused != nil {
		return who
	}
	now := g.now()
	refuse := func(code int, format string, args ...any) caller {
		who.refused = &refusal{code: code, text: fmt.Sprintf(format, args...)}
		return who
	}
	switch {
	case now.After(who.cert.NotAfter):
		return refuse(http.StatusUnauthorized, "the certificate of site %s expired on %s; the agent renews it, or join again with `muster-edge join`",
			who.site, who.cert.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(who.cert.NotBefore):
		return refuse(http.StatusUnauthorized, "the certificate of site %s is valid from %s on; check the clocks", who.site, who.cert.NotBefore.UTC().Format(time.RFC3339))
	}
	if reason, denied := g.opts.Upstream.Denied(who.site, who.cert); denied {
		return refuse(http.StatusForbidden, "site %s is refused: %s", who.site, reason)
	}
	return who
}

// verify checks the chain as of a time within the leaf's own life; identify checks
// the dates.
func (g *Gateway) verify(cs *tls.ConnectionState, pool *x509.CertPool) caller {
	refuse := func(code int, format string, args ...any) caller {
		return caller{refused: &refusal{code: code, text: fmt.Sprintf(format, args...)}}
	}
	if cs == nil || len(cs.PeerCertificates) == 0 {
		return refuse(http.StatusUnauthorized, "a site certificate is required; join with `muster-edge join`")
	}
	leaf := cs.PeerCertificates[0]
	at := g.now()
	if at.After(leaf.NotAfter) {
		at = leaf.NotAfter
	}
	if at.Before(leaf.NotBefore) {
		at = leaf.NotBefore
	}
	inter := x509.NewCertPool()
	for _, c := range cs.PeerCertificates[1:] {
		inter.AddCert(c)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: inter, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return refuse(http.StatusUnauthorized, "the certificate is not one of this fleet: %v", err)
	}
	id, region, err := g.opts.Identify(leaf)
	if err != nil {
		return refuse(http.StatusForbidden, "%v", err)
	}
	return caller{site: id, region: region, cert: leaf}
}
