package console

import (
	"net/http"
	"strconv"
	"strings"
)

const (
	sessionCookie = "muster_session"
	loginCookie   = "muster_login_"
	// hostPrefix binds a cookie to this very host: browsers take a cookie of this name
	// only over TLS and without a domain, so no neighbour in the domain can plant one.
	hostPrefix = "__Host-"
	// maxChunk leaves room for the name and the attributes in the 4,096 bytes that
	// browsers keep for a cookie. A session of an identity provider may need several.
	maxChunk  = 3800
	maxChunks = 4
	maxSealed = maxChunk * maxChunks
)

// secure tells whether the browser speaks TLS, to us or to a proxy in front.
func (c *Console) secure(r *http.Request) bool {
	return r.TLS != nil || c.external != nil && c.external.Scheme == "https" || c.proxies.https(r)
}

func (c *Console) cookieName(r *http.Request, base string) string {
	if c.secure(r) {
		return hostPrefix + base
	}
	return base
}

func (c *Console) cookie(r *http.Request, base, value string, maxAge int, mode http.SameSite) *http.Cookie {
	return &http.Cookie{Name: c.cookieName(r, base), Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, Secure: c.secure(r), SameSite: mode}
}

func chunkName(i int) string {
	if i == 0 {
		return sessionCookie
	}
	return sessionCookie + "_" + strconv.Itoa(i)
}

// setSession hands the browser a sealed session, in as many cookies as it takes: the
// first says how many, as in "2.…". Cookies left of a longer one are taken back.
func (c *Console) setSession(w http.ResponseWriter, r *http.Request, value string, maxAge int) error {
	if len(value) > maxSealed-2 {
		return errCookieSpace
	}
	if len(value) > maxChunk {
		value = strconv.Itoa((len(value)+2+maxChunk-1)/maxChunk) + "." + value
	}
	for i := range maxChunks {
		part := value[:min(len(value), maxChunk)]
		value = value[len(part):]
		if part != "" {
			http.SetCookie(w, c.cookie(r, chunkName(i), part, maxAge, http.SameSiteStrictMode))
		} else {
			c.dropChunk(w, r, i)
		}
	}
	return nil
}

func (c *Console) dropSession(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, c.cookie(r, sessionCookie, "", -1, http.SameSiteStrictMode))
	for i := 1; i < maxChunks; i++ {
		c.dropChunk(w, r, i)
	}
}

// dropChunk takes a further cookie back if the browser has it.
func (c *Console) dropChunk(w http.ResponseWriter, r *http.Request, i int) {
	if _, err := r.Cookie(c.cookieName(r, chunkName(i))); err == nil {
		http.SetCookie(w, c.cookie(r, chunkName(i), "", -1, http.SameSiteStrictMode))
	}
}

// sessionValue puts the sealed session together again.
func (c *Console) sessionValue(r *http.Request) (string, bool) {
	first, err := r.Cookie(c.cookieName(r, sessionCookie))
	if err != nil {
		return "", false
	}
	count, value, several := strings.Cut(first.Value, ".")
	if !several {
		return first.Value, true
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 2 || n > maxChunks {
		return "", true
	}
	for i := 1; i < n; i++ {
		part, err := r.Cookie(c.cookieName(r, chunkName(i)))
		if err != nil {
			return "", true
		}
		value += part.Value
	}
	return value, true
}
