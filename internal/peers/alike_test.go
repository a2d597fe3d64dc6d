package peers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// role answers with its name, or as how says.
type role struct {
	*httptest.Server
	asked atomic.Int32
	how   atomic.Value // "", "hangs" or "starts"
}

func newRole(t *testing.T, name, prefix string) *role {
	r := &role{}
	r.how.Store("")
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.asked.Add(1)
		body, _ := io.ReadAll(req.Body)
		switch r.how.Load() {
		case "hangs":
			<-req.Context().Done()
		case "starts":
			http.Error(w, "starting", http.StatusServiceUnavailable)
		default:
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, name+" "+strings.TrimPrefix(req.URL.Path, prefix)+" "+string(body))
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func TestAlike(t *testing.T) {
	one, two := newRole(t, "one", "/first"), newRole(t, "two", "")
	rt, err := Alike(http.DefaultTransport, []string{one.URL + "/first/", two.URL})
	if err != nil {
		t.Fatal(err)
	}
	rt.(*alike).patience = 200 * time.Millisecond
	client := &http.Client{Transport: rt}
	ask := func(method, url, body string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, url, io.NopCloser(strings.NewReader(body)))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	at := one.URL + "/first/x"
	want := func(what, method, body, want string) {
		t.Helper()
		if got, err := ask(method, at, body); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", what, got, err, want)
		}
	}
	want("both well", http.MethodPost, "a", "one /x a")
	one.how.Store("starts")
	want("the first starts", http.MethodGet, "", "two /x ")
	one.how.Store("")
	want("the first is well again", http.MethodGet, "", "two /x ")
	two.how.Store("hangs")
	want("the second hangs", http.MethodGet, "", "one /x ")
	two.how.Store("")
	one.how.Store("hangs")
	before := two.asked.Load()
	if got, err := ask(http.MethodPost, at, "b"); !errors.Is(err, context.DeadlineExceeded) || two.asked.Load() != before {
		t.Errorf("a change that may have been made was asked for again: %q, %v", got, err)
	}
	want("the first hangs", http.MethodGet, "", "two /x ")
	rt.(*alike).last.Store(0)
	one.CloseClientConnections()
	one.Close()
	want("nobody listens at the first", http.MethodPost, "c", "two /x c")
	if rt.(*alike).last.Load() != 1 {
		t.Error("the one that answered is not asked first")
	}
	if got, err := ask(http.MethodGet, two.URL+"/y", ""); got != "two /y " || err != nil {
		t.Errorf("another address: %q, %v", got, err)
	}
	two.how.Store("starts")
	want("the one that is left starts", http.MethodGet, "", "starting\n")
	two.CloseClientConnections()
	two.Close()
	if got, err := ask(http.MethodGet, at, ""); err == nil {
		t.Errorf("nobody is left, and %q is answered", got)
	}
}
