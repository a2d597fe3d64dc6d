package hostile

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// Anyone is a peer that can reach a gateway's port and has no certificate. Safe for
// concurrent use.
type Anyone struct {
	Server string // HOST:PORT

	holding
}

// Attacks of anyone.
func (a *Anyone) Attacks() []Attack {
	// The peer doesn't care whom it harms.
	cfg := func(proto string) *tls.Config {
		return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{proto}, MinVersion: tls.VersionTLS13} //nolint:gosec // an attacker
	}
	return []Attack{
		{Name: "connections without a handshake", Every: 100 * time.Millisecond, Try: func(ctx context.Context, _ int) string {
			c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", a.Server)
			if err != nil {
				return short(err)
			}
			a.hold(c)
			return "held"
		}},
		{Name: "requests without a certificate that never end", Every: 100 * time.Millisecond, Try: func(ctx context.Context, _ int) string {
			return a.slow(ctx, a.Server, cfg("http/1.1"), "POST /muster.wire.v1.Registration/Register HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{")
		}},
		{Name: "HTTP/2 connections that say nothing", Every: 100 * time.Millisecond, Try: func(ctx context.Context, _ int) string {
			return a.slow(ctx, a.Server, cfg("h2"), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		}},
	}
}
