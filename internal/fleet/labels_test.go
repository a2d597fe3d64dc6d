package fleet

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

var labelValue = regexp.MustCompile(`^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`)

func TestSystemLabels(t *testing.T) {
	got := SystemLabels(map[string]string{
		"arch": "amd64", "vendor": "Dell Inc.", "os": "Debian GNU/Linux 13 (trixie)", "Bad Key": "x", "": "x", "../x": "y",
		"empty": "---", "long": strings.Repeat("x", 200), "odd": "\x00\xff日本", strings.Repeat("k", 41): "x",
	})
	want := map[string]string{"arch": "amd64", "vendor": "Dell-Inc", "os": "Debian-GNU-Linux-13-trixie", "long": strings.Repeat("x", 63)}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
	for k, v := range want {
		if got[SystemLabelPrefix+k] != v {
			t.Errorf("%s = %q, want %q", k, got[SystemLabelPrefix+k], v)
		}
	}
	many := map[string]string{}
	for i := range 50 {
		many[fmt.Sprintf("k%02d", i)] = "v"
	}
	if got := SystemLabels(many); len(got) != maxSystemLabels || got[SystemLabelPrefix+"k00"] == "" || got[SystemLabelPrefix+"k49"] != "" {
		t.Errorf("%d labels of 50", len(got))
	}
}

func FuzzLabelValue(f *testing.F) {
	f.Add("Dell Inc.")
	f.Add("..a..")
	f.Fuzz(func(t *testing.T, s string) {
		if v := LabelValue(s); v != "" && (len(v) > 63 || !labelValue.MatchString(v)) {
			t.Errorf("LabelValue(%q) = %q", s, v)
		}
		if n := SiteName(s); n != "" {
			if err := (SiteID{Tenant: "t", Name: n}).Validate(); err != nil {
				t.Errorf("SiteName(%q) = %q: %v", s, n, err)
			}
		}
	})
}
