package collector

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	configutil "github.com/prometheus/common/config"
)

const (
	// inProcessSuffix ends the host names of in-process targets. They are never
	// resolved.
	inProcessSuffix = ".inprocess.invalid"
	selfHost        = "self" + inProcessSuffix + ":80"
)

type inProcessTarget struct {
	Target
	host string
}

// inProcess serves targets to the scrape manager's HTTP clients over pipes in
// memory.
type inProcess struct {
	targets []inProcessTarget
	server  *http.Server
	conns   chan net.Conn
	done    chan struct{}
	dialer  net.Dialer
	once    sync.Once

	mu       sync.RWMutex
	handlers map[string]http.Handler // by host:port
}

func newInProcess(targets []Target) (*inProcess, error) {
	checked, err := validateTargets(targets)
	if err != nil {
		return nil, err
	}
	p := &inProcess{
		targets: checked, conns: make(chan net.Conn), done: make(chan struct{}), handlers: map[string]http.Handler{},
		dialer: net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second},
	}
	for _, t := range checked {
		p.handlers[t.host] = t.Handler
	}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: 30 * time.Second}
	return p, nil
}

// all returns the targets, the collector itself first.
func (p *inProcess) all() []inProcessTarget {
	self := inProcessTarget{Target: Target{Job: selfJob, Instance: selfJob, Path: "/metrics"}, host: selfHost}
	return append([]inProcessTarget{self}, p.targets...)
}

func (p *inProcess) handle(host string, h http.Handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handlers[host] = h
}

// ServeHTTP sends the request to the target whose host it names.
func (p *inProcess) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host := r.Host
	if !strings.Contains(host, ":") {
		host += ":80"
	}
	p.mu.RLock()
	h := p.handlers[host]
	p.mu.RUnlock()
	if h == nil {
		http.NotFound(w, r)
		return
	}
	h.ServeHTTP(w, r)
}

func (p *inProcess) clientOptions() []configutil.HTTPClientOption {
	return []configutil.HTTPClientOption{configutil.WithDialContextFunc(p.dial)}
}

// dial connects to an in-process target by a pipe, and to all others as usual.
func (p *inProcess) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || !strings.HasSuffix(host, inProcessSuffix) {
		return p.dialer.DialContext(ctx, network, addr)
	}
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-p.done:
		err = net.ErrClosed
	}
	_ = client.Close()
	_ = server.Close()
	return nil, err
}

func (p *inProcess) serve() { go func() { _ = p.server.Serve(p) }() }

func (p *inProcess) close() {
	p.once.Do(func() { close(p.done) })
	_ = p.server.Close()
}

// Accept implements net.Listener.
func (p *inProcess) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *inProcess) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

// Addr implements net.Listener.
func (p *inProcess) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "in-process" }
