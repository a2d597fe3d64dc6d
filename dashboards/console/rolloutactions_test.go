package console

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

const startWeb = `{"namespace":"shop","spec":{"changes":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web","images":{"web":"shop/web:3"}}]}}`

func TestStartingARollout(t *testing.T) {
	h := newHarness(t)
	var out rolloutDetailView
	h.want(201, "alice", "POST", "/api/v1/rollouts", startWeb).json(t, &out)
	if !strings.HasPrefix(out.Name, "web-") || out.Tenant != "acme" || out.Phase != "Queued" || len(out.Waves) != 0 {
		t.Errorf("%+v", out)
	}
	if got := h.api.rollouts.get("acme-shop/rollouts/" + out.Name); got.Spec.Changes[0].Images["web"] != "shop/web:3" {
		t.Errorf("made %+v", got)
	}
	if log := h.api.auditLog(); !slices.Contains(log, "alice create rollouts acme-shop") {
		t.Errorf("not in the user's name: %q", log)
	}
	h.want(200, "alice", "POST", "/api/v1/rollouts", strings.Replace(startWeb, `{"namespace"`, `{"name":"dry","dryRun":true,"namespace"`, 1))
	h.want(404, "alice", "GET", "/api/v1/rollouts/shop/dry", "")
	h.want(409, "alice", "POST", "/api/v1/rollouts", strings.Replace(startWeb, `{"namespace"`, `{"name":"web-1","namespace"`, 1))
	h.want(409, "root", "POST", "/api/v1/rollouts", startWeb)
	h.want(201, "root", "POST", "/api/v1/rollouts?tenant=globex", startWeb)
	h.want(403, "both", "POST", "/api/v1/rollouts", startWeb)
	for body, field := range map[string]string{
		`{"spec":{"changes":[{"apiVersion":"v1","kind":"ConfigMap","name":"x"}]}}`: "namespace",
		`{"namespace":"shop"}`:                                                     "spec",
		`{"namespace":"shop","spec":{"changes":[]}}`:                               "spec.changes",
		strings.Replace(startWeb, `"spec":{`, `"spec":{"onFailure":"Explode",`, 1): "spec.place.latitude", // what the fake says of anything
	} {
		p := h.want(400, "alice", "POST", "/api/v1/rollouts", body).problem(t)
		if len(p.Errors) != 1 || p.Errors[0].Field != field {
			t.Errorf("%s: %+v, want one of %s", body, p.Errors, field)
		}
	}
}

func TestControllingARollout(t *testing.T) {
	h := newHarness(t)
	control := func() v1alpha1.RolloutControl { return h.api.rollouts.get("acme-shop/rollouts/web-1").Spec.Control }
	for _, action := range []string{"pause", "resume", "promote", "abort", "retry"} {
		h.want(403, "both", "POST", webRollout+"/"+action, "")
		h.want(400, "alice", "POST", webRollout+"/"+action, `{"bogus":1}`)
	}
	h.want(200, "alice", "POST", webRollout+"/pause", "")
	if !control().Paused {
		t.Error("not paused")
	}
	h.want(200, "alice", "POST", webRollout+"/resume", "")
	if c := control(); c.Paused || c.Resume != 1 {
		t.Errorf("not resumed: %+v", c)
	}
	h.want(200, "alice", "POST", webRollout+"/resume", "") // as after it paused by itself
	if c := control(); c.Paused || c.Resume != 2 {
		t.Errorf("not resumed again: %+v", c)
	}
	h.want(200, "alice", "POST", webRollout+"/promote", "")
	if control().Promote != 2 {
		t.Errorf("promoted up to wave %d, want the current one, 2", control().Promote)
	}
	h.want(409, "alice", "POST", webRollout+"/promote", `{"wave":1}`)
	h.want(400, "alice", "POST", webRollout+"/promote", `{"wave":4}`)
	h.want(200, "alice", "POST", webRollout+"/promote", `{"wave":3}`)
	h.want(200, "alice", "POST", webRollout+"/retry", "")
	h.want(200, "alice", "POST", webRollout+"/retry", `{"sites":["s9"]}`)
	if r := control().Retry; len(r) != 1 || r["s9"] != 2 {
		t.Errorf("retries: %v, want the failed site twice", r)
	}
	h.want(400, "alice", "POST", webRollout+"/retry", `{"sites":["s0"]}`)
	h.want(200, "alice", "POST", webRollout+"/abort", "{}")
	if !control().Abort {
		t.Error("not aborted")
	}
	h.want(409, "alice", "DELETE", webRollout, "")
	h.want(204, "alice", "DELETE", "/api/v1/rollouts/shop/web-0", "")
	h.want(404, "alice", "POST", "/api/v1/rollouts/shop/web-0/pause", "")
	h.want(409, "root", "POST", "/api/v1/rollouts/system/policy-1/retry", "")
}

// A controller writes the status between our reading and our patch: the patch is made anew.
func TestControlAfterAConflict(t *testing.T) {
	h := newHarness(t)
	conflicts := 2
	h.api.mu.Lock()
	h.api.rollouts.beforePatch = func(have map[string]any) {
		if conflicts--; conflicts >= 0 {
			have["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint("moved", conflicts)
		}
	}
	h.api.mu.Unlock()
	h.want(200, "alice", "POST", webRollout+"/pause", "")
	conflicts = 1000
	h.want(409, "alice", "POST", webRollout+"/resume", "")
}

func TestEvaluatingGates(t *testing.T) {
	h := newHarness(t, func(_ *Options, tm *timing) { tm.request = 2 * time.Second })
	const path = "/api/v1/gates:evaluate"
	h.api.rollouts.verdict = &v1alpha1.GateCheckStatus{Verdict: v1alpha1.GateFail, Message: "peers: -14 points", Gates: []v1alpha1.GateReading{{Name: "peers", Verdict: v1alpha1.GateFail, Text: "-14 points"}}}
	var out checkView
	h.want(200, "alice", "POST", path, `{"virtualSite":"shop/canary","since":"10m","gates":[{"name":"peers","peers":{"maxDrop":5}}]}`).json(t, &out)
	if out.Pass || !out.Answered || out.Verdict != "Fail" || out.Namespace != "shop" || len(out.Gates) != 1 {
		t.Errorf("%+v", out)
	}
	spec := h.api.rollouts.objects["acme-shop/gatechecks/"+out.Name]["spec"].(map[string]any)
	if spec["since"] != "2026-01-31T11:50:00Z" || spec["virtualSite"] != "shop/canary" || len(spec["gates"].([]any)) != 1 {
		t.Errorf("asked %v", spec)
	}
	h.api.rollouts.verdict = &v1alpha1.GateCheckStatus{Verdict: v1alpha1.GatePass}
	h.want(200, "alice", "POST", path, `{"namespace":"shop","sites":["paris-07"]}`).json(t, &out)
	if !out.Pass {
		t.Errorf("%+v", out)
	}
	h.want(200, "alice", "GET", "/api/v1/gates/shop/"+out.Name, "")
	h.want(404, "alice", "GET", "/api/v1/gates/shop/none", "")

	// Nobody answers.
	h.api.rollouts.verdict = nil
	a := h.want(202, "alice", "POST", path, `{"namespace":"shop","virtualSite":"canary"}`)
	if a.json(t, &out); out.Answered || out.Pass || out.Verdict != "Unknown" {
		t.Errorf("%+v", out)
	}
	h.want(200, "alice", "GET", a.Header.Get("Location"), "")
	// Those that wait are bounded, as streams are.
	for range maxStreams {
		if _, p := h.con.streams.enter("alice", 1, []string{"acme"}); p != nil {
			t.Fatal(p)
		}
	}
	gets := h.api.rollouts.gets["gatechecks"]
	h.want(202, "alice", "POST", path, `{"namespace":"shop","virtualSite":"canary"}`)
	if n := h.api.rollouts.gets["gatechecks"] - gets; n > 0 {
		t.Errorf("it waits all the same, and has asked %d times", n)
	}

	for body, field := range map[string]string{
		`{}`: "virtualSite", `{"virtualSite":"a/b","sites":["x"]}`: "virtualSite", `{"virtualSite":"canary"}`: "namespace", `{"virtualSite":"shop/canary","since":"soon"}`: "since",
		`{"virtualSite":"shop/canary","since":"2027-01-01T00:00:00Z"}`: "since",
	} {
		p := h.want(400, "alice", "POST", path, body).problem(t)
		if len(p.Errors) != 1 || p.Errors[0].Field != field {
			t.Errorf("%s: %+v, want %s", body, p.Errors, field)
		}
	}
	h.want(403, "both", "POST", path, `{"virtualSite":"shop/canary"}`)
	h.want(413, "alice", "POST", path, `{"virtualSite":"`+strings.Repeat("x", maxGateBytes)+`"}`)
}

func TestStreamsOfRollouts(t *testing.T) {
	h := newHarness(t)
	all, one := h.follow(t.Context(), "alice", "/api/v1/rollouts/stream?namespace=shop").Body, h.follow(t.Context(), "alice", webRollout+"/stream").Body
	next := func(from io.Reader, want ...string) {
		t.Helper()
		got := strings.Join(events(t, iotest.OneByteReader(from), 1), "")
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s, want %q in it", got, w)
			}
		}
	}
	next(all, "event: rollout\n", `"web-0"`, `"namespace":"shop"`)
	next(all, "event: rollout\n", `"web-1"`, `"paused":false`)
	next(one, "event: rollout\n", `"web-1"`, `"by":"alice"`)
	h.want(200, "alice", "POST", webRollout+"/pause", "")
	next(all, "event: rollout\n", `"web-1"`, `"paused":true`)
	next(one, "event: rollout\n", `"paused":true`)
	// However fast one changes, its state is not asked for each time.
	r := h.api.rollouts
	r.api.mu.Lock()
	before := r.gets["rolloutstates"]
	for i := range 200 {
		o := fakeRollout("acme-shop", "web-1", time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC))
		o.Status.Message = fmt.Sprintf("change %d", i)
		r.put("rollouts", o)
	}
	r.api.mu.Unlock()
	for got := ""; !strings.Contains(got, "change 199"); got = strings.Join(events(t, iotest.OneByteReader(one), 1), "") {
	}
	r.api.mu.Lock()
	if n := r.gets["rolloutstates"] - before; n > 10 {
		t.Errorf("asked for its state %d times", n)
	}
	r.api.mu.Unlock()
	for got := ""; !strings.Contains(got, "change 199"); got = strings.Join(events(t, iotest.OneByteReader(all), 1), "") {
	}
	h.want(204, "alice", "DELETE", "/api/v1/rollouts/shop/web-0", "")
	next(all, "event: removed\n", `"web-0"`)
	h.want(403, "both", "GET", "/api/v1/rollouts/stream", "")
	h.want(404, "alice", "GET", "/api/v1/rollouts/shop/none/stream", "")
}
