package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/control/agent/linkmeter"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/tunnel"
	"muster.dev/muster/internal/wire"
)

// Reach opens a connection to a virtual host, NAMESPACE/NAME, of other sites: through the
// server that the stream is open to, or through another one that the agent knows, where
// none of the sites that serve it is connected to the first. Nothing of it may be trusted
// before the handshake of PeerTLS. ctx bounds the opening alone.
func (a *Agent) Reach(ctx context.Context, host string) (net.Conn, error) {
	a.mu.Lock()
	servers := slices.Concat(a.join.Servers[a.server:], a.join.Servers[:a.server])
	a.mu.Unlock()
	var last error
	for _, addr := range servers {
		conn, err := a.hostStream(ctx, addr, &wire.TunnelData{Id: host}, wire.UplinkClient.Reach)
		if err == nil {
			return conn, nil
		}
		last = fmt.Errorf("%s: %s", addr, status.Convert(err).Message())
		if c := status.Code(err); c != codes.Unavailable && c != codes.NotFound && c != codes.Unimplemented || ctx.Err() != nil {
			break
		}
	}
	if last == nil {
		last = ErrNotJoined
	}
	return nil, last
}

// Answer is the other end of a Reach, that Options.OpenHost was called for.
func (a *Agent) Answer(ctx context.Context, server, id string) (net.Conn, error) {
	return a.hostStream(ctx, server, &wire.TunnelData{Id: id}, wire.UplinkClient.Answer)
}

// Refuse tells a server why the site can't serve the connection.
func (a *Agent) Refuse(ctx context.Context, server, id, why string) error {
	p, err := a.hosts.get(a, server)
	if err != nil {
		return err
	}
	defer a.hosts.put(p)
	ctx, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	st, err := wire.NewUplinkClient(p.conn).Answer(ctx)
	if err == nil {
		err = st.Send(&wire.TunnelData{Id: id, Refused: why})
	}
	if err == nil {
		_, err = st.Recv() // until it was taken
	}
	if code := status.Code(err); code == codes.NotFound || code == codes.OK {
		return nil
	}
	return err
}

// PeerTLS is for the connections of Reach and Answer: the other end is a site of this
// fleet, of which verify says whether it is a right one.
func (a *Agent) PeerTLS(verify func(fleet.SiteID) error) *tls.Config {
	return identity.SiteConfig(a.current, verify)
}

type hostClient = grpc.BidiStreamingClient[wire.TunnelData, wire.TunnelData]

// hostStream opens a stream. The server says with its first message, which has no data,
// that the other end is there.
func (a *Agent) hostStream(ctx context.Context, addr string, first *wire.TunnelData, open func(wire.UplinkClient, context.Context, ...grpc.CallOption) (hostClient, error)) (net.Conn, error) {
	p, err := a.hosts.get(a, addr)
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	st, err := open(wire.NewUplinkClient(p.conn), life)
	if err == nil {
		_ = st.Send(first) // why it failed is told by Recv
		_, err = st.Recv()
	}
	if !stop() && err == nil { // ctx ended meanwhile
		err = status.FromContextError(ctx.Err()).Err()
	}
	if err != nil {
		cancel()
		if c := status.Code(err); c == codes.Unauthenticated || c == codes.PermissionDenied {
			a.hosts.retire(p) // with the certificate that it was opened with
		}
		a.hosts.put(p)
		return nil, err
	}
	seen := &endedStream{hostClient: st, ended: make(chan struct{})}
	return tunnel.Windowed(seen, addr, func() {
		go func() { // what was written last has to get there
			late := time.NewTimer(drain)
			defer late.Stop()
			select {
			case <-seen.ended:
			case <-late.C:
			}
			cancel()
			a.hosts.put(p)
		}()
	}), nil
}

// endedStream tells when nothing comes any more.
type endedStream struct {
	hostClient
	once  sync.Once
	ended chan struct{}
}

// Recv implements tunnel.Stream.
func (s *endedStream) Recv() (*wire.TunnelData, error) {
	m, err := s.hostClient.Recv()
	if err != nil {
		s.once.Do(func() { close(s.ended) })
	}
	return m, err
}

// Bounds of the connections to servers that carry those to virtual hosts. A server takes 32
// streams a connection.
const (
	hostStreams  = 30
	maxHostConns = 4                // to one server
	hostConnAge  = 30 * time.Minute // after which new streams get another one
	hostConnIdle = time.Minute
)

// errTooManyHosts is when all of them are in use.
var errTooManyHosts = errors.New("the site has as many connections to and from virtual hosts as it may have")

// hostConns are connections to servers, apart from the stream's: what goes through them
// must not hold up heartbeats, and outlives sessions.
type hostConns struct {
	mu  sync.Mutex
	all map[string][]*hostConn // by server
}

type hostConn struct {
	addr    string
	conn    *grpc.ClientConn
	streams int
	born    time.Time
	retired bool
}

func (h *hostConns) get(a *Agent, addr string) (*hostConn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.all[addr] {
		if !c.retired && c.streams < hostStreams && time.Since(c.born) < hostConnAge {
			c.streams++
			return c, nil
		}
	}
	if len(h.all[addr]) >= maxHostConns {
		return nil, status.Error(codes.ResourceExhausted, errTooManyHosts.Error())
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	conn, err := a.connect(addr, linkmeter.Tunnels, a.TLSClientConfig(host))
	if err != nil {
		return nil, err
	}
	c := &hostConn{addr: addr, conn: conn, streams: 1, born: time.Now()}
	if h.all == nil {
		h.all = map[string][]*hostConn{}
	}
	h.all[addr] = append(h.all[addr], c)
	return c, nil
}

func (h *hostConns) retire(c *hostConn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.retired = true
}

// put gives a stream back; the last one's connection is closed a while later.
func (h *hostConns) put(c *hostConn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.streams--; c.streams > 0 {
		return
	}
	if c.retired {
		h.dropLocked(c)
		return
	}
	time.AfterFunc(hostConnIdle, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if c.streams == 0 {
			h.dropLocked(c)
		}
	})
}

func (h *hostConns) dropLocked(c *hostConn) {
	if i := slices.Index(h.all[c.addr], c); i >= 0 {
		h.all[c.addr] = slices.Delete(h.all[c.addr], i, i+1)
		c.conn.Close()
	}
}

// close ends all of them.
func (h *hostConns) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, list := range h.all {
		for _, c := range list {
			c.conn.Close()
		}
	}
	clear(h.all)
}
