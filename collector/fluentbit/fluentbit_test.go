package fluentbit

import (
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/testkit/testca"
)

// gateway is a regional that answers as the test says, and a site's state directory
// that trusts it.
type gateway struct {
	srv  *httptest.Server
	dir  string
	code int
	head http.Header

	mu       sync.Mutex
	requests int
	body     []byte
	request  *http.Request
	peer     fleet.SiteID
	serial   string
	remote   map[string]bool
	stored   map[string]int // by delivery id
	renew    func(serial int64)
}

func start(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{dir: t.TempDir(), code: 200}
	ca := testca.New(t)
	g.renew = func(n int64) {
		pair := ca.Site(t, fleet.SiteID{Tenant: "acme", Name: "paris"}, "", func(c *x509.Certificate) { c.SerialNumber = big.NewInt(n) })
		keyDER, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		for name, block := range map[string]*pem.Block{"key.pem": {Type: "PRIVATE KEY", Bytes: keyDER}, "cert.pem": {Type: "CERTIFICATE", Bytes: pair.Leaf.Raw}, "bundle.pem": {Type: "CERTIFICATE", Bytes: ca.Cert.Raw}} {
			path := filepath.Join(g.dir, name)
			if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
			_ = os.Chtimes(path, time.Time{}, time.Unix(1_000_000+n, 0))
		}
	}
	g.renew(2)
	g.srv = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			body, _ = gzip.NewReader(r.Body)
		}
		b, _ := io.ReadAll(body)
		g.mu.Lock()
		g.requests++
		g.body, g.request = b, r
		g.peer, _, _ = identity.ParseSite(r.TLS.PeerCertificates[0])
		g.serial = r.TLS.PeerCertificates[0].SerialNumber.String()
		if g.remote == nil {
			g.remote, g.stored = map[string]bool{}, map[string]int{}
		}
		g.remote[r.RemoteAddr] = true
		g.stored[r.Header.Get("X-Muster-Delivery")]++
		code := g.code
		for k, v := range g.head {
			w.Header()[k] = v
		}
		g.mu.Unlock()
		if code == 0 { // never answers
			<-r.Context().Done()
			return
		}
		http.Error(w, "reason", code)
	}))
	g.srv.TLS = &tls.Config{Certificates: []tls.Certificate{*ca.Regional(t, "eu-1")}, ClientCAs: ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert}
	g.srv.StartTLS()
	t.Cleanup(g.srv.Close)
	return g
}

func (g *gateway) output(t *testing.T, keys map[string]string) *Output {
	t.Helper()
	all := map[string]string{"Endpoint": g.srv.URL, "Identity_Dir": g.dir}
	for k, v := range keys {
		all[k] = v
	}
	cfg, err := ParseConfig(func(k string) string { return all[k] })
	if err != nil {
		t.Fatal(err)
	}
	o, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

func TestFlush(t *testing.T) {
	for _, compress := range []string{"gzip", "off"} {
		g := start(t)
		o := g.output(t, map[string]string{"Compress": compress})
		chunk := []byte(strings.Repeat("\x92\xffentry", 1000))
		if got := o.Flush(chunk, "kube.á"); got != OK {
			t.Fatalf("%s: outcome %d", compress, got)
		}
		if string(g.body) != string(chunk) || g.request.URL.Path != "/api/v1/logs" || g.request.Header.Get("Content-Type") != "application/msgpack" ||
			g.request.Header.Get("X-Fluent-Tag") != "kube.%C3%A1" || g.peer.String() != "acme/paris" {
			t.Errorf("%s: %d bytes from %s, %+v", compress, len(g.body), g.peer, g.request.Header)
		}
	}
}

// TestOutcomes: only what can never be taken is dropped.
func TestOutcomes(t *testing.T) {
	g := start(t)
	for code, want := range map[int]Outcome{200: OK, 204: OK, 400: Error, 413: Error, 415: Error, 302: Retry, 401: Retry, 403: Retry, 404: Retry, 408: Retry, 429: Retry, 500: Retry, 503: Retry} {
		g.mu.Lock()
		g.code = code
		g.mu.Unlock()
		if got := g.output(t, nil).Flush([]byte("x"), "t"); got != want {
			t.Errorf("%d: outcome %d, want %d", code, got, want)
		}
	}
}

func TestRetryAfterIsObeyed(t *testing.T) {
	g := start(t)
	g.code, g.head = 503, http.Header{"Retry-After": {"30"}}
	o := g.output(t, nil)
	for range 3 {
		if got := o.Flush([]byte("x"), "t"); got != Retry {
			t.Fatalf("outcome %d", got)
		}
	}
	if g.requests != 1 {
		t.Errorf("%d requests, want 1", g.requests)
	}
}

// TestSlowIntake: a flush ends within its timeout, and flushes run side by side.
func TestSlowIntake(t *testing.T) {
	g := start(t)
	g.code = 0
	o := g.output(t, map[string]string{"Timeout": "1s"})
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range 4 {
		wg.Go(func() {
			if got := o.Flush([]byte(fmt.Sprint(i)), "t"); got != Retry {
				t.Errorf("outcome %d", got)
			}
		})
	}
	wg.Wait()
	if took := time.Since(begin); took > 8*time.Second {
		t.Errorf("took %s", took)
	}
}

// TestNotJoinedYet: no certificate is no reason to drop logs; the files are found
// when they come.
func TestNotJoinedYet(t *testing.T) {
	g := start(t)
	late := t.TempDir()
	o := g.output(t, map[string]string{"Identity_Dir": late})
	if got := o.Flush([]byte("x"), "t"); got != Retry {
		t.Fatalf("outcome %d", got)
	}
	for _, name := range []string{"key.pem", "cert.pem", "bundle.pem"} {
		b, _ := os.ReadFile(filepath.Join(g.dir, name))
		if err := os.WriteFile(filepath.Join(late, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.ident.checked = time.Time{}
	if got := o.Flush([]byte("x"), "t"); got != OK {
		t.Errorf("outcome %d", got)
	}
}

func TestParseConfig(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"Endpoint", "", "Endpoint"}, {"Endpoint", "http://x:1", "https://"}, {"Endpoint", "https://x/y", "Endpoint"},
		{"Timeout", "0", "Timeout"}, {"Timeout", "2h", "Timeout"}, {"Compress", "lz4", "gzip or off"},
	} {
		_, err := ParseConfig(func(k string) string {
			if k == c.key {
				return c.value
			}
			return map[string]string{"Endpoint": "https://x:1"}[k]
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%q: %v", c.key, c.value, err)
		}
	}
	cfg, err := ParseConfig(func(k string) string { return map[string]string{"Endpoint": "https://x:1/", "Timeout": "5"}[k] })
	if want := (Config{"https://x:1", DefaultIdentityDir, 5 * time.Second, true}); err != nil || cfg != want {
		t.Errorf("%+v %v", cfg, err)
	}
}

// TestRenewedCertificate: the first flush after a renewal goes by a new connection, and
// not by the old one until the intake refuses it; without a renewal there is one
// connection.
func TestRenewedCertificate(t *testing.T) {
	g := start(t)
	o := g.output(t, nil)
	flush := func(want string) {
		t.Helper()
		o.ident.checked = time.Time{}
		if got := o.Flush([]byte("x"), "t"); got != OK || g.serial != want {
			t.Errorf("outcome %d with certificate %s, want %s", got, g.serial, want)
		}
	}
	flush("2")
	flush("2")
	if len(g.remote) != 1 {
		t.Errorf("%d connections", len(g.remote))
	}
	g.renew(3)
	flush("3")
	flush("3")
	g.renew(4)
	flush("4")
	if len(g.remote) != 3 {
		t.Errorf("%d connections, want one a certificate", len(g.remote))
	}
	// One that had expired: the intake says to come again in half a minute, and the
	// renewal ends the wait.
	g.code, g.head = 503, http.Header{"Retry-After": {"30"}}
	if got := o.Flush([]byte("x"), "t"); got != Retry {
		t.Errorf("outcome %d", got)
	}
	g.code, g.head = 200, nil
	n := g.requests
	if got := o.Flush([]byte("x"), "t"); got != Retry || g.requests != n {
		t.Errorf("outcome %d, %d requests while it should wait", got, g.requests-n)
	}
	g.renew(5)
	flush("5")
}

// TestDeliveryIDs: a chunk that is sent again has its id again, and an equal one that
// is another has another, whatever the order in which they are sent.
func TestDeliveryIDs(t *testing.T) {
	g := start(t)
	o := g.output(t, nil)
	code := func(c int) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.code = c
	}
	for range 3 { // three equal chunks that are all taken at once
		if got := o.Flush([]byte("x"), "t"); got != OK {
			t.Fatal(got)
		}
	}
	if len(g.stored) != 3 {
		t.Errorf("%v", g.stored)
	}
	clear(g.stored)
	code(500)
	for range 2 {
		o.Flush([]byte("x"), "t") // the same chunk twice, or two: nobody knows
	}
	if len(g.stored) != 1 {
		t.Errorf("%v", g.stored)
	}
	o.Flush([]byte("x"), "other")
	o.Flush([]byte("y"), "t")
	code(200)
	for range 2 {
		o.Flush([]byte("x"), "t")
	}
	o.Flush([]byte("x"), "other")
	o.Flush([]byte("y"), "t")
	if len(g.stored) != 4 {
		t.Errorf("%d ids for 4 chunks: %v", len(g.stored), g.stored)
	}
	second := g.output(t, nil)
	second.Flush([]byte("x"), "t")
	if len(g.stored) != 5 {
		t.Errorf("another node's ids are its own: %v", g.stored)
	}
	var d deliveries
	d.init()
	for i := range 3 * maxUnknown {
		d.end(contentOf("t", fmt.Append(nil, i)), "x", false)
	}
	if d.count > maxUnknown || len(d.unknown) != d.count {
		t.Errorf("%d ids, counted %d", len(d.unknown), d.count)
	}
}
