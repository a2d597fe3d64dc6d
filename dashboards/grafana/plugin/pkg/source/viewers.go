package source

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
	"time"
)

// Bounds on what is remembered of viewers. An identity provider's tokens end sooner.
const (
	maxViewers = 5000
	viewerFor  = 24 * time.Hour
)

// errViewer says that a channel is another user's, or of a plugin that ran before.
var errViewer = errors.New("this channel belongs to somebody else, or the plugin began anew: load the dashboard again")

// viewers are the users whose identity Grafana has forwarded. Grafana forwards it with queries and
// runs one stream a channel for all who listen, without anybody's: so each user has channels of
// their own, whose names others can't guess, and the stream asks with what came with their last query.
type viewers struct {
	secret []byte
	now    func() time.Time

	mu  sync.Mutex
	all map[string]viewer // by key
}

type viewer struct {
	login, authorization string
	seen                 time.Time
}

func newViewers() *viewers {
	return &viewers{secret: []byte(rand.Text()), now: time.Now, all: map[string]viewer{}}
}

// remember keeps what a user's requests are to be made with, and returns the key of their channels.
func (v *viewers) remember(login, authorization string) (string, error) {
	if login == "" {
		return "", errNoIdentity
	}
	h := hmac.New(sha256.New, v.secret)
	h.Write([]byte(login))
	key := hex.EncodeToString(h.Sum(nil)[:16])
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.now()
	if _, known := v.all[key]; !known && len(v.all) >= maxViewers {
		oldest := ""
		for k, w := range v.all {
			if oldest == "" || w.seen.Before(v.all[oldest].seen) {
				oldest = k
			}
		}
		delete(v.all, oldest)
	}
	v.all[key] = viewer{login, authorization, now}
	return key, nil
}

// authorization of the user whose channels have the key, if that is who asks.
func (v *viewers) authorization(key, login string) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	w, ok := v.all[key]
	if ok && v.now().Sub(w.seen) > viewerFor {
		delete(v.all, key)
		ok = false
	}
	if !ok || login == "" || w.login != login {
		return "", errViewer
	}
	return w.authorization, nil
}
