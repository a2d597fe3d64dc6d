package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"muster.dev/muster/internal/oidclogin"
)

const (
	pathOIDC         = "/api/v1/session/oidc"
	pathOIDCCallback = pathOIDC + "/callback"
	loginTime        = 10 * time.Minute
	renewedSessions  = 4096
)

// loginView says how people can log in: to the page, and to `muster login`.
type loginView struct {
	OIDC *oidcView `json:"oidc"` // null: with a token only
}

// oidcView is what a program needs that logs people in itself.
type oidcView struct {
	IssuerURL string   `json:"issuerURL"`
	ClientID  string   `json:"clientID"`
	Scopes    []string `json:"scopes"`
	CA        string   `json:"ca,omitempty"` // PEM; none: the system's
}

func (c *Console) getLogin(w http.ResponseWriter, _ *call) error {
	var out loginView
	if o := c.opt.OIDC; o != nil {
		out.OIDC = &oidcView{IssuerURL: o.IssuerURL, ClientID: cmp.Or(c.opt.CLIClientID, o.ClientID), Scopes: o.Scopes, CA: string(o.CAPEM)}
		if len(c.opt.CLIScopes) > 0 {
			out.OIDC.Scopes = c.opt.CLIScopes
		}
	}
	return writeJSON(w, http.StatusOK, out)
}

// kubernetesView is where the Kubernetes API is, for the kubeconfig of `muster login`.
type kubernetesView struct {
	Server string `json:"server"`
	CA     string `json:"ca,omitempty"`
}

func (c *Console) getKubernetes(w http.ResponseWriter, _ *call) error {
	ca, err := c.kubernetesCA()
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, kubernetesView{Server: c.opt.RestConfig.Host, CA: string(ca)})
}

// kubernetesCA is who has signed the certificate of the Kubernetes API, in PEM; none: one
// that the system knows.
func (c *Console) kubernetesCA() ([]byte, error) {
	ca := c.opt.RestConfig.CAData
	if c.opt.KubernetesCA != nil {
		ca = c.opt.KubernetesCA()
	}
	if len(ca) == 0 && c.opt.RestConfig.CAFile != "" {
		return os.ReadFile(c.opt.RestConfig.CAFile)
	}
	return ca, nil
}

// loginAttempt is what the browser keeps, sealed, while it is at the identity provider:
// only the browser that set out can come back.
type loginAttempt struct {
	oidclogin.Attempt
	Return  string `json:"r"` // path of the page to go on with
	Expires int64  `json:"e"` // Unix seconds
}

// attemptCookie has one name an attempt, so that two tabs don't disturb each other.
func attemptCookie(state string) string {
	return loginCookie + oidclogin.Fingerprint(state)[:8]
}

func (c *Console) redirectURL() string { return c.external.String() + pathOIDCCallback }

// beginOIDC sends the browser to the identity provider.
func (c *Console) beginOIDC(w http.ResponseWriter, cl *call) error {
	if c.oidc == nil {
		return notFound("logging in with an identity provider is not configured; set oidc.issuerURL")
	}
	a := loginAttempt{Attempt: oidclogin.NewAttempt(), Return: localPath(cl.q.Get("return")), Expires: c.now().Add(loginTime).Unix()}
	target, err := c.oidc.client.AuthURL(cl.Context(), c.redirectURL(), a.Attempt)
	if err != nil {
		c.log.Warn("the identity provider can't be reached", "err", err)
		return c.backToLogin(w, cl, "unavailable")
	}
	value, err := c.seal.seal(forLogin, a)
	if err != nil {
		return err
	}
	// Lax: the way back begins at the identity provider's site.
	http.SetCookie(w, c.cookie(cl.Request, attemptCookie(a.State), value, int(loginTime/time.Second), http.SameSiteLaxMode))
	http.Redirect(w, cl.Request, target, http.StatusSeeOther)
	return nil
}

// finishOIDC is where the identity provider sends the browser back to.
func (c *Console) finishOIDC(w http.ResponseWriter, cl *call) error {
	if c.oidc == nil {
		return notFound("logging in with an identity provider is not configured; set oidc.issuerURL")
	}
	state := cl.q.Get("state")
	kept, err := cl.Cookie(c.cookieName(cl.Request, attemptCookie(state)))
	var a loginAttempt
	if err != nil || c.seal.open(forLogin, kept.Value, &a) != nil || !a.Answers(state) || c.now().Unix() >= a.Expires {
		// Somebody else's answer, or one that came too late.
		c.met.logins.WithLabelValues("refused").Inc()
		return c.backToLogin(w, cl, "expired")
	}
	http.SetCookie(w, c.cookie(cl.Request, attemptCookie(state), "", -1, http.SameSiteLaxMode))
	if why := cl.q.Get("error"); why != "" {
		c.log.Info("the identity provider refused a login", "error", printable(why), "description", printable(cl.q.Get("error_description")))
		c.met.logins.WithLabelValues("refused").Inc()
		return c.backToLogin(w, cl, "denied")
	}
	tokens, err := c.oidc.client.Exchange(cl.Context(), c.redirectURL(), cl.q.Get("code"), a.Attempt)
	if err != nil {
		c.log.Warn("login with the identity provider failed", "err", err)
		c.met.logins.WithLabelValues("failed").Inc()
		if errors.Is(err, oidclogin.ErrRefused) {
			return c.backToLogin(w, cl, "failed")
		}
		return c.backToLogin(w, cl, "unavailable")
	}
	// The API server has the last word on the token, as on every other.
	if _, err := c.auth.review(cl.Context(), tokens.IDToken, c.proxies.client(cl.Request)); err != nil {
		c.met.logins.WithLabelValues(loginResult(err)).Inc()
		c.log.Warn("the API server does not accept the identity provider's token", "err", err)
		if asProblem(err, "").Status == http.StatusServiceUnavailable {
			return c.backToLogin(w, cl, "unavailable")
		}
		return c.backToLogin(w, cl, "refused")
	}
	s := session{Token: tokens.IDToken, Expires: c.now().Add(c.opt.SessionTTL).Unix()}
	s.renewedWith(tokens, c.now())
	if err := c.keepSession(w, cl.Request, s); err != nil {
		c.log.Warn("the identity provider's tokens don't fit into a session; ask it for fewer claims", "err", err, "idToken", len(tokens.IDToken), "refreshToken", len(tokens.RefreshToken))
		return c.backToLogin(w, cl, "failed")
	}
	c.met.logins.WithLabelValues("accepted").Inc()
	http.Redirect(w, cl.Request, a.Return, http.StatusSeeOther)
	return nil
}

// backToLogin shows the login page with one of the reasons that it knows. The reason is
// behind the #, so that it is in no log.
func (c *Console) backToLogin(w http.ResponseWriter, cl *call, reason string) error {
	http.Redirect(w, cl.Request, "/#login="+reason, http.StatusSeeOther)
	return nil
}

// localPath lets nobody use a login to send people elsewhere.
func localPath(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, "/") ||
		strings.HasPrefix(s, "//") || strings.ContainsAny(s, "\\\r\n\t") || strings.HasPrefix(u.Path, apiPrefix) {
		return "/"
	}
	return (&url.URL{Path: u.Path, RawQuery: u.RawQuery}).String()
}

// oidcSessions keeps sessions of the identity provider alive.
type oidcSessions struct {
	client *oidclogin.Client
	flight singleflight.Group
	// renewed is by refresh token: a page sends many requests at once with the cookie
	// that it has, and providers let a refresh token be used once.
	renewed *lru.Cache[string, renewal]
}

type renewal struct {
	tokens oidclogin.Tokens
	err    error
	at     time.Time
}

// stands tells whether there is no reason yet to ask again.
func (r renewal) stands(now time.Time) bool {
	if r.err != nil {
		return now.Sub(r.at) < retryRenewal
	}
	return now.Before(oidclogin.RenewAt(r.at, r.tokens.Expires))
}

func newOIDCSessions(client *oidclogin.Client) *oidcSessions {
	renewed, err := lru.New[string, renewal](renewedSessions)
	if err != nil {
		panic(err) // only for a size below one
	}
	return &oidcSessions{client: client, renewed: renewed}
}

func (s *session) renewedWith(t oidclogin.Tokens, now time.Time) {
	s.Token, s.Subject, s.TokenExpires = t.IDToken, t.Subject, t.Expires.Unix()
	if t.RefreshToken != "" {
		s.Refresh, s.RenewAt = t.RefreshToken, oidclogin.RenewAt(now, t.Expires).Unix()
	}
}

// endAtProvider revokes the session's refresh token, and says how that went and where the
// browser ends its session with the provider; "": nowhere.
func (c *Console) endAtProvider(ctx context.Context, s session) (revoked, endURL string) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	revoked = "no refresh token"
	if s.Refresh != "" {
		key := oidclogin.Fingerprint(s.Refresh)
		// The cookie may be older than the last refresh. Who kept a copy of it gets no
		// more out of what that brought.
		if r, ok := c.oidc.renewed.Get(key); ok && r.err == nil && r.tokens.RefreshToken != "" {
			s.Refresh, s.Token = r.tokens.RefreshToken, r.tokens.IDToken
		}
		c.oidc.renewed.Add(key, renewal{err: fmt.Errorf("%w: logged out", oidclogin.ErrRefused), at: c.now()})
		offered, err := c.oidc.client.Revoke(ctx, s.Refresh)
		switch {
		case err != nil:
			revoked = "failed: " + err.Error()
		case offered:
			revoked = "yes"
		default:
			revoked = "not offered by the identity provider"
		}
	}
	endURL, err := c.oidc.client.EndSessionURL(ctx, s.Token, c.external.String()+"/")
	if err != nil {
		c.log.Warn("the identity provider can't be asked where its sessions end", "err", err)
	}
	return revoked, endURL
}

// retryRenewal is how long a failure to refresh stands while the token is still good.
const retryRenewal = 15 * time.Second

// renew returns the session with a token that is good for a while, and whether it is a
// new one. Before the token's end a failure changes nothing: it is tried again.
func (c *Console) renew(ctx context.Context, s session) (session, bool, error) {
	now := c.now()
	if c.oidc == nil || s.Refresh == "" || now.Unix() < s.RenewAt {
		return s, false, nil
	}
	key := oidclogin.Fingerprint(s.Refresh)
	r, ok := c.oidc.renewed.Get(key)
	if !ok || !r.stands(now) {
		done := c.oidc.flight.DoChan(key, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
			defer cancel()
			tokens, err := c.oidc.client.Refresh(ctx, s.Refresh, s.Subject)
			r := renewal{tokens: tokens, err: err, at: c.now()}
			if err != nil {
				c.log.Info("a session was not refreshed", "err", err)
			}
			c.oidc.renewed.Add(key, r)
			return r, nil
		})
		select {
		case <-ctx.Done():
			return s, false, ctx.Err()
		case res := <-done:
			r = res.Val.(renewal)
		}
	}
	switch {
	case r.err == nil:
		s.renewedWith(r.tokens, r.at)
		return s, true, nil
	case now.Unix() < s.TokenExpires:
		return s, false, nil
	case errors.Is(r.err, oidclogin.ErrRefused):
		return s, false, errExpired
	}
	return s, false, unavailable(r.err, "the identity provider can't be asked to prolong your session")
}
