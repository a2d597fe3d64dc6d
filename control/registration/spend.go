package registration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
)

// ledger counts uses of tokens. Requests for one token that wait at the same time
// are counted in one write: a hundred machines that register at once cost a few
// writes of their token, not a hundred, one after the other.
type ledger struct {
	mu     sync.Mutex
	queues map[client.ObjectKey][]*spending // present: somebody works on it
}

// spending is one request: a use taken (+1) or given back (-1).
type spending struct {
	n    int32
	done chan struct{}
	rt   *v1alpha1.RegistrationToken
	err  error
}

// spend counts one use of the token more (or less, to give one back) and returns
// the token as it is then. Requests to this process queue for the token; against
// other replicas the API server's optimistic concurrency decides. It does not heed
// a deadline of the caller: a use that was counted must be known to be.
func (s *Service) spend(rt *v1alpha1.RegistrationToken, n int32) (*v1alpha1.RegistrationToken, error) {
	key, me := client.ObjectKeyFromObject(rt), &spending{n: n, done: make(chan struct{})}
	s.ledger.mu.Lock()
	if s.ledger.queues == nil {
		s.ledger.queues = map[client.ObjectKey][]*spending{}
	}
	_, busy := s.ledger.queues[key]
	s.ledger.queues[key] = append(s.ledger.queues[key], me)
	s.ledger.mu.Unlock()
	if !busy {
		go s.settle(key)
	}
	<-me.done
	return me.rt, me.err
}

// settle works until nobody waits for the token.
func (s *Service) settle(key client.ObjectKey) {
	for {
		s.ledger.mu.Lock()
		batch := s.ledger.queues[key]
		if len(batch) == 0 {
			delete(s.ledger.queues, key)
			s.ledger.mu.Unlock()
			return
		}
		s.ledger.queues[key] = nil
		s.ledger.mu.Unlock()

		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := s.settleBatch(ctx, key, batch); err != nil {
			for _, b := range batch {
				b.rt, b.err = nil, err
			}
		}
		cancel()
		for _, b := range batch {
			close(b.done)
		}
	}
}

// settleBatch fills in each request's outcome; an error is everybody's.
func (s *Service) settleBatch(ctx context.Context, key client.ObjectKey, batch []*spending) error {
	for try := 0; ; try++ {
		cur := &v1alpha1.RegistrationToken{}
		if err := s.opts.Client.Get(ctx, key, cur); err != nil {
			if apierrors.IsNotFound(err) {
				return badToken() // deleted since the secret was checked
			}
			return fmt.Errorf("read token %s: %w", key, err)
		}
		if !s.count(cur, batch) {
			return nil
		}
		err := s.opts.Client.Status().Update(ctx, cur)
		if err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) || try >= 20 {
			return fmt.Errorf("count uses of token %s: %w", key, err)
		}
		select {
		case <-time.After(rand.N(time.Duration(try+1) * 10 * time.Millisecond)):
		case <-ctx.Done():
			return fmt.Errorf("count uses of token %s: %w", key, ctx.Err())
		}
	}
}

// count applies the batch, in order, to the token in memory; false: nothing to write.
func (s *Service) count(cur *v1alpha1.RegistrationToken, batch []*spending) bool {
	changed := false
	for _, b := range batch {
		b.rt, b.err = cur, nil
		if b.n > 0 {
			if b.err = s.usable(cur); b.err != nil {
				continue
			}
			now := metav1.NewTime(s.opts.Now())
			cur.Status.LastUsed = &now
		}
		cur.Status.Uses = max(cur.Status.Uses+b.n, 0)
		changed = true
	}
	cur.Status.State = "Active"
	if cur.Spec.MaxUses > 0 && cur.Status.Uses >= cur.Spec.MaxUses {
		cur.Status.State = "Exhausted"
	}
	return changed
}
