package edge

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/collector/cluster"
	"muster.dev/muster/collector/hostexporter"
	"muster.dev/muster/internal/obs"
)

// HostMetricsOptions are the flags of `muster-edge host-metrics`.
type HostMetricsOptions struct {
	Listen  string // HOST:PORT of the page
	PairDir string // tls.crt and tls.key, as a Secret is mounted
	// Host is a directory in which root, proc and sys are the host's; empty: this process
	// sees the host itself.
	Host string
	// TextfileDir is a directory of *.prom files on the host, as the host names it.
	TextfileDir string
	Log         Log
}

// HostPort is the port of the host metrics on every node.
const HostPort = cluster.HostPort

// pairFor is how long a pair that was read is good.
const pairFor = 30 * time.Second

// HostMetrics serves the metrics of one node of a cluster, to who holds the key pair,
// until ctx ends. It is what the DaemonSet runs: it knows nothing of the fleet and asks
// nobody.
func HostMetrics(ctx context.Context, o HostMetricsOptions) error {
	return role.Run(ctx, role.Options{Role: "edge-host", OpsListen: "127.0.0.1:0", Log: obs.LogOptions(o.Log)}, func(_ context.Context, env *role.Env) error {
		ho := hostexporter.Options{Logger: env.Log}
		if o.Host != "" {
			ho.RootFS, ho.ProcFS, ho.SysFS = filepath.Join(o.Host, "root"), filepath.Join(o.Host, "proc"), filepath.Join(o.Host, "sys")
		}
		if o.TextfileDir != "" {
			ho.TextfileDir = filepath.Join(cmp.Or(ho.RootFS, "/"), o.TextfileDir)
		}
		h, err := hostexporter.New(ho)
		if err != nil {
			return err
		}
		srv, err := hostServer(h, o.PairDir)
		if err != nil {
			return err
		}
		ln, err := role.Listen("--listen", o.Listen)
		if err != nil {
			return err
		}
		env.Serve("host metrics", ln, srv)
		return nil
	})
}

// hostServer serves page at /metrics, one request at a time: a page costs what it costs,
// and only one collector asks.
func hostServer(page http.Handler, pairDir string) (*http.Server, error) {
	if pairDir == "" {
		return nil, errors.New("--key-pair: name the directory with tls.crt and tls.key")
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", page)
	f := &pairFiles{dir: pairDir}
	return &http.Server{Handler: mux, TLSConfig: pinned(f.load), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}, nil
}

// pairFiles reads a key pair from files that the kubelet replaces.
type pairFiles struct {
	dir string

	mu   sync.Mutex
	pair *tls.Certificate
	at   time.Time
}

func (f *pairFiles) load() (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pair != nil && time.Since(f.at) < pairFor {
		return f.pair, nil
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(f.dir, "tls.crt"), filepath.Join(f.dir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("no key pair in %s yet; the site's muster-edge makes it: %w", f.dir, err)
	}
	f.pair, f.at = &pair, time.Now()
	return f.pair, nil
}
