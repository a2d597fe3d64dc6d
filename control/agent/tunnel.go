package agent

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"muster.dev/muster/control/agent/linkmeter"
	"muster.dev/muster/internal/tunnel"
	"muster.dev/muster/internal/wire"
)

// maxTunnels is how many connections control may have to the site at once: more than what is
// served at the other end takes, which tells the others so. A server takes 32 streams.
const maxTunnels = 30

// tunnels are those of one session. They have a connection of their own, made for the
// first: what goes through them must not hold up heartbeats.
type tunnels struct {
	a          *Agent
	ctx        context.Context
	cancel     context.CancelFunc
	addr, host string

	mu    sync.Mutex
	conn  *grpc.ClientConn
	n     int
	ended bool
	wg    sync.WaitGroup
}

func (a *Agent) newTunnels(ctx context.Context, addr, host string) *tunnels {
	t := &tunnels{a: a, addr: addr, host: host}
	t.ctx, t.cancel = context.WithCancel(ctx)
	return t
}

// open calls back, and serves what comes.
func (t *tunnels) open(id string) {
	if t.a.opts.Tunnel == nil || id == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || t.n >= maxTunnels {
		t.a.opts.Logger.Warn("a tunnel was not opened", "open", t.n, "most", maxTunnels)
		return
	}
	if t.conn == nil {
		conn, err := t.a.connect(t.addr, linkmeter.Tunnels, t.a.TLSClientConfig(t.host))
		if err != nil {
			t.a.opts.Logger.Warn("a tunnel was not opened", "err", err)
			return
		}
		t.conn = conn
	}
	t.n++
	client := wire.NewUplinkClient(t.conn)
	t.wg.Go(func() {
		defer func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.n--
		}()
		t.serve(client, id)
	})
}

// drain is how long what the site said last may take to get there.
const drain = 10 * time.Second

func (t *tunnels) serve(client wire.UplinkClient, id string) {
	ctx, cancel := context.WithCancel(t.ctx)
	stream, err := client.Tunnel(ctx)
	if err == nil {
		err = stream.Send(&wire.TunnelData{Id: id})
	}
	if err != nil {
		cancel()
		t.a.opts.Logger.Warn("a tunnel was not opened", "err", status.Convert(err).Message())
		return
	}
	conn := tunnel.Conn(stream, "control", func() { time.AfterFunc(drain, cancel) })
	defer conn.Close()
	t.a.opts.Tunnel(ctx, conn)
}

// close ends all of them.
func (t *tunnels) close() {
	t.mu.Lock()
	t.ended = true
	conn := t.conn
	t.mu.Unlock()
	t.cancel()
	if conn != nil {
		conn.Close()
	}
	t.wg.Wait()
}
