package console

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Neither a name that a viewer chooses nor a redirect takes the token anywhere but to the
// paths of the console's API, and no parameter goes beyond the data source's tenant.
func TestTheTokenStaysWithTheConsole(t *testing.T) {
	leaked := ""
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { leaked = r.Header.Get("Authorization") }))
	defer elsewhere.Close()
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.EscapedPath()+"?"+r.URL.RawQuery)
		if r.URL.Path == "/api/v1/sites/moved" {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect) // the same host, another port
			return
		}
		_, _ = w.Write([]byte(`{"name":"x"}`))
	}))
	defer srv.Close()
	c := &Client{HTTP: srv.Client(), URL: srv.URL, Tenant: "acme", Authorization: "Bearer secret"}
	for _, name := range []string{"..", "."} {
		if _, err := c.Site(t.Context(), name); StatusOf(err) != http.StatusBadRequest {
			t.Errorf("a site called %q: %v", name, err)
		}
		if _, err := c.Windows(t.Context(), name, "x"); StatusOf(err) != http.StatusBadRequest {
			t.Errorf("a namespace called %q: %v", name, err)
		}
	}
	if len(asked) != 0 {
		t.Errorf("asked %v", asked)
	}
	if _, err := c.Site(t.Context(), "../../x?tenant=umbrella"); err != nil || len(asked) != 1 || asked[0] != "/api/v1/sites/..%2F..%2Fx%3Ftenant=umbrella?tenant=acme" {
		t.Errorf("asked %v: %v", asked, err)
	}
	if _, err := c.Site(t.Context(), "moved"); StatusOf(err) != http.StatusTemporaryRedirect || leaked != "" {
		t.Errorf("a redirect was followed with %q: %v", leaked, err)
	}
}
