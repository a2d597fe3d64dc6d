package wire

import (
	"encoding/base64"
	"strings"
	"testing"
)

type place struct {
	Sort  string  `json:"s"`
	Value float64 `json:"v,omitempty"`
}

func TestCursor(t *testing.T) {
	want := place{"score", 12.5}
	var got place
	if err := DecodeCursor(EncodeCursor(want), &got); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	raw := base64.RawURLEncoding.EncodeToString
	for name, s := range map[string]string{
		"empty":         "",
		"not base64":    "=?",
		"padded":        base64.URLEncoding.EncodeToString([]byte(`{"s":"ab"}`)),
		"loose bits":    "eyJzIjoiYSJ9f", // what strict decoding refuses
		"not JSON":      raw([]byte("score")),
		"another list":  raw([]byte(`{"s":"a","fingerprint":"f"}`)),
		"two":           raw([]byte(`{"s":"a"}{}`)),
		"a wrong type":  raw([]byte(`{"s":1}`)),
		"far too long":  raw([]byte(`{"s":"` + strings.Repeat("a", 1024) + `"}`)),
		"no finite one": raw([]byte(`{"s":"a","v":1e999}`)),
	} {
		var p place
		if err := DecodeCursor(s, &p); err == nil {
			t.Errorf("%s: %q was taken as %+v", name, s, p)
		}
	}
}

func FuzzDecodeCursor(f *testing.F) {
	f.Add(EncodeCursor(place{"name", 1}))
	f.Add("")
	f.Add("e30")
	f.Fuzz(func(t *testing.T, s string) {
		var p, again place
		if DecodeCursor(s, &p) != nil {
			return
		}
		if err := DecodeCursor(EncodeCursor(p), &again); len(p.Sort) < 100 && (err != nil || again != p) {
			t.Errorf("%q: %+v, then %+v, %v", s, p, again, err)
		}
	})
}
