// Package factoryreset is what a site and control say to each other before a site is reset to
// how it was before it registered: the item that asks, the answer that the site signs, and
// the order that control signs. It does no I/O and keeps no time: control/fleetapi makes
// orders, control/agent/factoryreset follows them. The edge binary links it.
//
// Regionals and relays carry all of it and can neither make nor reuse any of it: an order
// names the site, the key that it has, the key that it will have and a nonce that the site
// made up and forgets, and only a certificate of control signs one.
package factoryreset

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
)

// Kind is the wire.Item kind of a Request; the item's name is Name.
const (
	Kind = "FactoryReset"
	Name = "request"
)

const (
	// MaxBytes of a Request, its order included.
	MaxBytes = 64 << 10
	// NonceBytes is how long a nonce is.
	NonceBytes = 32
	// NonceLife is how long a site honours a nonce, by a clock that nobody sets; then, or
	// when its process ends, it makes up another one.
	NonceLife = 10 * time.Minute
	maxChain  = 5
)

// Request asks one site.
type Request struct {
	ID   string       `json:"id"`
	Site fleet.SiteID `json:"site"`
	// Key is the hash of the key that the site has.
	Key string `json:"key"`
	// Order is what Sign made; absent until the site has answered.
	Order []byte `json:"order,omitempty"`
}

// Encode is deterministic.
func (r *Request) Encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and bytes alone
	}
	return b
}

// Decode reads a Request.
func Decode(b []byte) (*Request, error) {
	r := &Request{}
	if err := decode(b, r); err != nil {
		return nil, fmt.Errorf("request for a factory reset: %w", err)
	}
	if err := r.Site.Validate(); err != nil {
		return nil, fmt.Errorf("request for a factory reset: %w", err)
	}
	if r.ID == "" || r.Key == "" {
		return nil, errors.New("request for a factory reset: it has no id, or names no key")
	}
	return r, nil
}

func decode(b []byte, to any) error {
	if len(b) > MaxBytes {
		return fmt.Errorf("%d bytes, the limit is %d", len(b), MaxBytes)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something stands after the object")
	}
	return nil
}

// Answer is what a site signs with the key that it has.
type Answer struct {
	ID      string       `json:"id"`
	Site    fleet.SiteID `json:"site"`
	Key     string       `json:"key"`
	NextKey string       `json:"nextKey"` // hash of the key that it will come back with
	Nonce   []byte       `json:"nonce"`
}

// The words before what is signed: what was signed for one purpose is no good for another.
const (
	answerDomain = "muster factory reset: answer of a site\n"
	orderDomain  = "muster factory reset: order of control\n"
)

// Sign signs the answer.
func (a *Answer) Sign(key crypto.Signer) ([]byte, error) {
	return sign(key, message(answerDomain, a))
}

// Verify checks that whoever holds the key that the answer names signed it; publicKey is its
// DER SubjectPublicKeyInfo.
func (a *Answer) Verify(publicKey, signature []byte) error {
	pub, err := x509.ParsePKIXPublicKey(publicKey)
	if err != nil {
		return fmt.Errorf("public key: %w", err)
	}
	hash, err := identity.KeyHash(pub)
	if err != nil {
		return err
	}
	if hash != a.Key {
		return errors.New("it is signed with another key than the site's")
	}
	if len(a.Nonce) != NonceBytes {
		return fmt.Errorf("a nonce of %d bytes, want %d", len(a.Nonce), NonceBytes)
	}
	return verify(pub, message(answerDomain, a), signature)
}

// Order tells one site to reset itself, once.
type Order struct {
	ID      string       `json:"id"`
	Site    fleet.SiteID `json:"site"`
	Key     string       `json:"key"`
	NextKey string       `json:"nextKey"`
	Nonce   []byte       `json:"nonce"`
	// ValidFor counts from when the site made up the nonce, which was before control signed:
	// so an order is never good for longer than control meant, whatever clocks say.
	ValidFor time.Duration `json:"validFor"`
	// Drain has what was not sent yet be sent before.
	Drain bool `json:"drain,omitempty"`
}

type signed struct {
	Order     []byte   `json:"order"`
	Signature []byte   `json:"signature"`
	Chain     [][]byte `json:"chain"` // DER, the leaf first
}

// Sign signs the order with control's certificate.
func (o *Order) Sign(pair *tls.Certificate) ([]byte, error) {
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || len(pair.Certificate) == 0 {
		return nil, errors.New("sign an order: no certificate with a key")
	}
	body := message("", o)
	sig, err := sign(key, append([]byte(orderDomain), body...))
	if err != nil {
		return nil, fmt.Errorf("sign an order: %w", err)
	}
	return message("", &signed{Order: body, Signature: sig, Chain: pair.Certificate}), nil
}

// OpenOrder reads what Sign made and checks that it is control's; now is the machine's
// clock, which certificates are checked by and nothing else.
func OpenOrder(b []byte, roots *x509.CertPool, now time.Time) (*Order, error) {
	var s signed
	if err := decode(b, &s); err != nil {
		return nil, fmt.Errorf("order: %w", err)
	}
	if len(s.Chain) == 0 || len(s.Chain) > maxChain || roots == nil {
		return nil, fmt.Errorf("order: a chain of %d certificates, want 1 to %d, and a bundle to check them with", len(s.Chain), maxChain)
	}
	inter := x509.NewCertPool()
	var leaf *x509.Certificate
	for i, der := range s.Chain {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("order: certificate %d: %w", i+1, err)
		}
		if i == 0 {
			leaf = cert
		} else {
			inter.AddCert(cert)
		}
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: inter, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
		return nil, fmt.Errorf("order: %w", err)
	}
	if err := identity.IsControl(leaf); err != nil {
		return nil, fmt.Errorf("order: %w", err)
	}
	if err := verify(leaf.PublicKey, append([]byte(orderDomain), s.Order...), s.Signature); err != nil {
		return nil, fmt.Errorf("order: %w", err)
	}
	o := &Order{}
	if err := decode(s.Order, o); err != nil {
		return nil, fmt.Errorf("order: %w", err)
	}
	return o, nil
}

func message(domain string, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers and bytes alone
	}
	return append([]byte(domain), b...)
}

func sign(key crypto.Signer, message []byte) ([]byte, error) {
	if _, ok := key.Public().(ed25519.PublicKey); ok {
		return key.Sign(rand.Reader, message, crypto.Hash(0))
	}
	sum := sha256.Sum256(message)
	return key.Sign(rand.Reader, sum[:], crypto.SHA256)
}

func verify(pub any, message, signature []byte) error {
	ok := false
	switch k := pub.(type) {
	case *ecdsa.PublicKey:
		sum := sha256.Sum256(message)
		ok = ecdsa.VerifyASN1(k, sum[:], signature)
	case ed25519.PublicKey:
		ok = ed25519.Verify(k, message, signature)
	default:
		return fmt.Errorf("a key of type %T, want ECDSA or Ed25519", pub)
	}
	if !ok {
		return errors.New("the signature is wrong")
	}
	return nil
}
