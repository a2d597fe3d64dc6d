package console

import (
	"fmt"
	"testing"
)

// TestChangeSites: each site is changed by itself and as the user; those that can't be are
// named, and the others are done.
func TestChangeSites(t *testing.T) {
	h := newHarness(t)
	change := func(user, body string) changeResult {
		t.Helper()
		var out changeResult
		h.want(200, user, "POST", pathChangeSites, body).json(t, &out)
		return out
	}
	got := change("alice", `{"sites":[{"tenant":"acme","name":"paris-07"},{"tenant":"globex","name":"twin"},{"tenant":"acme","name":"nowhere"}],"labels":{"tier":"gold","old":null}}`)
	if got.Changed != 1 || len(got.Failed) != 2 || fmt.Sprintf("%s %d, %s %d", got.Failed[0].Tenant, got.Failed[0].Status, got.Failed[1].Name, got.Failed[1].Status) != "globex 403, nowhere 404" {
		t.Errorf("%+v", got)
	}
	var site siteView
	h.want(200, "alice", "GET", "/api/v1/sites/paris-07?tenant=acme", "").json(t, &site)
	if site.Labels["tier"] != "gold" {
		t.Errorf("labels %v", site.Labels)
	}
	if got := change("carol", `{"sites":[{"tenant":"acme","name":"paris-07"}],"labels":{"tier":null}}`); got.Changed != 0 || got.Failed[0].Status != 403 {
		t.Errorf("who may only read: %+v", got)
	}
	if got := change("alice", `{"sites":[{"tenant":"acme","name":"paris-07"}],"maintenance":{"reason":"new router"}}`); got.Changed != 1 {
		t.Errorf("%+v", got)
	}
	h.want(200, "alice", "GET", "/api/v1/sites/paris-07?tenant=acme", "").json(t, &site)
	if site.Maintenance == nil || site.Maintenance.Reason != "new router" {
		t.Errorf("maintenance %+v", site.Maintenance)
	}
	if got := change("alice", `{"sites":[{"tenant":"acme","name":"paris-07"}],"endMaintenance":true}`); got.Changed != 1 {
		t.Errorf("%+v", got)
	}
	// One that is approved already is as was asked for.
	if got := change("alice", `{"sites":[{"tenant":"acme","name":"rome-01"},{"tenant":"acme","name":"paris-07"}],"approve":true}`); got.Changed != 2 {
		t.Errorf("%+v", got)
	}
	h.want(200, "alice", "GET", "/api/v1/sites/rome-01?tenant=acme", "").json(t, &site)
	if !site.Approved {
		t.Errorf("rome-01: %+v", site)
	}
}
