package logrules

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

const leaseKey = "logrules/lease"

// errLost says that another process owns the rules now.
var errLost = errors.New("another process has taken the log rules over")

// leaseDoc is what stands in the State.
type leaseDoc struct {
	Owner string        `json:"owner"` // "" once released
	Epoch int64         `json:"epoch"` // grows with each new owner
	TTL   time.Duration `json:"ttl"`
	Beat  int64         `json:"beat"` // grows with each renewal
}

func decodeLease(b []byte) (doc leaseDoc, err error) {
	err = json.Unmarshal(b, &doc)
	doc.TTL = min(max(doc.TTL, 0), time.Hour)
	return doc, err
}

// lease is one owner at a time. Nobody's clock is compared with another's: who wants
// the lease watches it stand still for its TTL by the own clock, as Kubernetes'
// leader election does; who has it trusts it for two thirds of the TTL since it last
// began to renew it.
type lease struct {
	state State
	id    string
	ttl   time.Duration
	now   func() time.Time

	mu      sync.Mutex
	held    bool
	doc     leaseDoc
	version string
	renewed time.Time
	seen    string // the version of another's lease, and since when it stands
	seenAt  time.Time
	others  bool // by the last step, which the State answered
}

func newLease(o Options) *lease {
	return &lease{state: o.State, id: o.Name + "/" + rand.Text()[:8], ttl: o.LeaseTTL, now: o.Now}
}

// epoch returns the epoch if the lease is surely held now.
func (l *lease) epoch() (int64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.doc.Epoch, l.held && l.now().Sub(l.renewed) < l.ttl*2/3
}

// isOthers tells whether another process surely has the lease: no if that is not known.
func (l *lease) isOthers() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.others
}

// step renews the lease, or tries to get it.
func (l *lease) step(ctx context.Context) error {
	err := l.try(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.others = !l.held && (err == nil || errors.Is(err, errLost))
	return err
}

func (l *lease) try(ctx context.Context) error {
	l.mu.Lock()
	held, doc, version := l.held, l.doc, l.version
	l.mu.Unlock()
	if held {
		doc.Beat++
		err := l.put(ctx, doc, version)
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return l.read(ctx, held)
}

// read reads the lease. After a conflict it may still be the own one: a write whose
// answer got lost.
func (l *lease) read(ctx context.Context, held bool) error {
	started := l.now()
	b, version, err := l.state.Get(ctx, leaseKey)
	if errors.Is(err, ErrNoState) {
		return l.put(ctx, leaseDoc{Owner: l.id, Epoch: l.lastEpoch() + 1, TTL: l.ttl}, "")
	}
	if err != nil {
		return fmt.Errorf("read the lease: %w", err)
	}
	doc, err := decodeLease(b)
	if err != nil {
		return fmt.Errorf("read the lease: %w", err)
	}
	l.mu.Lock()
	if held && doc.Owner == l.id && doc.Epoch == l.doc.Epoch {
		l.doc, l.version, l.renewed = doc, version, started
		l.mu.Unlock()
		return nil
	}
	l.held = false
	if version != l.seen {
		l.seen, l.seenAt = version, l.now()
	}
	free := doc.Owner == "" || doc.Owner == l.id || l.now().Sub(l.seenAt) >= max(doc.TTL, l.ttl)
	l.mu.Unlock()
	if held && !free {
		return errLost
	}
	if !free {
		return nil
	}
	err = l.put(ctx, leaseDoc{Owner: l.id, Epoch: doc.Epoch + 1, TTL: l.ttl}, version)
	if errors.Is(err, ErrConflict) {
		return nil // somebody was faster
	}
	return err
}

func (l *lease) lastEpoch() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.doc.Epoch
}

func (l *lease) put(ctx context.Context, doc leaseDoc, version string) error {
	b, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	started := l.now()
	version, err = l.state.Put(ctx, leaseKey, b, version)
	if err != nil {
		return fmt.Errorf("write the lease: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.doc, l.version, l.renewed = doc.Owner != "", doc, version, started
	return nil
}

// release gives the lease up at once, so that another process need not wait.
func (l *lease) release(ctx context.Context) error {
	l.mu.Lock()
	held, doc, version := l.held, l.doc, l.version
	l.held = false
	l.mu.Unlock()
	if !held {
		return nil
	}
	doc.Owner = ""
	return l.put(ctx, doc, version)
}
