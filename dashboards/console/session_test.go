package console

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
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
			o.SessionKey, o.Registerer = bytes.Repeat([]byte{key}, 32), nil
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
	h := newHarness(t, func(o *Options, _ *timing) { o.SecureCookies = true })
	if c := h.want(204, "", "POST", "/api/v1/session", `{"token":"token-alice"}`).Cookies()[0]; !c.Secure {
		t.Errorf("cookie: %v", c)
	}
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

func TestGuessingTokensIsSlow(t *testing.T) {
	h := newHarness(t)
	guess := func(i int) string { return fmt.Sprintf(`{"token":"guess-%d"}`, i) }
	for i := range failuresBurst {
		h.want(401, "", "POST", "/api/v1/session", guess(i))
	}
	before := h.api.count("token")
	a := h.want(429, "", "POST", "/api/v1/session", guess(100))
	if a.Header.Get("Retry-After") == "" {
		t.Error("429 without Retry-After")
	}
	h.want(429, "guess-101", "GET", "/api/v1/session", "")
	if n := h.api.count("token") - before; n != 0 {
		t.Errorf("%d reviews while limited", n)
	}
	h.clock.advance(failureRefill)
	h.want(401, "", "POST", "/api/v1/session", guess(102))
	h.want(429, "", "POST", "/api/v1/session", guess(103))
	h.clock.advance(10 * failureRefill)
	h.want(204, "", "POST", "/api/v1/session", `{"token":"token-alice"}`)
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

func TestFailureLimiterAddresses(t *testing.T) {
	l := newFailureLimiter(time.Now)
	fail := func(addr string, n int) {
		for i := range n {
			l.failed(netip.MustParseAddr(addr), fmt.Sprint(addr, i))
		}
	}
	fail("2001:db8::1", 5)
	fail("2001:db8::ffff:2", 5)
	fail("192.0.2.1", 9)
	fail("::ffff:192.0.2.1", 1)
	for addr, limited := range map[string]bool{"2001:db8::9": true, "2001:db8:0:1::1": false, "192.0.2.1": true, "192.0.2.2": false} {
		if got := l.wait(netip.MustParseAddr(addr)) > 0; got != limited {
			t.Errorf("%s: limited %t, want %t", addr, got, limited)
		}
	}
	if l.wait(netip.Addr{}) != 0 {
		t.Error("no address is limited")
	}
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
			if p := a.problem(t); p.Type != typeCrossOrigin {
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

func TestTrustedOrigins(t *testing.T) {
	h := newHarness(t, func(o *Options, _ *timing) { o.TrustedOrigins = []string{"https://muster.example.com"} })
	h.want(204, "", "POST", "/api/v1/session", `{"token":"token-alice"}`, "Origin", "https://muster.example.com")
	h.want(403, "", "POST", "/api/v1/session", `{"token":"token-alice"}`, "Origin", "https://other.example.com")
	if _, err := New(Options{RestConfig: h.api.config(), HealthURL: h.con.opt.HealthURL, SessionKey: make([]byte, 32), TrustedOrigins: []string{"muster.example.com"}}); err == nil {
		t.Error("an origin without a scheme was taken")
	}
}

func TestTokenTooLongForACookie(t *testing.T) {
	h := newHarness(t)
	long := strings.Repeat("l", 3500)
	h.api.mu.Lock()
	h.api.users[long] = h.api.users["token-alice"]
	h.api.mu.Unlock()
	if p := h.want(400, "", "POST", "/api/v1/session", `{"token":"`+long+`"}`).problem(t); p.Errors[0].Field != "token" {
		t.Errorf("%+v", p)
	}
	h.want(200, "", "GET", "/api/v1/session", "", "Authorization", "bearer "+long)
}

func TestSessionKeyFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "console")
	var wg sync.WaitGroup
	keys := make([][]byte, 8)
	for i := range keys {
		wg.Go(func() {
			var err error
			if keys[i], err = loadSessionKey(dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, k := range keys {
		if len(k) != 32 || !bytes.Equal(k, keys[0]) {
			t.Fatal("processes that start together have different keys")
		}
	}
	path := filepath.Join(dir, sessionKeyFile)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := loadSessionKey(dir); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that all can read: %v", err)
	}
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = os.Chmod(path, 0o600)
	if _, err := loadSessionKey(dir); err == nil || !strings.Contains(err.Error(), "5 bytes") {
		t.Errorf("a torn key: %v", err)
	}
}

func TestForgottenIdentityIsAnError(t *testing.T) {
	h := newHarness(t)
	if _, err := h.con.kube.user.Get().AbsPath("/apis").DoRaw(context.Background()); err == nil || !strings.Contains(err.Error(), errNobody.Error()) {
		t.Errorf("a request without its user was sent: %v", err)
	}
}

func FuzzCookie(f *testing.F) {
	s, err := newSealer(make([]byte, 32), time.Now)
	if err != nil {
		f.Fatal(err)
	}
	for _, token := range []string{"a", strings.Repeat("x", 1000)} {
		v, err := s.seal(sealedSession{Token: token, Expires: time.Now().Add(time.Hour).Unix()})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(v)
		f.Add(v[:len(v)/2])
	}
	f.Add("")
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, value string) {
		v, err := s.open(value)
		if err != nil && v.Token != "" {
			t.Errorf("open failed but returned a token")
		}
		if err == nil && v.Token != "a" && v.Token != strings.Repeat("x", 1000) {
			t.Errorf("a value that was never sealed was opened: %q", value)
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
