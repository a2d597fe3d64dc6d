package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
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
// each on to the Service of its route as routes are then, until the connection or ctx ends.
// first is a connection with the Service of no route.
func (h *Hosts) passRequests(ctx context.Context, current func() *vhost.Host, peer string, conn, first net.Conn) {
	services := &services{h: h, current: current, first: first, since: time.Now()}
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
	h       *Hosts
	current func() *vhost.Host // nil: it is not this site's any more

	mu    sync.Mutex
	first net.Conn // nil: it is in use, or closed
	since time.Time

	one, two *http.Transport // HTTP/1.1 and HTTP/2
}

// firstWithin is how old the first connection may be to be taken: a Service closes one on
// which nothing is said.
const firstWithin = time.Second

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

// serviceOf is the SERVICE:PORT of a request.
func serviceOf(host *vhost.Host, req *http.Request) string {
	name := req.Host
	if h, _, err := net.SplitHostPort(name); err == nil {
		name = h
	}
	for i := range host.Routes {
		if r := &host.Routes[i]; r.Matches(name, req.URL.Path) {
			return address(r.Service, r.Port)
		}
	}
	return address(host.Service, host.ServicePort)
}

func address(service string, port int) string { return net.JoinHostPort(service, strconv.Itoa(port)) }

// dial connects with SERVICE:PORT.
func (s *services) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	service, text, _ := strings.Cut(addr, ":")
	port, err := strconv.Atoi(text)
	host := s.current()
	if err != nil || host == nil {
		return nil, errors.Join(err, errNotServed)
	}
	if c := s.takeFirst(); c != nil {
		if addr == address(host.Service, host.ServicePort) && time.Since(s.since) < firstWithin {
			return c, nil
		}
		c.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	c, err := s.h.o.Site.Dial(ctx, host.To(service, port))
	if err != nil {
		return nil, fmt.Errorf("service %s: %w", service, err)
	}
	return c, nil
}

var errNotServed = errors.New("it is not served here any more, or not for this site")

// tried tells what came of a request to a Service, where that is news: connections are
// counted, not requests.
func (s *services) tried(addr string, err error) {
	host := s.current()
	if host == nil {
		return
	}
	if addr == address(host.Service, host.ServicePort) {
		addr = ""
	}
	if err != nil || s.h.meter.fails(host.Key(), inward, addr) {
		s.h.triedService(host.Key(), inward, addr, err)
	}
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
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", r.In.Context().Value(serviceKey{}).(string), r.In.Host
			r.Out.URL.RawQuery = r.In.URL.RawQuery                                                                   // also what Go can't parse
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} { // as over a connection that is passed on
				if v, ok := r.In.Header[name]; ok {
					r.Out.Header[name] = v
				}
			}
			r.Out.Header.Set(SiteHeader, peer)
		},
		ModifyResponse: func(resp *http.Response) error {
			s.tried(resp.Request.URL.Host, nil)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, req *http.Request, err error) {
			if req.Context().Err() == nil {
				s.tried(req.URL.Host, err)
			}
			fail(w, http.StatusBadGateway, clip(err.Error()))
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		host := s.current()
		if host == nil || !host.Consumes(peer) {
			fail(w, http.StatusForbidden, errNotServed.Error())
			return
		}
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 is
		p.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), serviceKey{}, serviceOf(host, req))))
	})
}

// serviceKey has the SERVICE:PORT of a request in its context.
type serviceKey struct{}

func fail(w http.ResponseWriter, code int, why string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, "virtual host: "+why+"\n")
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
