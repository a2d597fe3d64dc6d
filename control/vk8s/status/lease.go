package status

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

type leaseKey struct{}

// leased is the context of a request that may hold decoded objects (lease) until its end.
func (h *server) leased(ctx context.Context) (_ context.Context, end func()) {
	scope, _ := h.o.Scope(ctx)
	held := &atomic.Int64{}
	return context.WithValue(ctx, leaseKey{}, held), func() {
		if n := held.Load(); n > 0 {
			h.lists.GiveN(scope.Tenant, int(n))
		}
	}
}

// lease takes what items take, decoded, until the answer to the request is written.
func (h *server) lease(ctx context.Context, items []*item) error {
	held, ok := ctx.Value(leaseKey{}).(*atomic.Int64)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("a list without a lease"))
	}
	n := 0
	for _, it := range items {
		n += it.decoded
	}
	if n == 0 {
		return nil
	}
	scope, _ := h.o.Scope(ctx)
	if !h.lists.TakeN(scope.Tenant, n) {
		return apierrors.NewTooManyRequests(fmt.Sprintf("lists of tenant %s that are being answered take as much memory as they may (%d MiB, shared by all tenants)", scope.Tenant, h.listBytes>>20), listSeconds)
	}
	held.Add(int64(n))
	return nil
}

// listSeconds is after how long somebody whose list had no room may ask again.
const listSeconds = 2
