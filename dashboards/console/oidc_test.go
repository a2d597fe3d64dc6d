package console

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	authnv1 "k8s.io/api/authentication/v1"

	"muster.dev/muster/internal/oidclogin"
	"muster.dev/muster/internal/testkit/dex"
	testoidc "muster.dev/muster/internal/testkit/oidc"
)

const redirectTo = "https://muster.example.com" + pathOIDCCallback

// provider is a dex and a console that logs people in with it, with one clock.
type provider struct {
	*harness
	dex *dex.Server
}

// newProvider: zoe is in the group system:masters of her identity provider, which the
// API server calls oidc:system:masters.
func newProvider(t *testing.T, change ...func(*Options, *timing)) *provider {
	t.Helper()
	p := &provider{dex: dex.Start(t, dex.Options{
		Clients: []dex.Client{{ID: "muster", Secret: "s3cret", Name: "Muster", RedirectURIs: []string{redirectTo}}},
		Users:   map[string]dex.User{"zoe": {Groups: []string{"ops", "system:masters"}}, "mallory": {}},
	})}
	configure := func(o *Options, _ *timing) {
		o.ExternalURL = mustURL(t, "https://muster.example.com")
		o.OIDC = &oidclogin.Options{IssuerURL: p.dex.URL, ClientID: "muster", ClientSecret: "s3cret", CAPEM: p.dex.CAPEM, Scopes: []string{"openid", "profile", "groups", "offline_access"}}
	}
	p.harness = newHarness(t, append([]func(*Options, *timing){configure}, change...)...)
	p.clock.advance(time.Until(p.clock.now()) * -1) // dex lives in the present
	p.api.oidc = p.apiServer()
	p.api.grant("oidc:zoe", "list acme-system", "get acme-system", "patch acme-system")
	return p
}

// apiServer authenticates as kube-apiserver does with --oidc-… and the prefix oidc:.
func (p *provider) apiServer() func(string) (authnv1.UserInfo, bool) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.dex.CAPEM)
	ctx := oidc.ClientContext(context.Background(), &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}})
	issuer, err := oidc.NewProvider(ctx, p.dex.URL)
	if err != nil {
		p.t.Fatal(err)
	}
	verifier := issuer.Verifier(&oidc.Config{ClientID: "muster", Now: p.clock.now})
	return func(token string) (authnv1.UserInfo, bool) {
		id, err := verifier.Verify(ctx, token)
		if err != nil {
			return authnv1.UserInfo{}, false
		}
		var claims struct {
			Name   string   `json:"preferred_username"`
			Groups []string `json:"groups"`
		}
		if err := id.Claims(&claims); err != nil || claims.Name == "mallory" {
			return authnv1.UserInfo{}, false // an admission rule of theirs
		}
		u := authnv1.UserInfo{Username: "oidc:" + claims.Name, Groups: []string{"system:authenticated"}, Extra: map[string]authnv1.ExtraValue{"example.org/shift": {"night"}}}
		for _, g := range claims.Groups {
			u.Groups = append(u.Groups, "oidc:"+g)
		}
		return u, true
	}
}

func (p *provider) advance(d time.Duration) {
	p.t.Helper()
	p.clock.advance(d)
	p.dex.Advance(p.t, d)
}

// browser is one with its cookies, at https://muster.example.com.
type browser struct {
	p   *provider
	srv *httptest.Server
	jar *cookiejar.Jar
}

func (p *provider) browser() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return &browser{p: p, srv: p.srv, jar: jar}
}

func (b *browser) want(code int, method, target, body string) answer {
	b.p.t.Helper()
	h := *b.p.harness
	h.srv = b.srv
	at := mustURL(b.p.t, "https://muster.example.com")
	var header []string
	for _, c := range b.jar.Cookies(at) {
		header = append(header, c.Name+"="+c.Value)
	}
	a := h.want(code, "", method, target, body, "Cookie", strings.Join(header, "; "))
	b.jar.SetCookies(at, a.Cookies())
	return a
}

// begin returns where the identity provider sends the browser back to, once the user
// has logged in there.
func (b *browser) begin(user, page string) string {
	b.p.t.Helper()
	a := b.want(303, "GET", pathOIDC+"?return="+url.QueryEscape(page), "")
	back := b.p.dex.Login(b.p.t, a.Header.Get("Location"), user)
	if !strings.HasPrefix(back, redirectTo+"?") {
		b.p.t.Fatalf("sent back to %s", back)
	}
	return strings.TrimPrefix(back, "https://muster.example.com")
}

func (b *browser) login(user, page string) string {
	b.p.t.Helper()
	return b.want(303, "GET", b.begin(user, page), "").Header.Get("Location")
}

func (b *browser) session() (s sessionView) {
	b.p.t.Helper()
	b.want(200, "GET", "/api/v1/session", "").json(b.p.t, &s)
	return s
}

func TestLoginWithAnIdentityProvider(t *testing.T) {
	p := newProvider(t)
	b := p.browser()
	if to := b.login("zoe", "/sites/paris-07?tenant=acme"); to != "/sites/paris-07?tenant=acme" {
		t.Errorf("goes on with %s", to)
	}
	for _, c := range b.jar.Cookies(mustURL(t, "https://muster.example.com")) {
		if strings.Contains(c.Name, "login") {
			t.Errorf("%s was left", c.Name)
		}
		for _, part := range strings.Split(c.Value, ".") {
			if strings.HasPrefix(part, "eyJ") {
				t.Errorf("a token can be read in %s", c.Name)
			}
		}
	}
	s := b.session()
	if s.User != "oidc:zoe" || strings.Join(s.Groups, " ") != "oidc:ops oidc:system:masters system:authenticated" || strings.Join(s.Tenants, " ") != "acme" {
		t.Errorf("%+v", s)
	}
	b.want(403, "GET", "/api/v1/health/sites?tenant=globex", "")

	t.Run("the page is told of it", func(t *testing.T) {
		var v loginView
		b.want(200, "GET", "/api/v1/login", "").json(t, &v)
		if v.OIDC == nil || v.OIDC.IssuerURL != p.dex.URL || v.OIDC.ClientID != "muster" || v.OIDC.CA != string(p.dex.CAPEM) {
			t.Errorf("%+v", v.OIDC)
		}
	})
	t.Run("logging out", func(t *testing.T) {
		b.want(204, "DELETE", "/api/v1/session", "")
		b.want(401, "GET", "/api/v1/session", "")
	})
	if strings.Contains(p.log.String(), "eyJ") {
		t.Error("the log has a token in it")
	}
}

// Nobody gets a session by an answer that is not for their browser, and only once.
func TestForeignAnswersOfTheProvider(t *testing.T) {
	p := newProvider(t)
	expired := func(b *browser, target string) {
		t.Helper()
		if to := b.want(303, "GET", target, "").Header.Get("Location"); to != "/#login=expired" {
			t.Errorf("%s: sent to %s", target, to)
		}
		b.want(401, "GET", "/api/v1/session", "")
	}
	attacker, victim := p.browser(), p.browser()
	link := attacker.begin("zoe", "/")
	expired(victim, link) // login CSRF
	victim.want(303, "GET", pathOIDC, "")
	expired(victim, link) // also while logging in oneself
	expired(victim, pathOIDCCallback+"?code=x&state=")
	expired(victim, pathOIDCCallback)
	if to := attacker.want(303, "GET", link, "").Header.Get("Location"); to != "/" {
		t.Errorf("sent to %s", to)
	}
	attacker.want(204, "DELETE", "/api/v1/session", "")
	expired(attacker, link) // a second time

	late := p.browser()
	link = late.begin("zoe", "/")
	p.clock.advance(loginTime)
	expired(late, link)

	// A code of another attempt of the same browser: PKCE and nonce are of this one.
	mixed := p.browser()
	one, other := mustURL(t, mixed.begin("zoe", "/")), mustURL(t, mixed.begin("zoe", "/"))
	q := one.Query()
	q.Set("code", other.Query().Get("code"))
	if to := mixed.want(303, "GET", one.Path+"?"+q.Encode(), "").Header.Get("Location"); to != "/#login=failed" {
		t.Errorf("another attempt's code: sent to %s", to)
	}
	mixed.want(401, "GET", "/api/v1/session", "")
}

func TestRefusalsOfTheProvider(t *testing.T) {
	p := newProvider(t)
	b := p.browser()
	link := mustURL(t, b.begin("zoe", "/"))
	q := link.Query()
	q.Del("code")
	q.Set("error", "access_denied")
	q.Set("session_state", "theirs")
	if to := b.want(303, "GET", link.Path+"?"+q.Encode(), "").Header.Get("Location"); to != "/#login=denied" {
		t.Errorf("sent to %s", to)
	}
	if to := b.login("mallory", "/"); to != "/#login=refused" {
		t.Errorf("the API server's refusal: sent to %s", to)
	}
	b.want(401, "GET", "/api/v1/session", "")
}

// A session outlives its ID token by its refresh token, on any console, up to its own
// end; requests at the same time use the refresh token once.
func TestSessionsAreProlonged(t *testing.T) {
	p := newProvider(t)
	b := p.browser()
	b.login("zoe", "/")
	at := mustURL(t, "https://muster.example.com")
	value := func() string { return b.jar.Cookies(at)[0].Value }
	first := value()
	p.advance(6 * time.Minute)
	b.session()
	if value() != first {
		t.Error("prolonged before its time")
	}
	p.advance(90 * time.Second) // two thirds of ten minutes are over
	var wg sync.WaitGroup
	for range 8 { // a page asks for several things at once
		wg.Go(func() {
			one := *b
			one.jar, _ = cookiejar.New(nil)
			one.jar.SetCookies(at, b.jar.Cookies(at))
			one.session()
		})
	}
	wg.Wait()
	b.session()
	second := value()
	if second == first {
		t.Fatal("not prolonged")
	}
	for range 5 {
		p.advance(8 * time.Minute)
		if b.session().User != "oidc:zoe" {
			t.Error("somebody else")
		}
	}
	// Another console takes over.
	b.srv = p.second(nil)
	p.advance(8 * time.Minute)
	b.session()
	p.advance(8 * time.Minute)
	b.session()
	if n := strings.Count(p.log.String(), "was not refreshed"); n != 0 {
		t.Errorf("%d refreshes failed", n)
	}

	t.Run("a refresh that fails changes nothing before the token's end", func(t *testing.T) {
		stale := p.browser()
		stale.login("zoe", "/")
		used := stale.jar.Cookies(at)
		p.advance(7 * time.Minute)
		stale.session() // uses the refresh token up
		other := p.browser()
		other.srv = p.second(nil) // knows nothing of it
		other.jar.SetCookies(at, used)
		other.session()
		p.advance(4 * time.Minute)
		a := other.want(401, "GET", "/api/v1/session", "")
		if len(a.Cookies()) != 0 {
			t.Errorf("the cookie, which the first console has renewed meanwhile, was taken back: %v", a.Cookies())
		}
		stale.session()
	})
	t.Run("it ends", func(t *testing.T) {
		p.advance(12 * time.Hour)
		b.want(401, "GET", "/api/v1/session", "")
	})
}

// Logging out takes the cookies back whatever the provider does, has it revoke the session
// if it offers that, and names the page where it ends its own.
func TestLogoutAtTheProvider(t *testing.T) {
	for name, c := range map[string]struct {
		status  int // of the revocation; 0: not offered
		end     bool
		away    bool
		refresh string
		revoked string
		code    int
	}{
		"revoked, and ended there": {status: 200, end: true, refresh: "r1", revoked: "yes", code: 200},
		"revoked":                  {status: 200, refresh: "r1", revoked: "yes", code: 204},
		"not offered":              {refresh: "r1", revoked: "not offered", code: 204},
		"no refresh token":         {status: 200, end: true, revoked: "no refresh token", code: 200},
		"the revocation fails":     {status: 503, end: true, refresh: "r1", revoked: "failed: ", code: 200},
		"the provider is away":     {status: 200, end: true, away: true, refresh: "r1", revoked: "failed: ", code: 204},
	} {
		t.Run(name, func(t *testing.T) {
			issuer, err := testoidc.New()
			if err != nil {
				t.Fatal(err)
			}
			defer issuer.Close()
			var revoked []string
			if c.status != 0 {
				issuer.OnRevoke(func(w http.ResponseWriter, r *http.Request) {
					revoked = append(revoked, r.FormValue("token"))
					w.WriteHeader(c.status)
				})
			}
			if c.end {
				issuer.OfferEndSession("/end")
			}
			h := newHarness(t, func(o *Options, _ *timing) {
				o.ExternalURL = mustURL(t, "https://muster.example.com")
				o.OIDC = &oidclogin.Options{IssuerURL: issuer.URL, ClientID: testoidc.ClientID, CAPEM: issuer.CAPEM(), Scopes: []string{"openid"}}
			})
			value, err := h.con.seal.seal(forSession, session{Token: "the ID token", Subject: "zoe", Refresh: c.refresh, Expires: h.clock.now().Add(time.Hour).Unix()})
			if err != nil {
				t.Fatal(err)
			}
			if c.away {
				issuer.Close()
			}
			a := h.want(c.code, "", "DELETE", "/api/v1/session", "", "Cookie", hostPrefix+sessionCookie+"="+value)
			if cs := a.Cookies(); len(cs) != 1 || cs[0].Name != hostPrefix+sessionCookie || cs[0].MaxAge >= 0 {
				t.Errorf("the cookie was not taken back: %v", cs)
			}
			if want := c.status != 0 && c.refresh != "" && !c.away; want != (len(revoked) == 1 && revoked[0] == c.refresh) {
				t.Errorf("revoked %q", revoked)
			}
			if c.code == 200 {
				var out logoutView
				a.json(t, &out)
				if want := issuer.URL + "/end?client_id=muster&id_token_hint=the+ID+token&post_logout_redirect_uri=https%3A%2F%2Fmuster.example.com%2F"; out.EndSessionURL != want {
					t.Errorf("%s\nwant %s", out.EndSessionURL, want)
				}
			}
			line := ""
			for l := range strings.Lines(h.log.String()) {
				if strings.Contains(l, "audit=logout") {
					line += l
				}
			}
			if strings.Count(line, "\n") != 1 || !strings.Contains(line, "subject=zoe") || !strings.Contains(strings.ReplaceAll(line, `"`, ""), "revoked="+c.revoked) {
				t.Errorf("in the log: %s", line)
			}
		})
	}
}

// A session that was prolonged is revoked by the refresh token that it has now, and the
// old cookie brings nothing any more.
func TestLogoutOfAProlongedSession(t *testing.T) {
	p := newProvider(t)
	b := p.browser()
	b.login("zoe", "/")
	at := mustURL(t, "https://muster.example.com")
	old := b.jar.Cookies(at)
	p.advance(8 * time.Minute)
	b.session() // with another refresh token from here on
	b.jar.SetCookies(at, old)
	b.want(204, "DELETE", "/api/v1/session", "")
	if line := p.log.String(); !strings.Contains(line, "not offered by the identity provider") {
		t.Errorf("dex revokes?\n%s", line)
	}
	b.jar.SetCookies(at, old)
	p.advance(4 * time.Minute) // the first ID token is over
	b.want(401, "GET", "/api/v1/session", "")
}

func TestLocalPath(t *testing.T) {
	for in, want := range map[string]string{
		"/alerts": "/alerts", "/logs?query=a&tenant=b": "/logs?query=a&tenant=b", "": "/", "alerts": "/", "//evil.example": "/", "/\\evil.example": "/", "\\/evil.example": "/",
		"https://evil.example/": "/", "javascript:alert(1)": "/", "/a\r\nSet-Cookie: x": "/", "/api/v1/session/oidc": "/", "///evil.example": "/", "/x#y": "/x", "/\t/evil.example": "/",
	} {
		if got := localPath(in); got != want {
			t.Errorf("%q → %q, want %q", in, got, want)
		}
	}
}

func FuzzLocalPath(f *testing.F) {
	f.Add("/alerts?x=1")
	f.Add("//evil.example")
	base, err := url.Parse("https://muster.example.com/api/v1/session/oidc/callback")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		to, err := base.Parse(localPath(s))
		if err != nil || to.Host != base.Host || to.Scheme != base.Scheme || strings.HasPrefix(localPath(s), "//") {
			t.Errorf("%q leads to %v (%v)", s, to, err)
		}
	})
}
