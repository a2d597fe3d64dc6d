package console

import (
	"bytes"
	"encoding/json"
	"testing"
)

func FuzzReadEvents(f *testing.F) {
	f.Add([]byte("id: 1\nevent: sites\ndata: {}\n\n: comment\n\ndata: a\ndata: b\n\n"))
	f.Add([]byte("\n\n\ndata\n\nevent\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		err := ReadEvents(bytes.NewReader(b), func(_ string, data []byte) error {
			if n += len(data); len(data) == 0 {
				t.Error("an event without data")
			}
			return nil
		})
		if err == nil || n > len(b) {
			t.Errorf("%v, %d bytes of %d", err, n, len(b))
		}
	})
}

func FuzzSample(f *testing.F) {
	f.Add([]byte(`[1769860800.5,"39.5"]`))
	f.Add([]byte(`[1e300,"NaN"]`))
	f.Add([]byte(`["x"]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Sample
		_ = json.Unmarshal(b, &s)
	})
}
