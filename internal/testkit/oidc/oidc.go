// Package oidc is a small OpenID Connect issuer for tests of whoever checks ID
// tokens: discovery and keys over HTTPS, tokens with whatever users and groups a test
// wants, answers of the token endpoint that a real provider gives in bad hours only, and
// the ways to log out that dex lacks. It has no login page; flows of browsers want a real
// provider.
package oidc

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"
)

// ClientID is the audience of the tokens.
const ClientID = "muster"

// Issuer signs tokens until Close.
type Issuer struct {
	URL string
	srv *httptest.Server
	key *rsa.PrivateKey

	mu      sync.Mutex
	token   http.HandlerFunc
	revoke  http.HandlerFunc // nil: not offered
	endPath string           // "": not offered
}

// OnToken has f answer at the token endpoint from now on.
func (i *Issuer) OnToken(f http.HandlerFunc) { i.mu.Lock(); defer i.mu.Unlock(); i.token = f }

// OnRevoke offers revocation, before discovery, and has f answer there.
func (i *Issuer) OnRevoke(f http.HandlerFunc) { i.mu.Lock(); defer i.mu.Unlock(); i.revoke = f }

// OfferEndSession names a page that ends sessions, before discovery.
func (i *Issuer) OfferEndSession(path string) { i.mu.Lock(); defer i.mu.Unlock(); i.endPath = path }

// CAPEM is the CA of the issuer's certificate.
func (i *Issuer) CAPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.srv.Certificate().Raw})
}

// New starts an issuer on this machine.
func New() (*Issuer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	i := &Issuer{key: key}
	mux := http.NewServeMux()
	answer := func(path string, body func() any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(body())
		})
	}
	answer("/.well-known/openid-configuration", func() any {
		doc := map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/auth", "token_endpoint": i.URL + "/token",
			"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"RS256"}}
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.revoke != nil {
			doc["revocation_endpoint"] = i.URL + "/revoke"
		}
		if i.endPath != "" {
			doc["end_session_endpoint"] = i.URL + i.endPath
		}
		return doc
	})
	for path, handler := range map[string]*http.HandlerFunc{"/token": &i.token, "/revoke": &i.revoke} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			i.mu.Lock()
			h := *handler
			i.mu.Unlock()
			if h == nil {
				http.NotFound(w, r)
				return
			}
			h(w, r)
		})
	}
	answer("/keys", func() any {
		return map[string]any{"keys": []any{map[string]string{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1", "n": b64(key.N.Bytes()), "e": b64(big.NewInt(int64(key.E)).Bytes())}}}
	})
	i.srv = httptest.NewTLSServer(mux)
	i.URL = i.srv.URL
	return i, nil
}

// Close stops the issuer.
func (i *Issuer) Close() { i.srv.Close() }

// WriteCA writes the CA of the issuer's certificate, in PEM.
func (i *Issuer) WriteCA(file string) error {
	return os.WriteFile(file, i.CAPEM(), 0o600)
}

// Token is an ID token for the user, good for an hour.
func (i *Issuer) Token(user string, groups ...string) (string, error) {
	now := time.Now()
	return i.Sign(map[string]any{"iss": i.URL, "aud": ClientID, "sub": user, "groups": groups, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()})
}

// Sign makes a token of any claims.
func (i *Issuer) Sign(claims map[string]any) (string, error) {
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	text := b64([]byte(`{"alg":"RS256","kid":"1"}`)) + "." + b64(body)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		return "", err
	}
	return text + "." + b64(sig), nil
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
