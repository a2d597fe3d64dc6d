package cities

import (
	"regexp"
	"testing"
)

// boxes are where a region's cities may stand: a swapped or mistyped coordinate
// puts a city into another one, or into the sea.
var boxes = map[string][4]float64{ // south, north, west, east
	"eu": {35, 61, -10, 30}, "us": {15, 50, -125, -70}, "ap": {-45, 46, 70, 180},
	"sa": {-40, 10, -80, -40}, "af": {-35, 36, -18, 45}, "me": {20, 43, 28, 60},
}

func TestCities(t *testing.T) {
	all := All()
	if len(all) < 80 {
		t.Errorf("%d cities", len(all))
	}
	seen := map[string]bool{}
	count := map[string]int{}
	for _, c := range all {
		if seen[c.Name] || !regexp.MustCompile(`^[a-z]([a-z-]*[a-z])?$`).MatchString(c.Name) || c.Label == "" || !regexp.MustCompile(`^[A-Z]{2}$`).MatchString(c.Country) {
			t.Errorf("%+v: name taken or malformed", c)
		}
		seen[c.Name] = true
		count[c.Region]++
		b, ok := boxes[c.Region]
		if !ok || c.Latitude < b[0] || c.Latitude > b[1] || c.Longitude < b[2] || c.Longitude > b[3] {
			t.Errorf("%+v is not in its region", c)
		}
	}
	if len(Regions()) != len(boxes) {
		t.Errorf("regions = %v", Regions())
	}
	total := 0
	for _, r := range Regions() {
		total += len(In(r))
	}
	if total != len(all) {
		t.Errorf("%d cities by region, %d in all", total, len(all))
	}
	first := map[string]bool{}
	for _, c := range all[:12] {
		first[c.Region] = true
	}
	if len(first) < 4 {
		t.Errorf("the first twelve are in %v only", first)
	}
	all[0].Name = "changed"
	if All()[0].Name == "changed" {
		t.Error("the list can be changed from outside")
	}
}
