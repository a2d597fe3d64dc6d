package query

import (
	"context"
	"net/http"
	"testing"

	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/logs/store"
)

// TestSlotsAreShared: searches and tails of one tenant that take for ever leave slots for
// the others.
func TestSlotsAreShared(t *testing.T) {
	entered := make(chan struct{}, 100)
	block := func(ctx context.Context, q store.Query) error {
		if q.Tenant == "greedy" {
			entered <- struct{}{}
			<-ctx.Done()
		}
		return ctx.Err()
	}
	s := stubStore{
		search: func(ctx context.Context, q store.Query) (store.Page, error) { return store.Page{}, block(ctx, q) },
		tail: func(ctx context.Context, q store.Query, _ store.Cursor) (store.TailPage, error) {
			return store.TailPage{Next: "1"}, block(ctx, q)
		},
	}
	srv, a := serve(t, s, func(o *Options) { o.MaxSearches, o.MaxTails = 16, 8 })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for path, want := range map[string]int{PathSearch: 8, PathTail: 4} {
		codes := make(chan int, 16)
		for range 16 {
			go func() {
				req, _ := http.NewRequestWithContext(ctx, "GET", srv.URL+path, nil)
				req.Header.Set(wire.TenantHeader, "greedy")
				res, err := srv.Client().Do(req)
				if err != nil {
					return
				}
				_ = res.Body.Close()
				codes <- res.StatusCode
			}()
		}
		for range want {
			<-entered
		}
		for range 16 - want {
			if c := <-codes; c != 429 {
				t.Errorf("%s: %d beyond the tenant's share", path, c)
			}
		}
		for range 3 { // it is a share of what runs at once, not a count
			if path == PathSearch {
				if code, b := get(t, srv, path, wire.TenantHeader, "other"); code != 200 {
					t.Errorf("%s: another tenant: %d %s", path, code, b)
				}
			}
		}
		if path == PathTail {
			req, _ := http.NewRequestWithContext(ctx, "GET", srv.URL+path, nil)
			req.Header.Set(wire.TenantHeader, "other")
			res, err := srv.Client().Do(req)
			if err != nil || res.StatusCode != 200 {
				t.Errorf("another tenant's tail: %v %v", res, err)
			}
			if res != nil {
				_ = res.Body.Close()
			}
		}
	}
	a.Close()
}
