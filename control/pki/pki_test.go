package pki_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
)

var paris = fleet.SiteID{Tenant: "acme", Name: "paris-07"}

func newKey(t testing.TB) crypto.Signer {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func open(t testing.TB, dir string) *pki.CA {
	t.Helper()
	ca, err := pki.Open(pki.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func TestCASurvivesARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "control", "pki")
	first := open(t, dir)
	if st, _ := os.Stat(filepath.Join(dir, "ca.pem")); st.Mode().Perm() != 0o600 {
		t.Errorf("ca.pem has mode %o", st.Mode().Perm())
	}
	if second := open(t, dir); first.Hash() != second.Hash() {
		t.Errorf("hash changed from %s to %s", first.Hash(), second.Hash())
	}
}

func TestHalfWrittenDirectoryIsOneClearLine(t *testing.T) {
	full := filepath.Join(t.TempDir(), "pki")
	open(t, full)
	good, _ := os.ReadFile(filepath.Join(full, "ca.pem"))
	other := filepath.Join(t.TempDir(), "pki")
	open(t, other)
	foreign, _ := os.ReadFile(filepath.Join(other, "ca.pem"))
	cut := strings.Index(string(good), "-----BEGIN CERTIFICATE")
	cutForeign := strings.Index(string(foreign), "-----BEGIN CERTIFICATE")
	for name, tc := range map[string]struct {
		data   []byte // nil: no file
		mode   os.FileMode
		expect string
	}{
		"no CA":            {nil, 0, "half-written"},
		"empty":            {[]byte{}, 0o600, "half-written"},
		"key alone":        {good[:cut], 0o600, "key but no certificate"},
		"certificate only": {good[cut:], 0o600, "certificate but no key"},
		"another's key":    {append(foreign[:cutForeign:cutForeign], good[cut:]...), 0o600, "don't belong together"},
		"readable by all":  {good, 0o644, "chmod 600"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "bundle.pem"), []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
			if tc.data != nil {
				if err := os.WriteFile(filepath.Join(dir, "ca.pem"), tc.data, tc.mode); err != nil {
					t.Fatal(err)
				}
			}
			_, err := pki.Open(pki.Options{Dir: dir})
			if err == nil || !strings.Contains(err.Error(), tc.expect) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), dir) {
				t.Errorf("error %v, want one line with %q and the directory", err, tc.expect)
			}
		})
	}
}

func TestSiteCertificateSaysWhoAndWhere(t *testing.T) {
	ca := open(t, t.TempDir())
	key := newKey(t)
	out, err := ca.IssueSite(key.Public(), paris, "eu-west")
	if err != nil {
		t.Fatal(err)
	}
	site, region, err := ca.ParseSite(out.Leaf)
	if err != nil || site != paris || region != "eu-west" {
		t.Errorf("ParseSite = %v, %q, %v", site, region, err)
	}
	if got := out.Leaf.URIs[0].String(); got != "spiffe://muster.local/tenant/acme/site/paris-07" {
		t.Errorf("URI %s", got)
	}
	if out.Leaf.Subject.CommonName != "paris-07" || out.Leaf.Subject.Organization[0] != "acme" {
		t.Errorf("subject %s", out.Leaf.Subject)
	}
	if life := out.Leaf.NotAfter.Sub(out.Leaf.NotBefore); life != 24*time.Hour+pki.Backdate {
		t.Errorf("life %s", life)
	}
	roots := identity.PoolOf(ca.Bundle())
	if _, err := out.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	// A site must never pass for a server.
	if _, err := out.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("a site's certificate verifies as a server's")
	}
	if _, err := identity.ParseRegional(out.Leaf); err == nil {
		t.Error("a site passes for a regional")
	}
	other, err := pki.Open(pki.Options{Dir: t.TempDir(), TrustDomain: "other.example"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := other.ParseSite(out.Leaf); err == nil {
		t.Error("another trust domain's site accepted")
	}
	for _, bad := range []fleet.SiteID{{Tenant: "acme", Name: "../x"}, {Tenant: "", Name: "x"}} {
		if _, err := ca.IssueSite(key.Public(), bad, ""); err == nil {
			t.Errorf("issued for %q", bad)
		}
	}
	if _, err := ca.IssueSite(key.Public(), paris, "eu west\n"); err == nil {
		t.Error("issued for a region that is no label value")
	}
}

func csr(t testing.TB, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "whatever"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestParseCSR(t *testing.T) {
	p384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	p224, _ := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	_, ed, _ := ed25519.GenerateKey(rand.Reader)
	rsaKey, _ := rsa.GenerateKey(rand.Reader, 2048)
	for name, key := range map[string]crypto.Signer{"P-256": newKey(t), "P-384": p384, "Ed25519": ed} {
		c, err := pki.ParseCSR(csr(t, key))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want, _ := identity.KeyHash(key.Public()); c.KeyHash != want {
			t.Errorf("%s: hash %s, want %s", name, c.KeyHash, want)
		}
	}
	good := csr(t, newKey(t))
	forged := append([]byte(nil), good...)
	forged[len(forged)-1] ^= 1
	for name, der := range map[string][]byte{"P-224": csr(t, p224), "RSA": csr(t, rsaKey), "empty": nil, "garbage": []byte("garbage"),
		"forged signature": forged, "too long": append(good, make([]byte, pki.MaxCSR)...), "trailing": append(good[:len(good):len(good)], 0)} {
		if _, err := pki.ParseCSR(der); err == nil {
			t.Errorf("%s accepted", name)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than one line: %v", name, err)
		}
	}
}

func FuzzParseCSR(f *testing.F) {
	f.Add(csr(f, newKey(f)))
	f.Fuzz(func(t *testing.T, der []byte) {
		if c, err := pki.ParseCSR(der); err == nil && (c.PublicKey == nil || len(c.KeyHash) != 64) {
			t.Errorf("accepted without a key: %+v", c)
		}
	})
}

// handshake lets a client with this config shake hands with a server of the files.
func handshake(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	srv := tls.Server(a, server)
	served := make(chan error, 1)
	go func() {
		err := srv.Handshake()
		if err != nil {
			a.Close()
		}
		served <- err
	}()
	cli := tls.Client(b, client)
	if err := cli.Handshake(); err != nil {
		b.Close()
		<-served
		return tls.ConnectionState{}, err
	}
	if err := <-served; err != nil {
		return tls.ConnectionState{}, err
	}
	return srv.ConnectionState(), nil
}

func TestFilesRotateWithoutARestart(t *testing.T) {
	now := time.Now()
	ca, err := pki.Open(pki.Options{Dir: t.TempDir(), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	dir, hosts := t.TempDir(), []string{"gw.example", "127.0.0.1"}
	if wrote, err := ca.EnsureRegional(dir, "eu-1", hosts); err != nil || !wrote {
		t.Fatalf("first Ensure: %v, %v", wrote, err)
	}
	if wrote, err := ca.EnsureRegional(dir, "eu-1", hosts); err != nil || wrote {
		t.Fatalf("second Ensure: %v, %v", wrote, err)
	}
	files, err := identity.LoadFiles(filepath.Join(dir, pki.PairFile), filepath.Join(dir, pki.TrustFile))
	if err != nil {
		t.Fatal(err)
	}
	server, client := files.ServerConfig(tls.VerifyClientCertIfGiven), files.ClientConfig("gw.example", identity.IsRegional)
	cs, err := handshake(t, server, client)
	if err != nil {
		t.Fatal(err)
	}
	if name, err := identity.ParseRegional(cs.PeerCertificates[0]); err != nil || name != "eu-1" {
		t.Errorf("peer %q, %v", name, err)
	}
	if _, err := handshake(t, server, files.ClientConfig("gw.example", identity.IsControl)); err == nil {
		t.Error("a regional passed for control")
	}
	if _, err := handshake(t, server, files.ClientConfig("127.0.0.1", identity.IsRegional)); err != nil {
		t.Errorf("by address: %v", err)
	}
	if _, err := handshake(t, server, files.ClientConfig("evil.example", identity.IsRegional)); err == nil {
		t.Error("a server of another name accepted")
	}
	for what, change := range map[string]func() error{
		"names": func() error { hosts = append(hosts, "new.example"); return nil },
		"age":   func() error { now = now.Add(25 * 24 * time.Hour); return nil },
		"CA": func() error {
			if err := ca.PrepareRollover(); err != nil {
				return err
			}
			return ca.ActivateRollover()
		},
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if wrote, err := ca.EnsureRegional(dir, "eu-1", hosts); err != nil || !wrote {
			t.Errorf("after a change of %s: wrote %v, %v", what, wrote, err)
		}
		if wrote, _ := ca.EnsureRegional(dir, "eu-1", hosts); wrote {
			t.Errorf("after a change of %s: Ensure is not idempotent", what)
		}
	}
}

// TestRollover walks a fleet from one CA to the next; at no step is anyone locked out
// who may come in.
func TestRollover(t *testing.T) {
	dir := t.TempDir()
	ca := open(t, dir)
	oldHash, oldBundle := ca.Hash(), ca.Bundle()
	siteKey := newKey(t)
	oldSite, err := ca.IssueSite(siteKey.Public(), paris, "eu")
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.ActivateRollover(); err == nil {
		t.Fatal("activated without a prepared CA")
	}
	if err := ca.PrepareRollover(); err != nil {
		t.Fatal(err)
	}
	if len(ca.Bundle()) != 2 || ca.Hash() != oldHash {
		t.Fatalf("prepared: %d CAs, hash %s", len(ca.Bundle()), ca.Hash())
	}
	ca = open(t, dir) // the prepared CA survives a restart
	if err := ca.ActivateRollover(); err != nil {
		t.Fatal(err)
	}
	ca = open(t, dir)
	if ca.Hash() == oldHash || len(ca.Bundle()) != 2 {
		t.Fatalf("activated: %d CAs, same hash %v", len(ca.Bundle()), ca.Hash() == oldHash)
	}
	verify := func(c *x509.Certificate, roots []*x509.Certificate, inter []*x509.Certificate, usage x509.ExtKeyUsage) error {
		_, err := c.Verify(x509.VerifyOptions{Roots: identity.PoolOf(roots), Intermediates: identity.PoolOf(inter), KeyUsages: []x509.ExtKeyUsage{usage}})
		return err
	}
	if err := verify(oldSite.Leaf, ca.Bundle(), nil, x509.ExtKeyUsageClientAuth); err != nil {
		t.Errorf("a site with its old certificate is refused: %v", err)
	}
	gw, err := ca.IssueRegional(newKey(t).Public(), "eu-1", []string{"gw.example"})
	if err != nil {
		t.Fatal(err)
	}
	chain := parseAll(t, gw.CertPEM)
	if err := verify(chain[0], oldBundle, chain[1:], x509.ExtKeyUsageServerAuth); err != nil {
		t.Errorf("a site that was away through the rollover can't recognise the gateway: %v", err)
	}
	for name, hash := range map[string]string{"old": oldHash, "new": ca.Hash()} {
		if _, err := identity.VerifyPinned(chain, hash, "gw.example", time.Now()); err != nil {
			t.Errorf("join with the %s hash: %v", name, err)
		}
	}
	if err := ca.RetireOld(); err != nil {
		t.Fatal(err)
	}
	if err := verify(oldSite.Leaf, ca.Bundle(), nil, x509.ExtKeyUsageClientAuth); err == nil {
		t.Error("a certificate of the retired CA is still good")
	}
}

func parseAll(t *testing.T, b []byte) []*x509.Certificate {
	t.Helper()
	var out []*x509.Certificate
	for {
		block, rest := pem.Decode(b)
		if block == nil {
			return out
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		out, b = append(out, c), rest
	}
}

func TestVerifyPinnedRefusesImpostors(t *testing.T) {
	ca, evil := open(t, t.TempDir()), open(t, t.TempDir())
	issue := func(ca *pki.CA) []*x509.Certificate {
		out, err := ca.IssueRegional(newKey(t).Public(), "eu-1", []string{"gw.example"})
		if err != nil {
			t.Fatal(err)
		}
		return parseAll(t, out.CertPEM)
	}
	good, bad := issue(ca), issue(evil)
	siteOut, err := ca.IssueSite(newKey(t).Public(), paris, "")
	if err != nil {
		t.Fatal(err)
	}
	site := parseAll(t, siteOut.CertPEM)
	for name, tc := range map[string]struct {
		chain []*x509.Certificate
		host  string
		now   time.Time
	}{
		"another CA":                     {bad, "gw.example", time.Now()},
		"another CA that shows the real": {append(bad[:1:1], good[1:]...), "gw.example", time.Now()},
		"a site of the fleet":            {site, "paris-07", time.Now()},
		"another name":                   {good, "evil.example", time.Now()},
		"no chain":                       {nil, "gw.example", time.Now()},
		"leaf alone":                     {good[:1], "gw.example", time.Now()},
		"expired":                        {good, "gw.example", time.Now().Add(40 * 24 * time.Hour)},
	} {
		if _, err := identity.VerifyPinned(tc.chain, ca.Hash(), tc.host, tc.now); err == nil {
			t.Errorf("%s accepted", name)
		}
	}
	if _, err := identity.VerifyPinned(good, ca.Hash(), "gw.example", time.Now()); err != nil {
		t.Error(err)
	}
}

// A running CA takes up what `muster ca` does to its files, and bears what is no CA.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	open := func() *pki.CA {
		ca, err := pki.Open(pki.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return ca
	}
	running := open()
	reload := func(want bool) {
		t.Helper()
		if changed, err := running.Reload(); err != nil || changed != want {
			t.Fatalf("changed %v, %v", changed, err)
		}
	}
	reload(false)
	first := running.Hash()
	began := time.Now().Add(-time.Second)
	for i, step := range []func(*pki.CA) error{(*pki.CA).PrepareRollover, (*pki.CA).ActivateRollover, (*pki.CA).RetireOld} {
		cli := open()
		if err := step(cli); err != nil {
			t.Fatal(err)
		}
		reload(true)
		reload(false)
		if running.Hash() != cli.Hash() || string(running.BundlePEM()) != string(cli.BundlePEM()) {
			t.Errorf("after step %d it is another CA", i)
		}
		if got := !running.Prepared().Before(began); got != (i == 0) {
			t.Errorf("after step %d: prepared %s", i, running.Prepared())
		}
		if got := !running.Activated().Before(began); got != (i == 1) {
			t.Errorf("after step %d: activated %s", i, running.Activated())
		}
	}
	if running.Hash() == first {
		t.Error("the CA is still the first")
	}
	second := running.Hash()
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if changed, err := running.Reload(); err == nil || changed || !strings.Contains(err.Error(), "going on with the one in memory") {
		t.Errorf("a damaged file: %v, %v", changed, err)
	}
	reload(false) // it was said
	if _, err := running.IssueSite(newKey(t).Public(), paris, ""); err != nil || running.Hash() != second {
		t.Errorf("after a damaged file: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "ca.pem")); err != nil {
		t.Fatal(err)
	}
	if changed, err := running.Reload(); err == nil || changed {
		t.Errorf("a missing file: %v, %v", changed, err)
	}
}
