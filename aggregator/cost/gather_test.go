package cost

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"muster.dev/muster/internal/wire"
)

// Who is not patient gets what came and hears who is late; who waits gets all, of the same question.
func TestPatience(t *testing.T) {
	one := start(t, "one")
	one.push(t, "acme", "paris", 40)
	two := start(t, "two")
	two.push(t, "acme", "osaka", 7)
	release, asked := make(chan struct{}), make(chan string, 10)
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		<-release
		two.srv.Config.Handler.ServeHTTP(w, r)
	}))
	defer slow.Close()
	s, err := New(Options{Regionals: []Regional{{"one", one.srv.URL}, {"two", slow.URL}}, Inventory: book(), Fresh: time.Hour, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	s.Register(mux)

	_, body, p := ask(mux, "acme", "patience=1ms")
	late := wire.MissingRegion{Region: "two", Reason: "has not answered yet, after 1ms", Late: true}
	if !slices.Equal(names(p), []string{"acme/paris=40", "acme/osaka=0", "acme/rome=0"}) || len(p.MissingRegions) != 1 || p.MissingRegions[0] != late {
		t.Errorf("what came: %s", body)
	}
	_, body, n := get[wire.NamesPage](mux, wire.CostNamesPath, "acme", "patience=1ms")
	if n.Series != 40 || len(n.MissingRegions) != 1 || n.MissingRegions[0] != late {
		t.Errorf("names that came: %s", body)
	}
	whole := make(chan wire.CostPage)
	go func() {
		_, _, p := ask(mux, "acme", "")
		whole <- p
	}()
	select {
	case p := <-whole:
		t.Fatalf("an answer before the late regional's: %+v", p)
	case <-time.After(10 * time.Millisecond):
	}
	close(release)
	if p := <-whole; !slices.Equal(names(p), []string{"acme/paris=40", "acme/osaka=7", "acme/rome=0"}) || len(p.MissingRegions) != 0 {
		t.Errorf("all of it: %+v", p)
	}
	if got := []string{<-asked, <-asked}; !slices.Contains(got, wire.CostPath) || !slices.Contains(got, wire.CostNamesPath) || len(asked) != 0 {
		t.Errorf("the slow regional was asked %v and %d times more", got, len(asked))
	}
	for _, bad := range []string{"x", "-1s", "0s"} {
		if code, body, _ := ask(mux, "acme", "patience="+bad); code != http.StatusBadRequest {
			t.Errorf("patience %s: %d %s", bad, code, body)
		}
	}
}
