package oidclogin

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit/oidc"
)

const redirect = "https://muster.example.com/callback"

// provider is an issuer and a client of it, with a clock of its own.
type provider struct {
	*oidc.Issuer
	t      testing.TB
	client *Client
	now    time.Time
}

func newProvider(t testing.TB, change ...func(*Options)) *provider {
	t.Helper()
	i, err := oidc.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	p := &provider{Issuer: i, t: t, now: time.Now()}
	o := Options{IssuerURL: i.URL, ClientID: oidc.ClientID, Scopes: []string{"openid"}, CAPEM: i.CAPEM(), Now: func() time.Time { return p.now }}
	for _, f := range change {
		f(&o)
	}
	if p.client, err = New(o); err != nil {
		t.Fatal(err)
	}
	return p
}

// gives has the token endpoint give an ID token of zoe's with these claims instead of the
// good ones, and more fields beside it. The last request's form is in the map.
func (p *provider) gives(claims, beside map[string]any) url.Values {
	p.t.Helper()
	all := map[string]any{"iss": p.URL, "aud": oidc.ClientID, "sub": "zoe", "nonce": "n", "groups": []string{"ops"}, "iat": p.now.Unix(), "exp": p.now.Add(time.Hour).Unix()}
	for k, v := range claims {
		all[k] = v
	}
	token, err := p.Sign(all)
	if err != nil {
		p.t.Fatal(err)
	}
	answer := map[string]any{"access_token": "a", "token_type": "bearer", "id_token": token, "refresh_token": "r2"}
	for k, v := range beside {
		answer[k] = v
	}
	asked := url.Values{}
	p.OnToken(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		for k, v := range r.PostForm {
			asked[k] = v
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	})
	return asked
}

// fails has the token endpoint answer with a status and an OAuth error.
func (p *provider) fails(status int, code string) {
	p.OnToken(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": "so it is"})
	})
}

func claimsOf(t testing.TB, token string) (c struct{ Groups []string }) {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestExchange(t *testing.T) {
	p := newProvider(t)
	a := Attempt{State: "s", Nonce: "n", Verifier: strings.Repeat("v", 43)}
	target, err := p.client.AuthURL(t.Context(), redirect, a)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	challenge := sha256.Sum256([]byte(a.Verifier))
	for k, want := range map[string]string{"state": "s", "nonce": "n", "client_id": oidc.ClientID, "redirect_uri": redirect, "code_challenge_method": "S256",
		"code_challenge": base64.RawURLEncoding.EncodeToString(challenge[:])} {
		if got := u.Query().Get(k); got != want {
			t.Errorf("%s=%q, want %q", k, got, want)
		}
	}
	asked := p.gives(nil, nil)
	tok, err := p.client.Exchange(t.Context(), redirect, "the code", a)
	if err != nil || tok.Subject != "zoe" || tok.RefreshToken != "r2" || tok.Expires.Unix() != p.now.Add(time.Hour).Unix() {
		t.Fatalf("%+v, %v", tok, err)
	}
	for k, want := range map[string]string{"code": "the code", "code_verifier": a.Verifier, "redirect_uri": redirect, "grant_type": "authorization_code"} {
		if asked.Get(k) != want {
			t.Errorf("asked with %s=%q, want %q", k, asked.Get(k), want)
		}
	}
}

// What is no answer to this login, at this time, from this provider, is refused.
func TestRefusedTokens(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		claims, beside map[string]any
		good           bool
	}{
		"good":                         {nil, nil, true},
		"another login's nonce":        {map[string]any{"nonce": "other"}, nil, false},
		"no nonce":                     {map[string]any{"nonce": ""}, nil, false},
		"for another client":           {map[string]any{"aud": "other"}, nil, false},
		"for several, us among them":   {map[string]any{"aud": []string{"other", oidc.ClientID}}, nil, true},
		"of another issuer":            {map[string]any{"iss": "https://other.example.com"}, nil, false},
		"expired":                      {map[string]any{"exp": now.Add(-time.Second).Unix()}, nil, false},
		"about to expire":              {map[string]any{"exp": now.Add(time.Minute).Unix()}, nil, true},
		"of a clock four minutes fast": {map[string]any{"iat": now.Add(4 * time.Minute).Unix(), "nbf": now.Add(4 * time.Minute).Unix()}, nil, true},
		"of a clock an hour fast":      {map[string]any{"iat": now.Add(time.Hour).Unix(), "nbf": now.Add(time.Hour).Unix(), "exp": now.Add(2 * time.Hour).Unix()}, nil, false},
		"another access token's":       {map[string]any{"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"}, nil, false},
		"signed by somebody":           {nil, map[string]any{"id_token": "eyJhbGciOiJub25lIn0.e30."}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t)
			p.now = now
			p.gives(c.claims, c.beside)
			_, err := p.client.Exchange(t.Context(), redirect, "code", Attempt{Nonce: "n"})
			if (err == nil) != c.good || err != nil && !errors.Is(err, ErrRefused) {
				t.Errorf("%v", err)
			}
		})
	}
	p := newProvider(t)
	p.gives(nil, nil)
	for skew, good := range map[time.Duration]bool{50 * time.Minute: true, 70 * time.Minute: false} { // of a token that lives an hour
		p.now = now.Add(skew)
		if _, err := p.client.Exchange(t.Context(), redirect, "code", Attempt{Nonce: "n"}); (err == nil) != good {
			t.Errorf("a clock of ours %s fast: %v", skew, err)
		}
	}
	p.gives(nil, map[string]any{"id_token": ""})
	if _, err := p.client.Exchange(t.Context(), redirect, "code", Attempt{Nonce: "n"}); err == nil || !strings.Contains(err.Error(), "openid among the scopes") {
		t.Errorf("no ID token: %v", err)
	}
}

func TestStates(t *testing.T) {
	a, b := NewAttempt(), NewAttempt()
	if !a.Answers(a.State) || a.Answers(b.State) || a.Answers("") || (Attempt{}).Answers("") {
		t.Error("an answer belongs to its attempt alone")
	}
	if a.Nonce == b.Nonce || a.Verifier == b.Verifier || a.Nonce == a.State {
		t.Error("secrets are used twice")
	}
}

func TestRefresh(t *testing.T) {
	p := newProvider(t)
	// Groups change at the provider; the nonce is of no interest any more.
	asked := p.gives(map[string]any{"groups": []string{"ops", "oncall"}, "nonce": ""}, nil)
	tok, err := p.client.Refresh(t.Context(), "r1", "zoe")
	if err != nil || tok.RefreshToken != "r2" || strings.Join(claimsOf(t, tok.IDToken).Groups, " ") != "ops oncall" {
		t.Fatalf("%+v, %v", tok, err)
	}
	if asked.Get("grant_type") != "refresh_token" || asked.Get("refresh_token") != "r1" {
		t.Errorf("asked with %v", asked)
	}
	p.gives(nil, map[string]any{"refresh_token": nil})
	if tok, err := p.client.Refresh(t.Context(), "r1", "zoe"); err != nil || tok.RefreshToken != "r1" {
		t.Errorf("a provider that keeps refresh tokens: %q, %v", tok.RefreshToken, err)
	}
	for what, claims := range map[string]map[string]any{"somebody else's": {"sub": "mallory"}, "expired": {"exp": p.now.Add(-time.Minute).Unix()}} {
		p.gives(claims, nil)
		if _, err := p.client.Refresh(t.Context(), "r1", "zoe"); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A refusal ends a session; an outage must not.
func TestRefusalsAndOutages(t *testing.T) {
	for code, refused := range map[int]bool{400: true, 401: true, 403: true, 429: false, 500: false, 503: false} {
		p := newProvider(t)
		p.fails(code, "invalid_grant")
		_, err := p.client.Refresh(t.Context(), "r1", "zoe")
		if err == nil || errors.Is(err, ErrRefused) != refused {
			t.Errorf("%d: %v", code, err)
		}
		if refused && !strings.Contains(err.Error(), "invalid_grant: so it is") {
			t.Errorf("%d: %v doesn't say why", code, err)
		}
	}
	p := newProvider(t)
	p.Close()
	for range 2 { // the second is answered from memory
		if _, err := p.client.Refresh(t.Context(), "r1", "zoe"); err == nil || errors.Is(err, ErrRefused) {
			t.Errorf("away: %v", err)
		}
	}
	if _, err := p.client.AuthURL(t.Context(), redirect, NewAttempt()); err == nil {
		t.Error("a login begins at a provider that is away")
	}

	// One that was there and goes away.
	p = newProvider(t)
	if _, err := p.client.AuthURL(t.Context(), redirect, NewAttempt()); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if _, err := p.client.Refresh(t.Context(), "r1", "zoe"); err == nil || errors.Is(err, ErrRefused) {
		t.Errorf("gone: %v", err)
	}
}

func TestNoDeviceCode(t *testing.T) {
	p := newProvider(t)
	if _, err := p.client.Device(t.Context()); err == nil || !strings.Contains(err.Error(), "use a browser") {
		t.Errorf("%v", err)
	}
}

func TestRevoke(t *testing.T) {
	p := newProvider(t)
	if offered, err := p.client.Revoke(t.Context(), "r1"); offered || err != nil {
		t.Errorf("of a provider that offers none: %v, %v", offered, err)
	}
	for _, secret := range []string{"", "s3cret/+"} {
		p := newProvider(t, func(o *Options) { o.ClientSecret = secret })
		var form url.Values
		var user, password string
		status := http.StatusOK
		p.OnRevoke(func(w http.ResponseWriter, r *http.Request) {
			_ = r.ParseForm()
			form = r.PostForm
			user, password, _ = r.BasicAuth()
			w.WriteHeader(status)
		})
		if offered, err := p.client.Revoke(t.Context(), "r1"); !offered || err != nil {
			t.Fatalf("%v, %v", offered, err)
		}
		if form.Get("token") != "r1" || form.Get("token_type_hint") != "refresh_token" {
			t.Errorf("asked with %v", form)
		}
		if want := url.QueryEscape(secret); password != want || (secret == "") != (form.Get("client_id") == oidc.ClientID) || secret != "" && user != oidc.ClientID {
			t.Errorf("secret %q: asked as %q %q, form %v", secret, user, password, form)
		}
		status = http.StatusServiceUnavailable
		if offered, err := p.client.Revoke(t.Context(), "r1"); !offered || err == nil || !strings.Contains(err.Error(), "503") {
			t.Errorf("of a provider that is unwell: %v, %v", offered, err)
		}
		p.Close()
		if _, err := p.client.Revoke(context.Background(), "r1"); err == nil {
			t.Error("of a provider that is away: no error")
		}
	}
}

func TestEndSession(t *testing.T) {
	p := newProvider(t)
	if u, err := p.client.EndSessionURL(t.Context(), "token", "https://muster.example.com/"); u != "" || err != nil {
		t.Errorf("of a provider that has none: %q, %v", u, err)
	}
	p = newProvider(t)
	p.OfferEndSession("/end?ui=plain")
	got, err := p.client.EndSessionURL(t.Context(), "the token", "https://muster.example.com/")
	want := p.URL + "/end?client_id=muster&id_token_hint=the+token&post_logout_redirect_uri=https%3A%2F%2Fmuster.example.com%2F&ui=plain"
	if err != nil || got != want {
		t.Errorf("%s, %v\nwant %s", got, err, want)
	}
}
