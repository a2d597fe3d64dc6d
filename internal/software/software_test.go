package software

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
)

func whole() *Wanted {
	return &Wanted{
		Component: "agent", Version: "1.4.2-rc.1", Requires: map[string]string{"os": "2.0.0"}, TimeZone: "Europe/Berlin",
		Files:     []File{{Architecture: "amd64", Target: "agent/1.4.2-rc.1/amd64", Digest: strings.Repeat("0a", 32), Size: 7}},
		NotBefore: time.Date(2026, 11, 22, 1, 0, 0, 0, time.UTC), Windows: []fleet.Window{{Days: []string{"Sat"}, From: "22:00", To: "04:30"}},
		DeferBy: time.Hour, BytesPerSecond: 1000, Retry: 2, Root: json.RawMessage(`{"signed":{}}`),
	}
}

func TestWanted(t *testing.T) {
	got, err := Decode(whole().Encode())
	if err != nil || !reflect.DeepEqual(got, whole()) {
		t.Fatalf("got %+v, %v", got, err)
	}
	if f, ok := got.For("amd64"); !ok || f.Size != 7 {
		t.Errorf("for amd64: %v %v", f, ok)
	}
	if f, ok := got.For("arm64"); ok {
		t.Errorf("for arm64: %v", f)
	}
	for want, edit := range map[string]func(*Wanted){
		"component":       func(w *Wanted) { w.Component = "firmware" },
		"version":         func(w *Wanted) { w.Version = "v1" },
		"requires":        func(w *Wanted) { w.Requires["disk"] = "1.0.0" },
		"files[0].target": func(w *Wanted) { w.Files[0].Target = "../etc/passwd" },
		"files[0].digest": func(w *Wanted) { w.Files[0].Digest = "abc" },
		"files[0].size":   func(w *Wanted) { w.Files[0].Size = 0 },
		"files[0].arch":   func(w *Wanted) { w.Files[0].Architecture = "" },
		"windows[0]":      func(w *Wanted) { w.Windows[0].To = "25:00" },
		"windows[0].days": func(w *Wanted) { w.Windows[0].Days = []string{"Funday"} },
		"timeZone":        func(w *Wanted) { w.TimeZone = "Mars/Base" },
		"deferBy":         func(w *Wanted) { w.DeferBy = -1 },
		"withdrawnOf":     func(w *Wanted) { w.WithdrawnOf = map[string]string{"v1": "x"} },
	} {
		w := whole()
		edit(w)
		if _, err := Decode(w.Encode()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(whole().Encode())
	f.Add([]byte(`{"component":"os"} x`))
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Decode(w.Encode())
		if err != nil || string(again.Encode()) != string(w.Encode()) {
			t.Fatalf("%s: %v", w.Encode(), err)
		}
	})
}
