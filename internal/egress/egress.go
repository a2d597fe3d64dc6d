// Package egress is the door through which Muster connects to addresses that a tenant
// chose: webhooks, chat services, mail servers, proxies. Tenants are strangers to each
// other and to the platform, and the process that dials stands inside the platform's
// network, so the door leads to the public Internet alone, unless the operator says
// otherwise, and never to Muster's own listeners.
//
// The address is looked at after the name was resolved, for each connection, those of
// redirects too. It knows no protocol. cmd/internal/alerting hands a Policy to the
// embedded Alertmanager; admission asks it about addresses that are written out.
package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/singleflight"
)

// ErrRefused is wrapped by errors about destinations that the policy refuses. They name
// what the tenant wrote and nothing that was found out about it: which of several rules
// it was, or what a name resolves to in here, would make the policy a scanner.
var ErrRefused = errors.New("refused by policy; receivers reach public addresses only, unless the platform's operator allows more in alerting.alertmanager.allowNetworks")

// Options of a Policy. All may be zero.
type Options struct {
	// Allow is reachable though it is not public: networks (10.1.0.0/16), addresses
	// (10.1.2.3) and single ports (10.1.2.3:25).
	Allow []string
	// Deny is out of reach though it may be public, or lies in Allow.
	Deny []string
	// Own are Muster's own addresses, HOST:PORT or URLs: out of reach whatever Allow says.
	// Their ports are so at every address of this machine.
	Own []string
	// MaxLife of a connection; default 2 min. Not every caller bounds its requests.
	MaxLife time.Duration
	// MaxRead bounds what comes back on a connection, in bytes; default 1 MiB. An answer
	// is read into memory whole by some.
	MaxRead int64

	Logger     *slog.Logger          // gets each refusal with the address that it was about
	Registerer prometheus.Registerer // counts refusals

	// For tests: the machine's addresses, and how names resolve.
	interfaces func() ([]net.Addr, error)
	lookup     func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Policy says what may be reached. Safe for concurrent use.
type Policy struct {
	opts        Options
	allow, deny []rule
	hosts       map[string][]string // own names, lower case: their ports
	own         map[netip.AddrPort]bool
	ports       map[uint16]bool // of own, on this machine
	refused     prometheus.Counter

	mu       sync.Mutex
	resolved map[netip.AddrPort]bool // what hosts last resolved to
	looked   time.Time

	lookups singleflight.Group
}

// rule is a network, with a port or for all of them.
type rule struct {
	net  netip.Prefix
	port uint16 // 0: all
}

func (r rule) holds(ap netip.AddrPort) bool {
	return r.net.Contains(ap.Addr()) && (r.port == 0 || r.port == ap.Port())
}

func holds(rules []rule, ap netip.AddrPort) bool {
	for _, r := range rules {
		if r.holds(ap) {
			return true
		}
	}
	return false
}

// The addresses of own names are looked up again after ownFor; while that takes its time,
// they are good for staleFor. A look-up takes lookTime at most.
const (
	ownFor   = time.Minute
	staleFor = 10 * time.Minute
	lookTime = 5 * time.Second
)

// New checks the options; it resolves nothing.
func New(o Options) (*Policy, error) {
	if o.MaxLife <= 0 {
		o.MaxLife = 2 * time.Minute
	}
	if o.MaxRead <= 0 {
		o.MaxRead = 1 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.interfaces == nil {
		o.interfaces = net.InterfaceAddrs
	}
	if o.lookup == nil {
		o.lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	p := &Policy{opts: o, hosts: map[string][]string{}, own: map[netip.AddrPort]bool{}, ports: map[uint16]bool{}}
	var err error
	if p.allow, err = rules("allowNetworks", o.Allow); err != nil {
		return nil, err
	}
	if p.deny, err = rules("denyNetworks", o.Deny); err != nil {
		return nil, err
	}
	for _, s := range o.Own {
		if err := p.addOwn(s); err != nil {
			return nil, err
		}
	}
	p.refused = promauto.With(o.Registerer).NewCounter(prometheus.CounterOpts{
		Name: "muster_egress_refused_total", Help: "Connections to destinations of tenants that the policy refused.",
	})
	return p, nil
}

// rules reads a list of networks, addresses and ADDRESS:PORT. field begins its errors.
func rules(field string, list []string) ([]rule, error) {
	var out []rule
	for i, s := range list {
		var r rule
		if p, err := netip.ParsePrefix(s); err == nil {
			r.net = p
		} else if ap, err := netip.ParseAddrPort(s); err == nil && ap.Port() != 0 {
			r = rule{netip.PrefixFrom(ap.Addr(), ap.Addr().BitLen()), ap.Port()}
		} else if a, err := netip.ParseAddr(s); err == nil {
			r.net = netip.PrefixFrom(a, a.BitLen())
		} else {
			return nil, fmt.Errorf("%s[%d]: %q: want a network such as 10.1.0.0/16, an address, or ADDRESS:PORT", field, i, s)
		}
		if r.net.Addr().Is4In6() {
			return nil, fmt.Errorf("%s[%d]: %q: write the IPv4 address as such", field, i, s)
		}
		r.net = r.net.Masked()
		out = append(out, r)
	}
	return out, nil
}

func (p *Policy) addOwn(s string) error {
	hostPort := s
	if strings.Contains(s, "://") {
		u, err := url.Parse(s)
		if err != nil || u.Hostname() == "" {
			return fmt.Errorf("own address %q: want a URL with a host", s)
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80"}[u.Scheme]
		}
		if port == "" {
			port = "443"
		}
		hostPort = net.JoinHostPort(u.Hostname(), port)
	}
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return fmt.Errorf("own address %q: want HOST:PORT: %w", s, err)
	}
	n, err := net.LookupPort("tcp", port)
	if err != nil {
		return fmt.Errorf("own address %q: %w", s, err)
	}
	number := uint16(n) //nolint:gosec // LookupPort gives ports
	p.ports[number] = true
	if host == "" {
		return nil
	}
	if a, err := netip.ParseAddr(host); err == nil {
		p.own[netip.AddrPortFrom(plain(a), number)] = true
		return nil
	}
	host = name(host)
	p.hosts[host] = append(p.hosts[host], fmt.Sprint(number))
	return nil
}

// name is a host name as it is compared.
func name(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// plain is an address without what would keep it from being found in a network.
func plain(a netip.Addr) netip.Addr { return a.WithZone("").Unmap() }

// DialContext connects as net.Dialer does, to what the policy lets through. network is
// tcp, tcp4 or tcp6.
func (p *Policy) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil, fmt.Errorf("connect to %s: %w", address, ErrRefused)
	}
	if err := p.Named(address); err != nil {
		p.count(address, "")
		return nil, err
	}
	own, err := p.lookUp(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	d := &net.Dialer{Timeout: 30 * time.Second, Control: func(_, to string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(to)
		if err == nil && p.passes(ap, own) {
			return nil
		}
		p.count(address, to)
		return ErrRefused
	}}
	conn, err := d.DialContext(ctx, network, address)
	if errors.Is(err, ErrRefused) {
		return nil, fmt.Errorf("connect to %s: %w", address, ErrRefused) // without the address that was tried
	}
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(p.opts.MaxLife)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &limited{Conn: conn, left: p.opts.MaxRead}, nil
}

func (p *Policy) count(address, to string) {
	p.refused.Inc()
	p.opts.Logger.Warn("a receiver names a destination that it may not reach", "destination", address, "address", to)
}

// Named looks at a destination as it is written, HOST:PORT, and resolves nothing: an
// address, or a name that means this machine or one of Muster's own. The error of a
// refusal is ErrRefused. A name that passes is looked at again when it is dialled.
func (p *Policy) Named(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q: want HOST:PORT", address)
	}
	n, err := net.LookupPort("tcp", port)
	if err != nil {
		return fmt.Errorf("%q: %q is no port", address, port)
	}
	refuse := fmt.Errorf("connect to %s: %w", address, ErrRefused)
	number := uint16(n) //nolint:gosec // LookupPort gives ports
	if a, err := netip.ParseAddr(host); err == nil {
		if p.passes(netip.AddrPortFrom(a, number), nil) {
			return nil
		}
		return refuse
	}
	switch host = name(host); {
	case host == "":
		return refuse
	case host == "localhost" || strings.HasSuffix(host, ".localhost"):
		if !p.passes(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), number), nil) {
			return refuse
		}
	case numeric(host): // 127.1, 2130706433, 0x7f.1: some resolvers read them as addresses
		return refuse
	}
	for _, own := range p.hosts[host] {
		if own == fmt.Sprint(number) {
			return refuse
		}
	}
	return nil
}

// numeric says whether the last part of a host is a number, which no name's is.
func numeric(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	return last != "" && strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x")
}

// lookUp returns what the own names resolve to, as of a minute ago, or while that is being
// found out anew as of ten at most. Who finds nothing waits, and holds up nobody.
func (p *Policy) lookUp(ctx context.Context) (map[netip.AddrPort]bool, error) {
	p.mu.Lock()
	known, ever, age := p.resolved, !p.looked.IsZero(), time.Since(p.looked)
	p.mu.Unlock()
	if len(p.hosts) == 0 || ever && age < ownFor {
		return known, nil
	}
	// Not in the caller's time: others wait for it, too.
	done := p.lookups.DoChan("", func() (any, error) { return p.look(context.WithoutCancel(ctx), known), nil })
	if ever && age < staleFor {
		return known, nil
	}
	select {
	case found := <-done:
		return found.Val.(map[netip.AddrPort]bool), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// look resolves the own names. One that can't be resolved now keeps its former addresses.
func (p *Policy) look(ctx context.Context, former map[netip.AddrPort]bool) map[netip.AddrPort]bool {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	type answer struct {
		host  string
		addrs []netip.Addr
		err   error
	}
	answers := make(chan answer, len(p.hosts))
	for host := range p.hosts {
		go func() {
			addrs, err := p.opts.lookup(ctx, host)
			answers <- answer{host, addrs, err}
		}()
	}
	now := map[netip.AddrPort]bool{}
	for range p.hosts {
		a := <-answers
		if a.err != nil {
			p.opts.Logger.Debug("an own name does not resolve", "name", a.host, "err", a.err)
			for ap := range former {
				now[ap] = true
			}
			continue
		}
		for _, addr := range a.addrs {
			for _, port := range p.hosts[a.host] {
				n, _ := net.LookupPort("tcp", port)
				now[netip.AddrPortFrom(plain(addr), uint16(n))] = true //nolint:gosec // LookupPort gives ports
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resolved, p.looked = now, time.Now()
	return now
}

// passes says whether an address may be reached, in each of the forms that it has.
func (p *Policy) passes(ap netip.AddrPort, own map[netip.AddrPort]bool) bool {
	machine, err := p.machine()
	if err != nil {
		p.opts.Logger.Error("this machine's addresses are not known, so nothing is reached", "err", err)
		return false
	}
	for _, a := range forms(ap.Addr()) {
		to := netip.AddrPortFrom(a, ap.Port())
		here := a.IsLoopback() || a.IsUnspecified() || a.Is4() && a.As4()[0] == 0 || machine[a]
		switch {
		case p.own[to] || own[to] || here && p.ports[to.Port()]:
			return false
		case holds(p.deny, to):
			return false
		case (here || !public(a)) && !holds(p.allow, to):
			return false
		}
	}
	return true
}

// machine are the addresses of this machine as of now.
func (p *Policy) machine() (map[netip.Addr]bool, error) {
	addrs, err := p.opts.interfaces()
	if err != nil {
		return nil, err
	}
	out := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		if n, is := a.(*net.IPNet); is {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				out[plain(ip)] = true
			}
		}
	}
	return out, nil
}

// forms of an address: itself, and the IPv4 addresses that a translator or a tunnel on
// the way would make of it.
func forms(a netip.Addr) []netip.Addr {
	a = plain(a)
	out := []netip.Addr{a}
	if !a.Is6() {
		return out
	}
	b := a.As16()
	v4 := func(at int) { out = append(out, netip.AddrFrom4([4]byte(b[at:at+4]))) }
	switch {
	case nat64.Contains(a):
		v4(12)
	case sixToFour.Contains(a):
		v4(2)
	case teredo.Contains(a):
		v4(4) // the server
		out = append(out, netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}))
	}
	if b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe { // ISATAP, RFC 5214
		v4(12)
	}
	return out
}

var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052
	sixToFour = netip.MustParsePrefix("2002::/16")    // RFC 3056
	teredo    = netip.MustParsePrefix("2001::/32")    // RFC 4380
	unicast   = netip.MustParsePrefix("2000::/3")     // all of IPv6 that is routed

	// special are the networks that no public host has: IANA's registries of special-purpose
	// addresses, less those that are globally reachable.
	special = func() (out []netip.Prefix) {
		for _, s := range []string{
			"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
			"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
			"2001:2::/48", "2001:10::/28", "2001:20::/28", "2001:db8::/32", "3fff::/20",
		} {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}()
)

func public(a netip.Addr) bool {
	if a.Is6() && !unicast.Contains(a) && !nat64.Contains(a) {
		return false
	}
	for _, n := range special {
		if n.Contains(a) {
			return false
		}
	}
	return true
}

// limited ends a connection that brings more than it should.
type limited struct {
	net.Conn
	left int64 // read by one goroutine, as net/http and net/smtp do
}

var errTooLong = fmt.Errorf("the receiver's answer is too long: %w", io.ErrUnexpectedEOF)

func (c *limited) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooLong
	}
	if int64(len(b)) > c.left {
		b = b[:c.left]
	}
	n, err := c.Conn.Read(b)
	c.left -= int64(n)
	return n, err
}
