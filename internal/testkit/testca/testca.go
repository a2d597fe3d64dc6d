// Package testca is a CA of a fleet for tests of whoever checks certificates: what it
// signs may be as wrong as a test wants, which control/pki never is.
package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
)

// CA signs for five days around now.
type CA struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes a CA.
func New(t testing.TB) *CA {
	t.Helper()
	key := newKey(t)
	tmpl := &x509.Certificate{SerialNumber: serial(t), Subject: pkix.Name{CommonName: "fleet CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(72 * time.Hour), KeyUsage: x509.KeyUsageCertSign}
	ca := &CA{Cert: tmpl, key: key}
	ca.Cert = ca.sign(t, tmpl, key.Public())
	return ca
}

// Pool trusts the CA.
func (ca *CA) Pool() *x509.CertPool { return identity.PoolOf([]*x509.Certificate{ca.Cert}) }

// Sign returns a certificate for a key: of a client and of a server on this machine, for
// a day, unless change makes it something else.
func (ca *CA) Sign(t testing.TB, pub any, change func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	tmpl := &x509.Certificate{SerialNumber: serial(t), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	change(tmpl)
	return ca.sign(t, tmpl, pub)
}

// Issue is Sign for a key of its own.
func (ca *CA) Issue(t testing.TB, change func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	key := newKey(t)
	leaf := ca.Sign(t, key.Public(), change)
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// Site is a site's certificate; its region may be empty.
func (ca *CA) Site(t testing.TB, id fleet.SiteID, region string, change ...func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	return ca.Issue(t, func(c *x509.Certificate) {
		c.URIs = []*url.URL{identity.SiteURI(identity.DefaultTrustDomain, id)}
		c.ExtKeyUsage, c.IPAddresses = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, nil
		c.Subject = pkix.Name{CommonName: id.Name, Organization: []string{id.Tenant}}
		if region != "" {
			c.Subject.Locality = []string{region}
		}
		for _, f := range change {
			f(c)
		}
	})
}

// Regional is a regional's certificate.
func (ca *CA) Regional(t testing.TB, name string) *tls.Certificate {
	t.Helper()
	return ca.Issue(t, func(c *x509.Certificate) {
		c.URIs = []*url.URL{identity.RegionalURI(identity.DefaultTrustDomain, name)}
	})
}

func (ca *CA) sign(t testing.TB, tmpl *x509.Certificate, pub any) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca.Cert, pub, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		t.Fatal(err)
	}
	return n.Add(n, big.NewInt(1))
}
