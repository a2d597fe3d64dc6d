package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muster.dev/muster/control/agent/linkmeter"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/hostconfig"
	"muster.dev/muster/internal/wire"
)

// errReconnect ends a session that is to be opened anew at once: the certificate
// is new, or the first server is back.
var errReconnect = errors.New("reconnect")

// session opens the stream to the current server and serves it until it breaks. up
// tells whether it was welcomed.
func (a *Agent) session(ctx context.Context) (up bool, err error) {
	a.mu.Lock()
	server := a.server
	addr := a.join.Servers[server]
	a.mu.Unlock()
	host, _, _ := net.SplitHostPort(addr)
	a.setPhase(PhaseConnecting, "connects to "+addr)

	conn, err := a.connect(addr, linkmeter.Stream, a.TLSClientConfig(host))
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client := wire.NewUplinkClient(conn)
	stream, welcome, err := a.hello(ctx, cancel, client)
	if err != nil {
		a.metrics.connects.WithLabelValues("failed").Inc()
		a.noteError(fmt.Errorf("%s: %w", addr, err))
		a.setPhase(PhaseConnecting, fmt.Sprintf("can't connect to %s: %s", addr, status.Convert(err).Message()))
		a.opts.Logger.Warn("can't connect; trying again", "server", addr, "err", status.Convert(err).Message())
		return false, err
	}
	a.metrics.connects.WithLabelValues("ok").Inc()
	a.metrics.connected.Set(1)
	defer a.metrics.connected.Set(0)
	a.mu.Lock()
	a.connected = welcome
	a.mu.Unlock()
	a.setPhase(PhaseConnected, fmt.Sprintf("connected to %s (regional %s)", addr, welcome.GetRegional()))
	a.opts.Logger.Info("connected", "server", addr, "regional", welcome.GetRegional(), "region", welcome.GetRegion())
	a.desired.connected(client)
	defer func() {
		a.desired.connected(nil)
		a.mu.Lock()
		a.connected = nil
		a.mu.Unlock()
	}()

	a.mirror.Held(welcome.GetKubernetesEpoch(), welcome.GetKubernetesSeq())
	tunnels := a.newTunnels(ctx, addr, host)
	defer tunnels.close()
	// Whichever ends first ends the session.
	parts := []func() error{
		func() error { return a.receive(stream, tunnels) },
		func() error { return a.send(ctx, stream, welcome) },
		func() error { return orReconnect(a.renewLoop(ctx, client)) },
	}
	if server != 0 {
		parts = append(parts, func() error { return orReconnect(a.watchFirst(ctx)) })
	}
	ended := make(chan error, len(parts))
	for _, p := range parts {
		go func() { ended <- p() }()
	}
	err = <-ended
	cancel(err)
	conn.Close()
	for range len(parts) - 1 {
		<-ended
	}
	if !errors.Is(err, errReconnect) && context.Cause(ctx) != nil {
		a.noteError(fmt.Errorf("%s: %w", addr, err))
		a.opts.Logger.Warn("connection lost", "server", addr, "err", status.Convert(err).Message())
	}
	a.setPhase(PhaseConnecting, fmt.Sprintf("lost the connection to %s: %s", addr, status.Convert(err).Message()))
	return true, err
}

// orReconnect turns the success of a part into a wish to reconnect.
func orReconnect(err error) error {
	if err == nil {
		return errReconnect
	}
	return err
}

type uplink = interface {
	Send(*wire.FromSite) error
	Recv() (*wire.ToSite, error)
}

// hello opens the stream and exchanges greetings, in bounded time.
func (a *Agent) hello(ctx context.Context, cancel context.CancelCauseFunc, client wire.UplinkClient) (uplink, *wire.Welcome, error) {
	late := time.AfterFunc(a.opts.ConnectTimeout, func() {
		cancel(status.Errorf(codes.DeadlineExceeded, "no welcome within %s", a.opts.ConnectTimeout))
	})
	defer late.Stop()
	stream, err := client.Connect(ctx)
	if err != nil {
		return nil, nil, causeOf(ctx, err)
	}
	err = stream.Send(&wire.FromSite{Msg: &wire.FromSite_Hello{Hello: &wire.Hello{
		Capability: wire.Capability, AgentVersion: a.opts.Version, Revision: a.desired.revision(), SystemLabels: a.opts.SystemLabels(),
	}}})
	// A failed Send says only EOF; why comes from Recv.
	msg, rerr := stream.Recv()
	if rerr != nil {
		return nil, nil, causeOf(ctx, rerr)
	}
	if err != nil {
		return nil, nil, causeOf(ctx, err)
	}
	w := msg.GetWelcome()
	if w == nil {
		return nil, nil, status.Error(codes.Internal, "the server's first message is no welcome")
	}
	return stream, w, nil
}

func causeOf(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil && !errors.Is(c, context.Canceled) {
		return c
	}
	return err
}

func (a *Agent) receive(stream uplink, tunnels *tunnels) error {
	for {
		msg, err := stream.Recv()
		if err != nil {
			return err
		}
		switch m := msg.GetMsg().(type) {
		case *wire.ToSite_Desired:
			a.desired.want(m.Desired)
		case *wire.ToSite_Change:
			if err := a.desired.change(m.Change); err != nil {
				return err
			}
		case *wire.ToSite_KubernetesResync:
			a.mirror.Resync()
		case *wire.ToSite_OpenTunnel:
			tunnels.open(m.OpenTunnel.GetId())
		case *wire.ToSite_OpenHost:
			if a.opts.OpenHost != nil && m.OpenHost.GetId() != "" {
				a.opts.OpenHost(tunnels.addr, m.OpenHost.GetId(), m.OpenHost.GetHost())
			}
		}
		// Other messages are of a later capability: not for this agent.
	}
}

// mirrorCapability is of the first regionals that take what runs on a site's cluster.
const mirrorCapability = 4

// send writes heartbeats, reports, and what changed on the site's cluster. A report goes
// out when something changed (changes of a quarter second together), and every ReportEvery.
func (a *Agent) send(ctx context.Context, stream uplink, w *wire.Welcome) error {
	interval := w.GetHeartbeatInterval().AsDuration()
	if interval <= 0 {
		interval = 5 * time.Second
	}
	interval = min(max(interval, 100*time.Millisecond), time.Minute)
	beat := time.NewTimer(a.offset(interval))
	defer beat.Stop()
	full := time.NewTimer(a.offset(a.opts.ReportEvery) + interval)
	defer full.Stop()
	soon := time.NewTimer(0) // the first report at once
	awaited := true
	defer soon.Stop()
	tell := time.NewTimer(0)
	defer tell.Stop()
	var due []*wire.KubernetesStatus // parts of one version, to be sent in order
	var told time.Time
	changes := a.changes
	if w.GetCapability() < mirrorCapability {
		changes = nil
	}
	waits := changes // nil while tell is set
	var seq uint64
	for {
		var msg *wire.FromSite
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-beat.C:
			beat.Reset(interval)
			msg = &wire.FromSite{Msg: &wire.FromSite_Heartbeat{Heartbeat: &wire.Heartbeat{Sent: timestamppb.New(a.opts.Now())}}}
		case <-a.report:
			if !awaited { // what changes without a pause is told all the same
				soon.Reset(250 * time.Millisecond)
				awaited = true
			}
			continue
		case <-soon.C:
			awaited = false
		case <-full.C:
			full.Reset(a.opts.ReportEvery)
		case <-waits:
			waits = nil
			tell.Reset(max(0, time.Until(told.Add(a.opts.MirrorEvery))))
			continue
		case <-tell.C:
			if len(due) == 0 {
				due = a.mirror.Next(true)
			}
			if len(due) == 0 || changes == nil {
				waits = changes
				continue
			}
			msg, due = &wire.FromSite{Msg: &wire.FromSite_Kubernetes{Kubernetes: due[0]}}, due[1:]
			if told = time.Now(); len(due) > 0 {
				tell.Reset(0)
			} else {
				waits = changes
			}
		}
		if msg == nil {
			seq++
			msg = &wire.FromSite{Msg: &wire.FromSite_Report{Report: a.reportNow(seq)}}
		}
		if err := stream.Send(msg); err != nil {
			return err
		}
	}
}

func (a *Agent) reportNow(seq uint64) *wire.Report {
	r := &wire.Report{Seq: seq, AppliedRevision: a.desired.appliedRevision(), PolicyHash: a.desired.effective(fleet.KindCollectionPolicy), HostConfiguration: a.desired.effective(hostconfig.Kind), Versions: map[string]string{}}
	maps.Copy(r.Versions, a.opts.Versions())
	r.Versions["agent"] = a.opts.Version
	if a.opts.Software != nil {
		r.Software = a.opts.Software()
	}
	if a.opts.FactoryReset != nil {
		r.FactoryReset = a.opts.FactoryReset()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, typ := range slices.Sorted(maps.Keys(a.conditions)) {
		r.Conditions = append(r.Conditions, a.conditions[typ])
	}
	return r
}

// watchFirst returns nil once the first server shakes hands again.
func (a *Agent) watchFirst(ctx context.Context) error {
	for {
		a.sleep(ctx, a.opts.ReturnEvery*4/5+rand.N(a.opts.ReturnEvery*2/5+1))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.mu.Lock()
		addr := a.join.Servers[0]
		a.mu.Unlock()
		if err := a.probe(ctx, addr); err == nil {
			a.opts.Logger.Info("the first server is back", "server", addr)
			a.mu.Lock()
			a.server = 0
			a.mu.Unlock()
			return nil
		}
	}
}

func (a *Agent) probe(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, a.opts.ConnectTimeout)
	defer cancel()
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	raw, err := a.opts.Dial(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer raw.Close()
	cfg := a.TLSClientConfig(host)
	cfg.NextProtos = []string{"h2"}
	return tls.Client(raw, cfg).HandshakeContext(ctx)
}
