// Package members knows which regionals keep their logs in the same store: each enters
// its name in the store's state, and reads the others'. Log rules look at the sites of
// all of them, since any one of them may be the one that evaluates.
//
// It evaluates nothing. cmd/internal/regional runs a List beside the log rules.
package members

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"muster.dev/muster/alerting/logrules"
)

const (
	key    = "regionals"
	every  = time.Minute
	retry  = 5 * time.Second
	renew  = time.Hour           // between entries of the own name
	forget = 30 * 24 * time.Hour // a regional not heard of for so long has left
)

// List is the members as this process knows them. Safe for concurrent use.
type List struct {
	name  string
	state logrules.State

	mu    sync.RWMutex
	names map[string]bool // nil: not known yet
}

// New makes the list of the store whose state it is; name is the own regional's.
func New(name string, state logrules.State) *List { return &List{name: name, state: state} }

// Known says whether the store has been read. Before, nobody may conclude from the list:
// to an owner that knows only itself the others' sites would be gone, with their alerts
// and all that is known of them.
func (l *List) Known() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.names != nil
}

// Has says whether a regional keeps its logs in the store.
func (l *List) Has(regional string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.names[regional]
}

// Run keeps the list until ctx ends; failed is told of what goes wrong, which is tried again.
func (l *List) Run(ctx context.Context, failed func(error)) error {
	for {
		wait := every
		if err := l.enter(ctx); err != nil {
			failed(err)
			wait = retry
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// enter writes the own name, once an hour, and reads the others'.
func (l *List) enter(ctx context.Context) error {
	entries := map[string]time.Time{}
	b, version, err := l.state.Get(ctx, key)
	if err != nil && !errors.Is(err, logrules.ErrNoState) {
		return err
	}
	if err == nil {
		if err := json.Unmarshal(b, &entries); err != nil {
			return fmt.Errorf("the list of regionals on this log store: %w", err)
		}
	}
	if entries == nil { // null
		entries = map[string]time.Time{}
	}
	now := time.Now().UTC()
	if now.Sub(entries[l.name]) > renew {
		entries[l.name] = now
		for name, at := range entries {
			if now.Sub(at) > forget {
				delete(entries, name)
			}
		}
		if b, err = json.Marshal(entries); err != nil {
			return err
		}
		if _, err := l.state.Put(ctx, key, b, version); err != nil {
			return err
		}
	}
	names := map[string]bool{l.name: true}
	for name := range entries {
		names[name] = true
	}
	l.mu.Lock()
	l.names = names
	l.mu.Unlock()
	return nil
}
