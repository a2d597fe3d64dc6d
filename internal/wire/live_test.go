package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestLiveView(t *testing.T) {
	want := LiveView{Regional: "one", Region: "eu", AsOf: time.Unix(9, 0).UTC(), Sites: []SiteLive{
		{Tenant: "acme", Site: "a", Region: "eu", Connected: true, ConnectedSince: time.Unix(1, 0).UTC(), LastHeartbeat: time.Unix(2, 0).UTC(), LastPush: time.Unix(3, 0).UTC(), AgentVersion: "v1", Limited: "SeriesLimit"},
		{Tenant: "acme", Site: "b"},
	}}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeLiveView(b, "one"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := DecodeLiveView(b, "two"); err == nil || !strings.Contains(err.Error(), "queryURL") {
		t.Errorf("another regional's: %v", err)
	}
	for _, bad := range []string{"", "[]", "{}", `{"regional":"one","sites":7}`} {
		if _, err := DecodeLiveView([]byte(bad), "one"); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func FuzzDecodeLiveView(f *testing.F) {
	f.Add([]byte(`{"regional":"one","sites":[{"tenant":"acme","site":"a","lastPush":null}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := DecodeLiveView(b, "one"); (err == nil) != (v.Regional == "one") {
			t.Errorf("%+v, %v", v, err)
		}
	})
}
