package console

import (
	"errors"
	"net/http"
	"strings"
	"time"
)

// session is what the cookie holds, encrypted and authenticated. There is no list of
// sessions: any console with the key can open it, and the token inside is reviewed
// again with each request.
type session struct {
	Token   string `json:"t"`
	Expires int64  `json:"e"` // Unix seconds; nothing prolongs it
	// The rest is there for a login with an identity provider that lets us refresh.
	Refresh      string `json:"r,omitempty"`
	Subject      string `json:"s,omitempty"`
	TokenExpires int64  `json:"x,omitempty"`
	RenewAt      int64  `json:"n,omitempty"`
}

type loginRequest struct {
	Token string `json:"token"`
}

type sessionView struct {
	User    string   `json:"user"`
	Groups  []string `json:"groups"`
	Tenants []string `json:"tenants"` // that the user may read
}

// postSession trades a token for a cookie. The token travels sealed inside it.
func (c *Console) postSession(w http.ResponseWriter, cl *call) error {
	var in loginRequest
	if err := readJSON(cl.Request, &in, false); err != nil {
		return err
	}
	token := strings.TrimSpace(in.Token)
	if token == "" {
		return invalid("token", "is missing; paste the token from admin.token or of a service account")
	}
	if len(token) > maxTokenBytes {
		return invalid("token", "is too long")
	}
	if _, err := c.auth.review(cl.Context(), token, c.proxies.client(cl.Request)); err != nil {
		c.met.logins.WithLabelValues(loginResult(err)).Inc()
		return err
	}
	err := c.keepSession(w, cl.Request, session{Token: token, Expires: c.now().Add(c.opt.SessionTTL).Unix()})
	if errors.Is(err, errCookieSpace) {
		return invalid("token", "is too long for a session's cookies; send it as Authorization: Bearer instead")
	}
	if err != nil {
		return err
	}
	c.met.logins.WithLabelValues("accepted").Inc()
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// loginResult is the label under which a failed login is counted.
func loginResult(err error) string {
	switch asProblem(err, "").Status {
	case http.StatusUnauthorized:
		return "refused"
	case http.StatusTooManyRequests:
		return "limited"
	}
	return "failed"
}

// keepSession seals s into the browser's cookies.
func (c *Console) keepSession(w http.ResponseWriter, r *http.Request, s session) error {
	value, err := c.seal.seal(forSession, s)
	if err != nil {
		return err
	}
	return c.setSession(w, r, value, int(time.Unix(s.Expires, 0).Sub(c.now())/time.Second))
}

// openSession returns the session of the request's cookies.
func (c *Console) openSession(r *http.Request) (session, error) {
	var s session
	value, ok := c.sessionValue(r)
	if !ok {
		return s, http.ErrNoCookie
	}
	if err := c.seal.open(forSession, value, &s); err != nil || s.Token == "" {
		return session{}, errNotOurs
	}
	if c.now().Unix() >= s.Expires {
		return session{}, errExpired
	}
	return s, nil
}

// getSession tells who the user is and what the user may read.
func (c *Console) getSession(w http.ResponseWriter, cl *call) error {
	set, err := c.access.all(cl.Context(), cl.id)
	if err != nil {
		return err
	}
	groups := cl.id.groups
	if groups == nil {
		groups = []string{}
	}
	return writeJSON(w, http.StatusOK, sessionView{User: cl.id.name, Groups: groups, Tenants: set.names})
}

// logoutView says where the browser has to go to be logged out of the identity provider
// too.
type logoutView struct {
	EndSessionURL string `json:"endSessionURL"`
}

// deleteSession makes the browser forget the cookie, whatever else fails, and has the
// identity provider forget the session, where it offers that. A token that was pasted
// stays valid. It works with an expired session too.
func (c *Console) deleteSession(w http.ResponseWriter, cl *call) error {
	c.dropSession(w, cl.Request)
	var s session
	if value, ok := c.sessionValue(cl.Request); !ok || c.seal.open(forSession, value, &s) != nil || s.Token == "" {
		w.WriteHeader(http.StatusNoContent) // there was none
		return nil
	}
	revoked, end := "no refresh token", ""
	if c.oidc != nil && s.Subject != "" {
		revoked, end = c.endAtProvider(cl.Context(), s)
	}
	// What happened belongs to the record of who did what, beside the API server's own.
	c.log.Info("a user logged out", "audit", "logout", "subject", s.Subject, "from", c.proxies.client(cl.Request), "revoked", revoked)
	if end == "" {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return writeJSON(w, http.StatusOK, logoutView{EndSessionURL: end})
}
