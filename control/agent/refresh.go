package agent

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/status"

	"muster.dev/muster/control/agent/linkmeter"
	"muster.dev/muster/internal/wire"
)

// Refresh sees once to the certificate in the directory, for a site that another program
// pushes for. It registers the machine if there is none or it is over, renews it when that is
// due, as Run does, and asks nobody otherwise. again is when to call it next: when it is due, or,
// while the site waits for approval (there is no certificate then, see Identity), soon. After an
// error the certificate that there was is still in the directory.
//
// It is not for an agent that runs.
func (a *Agent) Refresh(ctx context.Context) (again time.Duration, err error) {
	a.mu.Lock()
	servers := len(a.join.Servers)
	a.mu.Unlock()
	if servers == 0 {
		return 0, ErrNotJoined
	}
	due := func() time.Duration { return max(a.renewAt().Sub(a.opts.Now()), time.Second) }
	if !a.needsEnrolment() && a.opts.Now().Before(a.renewAt()) {
		return due(), nil
	}
	for {
		if a.needsEnrolment() {
			again, err = a.Enrol(ctx)
		} else if err = a.renewOnce(ctx); refusesCertificate(err) {
			// Revoked before the site was let in anew, or over by the gateway's clock.
			again, err = a.Enrol(ctx)
		}
		if err == nil && again == 0 {
			again = due()
		}
		if err == nil || isRefusal(err) || ctx.Err() != nil || !a.nextServer() {
			return again, err
		}
	}
}

// renewOnce renews over a connection of its own.
func (a *Agent) renewOnce(ctx context.Context) error {
	a.mu.Lock()
	addr := a.join.Servers[a.server]
	a.mu.Unlock()
	host, _, _ := net.SplitHostPort(addr)
	conn, err := a.connect(addr, linkmeter.Stream, a.TLSClientConfig(host))
	if err != nil {
		return err
	}
	defer conn.Close()
	err = a.renew(ctx, wire.NewUplinkClient(conn))
	if err != nil {
		a.opts.Logger.Warn("can't renew the certificate", "server", addr, "err", status.Convert(err).Message())
	}
	return err
}
