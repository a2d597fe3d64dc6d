package api

import (
	"net/http"
	"testing"
	"time"

	"muster.dev/muster/health"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

func TestScores(t *testing.T) {
	f := &fake{}
	v := fixture(t)
	// Paris was read an hour ago and its link has gone since then.
	for _, s := range v.Sites {
		if s.ID == (fleet.SiteID{Tenant: "a", Name: "paris"}) {
			st := health.Evaluate(model(t), health.Readings{Link: health.LinkDown}, s.State, now)
			s.State = &st
		}
	}
	f.view.Store(v)
	srv := serve(t, f)
	path := wire.ScoresPath[len("/api/v1/health/"):]
	_, body := get(t, srv, path+"?tenant=a", "*")
	got, err := wire.DecodeSiteScores([]byte(body), "a")
	if err != nil || !got.AsOf.Equal(now) {
		t.Fatalf("%v: %s", err, body)
	}
	hour := now.Add(-time.Hour).UnixMilli()
	if len(got.Sites) != 4 { // not those that are not evaluated, nor another tenant's
		t.Errorf("%s", body)
	}
	if s := got.Sites["oslo"]; *s.Score != 60 || s.Colour != fleet.Orange || len(s.Dimensions) != 2 ||
		s.Dimensions[fleet.Performance] != (wire.DimensionScore{Score: 20, At: hour}) || s.Dimensions[fleet.Connectivity].Score != 100 {
		t.Errorf("oslo %+v", s)
	}
	if s := got.Sites["rome"]; s.Score != nil || s.Colour != fleet.Grey || len(s.Dimensions) != 0 {
		t.Errorf("rome %+v", s)
	}
	if s := got.Sites["paris"]; s.Colour != fleet.Red || s.Dimensions[fleet.Performance] != (wire.DimensionScore{Score: 0, At: hour, Stale: true}) ||
		s.Dimensions[fleet.Connectivity] != (wire.DimensionScore{Score: 0, At: now.UnixMilli()}) {
		t.Errorf("paris %+v", s)
	}
	for tenants, want := range map[string]int{"a,b": http.StatusBadRequest, "*": http.StatusBadRequest, "b": http.StatusOK, "": http.StatusForbidden} {
		if resp, body := get(t, srv, path, tenants); resp.StatusCode != want {
			t.Errorf("as %q: %s %s", tenants, resp.Status, body)
		}
	}
	if resp, _ := get(t, srv, path+"?tenant=a", "b"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("another tenant's: %s", resp.Status)
	}
}
