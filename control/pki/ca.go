// Package pki is the fleet's certificate authority: it keeps the CA on disk, signs
// the certificates of sites, regionals and control, and hands out the trust
// bundle, which holds several CAs while one takes over from another.
//
// It decides nothing about who may have a certificate (control/registration does)
// and knows no Kubernetes. The control role and the CLI call it. What a
// certificate says is written and read by internal/identity.
package pki

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/identity"
)

// Files in the directory. Only ca.pem matters; bundle.pem is a public copy of the
// certificates that others may read.
const (
	caFile     = "ca.pem"
	bundleFile = "bundle.pem"
)

// Backdate is how long before its signing a certificate's life begins, for
// machines whose clock is a little slow.
const Backdate = 5 * time.Minute

// Options of Open; only Dir is required.
type Options struct {
	Dir         string // made if missing, 0700
	TrustDomain string // default muster.local
	// Lives of what is issued. Defaults: CA 10 years, site 24 h, server 30 days.
	CALife, SiteLife, ServerLife time.Duration
	Now                          func() time.Time
}

// CA signs for the fleet. Safe for concurrent use.
type CA struct {
	opts Options

	mu     sync.RWMutex
	active signer
	next   *signer             // prepared: trusted, does not sign yet
	old    []*x509.Certificate // trusted, sign no more
	cross  []*x509.Certificate // the active key, signed by an old CA
	seen   []byte              // the file that this is of, or that was refused since
}

type signer struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// Open loads the CA of a directory, or makes one if the directory has never held
// one. A directory that held one and is incomplete is an error that says what to
// do: making a new CA there would lock out every site.
func Open(o Options) (*CA, error) {
	if o.TrustDomain == "" {
		o.TrustDomain = identity.DefaultTrustDomain
	}
	if err := identity.ValidateTrustDomain(o.TrustDomain); err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.CALife = cmp.Or(max(o.CALife, 0), 10*365*24*time.Hour)
	o.SiteLife = cmp.Or(max(o.SiteLife, 0), 24*time.Hour)
	o.ServerLife = cmp.Or(max(o.ServerLife, 0), 30*24*time.Hour)
	if err := disk.MkdirAll(disk.OS{}, o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("fleet CA: %w", err)
	}
	ca := &CA{opts: o}
	name := filepath.Join(o.Dir, caFile)
	switch data, err := os.ReadFile(name); {
	case err == nil:
		ca.seen = data
		if err := ca.parse(data); err != nil {
			return nil, fmt.Errorf("fleet CA: %s: %w; restore the file from a backup, or remove %s to start a new fleet (every site must then join anew)", name, err, o.Dir)
		}
		if st, err := os.Stat(name); err == nil && st.Mode().Perm()&0o077 != 0 {
			return nil, fmt.Errorf("fleet CA: %s has mode %04o, others can read the key: chmod 600 it", name, st.Mode().Perm())
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("fleet CA: %w", err)
	default:
		if _, err := os.Stat(filepath.Join(o.Dir, bundleFile)); err == nil {
			return nil, fmt.Errorf("fleet CA: %s is half-written: it has %s but no %s; restore %s from a backup, or remove the directory to start a new fleet (every site must then join anew)",
				o.Dir, bundleFile, caFile, caFile)
		}
		s, err := ca.newSigner()
		if err != nil {
			return nil, err
		}
		ca.active = s
		if err := ca.save(); err != nil {
			return nil, err
		}
		return ca, nil
	}
	if err := atomicfile.Write(filepath.Join(o.Dir, bundleFile), ca.BundlePEM(), 0o644); err != nil {
		return nil, fmt.Errorf("fleet CA: %w", err)
	}
	if now := o.Now(); now.After(ca.active.cert.NotAfter) {
		return nil, fmt.Errorf("fleet CA: %s expired on %s, or this machine's clock is wrong", name, ca.active.cert.NotAfter.Format(time.DateOnly))
	}
	return ca, nil
}

func serial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	return n.Add(n, big.NewInt(1)), nil
}

func (ca *CA) newSigner() (signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return signer{}, fmt.Errorf("fleet CA: make a key: %w", err)
	}
	sn, err := serial()
	if err != nil {
		return signer{}, fmt.Errorf("fleet CA: %w", err)
	}
	now := ca.opts.Now()
	tmpl := &x509.Certificate{
		SerialNumber: sn,
		// CAs of one fleet differ in their names, so that chains are found by name.
		Subject:               pkix.Name{Organization: []string{"Muster"}, CommonName: fmt.Sprintf("Muster fleet CA %s %s", ca.opts.TrustDomain, hex.EncodeToString(sn.Bytes())[:8])},
		NotBefore:             now.Add(-Backdate),
		NotAfter:              now.Add(ca.opts.CALife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLen:            1, // room for the cross-signed CA of a take-over
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return signer{}, fmt.Errorf("fleet CA: sign itself: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return signer{}, fmt.Errorf("fleet CA: %w", err)
	}
	return signer{cert, key}, nil
}

// ca.pem: blocks with a header that says what each is for. One file, so that a
// crash leaves the whole of the old state or the whole of the new.
const (
	roleHeader = "Muster-Role"
	roleActive = "active"
	roleNext   = "next"
	roleOld    = "old"
	roleCross  = "cross"
)

func (ca *CA) parse(data []byte) error {
	var keys, certs = map[string]crypto.Signer{}, map[string]*x509.Certificate{}
	for len(data) > 0 {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		data = rest
		role := block.Headers[roleHeader]
		switch block.Type {
		case "PRIVATE KEY":
			k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return fmt.Errorf("%s key: %w", role, err)
			}
			s, ok := k.(crypto.Signer)
			if !ok {
				return fmt.Errorf("%s key: a %T can't sign", role, k)
			}
			keys[role] = s
		case "CERTIFICATE":
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return fmt.Errorf("%s certificate: %w", role, err)
			}
			switch role {
			case roleOld:
				ca.old = append(ca.old, c)
			case roleCross:
				ca.cross = append(ca.cross, c)
			default:
				certs[role] = c
			}
		default:
			return fmt.Errorf("a %q block", block.Type)
		}
	}
	take := func(role string) (*signer, error) {
		switch {
		case certs[role] == nil && keys[role] == nil:
			return nil, nil
		case certs[role] == nil:
			return nil, fmt.Errorf("the %s CA has a key but no certificate", role)
		case keys[role] == nil:
			return nil, fmt.Errorf("the %s CA has a certificate but no key", role)
		}
		if h, err := identity.KeyHash(keys[role].Public()); err != nil || h != identity.CertKeyHash(certs[role]) {
			return nil, fmt.Errorf("the %s CA's key and certificate don't belong together", role)
		}
		return &signer{certs[role], keys[role]}, nil
	}
	active, err := take(roleActive)
	if err != nil {
		return err
	}
	if active == nil {
		return errors.New("it is half-written: no active CA in it")
	}
	ca.active = *active
	ca.next, err = take(roleNext)
	return err
}

// save writes both files; the caller holds mu or is alone.
func (ca *CA) save() error {
	var out []byte
	put := func(role string, s signer) error {
		der, err := x509.MarshalPKCS8PrivateKey(s.key)
		if err != nil {
			return fmt.Errorf("fleet CA: %w", err)
		}
		h := map[string]string{roleHeader: role}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Headers: h, Bytes: der})...)
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: h, Bytes: s.cert.Raw})...)
		return nil
	}
	if err := put(roleActive, ca.active); err != nil {
		return err
	}
	if ca.next != nil {
		if err := put(roleNext, *ca.next); err != nil {
			return err
		}
	}
	for role, list := range map[string][]*x509.Certificate{roleOld: ca.old, roleCross: ca.cross} {
		for _, c := range list {
			out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{roleHeader: role}, Bytes: c.Raw})...)
		}
	}
	if err := atomicfile.Write(filepath.Join(ca.opts.Dir, caFile), out, 0o600); err != nil {
		return fmt.Errorf("fleet CA: %w", err)
	}
	ca.seen = out
	if err := atomicfile.Write(filepath.Join(ca.opts.Dir, bundleFile), ca.bundlePEM(), 0o644); err != nil {
		return fmt.Errorf("fleet CA: %w", err)
	}
	return nil
}

// Reload takes up what another process has made of the CA, and tells whether it did. A
// file that can't be used changes nothing, and is complained of once.
func (ca *CA) Reload() (bool, error) {
	name := filepath.Join(ca.opts.Dir, caFile)
	data, err := os.ReadFile(name)
	if err != nil {
		return false, fmt.Errorf("fleet CA: %w; going on with the one in memory", err)
	}
	ca.mu.Lock()
	defer ca.mu.Unlock()
	if bytes.Equal(data, ca.seen) {
		return false, nil
	}
	ca.seen = data
	fresh := &CA{opts: ca.opts}
	if err := fresh.parse(data); err != nil {
		return false, fmt.Errorf("fleet CA: %s: %w; going on with the one in memory; restore the file from a backup", name, err)
	}
	ca.active, ca.next, ca.old, ca.cross = fresh.active, fresh.next, fresh.old, fresh.cross
	return true, nil
}

// Prepared is when the CA that will take over was made, Activated when the active one
// took over; zero: there is none, or nothing is left of it.
func (ca *CA) Prepared() time.Time {
	ca.mu.RLock()
	defer ca.mu.RUnlock()
	if ca.next == nil {
		return time.Time{}
	}
	return ca.next.cert.NotBefore.Add(Backdate)
}

// Activated is described at Prepared.
func (ca *CA) Activated() time.Time {
	ca.mu.RLock()
	defer ca.mu.RUnlock()
	if len(ca.cross) == 0 {
		return time.Time{}
	}
	return ca.cross[0].NotBefore.Add(Backdate)
}

// TrustDomain is the authority of all identities that this CA signs.
func (ca *CA) TrustDomain() string { return ca.opts.TrustDomain }

// Hash is what a join command pins with --ca-hash.
func (ca *CA) Hash() string {
	ca.mu.RLock()
	defer ca.mu.RUnlock()
	return identity.CAHash(ca.active.cert)
}

// Bundle returns the CAs to trust: the active one first, then the prepared one,
// then older ones that have not expired.
func (ca *CA) Bundle() []*x509.Certificate {
	ca.mu.RLock()
	defer ca.mu.RUnlock()
	return ca.bundle()
}

func (ca *CA) bundle() []*x509.Certificate {
	out := []*x509.Certificate{ca.active.cert}
	if ca.next != nil {
		out = append(out, ca.next.cert)
	}
	for _, c := range ca.old {
		if c.NotAfter.After(ca.opts.Now()) {
			out = append(out, c)
		}
	}
	return out
}

// BundlePEM is Bundle in PEM.
func (ca *CA) BundlePEM() []byte {
	ca.mu.RLock()
	defer ca.mu.RUnlock()
	return ca.bundlePEM()
}

func (ca *CA) bundlePEM() []byte { return certsPEM(ca.bundle()) }

func certsPEM(certs []*x509.Certificate) []byte {
	var out []byte
	for _, c := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return out
}

// PrepareRollover makes the CA that will take over and puts it into the bundle.
// Sites and regionals learn of it when they renew; wait for at least one site
// life before ActivateRollover. With one prepared already it changes nothing.
func (ca *CA) PrepareRollover() error {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	if ca.next != nil {
		return nil
	}
	s, err := ca.newSigner()
	if err != nil {
		return err
	}
	ca.next = &s
	if err := ca.save(); err != nil {
		ca.next = nil
		return err
	}
	return nil
}

// ActivateRollover lets the prepared CA sign from now on. The one before stays
// trusted until RetireOld, and signs the new one across, so that a site which was
// away all the while still recognises its gateway.
func (ca *CA) ActivateRollover() error {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	if ca.next == nil {
		return errors.New("fleet CA: no CA is prepared to take over; run PrepareRollover first and wait until the sites have renewed")
	}
	sn, err := serial()
	if err != nil {
		return err
	}
	tmpl := *ca.next.cert
	tmpl.SerialNumber = sn
	tmpl.MaxPathLen, tmpl.MaxPathLenZero = 0, true
	tmpl.AuthorityKeyId = nil
	tmpl.NotBefore = ca.opts.Now().Add(-Backdate)
	if tmpl.NotAfter.After(ca.active.cert.NotAfter) {
		tmpl.NotAfter = ca.active.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, &tmpl, ca.active.cert, ca.next.key.Public(), ca.active.key)
	if err != nil {
		return fmt.Errorf("fleet CA: sign the new CA across: %w", err)
	}
	cross, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("fleet CA: %w", err)
	}
	active, next, old, crosses := ca.active, ca.next, ca.old, ca.cross
	ca.old = append([]*x509.Certificate{active.cert}, old...)
	ca.cross = []*x509.Certificate{cross}
	ca.active, ca.next = *next, nil
	if err := ca.save(); err != nil {
		ca.active, ca.next, ca.old, ca.cross = active, next, old, crosses
		return err
	}
	return nil
}

// RetireOld takes all CAs but the active and the prepared one out of the bundle.
// Certificates that they signed are refused from then on.
func (ca *CA) RetireOld() error {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	old, cross := ca.old, ca.cross
	ca.old, ca.cross = nil, nil
	if err := ca.save(); err != nil {
		ca.old, ca.cross = old, cross
		return err
	}
	return nil
}

// chain is what a server presents after its leaf: the active CA, the same key
// signed by the older CA, and that CA, so that a machine that knows only a hash
// or only the older CA finds what it knows. The caller holds mu.
func (ca *CA) chain() []*x509.Certificate {
	return slices.Concat([]*x509.Certificate{ca.active.cert}, ca.cross, ca.old)
}
