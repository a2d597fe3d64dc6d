// Package oidclogin fetches a user's tokens from an OpenID Connect provider:
// authorization code with PKCE (RFC 7636), state and nonce; device code (RFC 8628);
// refresh; and logging out: revocation (RFC 7009) and the provider's own end of the
// session (OpenID Connect RP-Initiated Logout). It keeps nothing and decides nothing about rights: the ID token goes to
// the API server, which does. The console and `muster login` call it.
package oidclogin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// discoverAgain is the least time between two attempts to reach a provider that is away.
const discoverAgain = 2 * time.Second

// ErrRefused is wrapped where the provider said no: a code or refresh token that is
// used up, expired or revoked. Any other error may be gone on the next attempt.
var ErrRefused = errors.New("the identity provider refused")

// Options configure a Client.
type Options struct {
	IssuerURL    string // as the provider's tokens name it
	ClientID     string
	ClientSecret string   // "": a public client
	Scopes       []string // with openid; offline_access for refresh tokens
	CAPEM        []byte   // nil: the system's
	Now          func() time.Time
}

// Tokens are what a login brings.
type Tokens struct {
	IDToken      string
	RefreshToken string // "": the provider gave none
	Subject      string
	Expires      time.Time // of the ID token
}

// Client speaks to one provider. Safe for concurrent use. The provider may be away
// when it is made: it is asked for its endpoints on first use.
type Client struct {
	o    Options
	http *http.Client

	mu       sync.Mutex
	provider *oidc.Provider
	failed   error
	failedAt time.Time
}

// New checks the options.
func New(o Options) (*Client, error) {
	if o.IssuerURL == "" || o.ClientID == "" {
		return nil, errors.New("want an issuer's URL and a client id")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	if len(o.CAPEM) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(o.CAPEM) {
			return nil, errors.New("the CA of the identity provider holds no certificate in PEM")
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &Client{o: o, http: &http.Client{Transport: t, Timeout: 10 * time.Second}}, nil
}

// IssuerURL is that of the options.
func (c *Client) IssuerURL() string { return c.o.IssuerURL }

// discovered returns the provider's endpoints and keys. It holds the lock while it asks,
// so that a provider that hangs is asked once.
func (c *Client) discovered(ctx context.Context) (*oidc.Provider, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.provider != nil {
		return c.provider, nil
	}
	if c.failed != nil && time.Since(c.failedAt) < discoverAgain {
		return nil, c.failed
	}
	// The provider keeps this context for fetching its keys later on.
	p, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), c.http), c.o.IssuerURL)
	if err != nil {
		c.failed, c.failedAt = fmt.Errorf("identity provider %s: %w", c.o.IssuerURL, err), time.Now()
		return nil, c.failed
	}
	c.provider, c.failed = p, nil
	return p, nil
}

func (c *Client) config(p *oidc.Provider, redirect string) *oauth2.Config {
	return &oauth2.Config{ClientID: c.o.ClientID, ClientSecret: c.o.ClientSecret, Endpoint: p.Endpoint(), RedirectURL: redirect, Scopes: c.o.Scopes}
}

// Attempt is one login on its way. Whoever started it keeps it secret until the
// provider sends the browser back.
type Attempt struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"` // of PKCE
}

// NewAttempt has fresh secrets.
func NewAttempt() Attempt {
	return Attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
}

// Answers tells whether state, from the provider's answer, belongs to the attempt.
func (a Attempt) Answers(state string) bool {
	return a.State != "" && subtle.ConstantTimeCompare([]byte(a.State), []byte(state)) == 1
}

// AuthURL is where the browser logs in.
func (c *Client) AuthURL(ctx context.Context, redirect string, a Attempt) (string, error) {
	p, err := c.discovered(ctx)
	if err != nil {
		return "", err
	}
	return c.config(p, redirect).AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), nil
}

// Exchange trades the code of the answer for tokens. The caller has compared the state.
func (c *Client) Exchange(ctx context.Context, redirect, code string, a Attempt) (Tokens, error) {
	p, err := c.discovered(ctx)
	if err != nil {
		return Tokens{}, err
	}
	tok, err := c.config(p, redirect).Exchange(oidc.ClientContext(ctx, c.http), code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return Tokens{}, said("exchange the code", err)
	}
	out, nonce, err := c.verified(ctx, p, tok)
	if err != nil {
		return Tokens{}, err
	}
	if subtle.ConstantTimeCompare([]byte(nonce), []byte(a.Nonce)) != 1 {
		return Tokens{}, fmt.Errorf("%w: the ID token is of another login (nonce)", ErrRefused)
	}
	return out, nil
}

// Refresh fetches a new ID token for the same subject.
func (c *Client) Refresh(ctx context.Context, refreshToken, subject string) (Tokens, error) {
	p, err := c.discovered(ctx)
	if err != nil {
		return Tokens{}, err
	}
	tok, err := c.config(p, "").TokenSource(oidc.ClientContext(ctx, c.http), &oauth2.Token{RefreshToken: refreshToken}).Token()
	if err != nil {
		return Tokens{}, said("refresh the session", err)
	}
	out, _, err := c.verified(ctx, p, tok)
	if err != nil {
		return Tokens{}, err
	}
	if out.Subject != subject {
		return Tokens{}, fmt.Errorf("%w: the refreshed token is somebody else's", ErrRefused)
	}
	if out.RefreshToken == "" {
		out.RefreshToken = refreshToken
	}
	return out, nil
}

// Device begins a login on another device; show its URL and code, then call AwaitDevice.
func (c *Client) Device(ctx context.Context) (*oauth2.DeviceAuthResponse, error) {
	p, err := c.discovered(ctx)
	if err != nil {
		return nil, err
	}
	if p.Endpoint().DeviceAuthURL == "" {
		return nil, fmt.Errorf("%s offers no login by device code; use a browser on this machine", c.o.IssuerURL)
	}
	d, err := c.config(p, "").DeviceAuth(oidc.ClientContext(ctx, c.http))
	if err != nil {
		return nil, said("ask for a device code", err)
	}
	return d, nil
}

// AwaitDevice polls until the user has logged in, or ctx or the code ends.
func (c *Client) AwaitDevice(ctx context.Context, d *oauth2.DeviceAuthResponse) (Tokens, error) {
	p, err := c.discovered(ctx)
	if err != nil {
		return Tokens{}, err
	}
	tok, err := c.config(p, "").DeviceAccessToken(oidc.ClientContext(ctx, c.http), d)
	if err != nil {
		return Tokens{}, said("log in by device code", err)
	}
	out, _, err := c.verified(ctx, p, tok)
	return out, err
}

// endings are what a provider offers beyond what it must.
type endings struct {
	Revocation string `json:"revocation_endpoint"`
	EndSession string `json:"end_session_endpoint"`
}

func (c *Client) endings(ctx context.Context) (endings, error) {
	var out endings
	p, err := c.discovered(ctx)
	if err != nil {
		return out, err
	}
	if err := p.Claims(&out); err != nil {
		return out, fmt.Errorf("identity provider %s: %w", c.o.IssuerURL, err)
	}
	return out, nil
}

// Revoke has the provider forget a refresh token and what hangs on it, and tells whether
// it offers that. A token that is none any more is no error.
func (c *Client) Revoke(ctx context.Context, refreshToken string) (offered bool, err error) {
	to, err := c.endings(ctx)
	if err != nil || to.Revocation == "" {
		return false, err
	}
	form := url.Values{"token": {refreshToken}, "token_type_hint": {"refresh_token"}}
	if c.o.ClientSecret == "" {
		form.Set("client_id", c.o.ClientID)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.Revocation, strings.NewReader(form.Encode()))
	if err != nil {
		return true, fmt.Errorf("revoke the session: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if c.o.ClientSecret != "" {
		req.SetBasicAuth(url.QueryEscape(c.o.ClientID), url.QueryEscape(c.o.ClientSecret)) // RFC 6749, 2.3.1
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return true, fmt.Errorf("revoke the session: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return true, fmt.Errorf("revoke the session: %s answered %s", c.o.IssuerURL, resp.Status)
	}
	return true, nil
}

// EndSessionURL is where a browser ends its session with the provider, who then sends it
// back to returnTo; "": the provider has no such page. returnTo must be known to the
// provider, as the redirect URL of the login is.
func (c *Client) EndSessionURL(ctx context.Context, idToken, returnTo string) (string, error) {
	to, err := c.endings(ctx)
	if err != nil || to.EndSession == "" {
		return "", err
	}
	u, err := url.Parse(to.EndSession)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("identity provider %s: end_session_endpoint %q: want an https URL", c.o.IssuerURL, to.EndSession)
	}
	q := u.Query()
	q.Set("client_id", c.o.ClientID)
	q.Set("id_token_hint", idToken)
	q.Set("post_logout_redirect_uri", returnTo)
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// verified takes the ID token out of an answer and checks signature, issuer, audience
// and expiry.
func (c *Client) verified(ctx context.Context, p *oidc.Provider, tok *oauth2.Token) (_ Tokens, nonce string, _ error) {
	raw, _ := tok.Extra("id_token").(string)
	if raw == "" {
		return Tokens{}, "", fmt.Errorf("%s gave no ID token; is openid among the scopes?", c.o.IssuerURL)
	}
	id, err := p.Verifier(&oidc.Config{ClientID: c.o.ClientID, Now: c.o.Now}).Verify(oidc.ClientContext(ctx, c.http), raw)
	if err != nil {
		return Tokens{}, "", fmt.Errorf("%w: ID token: %w", ErrRefused, err)
	}
	if id.AccessTokenHash != "" {
		if err := id.VerifyAccessToken(tok.AccessToken); err != nil {
			return Tokens{}, "", fmt.Errorf("%w: ID token: %w", ErrRefused, err)
		}
	}
	return Tokens{IDToken: raw, RefreshToken: tok.RefreshToken, Subject: id.Subject, Expires: id.Expiry}, id.Nonce, nil
}

// said tells a refusal from an outage.
func said(what string, err error) error {
	var answer *oauth2.RetrieveError
	if errors.As(err, &answer) && answer.Response != nil && answer.Response.StatusCode >= 400 && answer.Response.StatusCode < 500 && answer.Response.StatusCode != http.StatusTooManyRequests {
		reason := answer.ErrorCode
		if answer.ErrorDescription != "" {
			reason += ": " + answer.ErrorDescription
		}
		if reason == "" {
			reason = answer.Response.Status
		}
		return fmt.Errorf("%s: %w: %s", what, ErrRefused, reason)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// RenewAt is when a token that was fetched now should be fetched anew: at two thirds of
// its life, so that an outage of the provider has time to pass.
func RenewAt(now, expires time.Time) time.Time { return now.Add(expires.Sub(now) * 2 / 3) }

// Fingerprint names a refresh token without giving it away, for caches and locks.
func Fingerprint(refreshToken string) string {
	sum := sha256.Sum256([]byte(refreshToken))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
