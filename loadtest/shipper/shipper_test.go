package shipper

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func shipperTo(t *testing.T, h http.HandlerFunc) *Shipper {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return New(Options{Collect: func(b []byte, from, to time.Time) []byte { return fmt.Appendf(b, "{\"n\":%d}\n", to.Unix()) },
		Endpoint: func() string { return srv.URL }, Client: srv.Client, Logger: slog.New(slog.DiscardHandler)})
}

func unzip(t *testing.T, r io.Reader) string {
	z, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What was not acknowledged is sent again, in order; what is refused for good is not.
func TestRetries(t *testing.T) {
	answers := []int{503, 200, 429, 400, 200}
	var got []string
	s := shipperTo(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, strings.TrimSpace(unzip(t, r.Body)))
		w.WriteHeader(answers[0])
		answers = answers[1:]
	})
	for n := range 3 {
		s.take(time.Unix(int64(n), 0), time.Unix(int64(n+1), 0))
		s.flush(context.Background())
	}
	s.flush(context.Background())
	if want := `{"n":1} {"n":1} {"n":2} {"n":2} {"n":3}`; strings.Join(got, " ") != want {
		t.Errorf("sent %v, want %s", got, want)
	}
	if st := s.Stats(); st != (Stats{Sent: 2, Dropped: 1, Failures: 2}) {
		t.Errorf("%+v", st)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	s := New(Options{Collect: func(b []byte, _, _ time.Time) []byte {
		noise := make([]byte, 64<<10)
		for i := range noise {
			noise[i] = byte(rand.Uint32())
		}
		return append(b, noise...)
	}})
	for range 100 {
		s.take(time.Time{}, time.Time{})
	}
	if s.held > MaxBuffered || len(bytes.Join(s.chunks, nil)) != s.held || s.Stats().Dropped == 0 {
		t.Errorf("%d bytes held, %d dropped", s.held, s.Stats().Dropped)
	}
}
