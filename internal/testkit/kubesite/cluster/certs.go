package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"path/filepath"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// authority is the cluster's CA. What it signs is good for a year and kept, so that a cluster
// that is started again knows its clients.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

func openAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir}
	err := a.load("ca", func(key crypto.Signer) (*x509.Certificate, error) {
		return certutil.NewSelfSignedCACert(certutil.Config{CommonName: "kubesite"}, key)
	}, &a.cert, &a.key)
	return a, err
}

func (a *authority) certFile(name string) string { return filepath.Join(a.dir, name+".crt") }
func (a *authority) keyFile(name string) string  { return filepath.Join(a.dir, name+".key") }

// issue makes a certificate for a client and, with addresses, for a server.
func (a *authority) issue(name, user string, groups, addresses []string) error {
	var cert *x509.Certificate
	var key crypto.Signer
	return a.load(name, func(key crypto.Signer) (*x509.Certificate, error) {
		serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
		if err != nil {
			return nil, err
		}
		tmpl := &x509.Certificate{SerialNumber: serial.Add(serial, big.NewInt(1)), Subject: pkix.Name{CommonName: user, Organization: groups},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0), KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		for _, addr := range addresses {
			if ip := net.ParseIP(addr); ip != nil {
				tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
			} else {
				tmpl.DNSNames = append(tmpl.DNSNames, addr)
			}
			tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
		}
		der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key)
		if err != nil {
			return nil, err
		}
		return x509.ParseCertificate(der)
	}, &cert, &key)
}

// load reads a pair, or makes it.
func (a *authority) load(name string, make func(crypto.Signer) (*x509.Certificate, error), cert **x509.Certificate, key *crypto.Signer) error {
	certs, err := certutil.CertsFromFile(a.certFile(name))
	if err == nil {
		k, err := keyutil.PrivateKeyFromFile(a.keyFile(name))
		if err != nil {
			return err
		}
		*cert, *key = certs[0], k.(crypto.Signer)
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	c, err := make(k)
	if err != nil {
		return err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(k)
	if err != nil {
		return err
	}
	if err := keyutil.WriteKey(a.keyFile(name), keyPEM); err != nil {
		return err
	}
	*cert, *key = c, k
	return certutil.WriteCert(a.certFile(name), certPEM(c))
}

func certPEM(c *x509.Certificate) []byte {
	b, err := certutil.EncodeCertificates(c)
	if err != nil {
		panic(err) // only for a writer that fails
	}
	return b
}
