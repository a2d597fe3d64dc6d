package console

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/internal/wire"
)

const (
	maxTokenBytes = 16 << 10
	cachedTokens  = 4096
	anonymous     = "system:anonymous"
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
	lane    *lane
}

func newAuthenticator(k *kube, tm timing, now func() time.Time, met *instruments) *authenticator {
	return &authenticator{kube: k, met: met, limiter: newFailureLimiter(now), lane: newLane(),
		cache: newReviewCache(cachedTokens, now, tm.outageGrace, func(v verdict) (time.Duration, bool) {
			if v.ok {
				return tm.goodFor, true
			}
			return tm.badFor, false
		})}
}

// review returns the identity behind the token, or a problem. from is the address
// that a wrong token is counted against; the zero address counts nothing. A good token
// passes however many wrong ones came from the same address: where those are many, it
// waits for its turn.
func (a *authenticator) review(ctx context.Context, token string, from netip.Addr) (identity, error) {
	sum := sha256.Sum256([]byte(token))
	key := string(sum[:])
	v, hit := a.cache.fresh(key)
	if hit {
		a.met.reviews.WithLabelValues("token", "cached").Inc()
	} else {
		suspect := a.limiter.wait(from) > 0 && !a.cache.wasGood(key)
		var err error
		v, err = a.cache.get(ctx, key, func(ctx context.Context) (v verdict, err error) {
			if !suspect {
				return a.ask(ctx, token)
			}
			if turn := a.lane.do(ctx, sourceOf(from), func() error { v, err = a.ask(ctx, token); return err }); turn != nil {
				return verdict{}, turn
			}
			return v, nil
		})
		if errors.Is(err, errBusy) {
			return identity{}, a.limited(max(a.limiter.wait(from), time.Second))
		}
		if err != nil {
			a.met.reviews.WithLabelValues("token", "failed").Inc()
			return identity{}, unavailable(err, "the API server can't be asked who you are; it may be starting")
		}
	}
	if !v.ok {
		if wait := a.limiter.failed(from, key); wait > 0 {
			return identity{}, a.limited(wait)
		}
		a.met.reviews.WithLabelValues("token", "refused").Inc()
		return identity{}, unauthenticated("the API server doesn't accept this token; it may have expired or been revoked")
	}
	if !hit {
		a.met.reviews.WithLabelValues("token", "accepted").Inc()
	}
	return v.id, nil
}

func (a *authenticator) limited(wait time.Duration) *problem {
	a.met.reviews.WithLabelValues("token", "limited").Inc()
	p := newProblem(http.StatusTooManyRequests, wire.ProblemLimited, "this token is not accepted, and there were too many wrong ones; try again in %s", wait)
	p.RetryAfter = int(wait / time.Second)
	return p
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
	session    session // from the cookie
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
	s, err := c.openSession(r)
	switch {
	case errors.Is(err, http.ErrNoCookie):
		return credential{}, unauthenticated("log in with POST /api/v1/session, or send the header Authorization: Bearer TOKEN")
	case errors.Is(err, errExpired):
		return credential{fromCookie: true}, unauthenticated("the session has expired; log in again")
	case err != nil:
		return credential{fromCookie: true}, unauthenticated("the session cookie is not one of this console; log in again")
	}
	return credential{token: s.Token, fromCookie: true, session: s}, nil
}

// authenticate finds out who asks. A session of an identity provider is prolonged on the
// way. On a cookie that is no good it tells the browser to forget it.
func (c *Console) authenticate(w http.ResponseWriter, r *http.Request) (identity, credential, error) {
	cred, err := c.credentialOf(r)
	if err == nil && cred.fromCookie {
		cred, err = c.renewed(w, r, cred)
	}
	var id identity
	if err == nil {
		var from netip.Addr // of a cookie's token: sealed by us, so nobody is guessing
		if !cred.fromCookie {
			from = c.proxies.client(r)
		}
		id, err = c.auth.review(r.Context(), cred.token, from)
	}
	// A session with a refresh token is left alone: another console may have prolonged
	// it this moment, and taking the cookie back would take that one.
	if err != nil && cred.fromCookie && cred.session.Refresh == "" && asProblem(err, "authentication").Status == http.StatusUnauthorized {
		c.dropSession(w, r)
	}
	return id, cred, err
}

func (c *Console) renewed(w http.ResponseWriter, r *http.Request, cred credential) (credential, error) {
	s, fresh, err := c.renew(r.Context(), cred.session)
	switch {
	case errors.Is(err, errExpired):
		return cred, unauthenticated("the identity provider has ended the session; log in again")
	case err != nil:
		return cred, err
	case fresh:
		if err := c.keepSession(w, r, s); err != nil {
			return cred, err
		}
		cred.token, cred.session = s.Token, s
	}
	return cred, nil
}
