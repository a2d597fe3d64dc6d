// Package kubetls lets connections to the API server follow a change of the CA that
// signs for it: client-go reads a CA once, and would refuse the server from the day on
// which the old one is retired. Muster's roles use it; it decides nothing.
package kubetls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"muster.dev/muster/internal/identity"
)

// Follow has the config's clients verify the server with the CAs that are current when a
// connection is made. TLSClientConfig stays as it is, for who reads it. The config must
// not identify itself by a client certificate.
func Follow(cfg *rest.Config, current func() (*x509.CertPool, error)) error {
	u, err := url.Parse(cfg.Host)
	if err != nil || u.Hostname() == "" {
		return fmt.Errorf("API server's URL %q: want https://HOST:PORT", cfg.Host)
	}
	if cfg.CertFile != "" || len(cfg.CertData) > 0 || cfg.Insecure {
		return errors.New("API server: a client certificate, or none to verify the server with, can't follow a CA")
	}
	host := cfg.ServerName
	if host == "" {
		host = u.Hostname()
	}
	t := utilnet.SetTransportDefaults(&http.Transport{
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 25, // as client-go has it
		TLSClientConfig: identity.ClientConfig(host, func() (*tls.Certificate, *x509.CertPool, error) {
			pool, err := current()
			return nil, pool, err
		}, nil),
	})
	cfg.Wrap(func(http.RoundTripper) http.RoundTripper { return t })
	return nil
}

// Kubeconfig is a file that control rewrites when the CA changes.
type Kubeconfig struct {
	path string

	mu   sync.Mutex
	mod  time.Time
	ca   []byte // PEM
	pool *x509.CertPool
}

// Load reads a kubeconfig. The clients of the config that it returns trust the CAs that
// the file names when they connect; while it can't be read, the last ones that could.
func Load(path string) (*rest.Config, *Kubeconfig, error) {
	k := &Kubeconfig{path: path}
	cfg, err := k.read()
	if err != nil {
		return nil, nil, err
	}
	if k.pool == nil { // the system's CAs
		return cfg, k, nil
	}
	return cfg, k, Follow(cfg, func() (*x509.CertPool, error) {
		_, pool, err := k.current()
		return pool, err
	})
}

// CA are the CAs of the file in PEM; none: the system's. Safe for concurrent use.
func (k *Kubeconfig) CA() []byte {
	ca, _, _ := k.current()
	return ca
}

func (k *Kubeconfig) current() ([]byte, *x509.CertPool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var err error
	if st, serr := os.Stat(k.path); serr != nil || !st.ModTime().Equal(k.mod) {
		_, err = k.read()
	}
	return k.ca, k.pool, err
}

// read takes the file's CAs; the caller holds mu or is alone.
func (k *Kubeconfig) read() (*rest.Config, error) {
	st, err := os.Stat(k.path)
	if err != nil {
		return nil, err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", k.path)
	if err != nil {
		return nil, err
	}
	ca := cfg.CAData
	if len(ca) == 0 && cfg.CAFile != "" {
		if ca, err = os.ReadFile(cfg.CAFile); err != nil {
			return nil, err
		}
	}
	var pool *x509.CertPool
	if len(ca) > 0 {
		cas, err := identity.ParseBundle(ca)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.path, err)
		}
		pool = identity.PoolOf(cas)
	}
	k.mod, k.ca, k.pool = st.ModTime(), ca, pool
	return cfg, nil
}
