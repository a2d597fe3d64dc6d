package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
)

func TestSiteScores(t *testing.T) {
	score := 71.5
	want := &SiteScores{AsOf: time.Unix(9, 0).UTC(), Tenant: "acme", Sites: map[string]SiteScore{
		"paris": {Score: &score, Colour: fleet.Orange, Dimensions: map[fleet.Dimension]DimensionScore{fleet.Performance: {Score: 60, At: 8000, Stale: true}}},
		"rome":  {Colour: fleet.Grey, Dimensions: map[fleet.Dimension]DimensionScore{}},
	}}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeSiteScores(b, "acme"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "[]", "{}", `{"tenant":"acme"}`, strings.Replace(string(b), "acme", "umbrella", 1),
		strings.Replace(string(b), "71.5", "171.5", 1), strings.Replace(string(b), "60", "-1", 1), strings.Replace(string(b), "8000", "-8000", 1)} {
		if _, err := DecodeSiteScores([]byte(bad), "acme"); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestFiringAlerts(t *testing.T) {
	want := &FiringAlerts{AsOf: time.Unix(9, 0).UTC(), Tenant: "acme", Sites: map[string][]string{"paris": {"critical/DiskFull"}}}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeFiringAlerts(b, "acme"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "[]", "{}", `{"tenant":"acme","asOf":"2026-01-01T00:00:00Z"}`, strings.Replace(string(b), "acme", "umbrella", 1)} {
		if _, err := DecodeFiringAlerts([]byte(bad), "acme"); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func FuzzDecodeSiteScores(f *testing.F) {
	f.Add([]byte(`{"asOf":"2026-01-01T00:00:00Z","tenant":"acme","sites":{"a":{"score":1,"colour":"red","dimensions":{"performance":{"score":1,"at":5}}}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeSiteScores(b, "acme")
		if err != nil {
			return
		}
		for name, x := range s.Sites {
			if x.Score != nil && !(*x.Score >= 0 && *x.Score <= 100) {
				t.Errorf("%q: %v", name, *x.Score)
			}
			for d, y := range x.Dimensions {
				if !(y.Score >= 0 && y.Score <= 100) || time.UnixMilli(y.At).Year() < 1970 {
					t.Errorf("%q: %q: %+v", name, d, y)
				}
			}
		}
	})
}

func FuzzDecodeFiringAlerts(f *testing.F) {
	f.Add([]byte(`{"asOf":"2026-01-01T00:00:00Z","tenant":"acme","sites":{"a":["critical/Down"]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := DecodeFiringAlerts(b, "acme"); err == nil && (a.Tenant != "acme" || a.AsOf.IsZero() || a.Sites == nil) {
			t.Errorf("%+v", a)
		}
	})
}
