package console

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	sessionCookie  = "muster_session"
	maxTokenBytes  = 16 << 10
	cachedTokens   = 4096
	failuresBurst  = 10              // wrong tokens from one address before it must wait
	failureRefill  = 6 * time.Second // one more is allowed after this long
	trackedSources = 4096            // addresses with recent failures
	anonymous      = "system:anonymous"
)

// identity is a user as the API server knows it.
type identity struct {
	name   string
	uid    string
	groups []string
	extra  map[string][]string
	key    string // equal for equal identities; for caches
}

type identityKey struct{}

func withIdentity(ctx context.Context, id identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

func identityFrom(ctx context.Context) (identity, bool) {
	id, ok := ctx.Value(identityKey{}).(identity)
	return id, ok
}

func newIdentity(u authnv1.UserInfo) identity {
	id := identity{name: u.Username, uid: u.UID, groups: slices.Clone(u.Groups), extra: map[string][]string{}}
	slices.Sort(id.groups)
	h := sha256.New()
	field := func(s string) { h.Write([]byte(s)); h.Write([]byte{0}) }
	field(id.name)
	field(id.uid)
	for _, g := range id.groups {
		field("g" + g)
	}
	keys := make([]string, 0, len(u.Extra))
	for k, v := range u.Extra {
		id.extra[k] = v
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		field("k" + k)
		for _, v := range u.Extra[k] {
			field("v" + v)
		}
	}
	id.key = string(h.Sum(nil))
	return id
}

// verdict is the API server's word on a token.
type verdict struct {
	ok bool
	id identity
}

// authenticator asks the API server who the bearer of a token is. Tokens are kept
// in memory as hashes only.
type authenticator struct {
	kube    *kube
	met     *instruments
	cache   *reviewCache[verdict]
	limiter *failureLimiter
}

func newAuthenticator(k *kube, tm timing, now func() time.Time, met *instruments) *authenticator {
	return &authenticator{kube: k, met: met, limiter: newFailureLimiter(now),
		cache: newReviewCache(cachedTokens, now, tm.outageGrace, func(v verdict) (time.Duration, bool) {
			if v.ok {
				return tm.goodFor, true
			}
			return tm.badFor, false
		})}
}

// review returns the identity behind the token, or a problem. from is the address
// that a wrong token is counted against; the zero address counts nothing.
func (a *authenticator) review(ctx context.Context, token string, from netip.Addr) (identity, error) {
	sum := sha256.Sum256([]byte(token))
	key := string(sum[:])
	v, hit := a.cache.fresh(key)
	if hit {
		a.met.reviews.WithLabelValues("token", "cached").Inc()
	} else {
		if wait := a.limiter.wait(from); wait > 0 {
			a.met.reviews.WithLabelValues("token", "limited").Inc()
			p := newProblem(http.StatusTooManyRequests, typeLimited, "too many wrong tokens from your address; try again in %s", wait)
			p.retryAfter = int(wait / time.Second)
			return identity{}, p
		}
		var err error
		if v, err = a.cache.get(ctx, key, func(ctx context.Context) (verdict, error) { return a.ask(ctx, token) }); err != nil {
			a.met.reviews.WithLabelValues("token", "failed").Inc()
			return identity{}, unavailable(err, "the API server can't be asked who you are; it may be starting")
		}
	}
	if !v.ok {
		a.limiter.failed(from, key)
		a.met.reviews.WithLabelValues("token", "refused").Inc()
		return identity{}, unauthenticated("the API server doesn't accept this token; it may have expired or been revoked")
	}
	if !hit {
		a.met.reviews.WithLabelValues("token", "accepted").Inc()
	}
	return v.id, nil
}

func (a *authenticator) ask(ctx context.Context, token string) (verdict, error) {
	tr, err := a.kube.tokens.Create(ctx, &authnv1.TokenReview{Spec: authnv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return verdict{}, err
	}
	if u := tr.Status.User; tr.Status.Authenticated && u.Username != "" && u.Username != anonymous {
		return verdict{ok: true, id: newIdentity(u)}, nil
	}
	// status.error is set for a wrong token as well as for an authenticator that can't
	// be reached, so nothing can be told from it: refuse, and ask again soon.
	return verdict{}, nil
}

// credential is what a request authenticates with.
type credential struct {
	token      string
	fromCookie bool
}

// credentialOf takes the bearer token or, without one, the session cookie.
func (c *Console) credentialOf(r *http.Request) (credential, error) {
	if h, ok := r.Header["Authorization"]; ok {
		scheme, token, _ := strings.Cut(h[0], " ")
		token = strings.TrimSpace(token)
		if len(h) != 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
			return credential{}, unauthenticated("the Authorization header must be: Bearer TOKEN")
		}
		if len(token) > maxTokenBytes {
			return credential{}, unauthenticated("the token is too long")
		}
		return credential{token: token}, nil
	}
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return credential{}, unauthenticated("log in with POST /api/v1/session, or send the header Authorization: Bearer TOKEN")
	}
	s, err := c.seal.open(cookie.Value)
	if errors.Is(err, errExpired) {
		return credential{fromCookie: true}, unauthenticated("the session has expired; log in again")
	}
	if err != nil {
		return credential{fromCookie: true}, unauthenticated("the session cookie is not one of this console; log in again")
	}
	return credential{token: s.Token, fromCookie: true}, nil
}

// authenticate finds out who asks. On a cookie that is no good it tells the browser
// to forget it.
func (c *Console) authenticate(w http.ResponseWriter, r *http.Request) (identity, credential, error) {
	cred, err := c.credentialOf(r)
	var id identity
	if err == nil {
		from := c.opt.ClientAddr(r)
		if cred.fromCookie {
			from = netip.Addr{} // sealed by us, so nobody is guessing
		}
		id, err = c.auth.review(r.Context(), cred.token, from)
	}
	if err != nil && cred.fromCookie && asProblem(err, "authentication").Status == http.StatusUnauthorized {
		http.SetCookie(w, c.cookie(r, "", -1))
	}
	return id, cred, err
}

func (c *Console) cookie(r *http.Request, value string, maxAge int) *http.Cookie {
	return &http.Cookie{Name: sessionCookie, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true,
		Secure: r.TLS != nil || c.opt.SecureCookies, SameSite: http.SameSiteStrictMode}
}

func connectionAddr(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr()
}

// failureLimiter slows down who guesses tokens: a bucket of failures an address (an
// IPv6 /64 is one address). The same wrong token again is no new guess: a dashboard
// with an expired token must not lock out the people behind the same address.
type failureLimiter struct {
	now     func() time.Time
	mu      sync.Mutex
	sources *lru.Cache[netip.Prefix, *source]
}

type source struct {
	bucket *rate.Limiter
	last   string // key of the last wrong token
}

func newFailureLimiter(now func() time.Time) *failureLimiter {
	sources, err := lru.New[netip.Prefix, *source](trackedSources)
	if err != nil {
		panic(err) // only for a size below one
	}
	return &failureLimiter{now: now, sources: sources}
}

func sourceOf(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}

// wait returns how long the address must wait before a token is looked at, in whole
// seconds, rounded up; 0 to go on.
func (l *failureLimiter) wait(from netip.Addr) time.Duration {
	if !from.IsValid() {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.sources.Get(sourceOf(from))
	if !ok {
		return 0
	}
	have := s.bucket.TokensAt(l.now())
	if have >= 1 {
		return 0
	}
	return time.Duration((1-have)*failureRefill.Seconds()+1) * time.Second
}

func (l *failureLimiter) failed(from netip.Addr, key string) {
	if !from.IsValid() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := sourceOf(from)
	s, ok := l.sources.Get(p)
	if !ok {
		s = &source{bucket: rate.NewLimiter(rate.Every(failureRefill), failuresBurst)}
		l.sources.Add(p, s)
	}
	if s.last != key {
		s.last = key
		s.bucket.AllowN(l.now(), 1)
	}
}
