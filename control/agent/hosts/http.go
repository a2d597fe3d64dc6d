package hosts

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muster.dev/muster/internal/tunnel"
	"muster.dev/muster/internal/vhost"
)

// SiteHeader has the name of the site that a request comes from, by that site's certificate:
// a request that has one already is not believed.
const SiteHeader = "Muster-Site"

const (
	maxHeader = 64 << 10
	// idleRequests is how long a connection stays without a request; that is what a regional
	// leaves it, too.
	idleRequests = 15 * time.Minute
)

// passRequests reads requests from a connection of another site, or of this one, and passes
// each on to the Service of its route, until the connection or ctx ends. first is a
// connection with the Service of no route.
func (h *Hosts) passRequests(ctx context.Context, host *vhost.Host, peer string, conn, first net.Conn) {
	services := &services{h: h, host: host, first: first}
	defer services.close()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	tunnel.Serve(ctx, conn, &http.Server{
		Handler:           services.proxy(peer),
		Protocols:         protocols,
		ReadHeaderTimeout: handshakeWithin,
		IdleTimeout:       idleRequests,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(h.o.Logger.Handler(), slog.LevelDebug),
	})
}

// services are connections with the Services of a host, on behalf of one connection.
type services struct {
	h    *Hosts
	host *vhost.Host

	mu     sync.Mutex
	first  net.Conn // nil: it is in use
	failed atomic.Bool

	one, two *http.Transport // HTTP/1.1 and HTTP/2
}

func (s *services) close() {
	s.one.CloseIdleConnections()
	s.two.CloseIdleConnections()
	if c := s.takeFirst(); c != nil {
		c.Close()
	}
}

func (s *services) takeFirst() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.first
	s.first = nil
	return c
}

// of is the Service of a request.
func (s *services) of(req *http.Request) (service string, port int) {
	name := req.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	for i := range s.host.Routes {
		if r := &s.host.Routes[i]; r.Matches(name, req.URL.Path) {
			return r.Service, r.Port
		}
	}
	return s.host.Service, s.host.ServicePort
}

// dial connects with SERVICE:PORT.
func (s *services) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	service, text, _ := strings.Cut(addr, ":")
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	if service == s.host.Service && port == s.host.ServicePort {
		if c := s.takeFirst(); c != nil {
			return c, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	c, err := s.h.o.Site.Dial(ctx, s.host.To(service, port))
	if err != nil {
		return nil, fmt.Errorf("service %s: %w", service, err)
	}
	return c, nil
}

func (s *services) proxy(peer string) http.Handler {
	s.one = &http.Transport{DialContext: s.dial, DisableCompression: true, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute}
	s.two = s.one.Clone()
	s.two.Protocols = new(http.Protocols)
	s.two.Protocols.SetUnencryptedHTTP2(true)
	p := &httputil.ReverseProxy{
		Transport:     roundTripper(s.roundTrip),
		FlushInterval: -1, // what is streamed
		ErrorLog:      slog.NewLogLogger(s.h.o.Logger.Handler(), slog.LevelDebug),
		Rewrite: func(r *httputil.ProxyRequest) {
			service, port := s.of(r.In)
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", net.JoinHostPort(service, strconv.Itoa(port)), r.In.Host
			r.Out.URL.RawQuery = r.In.URL.RawQuery                                                                   // also what Go can't parse
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} { // as over a connection that is passed on
				if v, ok := r.In.Header[name]; ok {
					r.Out.Header[name] = v
				}
			}
			r.Out.Header.Set(SiteHeader, peer)
		},
		ModifyResponse: func(*http.Response) error {
			if s.failed.CompareAndSwap(true, false) {
				s.h.tried(s.host.Key(), inward, nil)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, req *http.Request, err error) {
			if req.Context().Err() == nil {
				s.failed.Store(true)
				s.h.tried(s.host.Key(), inward, err)
			}
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, s.host.Key()+": "+clip(err.Error())+"\n")
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 is
		p.ServeHTTP(w, req)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// roundTrip speaks with a Service what is spoken with the site: gRPC wants HTTP/2.
func (s *services) roundTrip(req *http.Request) (*http.Response, error) {
	if req.ProtoMajor == 2 {
		return s.two.RoundTrip(req)
	}
	return s.one.RoundTrip(req)
}
