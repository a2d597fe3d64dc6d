package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/fleetapi"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/control/registration"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/wire"
)

// calls counts what a client asks of the API server, by verb and kind.
type calls struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *calls) add(verb string, o any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := fmt.Sprintf("%T", o)
	c.n[verb+" "+kind[strings.LastIndex(kind, ".")+1:]]++
}

func (c *calls) taken() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

// counting is a client of its own connections whose calls are counted.
func counting(t *testing.T, cfg *rest.Config, o client.Options) (client.Client, *calls) {
	t.Helper()
	real, err := client.NewWithWatch(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	n := &calls{n: map[string]int{}}
	return interceptor.NewClient(real, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			n.add("get", o)
			return c.Get(ctx, k, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			n.add("list", l)
			return c.List(ctx, l, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			n.add("create", o)
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			n.add("write", o)
			return c.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			n.add("write", o)
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			n.add("write", o)
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			n.add("write", o)
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}), n
}

// regional opens the stream of a regional to a server of the fleet API.
func (w *world) regional(server *fleetapi.Server) grpc.BidiStreamingClient[wire.RelayUp, wire.RelayDown] {
	w.t.Helper()
	files := func(ensure func(dir string) error) *identity.Files {
		w.t.Helper()
		dir := w.t.TempDir()
		if err := ensure(dir); err != nil {
			w.t.Fatal(err)
		}
		f, err := identity.LoadFiles(filepath.Join(dir, pki.PairFile), filepath.Join(dir, pki.TrustFile))
		if err != nil {
			w.t.Fatal(err)
		}
		return f
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	g := server.NewGRPC(files(func(dir string) error { _, err := w.ca.EnsureControl(dir, []string{"127.0.0.1"}); return err }), nil)
	go func() { _ = g.Serve(lis) }()
	w.t.Cleanup(g.Stop)
	mine := files(func(dir string) error { _, err := w.ca.EnsureRegional(dir, "eu-1", nil); return err })
	conn, err := grpc.NewClient("passthrough:///"+lis.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(mine.ClientConfig("127.0.0.1", identity.IsControl))))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	stream, err := wire.NewControlClient(conn).Relay(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.send(stream, &wire.RelayUp{Msg: &wire.RelayUp_Hello{Hello: &wire.RelayHello{Capability: 1, Regional: "eu-1", Version: "v"}}})
	return stream
}

func (w *world) send(stream grpc.BidiStreamingClient[wire.RelayUp, wire.RelayDown], m *wire.RelayUp) {
	w.t.Helper()
	if err := stream.Send(m); err != nil {
		w.t.Fatal(err)
	}
}

// What a site costs the API server, from its token to a status that says what it runs.
func TestASiteIsTwoWrites(t *testing.T) {
	w := newWorld(t, "e2e-writes")
	kube, n := counting(t, w.cfg, client.Options{Scheme: w.client.Scheme()})
	store := desired.New(desired.Options{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	var server *fleetapi.Server
	svc := registration.New(registration.Options{Client: kube, Cache: w.cache, Issuer: w.ca, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		Certified: func(s *v1alpha1.Site, notAfter time.Time) bool { return server.Certified(s, notAfter) }})
	server, err := fleetapi.New(fleetapi.Options{Registrar: svc, Desired: store, Client: kube, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	store.Start()
	if err := fleetapi.Feed(t.Context(), w.cache, server); err != nil {
		t.Fatal(err)
	}
	stream := w.regional(server)
	tok := w.token(v1alpha1.RegistrationTokenSpec{AutoApprove: true})
	w.eventually("the cache to know the token and its tenant", func() bool {
		return w.cache.Get(t.Context(), types.NamespacedName{Namespace: w.tenant + "-system", Name: "tok"}, &v1alpha1.RegistrationToken{}) == nil &&
			w.cache.Get(t.Context(), types.NamespacedName{Name: w.tenant}, &v1alpha1.Tenant{}) == nil
	})

	const sites = 20
	system := map[string]string{"vendor": "Dell Inc.", "arch": "amd64"}
	hash := strings.Repeat("ab", 32)
	for i := range sites {
		name := fmt.Sprintf("m-%02d", i)
		resp, err := svc.Register(t.Context(), &wire.RegisterRequest{Token: tok.String(), Csr: csr(t), Site: name, SystemLabels: system}, "192.0.2.1:1")
		if err != nil || resp.Issued == nil {
			t.Fatalf("%v, %v", resp, err)
		}
		w.send(stream, &wire.RelayUp{Msg: &wire.RelayUp_Up{Up: &wire.SiteUp{Tenant: w.tenant, Site: name, Hello: &wire.Hello{AgentVersion: "v9", SystemLabels: system}}}})
		w.send(stream, &wire.RelayUp{Msg: &wire.RelayUp_Report{Report: &wire.SiteReport{Tenant: w.tenant, Site: name, Report: &wire.Report{PolicyHash: hash, Versions: map[string]string{"os": "x"}}}}})
	}
	w.eventually("all that sites said to be heard", func() bool {
		for i := range sites {
			if h, _, _ := server.PolicyOf(fleet.SiteID{Tenant: w.tenant, Name: fmt.Sprintf("m-%02d", i)}); h != hash {
				return false
			}
		}
		return true
	})
	// Only now does anything write, so that a slow machine makes no more writes of it.
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Run(ctx) }()
	defer func() { cancel(); <-done }()
	w.eventually("statuses that say everything", func() bool {
		for i := range sites {
			s := w.site(fmt.Sprintf("m-%02d", i)).Status
			if s.Phase != fleet.PhaseOnline || s.PolicyHash != hash || s.CertificateNotAfter == nil || s.Versions["os"] != "x" || s.LastSeen == nil {
				return false
			}
		}
		return true
	})
	want := map[string]int{
		"get RegistrationToken": sites, // the count of uses
		"create Site":           sites,
		"write Site":            sites, // the one status
		// One each, because these registered one after the other; requests that come
		// together share it.
		"write RegistrationToken": sites,
	}
	if got := n.taken(); !maps.Equal(got, want) {
		t.Errorf("%d registrations asked %v of the API server, want %v", sites, got, want)
	}
}
