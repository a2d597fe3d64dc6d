package agent

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
)

// Files in the state directory, all 0600.
const (
	joinFile   = "join.json"
	keyFile    = "key.pem"
	certFile   = "cert.pem"
	bundleFile = "bundle.pem"
)

// KeyFile in the state directory is what makes a machine, or a cluster, the site that it
// is: whoever holds it gets a new certificate.
const KeyFile = keyFile

// IdentityFiles are the files of the state directory that a site must have again when
// its disk is gone, the key first: with how it joined, since the token may be gone too.
func IdentityFiles() []string { return []string{keyFile, certFile, bundleFile, joinFile} }

// JoinConfig is what a person tells a machine once.
type JoinConfig struct {
	// Servers are gateways, "https://host:port" or "host:port", the preferred one
	// first; later ones are for when it can't be reached.
	Servers []string `json:"servers"`
	Token   string   `json:"token"`
	CAHash  string   `json:"caHash"`
	// Site is the wanted name; empty: derived from the host name.
	Site string `json:"site,omitempty"`
}

// DefaultPort of a gateway.
const DefaultPort = "7443"

// normalise brings servers into the form host:port and names what can't be used.
func (j *JoinConfig) normalise() error {
	if len(j.Servers) == 0 {
		return errors.New("--server: give at least one, such as https://gateway.example.com:7443")
	}
	servers := make([]string, 0, len(j.Servers))
	for _, s := range j.Servers {
		h := s
		if u, err := url.Parse(s); err == nil && u.Scheme != "" && u.Host != "" {
			if u.Scheme != "https" || (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.User != nil {
				return fmt.Errorf("--server %q: want https://HOST:PORT", s)
			}
			h = u.Host
		}
		host, port, err := net.SplitHostPort(h)
		if err != nil {
			host, port = h, DefaultPort
			if len(host) > 1 && host[0] == '[' && host[len(host)-1] == ']' {
				host = host[1 : len(host)-1]
			}
			if _, _, err := net.SplitHostPort(net.JoinHostPort(host, port)); err != nil {
				return fmt.Errorf("--server %q: want https://HOST:PORT", s)
			}
		}
		if host == "" || port == "" {
			return fmt.Errorf("--server %q: want https://HOST:PORT", s)
		}
		servers = append(servers, net.JoinHostPort(host, port))
	}
	j.Servers = slices.Compact(servers)
	if j.Token == "" {
		return errors.New("--token: give the token that `muster token create` printed")
	}
	if err := identity.ValidateCAHash(j.CAHash); err != nil {
		return fmt.Errorf("--ca-hash: %w", err)
	}
	if j.Site != "" {
		if err := (fleet.SiteID{Tenant: "t", Name: j.Site}).Validate(); err != nil {
			return fmt.Errorf("--site: %w", err)
		}
	}
	return nil
}

// Joined returns what the machine was told; an error that is fs.ErrNotExist: nothing yet.
func Joined(dir string) (JoinConfig, error) {
	var j JoinConfig
	b, err := os.ReadFile(filepath.Join(dir, joinFile))
	if err == nil {
		err = json.Unmarshal(b, &j)
	}
	return j, err
}

// Join notes in dir how to reach the fleet; the machine's key, if it has one, is
// kept, so that a site can join again as itself. What j leaves empty stays as an
// earlier Join had it, and nothing is written that is there already: a full disk is no
// reason not to start. Run or Enrol does the rest.
func Join(dir string, j JoinConfig) error {
	old, err := Joined(dir)
	if err == nil && (j.CAHash == "" || j.CAHash == old.CAHash) { // the same fleet
		j.CAHash = old.CAHash
		if j.Token == "" {
			j.Token = old.Token
		}
		if j.Site == "" {
			j.Site = old.Site
		}
	}
	if err := j.normalise(); err != nil {
		return err
	}
	if err == nil && reflect.DeepEqual(j, old) {
		return nil
	}
	if err := disk.MkdirAll(disk.OS{}, dir, 0o700); err != nil {
		return fmt.Errorf("join: %w", err)
	}
	b, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	// Another CA: what the machine trusted before is of another fleet.
	if old, err := readBundle(dir); err == nil && !slices.ContainsFunc(old, func(c *x509.Certificate) bool { return identity.CAHash(c) == j.CAHash }) {
		for _, name := range []string{bundleFile, certFile} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("join: %w", err)
			}
		}
	}
	return atomicfile.Write(filepath.Join(dir, joinFile), b, 0o600)
}

func readBundle(dir string) ([]*x509.Certificate, error) {
	b, err := os.ReadFile(filepath.Join(dir, bundleFile))
	if err != nil {
		return nil, err
	}
	return identity.ParseBundle(b)
}

// load reads the directory; called by New.
func (a *Agent) load() error {
	dir := a.opts.Dir
	if err := disk.MkdirAll(disk.OS{}, dir, 0o700); err != nil {
		return fmt.Errorf("agent state: %w", err)
	}
	switch b, err := os.ReadFile(filepath.Join(dir, joinFile)); {
	case err == nil:
		if err := json.Unmarshal(b, &a.join); err != nil {
			return fmt.Errorf("agent state: %s: %w; join again", filepath.Join(dir, joinFile), err)
		}
		if err := a.join.normalise(); err != nil {
			return fmt.Errorf("agent state: %s: %w; join again", filepath.Join(dir, joinFile), err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("agent state: %w", err)
	}
	if err := a.loadKey(); err != nil {
		return err
	}
	switch cas, err := readBundle(dir); {
	case err == nil:
		a.bundle, a.pool = cas, identity.PoolOf(cas)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("agent state: %s: %w; remove the file and join again", filepath.Join(dir, bundleFile), err)
	}
	certPEM, err := os.ReadFile(filepath.Join(dir, certFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = a.useCertificate(certPEM)
	}
	if err != nil {
		// Not fatal: the key is there, so the site enrols again as itself.
		a.opts.Logger.Warn("the stored certificate can't be used; enrolling again", "err", err)
	}
	return nil
}

func (a *Agent) loadKey() error {
	name := filepath.Join(a.opts.Dir, keyFile)
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		keyPEM, _, err := NewKey()
		if err == nil {
			a.key, err = ParseKey(keyPEM)
		}
		if err != nil {
			return fmt.Errorf("agent state: %w", err)
		}
		return atomicfile.Write(name, keyPEM, 0o600)
	}
	if err != nil {
		return fmt.Errorf("agent state: %w", err)
	}
	const remedy = "restore it, or remove the directory and register the machine as another site"
	if a.key, err = ParseKey(b); err != nil {
		return fmt.Errorf("agent state: %s: %w; %s", name, err, remedy)
	}
	return nil
}

// useCertificate takes a chain in PEM, leaf first, into use. It must be this
// machine's key and a site's identity.
func (a *Agent) useCertificate(certPEM []byte) error {
	var chain [][]byte
	for rest := certPEM; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		chain = append(chain, block.Bytes)
	}
	if len(chain) == 0 {
		return errors.New("certificate: no PEM block in it")
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	hash, err := identity.KeyHash(a.key.Public())
	if err != nil {
		return err
	}
	if identity.CertKeyHash(leaf) != hash {
		return errors.New("certificate: it is for another key")
	}
	id, err := identity.Parse(leaf)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	if id.Kind != identity.KindSite {
		return fmt.Errorf("certificate: it is of %s, not of a site", id)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	// The CAs that came with the leaf are for the peer to find its own; a server
	// with the bundle needs only the leaf.
	a.cert, a.id = &tls.Certificate{Certificate: chain[:1], PrivateKey: a.key, Leaf: leaf}, id
	a.renewFrom = leaf.NotBefore
	a.metrics.notAfter.Set(float64(leaf.NotAfter.Unix()))
	select {
	case <-a.enrolled:
	default:
		close(a.enrolled)
	}
	return nil
}

// keep takes a new certificate and bundle into use and stores them, the bundle
// first: an old certificate works with a new bundle, not always the reverse.
func (a *Agent) keep(certPEM, bundlePEM []byte) error {
	cas, err := identity.ParseBundle(bundlePEM)
	if err != nil {
		return err
	}
	if err := a.useCertificate(certPEM); err != nil {
		return err
	}
	a.mu.Lock()
	a.bundle, a.pool = cas, identity.PoolOf(cas)
	a.renewFrom = a.opts.Now()
	a.mu.Unlock()
	if err := atomicfile.Write(filepath.Join(a.opts.Dir, bundleFile), bundlePEM, 0o600); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(a.opts.Dir, certFile), certPEM, 0o600)
}

func (a *Agent) csr() ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: a.join.Site}}, a.key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate request: %w", err)
	}
	return der, nil
}
