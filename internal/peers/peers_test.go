package peers_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/peers"
	"muster.dev/muster/internal/strangers"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

// authority is a fleet's CA with the identities that it has issued.
type authority struct {
	t   testing.TB
	dir string
	ca  *pki.CA
}

func newAuthority(t testing.TB, domain string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	var err error
	if a.ca, err = pki.Open(pki.Options{Dir: filepath.Join(a.dir, "pki"), TrustDomain: domain}); err != nil {
		t.Fatal(err)
	}
	return a
}

// ensure makes or renews the identity of control, of a regional (regional-NAME) or a role.
func (a *authority) ensure(name string) {
	a.t.Helper()
	var err error
	switch dir, hosts := filepath.Join(a.dir, name), []string{"127.0.0.1"}; {
	case name == "control":
		_, err = a.ca.EnsureControl(dir, hosts)
	case strings.HasPrefix(name, "regional-"):
		_, err = a.ca.EnsureRegional(dir, strings.TrimPrefix(name, "regional-"), hosts)
	default:
		_, err = a.ca.EnsureRole(dir, name, hosts)
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) options(name string, known map[string]peers.Peer) peers.Options {
	return peers.Options{PairFile: filepath.Join(a.dir, name, pki.PairFile), TrustFile: filepath.Join(a.dir, name, pki.TrustFile), TrustDomain: a.ca.TrustDomain(), Peers: known,
		Says: map[string][]string{wire.TenantsHeader: {"console"}}}
}

func (a *authority) peers(name string, known map[string]peers.Peer) *peers.Peers {
	a.t.Helper()
	a.ensure(name)
	p, err := peers.Open(a.options(name, known))
	if err != nil {
		a.t.Fatal(err)
	}
	return p
}

// site is what a site of the fleet could present.
func (a *authority) site() tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	out, err := a.ca.IssueSite(key.Public(), fleet.SiteID{Tenant: "acme", Name: "paris"}, "eu")
	if err != nil {
		a.t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(out.CertPEM, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

// serve runs a role that has two routes for the console, one of which nobody declared.
func serve(t *testing.T, p *peers.Peers, rules ...peers.Rule) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "served "+r.URL.Path+" "+r.Header.Get(wire.TenantsHeader))
	})}
	p.Listener(rules).Secure(srv, slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- srv.ServeTLS(ln, "", "") }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

var rules = []peers.Rule{{Pattern: "/metrics", Callers: []string{peers.Anyone}}, {Pattern: "/api/", Callers: []string{"console", "health"}}}

// stranger trusts anybody, and presents what it is given.
func stranger(certs ...tls.Certificate) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if len(certs) == 0 {
			return &tls.Certificate{}, nil
		}
		return &certs[0], nil
	}}}}
}

func ask(t *testing.T, c *http.Client, url string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

func load(t *testing.T, dir string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, pki.PairFile), filepath.Join(dir, pki.PairFile))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// What somebody reaches who reaches the port.
func TestWhoMayCall(t *testing.T) {
	a, other, foreign := newAuthority(t, "muster.local"), newAuthority(t, "muster.local"), newAuthority(t, "foreign.local")
	addr := serve(t, a.peers("health", nil), rules...)
	for _, name := range []string{"console", "alerting", "regional-one", "control"} {
		a.ensure(name)
		other.ensure(name)
		foreign.ensure(name)
	}
	of := func(a *authority, name string) []tls.Certificate {
		return []tls.Certificate{load(t, filepath.Join(a.dir, name))}
	}
	for _, c := range []struct {
		what   string
		certs  []tls.Certificate
		path   string
		header []string
		code   int
		text   string
	}{
		{"anybody's scrape", nil, "/metrics", nil, 200, "served /metrics"},
		{"anybody's scrape with a forged scope", nil, "/metrics", []string{wire.TenantsHeader, "*"}, 200, "served /metrics "},
		{"no certificate", nil, "/api/x", nil, 401, "present a client certificate"},
		{"no certificate, forged scope", nil, "/api/x", []string{wire.TenantsHeader, "*"}, 401, "console, health alone"},
		{"no certificate, a route that nobody declared", nil, "/debug/pprof/heap", nil, 401, "present a client certificate"},
		{"a site's certificate", []tls.Certificate{a.site()}, "/api/x", nil, 403, "site acme/paris may not call /api/x; it is for console, health"},
		{"another fleet's console", of(other, "console"), "/api/x", nil, 401, "is not good"},
		{"another fleet's console, of another trust domain", of(foreign, "console"), "/api/x", nil, 401, "is not good"},
		{"another role", of(a, "alerting"), "/api/x", nil, 403, "role alerting may not call /api/x"},
		{"a regional", of(a, "regional-one"), "/api/x", nil, 403, "regional one may not call"},
		{"the console", of(a, "console"), "/api/x", []string{wire.TenantsHeader, "acme"}, 200, "served /api/x acme"},
		{"a caller with a header that is not its own", of(a, "health"), "/api/x", []string{wire.TenantsHeader, "*"}, 403, "role health may not send X-Muster-Tenants; it is for console"},
		{"a caller without it", of(a, "health"), "/api/x", nil, 200, "served"},
		{"a route that nobody declared", of(a, "console"), "/debug/pprof/heap", nil, 404, "nothing at /debug/pprof/heap that a role may call"},
		{"an escaped slash", of(a, "console"), "/metrics%2F..%2Fapi/x", nil, 400, "escaped"},
		{"dots", nil, "/metrics/../api/x", nil, 400, "dots"},
	} {
		code, text := ask(t, stranger(c.certs...), "https://"+addr+c.path, c.header...)
		if code != c.code || !strings.Contains(text, c.text) || strings.Contains(text, "served") && strings.HasSuffix(text, "*") {
			t.Errorf("%s: %d %s, want %d %s", c.what, code, text, c.code, c.text)
		}
	}
	if code, _ := ask(t, &http.Client{}, "http://"+addr+"/api/x"); code != 400 {
		t.Errorf("plain HTTP: %d", code)
	}
}

// Who takes a role's place at its address gets no request.
func TestServersAreKnownByTheirRole(t *testing.T) {
	a, other := newAuthority(t, "muster.local"), newAuthority(t, "muster.local")
	at := func(p *peers.Peers) string { return serve(t, p, rules...) }
	public := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a server that nobody vouches for was asked") }))
	defer public.Close()
	good, console, one, forged, stranger := at(a.peers("health", nil)), at(a.peers("alerting", nil)), at(a.peers("regional-one", nil)), at(other.peers("health", nil)), public.Listener.Addr().String()
	known := map[string]peers.Peer{
		good: {Role: "health"}, console: {Role: "health"}, forged: {Role: "health"}, one: {Role: "regional", Name: "two"}, stranger: {Role: "health", External: true},
	}
	c := a.peers("console", known).Client()
	for addr, want := range map[string]string{
		good: "served", console: "the certificate is of role alerting (muster.local), want one of health (muster.local)", forged: "certificate signed by unknown authority",
		one: "is of regional one (muster.local), want one of regional two", stranger: "neither a role of this fleet",
	} {
		if code, text := ask(t, c, "https://"+addr+"/api/x"); !strings.Contains(text, want) {
			t.Errorf("%d %s, want %q", code, text, want)
		}
	}
	c = a.peers("console", map[string]peers.Peer{good: {Role: "health", External: true}}).Client()
	if code, text := ask(t, c, "https://"+good+"/api/x"); code != 200 {
		t.Errorf("a role where an external server may stand: %d %s", code, text)
	}
	c = a.peers("console", nil).Client()
	if code, text := ask(t, c, "https://"+good+"/api/x"); code != 0 {
		t.Errorf("an address that is no peer's is verified as any of the network is: %d %s", code, text)
	}
}

// Certificates and CAs change while connections stand: those that were good go on, and
// what the CA no longer vouches for ends.
func TestRenewalWhileConnectionsStand(t *testing.T) {
	a := newAuthority(t, "muster.local")
	addr := serve(t, a.peers("health", nil), rules...)
	client := a.peers("console", map[string]peers.Peer{addr: {Role: "health"}}).Client()
	url := "https://" + addr + "/api/x"
	want := func(what string, code int) {
		t.Helper()
		if got, text := ask(t, client, url); got != code {
			t.Errorf("%s: %d %s, want %d", what, got, text, code)
		}
	}
	want("at first", 200)
	stolen := load(t, filepath.Join(a.dir, "console"))
	standing := stranger(stolen)
	standing.Transport.(*http.Transport).DisableKeepAlives = false
	if code, text := ask(t, standing, url); code != 200 {
		t.Fatal(text)
	}
	for _, step := range []func() error{a.ca.PrepareRollover, a.ca.ActivateRollover, a.ca.RetireOld} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		a.ensure("health")
		a.ensure("console")
		client.CloseIdleConnections() // as after maxConnAge, or a restart
		testkit.EventuallyTrue(t, "the answer", func() bool { code, _ := ask(t, client, url); return code == 200 })
	}
	// The old CA is retired: its certificate is refused, on the connection that stands too.
	testkit.EventuallyTrue(t, "the answer", func() bool { code, _ := ask(t, standing, url); return code == 401 })
	testkit.EventuallyTrue(t, "the answer", func() bool { code, _ := ask(t, client, url); return code == 200 })
}

// An identity that is not there yet is used when it is.
func TestLazy(t *testing.T) {
	a := newAuthority(t, "muster.local")
	addr := serve(t, a.peers("health", nil), rules...)
	if _, err := peers.Open(a.options("console", nil)); err == nil {
		t.Error("opened without files")
	}
	o := a.options("console", map[string]peers.Peer{addr: {Role: "health"}})
	o.Lazy = true
	p, err := peers.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	c := p.Client()
	if code, text := ask(t, c, "https://"+addr+"/api/x"); code != 0 || !strings.Contains(text, "no trust bundle") {
		t.Errorf("%d %s", code, text)
	}
	a.ensure("console")
	if code, text := ask(t, c, "https://"+addr+"/api/x"); code != 200 {
		t.Errorf("%d %s", code, text)
	}
}

// A flood of connections that show nothing is closed, and keeps no role out: one that has
// called before goes on, and a new one gets in as soon as the flood's time is over.
func TestStrangersKeepNobodyOut(t *testing.T) {
	a := newAuthority(t, "muster.local")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	srv := &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	l := a.peers("health", nil).Listener(rules)
	l.Strangers = strangers.Bounds{Max: 30, PerHost: 20, Life: 2 * time.Second}
	l.Secure(srv, slog.New(slog.DiscardHandler))
	go func() { _ = srv.ServeTLS(ln, "", "") }()
	defer srv.Close()
	url := "https://" + addr + "/api/x"
	known := a.peers("console", map[string]peers.Peer{addr: {Role: "health"}}).Client()
	if code, text := ask(t, known, url); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	var flood []net.Conn
	for range 60 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		flood = append(flood, c)
	}
	// The connection of who was known stands: a new one could not be made now.
	if code, text := ask(t, known, url); code != 200 {
		t.Errorf("a caller that is known: %d %s", code, text)
	}
	if code, _ := ask(t, stranger(load(t, filepath.Join(a.dir, "console"))), url); code == 200 {
		t.Error("more strangers than may be")
	}
	for _, c := range flood {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, c); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("a stranger's connection stays open")
		}
	}
	if code, text := ask(t, stranger(load(t, filepath.Join(a.dir, "console"))), url); code != 200 {
		t.Errorf("a role, once the flood is over: %d %s", code, text)
	}
	// On the connection that it had, which is older by now than a stranger's may be.
	reused := false
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }}), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := known.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 200 || !reused {
		t.Errorf("a caller that is known: %d, on its old connection: %v", resp.StatusCode, reused)
	}
}

func TestPlainIsPlain(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
	defer srv.Close()
	l := peers.Plain().Listener(rules)
	l.Secure(srv.Config, nil)
	if code, _ := ask(t, peers.Plain().Client(), srv.URL); code != 204 || l.TLS() {
		t.Errorf("%d", code)
	}
}

func TestCovers(t *testing.T) {
	l := peers.Plain().Listener(rules)
	for pattern, ok := range map[string]bool{"GET /metrics": true, "/api/": true, "POST /api/v1/{name}/x": true, "GET /api/{$}": true, "/metrics/": false, "DELETE /other/{id}": false, "/": false} {
		if err := l.Covers([]string{"/metrics", pattern}); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), pattern) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

// BenchmarkCall is a call of one role to another, with an answer of 64 KiB on a connection
// that stands: by TLS with both certificates looked at, and plain.
func BenchmarkCall(b *testing.B) {
	body := strings.Repeat("x", 64<<10)
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
	run := func(b *testing.B, c *http.Client, url string) {
		for b.Loop() {
			resp, err := c.Get(url)
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != 64<<10 {
				b.Fatal(n, err)
			}
			_ = resp.Body.Close()
		}
	}
	b.Run("plain", func(b *testing.B) {
		srv := httptest.NewServer(h)
		defer srv.Close()
		run(b, peers.Plain().Client(), srv.URL+"/api/x")
	})
	b.Run("tls", func(b *testing.B) {
		a := newAuthority(b, "muster.local")
		srv := httptest.NewUnstartedServer(h)
		a.peers("health", nil).Listener(rules).Secure(srv.Config, slog.New(slog.DiscardHandler))
		srv.TLS = srv.Config.TLSConfig
		srv.StartTLS()
		defer srv.Close()
		run(b, a.peers("console", map[string]peers.Peer{srv.Listener.Addr().String(): {Role: "health"}}).Client(), srv.URL+"/api/x")
	})
}
