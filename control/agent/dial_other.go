//go:build !linux

package agent

import (
	"context"
	"net"
	"time"
)

func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	return d.DialContext(ctx, network, addr)
}
