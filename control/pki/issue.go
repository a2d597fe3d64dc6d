package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
)

// MaxCSR is the largest certificate request, in bytes, that ParseCSR looks at.
const MaxCSR = 4096

// CSR is a certificate request that was checked. Only its key is used: whatever
// names it asks for, control decides what the certificate says.
type CSR struct {
	PublicKey crypto.PublicKey
	KeyHash   string // identity.KeyHash of it
}

// ParseCSR checks a PKCS#10 request in DER: its size, that the sender holds the
// key, and that the key is ECDSA P-256 or P-384, or Ed25519. The error is one line
// for the person at the machine.
func ParseCSR(der []byte) (CSR, error) {
	if len(der) == 0 {
		return CSR{}, errors.New("certificate request: empty")
	}
	if len(der) > MaxCSR {
		return CSR{}, fmt.Errorf("certificate request: %d bytes, want at most %d", len(der), MaxCSR)
	}
	req, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return CSR{}, fmt.Errorf("certificate request: %w", err)
	}
	switch k := req.PublicKey.(type) {
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() && k.Curve != elliptic.P384() {
			return CSR{}, fmt.Errorf("certificate request: an ECDSA key on %s; want P-256 or P-384", k.Curve.Params().Name)
		}
	case ed25519.PublicKey:
	default:
		return CSR{}, fmt.Errorf("certificate request: a %s key; want ECDSA P-256 or P-384, or Ed25519", req.PublicKeyAlgorithm)
	}
	if err := req.CheckSignature(); err != nil {
		return CSR{}, fmt.Errorf("certificate request: it is not signed by its own key: %w", err)
	}
	hash, err := identity.KeyHash(req.PublicKey)
	if err != nil {
		return CSR{}, fmt.Errorf("certificate request: %w", err)
	}
	return CSR{PublicKey: req.PublicKey, KeyHash: hash}, nil
}

// Issued is a certificate with its chain.
type Issued struct {
	CertPEM   []byte // leaf first, then the CAs
	BundlePEM []byte // CAs to trust
	Leaf      *x509.Certificate
}

// IssueSite signs a site's key, for client authentication only.
func (ca *CA) IssueSite(pub crypto.PublicKey, site fleet.SiteID, region string) (Issued, error) {
	if err := site.Validate(); err != nil {
		return Issued{}, err
	}
	if err := identity.ValidateRegion(region); err != nil {
		return Issued{}, fmt.Errorf("site %s: %w", site, err)
	}
	subject := pkix.Name{CommonName: site.Name, Organization: []string{site.Tenant}}
	if region != "" {
		subject.Locality = []string{region}
	}
	out, err := ca.issue(pub, leaf{
		subject: subject, uri: identity.SiteURI(ca.opts.TrustDomain, site), life: ca.opts.SiteLife,
		usage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return Issued{}, fmt.Errorf("issue certificate for site %s: %w", site, err)
	}
	return out, nil
}

// IssueRegional signs a regional's key: a server for its sites under the given
// names and addresses, a client of control.
func (ca *CA) IssueRegional(pub crypto.PublicKey, name string, hosts []string) (Issued, error) {
	if err := identity.ValidateRegional(name); err != nil {
		return Issued{}, err
	}
	return ca.issueServer(pub, "regional "+name, identity.RegionalURI(ca.opts.TrustDomain, name), pkix.Name{CommonName: name, OrganizationalUnit: []string{"regional"}}, hosts)
}

// IssueControl signs the key of the fleet API server.
func (ca *CA) IssueControl(pub crypto.PublicKey, hosts []string) (Issued, error) {
	return ca.issueServer(pub, "control", identity.ControlURI(ca.opts.TrustDomain), pkix.Name{CommonName: "control"}, hosts)
}

// IssueRole signs the key of another role, such as health: a server for the roles that
// call it, a client of those that it calls.
func (ca *CA) IssueRole(pub crypto.PublicKey, name string, hosts []string) (Issued, error) {
	if err := identity.ValidateRole(name); err != nil {
		return Issued{}, err
	}
	return ca.issueServer(pub, "role "+name, identity.RoleURI(ca.opts.TrustDomain, name), pkix.Name{CommonName: name, OrganizationalUnit: []string{"role"}}, hosts)
}

func (ca *CA) issueServer(pub crypto.PublicKey, what string, uri *url.URL, subject pkix.Name, hosts []string) (Issued, error) {
	l := leaf{subject: subject, uri: uri, life: ca.opts.ServerLife, usage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			l.ips = append(l.ips, ip)
		} else {
			l.dns = append(l.dns, h)
		}
	}
	out, err := ca.issue(pub, l)
	if err != nil {
		return Issued{}, fmt.Errorf("issue certificate for %s: %w", what, err)
	}
	return out, nil
}

type leaf struct {
	subject pkix.Name
	uri     *url.URL
	dns     []string
	ips     []net.IP
	life    time.Duration
	usage   []x509.ExtKeyUsage
}

func (ca *CA) issue(pub crypto.PublicKey, l leaf) (Issued, error) {
	sn, err := serial()
	if err != nil {
		return Issued{}, err
	}
	ca.mu.RLock()
	defer ca.mu.RUnlock()
	now := ca.opts.Now()
	tmpl := &x509.Certificate{
		SerialNumber: sn, Subject: l.subject, URIs: []*url.URL{l.uri}, DNSNames: l.dns, IPAddresses: l.ips,
		NotBefore: now.Add(-Backdate), NotAfter: now.Add(l.life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: l.usage, BasicConstraintsValid: true,
	}
	if tmpl.NotAfter.After(ca.active.cert.NotAfter) {
		tmpl.NotAfter = ca.active.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca.active.cert, pub, ca.active.key)
	if err != nil {
		return Issued{}, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return Issued{}, err
	}
	return Issued{CertPEM: certsPEM(append([]*x509.Certificate{cert}, ca.chain()...)), BundlePEM: ca.bundlePEM(), Leaf: cert}, nil
}

// Files that Ensure* keep in a directory, for identity.LoadFiles.
const (
	PairFile  = identity.PairFile  // chain and key, 0600
	TrustFile = identity.TrustFile // bundle
)

// EnsureRegional keeps the certificate of a regional in dir: it issues one, with a
// new key, when there is none, when a third or less of its life is left, when the
// names changed, or when the CA changed. It says whether it wrote. Call it at the
// start and every hour or so; identity.Files picks the change up.
func (ca *CA) EnsureRegional(dir, name string, hosts []string) (bool, error) {
	return ca.ensure(dir, hosts, identity.RegionalURI(ca.opts.TrustDomain, name), func(pub crypto.PublicKey) (Issued, error) {
		return ca.IssueRegional(pub, name, hosts)
	})
}

// EnsureControl is EnsureRegional for the fleet API server.
func (ca *CA) EnsureControl(dir string, hosts []string) (bool, error) {
	return ca.ensure(dir, hosts, identity.ControlURI(ca.opts.TrustDomain), func(pub crypto.PublicKey) (Issued, error) {
		return ca.IssueControl(pub, hosts)
	})
}

// EnsureRole is EnsureRegional for another role.
func (ca *CA) EnsureRole(dir, name string, hosts []string) (bool, error) {
	return ca.ensure(dir, hosts, identity.RoleURI(ca.opts.TrustDomain, name), func(pub crypto.PublicKey) (Issued, error) {
		return ca.IssueRole(pub, name, hosts)
	})
}

func (ca *CA) ensure(dir string, hosts []string, uri *url.URL, issue func(crypto.PublicKey) (Issued, error)) (bool, error) {
	if err := disk.MkdirAll(disk.OS{}, dir, 0o700); err != nil {
		return false, fmt.Errorf("keep certificate of %s: %w", uri.Path, err)
	}
	pair, trust := filepath.Join(dir, PairFile), filepath.Join(dir, TrustFile)
	bundle := ca.BundlePEM()
	if cur, err := os.ReadFile(trust); err != nil || !bytes.Equal(cur, bundle) {
		if err := atomicfile.Write(trust, bundle, 0o644); err != nil {
			return false, err
		}
	}
	if b, err := os.ReadFile(pair); err == nil && ca.stillGood(b, hosts, uri) {
		return false, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return false, fmt.Errorf("keep certificate of %s: %w", uri.Path, err)
	}
	out, err := issue(key.Public())
	if err != nil {
		return false, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return false, fmt.Errorf("keep certificate of %s: %w", uri.Path, err)
	}
	data := append(slices.Clip(out.CertPEM), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
	if err := atomicfile.Write(pair, data, 0o600); err != nil {
		return false, err
	}
	return true, nil
}

// stillGood tells whether what ensure wrote earlier need not be replaced.
func (ca *CA) stillGood(pairPEM []byte, hosts []string, uri *url.URL) bool {
	pair, err := tls.X509KeyPair(pairPEM, pairPEM)
	if err != nil {
		return false
	}
	c := pair.Leaf
	ca.mu.RLock()
	defer ca.mu.RUnlock()
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	want := make([]string, 0, len(hosts))
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			h = ip.String()
		}
		want = append(want, h)
	}
	slices.Sort(names)
	slices.Sort(want)
	life := c.NotAfter.Sub(c.NotBefore)
	return c.CheckSignatureFrom(ca.active.cert) == nil &&
		len(pair.Certificate) == 1+len(ca.chain()) &&
		ca.opts.Now().Before(c.NotAfter.Add(-life/3)) &&
		len(c.URIs) == 1 && c.URIs[0].String() == uri.String() &&
		slices.Equal(slices.Compact(names), slices.Compact(want))
}

// ParseSite reads a verified site certificate of this installation: the site and
// its region (may be empty).
func (ca *CA) ParseSite(cert *x509.Certificate) (fleet.SiteID, string, error) {
	id, err := identity.Parse(cert)
	if err != nil {
		return fleet.SiteID{}, "", err
	}
	if id.TrustDomain != ca.opts.TrustDomain {
		return fleet.SiteID{}, "", fmt.Errorf("certificate of %s: trust domain %q, want %q", id, id.TrustDomain, ca.opts.TrustDomain)
	}
	return identity.ParseSite(cert)
}
