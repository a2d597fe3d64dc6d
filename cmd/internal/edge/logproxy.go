package edge

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"muster.dev/muster/control/agent"
)

// logsPath is the gateway's intake of logs, and ours.
const logsPath = "/api/v1/logs"

// logServer takes the logs of the nodes' shippers, which hold the key pair, and passes
// each body on to the gateway with the site's own certificate. It keeps nothing: while
// the gateway does not answer the shippers are told 503, and keep their chunks.
func logServer(a *agent.Agent, pair *hostPair) *http.Server {
	proxy := &httputil.ReverseProxy{
		Transport: a.HTTPClient().Transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			to, _ := url.Parse(a.Endpoint())
			r.SetURL(to)
			r.Out.Host = ""
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			w.Header().Set("Retry-After", "10")
			http.Error(w, "the gateway does not answer: "+err.Error(), http.StatusServiceUnavailable)
		},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+logsPath, func(w http.ResponseWriter, r *http.Request) {
		if _, _, ok := a.Identity(); !ok || a.Endpoint() == "" {
			w.Header().Set("Retry-After", "30")
			http.Error(w, "the site has no certificate yet", http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r)
	})
	return &http.Server{Handler: mux, TLSConfig: pinned(pair.pair), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
}

// pair is the key pair in use.
func (p *hostPair) pair() (*tls.Certificate, error) {
	p.mu.Lock()
	cert, key := p.cert, p.key
	p.mu.Unlock()
	if len(cert) == 0 {
		return nil, errors.New("no key pair yet")
	}
	pair, err := tls.X509KeyPair(cert, key)
	return &pair, err
}
