package hosts_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/control/agent/hosts"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/fakeregional"
	"muster.dev/muster/internal/vhost"
	"muster.dev/muster/internal/wire"
	broker "muster.dev/muster/regional/hosts"
)

// directory is what control has told regionals.
type directory struct {
	mu    sync.Mutex
	hosts []*vhost.Host
}

func (d *directory) set(list ...*vhost.Host) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hosts = list
}

func (d *directory) providers(c fleet.SiteID, key string) ([]broker.Provider, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.hosts {
		if h.Tenant == c.Tenant && h.Key() == key && h.Consumes(c.Name) {
			var out []broker.Provider
			for _, p := range h.Providers {
				out = append(out, broker.Provider{Site: p})
			}
			return out, true
		}
	}
	return nil, false
}

// surroundings is a site's cluster.
type surroundings struct {
	mu      sync.Mutex
	ports   map[string]int    // by key, of what is published
	service string            // address of what serves; empty: nothing does
	all     map[string]string // the same by SERVICE:PORT; nil: there is the one
	dialled int
}

func (s *surroundings) Publish(_ context.Context, list []hosts.Published) (map[string]error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ports = map[string]int{}
	failed := map[string]error{}
	for _, p := range list {
		if p.Host.Host == "clash" {
			failed[p.Host.Key()] = errors.New("a Service clash is there already")
			continue
		}
		s.ports[p.Host.Key()] = p.Port
	}
	return failed, nil
}

func (s *surroundings) Dial(ctx context.Context, h *vhost.Host) (net.Conn, error) {
	s.mu.Lock()
	s.dialled++
	addr := s.service
	if s.all != nil {
		addr = s.all[fmt.Sprintf("%s:%d", h.Service, h.ServicePort)]
	}
	s.mu.Unlock()
	if addr == "" {
		return nil, errors.New("connection refused")
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

func (s *surroundings) port(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ports[key]
}

func (s *surroundings) serve(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.service = addr
}

func (s *surroundings) serveAll(all map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = maps.Clone(all)
}

func (s *surroundings) dials() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dialled
}

// site is an agent with hosts that runs.
type site struct {
	*agent.Agent
	*surroundings
	hosts *hosts.Hosts
	id    fleet.SiteID
	stop  func()
}

func startSite(t *testing.T, id fleet.SiteID, regionals ...*fakeregional.Regional) *site {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With("site", id.Name)
	}
	var urls []string
	for _, r := range regionals {
		urls = append(urls, r.URL())
		r.OnRegister(func(req *wire.RegisterRequest) (*wire.RegisterResponse, error) {
			return r.Issue(req, fleet.SiteID{Tenant: strings.Split(req.Token, ".")[1], Name: req.Site})
		})
	}
	dir := t.TempDir()
	if err := agent.Join(dir, agent.JoinConfig{Servers: urls, Token: "muster1." + id.Tenant + ".tok.secret", CAHash: regionals[0].CAHash(), Site: id.Name}); err != nil {
		t.Fatal(err)
	}
	s := &site{surroundings: &surroundings{}, id: id}
	h := hosts.New(hosts.Options{Site: s.surroundings, Listen: "127.0.0.1", Logger: log, RetryAfter: 20 * time.Millisecond})
	s.hosts = h
	var err error
	s.Agent, err = agent.New(agent.Options{Dir: dir, Version: "v1", Logger: log, Sets: map[string]agent.SetApplier{vhost.Kind: h}, OpenHost: h.Open,
		MinBackoff: 5 * time.Millisecond, MaxBackoff: 50 * time.Millisecond, ConditionEvery: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Agent.Run(ctx) })
	wg.Go(func() { _ = h.Run(ctx, s.Agent) })
	s.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(s.stop)
	regionals[0].Eventually(id.String()+" is connected", func() bool { return regionals[0].Seen(id).Connected })
	return s
}

func acme(name string) fleet.SiteID { return fleet.SiteID{Tenant: "acme", Name: name} }

func db() *vhost.Host {
	return &vhost.Host{Tenant: "acme", Namespace: "shop", Name: "db", Host: "db-global", Port: 5432, Service: "db", ServicePort: 5432,
		Providers: []string{"berlin", "lyon"}, Consumers: []string{"paris"}}
}

func item(h *vhost.Host) fakeregional.Blob {
	return fakeregional.Blob{Kind: vhost.Kind, Name: h.Key(), Data: h.Encode()}
}

// echo is a Service that says who it is, and then all it hears once it has heard all of it.
func echo(t *testing.T, who string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.WriteString(c, who+"\n")
				b, _ := io.ReadAll(c) // until the other end has said all
				_, _ = c.Write(b)
			}()
		}
	}()
	return ln.Addr().String()
}

// ask says something to a host from a site and returns who answered and what.
func (s *site) ask(key string, say []byte) (who string, heard []byte, err error) {
	port := s.port(key)
	if port == 0 {
		return "", nil, errors.New("the host is not published")
	}
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return "", nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Write(say); err != nil {
		return "", nil, err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return "", nil, err
	}
	b, err := io.ReadAll(c)
	if err != nil {
		return "", nil, err
	}
	line, rest, ok := bytes.Cut(b, []byte("\n"))
	if !ok {
		return "", nil, errors.New("nobody answered")
	}
	return string(line), rest, nil
}

func (s *site) eventually(t *testing.T, key, want string) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%s reaches %s on %s", s.id.Name, key, want), func() error {
		who, heard, err := s.ask(key, []byte("hello"))
		if err == nil && (who != want || string(heard) != "hello") {
			err = fmt.Errorf("%s said %q", who, heard)
		}
		return err
	})
}

type world struct {
	dir *directory
	b   *broker.Broker
	r   *fakeregional.Regional
}

func newWorld(t *testing.T, change ...func(*broker.Options)) *world {
	t.Helper()
	w := &world{dir: &directory{}}
	o := broker.Options{Providers: w.dir.providers, AnswerWithin: 2 * time.Second}
	for _, c := range change {
		c(&o)
	}
	w.b = broker.New(o)
	w.r = fakeregional.Start(t, fakeregional.Options{Hosts: w.b})
	return w
}

// tell has control tell everybody.
func (w *world) tell(h *vhost.Host) {
	w.dir.set(h)
	for _, name := range append(h.Providers, h.Consumers...) {
		w.r.SetDesired(fleet.SiteID{Tenant: h.Tenant, Name: name}, item(h))
	}
}

// A site reaches what another serves, by a port on its own machine; the bytes arrive whole,
// with the end of one direction before that of the other.
func TestReach(t *testing.T) {
	w := newWorld(t)
	paris, berlin := startSite(t, acme("paris"), w.r), startSite(t, acme("berlin"), w.r)
	berlin.serve(echo(t, "berlin"))
	w.tell(db())
	paris.eventually(t, "shop/db", "berlin")
	body := make([]byte, 3<<20)
	_, _ = rand.Read(body)
	if who, heard, err := paris.ask("shop/db", body); err != nil || who != "berlin" || !bytes.Equal(heard, body) {
		t.Errorf("%s, %d bytes of %d, %v", who, len(heard), len(body), err)
	}
	w.r.Eventually("both tell that it is in effect", func() bool {
		return w.r.Seen(paris.id).Condition("VirtualHostApplied").GetStatus() == "True" && w.r.Seen(berlin.id).Condition("VirtualHostApplied").GetStatus() == "True"
	})
	if berlin.port("shop/db") != 0 {
		t.Error("a site that serves it and does not reach it has it published")
	}

	// More at once than one connection to the regional takes.
	var wg sync.WaitGroup
	errs := make(chan error, 60)
	for range 60 {
		wg.Go(func() { _, _, err := paris.ask("shop/db", body[:100<<10]); errs <- err })
	}
	wg.Wait()
	for range 60 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// The next site is asked when one can't serve, or is gone; and with none there is a reset.
func TestProvidersThatFail(t *testing.T) {
	w := newWorld(t)
	paris, berlin, lyon := startSite(t, acme("paris"), w.r), startSite(t, acme("berlin"), w.r), startSite(t, acme("lyon"), w.r)
	lyon.serve(echo(t, "lyon"))
	w.tell(db())
	for range 4 { // whoever is asked first
		paris.eventually(t, "shop/db", "lyon")
	}
	berlin.serve(echo(t, "berlin"))
	lyon.stop()
	w.r.Eventually("lyon is gone", func() bool { return !w.r.Seen(lyon.id).Connected })
	paris.eventually(t, "shop/db", "berlin")
	berlin.serve("")
	if who, _, err := paris.ask("shop/db", nil); err == nil {
		t.Errorf("%s answered", who)
	}
}

// A site that serves a host that it reaches asks nobody else.
func TestOwnServiceIsNearest(t *testing.T) {
	w := newWorld(t)
	berlin, lyon := startSite(t, acme("berlin"), w.r), startSite(t, acme("lyon"), w.r)
	berlin.serve(echo(t, "berlin"))
	lyon.serve(echo(t, "lyon"))
	h := db()
	h.Consumers = []string{"berlin", "lyon"}
	w.tell(h)
	berlin.eventually(t, "shop/db", "berlin")
	lyon.eventually(t, "shop/db", "lyon")
	lyon.serve("")
	lyon.eventually(t, "shop/db", "berlin")
}

// The server that a site's stream is open to has no site that serves the host: the other has.
func TestThroughTheOtherRegional(t *testing.T) {
	w := newWorld(t)
	two := fakeregional.Start(t, fakeregional.Options{CA: w.r.CA(), Name: "us-1", Hosts: broker.New(broker.Options{Providers: w.dir.providers})})
	paris, berlin := startSite(t, acme("paris"), w.r, two), startSite(t, acme("berlin"), two)
	berlin.serve(echo(t, "berlin"))
	h := db()
	w.tell(h)
	two.SetDesired(berlin.id, item(h))
	paris.eventually(t, "shop/db", "berlin")
}

// What is withdrawn ends, and so do connections that were open.
func TestWithdrawn(t *testing.T) {
	w := newWorld(t)
	paris, berlin := startSite(t, acme("paris"), w.r), startSite(t, acme("berlin"), w.r)
	berlin.serve(echo(t, "berlin"))
	w.tell(db())
	paris.eventually(t, "shop/db", "berlin")
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", paris.port("shop/db")))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, len("berlin\n"))); err != nil {
		t.Fatal(err)
	}
	w.dir.set()
	w.b.Recheck()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an open connection: %v", err)
	}
	w.r.SetDesired(paris.id)
	testkit.EventuallyTrue(t, "it is not published any more", func() bool { return paris.port("shop/db") == 0 })
}

// A name that is taken on the site is told, and nothing else is disturbed.
func TestClash(t *testing.T) {
	w := newWorld(t)
	paris := startSite(t, acme("paris"), w.r)
	taken := db()
	taken.Name, taken.Host = "other", "clash"
	w.r.SetDesired(paris.id, item(taken), item(db()))
	w.r.Eventually("it is told", func() bool {
		return strings.Contains(w.r.Seen(paris.id).Condition("VirtualHostApplied").GetMessage(), "clash is there already")
	})
	if paris.port("shop/db") == 0 {
		t.Error("the other host is not published")
	}
}

// A hostile site has a good certificate and says what it likes: it gets no further than what
// is advertised to it, whatever it calls itself, and can't answer for others.
func TestHostileSites(t *testing.T) {
	w := newWorld(t)
	paris, berlin := startSite(t, acme("paris"), w.r), startSite(t, acme("berlin"), w.r)
	oslo, tokyo := startSite(t, acme("oslo"), w.r), startSite(t, fleet.SiteID{Tenant: "umbrella", Name: "paris"}, w.r)
	berlin.serve(echo(t, "berlin"))
	w.tell(db())
	paris.eventually(t, "shop/db", "berlin")
	for _, s := range []*site{oslo, tokyo, berlin} {
		for _, key := range []string{"shop/db", "shop/other", "../shop/db", "acme/shop/db", ""} {
			if c, err := s.Reach(t.Context(), key); err == nil {
				c.Close()
				t.Errorf("%s reaches %q", s.id, key)
			}
		}
	}
	// An answer that nobody asked it for.
	if c, err := oslo.Answer(t.Context(), strings.TrimPrefix(w.r.URL(), "https://"), "AAAAAAAAAAAAAAAAAAAAAAAAAA"); err == nil {
		c.Close()
		t.Error("oslo answers")
	}

	// A regional that was broken into leads a connection to somebody else: the ends notice.
	evil := &directory{}
	wrong := db()
	wrong.Consumers, wrong.Providers = []string{"berlin", "oslo", "paris"}, []string{"berlin", "oslo"}
	evil.set(wrong)
	bad := fakeregional.Start(t, fakeregional.Options{CA: w.r.CA(), Name: "bad", Hosts: broker.New(broker.Options{Providers: evil.providers})})
	intruder, victim := startSite(t, acme("oslo"), bad), startSite(t, acme("berlin"), bad)
	victim.serve(echo(t, "berlin"))
	bad.SetDesired(victim.id, item(db()))
	bad.Eventually("berlin serves", func() bool { return bad.Seen(victim.id).Condition("VirtualHostApplied").GetStatus() == "True" })
	raw, err := intruder.Reach(t.Context(), "shop/db")
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(raw, intruder.PeerTLS(func(fleet.SiteID) error { return nil }))
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if b, err := io.ReadAll(c); err == nil || len(b) > 0 {
		t.Errorf("berlin let oslo in: %q, %v", b, err)
	}
	c.Close()
}

// A site that answers in another one's place, by way of a regional that was broken into, has
// the wrong certificate.
func TestImpostor(t *testing.T) {
	evil := &directory{}
	wrong := db()
	wrong.Providers = []string{"oslo"}
	evil.set(wrong)
	r := fakeregional.Start(t, fakeregional.Options{Hosts: broker.New(broker.Options{Providers: evil.providers})})
	paris, oslo := startSite(t, acme("paris"), r), startSite(t, acme("oslo"), r)
	oslo.serve(echo(t, "oslo"))
	r.SetDesired(paris.id, item(db()))
	r.SetDesired(oslo.id, item(wrong))
	testkit.EventuallyTrue(t, "both have it", func() bool {
		return paris.port("shop/db") != 0 && r.Seen(oslo.id).Condition("VirtualHostApplied").GetStatus() == "True"
	})
	if who, _, err := paris.ask("shop/db", []byte("secret")); err == nil {
		t.Errorf("%s answered in the place of berlin", who)
	}
	oslo.mu.Lock()
	defer oslo.mu.Unlock()
	if oslo.dialled == 0 {
		t.Error("the connection did not get as far as oslo")
	}
}

// A tenant, and a site, has so many connections at once and no more.
func TestLimits(t *testing.T) {
	w := newWorld(t, func(o *broker.Options) { o.TenantConnections = 2 })
	paris, berlin := startSite(t, acme("paris"), w.r), startSite(t, acme("berlin"), w.r)
	berlin.serve(echo(t, "berlin"))
	w.tell(db())
	paris.eventually(t, "shop/db", "berlin")
	testkit.EventuallyTrue(t, "nothing is open", func() bool { return strings.Contains(fmt.Sprint(w.b.Status()), "open:0") })
	for i := range 3 {
		c, err := paris.Reach(t.Context(), "shop/db")
		if (err == nil) != (i < 2) {
			t.Fatalf("connection %d: %v", i, err)
		}
		if err == nil {
			defer c.Close()
		} else if !strings.Contains(err.Error(), "as many as it may have") {
			t.Errorf("%v", err)
		}
	}
}

// Nothing that passes is forgotten after a while.
func TestIdle(t *testing.T) {
	w := newWorld(t, func(o *broker.Options) { o.Idle = 200 * time.Millisecond })
	paris, berlin := startSite(t, acme("paris"), w.r), startSite(t, acme("berlin"), w.r)
	berlin.serve(echo(t, "berlin"))
	w.tell(db())
	paris.eventually(t, "shop/db", "berlin")
	c, err := paris.Reach(t.Context(), "shop/db")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.ReadAll(c); err == nil || !strings.Contains(err.Error(), "nothing was sent") {
		t.Errorf("%v", err)
	}
}
