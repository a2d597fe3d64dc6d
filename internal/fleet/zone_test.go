package fleet

import "testing"

func TestTimeZone(t *testing.T) {
	for label, want := range map[string]string{"": "", "Europe.Berlin": "Europe/Berlin", "America.Argentina.Ushuaia": "America/Argentina/Ushuaia", "Local": "", "nowhere": "", "../etc": ""} {
		got := ""
		if l := TimeZone(map[string]string{LabelTimeZone: label}); l != nil {
			got = l.String()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", label, got, want)
		}
	}
}
