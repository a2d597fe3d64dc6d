package obs

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

func TestGuard(t *testing.T) {
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	reached := false
	g := Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }), []string{"Ops.Example.com"})
	for _, c := range []struct {
		what, method, host string
		header             map[string]string
		want               int
	}{
		{"curl", "GET", "127.0.0.1:9101", nil, 200},
		{"curl by IPv6", "POST", "[::1]:9101", nil, 200},
		{"curl by IPv6, the port of the scheme", "POST", "[::1]", nil, 200},
		{"curl by an address alone", "GET", "10.1.2.3", nil, 200},
		{"by localhost", "POST", "localhost:9101", nil, 200},
		{"by a name of ours", "POST", "ops.example.com.:9101", nil, 200},
		{"by the machine's", "GET", machine + ":1", nil, 200},
		{"a page that was rebound", "GET", "evil.example:9101", nil, 421},
		{"a page that was rebound, of its own origin", "POST", "evil.example:9101", map[string]string{"Origin": "http://evil.example:9101"}, 421},
		{"a name that looks like an address", "GET", "127.0.0.1.evil.example:9101", nil, 421},
		{"no host", "GET", "", nil, 421},
		{"a form of another page", "POST", "127.0.0.1:9101", map[string]string{"Origin": "http://evil.example"}, 403},
		{"a form without an origin to name", "POST", "127.0.0.1:9101", map[string]string{"Origin": "null"}, 403},
		{"another port is another origin", "POST", "127.0.0.1:9101", map[string]string{"Origin": "http://127.0.0.1:8080"}, 403},
		{"a new browser's form", "POST", "127.0.0.1:9101", map[string]string{"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 403},
		{"a script that reads", "GET", "127.0.0.1:9101", map[string]string{"Origin": "http://evil.example"}, 403},
		{"a preflight", "OPTIONS", "127.0.0.1:9101", map[string]string{"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}, 403},
		{"an image of another page", "GET", "127.0.0.1:9101", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, 403},
		{"a frame of another page", "GET", "127.0.0.1:9101", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403},
		{"a neighbour's page", "POST", "127.0.0.1:9101", map[string]string{"Sec-Fetch-Site": "same-site"}, 403},
		{"a link that somebody follows", "GET", "127.0.0.1:9101", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200},
		{"an address that was typed in", "GET", "127.0.0.1:9101", map[string]string{"Sec-Fetch-Site": "none"}, 200},
		{"our own page", "POST", "127.0.0.1:9101", map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:9101"}, 200},
		{"our own page in an old browser", "POST", "127.0.0.1:9101", map[string]string{"Origin": "http://127.0.0.1:9101"}, 200},
	} {
		r := httptest.NewRequest(c.method, "/-/reload", nil)
		r.Host = c.host
		for k, v := range c.header {
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		reached = false
		g.ServeHTTP(w, r)
		if w.Code != c.want || reached != (c.want == 200) {
			t.Errorf("%s: %d %s, want %d", c.what, w.Code, w.Body, c.want)
		}
	}
}
