package protocoltest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// Asked is a question to the console.
type Asked struct {
	Path, Authorization string
	Params              url.Values
}

// Console answers what it was told to. Questions and answers are held to the API's own
// document: what the real console would not understand, or would not say, fails the test.
type Console struct {
	URL     string
	t       testing.TB
	router  routers.Router
	mu      sync.Mutex
	asked   []Asked
	answers map[string]string
	events  chan string
}

// NewConsole starts one. Answers are JSON by path below /api/v1; an answer that begins
// with a status, as in 403 {…}, is a problem. The longest path that begins the asked one
// answers.
func NewConsole(t testing.TB, document string, answers map[string]string) *Console {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile(document)
	if err != nil {
		t.Fatal(err)
	}
	doc.Servers = nil
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	c := &Console{t: t, router: router, answers: answers, events: make(chan string)}
	srv := httptest.NewServer(c)
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	c.URL = srv.URL
	return c
}

// Last is the last question.
func (c *Console) Last() Asked {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.asked) == 0 {
		return Asked{}
	}
	return c.asked[len(c.asked)-1]
}

// Answer replaces an answer.
func (c *Console) Answer(path, body string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[path] = body
}

// Send sends an event to who follows the stream of health, once somebody does.
func (c *Console) Send(ctx context.Context, event string) {
	select {
	case c.events <- event:
	case <-ctx.Done():
	}
}

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	route, path, err := c.router.FindRoute(r)
	if err != nil {
		c.t.Errorf("the console has no %s %s", r.Method, r.URL)
		http.NotFound(w, r)
		return
	}
	params := r.URL.Query()
	if r.Method == http.MethodPost {
		params, _ = url.ParseQuery(string(body))
	}
	c.mu.Lock()
	c.asked = append(c.asked, Asked{r.URL.Path, r.Header.Get("Authorization"), params})
	c.mu.Unlock()
	in := &openapi3filter.RequestValidationInput{Request: r, PathParams: path, Route: route, Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
	if err := openapi3filter.ValidateRequest(r.Context(), in); err != nil {
		c.t.Errorf("the console would not understand %s: %v", r.URL, err)
	}
	for name := range r.URL.Query() {
		if !slices.ContainsFunc(route.Operation.Parameters, func(p *openapi3.ParameterRef) bool { return p.Value.In == "query" && p.Value.Name == name }) {
			c.t.Errorf("%s has no parameter %s", r.URL.Path, name)
		}
	}
	if route.Operation.OperationID == "streamHealth" {
		c.stream(w, r)
		return
	}
	status, answer := c.answer(strings.TrimPrefix(r.URL.Path, "/api/v1"))
	header := http.Header{"Content-Type": {"application/json"}}
	if status != http.StatusOK {
		header.Set("Content-Type", "application/problem+json")
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: status, Header: header, Body: io.NopCloser(strings.NewReader(answer))}
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		c.t.Errorf("the console would not say this at %s: %v", r.URL, err)
	}
	w.Header().Set("Content-Type", header.Get("Content-Type"))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, answer)
}

func (c *Console) answer(path string) (int, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	best := ""
	for p := range c.answers {
		if strings.HasPrefix(path, p) && len(p) > len(best) {
			best = p
		}
	}
	a, ok := c.answers[best]
	if !ok {
		return http.StatusNotFound, `{"type":"urn:muster:problem:not-found","title":"Not Found","status":404,"detail":"nothing is told for ` + path + `"}`
	}
	status := http.StatusOK
	if a[0] != '{' {
		_, _ = fmt.Sscanf(a, "%d", &status)
		_, a, _ = strings.Cut(a, " ")
	}
	return status, a
}

func (c *Console) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case e := <-c.events:
			_, _ = io.WriteString(w, e+"\n\n")
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func init() {
	openapi3filter.RegisterBodyDecoder("application/problem+json", openapi3filter.JSONBodyDecoder)
}
