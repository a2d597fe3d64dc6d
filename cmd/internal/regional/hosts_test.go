package regional

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/control/agent"
	agenthosts "muster.dev/muster/control/agent/hosts"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/fleetapi"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	sites "muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/vhost"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/gateway"
	"muster.dev/muster/regional/hosts"
	"muster.dev/muster/regional/relay"
)

// lets is a registrar that lets every machine in as the site that it says it is, of acme.
type lets struct{ ca *pki.CA }

func (l lets) Register(_ context.Context, req *wire.RegisterRequest, _ string) (*wire.RegisterResponse, error) {
	csr, err := pki.ParseCSR(req.GetCsr())
	if err != nil {
		return nil, err
	}
	out, err := l.ca.IssueSite(csr.PublicKey, fleet.SiteID{Tenant: "acme", Name: req.GetSite()}, "eu")
	if err != nil {
		return nil, err
	}
	return &wire.RegisterResponse{Tenant: "acme", Site: req.GetSite(), Issued: &wire.Issued{CertificatePem: out.CertPEM, TrustBundlePem: out.BundlePEM, NotAfter: timestamppb.New(out.Leaf.NotAfter)}}, nil
}

func (lets) Renew(context.Context, fleet.SiteID, []byte) (*wire.Issued, error) {
	return nil, errors.New("not in this test")
}

// nowhere is where samples go: these sites send none. The gateway looks up series there now
// and again all the same.
type nowhere struct{}

func (nowhere) Appender(context.Context) storage.Appender { return lookups{} }

type lookups struct{ storage.Appender }

func (lookups) Rollback() error { return nil }

func (lookups) GetRef(labels.Labels, uint64) (storage.SeriesRef, labels.Labels) {
	return 0, labels.EmptyLabels()
}

// around is a site's cluster: what stands in it for hosts of others, and its own Service.
type around struct {
	mu      sync.Mutex
	ports   map[string]int // by the name of the Service
	service string         // address; empty: there is none
}

func (a *around) Publish(_ context.Context, list []agenthosts.Published) (map[string]error, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ports = map[string]int{}
	for _, p := range list {
		a.ports[p.Host.Host] = p.Port
	}
	return nil, nil
}

func (a *around) Dial(ctx context.Context, h *vhost.Host) (net.Conn, error) {
	if a.service == "" || h.Service != "db" || h.ServicePort != 5432 {
		return nil, fmt.Errorf("there is no Service %s:%d", h.Service, h.ServicePort)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", a.service)
}

// dial connects to a Service by its name, as a pod of the site does.
func (a *around) dial(t *testing.T, name string) (net.Conn, error) {
	a.mu.Lock()
	port := a.ports[name]
	a.mu.Unlock()
	if port == 0 {
		return nil, fmt.Errorf("no Service %s", name)
	}
	return (&net.Dialer{}).DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
}

// between is control, a regional and what tells them, each as its role is put together.
type between struct {
	ca    *pki.CA
	store *desired.Store
	gw    *gateway.Gateway
}

func startBetween(t *testing.T, objects ...any) *between {
	t.Helper()
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
	caDir := t.TempDir() // made first, all of them go last
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); running.Wait() })
	spawn := func(run func(context.Context) error) { running.Go(func() { _ = run(ctx) }) }
	files := func(ensure func(dir string) error) *identity.Files {
		t.Helper()
		dir := t.TempDir()
		must(ensure(dir))
		f, err := identity.LoadFiles(filepath.Join(dir, pki.PairFile), filepath.Join(dir, pki.TrustFile))
		must(err)
		return f
	}
	ca, err := pki.Open(pki.Options{Dir: caDir})
	must(err)
	b := &between{ca: ca}

	// Control.
	scheme := runtime.NewScheme()
	must(v1alpha1.AddToScheme(scheme))
	kube := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Site{}).Build()
	b.store = desired.New(desired.Options{Logger: log, Registerer: prometheus.NewRegistry(), Regionals: []string{"eu-1"}, RenderEvery: time.Millisecond})
	server, err := fleetapi.New(fleetapi.Options{Registrar: lets{ca}, Desired: b.store, Client: kube, Logger: log, Registerer: prometheus.NewRegistry()})
	must(err)
	book := sites.NewBook("acme")
	for _, o := range objects {
		switch o := o.(type) {
		case *v1alpha1.VirtualSite:
			book.Put(o)
		case *v1alpha1.Site:
			must(kube.Create(t.Context(), o))
			book.Put(o)
			server.SetSite(fleet.SiteID{Tenant: "acme", Name: o.Name}, o)
		}
	}
	b.store.Apply(book.Snapshot())
	b.store.Start()
	server.Synced()
	spawn(b.store.Run)
	spawn(server.Run)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	control := server.NewGRPC(files(func(dir string) error { _, err := ca.EnsureControl(dir, []string{"127.0.0.1"}); return err }), nil)
	go func() { _ = control.Serve(listener) }()
	t.Cleanup(control.Stop)

	// The regional.
	own := files(func(dir string) error { _, err := ca.EnsureRegional(dir, "eu-1", []string{"127.0.0.1"}); return err })
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(own.ClientConfig("127.0.0.1", identity.IsControl))))
	must(err)
	t.Cleanup(func() { conn.Close() })
	held, err := newHoldings(config.Config{}, config.Regional{Name: "eu-1"}, nil)
	must(err)
	up, err := relay.New(relay.Options{Name: "eu-1", Dir: t.TempDir(), Control: wire.NewControlClient(conn), OnRegional: held.apply, MaxBackoff: time.Second, Logger: log})
	must(err)
	spawn(up.Run)
	broker := hosts.New(hosts.Options{Providers: held.inv.providers, Logger: log})
	held.inv.onChange(broker.Recheck)
	b.gw, err = gateway.New(gateway.Options{Hosts: broker, Name: "eu-1", Listen: "127.0.0.1:0", TLS: own.ServerConfig(tls.RequestClientCert), Trust: trust(own), Edge: nowhere{}, Series: gateway.NewHeadSeries(nil),
		Forward:  func(string, []remotewrite.Series) (func() error, error) { return func() error { return nil }, nil },
		Upstream: up, Logger: log, Registerer: prometheus.NewRegistry()})
	must(err)
	spawn(b.gw.Run)
	return b
}

// site starts an agent.
func (b *between) site(t *testing.T, name, service string) *around {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(t.Output(), nil)).With("site", name)
	}
	dir, a := t.TempDir(), &around{service: service}
	if err := agent.Join(dir, agent.JoinConfig{Servers: []string{"https://" + b.gw.Addr().String()}, Token: "muster1.acme.tok.secret", CAHash: b.ca.Hash(), Site: name}); err != nil {
		t.Fatal(err)
	}
	h := agenthosts.New(agenthosts.Options{Site: a, Listen: "127.0.0.1", Logger: log, RetryAfter: 50 * time.Millisecond})
	edge, err := agent.New(agent.Options{Dir: dir, Version: "v1", Logger: log, Sets: map[string]agent.SetApplier{vhost.Kind: h}, OpenHost: h.Open,
		Appliers: map[string]agent.Applier{fleet.KindCollectionPolicy: takes{}}, MinBackoff: 10 * time.Millisecond, MaxBackoff: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = edge.Run(ctx) })
	wg.Go(func() { _ = h.Run(ctx, edge) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return a
}

type takes struct{}

func (takes) Apply(context.Context, *wire.Item, []byte) error { return nil }

// A VirtualHost and an AdvertisePolicy make the Service of one site reachable by name from
// another, through control, the regional and both agents, all of them real but for the
// clusters; and without the policy it is not, and what was open ends.
func TestAVirtualHostFromItsObjectsToItsBytes(t *testing.T) {
	service, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { service.Close() })
	go func() {
		for {
			c, err := service.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.WriteString(c, "this is berlin\n")
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	virtual := func(name, role string) *v1alpha1.VirtualSite {
		return &v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-shared", Name: name}, Spec: v1alpha1.VirtualSiteSpec{SiteSelector: metav1.LabelSelector{MatchLabels: map[string]string{"role": role}}}}
	}
	site := func(name, role string) *v1alpha1.Site {
		return &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: name, Labels: map[string]string{"role": role}}, Spec: v1alpha1.SiteSpec{Approved: true}}
	}
	b := startBetween(t, virtual("datacenters", "dc"), virtual("shops", "shop"), site("berlin", "dc"), site("paris", "shop"), site("oslo", "neither"))
	b.site(t, "berlin", service.Addr().String())
	paris, oslo := b.site(t, "paris", ""), b.site(t, "oslo", "")

	db := v1alpha1.VirtualHostSpec{Host: "db-global", Service: v1alpha1.VirtualHostService{Name: "db", Port: 5432}, VirtualSite: "shared/datacenters", Protocol: v1alpha1.ProtocolTCP}
	b.store.SetHosts(map[string]desired.HostObjects{"acme": {
		Hosts:    map[string]v1alpha1.VirtualHostSpec{"shop/db": db},
		Policies: map[string]v1alpha1.AdvertisePolicySpec{"shop/shops": {VirtualHost: "db", VirtualSites: []string{"shared/shops"}}},
	}})
	var conn net.Conn
	testkit.Eventually(t, "paris reaches db-global", func() error {
		c, err := paris.dial(t, "db-global")
		if err != nil {
			return err
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		line, err := bufio.NewReader(c).ReadString('\n')
		if err == nil && line != "this is berlin\n" {
			err = fmt.Errorf("somebody says %q", line)
		}
		if err != nil {
			c.Close()
			return err
		}
		conn = c
		return nil
	})
	defer conn.Close()
	said := strings.Repeat("what paris says\n", 10_000)
	go func() { _, _ = io.WriteString(conn, said) }()
	heard := make([]byte, len(said))
	if _, err := io.ReadFull(conn, heard); err != nil || string(heard) != said {
		t.Fatalf("%d bytes came back whole: %t; %v", len(heard), string(heard) == said, err)
	}
	if _, err := oslo.dial(t, "db-global"); err == nil {
		t.Error("oslo, to which nothing is advertised, has the Service")
	}
	// The policy goes.
	b.store.SetHosts(map[string]desired.HostObjects{"acme": {Hosts: map[string]v1alpha1.VirtualHostSpec{"shop/db": db}}})
	testkit.EventuallyTrue(t, "paris has the Service no more", func() bool {
		c, err := paris.dial(t, "db-global")
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	var late net.Error
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.As(err, &late) && late.Timeout() {
		t.Errorf("what was open goes on: %v", err)
	}
}
