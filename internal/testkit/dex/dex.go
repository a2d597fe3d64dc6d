// Package dex runs a real OpenID Connect provider for tests: dex, built from the Go
// module proxy as a program of its own (see server/) and kept in the user's cache. Its
// clock can be set ahead, so that no test waits for a token to expire.
package dex

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit"
)

// Client is a program that people log in to.
type Client struct {
	ID           string   `json:"id"`
	Secret       string   `json:"secret"`
	RedirectURIs []string `json:"redirectURIs"`
	TrustedPeers []string `json:"trustedPeers"` // clients that may ask for tokens for this one
	Public       bool     `json:"public"`
	Name         string   `json:"name"`
}

// User may log in; the name is the password too.
type User struct{ Groups []string }

// Options configure a Server.
type Options struct {
	Clients     []Client
	Users       map[string]User
	IDTokenLife time.Duration // default 10m
}

// Server is a running dex.
type Server struct {
	URL    string // of the issuer
	CAPEM  []byte
	CAFile string
	ahead  time.Duration
	http   *http.Client
}

// Start runs a dex until the test ends.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ca, err := certificate(dir)
	if err != nil {
		t.Fatal(err)
	}
	if o.IDTokenLife == 0 {
		o.IDTokenLife = 10 * time.Minute
	}
	config, err := json.Marshal(struct {
		Options
		CertFile, KeyFile string
	}{o, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(bin)
	cmd.Stderr = &log
	stdin, err := cmd.StdinPipe() // dex ends when this end is closed, however this process ends
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("dex:\n%s", log.String())
		}
	})
	if _, err := stdin.Write(config); err != nil {
		t.Fatal(err)
	}
	issuer, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("dex does not start: %v\n%s", err, log.String())
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	s := &Server{URL: strings.TrimSpace(issuer), CAPEM: ca, CAFile: filepath.Join(dir, "ca.pem")}
	s.http = s.browser(pool)
	return s
}

// browser keeps cookies and doesn't follow redirects.
func (s *Server) browser(pool *x509.CertPool) *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		panic(err) // it never fails
	}
	return &http.Client{Jar: jar, Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Advance sets dex's clock further ahead.
func (s *Server) Advance(t testing.TB, d time.Duration) {
	t.Helper()
	s.ahead += d
	base, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.http.Post(base.ResolveReference(&url.URL{Path: "/clock", RawQuery: "ahead=" + s.ahead.String()}).String(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(res.Body)
		t.Fatalf("set the clock: %s: %s", res.Status, b)
	}
}

var (
	form     = regexp.MustCompile(`<form[^>]*action="([^"]*)"`)
	userCode = regexp.MustCompile(`name="user_code"[^>]*value="([^"]*)"`)
)

// Login does at target what a person does in a browser: follows redirects, fills in the
// form, and returns the address at the client that dex sends the browser back to.
func (s *Server) Login(t testing.TB, target, user string) string {
	t.Helper()
	body := ""
	for range 20 {
		at, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(target, s.URL) {
			return target
		}
		res, page := s.ask(t, target, body)
		body = ""
		switch {
		case res.Header.Get("Location") != "":
			next, err := at.Parse(res.Header.Get("Location"))
			if err != nil {
				t.Fatal(err)
			}
			target = next.String()
		case res.StatusCode == http.StatusOK && form.MatchString(page):
			next, err := at.Parse(strings.ReplaceAll(form.FindStringSubmatch(page)[1], "&amp;", "&"))
			if err != nil {
				t.Fatal(err)
			}
			body = url.Values{"login": {user}, "password": {user}}.Encode()
			if code := userCode.FindStringSubmatch(page); code != nil {
				body = url.Values{"user_code": {code[1]}}.Encode()
			}
			target = next.String()
		default:
			if res.StatusCode == http.StatusOK {
				return target // dex' own last page, of a login by device
			}
			t.Fatalf("dex answered %s at %s:\n%s", res.Status, target, page)
		}
	}
	t.Fatalf("no end of redirects at %s", target)
	return ""
}

func (s *Server) ask(t testing.TB, target, form string) (*http.Response, string) {
	t.Helper()
	var res *http.Response
	var err error
	if form == "" {
		res, err = s.http.Get(target)
	} else {
		res, err = s.http.Post(target, "application/x-www-form-urlencoded", strings.NewReader(form))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(b)
}

// build returns the program, from the cache if its sources are as they were.
func build() (string, error) {
	_, self, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("dex: the sources are not where they were built")
	}
	src := filepath.Join(filepath.Dir(self), "server")
	sum := sha256.New()
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		b, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			return "", err
		}
		sum.Write(b)
	}
	const name = "dex"
	dir, err := testkit.Cached("dex-"+hex.EncodeToString(sum.Sum([]byte(runtime.Version())))[:24], func(dir string) error {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), ".")
		cmd.Dir = src
		cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build dex: %w\n%s", err, out)
		}
		return nil
	})
	return filepath.Join(dir, name), err
}

// certificate makes a CA and a certificate for 127.0.0.1 in dir; the API server takes
// issuers with https only.
func certificate(dir string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "dex of a test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(240 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return cert, errors.Join(
		os.WriteFile(filepath.Join(dir, "ca.pem"), cert, 0o600),
		os.WriteFile(filepath.Join(dir, "cert.pem"), cert, 0o600),
		os.WriteFile(filepath.Join(dir, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
}
