package console

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.dev/muster/internal/wire"
)

func TestSessionCookie(t *testing.T) {
	h := newHarness(t)
	a := h.want(204, "", "POST", "/api/v1/session", `{"token":" token-alice\n"}`)
	c := a.Cookies()[0]
	if c.Name != sessionCookie || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Secure || c.MaxAge != int((12*time.Hour).Seconds()) {
		t.Errorf("cookie: %+v", c)
	}
	if strings.Contains(c.Value, "alice") {
		t.Error("the token can be read in the cookie")
	}
	if raw, err := base64.RawURLEncoding.DecodeString(c.Value); err != nil || bytes.Contains(raw, []byte("alice")) {
		t.Errorf("the token can be read in the cookie (%v)", err)
	}
	cookie := c.Name + "=" + c.Value
	var s sessionView
	h.want(200, "", "GET", "/api/v1/session", "", "Cookie", cookie).json(t, &s)
	if s.User != "alice" || !slices.Equal(s.Tenants, []string{"acme"}) || !slices.Contains(s.Groups, "team-alice") {
		t.Errorf("session: %+v", s)
	}

	t.Run("a console with the same key takes it, one with another key doesn't", func(t *testing.T) {
		for key, want := range map[byte]int{7: 200, 8: 401} {
			o := h.con.opt
			o.SessionKeyFile, o.Registerer = keyFile(t, key), nil
			other, err := newConsole(o, defaultTiming(), h.clock.now)
			if err != nil {
				t.Fatal(err)
			}
			h2 := *h
			h2.srv = serve(t, other)
			h2.want(want, "", "GET", "/api/v1/session", "", "Cookie", cookie)
		}
	})
	t.Run("logging out makes the browser forget it", func(t *testing.T) {
		a := h.want(204, "", "DELETE", "/api/v1/session", "", "Cookie", cookie)
		if c := a.Cookies(); len(c) != 1 || c[0].MaxAge >= 0 || c[0].Value != "" {
			t.Errorf("cookies: %v", c)
		}
	})
	t.Run("it ends after its time", func(t *testing.T) {
		h.clock.advance(12*time.Hour - time.Second)
		h.want(200, "", "GET", "/api/v1/session", "", "Cookie", cookie)
		h.clock.advance(time.Second)
		a := h.want(401, "", "GET", "/api/v1/session", "", "Cookie", cookie)
		if c := a.Cookies(); len(c) != 1 || c[0].MaxAge >= 0 {
			t.Errorf("the expired cookie was left: %v", c)
		}
	})
}

func TestCookieIsSecureWhereTLSIs(t *testing.T) {
	h := newHarness(t, func(o *Options, _ *timing) { o.ExternalURL = mustURL(t, "https://muster.example.com") })
	if c := h.want(204, "", "POST", "/api/v1/session", `{"token":"token-alice"}`).Cookies()[0]; !c.Secure {
		t.Errorf("cookie: %v", c)
	}
}

func mustURL(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestForgedCookiesAreRefused(t *testing.T) {
	h := newHarness(t)
	good := strings.TrimPrefix(h.login("alice"), sessionCookie+"=")
	raw, err := base64.RawURLEncoding.DecodeString(good)
	if err != nil {
		t.Fatal(err)
	}
	bad := []string{"", "garbage", "token-alice", good + "A", good[:len(good)-4], strings.Repeat("A", 5000)}
	for i := range raw { // every byte counts
		flipped := bytes.Clone(raw)
		flipped[i] ^= 1
		bad = append(bad, base64.RawURLEncoding.EncodeToString(flipped))
	}
	before := h.api.count("token")
	for _, v := range bad {
		h.want(401, "", "GET", "/api/v1/session", "", "Cookie", sessionCookie+"="+v)
	}
	if n := h.api.count("token") - before; n != 0 {
		t.Errorf("forged cookies led to %d token reviews", n)
	}
	h.want(200, "", "GET", "/api/v1/session", "", "Cookie", sessionCookie+"="+good)
	// A wrong Authorization header is not saved by a good cookie.
	for _, header := range []string{"Bearer nonsense", "Basic YTpi", "Bearer", ""} {
		h.want(401, "", "GET", "/api/v1/session", "", "Cookie", sessionCookie+"="+good, "Authorization", header)
	}
}

func TestTokensAreReviewedAgain(t *testing.T) {
	h := newHarness(t)
	cookie := h.login("alice")
	for range 20 {
		h.want(200, "", "GET", "/api/v1/session", "", "Cookie", cookie)
		h.want(200, "alice", "GET", "/api/v1/session", "")
	}
	if n := h.api.count("token"); n != 1 {
		t.Errorf("%d token reviews for one token within 10 s, want 1", n)
	}
	h.api.revoke("token-alice")
	h.clock.advance(11 * time.Second)
	h.want(401, "", "GET", "/api/v1/session", "", "Cookie", cookie)
	h.want(401, "alice", "GET", "/api/v1/session", "")
	// A token that comes to life is noticed after two seconds.
	h.api.user("alice", "list acme-system")
	h.want(401, "alice", "GET", "/api/v1/session", "")
	h.clock.advance(3 * time.Second)
	h.want(200, "alice", "GET", "/api/v1/session", "")
}

func TestOneReviewForManyRequests(t *testing.T) {
	h := newHarness(t)
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() { h.want(200, "alice", "GET", "/api/v1/session", "") })
	}
	wg.Wait()
	if n := h.api.count("token"); n > 2 {
		t.Errorf("%d token reviews for 30 requests at once", n)
	}
}

func TestControlPlaneOutage(t *testing.T) {
	h := newHarness(t)
	h.want(200, "alice", "GET", "/api/v1/health/sites", "")
	h.api.setDown(true)
	h.clock.advance(time.Minute)
	// Who was known a moment ago goes on watching; nobody new comes in.
	h.want(200, "alice", "GET", "/api/v1/health/sites", "")
	h.want(403, "alice", "GET", "/api/v1/health/sites?tenant=globex", "")
	h.want(503, "bob", "GET", "/api/v1/health/sites", "")
	h.want(503, "", "POST", "/api/v1/session", `{"token":"token-bob"}`)
	h.want(503, "alice", "GET", "/api/v1/sites/paris-07?tenant=acme", "")
	h.want(503, "alice", "PUT", "/api/v1/sites/paris-07/maintenance?tenant=acme", `{"reason":"x"}`)
	h.clock.advance(5 * time.Minute)
	if a := h.want(503, "alice", "GET", "/api/v1/health/sites", ""); a.Header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	h.api.setDown(false)
	h.want(200, "alice", "GET", "/api/v1/health/sites", "")
}

func TestAStaleTokenLocksNobodyOut(t *testing.T) {
	h := newHarness(t)
	for range 50 { // a dashboard that was forgotten
		h.want(401, "forgotten", "GET", "/api/v1/session", "")
		h.clock.advance(3 * time.Second)
	}
	h.want(204, "", "POST", "/api/v1/session", `{"token":"token-alice"}`)
}

// Sessions whose tokens expire together are no guesses: a cookie is sealed by us.
func TestExpiredSessionsAreNoGuesses(t *testing.T) {
	h := newHarness(t)
	var cookies []string
	for i := range 2 * failuresBurst {
		name := fmt.Sprintf("user-%d", i)
		h.api.user(name, "list acme-system")
		cookies = append(cookies, h.login(name))
		h.api.revoke("token-" + name)
	}
	h.clock.advance(11 * time.Second)
	for _, c := range cookies {
		h.want(401, "", "GET", "/api/v1/session", "", "Cookie", c)
	}
	h.login("alice")
}

func TestCrossOriginRequestsAreRefused(t *testing.T) {
	h := newHarness(t)
	cookie := h.login("alice")
	const target = "/api/v1/sites/paris-07/maintenance?tenant=acme"
	for name, header := range map[string][]string{
		"cross-site fetch": {"Sec-Fetch-Site", "cross-site"},
		"same-site fetch":  {"Sec-Fetch-Site", "same-site"},
		"foreign origin":   {"Origin", "https://evil.example"},
		"null origin":      {"Origin", "null"},
	} {
		for _, m := range []string{"PUT", "DELETE"} {
			a := h.want(403, "", m, target, `{"reason":"x"}`, append(header, "Cookie", cookie)...)
			if p := a.problem(t); p.Type != wire.ProblemCrossOrigin {
				t.Errorf("%s: %s", name, p.Type)
			}
		}
		h.want(403, "", "POST", "/api/v1/session", `{"token":"token-bob"}`, header...)
		h.want(403, "", "DELETE", "/api/v1/session", "", append(header, "Cookie", cookie)...)
		h.want(403, "", "POST", "/api/v1/registrations/rome-01/approve?tenant=acme", "", append(header, "Cookie", cookie)...)
	}
	if log := h.api.auditLog(); len(log) != 0 {
		t.Errorf("it reached the API server: %v", log)
	}
	h.want(200, "", "PUT", target, `{"reason":"x"}`, "Sec-Fetch-Site", "same-origin", "Cookie", cookie)
	h.want(200, "", "PUT", target, `{"reason":"x"}`, "Origin", h.srv.URL, "Cookie", cookie)
	h.want(200, "", "PUT", target, `{"reason":"x"}`, "Cookie", cookie)
}

// Whatever changes something is refused to pages of other origins: every route with an
// unsafe method, those to come too, before anybody is asked anything.
func TestNoUnsafeRouteTakesForeignPages(t *testing.T) {
	h := newHarness(t, func(o *Options, _ *timing) { o.ExternalURL = mustURL(t, "http://muster.example.com") })
	cookie := h.login("root")
	names := strings.NewReplacer("{site}", "paris-07", "{window}", "w", "{namespace}", "shared", "{vk8s}", "vk8s", "{pod}", "web-1", "{virtualSite}", "all-eu", "{silence}", "5f1d8a52", "{fingerprint}", "8a1f6b7c2d3e4f50")
	unsafe := 0
	before := h.api.count("token") + h.api.count("access")
	for _, rt := range h.con.apiRoutes() {
		if rt.method == "GET" {
			continue
		}
		unsafe++
		for _, header := range [][]string{
			{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Sec-Fetch-Site", "cross-site", "Origin", h.srv.URL},
			{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Origin", "http://muster.example.com.evil.example"}, {"Origin", "https://muster.example.com"},
			{"Origin", "https://evil.example", "X-Forwarded-Host", "evil.example", "X-Forwarded-Proto", "https"},
		} {
			for _, as := range [][]string{{"Cookie", cookie}, {"Authorization", "Bearer token-root"}, nil} {
				a := h.want(403, "", rt.method, names.Replace(rt.path), `{"reason":"x","token":"token-root"}`, slices.Concat(header, as)...)
				if p := a.problem(t); p.Type != wire.ProblemCrossOrigin {
					t.Errorf("%s %s with %v: %s", rt.method, rt.path, header, p.Type)
				}
				if len(a.Cookies()) > 0 {
					t.Errorf("%s %s with %v set a cookie", rt.method, rt.path, header)
				}
			}
		}
	}
	if unsafe < 10 {
		t.Errorf("only %d unsafe routes were tried", unsafe)
	}
	if log := h.api.auditLog(); len(log) != 0 || h.api.count("token")+h.api.count("access") != before {
		t.Errorf("it reached the API server: %v", log)
	}
}

func TestExternalOriginIsTrusted(t *testing.T) {
	h := newHarness(t, func(o *Options, _ *timing) { o.ExternalURL = mustURL(t, "https://muster.example.com") })
	h.want(204, "", "POST", "/api/v1/session", `{"token":"token-alice"}`, "Origin", "https://muster.example.com")
	h.want(403, "", "POST", "/api/v1/session", `{"token":"token-alice"}`, "Origin", "https://other.example.com")
}

func TestTokenTooLongForACookie(t *testing.T) {
	h := newHarness(t)
	random := make([]byte, 12000) // doesn't compress
	rand.Read(random)
	long := base64.StdEncoding.EncodeToString(random)
	h.api.mu.Lock()
	h.api.users[long] = h.api.users["token-alice"]
	h.api.mu.Unlock()
	if p := h.want(400, "", "POST", "/api/v1/session", `{"token":"`+long+`"}`).problem(t); p.Errors[0].Field != "token" {
		t.Errorf("%+v", p)
	}
	h.want(200, "", "GET", "/api/v1/session", "", "Authorization", "bearer "+long)
}

func TestForgottenIdentityIsAnError(t *testing.T) {
	h := newHarness(t)
	if _, err := h.con.kube.user.Get().AbsPath("/apis").DoRaw(context.Background()); err == nil || !strings.Contains(err.Error(), errNobody.Error()) {
		t.Errorf("a request without its user was sent: %v", err)
	}
}

func FuzzCookie(f *testing.F) {
	s, err := newSealer([][]byte{make([]byte, 32), bytes.Repeat([]byte{1}, 32)})
	if err != nil {
		f.Fatal(err)
	}
	for _, token := range []string{"a", strings.Repeat("x", 1000)} {
		v, err := s.seal(forSession, session{Token: token})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(v)
		f.Add(v[:len(v)/2])
	}
	f.Add("")
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, value string) {
		var v session
		err := s.open(forSession, value, &v)
		if err != nil && v.Token != "" {
			t.Errorf("open failed but returned a token")
		}
		if err == nil && v.Token != "a" && v.Token != strings.Repeat("x", 1000) {
			t.Errorf("a value that was never sealed was opened: %q", value)
		}
		if s.open(forLogin, value, &v) == nil {
			t.Error("a session was taken for a login on its way")
		}
	})
}

func FuzzCursor(f *testing.F) {
	f.Add(position{1, "acme", "paris-07"}.cursor())
	f.Add("e30")
	f.Add("")
	f.Add("bnVsbA")
	f.Fuzz(func(t *testing.T, s string) {
		at, err := parseCursor(s)
		if err != nil {
			return
		}
		again, err := parseCursor(at.cursor())
		if err != nil || again != at {
			t.Errorf("%q → %+v → %+v, %v", s, at, again, err)
		}
	})
}

func FuzzParams(f *testing.F) {
	f.Add("limit=3&tenant=acme&colour=red")
	f.Add("limit=3&limit=4&x=%ff")
	f.Add("start=1e308&step=1y&time=NaN&query=%00")
	f.Fuzz(func(t *testing.T, raw string) {
		in, err := parseQueryString(raw)
		if err != nil {
			return
		}
		for _, known := range [][]param{siteList, instantQuery, rangeQuery, virtualSiteItem, nil} {
			q, err := checked(in, known)
			if err != nil {
				continue
			}
			for name, v := range q {
				if len(v) != 1 || !slices.ContainsFunc(known, func(p param) bool { return p.name == name }) {
					t.Errorf("%q let %s=%q through", raw, name, v)
				}
			}
		}
	})
}
