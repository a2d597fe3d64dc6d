// Package peers is how Muster's roles know each other: over TLS, each with a certificate
// of the fleet's CA that says which role it is. It keeps a role's listeners to those who
// may call them, and makes the transport by which a role calls others.
//
// It issues no certificate (control/pki does) and knows no role: the tables that it works
// by are in cmd/internal/config. Roles and load tests call it; the edge does not.
package peers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"muster.dev/muster/internal/identity"
)

// Peer is who is to be met at an address.
type Peer struct {
	Role string // as identity.Identity.Role says it
	Name string // of a regional; "": any of the role
	// External: it may as well be a server that is no part of the fleet, if the system's
	// certificate authorities vouch for its name.
	External bool
}

func (p Peer) String() string {
	if p.Name != "" {
		return p.Role + " " + p.Name
	}
	return p.Role
}

// is nil if a certificate with this identity is the peer's.
func (p Peer) is(id identity.Identity, trustDomain string) error {
	if id.Role() != p.Role || p.Name != "" && id.Name != p.Name || id.TrustDomain != trustDomain {
		return fmt.Errorf("the certificate is of %s (%s), want one of %s (%s)", id, id.TrustDomain, p, trustDomain)
	}
	return nil
}

// Options of Open.
type Options struct {
	// PairFile and TrustFile are the role's own: see identity.LoadFiles. They may change.
	PairFile, TrustFile string
	// Lazy: the files need not be there yet. Until they are, no call succeeds.
	Lazy        bool
	TrustDomain string
	// Peers are the roles that may be called, by HOST:PORT as URLs have it. What is not
	// here is called as any host of the network is, without the role's certificate.
	Peers map[string]Peer
	// Says is which roles are believed in which headers; a request that has one of them
	// from another caller is refused.
	Says map[string][]string
}

// Peers is one role's view of the others. Safe for concurrent use.
type Peers struct {
	o     Options
	plain bool

	mu    sync.Mutex
	files *identity.Files
	known map[string]vouched // callers, by their certificates; see caller
}

type vouched struct {
	id    identity.Identity
	pool  *x509.CertPool
	until time.Time
}

// Open loads the role's certificate.
func Open(o Options) (*Peers, error) {
	if err := identity.ValidateTrustDomain(o.TrustDomain); err != nil {
		return nil, err
	}
	p := &Peers{o: o, known: map[string]vouched{}}
	if o.Lazy {
		return p, nil
	}
	pair, _, err := p.current()
	if err != nil {
		return nil, err
	}
	id, err := identity.Parse(pair.Leaf)
	if err == nil && id.TrustDomain != o.TrustDomain {
		err = fmt.Errorf("it is of trust domain %q, want %q", id.TrustDomain, o.TrustDomain)
	}
	if err != nil {
		return nil, fmt.Errorf("certificate file %s: %w", o.PairFile, err)
	}
	return p, nil
}

// Plain is for roles that talk plain HTTP and believe whoever they hear: see
// insecureLoopback in the configuration.
func Plain() *Peers { return &Peers{plain: true} }

// current are the files as they are now; see identity.Files.Current.
func (p *Peers) current() (*tls.Certificate, *x509.CertPool, error) {
	p.mu.Lock()
	if p.files == nil {
		files, err := identity.LoadFiles(p.o.PairFile, p.o.TrustFile)
		if err != nil {
			p.mu.Unlock()
			return nil, nil, err
		}
		p.files = files
	}
	files := p.files
	p.mu.Unlock()
	return files.Current()
}

// handshakeTimeout bounds a TLS handshake with another role.
const handshakeTimeout = 10 * time.Second

// Transport makes a transport for calls to other roles, and to anybody else: for http
// URLs and hosts that are not in Options.Peers it is like http.DefaultTransport. Whether
// it meets the role that the configuration says decides the role's certificate, not its
// host name. Certificates and CAs are taken anew for each connection.
func (p *Peers) Transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = func(r *http.Request) (*url.URL, error) {
		if _, ours := p.o.Peers[HostPort(r.URL)]; ours || p.plain {
			return nil, nil
		}
		return http.ProxyFromEnvironment(r)
	}
	if p.plain {
		return t
	}
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	t.ForceAttemptHTTP2 = false
	t.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		raw, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		conn := tls.Client(raw, p.clientConfig(addr))
		ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
		defer cancel()
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, fmt.Errorf("%s: %w", addr, err)
		}
		return conn, nil
	}
	return t
}

// Client is a client with a Transport of its own and no time limit.
func (p *Peers) Client() *http.Client {
	t := p.Transport()
	t.MaxIdleConnsPerHost = 32
	return &http.Client{Transport: t}
}

func (p *Peers) clientConfig(addr string) *tls.Config {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	peer, ours := p.o.Peers[addr]
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if !ours {
		return c
	}
	c.GetClientCertificate = func(req *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, _, _ := p.current()
		// A server of somebody else's gets a certificate only if it names our CA.
		if pair == nil || peer.External && (len(req.AcceptableCAs) == 0 || req.SupportsCertificate(pair) != nil) {
			return &tls.Certificate{}, nil
		}
		return pair, nil
	}
	// The built-in verification takes its pool from RootCAs, which can't rotate, and looks
	// for a host name; so it is switched off, and done here.
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		err := p.verifyServer(cs.PeerCertificates, peer)
		if err != nil && peer.External {
			if public := verify(cs.PeerCertificates, nil, host, x509.ExtKeyUsageServerAuth); public != nil {
				return fmt.Errorf("neither a role of this fleet (%w) nor a server that this system trusts: %w", err, public)
			}
			return nil
		}
		return err
	}
	return c
}

func (p *Peers) verifyServer(chain []*x509.Certificate, peer Peer) error {
	_, pool, err := p.current()
	if pool == nil {
		return fmt.Errorf("no trust bundle to verify the server with: %w", err)
	}
	if err := verify(chain, pool, "", x509.ExtKeyUsageServerAuth); err != nil {
		return err
	}
	id, err := identity.Parse(chain[0])
	if err != nil {
		return err
	}
	return peer.is(id, p.o.TrustDomain)
}

// verify checks a chain, leaf first; no roots are the system's, no host is any.
func verify(chain []*x509.Certificate, roots *x509.CertPool, host string, usage x509.ExtKeyUsage) error {
	if len(chain) == 0 {
		return errNoCertificate
	}
	inter := x509.NewCertPool()
	for _, c := range chain[1:] {
		inter.AddCert(c)
	}
	now := time.Now()
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: inter, DNSName: host, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
		return fmt.Errorf("%w (this machine's clock says %s)", err, now.UTC().Format(time.RFC3339))
	}
	return nil
}

var errNoCertificate = errors.New("no certificate")

// HostPort is the address that a URL leads to.
func HostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		if port = "80"; u.Scheme == "https" {
			port = "443"
		}
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// caller is who sent a request: a role of this fleet. It is looked at for each request,
// so a connection ends with the certificate that it was made with, and with the CA. What
// was found is kept: verifying takes longer than many a request.
func (p *Peers) caller(r *http.Request) (identity.Identity, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return identity.Identity{}, errNoCertificate
	}
	chain := r.TLS.PeerCertificates
	_, pool, err := p.current()
	if pool == nil {
		return identity.Identity{}, fmt.Errorf("no trust bundle to verify it with: %w", err)
	}
	key := string(chain[0].Raw)
	p.mu.Lock()
	v, ok := p.known[key]
	p.mu.Unlock()
	if ok && v.pool == pool && time.Now().Before(v.until) {
		return v.id, nil
	}
	if err := verify(chain, pool, "", x509.ExtKeyUsageClientAuth); err != nil {
		return identity.Identity{}, err
	}
	id, err := identity.Parse(chain[0])
	if err != nil {
		return identity.Identity{}, err
	}
	if id.TrustDomain != p.o.TrustDomain {
		return identity.Identity{}, fmt.Errorf("it is of trust domain %q, want %q", id.TrustDomain, p.o.TrustDomain)
	}
	if id.Role() == "" {
		return id, nil // sites are many, and have no business here
	}
	p.mu.Lock()
	if len(p.known) >= maxKnown {
		clear(p.known)
	}
	p.known[key] = vouched{id, pool, chain[0].NotAfter}
	p.mu.Unlock()
	return id, nil
}

// maxKnown bounds the callers that are remembered.
const maxKnown = 256

// may tells whether a caller is on a list of roles.
func may(roles []string, id identity.Identity) bool {
	return id.Role() != "" && (slices.Contains(roles, id.Role()) || slices.Contains(roles, Anyone))
}
