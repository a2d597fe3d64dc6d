package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/controllers"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/fleetapi"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/health/defaults"
	"muster.dev/muster/internal/factoryreset"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/testkit/realregional"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/relay"
)

// fleetWorld is a world with a control that renders, a regional, and what an agent needs to
// join.
type fleetWorld struct {
	*world
	server  *fleetapi.Server
	gateway string
	token   string
	// revocations is the file of those that control keeps.
	revocations string
	// silence cuts the line between control and its regional, speak mends it.
	silence, speak func()
}

// parts of the store and the server, as control puts them together.
type parts struct {
	*desired.Store
	*fleetapi.Server
}

// fleets counts them: all tests of the binary share an API server.
var fleets atomic.Int32

func newFleet(t *testing.T) *fleetWorld {
	t.Helper()
	f := &fleetWorld{world: newWorld(t, fmt.Sprintf("e2e-fleet-%d", fleets.Add(1)))}
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	store := desired.New(desired.Options{Logger: log, Registerer: prometheus.NewRegistry()})
	dir := t.TempDir()
	_, err := f.ca.EnsureControl(dir, []string{"127.0.0.1"})
	must(err)
	files, err := identity.LoadFiles(filepath.Join(dir, pki.PairFile), filepath.Join(dir, pki.TrustFile))
	must(err)
	f.revocations = filepath.Join(t.TempDir(), "revocations.json")
	f.server, err = fleetapi.New(fleetapi.Options{RevocationsFile: f.revocations, Orders: func(o *factoryreset.Order) ([]byte, error) {
		pair, _, err := files.Current()
		if err != nil {
			return nil, err
		}
		return o.Sign(pair)
	}, Registrar: f.svc, Desired: store, Client: f.client, Logger: log, Registerer: prometheus.NewRegistry()})
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	inv, err := inventory.New(inventory.Options{Cache: f.cache, Settle: 20 * time.Millisecond, Policies: []inventory.PolicyKind{inventory.CollectionPolicies(), inventory.HostConfigurations()}, Logger: log})
	must(err)
	runner := controllers.New(controllers.Options{Client: f.client, Cache: f.cache, Inventory: inv, RenderedPolicy: store.PolicyHash, RenderedPolicies: store.PolicyGenerations, Reports: f.server, Hosts: parts{store, f.server},
		DefaultCollectionPolicy: defaults.CollectionPolicy().Spec, DefaultHealthPolicy: defaults.HealthPolicy().Spec, Logger: log, Registerer: prometheus.NewRegistry()})
	wg.Go(func() { _ = f.server.Run(ctx) })
	wg.Go(func() { _ = inv.Run(ctx) })
	wg.Go(func() { _ = runner.Run(ctx) })
	must(desired.Feed(ctx, f.cache, inv, store))
	must(fleetapi.Feed(ctx, f.cache, f.server))

	lis, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	addr := lis.Addr().String()
	g := f.server.NewGRPC(files, nil)
	wg.Go(func() { _ = g.Serve(lis) })
	t.Cleanup(g.Stop)

	rdir := t.TempDir()
	_, err = f.ca.EnsureRegional(rdir, "eu-1", nil)
	must(err)
	rfiles, err := identity.LoadFiles(filepath.Join(rdir, pki.PairFile), filepath.Join(rdir, pki.TrustFile))
	must(err)
	var line cable
	f.silence, f.speak = line.cut, line.mend
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithContextDialer(line.dial), grpc.WithTransportCredentials(credentials.NewTLS(rfiles.ClientConfig("127.0.0.1", identity.IsControl))))
	must(err)
	t.Cleanup(func() { conn.Close() })
	up, err := relay.New(relay.Options{Name: "eu-1", Dir: t.TempDir(), Control: wire.NewControlClient(conn), MinBackoff: time.Millisecond, MaxBackoff: 50 * time.Millisecond, OnRegional: func([]relay.Item) []relay.ItemError { return nil }})
	must(err)
	wg.Go(func() { _ = up.Run(ctx) })
	f.gateway = realregional.StartBelow(t, "eu-1", 0, f.ca, up).Gateway.Addr().String()
	f.token = f.world.token(v1alpha1.RegistrationTokenSpec{AutoApprove: true}).String()
	return f
}

// cable is a line that can be cut.
type cable struct {
	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

func (c *cable) dial(ctx context.Context, addr string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		return nil, errors.New("the line is cut")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err == nil {
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	for _, conn := range c.conns {
		conn.Close()
	}
}

func (c *cable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = false
}

// join tells a directory how to register.
func (f *fleetWorld) join(dir, site string) {
	f.t.Helper()
	if err := agent.Join(dir, agent.JoinConfig{Servers: []string{f.gateway}, Token: f.token, CAHash: f.ca.Hash(), Site: site}); err != nil {
		f.t.Fatal(err)
	}
}
