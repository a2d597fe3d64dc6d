package peers_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"muster.dev/muster/internal/peers"
	"muster.dev/muster/internal/wire"
)

func TestQuestion(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get(wire.TenantsHeader) + " " + r.UserAgent() + " " + r.URL.RawQuery; got != "acme tester tenant=acme" {
			t.Errorf("asked as %q", got)
		}
		switch r.URL.Path {
		case "/good":
			_, _ = w.Write([]byte(`{}`))
		case "/large":
			_, _ = w.Write(make([]byte, 1<<20+1))
		case "/refused":
			wire.Failure(http.StatusForbidden, "not you").Write(w)
		default:
			http.Error(w, "broken", http.StatusInternalServerError)
		}
	}))
	defer srv.Close()
	ask := func(path string) (string, error) {
		b, err := peers.Question{URL: srv.URL + path, Query: url.Values{"tenant": {"acme"}}, Tenants: "acme", Agent: "tester", Max: 1 << 20}.Get(t.Context(), srv.Client())
		return string(b), err
	}
	if b, err := ask("/good"); b != "{}" || err != nil {
		t.Errorf("%s, %v", b, err)
	}
	_, err := ask("/refused")
	var p *wire.Problem
	if !errors.As(err, &p) || p.Status != http.StatusForbidden || !strings.Contains(err.Error(), "not you") {
		t.Errorf("refused: %v", err)
	}
	for path, want := range map[string]string{"/large": "more than 1 MiB", "/broken": "answers 500"} {
		if b, err := ask(path); b != "" || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d bytes, %v", path, len(b), err)
		}
	}
}
