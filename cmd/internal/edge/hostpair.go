package edge

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"muster.dev/muster/collector/cluster"
)

// hostServerName is who the host metrics of every node answer as: one certificate for all,
// since addresses of nodes come and go.
const hostServerName = "muster-edge-host"

// Life of the key pair, and when a new one is made. The pods on the nodes get it within
// about a minute, from the kubelet; until then their pages refuse.
const (
	pairLife  = 5 * 365 * 24 * time.Hour
	pairRenew = 365 * 24 * time.Hour
)

// hostPair is the one key pair, in a Secret, with which the nodes' host metrics and the
// agent's pod know each other: each shows the certificate and takes no other. The nodes'
// pods so need no certificate of the site, no token and no right in the API server.
type hostPair struct {
	secrets           corev1client.SecretInterface
	namespace, secret string
	names             []string // that the certificate is for
	log               *slog.Logger

	mu   sync.Mutex
	cert []byte
	key  []byte
}

func (p *hostPair) hosts() *cluster.Hosts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &cluster.Hosts{Namespace: p.namespace, ServerName: hostServerName, CertPEM: string(p.cert), KeyPEM: string(p.key)}
}

// run makes the pair, and a new one in time.
func (p *hostPair) run(ctx context.Context) error {
	for {
		cctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		err := p.ensure(cctx)
		cancel()
		wait := time.Hour
		if err != nil && ctx.Err() == nil {
			p.log.Warn("no key pair for the host metrics; trying again", "err", err)
			wait = 15 * time.Second
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

func (p *hostPair) ensure(ctx context.Context) error {
	got, err := p.secrets.Get(ctx, p.secret, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("the Secret %s/%s for the key pair of the host metrics: %w; apply the manifest again", p.namespace, p.secret, err)
	}
	cert, key := got.Data[corev1.TLSCertKey], got.Data[corev1.TLSPrivateKeyKey]
	if why := p.unfit(cert, key, time.Now()); why != "" {
		if cert, key, err = makePair(p.names, time.Now()); err != nil {
			return err
		}
		got.Data = map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key}
		if _, err := p.secrets.Update(ctx, got, metav1.UpdateOptions{FieldManager: "muster-edge"}); err != nil {
			return fmt.Errorf("keep a key pair for the host metrics in the Secret %s/%s: %w", p.namespace, p.secret, err)
		}
		p.log.Info("a key pair for the host metrics is made", "secret", p.namespace+"/"+p.secret, "because", why)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cert, p.key = cert, key
	return nil
}

// unfit says why a pair can't be used, or not for long.
func (p *hostPair) unfit(cert, key []byte, now time.Time) string {
	if len(cert) == 0 {
		return "there is none"
	}
	pair, err := tls.X509KeyPair(cert, key)
	switch {
	case err != nil:
		return err.Error()
	case pair.Leaf.NotAfter.Before(now.Add(pairRenew)):
		return "the old one ends on " + pair.Leaf.NotAfter.Format(time.DateOnly)
	case slices.ContainsFunc(p.names, func(n string) bool { return pair.Leaf.VerifyHostname(n) != nil }):
		return "the old one has other names"
	}
	return ""
}

func makePair(names []string, now time.Time) (cert, key []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, fmt.Errorf("make a serial number: %w", err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: names[0]}, DNSNames: names, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(pairLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, k.Public(), k)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	b, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b}), nil
}

// pinned is a server's TLS configuration that takes clients with its own certificate
// alone. load is asked for each connection: the pair rotates.
func pinned(load func() (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			own, err := load()
			if err != nil {
				return nil, err
			}
			return &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*own}, ClientAuth: tls.RequireAnyClientCert, NextProtos: []string{"h2", "http/1.1"},
				SessionTicketsDisabled: true, // a resumed session would skip the look at the certificate
				VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
					if len(raw) == 0 || !slices.Equal(raw[0], own.Certificate[0]) {
						return errors.New("this page is for the site's own muster-edge")
					}
					return nil
				},
			}, nil
		},
	}
}
