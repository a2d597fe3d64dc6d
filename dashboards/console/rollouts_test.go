package console

import (
	"slices"
	"testing"

	"muster.dev/muster/control/api/v1alpha1"
)

const webRollout = "/api/v1/rollouts/shop/web-1"

func TestRolloutsThatAUserMayRead(t *testing.T) {
	h := newHarness(t)
	names := func(user, query string) []string {
		var out rolloutListView
		h.want(200, user, "GET", "/api/v1/rollouts"+query, "").json(t, &out)
		names := []string{}
		for _, r := range out.Rollouts {
			names = append(names, r.Tenant+":"+r.Namespace+"/"+r.Name)
		}
		return names
	}
	for _, c := range []struct {
		user, query string
		want        []string
	}{
		{"alice", "", []string{"acme:system/policy-1", "acme:shop/web-1", "acme:shop/web-0"}},
		{"root", "?namespace=shop&q=WEB", []string{"acme:shop/web-1", "globex:shop/web-0", "acme:shop/web-0"}},
		{"bob", "", []string{"globex:shop/web-0"}},
		{"alice", "?state=active", []string{"acme:system/policy-1", "acme:shop/web-1"}},
		{"alice", "?state=ended", []string{"acme:shop/web-0"}},
		{"alice", "?phase=Queued,Completed", []string{"acme:system/policy-1", "acme:shop/web-0"}},
		{"alice", "?object=deployment.apps/web", []string{"acme:shop/web-1", "acme:shop/web-0"}},
		{"alice", "?object=Deployment.batch/web", []string{}},
		{"root", "?tenant=globex", []string{"globex:shop/web-0"}},
	} {
		if got := names(c.user, c.query); !slices.Equal(got, c.want) {
			t.Errorf("%s%s: %v, want %v", c.user, c.query, got, c.want)
		}
	}
	h.want(403, "nobody", "GET", "/api/v1/rollouts", "")
	h.want(403, "alice", "GET", "/api/v1/rollouts?tenant=globex", "")

	// Pages have each one once.
	var got []string
	for query := "?limit=2"; query != ""; {
		var out rolloutListView
		h.want(200, "root", "GET", "/api/v1/rollouts"+query, "").json(t, &out)
		for _, r := range out.Rollouts {
			got = append(got, r.Namespace+"/"+r.Name)
		}
		if out.Total != 4 {
			t.Errorf("%d in all, want 4", out.Total)
		}
		if query = ""; out.NextCursor != "" {
			query = "?limit=2&cursor=" + out.NextCursor
		}
	}
	if want := []string{"system/policy-1", "shop/web-1", "shop/web-0", "shop/web-0"}; !slices.Equal(got, want) {
		t.Errorf("pages have %v, want %v", got, want)
	}
	h.want(400, "root", "GET", "/api/v1/rollouts?cursor=garbage", "")
}

func TestOneRollout(t *testing.T) {
	h := newHarness(t)
	var out rolloutDetailView
	h.want(200, "alice", "GET", "/api/v1/rollouts/web-1", "").json(t, &out)
	if out.By != "alice" || out.Policy != "careful" || len(out.Contents) != 2 || out.Contents[0].Text != "shop/web:1" || !out.Contents[1].New || !out.Rights.SkipGates || out.Changes[0].Text != "web=shop/web:2" {
		t.Errorf("%+v", out)
	}
	if w := out.Waves[1]; w.SoakSeconds != 900 || w.Sites.Total != 3 {
		t.Errorf("wave 2: %+v", w)
	}
	h.want(200, "both", "GET", webRollout, "").json(t, &out)
	if out.Rights.Control || out.Rights.Approve {
		t.Errorf("a reader's rights: %+v", out.Rights)
	}
	// Two tenants have one of this name; a user who sees one of them finds it.
	if p := h.want(409, "root", "GET", "/api/v1/rollouts/web-0", "").problem(t); !slices.Equal(p.Tenants, []string{"acme", "globex"}) {
		t.Errorf("%+v", p)
	}
	h.want(409, "root", "GET", "/api/v1/rollouts/shop/web-0", "")
	h.want(200, "root", "GET", "/api/v1/rollouts/shop/web-0?tenant=globex", "")
	h.want(200, "bob", "GET", "/api/v1/rollouts/web-0", "")
	h.want(404, "alice", "GET", "/api/v1/rollouts/shop/none", "")
	h.want(404, "alice", "GET", "/api/v1/rollouts/none", "")
	h.want(403, "alice", "GET", "/api/v1/rollouts/shop/web-0?tenant=globex", "")
	h.want(400, "alice", "GET", "/api/v1/rollouts/shop/No_Name", "")
}

// Of 200 waves the status has some, and not from the first one on; and of sites that are gone
// a wave's total has none.
func TestWavesInTheMiddle(t *testing.T) {
	state := &v1alpha1.RolloutStateSpec{Sites: "a b c d e f", Steps: "pppgow"}
	st := v1alpha1.RolloutStatus{Wave: 102, WaveCount: 200, Waves: []v1alpha1.RolloutWaveStatus{{Number: 101, Begin: 2, End: 4, Sites: v1alpha1.RolloutCounts{Total: 1}}, {Number: 102, Begin: 4, End: 5}}}
	var got []int
	for _, v := range viewSteps(st.Waves, state) {
		got = append(got, v.Wave)
	}
	if want := []int{0, 0, 101, 101, 102, 0}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if w := st.WaveAt(102); w == nil || w.Begin != 4 || st.WaveAt(1) != nil {
		t.Errorf("%+v", w)
	}
}

func TestSitesOfARollout(t *testing.T) {
	h := newHarness(t)
	var out stepListView
	h.want(200, "alice", "GET", webRollout+"/sites?limit=3", "").json(t, &out)
	want := []stepView{{"s0", 1, "passed", 1}, {"s1", 2, "ready", 1}, {"s2", 2, "updating", 1}}
	if !slices.Equal(out.Sites, want) || out.Total != 10 || out.Counts["waiting"] != 4 || out.Counts["rolledBack"] != 0 {
		t.Errorf("%+v", out)
	}
	var rest stepListView
	h.want(200, "alice", "GET", webRollout+"/sites?limit=10000&cursor="+out.NextCursor, "").json(t, &rest)
	if len(rest.Sites) != 7 || rest.Sites[0] != (stepView{"s3", 2, "offline", 0}) || rest.NextCursor != "" {
		t.Errorf("%+v", rest)
	}
	h.want(200, "alice", "GET", webRollout+"/sites?step=waiting,failed&wave=3", "").json(t, &out)
	if out.Total != 5 || out.Counts["held"] != 1 {
		t.Errorf("%+v", out)
	}
	// The controllers have not begun it.
	h.want(200, "alice", "GET", "/api/v1/rollouts/system/policy-1/sites", "").json(t, &out)
	if out.Total != 0 {
		t.Errorf("%+v", out)
	}
	h.want(400, "alice", "GET", webRollout+"/sites?cursor=garbage", "")
	h.want(400, "alice", "GET", webRollout+"/sites?step=lost", "")
}

func TestGatesOfARollout(t *testing.T) {
	h := newHarness(t)
	for _, path := range []string{webRollout + "/gates", "/api/v1/rollouts/web-1/gates"} {
		var out rolloutGatesView
		h.want(200, "alice", "GET", path, "").json(t, &out)
		if out.Verdict != "Wait" || out.WaveName != "40%" || len(out.Gates) != 2 || out.Gates[1].OfSites != 3 {
			t.Errorf("%s: %+v", path, out)
		}
	}
	h.want(404, "alice", "GET", "/api/v1/rollouts/none/gates", "")
	h.want(405, "alice", "POST", "/api/v1/rollouts/web-1/gates", "{}")
}
