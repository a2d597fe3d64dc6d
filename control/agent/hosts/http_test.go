package hosts_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.dev/muster/control/agent/hosts"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/vhost"
)

// webService is a Service that says who it is and what it was asked, over HTTP/1.1 and HTTP/2,
// echoes what it is sent as it comes, and switches protocols.
func webService(t *testing.T, who string) string {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.Header.Get("Upgrade") != "":
			w.Header().Set("Upgrade", "echo")
			w.Header().Set("Connection", "Upgrade")
			w.WriteHeader(http.StatusSwitchingProtocols)
			c, rw, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.Copy(c, rw)
				c.Close()
			}
		case req.URL.Path == "/stream":
			r := bufio.NewReader(req.Body)
			_ = http.NewResponseController(w).EnableFullDuplex()
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				_, _ = io.WriteString(w, line)
				_ = http.NewResponseController(w).Flush()
			}
		default:
			fmt.Fprintf(w, "%s %s %s %s %s from %s for %s", who, req.Proto, req.Method, req.Host, req.URL.RequestURI(), req.Header.Get(hosts.SiteHeader), req.Header.Get("X-Forwarded-For"))
		}
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// shopHost is served by berlin and reached from paris and berlin, by its routes.
func shopHost() *vhost.Host {
	h := &vhost.Host{Tenant: "acme", Namespace: "shop", Name: "web", Host: "shop", Port: 80, Service: "web", ServicePort: 8080, HTTP: true,
		Routes:    []vhost.Route{{Path: "/api", Service: "api", Port: 9090}, {Path: "/api/v2", Service: "next", Port: 1}, {Host: "admin.example.com", Path: "/", Service: "admin", Port: 1}},
		Providers: []string{"berlin"}, Consumers: []string{"berlin", "paris"}}
	vhost.SortRoutes(h.Routes)
	return h
}

// clientOf is a pod of a site, which speaks with a port of the site's own.
func (s *site) clientOf(t *testing.T, key string, http2 bool) *http.Client {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", s.port(key)))
	}}
	if http2 {
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetUnencryptedHTTP2(true)
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// Requests of one connection go to the Services of their routes, with what they came with and
// the name of the site that they come from, which nobody can make up.
func TestRoutes(t *testing.T) {
	w := newWorld(t)
	paris, berlin := startSite(t, acme("paris"), w.r), startSite(t, acme("berlin"), w.r)
	berlin.serveAll(map[string]string{"web:8080": webService(t, "web"), "api:9090": webService(t, "api"), "next:1": webService(t, "next"), "admin:1": webService(t, "admin")})
	w.tell(shopHost())
	const key = "shop/web"
	testkit.EventuallyTrue(t, "it is published", func() bool { return paris.port(key) != 0 && berlin.port(key) != 0 })
	for _, from := range []*site{paris, berlin} {
		for _, http2 := range []bool{false, true} {
			c := from.clientOf(t, key, http2)
			proto := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2]
			for url, want := range map[string]string{
				"http://shop/":                        "web " + proto + " GET shop /",
				"http://shop/apix?q=1;r=%zz":          "web " + proto + " GET shop /apix?q=1;r=%zz",
				"http://shop/api":                     "api " + proto + " GET shop /api",
				"http://shop:80/api/v1/a%2Fb":         "api " + proto + " GET shop:80 /api/v1/a%2Fb",
				"http://shop/api/v2/x":                "next " + proto + " GET shop /api/v2/x",
				"http://Admin.example.com:80/api/v2/": "admin " + proto + " GET Admin.example.com:80 /api/v2/",
			} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set(hosts.SiteHeader, "rome")
				req.Header.Set("X-Forwarded-For", "192.0.2.7")
				var got string
				testkit.Eventually(t, from.id.Name+" asks for "+url, func() error { // connections are refused until the regional knows
					resp, err := c.Do(req)
					if err != nil {
						return err
					}
					defer resp.Body.Close()
					b, err := io.ReadAll(resp.Body)
					got = string(b)
					return err
				})
				if want += " from " + from.id.Name + " for 192.0.2.7"; got != want {
					t.Errorf("%s asks for %s: %q, want %q", from.id.Name, url, got, want)
				}
			}
			if !http2 {
				upgrades(t, from, key)
			}
			streams(t, c)
		}
	}
	if n := berlin.dials(); n == 0 || n > 40 {
		t.Errorf("%d connections with Services of berlin: they are kept while there are requests", n)
	}
}

// streams: what is said comes before all is said.
func streams(t *testing.T, c *http.Client) {
	t.Helper()
	r, w := io.Pipe()
	defer w.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://shop/stream", r)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(w, "one\n") }()
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for _, line := range []string{"one\n", "two\n"} {
		if line != "one\n" {
			_, _ = io.WriteString(w, line)
		}
		if got, err := in.ReadString('\n'); got != line || err != nil {
			t.Fatalf("%q, %v, want %q", got, err, line)
		}
	}
}

// upgrades: what is spoken after a switch of protocols is passed on as it is.
func upgrades(t *testing.T, from *site, key string) {
	t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", from.port(key)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /api/ws HTTP/1.1\r\nHost: shop\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	fmt.Fprint(c, "hello\n")
	if got, err := in.ReadString('\n'); got != "hello\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// A Service of a route that fails is a 502 that says so, a condition of the site that serves
// it, and nobody else's business; both end when it is there.
func TestARouteThatFails(t *testing.T) {
	w := newWorld(t)
	paris, berlin := startSite(t, acme("paris"), w.r), startSite(t, acme("berlin"), w.r)
	all := map[string]string{"web:8080": webService(t, "web")}
	berlin.serveAll(all)
	w.tell(shopHost())
	c := paris.clientOf(t, "shop/web", false)
	ask := func(url string, code int, says string) {
		t.Helper()
		testkit.Eventually(t, url, func() error {
			resp, err := c.Get(url)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if resp.StatusCode != code || !strings.Contains(string(b), says) {
				return fmt.Errorf("%d %q, %w", resp.StatusCode, b, err)
			}
			return nil
		})
	}
	testkit.EventuallyTrue(t, "it is published", func() bool { return paris.port("shop/web") != 0 })
	ask("http://shop/api", http.StatusBadGateway, "service api: connection refused")
	ask("http://shop/", http.StatusOK, "web")
	ask("http://shop/api", http.StatusBadGateway, "service api: connection refused")
	reachable := func(says string) {
		t.Helper()
		w.r.Eventually("berlin says "+says, func() bool {
			return strings.Contains(w.r.Seen(berlin.id).Condition(hosts.ConditionReachable).GetMessage(), says)
		})
	}
	reachable("served here: service api: connection refused")
	ask("http://shop/", http.StatusOK, "web") // which says nothing of the other
	reachable("served here: service api: connection refused")
	all["api:9090"] = webService(t, "api")
	berlin.serveAll(all)
	ask("http://shop/api", http.StatusOK, "api")
	reachable("succeeded")
}

// Connections last, so that a route that is changed counts for those that are there, and so does
// who may ask.
func TestRoutesChangeBelowAConnection(t *testing.T) {
	w := newWorld(t)
	paris, berlin := startSite(t, acme("paris"), w.r), startSite(t, acme("berlin"), w.r)
	berlin.serveAll(map[string]string{"web:8080": webService(t, "web"), "api:9090": webService(t, "api"), "next:1": webService(t, "next")})
	host := shopHost()
	w.tell(host)
	testkit.EventuallyTrue(t, "it is published", func() bool { return paris.port("shop/web") != 0 })
	var conn net.Conn
	var in *bufio.Reader
	ask := func() (int, string, error) {
		fmt.Fprint(conn, "GET /api HTTP/1.1\r\nHost: shop\r\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return 0, "", err
		}
		b, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b), err
	}
	testkit.Eventually(t, "a connection that is kept", func() error {
		c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", paris.port("shop/web")), time.Minute)
		if err != nil {
			return err
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		conn, in = c, bufio.NewReader(c)
		if _, _, err = ask(); err != nil {
			c.Close()
		}
		return err
	})
	defer conn.Close()
	eventually := func(code int, says string) {
		t.Helper()
		testkit.Eventually(t, says, func() error {
			if got, body, err := ask(); got != code || !strings.Contains(body, says) {
				return fmt.Errorf("%d %q, %w", got, body, err)
			}
			return nil
		})
	}
	changed := shopHost()
	changed.Routes = []vhost.Route{{Path: "/api", Service: "next", Port: 1}}
	w.tell(changed)
	eventually(http.StatusOK, "next")
	changed = shopHost()
	changed.Consumers = []string{"berlin"}
	w.tell(changed)
	eventually(http.StatusForbidden, "not for this site")
}

// firstHangsUp closes the first connection that it accepts.
type firstHangsUp struct {
	net.Listener
	once sync.Once
}

// Accept implements net.Listener.
func (l *firstHangsUp) Accept() (net.Conn, error) {
	l.once.Do(func() {
		if c, err := l.Listener.Accept(); err == nil {
			c.Close()
		}
	})
	return l.Listener.Accept()
}

// Who asks for a route first and then for what has none does not get the connection that was made
// before there was a request, which the Service may have closed.
func TestServiceThatHungUp(t *testing.T) {
	w := newWorld(t)
	paris, berlin := startSite(t, acme("paris"), w.r), startSite(t, acme("berlin"), w.r)
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "web") }))
	web.Listener = &firstHangsUp{Listener: web.Listener}
	web.Start()
	defer web.Close()
	berlin.serveAll(map[string]string{"web:8080": web.Listener.Addr().String(), "api:9090": webService(t, "api")})
	w.tell(shopHost())
	testkit.EventuallyTrue(t, "it is published", func() bool { return paris.port("shop/web") != 0 })
	c := paris.clientOf(t, "shop/web", false)
	for _, path := range []string{"/api", "/"} {
		testkit.Eventually(t, path, func() error {
			resp, err := c.Get("http://shop" + path)
			if err != nil { // the regional does not know yet
				return err
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: %d, %v", path, resp.StatusCode, err)
			}
			return nil
		})
	}
}
