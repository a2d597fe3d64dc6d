package agent

import (
	"context"
	"net"
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of <netinet/tcp.h>.
const tcpUserTimeout = 18

// dial opens a connection that breaks when the other end has acknowledged nothing
// for 15 s. Heartbeats keep bytes under way, so a dead path shows by then; gRPC's
// keepalive pings would need the server's consent.
func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{
		Timeout: 10 * time.Second,
		Control: func(_, _ string, c syscall.RawConn) error {
			var serr error
			if err := c.Control(func(fd uintptr) {
				serr = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, 15000)
			}); err != nil {
				return err
			}
			return serr
		},
	}
	return d.DialContext(ctx, network, addr)
}
