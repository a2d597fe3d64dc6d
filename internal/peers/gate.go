package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/strangers"
	"muster.dev/muster/internal/wire"
)

// Anyone, in a Rule, needs no certificate.
const Anyone = "*"

// Rule says who may call a group of routes. What no rule of a listener is about, nobody
// may call.
type Rule struct {
	Pattern string // of http.ServeMux, without method and host
	Callers []string
}

// Listener is one listener of a role.
type Listener struct {
	peers *Peers
	rules []Rule
	mux   *http.ServeMux // for its patterns

	refused, closed *prometheus.CounterVec // nil: not counted

	// Strangers are the bounds for callers that have not shown a good certificate.
	Strangers strangers.Bounds
}

// strangerBounds: all callers are strangers until their first request has shown a
// certificate, and whoever asks for no more than whether a role is ready stays one.
var strangerBounds = strangers.Bounds{Max: 512, PerHost: 256, Life: time.Minute}

// Listener makes one with these rules; two with the same pattern are a mistake of the
// programmer's.
func (p *Peers) Listener(rules []Rule) *Listener {
	l := &Listener{peers: p, rules: rules, mux: http.NewServeMux(), Strangers: strangerBounds}
	for _, r := range rules {
		l.mux.Handle(r.Pattern, nobody)
	}
	return l
}

var nobody = http.NotFoundHandler()

// Covers is an error that names the first of these patterns of http.ServeMux that no rule
// is about: the routes of a listener, which nobody could call.
func (l *Listener) Covers(patterns []string) error {
	for _, pattern := range patterns {
		path := pattern[strings.IndexByte(pattern, '/'):]
		path = strings.TrimSuffix(path, "{$}")
		for strings.Contains(path, "{") {
			before, rest, _ := strings.Cut(path, "{")
			_, after, _ := strings.Cut(rest, "}")
			path = before + "x" + after
		}
		r, err := http.NewRequest(http.MethodGet, path, nil)
		if err != nil {
			return fmt.Errorf("route %q: %w", pattern, err)
		}
		if _, found := l.mux.Handler(r); found == "" {
			return fmt.Errorf("route %q has no caller: the table of roles must say who may call it", pattern)
		}
	}
	return nil
}

// TLS tells whether the listener speaks it.
func (l *Listener) TLS() bool { return !l.peers.plain }

// Register adds muster_role_certificate_expiry_timestamp_seconds, when the role's own
// certificate ends, muster_role_refused_calls_total by status, and
// muster_role_closed_connections_total by reason.
func (l *Listener) Register(reg prometheus.Registerer) {
	if l.peers.plain {
		return
	}
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_role_certificate_expiry_timestamp_seconds", Help: "When the certificate by which other roles know this one ends; 0: it can't be read."}, func() float64 {
		if pair, _, _ := l.peers.current(); pair != nil {
			return float64(pair.Leaf.NotAfter.Unix())
		}
		return 0
	})
	l.refused = promauto.With(reg).NewCounterVec(prometheus.CounterOpts{Name: "muster_role_refused_calls_total", Help: "Calls of who may not make them, on the ops listener, by status."}, []string{"code"})
	l.closed = promauto.With(reg).NewCounterVec(prometheus.CounterOpts{Name: "muster_role_closed_connections_total", Help: "Connections to the ops listener, of who has shown no good certificate, that were closed because there were too many or because they stood too long."}, []string{"reason"})
	for _, reason := range []string{strangers.Many, strangers.ManyHost, strangers.TooLong} {
		l.closed.WithLabelValues(reason)
	}
	for _, code := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		l.refused.WithLabelValues(strconv.Itoa(code))
	}
}

// maxConnAge is after how long a connection is not used again, so that both ends see
// certificates that were renewed, and CAs that came or went.
const maxConnAge = time.Hour

// connOf is the connection that a request came by.
type connOf struct {
	conn  net.Conn
	born  time.Time
	table *strangers.Table
}

type connKey struct{}

// Secure has a server, before it serves, speak TLS and take calls of those only who may
// make them: a caller without a certificate of this fleet gets a 401, one that is another
// role, or that says what it has no right to say, a 403.
func (l *Listener) Secure(srv *http.Server, log *slog.Logger) {
	p := l.peers
	if p.plain {
		return
	}
	next, every := srv.Handler, newRefusals(log, l.refused)
	logged := obs.NewEvery(time.Minute)
	table := strangers.New(l.Strangers, func(reason, host string) {
		if l.closed != nil {
			l.closed.WithLabelValues(reason).Inc()
		}
		if left, ok := logged.Pass(reason, time.Now()); ok && reason != strangers.TooLong {
			log.Warn("connections of callers without a certificate are closed: there are too many", "reason", reason, "address", host, "left_out", left)
		}
	})
	gate := http.NewServeMux()
	for _, rule := range l.rules {
		gate.Handle(rule.Pattern, p.only(rule, next, every))
	}
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*connOf); ok && time.Since(c.born) > maxConnAge {
			w.Header().Set("Connection", "close")
		}
		if strange(r) {
			wire.Failure(http.StatusBadRequest, "a path with an escaped slash or dots").Write(w)
			return
		}
		if _, pattern := gate.Handler(r); pattern == "" {
			if _, err := p.caller(r); err != nil {
				every.write(w, r, unauthenticated(err, nil))
				return
			}
			wire.Failure(http.StatusNotFound, "there is nothing at %s that a role may call", r.URL.Path).Write(w)
			return
		}
		gate.ServeHTTP(w, r)
	})
	srv.TLSConfig = l.tls()
	srv.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){} // HTTP/1.1 alone
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, &connOf{c, time.Now(), table})
	}
	srv.ConnState = func(c net.Conn, st http.ConnState) {
		switch st {
		case http.StateNew:
			table.Add(c)
		case http.StateClosed, http.StateHijacked:
			table.Forget(c)
		}
	}
}

// tls asks for a certificate and refuses none: what is wrong with it the gate says in
// words, where a handshake would only break off.
func (l *Listener) tls() *tls.Config {
	base := &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert, SessionTicketsDisabled: true}
	c := base.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, pool, err := l.peers.current()
		if pair == nil {
			return nil, err
		}
		c := base.Clone()
		c.Certificates, c.ClientCAs = []tls.Certificate{*pair}, pool
		return c, nil
	}
	// For servers that insist on a certificate here.
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errNoCertificate }
	return c
}

// strange paths might be one thing to the gate and another to what is behind it.
func strange(r *http.Request) bool {
	return r.Method == http.MethodConnect || strings.Contains(strings.ToLower(r.URL.RawPath), "%2f") || strings.Contains(r.URL.Path+"/", "/../")
}

// only lets the callers of a rule through.
func (p *Peers) only(rule Rule, next http.Handler, log *refusals) http.Handler {
	open := len(rule.Callers) == 1 && rule.Callers[0] == Anyone
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if open {
			for name := range p.o.Says {
				r.Header.Del(name)
			}
			if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
				if _, err := p.caller(r); err == nil {
					known(r)
				}
			}
			next.ServeHTTP(w, r)
			return
		}
		id, err := p.caller(r)
		if err != nil {
			log.write(w, r, unauthenticated(err, rule.Callers))
			return
		}
		known(r)
		if !may(rule.Callers, id) {
			log.write(w, r, wire.Failure(http.StatusForbidden, "%s may not call %s; it is for %s", id, r.URL.Path, list(rule.Callers)))
			return
		}
		for name, roles := range p.o.Says {
			if len(r.Header.Values(name)) > 0 && !may(roles, id) {
				log.write(w, r, wire.Failure(http.StatusForbidden, "%s may not send %s; it is for %s", id, name, list(roles)))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// known says that the peer of a request's connection is no stranger.
func known(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*connOf); ok {
		c.table.Forget(c.conn)
	}
}

func unauthenticated(err error, callers []string) *wire.Problem {
	who := "roles of this fleet"
	if len(callers) > 0 {
		who = list(callers)
	}
	if errors.Is(err, errNoCertificate) {
		return wire.Failure(http.StatusUnauthorized, "this is for %s alone: present a client certificate of the fleet's CA, such as that in DATA-DIR/control/identities/operator of the control machine", who)
	}
	return wire.Failure(http.StatusUnauthorized, "this is for %s alone, and the client certificate is not good: %s", who, err)
}

func list(roles []string) string { return strings.Join(roles, ", ") }

// refusals answers who is refused, and logs one of a status a minute.
type refusals struct {
	log   *slog.Logger
	every *obs.Every
	count *prometheus.CounterVec
}

func newRefusals(log *slog.Logger, count *prometheus.CounterVec) *refusals {
	return &refusals{log, obs.NewEvery(time.Minute), count}
}

func (f *refusals) write(w http.ResponseWriter, r *http.Request, p *wire.Problem) {
	if f.count != nil {
		f.count.WithLabelValues(strconv.Itoa(p.Status)).Inc()
	}
	// Not by what the caller chose: a stranger must not fill the log.
	if left, ok := f.every.Pass(http.StatusText(p.Status), time.Now()); ok {
		f.log.Warn("a caller is refused", "from", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "code", p.Status, "why", p.Detail, "left_out", left)
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("Connection", "close") // the next one may be made with a newer certificate
	}
	p.Write(w)
}
