package console

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// before puts a reverse proxy with TLS in front of consoles, which it asks in turn. from
// is what it takes the client's address for, as tests all come from the loopback.
func before(t *testing.T, from func(*http.Request) string, servers ...*httptest.Server) *httptest.Server {
	t.Helper()
	var next atomic.Int32
	targets := make([]*url.URL, len(servers))
	for i, s := range servers {
		targets[i] = mustURL(t, s.URL)
	}
	proxy := httptest.NewTLSServer(&httputil.ReverseProxy{Rewrite: func(pr *httputil.ProxyRequest) {
		pr.SetURL(targets[int(next.Add(1))%len(targets)]) // Host becomes the console's own, as with many proxies
		pr.Out.Header["X-Forwarded-For"] = pr.In.Header["X-Forwarded-For"]
		if from != nil {
			pr.In.RemoteAddr = from(pr.In)
		}
		pr.SetXForwarded()
	}})
	t.Cleanup(proxy.Close)
	return proxy
}

// through sends the harness' requests through the proxy.
func (h *harness) through(proxy *httptest.Server) *harness {
	h2 := *h
	h2.srv = proxy
	return &h2
}

// second starts another console for the same people.
func (h *harness) second(change func(*Options)) *httptest.Server {
	h.t.Helper()
	o := h.con.opt
	o.Registerer = nil
	if change != nil {
		change(&o)
	}
	other, err := newConsole(o, h.con.timing, h.clock.now)
	if err != nil {
		h.t.Fatal(err)
	}
	return serve(h.t, other)
}

// Two consoles behind a reverse proxy that ends TLS, and a browser that knows only the
// proxy: one session, marked Secure, good at both.
func TestTwoConsolesBehindAProxy(t *testing.T) {
	h := newHarness(t, func(o *Options, _ *timing) { o.TrustedProxies = loopback })
	p := h.through(before(t, nil, h.srv, h.second(nil)))
	c := p.want(204, "", "POST", "/api/v1/session", `{"token":"token-alice"}`, "Origin", p.srv.URL, "Sec-Fetch-Site", "same-origin").Cookies()[0]
	if !c.Secure || c.Name != hostPrefix+sessionCookie || c.Path != "/" || c.Domain != "" || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
		t.Errorf("cookie: %v", c)
	}
	for range 6 {
		p.want(200, "", "GET", "/api/v1/session", "", "Cookie", c.Name+"="+c.Value)
	}
	p.want(401, "", "GET", "/api/v1/session", "", "Cookie", sessionCookie+"="+c.Value) // planted without TLS
	for range 2 {
		a := p.want(204, "", "DELETE", "/api/v1/session", "", "Cookie", c.Name+"="+c.Value)
		if got := a.Cookies(); len(got) != 1 || got[0].Name != c.Name || got[0].MaxAge >= 0 || !got[0].Secure {
			t.Errorf("logging out: %v", got)
		}
	}

	t.Run("who is no trusted proxy can't say that it is one", func(t *testing.T) {
		h := newHarness(t)
		for _, header := range [][]string{{"X-Forwarded-Proto", "https"}, {"Forwarded", "for=192.0.2.1;proto=https"}} {
			if c := h.want(204, "", "POST", "/api/v1/session", `{"token":"token-alice"}`, header...).Cookies()[0]; c.Secure {
				t.Errorf("%v: %v", header, c)
			}
		}
	})
	t.Run("an old browser without Sec-Fetch-Site", func(t *testing.T) {
		var front string
		h := newHarness(t, func(o *Options, _ *timing) { o.ExternalURL = mustURL(t, "https://muster.example.com") })
		front = "https://muster.example.com"
		p := h.through(before(t, nil, h.srv))
		p.want(204, "", "POST", "/api/v1/session", `{"token":"token-alice"}`, "Origin", front)
		p.want(403, "", "POST", "/api/v1/session", `{"token":"token-alice"}`, "Origin", "https://evil.example.com")
	})
}

// The keys change while people are logged in: a new one comes second everywhere, then
// first, then the old one goes.
func TestSessionKeysRotate(t *testing.T) {
	one, two := keyFile(t, 1), keyFile(t, 1)
	h := newHarness(t, func(o *Options, _ *timing) { o.SessionKeyFile = one })
	srv := h.second(func(o *Options) { o.SessionKeyFile = two })
	other := *h
	other.srv = srv
	reload := func(keys ...byte) {
		t.Helper()
		writeKeys(t, one, keys...)
		h.con.reloadKeys()
	}
	works := func(code int, cookie string) {
		t.Helper()
		h.want(code, "", "GET", "/api/v1/session", "", "Cookie", cookie)
	}
	old := h.login("alice")
	works(200, other.login("alice"))
	reload(1, 2)
	works(200, old)
	reload(2, 1)
	works(200, old)
	works(200, other.login("bob")) // who still signs with the old key
	fresh := h.login("bob")
	if err := os.WriteFile(one, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.con.reloadKeys() // those from before stay
	works(200, fresh)
	if !strings.Contains(h.log.String(), "line 1: want 32 random bytes") {
		t.Error("nobody is told of a bad file")
	}
	reload(2)
	works(401, old)
	works(200, fresh)
}

func TestSessionKeyFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "console")
	var wg sync.WaitGroup
	keys := make([][]byte, 8)
	for i := range keys {
		wg.Go(func() {
			_, got, err := openSessionKeys("", dir)
			if err != nil || len(got) != 1 {
				t.Error(err)
				return
			}
			keys[i] = got[0]
		})
	}
	wg.Wait()
	for _, k := range keys {
		if len(k) != 32 || !bytes.Equal(k, keys[0]) {
			t.Fatal("processes that start together have different keys")
		}
	}
	path := filepath.Join(dir, sessionKeyFile)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openSessionKeys("", dir); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that all can read: %v", err)
	}
	_ = os.Chmod(path, 0o600)
	for content, want := range map[string]string{"short\n": "line 1", "# a comment\n\nnot base64!\n": "line 3", "# none\n": "holds no key",
		strings.Repeat("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n", 17): "at most 16"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := openSessionKeys("", dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
	if _, _, err := openSessionKeys(filepath.Join(dir, "nowhere"), dir); err == nil {
		t.Error("a file that the operator named was made up")
	}
}

func FuzzSessionKeys(f *testing.F) {
	f.Add([]byte("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n# x\n"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, b []byte) {
		keys, err := parseSessionKeys(b)
		if err != nil {
			return
		}
		if _, err := newSealer(keys); err != nil {
			t.Errorf("%q: %v", b, err)
		}
	})
}

func TestClientBehindProxies(t *testing.T) {
	trusted := proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("127.0.0.1/32")}
	for _, c := range []struct {
		name, peer, want string
		header           []string
	}{
		{"no proxy", "192.0.2.9:1", "192.0.2.9", []string{"X-Forwarded-For", "198.51.100.1", "Forwarded", "for=198.51.100.1"}},
		{"one proxy", "10.0.0.1:1", "198.51.100.1", []string{"X-Forwarded-For", "198.51.100.1"}},
		{"forged before it", "10.0.0.1:1", "198.51.100.1", []string{"X-Forwarded-For", "203.0.113.7, 198.51.100.1"}},
		{"forged as a proxy", "10.0.0.1:1", "198.51.100.1", []string{"X-Forwarded-For", "10.9.9.9, 198.51.100.1"}},
		{"two proxies", "10.0.0.1:1", "198.51.100.1", []string{"X-Forwarded-For", "203.0.113.7, 198.51.100.1, 10.0.0.2"}},
		{"two lines", "10.0.0.1:1", "198.51.100.1", []string{"X-Forwarded-For", "203.0.113.7", "X-Forwarded-For", "198.51.100.1"}},
		{"only proxies", "10.0.0.1:1", "10.0.0.3", []string{"X-Forwarded-For", "10.0.0.3, 10.0.0.2"}},
		{"a port", "10.0.0.1:1", "198.51.100.1", []string{"X-Forwarded-For", "198.51.100.1:4711"}},
		{"v6", "[fd00::1]:1", "2001:db8::1", []string{"X-Forwarded-For", "2001:db8::1"}},
		{"v6 and a port", "[fd00::1]:1", "2001:db8::1", []string{"X-Forwarded-For", "[2001:db8::1]:80"}},
		{"v4 in v6", "[::ffff:10.0.0.1]:1", "198.51.100.1", []string{"X-Forwarded-For", "::ffff:198.51.100.1"}},
		{"garbage", "10.0.0.1:1", "10.0.0.1", []string{"X-Forwarded-For", "198.51.100.1, garbage"}},
		{"unknown", "10.0.0.1:1", "10.0.0.1", []string{"Forwarded", "for=198.51.100.1, for=unknown"}},
		{"hidden", "10.0.0.1:1", "10.0.0.1", []string{"Forwarded", `for="_secret"`}},
		{"nothing said", "10.0.0.1:1", "10.0.0.1", nil},
		{"RFC 7239", "10.0.0.1:1", "2001:db8::1", []string{"Forwarded", `for=192.0.2.60, For="[2001:db8::1]:47011";proto=https;by=10.0.0.9`}},
		{"a comma in quotes", "10.0.0.1:1", "198.51.100.1", []string{"Forwarded", `for=198.51.100.1;host="a,b;for=203.0.113.1"`}},
		{"both agree", "10.0.0.1:1", "198.51.100.1", []string{"X-Forwarded-For", "198.51.100.1", "Forwarded", "for=198.51.100.1"}},
		{"one of the two is the client's own", "10.0.0.1:1", "10.0.0.1", []string{"X-Forwarded-For", "198.51.100.1", "Forwarded", "for=203.0.113.7"}},
		{"no address", "@", "invalid IP", []string{"X-Forwarded-For", "198.51.100.1"}},
	} {
		r := &http.Request{RemoteAddr: c.peer, Header: http.Header{}}
		for i := 0; i+1 < len(c.header); i += 2 {
			r.Header.Add(c.header[i], c.header[i+1])
		}
		if got := trusted.client(r).String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func FuzzClientBehindProxies(f *testing.F) {
	f.Add("198.51.100.1, 10.0.0.2", `for="[2001:db8::1]:47011";proto=https, for=_x`)
	f.Add("", `"`)
	f.Add("[", `for="\`)
	trusted := proxies{netip.MustParsePrefix("10.0.0.0/8")}
	f.Fuzz(func(t *testing.T, one, other string) {
		for _, peer := range []string{"10.0.0.1:1", "192.0.2.1:1"} {
			r := &http.Request{RemoteAddr: peer, Header: http.Header{"X-Forwarded-For": {one}, "Forwarded": {other}}}
			got := trusted.client(r)
			if !got.IsValid() || got != plain(got) {
				t.Errorf("%q %q from %s: %v", one, other, peer, got)
			}
			if secure := trusted.https(r); peer == "192.0.2.1:1" && (secure || got.String() != "192.0.2.1") {
				t.Errorf("%q %q were believed", one, other)
			}
		}
	})
}

// Many people, one proxy: who guesses is limited, and hurts nobody else, not even those
// behind the same address.
func TestGuessesThroughAProxy(t *testing.T) {
	h := newHarness(t, func(o *Options, _ *timing) { o.TrustedProxies = loopback })
	p := h.through(before(t, func(r *http.Request) string { return r.Header.Get("X-Test-From") }, h.srv))
	guess := func(code int, from string, i int) {
		t.Helper()
		// The client's own tale comes before what the proxy adds.
		p.want(code, "", "POST", "/api/v1/session", fmt.Sprintf(`{"token":"guess-%s-%d"}`, from, i), "X-Test-From", from, "X-Forwarded-For", fmt.Sprintf("203.0.113.%d", i))
	}
	const bad, good = "198.51.100.1:1", "198.51.100.2:1"
	for i := range failuresBurst {
		guess(401, bad, i)
	}
	guess(429, bad, failuresBurst)
	guess(429, bad, failuresBurst+1)
	guess(401, good, 0) // another client, though the connection is the same proxy's
	p.want(204, "", "POST", "/api/v1/session", `{"token":"token-alice"}`, "X-Test-From", good)
	p.want(204, "", "POST", "/api/v1/session", `{"token":"token-bob"}`, "X-Test-From", bad)
	p.want(200, "carol", "GET", "/api/v1/session", "", "X-Test-From", bad)
	guess(429, bad, failuresBurst+2)
}

// The review's case: twelve wrong tokens, and everybody else's good ones.
func TestWrongTokensLockNobodyOut(t *testing.T) {
	h := newHarness(t)
	for i := range failuresBurst {
		h.want(401, fmt.Sprint("guess-", i), "GET", "/api/v1/session", "")
	}
	a := h.want(429, "guess-100", "GET", "/api/v1/session", "")
	if a.Header.Get("Retry-After") == "" {
		t.Error("429 without Retry-After")
	}
	h.want(204, "", "POST", "/api/v1/session", `{"token":"token-alice"}`)
	h.want(429, "", "POST", "/api/v1/session", `{"token":"guess-101"}`)
	h.want(200, "bob", "GET", "/api/v1/session", "")
	h.clock.advance(failureRefill)
	h.want(401, "guess-102", "GET", "/api/v1/session", "")
	h.want(429, "guess-103", "GET", "/api/v1/session", "")
}
