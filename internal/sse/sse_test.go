package sse

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func all(t *testing.T, s string) ([]Event, error) {
	t.Helper()
	r := NewReader(strings.NewReader(s), 1000)
	var out []Event
	for {
		e, err := r.Next()
		if err != nil {
			return out, err
		}
		out = append(out, e)
	}
}

func TestNext(t *testing.T) {
	got, err := all(t, ": hello\n\nevent: hits\nid: 7\ndata: {\"a\":1,\ndata: \"b\":2}\n\nevent: none\n\ndata:x\r\n\r\ndata: half")
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	want := []Event{{"7", "hits", "{\"a\":1,\n\"b\":2}"}, {"7", "message", "x"}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Fatalf("%+v", got)
	}
}

func TestTooLarge(t *testing.T) {
	for _, s := range []string{"data: " + strings.Repeat("x", 2000) + "\n\n", strings.Repeat("data: x\n", 400), strings.Repeat("y", 5000)} {
		if _, err := all(t, s); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%.20q…: %v", s, err)
		}
	}
	// The limit is an event's, not the stream's.
	if got, _ := all(t, strings.Repeat("data: x\n\n: c\n\n", 1000)); len(got) != 1000 {
		t.Errorf("%d events", len(got))
	}
}

func FuzzNext(f *testing.F) {
	f.Add([]byte("event: a\nid: 1\ndata: x\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b), 256)
		for {
			e, err := r.Next()
			if err != nil {
				return
			}
			if len(e.Data) > 256 {
				t.Fatal("over the limit")
			}
		}
	})
}
