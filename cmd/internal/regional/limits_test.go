package regional

import (
	"reflect"
	"testing"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/internal/fleet"
)

// A limit that is configured holds in the gateway.
func TestLimitsAreHandedOn(t *testing.T) {
	var r config.Regional
	set := reflect.ValueOf(&r.Limits).Elem()
	for i := range set.NumField() {
		set.Field(i).SetInt(int64(100 + i))
	}
	got, found := reflect.ValueOf(limits(r)(fleet.SiteID{})), 0
	for i := range got.NumField() {
		name := got.Type().Field(i).Name
		want := set.FieldByName(name)
		if !want.IsValid() {
			continue
		}
		found++
		if got.Field(i).Int() != want.Int() {
			t.Errorf("%s is %d in the gateway, configured as %d", name, got.Field(i).Int(), want.Int())
		}
	}
	if found < 5 {
		t.Errorf("%d limits have the same names in both", found)
	}
}
