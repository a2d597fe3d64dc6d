package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestRegionalCost(t *testing.T) {
	want := &RegionalCost{Regional: "one", Region: "eu", AsOf: time.Unix(9, 0).UTC(), Window: 300, Process: Use{Series: 7},
		Tenants: []TenantCost{{Tenant: "acme", SeriesLimit: 100, Use: Use{Series: 7, CPUCores: 0.5}}},
		Sites:   []SiteCost{{Tenant: "acme", Site: "paris", Use: Use{Series: 7, SamplesPerSecond: 0.5}}}}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeRegionalCost(b, "one"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := DecodeRegionalCost(b, "two"); err == nil || !strings.Contains(err.Error(), "queryURL") {
		t.Errorf("another regional's: %v", err)
	}
	for _, bad := range []string{"", "[]", "{}", `{"regional":"one","windowSeconds":-1}`, `{"regional":"one","process":{"series":-1}}`,
		`{"regional":"one","tenants":[{"use":{"series":1}}]}`, `{"regional":"one","sites":[{"tenant":"a","site":"b","use":{"cpuCores":1e300}}]}`} {
		if _, err := DecodeRegionalCost([]byte(bad), "one"); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// Every column is a figure of its own.
func TestColumns(t *testing.T) {
	u := Use{1, 2, 3, 30, 4, 5, 6, 7, 8, 9}
	seen := map[float64]bool{}
	for _, c := range CostColumns {
		v := u.Column(c)
		if v == 0 || seen[v] {
			t.Errorf("%s: %v", c, v)
		}
		seen[v] = true
	}
	sum := u
	sum.Add(u)
	a, b := reflect.ValueOf(u), reflect.ValueOf(sum)
	for i := range a.NumField() {
		if x, y := a.Field(i).Convert(reflect.TypeFor[float64]()).Float(), b.Field(i).Convert(reflect.TypeFor[float64]()).Float(); y != 2*x {
			t.Errorf("%s is not added", a.Type().Field(i).Name)
		}
	}
}

func FuzzDecodeRegionalCost(f *testing.F) {
	f.Add([]byte(`{"regional":"one","windowSeconds":300,"tenants":[{"tenant":"acme","use":{"series":1}}],"sites":[{"tenant":"acme","site":"a","use":{"cpuCores":0.1}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeRegionalCost(b, "one")
		if err != nil {
			return
		}
		if c.Regional != "one" || !c.Process.valid() {
			t.Errorf("%+v", c)
		}
		for _, s := range c.Sites {
			if !s.valid() || s.Site == "" {
				t.Errorf("%+v", s)
			}
		}
	})
}

func TestRegionalNames(t *testing.T) {
	const good = `{"regional":"one","tenant":"acme","site":"paris","series":7,"names":[{"name":"up","series":7}]}`
	if n, err := DecodeRegionalNames([]byte(good), "one", "acme", "paris"); err != nil || n.Names[0].Series != 7 {
		t.Errorf("%+v, %v", n, err)
	}
	for _, bad := range []string{"", "[]", strings.Replace(good, "acme", "umbrella", 1), strings.Replace(good, "paris", "rome", 1), strings.Replace(good, "one", "two", 1), strings.Replace(good, "7", "-7", 1), strings.Replace(good, "7}", "-7}", 1)} {
		if _, err := DecodeRegionalNames([]byte(bad), "one", "acme", "paris"); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func FuzzDecodeRegionalNames(f *testing.F) {
	f.Add([]byte(`{"regional":"one","tenant":"acme","site":"paris","series":7,"names":[{"name":"up","series":7}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := DecodeRegionalNames(b, "one", "acme", "paris"); err == nil && (n.Tenant != "acme" || n.Series < 0) {
			t.Errorf("%+v", n)
		}
	})
}
