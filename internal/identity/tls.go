package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"muster.dev/muster/internal/fleet"
)

// ParseBundle reads PEM certificates, one or more; each must be a CA.
func ParseBundle(pemBytes []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for rest := pemBytes; ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("trust bundle: a %q block, want only CERTIFICATE", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("trust bundle: certificate %d: %w", len(out)+1, err)
		}
		if !cert.IsCA {
			return nil, fmt.Errorf("trust bundle: certificate %d (%s) is not a certificate authority", len(out)+1, cert.Subject)
		}
		out = append(out, cert)
	}
	if len(out) == 0 {
		return nil, errors.New("trust bundle: no certificate in it")
	}
	return out, nil
}

// PoolOf is a pool of these certificates.
func PoolOf(cas []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range cas {
		pool.AddCert(c)
	}
	return pool
}

// VerifyPinned checks a gateway's chain (leaf first) as a joining machine does that
// knows nothing but the CA's hash: some CA in the chain has the hash, and the leaf
// verifies against that CA, for this server name, as a regional. It returns the CA.
// now is the machine's clock.
func VerifyPinned(chain []*x509.Certificate, caHash, serverName string, now time.Time) (*x509.Certificate, error) {
	if err := ValidateCAHash(caHash); err != nil {
		return nil, err
	}
	if len(chain) == 0 {
		return nil, errors.New("the server presented no certificate")
	}
	var ca *x509.Certificate
	for _, c := range chain[1:] {
		// Of several certificates of the key (one is cross-signed), the root is the self-signed one.
		if c.IsCA && CAHash(c) == caHash && (ca == nil || bytes.Equal(c.RawSubject, c.RawIssuer)) {
			ca = c
		}
	}
	if ca == nil {
		return nil, fmt.Errorf("no certificate authority of the server has the hash %s; check --server and --ca-hash, or make a new join command with `muster token create`", caHash)
	}
	if err := VerifyServer(chain, PoolOf([]*x509.Certificate{ca}), serverName, now, IsRegional); err != nil {
		return nil, err
	}
	return ca, nil
}

// Files is a key pair and a trust bundle on disk that another process may replace
// at any time (atomically, by rename). It is re-read when it changed, at most once
// a second; while the new content can't be used, the last good one is. Safe for
// concurrent use.
type Files struct {
	pairFile, bundleFile string

	mu      sync.Mutex
	checked time.Time
	pair    *tls.Certificate
	bundle  *x509.CertPool
	stamps  [2]stamp
	err     error
}

type stamp struct {
	mod  time.Time
	size int64
}

// Files of an identity in a directory of its own, for LoadFiles.
const (
	PairFile  = "tls.pem"
	TrustFile = "ca-certs.pem"
)

// LoadFiles reads pairFile (PEM: the certificate chain, leaf first, and the private
// key, in one file, so that both change at once) and bundleFile (PEM: the CAs to
// trust). An error names the file and what is wrong with it.
func LoadFiles(pairFile, bundleFile string) (*Files, error) {
	f := &Files{pairFile: pairFile, bundleFile: bundleFile}
	if err := f.load(); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *Files) load() error {
	var stamps [2]stamp
	for i, name := range []string{f.pairFile, f.bundleFile} {
		st, err := os.Stat(name)
		if err != nil {
			return fmt.Errorf("certificate files: %w", err)
		}
		stamps[i] = stamp{st.ModTime(), st.Size()}
	}
	if stamps == f.stamps {
		return nil
	}
	b, err := os.ReadFile(f.pairFile)
	if err != nil {
		return fmt.Errorf("certificate files: %w", err)
	}
	pair, err := tls.X509KeyPair(b, b)
	if err != nil {
		return fmt.Errorf("certificate file %s: %w", f.pairFile, err)
	}
	if b, err = os.ReadFile(f.bundleFile); err != nil {
		return fmt.Errorf("certificate files: %w", err)
	}
	cas, err := ParseBundle(b)
	if err != nil {
		return fmt.Errorf("%s: %w", f.bundleFile, err)
	}
	f.pair, f.bundle, f.stamps = &pair, PoolOf(cas), stamps
	return nil
}

// Current returns the key pair, the pool of CAs, and why the files on disk can't
// be used if they can't (the values are then the last good ones).
func (f *Files) Current() (*tls.Certificate, *x509.CertPool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.checked) > time.Second {
		f.checked, f.err = now, f.load()
	}
	return f.pair, f.bundle, f.err
}

// ServerConfig is for a listener with this identity. Client certificates are
// verified against the bundle; clientAuth says whether one is required. The pair
// and the bundle are taken anew for each connection.
func (f *Files) ServerConfig(clientAuth tls.ClientAuthType, nextProtos ...string) *tls.Config {
	base := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: nextProtos, ClientAuth: clientAuth,
		// A resumed session would bring back the client certificate of the first
		// handshake: an old region, or one that a new bundle no longer vouches for.
		SessionTicketsDisabled: true,
	}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, pool, _ := f.Current()
		c := base.Clone()
		c.GetConfigForClient = nil
		c.Certificates, c.ClientCAs = []tls.Certificate{*pair}, pool
		return c, nil
	}
	// Some servers insist on a certificate in the outer config.
	base.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, _, _ := f.Current()
		return pair, nil
	}
	return base
}

// ClientConfig is for connections to one host (a name or an address, without the
// port) with this identity. verify is asked whether the server's verified
// certificate is the right kind of peer; nil takes any that the bundle vouches
// for. The pair and the bundle are taken anew for each connection.
func (f *Files) ClientConfig(host string, verify func(*x509.Certificate) error) *tls.Config {
	return ClientConfig(host, f.Current, verify)
}

// ClientConfig is Files.ClientConfig for a pair and a bundle from elsewhere.
// current is asked for each connection; a nil pair sends no certificate, an error
// together with a pool is ignored.
func ClientConfig(host string, current func() (*tls.Certificate, *x509.CertPool, error), verify func(*x509.Certificate) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: host,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if pair, _, _ := current(); pair != nil {
				return pair, nil
			}
			return &tls.Certificate{}, nil
		},
		// The built-in verification takes its pool from RootCAs, which can't rotate;
		// so it is switched off and VerifyConnection does the same with today's pool.
		InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			_, pool, err := current()
			if pool == nil {
				return fmt.Errorf("no trust bundle to verify the server with: %w", err)
			}
			// Not cs.ServerName: it is empty for an address.
			return VerifyServer(cs.PeerCertificates, pool, host, time.Now(), verify)
		},
	}
}

// VerifyServer is what crypto/tls does for a client, for use in VerifyConnection
// with a pool that rotates: chain (leaf first), host, server-auth usage; then verify.
func VerifyServer(chain []*x509.Certificate, roots *x509.CertPool, host string, now time.Time, verify func(*x509.Certificate) error) error {
	if len(chain) == 0 {
		return errors.New("the server presented no certificate")
	}
	if host == "" {
		return errors.New("no host to verify the server's certificate for")
	}
	inter := x509.NewCertPool()
	for _, c := range chain[1:] {
		inter.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: inter, DNSName: host, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return fmt.Errorf("server certificate (this machine's clock says %s): %w", now.UTC().Format(time.RFC3339), err)
	}
	if verify == nil {
		return nil
	}
	return verify(chain[0])
}

// IsRegional is a verify function for ClientConfig: the peer is a regional.
func IsRegional(cert *x509.Certificate) error { _, err := ParseRegional(cert); return err }

// IsControl is a verify function for ClientConfig: the peer is control.
func IsControl(cert *x509.Certificate) error {
	id, err := Parse(cert)
	if err == nil && id.Kind != KindControl {
		err = fmt.Errorf("certificate of %s: want one of control", id)
	}
	return err
}

// SiteConfig is for either end of a connection between two sites. verify is asked whether
// the other end's verified certificate is of the right site. The pair and the bundle are
// taken anew for each connection; see ClientConfig for current.
func SiteConfig(current func() (*tls.Certificate, *x509.CertPool, error), verify func(fleet.SiteID) error) *tls.Config {
	own := func() (*tls.Certificate, error) {
		pair, _, err := current()
		if pair == nil {
			return nil, fmt.Errorf("no certificate of its own yet: %w", err)
		}
		return pair, nil
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true, // a resumed session would bring an old certificate back
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own() },
		GetClientCertificate:   func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own() },
		ClientAuth:             tls.RequireAnyClientCert,
		// A site's certificate is no server's and names no host: VerifyConnection checks it,
		// at both ends alike.
		InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			_, pool, err := current()
			if pool == nil {
				return fmt.Errorf("no trust bundle to verify the other site with: %w", err)
			}
			return verifySite(cs.PeerCertificates, pool, time.Now(), verify)
		},
	}
}

func verifySite(chain []*x509.Certificate, roots *x509.CertPool, now time.Time, verify func(fleet.SiteID) error) error {
	if len(chain) == 0 {
		return errors.New("the other site presented no certificate")
	}
	inter := x509.NewCertPool()
	for _, c := range chain[1:] {
		inter.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: inter, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return fmt.Errorf("certificate of the other site (this machine's clock says %s): %w", now.UTC().Format(time.RFC3339), err)
	}
	id, _, err := ParseSite(chain[0])
	if err != nil {
		return err
	}
	return verify(id)
}
