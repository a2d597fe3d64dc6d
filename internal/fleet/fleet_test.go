package fleet

import "testing"

func TestColourBoundaries(t *testing.T) {
	for score, want := range map[float64]Colour{100: Green, 75.01: Green, 75: Orange, 40: Orange, 39.99: Red, 0: Red} {
		if got := ColourOf(score); got != want {
			t.Errorf("ColourOf(%v) = %s, want %s", score, got, want)
		}
	}
}

func TestSiteIDValidation(t *testing.T) {
	for _, bad := range []string{"", "acme", "acme/", "/x", "Acme/x", "acme/a b", "acme/../x", "acme/x\n", "a.b/x",
		"a-tenant-name-that-is-far-too-long/x"} {
		if _, err := ParseSiteID(bad); err == nil {
			t.Errorf("ParseSiteID(%q) accepted", bad)
		}
	}
	id, err := ParseSiteID("acme/paris-07")
	if err != nil || id != (SiteID{"acme", "paris-07"}) || id.String() != "acme/paris-07" {
		t.Errorf("ParseSiteID = %v, %v", id, err)
	}
}
