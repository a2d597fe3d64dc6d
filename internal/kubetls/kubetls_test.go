package kubetls_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/kubetls"
)

// server is an API server to TLS, with the certificate of the CA in a directory.
type server struct {
	*httptest.Server
	t    testing.TB
	ca   *pki.CA
	dir  string
	path string // of the kubeconfig
	mod  time.Time
}

func newServer(t testing.TB) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), mod: time.Now()}
	var err error
	if s.ca, err = pki.Open(pki.Options{Dir: filepath.Join(s.dir, "pki")}); err != nil {
		t.Fatal(err)
	}
	s.path = filepath.Join(s.dir, "kubeconfig")
	s.ensure()
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto, " ", r.Header.Get("Authorization"))
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{NextProtos: []string{"h2", "http/1.1"}, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		// Read anew each time: identity.Files looks once a second.
		f, err := identity.LoadFiles(filepath.Join(s.dir, pki.PairFile), filepath.Join(s.dir, pki.TrustFile))
		if err != nil {
			return nil, err
		}
		return f.ServerConfig(tls.NoClientCert, "h2", "http/1.1").GetConfigForClient(nil)
	}}
	s.StartTLS()
	t.Cleanup(s.Close)
	s.write(string(s.ca.BundlePEM()))
	return s
}

func (s *server) ensure() {
	s.t.Helper()
	if _, err := s.ca.EnsureControl(s.dir, []string{"127.0.0.1"}); err != nil {
		s.t.Fatal(err)
	}
}

// write leaves the kubeconfig with these CAs.
func (s *server) write(ca string) {
	s.t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["m"] = &clientcmdapi.Cluster{Server: s.URL, CertificateAuthorityData: []byte(ca)}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "secret"}
	c.Contexts["m"] = &clientcmdapi.Context{Cluster: "m", AuthInfo: "u"}
	c.CurrentContext = "m"
	if err := clientcmd.WriteToFile(*c, s.path); err != nil {
		s.t.Fatal(err)
	}
	s.mod = s.mod.Add(time.Minute) // however coarse the file system's clock is
	if err := os.Chtimes(s.path, s.mod, s.mod); err != nil {
		s.t.Fatal(err)
	}
}

// get asks over a new connection.
func (s *server) get(cfg *rest.Config) (string, error) {
	s.t.Helper()
	s.CloseClientConnections()
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	for range 2 { // the first may meet the connection as it is closed
		var req *http.Request
		if req, err = http.NewRequest(http.MethodGet, s.URL, nil); err != nil {
			s.t.Fatal(err)
		}
		var resp *http.Response
		if resp, err = c.Do(req); err != nil {
			continue
		}
		defer resp.Body.Close()
		b := make([]byte, 100)
		n, _ := resp.Body.Read(b)
		return string(b[:n]), nil
	}
	return "", err
}

// A client that was made before the CA changed goes on in every phase; client-go's own
// does not.
func TestClientsFollowTheCA(t *testing.T) {
	s := newServer(t)
	cfg, file, err := kubetls.Load(s.path)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := clientcmd.BuildConfigFromFlags("", s.path)
	if err != nil {
		t.Fatal(err)
	}
	good := func(when string) {
		t.Helper()
		if got, err := s.get(cfg); err != nil || got != "HTTP/2.0 Bearer secret" {
			t.Fatalf("%s: %q, %v", when, got, err)
		}
		if string(file.CA()) != string(s.ca.BundlePEM()) {
			t.Errorf("%s: CA() is not today's", when)
		}
	}
	good("at first")
	for _, step := range []func() error{s.ca.PrepareRollover, s.ca.ActivateRollover, s.ca.RetireOld} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		s.ensure()
		s.write(string(s.ca.BundlePEM()))
		good("after a step")
	}
	if got, err := s.get(plain); err == nil {
		t.Errorf("a client that doesn't follow: %q", got)
	}

	// A file that is damaged changes nothing; one of another CA is refused.
	s.write("garbage")
	if _, err := s.get(cfg); err != nil {
		t.Errorf("with a damaged kubeconfig: %v", err)
	}
	other, err := pki.Open(pki.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s.write(string(other.BundlePEM()))
	if got, err := s.get(cfg); err == nil || !strings.Contains(err.Error(), "server certificate") {
		t.Errorf("trusting another CA: %q, %v", got, err)
	}
}

func TestWhatCanNotFollow(t *testing.T) {
	for want, cfg := range map[string]*rest.Config{
		"want https://HOST:PORT": {Host: "nonsense"},
		"client certificate":     {Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CertFile: "x"}},
		"none to verify":         {Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
	} {
		if err := kubetls.Follow(cfg, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, _, err := kubetls.Load(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("a missing file was loaded")
	}
}
