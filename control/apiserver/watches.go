package apiserver

import (
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"muster.dev/muster/internal/fairshare"
)

const (
	// MaxWatches bounds the watches that are open at once, of all who aren't Muster's own.
	// A tenant has as many as it leaves free.
	MaxWatches = 4096
	// MaxWatchesEach bounds those of one person or service account.
	MaxWatchesEach = 512
	// watchSeconds is after how long somebody who may open no more may ask again.
	watchSeconds = 10
)

// watches counts the watches that are open. Priority and fairness forgets each once it has
// begun, and it costs memory as long as it lasts.
type watches struct {
	shares *fairshare.Shares

	mu   sync.Mutex
	each map[string]int // by name of user
}

func newWatches() *watches {
	return &watches{shares: fairshare.NewShares(MaxWatches), each: map[string]int{}}
}

// begin counts one more of a user, until end is called. Whoever is of no tenant has a share
// of their own.
func (w *watches) begin(user, tenant string) (end func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.each[user] >= MaxWatchesEach {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("%s has %d watches open, which is as many as one user may; close some", user, MaxWatchesEach), watchSeconds)
	}
	share := "tenant " + tenant
	if tenant == "" {
		share = "user " + user
	}
	if !w.shares.Take(share) {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("%s has as many watches open as it may, of %d in all: as many as it leaves free for others; close some", share, MaxWatches), watchSeconds)
	}
	w.each[user]++
	return func() {
		w.shares.Give(share)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.each[user]--; w.each[user] == 0 {
			delete(w.each, user)
		}
	}, nil
}
