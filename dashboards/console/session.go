package console

import (
	"errors"
	"net/http"
	"strings"
	"time"
)

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
	_, err := c.auth.review(cl.Context(), token, c.opt.ClientAddr(cl.Request))
	if err != nil {
		result := "failed"
		switch asProblem(err, "").Status {
		case http.StatusUnauthorized:
			result = "refused"
		case http.StatusTooManyRequests:
			result = "limited"
		}
		c.met.logins.WithLabelValues(result).Inc()
		return err
	}
	value, err := c.seal.seal(sealedSession{Token: token, Expires: c.now().Add(c.opt.SessionTTL).Unix()})
	if errors.Is(err, errCookieSpace) {
		return invalid("token", "is too long for a session cookie; send it as Authorization: Bearer instead")
	}
	if err != nil {
		return err
	}
	c.met.logins.WithLabelValues("accepted").Inc()
	http.SetCookie(w, c.cookie(cl.Request, value, int(c.opt.SessionTTL/time.Second)))
	w.WriteHeader(http.StatusNoContent)
	return nil
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

// deleteSession makes the browser forget the cookie; the token stays valid. It works
// with an expired session too.
func (c *Console) deleteSession(w http.ResponseWriter, cl *call) error {
	http.SetCookie(w, c.cookie(cl.Request, "", -1))
	w.WriteHeader(http.StatusNoContent)
	return nil
}
