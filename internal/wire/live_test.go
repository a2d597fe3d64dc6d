package wire

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLiveView(t *testing.T) {
	want := LiveView{Regional: "one", Region: "eu", AsOf: time.Unix(9, 0).UTC(), Sites: []SiteLive{
		{Tenant: "acme", Site: "a", Region: "eu", Connected: true, ConnectedSince: time.Unix(1, 0).UTC(), LastHeartbeat: time.Unix(2, 0).UTC(), LastPush: time.Unix(3, 0).UTC(), AgentVersion: "v1", Limited: "SeriesLimit"},
		{Tenant: "acme", Site: "b", LastPush: time.Unix(3, 70e6).UTC(), AgentVersion: "\x00\"\\<a&b>\u00e9\u2028\xff\x7f"},
	}}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []LiveView{want, {Sites: []SiteLive{}}} {
		marshaled, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if got := v.Append([]byte("a"), slices.Values(v.Sites)); string(got) != "a"+string(marshaled) {
			t.Errorf("appended\n%s\nmarshaled\n%s", got, marshaled)
		}
	}
	want.Sites[1].AgentVersion = strings.ToValidUTF8(want.Sites[1].AgentVersion, "\ufffd")
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

// A regional whose clock is wrong says of its sites when they were heard of by the reader's clock.
func TestLiveViewOfAnotherClock(t *testing.T) {
	at := func(s float64) time.Time { return time.Unix(1e9, 0).Add(time.Duration(s * float64(time.Second))) }
	for _, c := range []struct{ asOf, ahead float64 }{{1, 0}, {-1.9, 0}, {4.9, 0}, {603, 600}, {-600, -600}} {
		v := LiveView{AsOf: at(c.asOf), Sites: []SiteLive{{ConnectedSince: at(c.asOf - 50), LastHeartbeat: at(c.asOf - 5), LastPush: at(c.asOf - 9)}, {}}}
		if got := v.Settle(at(0), at(3)); got.Seconds() != c.ahead {
			t.Errorf("at %g it is %s ahead, want %g s", c.asOf, got, c.ahead)
		}
		want := SiteLive{ConnectedSince: at(c.asOf - 50), LastHeartbeat: at(c.asOf - 5 - c.ahead), LastPush: at(c.asOf - 9 - c.ahead)}
		if v.Sites[0] != want || v.Sites[1] != (SiteLive{}) {
			t.Errorf("%g: %+v, want %+v", c.asOf, v.Sites, want)
		}
	}
	v := LiveView{Sites: []SiteLive{{LastPush: at(1)}}}
	if ahead := v.Settle(at(100), at(101)); ahead != 0 || !v.Sites[0].LastPush.Equal(at(1)) {
		t.Errorf("one that does not say when it is: %s, %+v", ahead, v)
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
