package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"muster.dev/muster/internal/oidclogin"
	"muster.dev/muster/internal/testkit/dex"
)

// TestMain is `muster credential` when a kubeconfig of these tests runs this program.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "credential" {
		cmd := credentialCmd()
		cmd.SetArgs(os.Args[2:])
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		if err := cmd.ExecuteContext(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const audience = "audience:server:client_id:muster"

// fleetOf is a dex with a client for the console and one for the CLI, and what the CLI
// asks of a console and a Kubernetes API that believe the tokens for the console's.
func fleetOf(t *testing.T, life time.Duration) (*dex.Server, *httptest.Server) {
	t.Helper()
	d := dex.Start(t, dex.Options{IDTokenLife: life, Users: map[string]dex.User{"zoe": {Groups: []string{"ops"}}}, Clients: []dex.Client{
		{ID: "muster", Secret: "s3cret", Name: "Muster", RedirectURIs: []string{"https://muster.example.com/api/v1/session/oidc/callback"}, TrustedPeers: []string{"muster-cli"}},
		{ID: "muster-cli", Public: true, Name: "Muster CLI"},
	}})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(d.CAPEM)
	ctx := oidc.ClientContext(context.Background(), &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}})
	issuer, err := oidc.NewProvider(ctx, d.URL)
	if err != nil {
		t.Fatal(err)
	}
	var kube *httptest.Server // client-go hands out credentials over TLS alone
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/api/v1/login" {
			id, err := issuer.Verifier(&oidc.Config{ClientID: "muster", SkipExpiryCheck: true}).Verify(ctx, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
			if err != nil {
				w.WriteHeader(http.StatusUnauthorized)
				fmt.Fprintf(w, `{"title":"Unauthorized","detail":%q}`, err)
				return
			}
			w.Header().Set("X-Subject", id.Subject)
		}
		var out any
		switch r.URL.Path {
		case "/api/v1/login":
			out = map[string]any{"oidc": map[string]any{"issuerURL": d.URL, "clientID": "muster-cli", "ca": string(d.CAPEM),
				"scopes": []string{"openid", "profile", "groups", "offline_access", audience}}}
		case "/api/v1/session":
			out = map[string]any{"user": "oidc:zoe", "tenants": []string{"acme"}}
		case "/api/v1/kubernetes":
			out = map[string]any{"server": kube.URL, "ca": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: kube.Certificate().Raw}))}
		default:
			out = map[string]any{"major": "1"}
		}
		_ = json.NewEncoder(w).Encode(out)
	})
	kube = httptest.NewTLSServer(answer)
	t.Cleanup(kube.Close)
	srv := httptest.NewServer(answer)
	t.Cleanup(srv.Close)
	return d, srv
}

// typed is what a login prints while it goes on.
type typed struct {
	mu sync.Mutex
	b  bytes.Buffer
	on func(sofar string)
}

func (w *typed) Write(p []byte) (int, error) {
	w.mu.Lock()
	n, err := w.b.Write(p)
	sofar := w.b.String()
	w.mu.Unlock()
	if w.on != nil {
		w.on(sofar)
	}
	return n, err
}

func newLogin(t *testing.T, console string) *login {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "muster")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &login{g: &Globals{Console: console}, out: io.Discard, program: self, sessionFile: filepath.Join(dir, "session.json"), kubeFile: filepath.Join(dir, "kubeconfig")}
}

// as asks the Kubernetes API with the kubeconfig as any program does, and returns who it
// was taken for.
func as(t *testing.T, path string) (string, error) {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	rt, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Client{Transport: rt, Timeout: time.Minute}).Get(cfg.Host + "/version")
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != 200 {
		return "", errors.New(res.Status)
	}
	return res.Header.Get("X-Subject"), nil
}

func TestLoginByBrowser(t *testing.T) {
	d, srv := fleetOf(t, time.Hour)
	l := newLogin(t, srv.URL)
	l.open = func(target string) error {
		go func() {
			back := d.Login(t, target, "zoe")
			for target, want := range map[string]int{strings.Replace(back, "state=", "state=x", 1): 400, strings.Replace(back, "/callback", "/", 1): 400} {
				res, err := http.Get(target)
				if err != nil || res.StatusCode != want {
					t.Errorf("%s: %v %v", target, res, err)
				}
			}
			res, err := http.Get(back)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if b, _ := io.ReadAll(res.Body); res.StatusCode != 200 || !strings.Contains(string(b), "logged in") {
				t.Errorf("the page in the browser: %s %s", res.Status, b)
			}
		}()
		return nil
	}
	var out typed
	l.out = &out
	if err := l.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := out.b.String(); !strings.Contains(s, "Logged in as oidc:zoe, with access to acme") || strings.Contains(s, "eyJ") {
		t.Errorf("printed:\n%s", s)
	}
	for _, path := range []string{l.sessionFile, l.kubeFile} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", path, info, err)
		}
	}
	if info, err := os.Stat(filepath.Dir(l.sessionFile)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info, err)
	}
	if b, _ := os.ReadFile(l.kubeFile); strings.Contains(string(b), "eyJ") {
		t.Error("the kubeconfig holds a token")
	}
	if who, err := as(t, l.kubeFile); err != nil || who == "" {
		t.Errorf("%q %v", who, err)
	}
	t.Run("a kubeconfig that holds other things keeps them", func(t *testing.T) {
		mine := filepath.Join(t.TempDir(), "config")
		const other = "apiVersion: v1\nkind: Config\ncurrent-context: work\nclusters: [{name: work, cluster: {server: 'https://work.example.com'}}]\n" +
			"users: [{name: work, user: {token: t}}]\ncontexts: [{name: work, context: {cluster: work, user: work}}]\n"
		if err := os.WriteFile(mine, []byte(other), 0o644); err != nil {
			t.Fatal(err)
		}
		l.kubeFile = mine
		if err := l.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		c, err := clientcmd.LoadFromFile(mine)
		if err != nil || c.CurrentContext != "muster" || c.AuthInfos["work"].Token != "t" || c.Clusters["work"].Server != "https://work.example.com" {
			t.Errorf("%+v %v", c, err)
		}
	})
}

func TestLoginByDevice(t *testing.T) {
	d, srv := fleetOf(t, time.Hour)
	l := newLogin(t, srv.URL)
	l.device = true
	complete := regexp.MustCompile(`https://\S+user_code=\S+`)
	var once sync.Once
	l.out = &typed{on: func(sofar string) {
		if at := complete.FindString(sofar); at != "" {
			once.Do(func() { go d.Login(t, at, "zoe") })
		}
	}}
	if err := l.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if who, err := as(t, l.kubeFile); err != nil || who == "" {
		t.Errorf("%q %v", who, err)
	}
}

// Tokens are renewed without anybody noticing, also by several programs at once, until
// the provider ends the session.
func TestCredentialsAreRenewed(t *testing.T) {
	d, srv := fleetOf(t, 10*time.Minute)
	l := newLogin(t, srv.URL)
	l.open = func(target string) error {
		go func() {
			res, err := http.Get(d.Login(t, target, "zoe"))
			if err != nil {
				t.Error(err)
				return
			}
			res.Body.Close()
		}()
		return nil
	}
	if err := l.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := func(now time.Time) string {
		t.Helper()
		s, err := freshSession(t.Context(), l.sessionFile, now)
		if err != nil {
			t.Fatal(err)
		}
		return s.IDToken
	}
	now := time.Now()
	first := at(now)
	if at(now.Add(5*time.Minute)) != first {
		t.Error("renewed before its time")
	}
	d.Advance(t, 9*time.Minute)
	now = now.Add(9 * time.Minute)
	got := make([]string, 4)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i] = at(now) })
	}
	wg.Wait()
	for _, g := range got {
		if g == first || g != got[0] {
			t.Error("not renewed, or more than once")
		}
	}
	if info, err := os.Stat(l.sessionFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}

	var s loginSession
	b, err := os.ReadFile(l.sessionFile)
	if err != nil || json.Unmarshal(b, &s) != nil {
		t.Fatal(err)
	}
	s.RefreshToken += "x"
	if err := s.write(l.sessionFile); err != nil {
		t.Fatal(err)
	}
	if _, err := freshSession(t.Context(), l.sessionFile, now.Add(time.Hour)); err == nil || !errors.Is(err, oidclogin.ErrRefused) || !strings.Contains(err.Error(), "muster login --console "+srv.URL) {
		t.Errorf("an ended session: %v", err)
	}
	if err := os.Remove(l.sessionFile); err != nil {
		t.Fatal(err)
	}
	if _, err := as(t, l.kubeFile); err == nil {
		t.Error("without a session")
	}
}

func TestLoginSaysWhatIsMissing(t *testing.T) {
	answers := map[string]string{"/api/v1/login": `{"oidc":null}`}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, answers[r.URL.Path]) }))
	defer srv.Close()
	l := newLogin(t, srv.URL)
	if err := l.run(t.Context()); err == nil || !strings.Contains(err.Error(), "oidc.issuerURL") {
		t.Errorf("err = %v", err)
	}
	answers["/api/v1/session"], answers["/api/v1/kubernetes"] = `{"user":"zoe"}`, `{"server":"https://127.0.0.1:6443"}`
	s := &loginSession{Console: "https://muster.example.com"}
	if err := l.keep(t.Context(), &api{base: srv.URL, http: &http.Client{}}, s); err == nil || !strings.Contains(err.Error(), "--server") {
		t.Errorf("an address that is not from here: %v", err)
	}
	if _, err := os.Stat(l.sessionFile); err == nil {
		t.Error("a session was left by a login that failed")
	}
	if _, err := freshSession(t.Context(), filepath.Join(t.TempDir(), "none"), time.Now()); err == nil || !strings.Contains(err.Error(), "muster login") {
		t.Errorf("err = %v", err)
	}
}

// The administrator's kubeconfig of a fleet on this machine comes before that of a login.
func TestWhichKubeconfig(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	t.Setenv("KUBECONFIG", "")
	g := &Globals{DataDir: t.TempDir()}
	admin, own := filepath.Join(g.DataDir, "admin.kubeconfig"), filepath.Join(home, "muster", "kubeconfig")
	for _, step := range []struct{ make, want string }{{"", admin}, {own, own}, {admin, admin}} {
		if step.make != "" {
			if err := writePrivate(step.make, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if got := g.kubeconfigPath(); got != step.want {
			t.Errorf("after %q: %s, want %s", step.make, got, step.want)
		}
	}
}
