package cortex

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"path/filepath"
	"time"

	upstream "github.com/cortexproject/cortex/pkg/cortex"
	"github.com/cortexproject/cortex/pkg/util/tls"

	"muster.dev/muster/internal/atomicfile"
)

// partsName is whom Cortex' parts expect at each other's listener.
const partsName = "parts.cortex.invalid"

// closeParts keeps the listener over which Cortex' parts talk to each other to this
// process: each end wants a certificate of whose key there is one copy, made at each
// start. Without it whoever shares the machine could push and query as any tenant.
func closeParts(cfg *upstream.Config, dataDir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("certificate of the parts: %w", err)
	}
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: partsName}, DNSNames: []string{partsName},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(20, 0, 0), // it ends with the process
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return fmt.Errorf("certificate of the parts: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("certificate of the parts: %w", err)
	}
	file, cert := filepath.Join(dataDir, "parts.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := atomicfile.Write(file, append(cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})...), 0o600); err != nil {
		return fmt.Errorf("certificate of the parts: %w", err)
	}
	s := &cfg.Server.GRPCTLSConfig
	s.TLSCertPath, s.TLSKeyPath, s.ClientCAs, s.ClientAuth = file, file, file, "RequireAndVerifyClientCert"

	ingesters, store := &cfg.IngesterClient.GRPCClientConfig, &cfg.Querier.StoreGatewayClient
	ingesters.TLSEnabled, store.TLSEnabled = true, true
	for _, c := range []*tls.ClientConfig{&ingesters.TLS, &store.TLS} {
		c.CertPath, c.KeyPath, c.CAPath, c.ServerName = file, file, file, partsName
	}
	return nil
}
