package role

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"muster.dev/muster/internal/obs"
)

func options(t *testing.T) Options {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return Options{Role: "test", OpsListen: ln.Addr().String(), Log: obs.LogOptions{}, LogTo: io.Discard}
}

// A role does not live on without a part of it, however the part ended.
func TestAPartThatEndsEndsTheRole(t *testing.T) {
	for name, c := range map[string]struct {
		part func(context.Context) error
		want string
	}{
		"an error":                  {func(context.Context) error { return errors.New("out of luck") }, "part: out of luck"},
		"no error":                  {func(context.Context) error { return nil }, "part: ended by itself"},
		"a cancellation of its own": {func(context.Context) error { return context.Canceled }, "part: ended by itself"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Run(t.Context(), options(t), func(_ context.Context, env *Env) error {
				env.Go("other", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
				env.Go("part", c.part)
				return nil
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// A stop is no failure, and neither is the end of what has one.
func TestAStopIsClean(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := Run(ctx, options(t), func(_ context.Context, env *Env) error {
		env.Go("nil when it is told", func(ctx context.Context) error { <-ctx.Done(); return nil })
		env.Go("the context's error", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		once := make(chan struct{})
		env.Once("once", func(context.Context) error { close(once); return nil })
		go func() { <-once; cancel() }()
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Every ops page, and what roles serve beside it, is kept from pages of others.
func TestOpsPagesAreGuarded(t *testing.T) {
	o := options(t)
	o.Hosts = []string{"ops.example.com"}
	ctx, cancel := context.WithCancel(t.Context())
	changed := 0
	err := Run(ctx, o, func(_ context.Context, env *Env) error {
		env.Ops.Mux().HandleFunc("POST /change", func(http.ResponseWriter, *http.Request) { changed++ })
		env.Once("requests", func(ctx context.Context) error {
			defer cancel()
			post := func(host, origin string) int {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+o.OpsListen+"/change", nil)
				if err != nil {
					t.Error(err)
					return 0
				}
				req.Host = host
				if origin != "" {
					req.Header.Set("Origin", origin)
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Error(err)
					return 0
				}
				defer resp.Body.Close()
				return resp.StatusCode
			}
			for _, c := range []struct {
				host, origin string
				want         int
			}{
				{o.OpsListen, "", 200}, {"ops.example.com", "", 200}, {o.OpsListen, "http://" + o.OpsListen, 200},
				{o.OpsListen, "https://evil.example", 403}, {"evil.example", "", 421}, {"evil.example", "http://evil.example", 421},
			} {
				if got := post(c.host, c.origin); got != c.want {
					t.Errorf("host %q, origin %q: %d, want %d", c.host, c.origin, got, c.want)
				}
			}
			return nil
		})
		return nil
	})
	if err != nil || changed != 3 {
		t.Errorf("%v, changed %d times, want 3", err, changed)
	}
}
