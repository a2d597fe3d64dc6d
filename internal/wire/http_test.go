package wire

import (
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

func TestProblemGoesThere(t *testing.T) {
	for _, p := range []*Problem{
		Failure(http.StatusServiceUnavailable, "the %s is away", "store"),
		Failure(http.StatusTeapot, "no coffee"),
		Invalid(FieldError{"from", "want a time"}, FieldError{"to", "before from"}),
		{Type: ProblemAmbiguousSite, Title: "Conflict", Status: 409, Tenants: []string{"a", "b"}, Instance: "urn:x"},
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Length", "7")
		p.Write(w)
		got := ReadProblem(w.Result())
		if !reflect.DeepEqual(got, p) {
			t.Errorf("%+v became %+v", p, got)
		}
	}
	if p := Failure(http.StatusServiceUnavailable, "x"); p.Type != ProblemUnavailable || p.RetryAfter == 0 {
		t.Errorf("%+v", p)
	}
	if p := Invalid(FieldError{"from", "want a time"}, FieldError{"to", "before from"}); p.Detail != "from: want a time; to: before from" || p.Type != ProblemInvalid {
		t.Errorf("%+v", p)
	}
}

func FuzzReadProblem(f *testing.F) {
	f.Add(503, "application/problem+json; charset=utf-8", "2", `{"title":"x","status":200}`)
	f.Add(404, "text/html", "", `<html>`)
	f.Fuzz(func(t *testing.T, status int, contentType, retry, body string) {
		res := &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {contentType}, "Retry-After": {retry}}, Body: io.NopCloser(strings.NewReader(body))}
		if p := ReadProblem(res); p != nil && (p.Status != status || status < 400) {
			t.Errorf("%d read as %+v", status, p)
		}
	})
}

func TestValues(t *testing.T) {
	if got := Values([]string{" a, b,,", "", "c"}); !reflect.DeepEqual(got, []string{"a", "b", "c"}) {
		t.Errorf("%q", got)
	}
}
