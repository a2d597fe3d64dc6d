package factoryreset

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
)

var paris = fleet.SiteID{Tenant: "acme", Name: "paris"}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// pair is a certificate of the CA for whom issue says.
func pair(t testing.TB, issue func(pub crypto.PublicKey) (pki.Issued, error)) *tls.Certificate {
	t.Helper()
	k := newKey(t)
	out, err := issue(k.Public())
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{out.Leaf.Raw}, PrivateKey: k}
}

func authority(t testing.TB) *pki.CA {
	t.Helper()
	ca, err := pki.Open(pki.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// Only a certificate of this fleet's control signs an order, and what it signed is what is read.
func TestOrdersOfControlAlone(t *testing.T) {
	ca, other := authority(t), authority(t)
	roots := identity.PoolOf(ca.Bundle())
	o := &Order{ID: "one", Site: paris, Key: "k", NextKey: "n", Nonce: []byte("nonce"), ValidFor: time.Minute, Drain: true}
	control := func(ca *pki.CA) *tls.Certificate {
		return pair(t, func(pub crypto.PublicKey) (pki.Issued, error) { return ca.IssueControl(pub, nil) })
	}
	good, err := o.Sign(control(ca))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := OpenOrder(good, roots, time.Now()); err != nil || got.ID != "one" || got.Site != paris || got.ValidFor != time.Minute || !got.Drain || string(got.Nonce) != "nonce" {
		t.Fatalf("%+v %v", got, err)
	}
	for name, p := range map[string]*tls.Certificate{
		"another fleet's control": control(other),
		"a regional":              pair(t, func(pub crypto.PublicKey) (pki.Issued, error) { return ca.IssueRegional(pub, "eu-1", nil) }),
		"another role":            pair(t, func(pub crypto.PublicKey) (pki.Issued, error) { return ca.IssueRole(pub, "health", nil) }),
		"the site itself":         pair(t, func(pub crypto.PublicKey) (pki.Issued, error) { return ca.IssueSite(pub, paris, "") }),
	} {
		b, err := o.Sign(p)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := OpenOrder(b, roots, time.Now()); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if _, err := OpenOrder(good, roots, time.Now().Add(100*365*24*time.Hour)); err == nil {
		t.Error("by a certificate that is over")
	}
	if _, err := OpenOrder(good, nil, time.Now()); err == nil {
		t.Error("without a bundle")
	}
	// One byte anywhere is another order, or none.
	for i := range good {
		b := []byte(string(good))
		b[i] ^= 1
		if got, err := OpenOrder(b, roots, time.Now()); err == nil && (got.ID != o.ID || got.Site != o.Site || got.NextKey != o.NextKey || string(got.Nonce) != string(o.Nonce) || got.ValidFor != o.ValidFor) {
			t.Fatalf("byte %d: %+v", i, got)
		}
	}
}

// An answer is the word of the key that it names, and of nothing else that the key signs.
func TestAnswersOfTheSiteAlone(t *testing.T) {
	key, thief := newKey(t), newKey(t)
	hash, err := identity.KeyHash(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	pub := func(k *ecdsa.PrivateKey) []byte {
		der, err := x509.MarshalPKIXPublicKey(k.Public())
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	a := Answer{ID: "one", Site: paris, Key: hash, NextKey: "n", Nonce: make([]byte, NonceBytes)}
	sig, err := a.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Verify(pub(key), sig); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Answer){
		"id": func(a *Answer) { a.ID = "two" }, "site": func(a *Answer) { a.Site.Name = "rome" }, "next key": func(a *Answer) { a.NextKey = "m" },
		"nonce": func(a *Answer) { a.Nonce = append([]byte{1}, make([]byte, NonceBytes-1)...) }, "short nonce": func(a *Answer) { a.Nonce = nil },
	} {
		b := a
		change(&b)
		if b.Verify(pub(key), sig) == nil {
			t.Errorf("another %s", name)
		}
	}
	forged, err := a.Sign(thief)
	if err != nil {
		t.Fatal(err)
	}
	if a.Verify(pub(thief), forged) == nil || a.Verify(pub(key), forged) == nil || a.Verify([]byte("x"), sig) == nil {
		t.Error("with another key")
	}
	if bare, err := sign(key, message("", &a)); err != nil || a.Verify(pub(key), bare) == nil {
		t.Error("what was signed for another purpose")
	}
}

func TestDecode(t *testing.T) {
	r := &Request{ID: "one", Site: paris, Key: "k", Order: []byte("o")}
	if got, err := Decode(r.Encode()); err != nil || got.ID != r.ID || got.Site != paris || string(got.Order) != "o" {
		t.Errorf("%+v %v", got, err)
	}
	for in, want := range map[string]string{
		"": "EOF", "{}": "tenant name", `{"id":"a","site":{"Tenant":"acme","Name":"paris"}}`: "names no key", `{"x":1}`: "unknown field",
		string(r.Encode()) + "1":            "something stands after",
		strings.Repeat(" ", MaxBytes) + "1": "the limit is",
	} {
		if _, err := Decode([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", in, err, want)
		}
	}
}

func FuzzOpenOrder(f *testing.F) {
	ca := authority(f)
	roots := identity.PoolOf(ca.Bundle())
	good, err := (&Order{ID: "one", Site: paris, Nonce: []byte("n")}).Sign(pair(f, func(pub crypto.PublicKey) (pki.Issued, error) { return ca.IssueControl(pub, nil) }))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"order":"e30=","signature":"","chain":[""]}`))
	f.Add((&Request{ID: "one", Site: paris, Key: "k"}).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if o, err := OpenOrder(b, roots, time.Now()); err == nil && (o.ID != "one" || o.Site != paris) {
			t.Fatalf("%+v", o)
		}
		if r, err := Decode(b); err == nil && (r.ID == "" || r.Key == "" || r.Site.Validate() != nil) {
			t.Fatalf("%+v", r)
		}
	})
}
