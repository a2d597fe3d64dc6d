package linkmeter

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
)

// Credentials measures the handshakes of gRPC connections that are for one of the
// constants.
func (m *Meter) Credentials(of string, c credentials.TransportCredentials) credentials.TransportCredentials {
	return &measuredCredentials{c, m, of}
}

type measuredCredentials struct {
	credentials.TransportCredentials
	meter *Meter
	of    string
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *measuredCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	began := time.Now()
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	c.meter.Handshake(c.of, time.Since(began), err)
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (c *measuredCredentials) Clone() credentials.TransportCredentials {
	return &measuredCredentials{c.TransportCredentials.Clone(), c.meter, c.of}
}
