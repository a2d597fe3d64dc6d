package amclient

import (
	"bytes"
	"testing"

	"muster.dev/muster/internal/wire"
)

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`[{"labels":{"a":"b"},"startsAt":"2026-01-01T00:00:00Z","status":{"state":"active","silencedBy":[],"inhibitedBy":null}}]`))
	f.Add([]byte(`[{"id":"x","matchers":[{"name":"a","value":"b"}],"status":{"state":"expired"}}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var alerts []wire.Alert
		_ = decode(bytes.NewReader(b), &alerts)
		var silences []Silence
		if decode(bytes.NewReader(b), &silences) == nil {
			for _, s := range silences {
				for _, m := range s.Matchers {
					_ = m.IsEqual
				}
			}
		}
		_ = detail(b)
	})
}

func TestMissingIsEqualIsTrue(t *testing.T) {
	var s []Silence
	if err := decode(bytes.NewReader([]byte(`[{"matchers":[{"name":"a","value":"b"},{"name":"a","value":"b","isEqual":false}]}]`)), &s); err != nil {
		t.Fatal(err)
	}
	if !s[0].Matchers[0].IsEqual || s[0].Matchers[1].IsEqual {
		t.Errorf("%+v", s)
	}
}
