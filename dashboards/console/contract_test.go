package console

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/oidclogin"
	"muster.dev/muster/internal/wire"
)

// TestEveryRouteHasAnOperation holds the routes and the document to each other.
func TestEveryRouteHasAnOperation(t *testing.T) {
	c := loadContract(t)
	inDoc := map[string]bool{}
	for path, item := range c.doc.Paths.Map() {
		for method := range item.Operations() {
			inDoc[method+" "+path] = true
		}
	}
	for _, rt := range (&Console{}).apiRoutes() {
		key := rt.method + " " + rt.path
		if !inDoc[key] {
			t.Errorf("%s is served but not documented", key)
			continue
		}
		delete(inDoc, key)
		op := c.doc.Paths.Find(rt.path).GetOperation(rt.method)
		var documented, served []string
		if rt.form {
			for name := range op.RequestBody.Value.Content.Get("application/x-www-form-urlencoded").Schema.Value.Properties {
				documented = append(documented, name)
			}
		} else {
			for _, p := range op.Parameters {
				if p.Value.In == "query" {
					documented = append(documented, p.Value.Name)
				}
			}
		}
		for _, p := range rt.params {
			served = append(served, p.name)
		}
		slices.Sort(documented)
		slices.Sort(served)
		if !slices.Equal(documented, served) {
			t.Errorf("%s: documented parameters %v, served %v", key, documented, served)
		}
		if open := op.Security != nil && len(*op.Security) == 0; open != rt.open {
			t.Errorf("%s: documented without authentication: %t, served: %t", key, open, rt.open)
		}
	}
	for key := range inDoc {
		t.Errorf("%s is documented but not served", key)
	}
}

// TestContract calls every operation so that it succeeds and so that it fails; do()
// holds each answer to the document.
func TestContract(t *testing.T) {
	h := newHarness(t, func(o *Options, _ *timing) {
		o.ExternalURL = mustURL(t, "http://127.0.0.1")
		o.OIDC = &oidclogin.Options{IssuerURL: "https://127.0.0.1:1", ClientID: "muster", Scopes: []string{"openid"}}
	})
	const q = "/api/v1/metrics/query"
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}

	h.want(200, "", "GET", "/api/v1/openapi.json", "")
	h.want(400, "", "GET", "/api/v1/openapi.json?x=1", "")
	cookie := h.login("alice")
	h.want(401, "", "POST", "/api/v1/session", `{"token":"wrong"}`)
	h.want(400, "", "POST", "/api/v1/session", `{"token":7}`)
	h.want(400, "", "POST", "/api/v1/session", `{"tokn":"x"}`)
	h.want(400, "", "POST", "/api/v1/session", `{"token":"a"} {}`)
	h.want(415, "", "POST", "/api/v1/session", `token=x`, form...)
	h.want(413, "", "POST", "/api/v1/session", `{"token":"`+strings.Repeat("x", maxBodyBytes)+`"}`)
	h.want(200, "", "GET", "/api/v1/session", "", "Cookie", cookie)
	h.want(401, "", "GET", "/api/v1/session", "")
	h.want(200, "alice", "GET", "/api/v1/rights", "")
	h.want(401, "", "GET", "/api/v1/rights", "")
	h.want(204, "", "DELETE", "/api/v1/session", "")
	h.want(400, "", "DELETE", "/api/v1/session?x=y", "")
	h.want(200, "", "GET", "/api/v1/login", "")
	h.want(400, "", "GET", "/api/v1/login?x=y", "")
	h.want(200, "alice", "GET", "/api/v1/tenants", "")
	h.want(403, "nobody", "GET", "/api/v1/tenants", "")
	h.want(200, "alice", "GET", "/api/v1/kubernetes", "")
	h.want(401, "", "GET", "/api/v1/kubernetes", "")
	h.want(303, "", "GET", "/api/v1/session/oidc?return=/alerts", "")
	h.want(400, "", "GET", "/api/v1/session/oidc?x=y", "")
	h.want(303, "", "GET", "/api/v1/session/oidc/callback?session_state=theirs", "")
	h.want(400, "", "GET", "/api/v1/session/oidc/callback?state=a&state=b", "")

	for _, path := range []string{"/sites", "/sites/paris-07", "/sites/paris-07/explain", "/virtualsites", "/virtualsites/all-eu", "/policies"} {
		h.want(200, "alice", "GET", "/api/v1/health"+path, "")
		h.want(401, "", "GET", "/api/v1/health"+path, "")
		h.want(403, "nobody", "GET", "/api/v1/health"+path, "")
		h.want(400, "alice", "GET", "/api/v1/health"+path+"?bogus=1", "")
	}
	h.want(200, "alice", "GET", "/api/v1/sites?tenant=acme&q=kind%3Dstore+score%3C60&sort=-score,name&columns=score,label.tier&group=tier&limit=10000&cursor=x&format=json", "")
	if r := h.health.last(); r.Header.Get(wire.TenantsHeader) != "acme" || r.URL.Query().Get("q") != "kind=store score<60" {
		t.Errorf("the health role was asked %s for %q", r.URL, r.Header.Get(wire.TenantsHeader))
	}
	h.want(200, "alice", "GET", "/api/v1/sites?format=csv&limit=0", "")
	h.want(400, "alice", "GET", "/api/v1/sites?format=xml", "")
	h.want(400, "alice", "GET", "/api/v1/sites?limit=10001", "")
	h.want(403, "nobody", "GET", "/api/v1/sites", "")
	h.want(401, "", "GET", "/api/v1/sites", "")
	h.want(200, "alice", "GET", "/api/v1/site-fields?tenant=acme", "")
	h.want(403, "alice", "GET", "/api/v1/site-fields?tenant=globex", "")
	h.want(200, "alice", "GET", "/api/v1/site-map?tenant=acme&q=score%3C60&by=memoryUsed", "")
	h.want(400, "alice", "GET", "/api/v1/site-map?columns=memoryUsed", "")
	h.want(403, "nobody", "GET", "/api/v1/site-map", "")
	h.want(401, "", "GET", "/api/v1/site-map", "")
	h.want(200, "alice", "GET", "/api/v1/site-distributions?tenant=acme&q=score%3C60&of=cpuUsed,measured.packet-loss", "")
	h.want(400, "alice", "GET", "/api/v1/site-distributions?by=cpuUsed", "")
	h.want(403, "alice", "GET", "/api/v1/site-distributions?tenant=globex", "")
	h.want(401, "", "GET", "/api/v1/site-distributions", "")
	h.want(200, "alice", "GET", "/api/v1/links?tenant=acme&q=link.loss%3E1&sort=-link.roundTrip&by=virtualSite&limit=0&cursor=x", "")
	h.want(400, "alice", "GET", "/api/v1/links?limit=1001", "")
	h.want(403, "alice", "GET", "/api/v1/links?tenant=globex", "")
	h.want(401, "", "GET", "/api/v1/links", "")
	h.want(200, "alice", "GET", "/api/v1/cost?tenant=acme&by=site&sort=cpu&virtualSite=shared/all-eu&q=par&limit=5&cursor=x", "")
	h.want(400, "alice", "GET", "/api/v1/cost?by=node", "")
	h.want(400, "alice", "GET", "/api/v1/cost?sort=price", "")
	h.want(401, "", "GET", "/api/v1/cost", "")
	h.want(200, "alice", "GET", "/api/v1/cost/names?tenant=acme&site=paris-07", "")
	h.want(400, "alice", "GET", "/api/v1/cost/names?site=No_Name", "")
	h.want(403, "nobody", "GET", "/api/v1/cost/names", "")
	h.want(403, "nobody", "GET", "/api/v1/cost", "")
	h.want(200, "alice", "GET", "/api/v1/health/sites?tenant=acme&virtualSite=shared/all-eu&region=eu&colour=red&phase=Online&q=par&sort=score&limit=1000&cursor=x", "")
	h.want(200, "alice", "GET", "/api/v1/health/sites/paris-07/explain?shadow=true", "")
	h.want(400, "alice", "GET", "/api/v1/health/sites/paris-07/explain?shadow=maybe", "")
	h.want(404, "alice", "GET", "/api/v1/health/sites/nowhere", "")
	h.want(404, "alice", "GET", "/api/v1/health/virtualsites/nothing?namespace=shared", "")
	h.want(400, "alice", "GET", "/api/v1/health/virtualsites/No_Name", "")
	h.want(401, "", "GET", "/api/v1/health/stream", "")
	h.want(200, "alice", "GET", "/api/v1/health/policies/default?tenant=acme", "")
	h.want(400, "alice", "GET", "/api/v1/health/policies/No_Name", "")
	h.want(403, "alice", "GET", "/api/v1/health/policies/default?tenant=globex", "")
	h.want(404, "alice", "GET", "/api/v1/health/policies/nothing", "")
	const rules = "/api/v1/alertrules"
	h.want(201, "alice", "POST", rules, rulesBody("high", "up > 1", ""))
	h.want(409, "alice", "POST", rules, rulesBody("high", "up > 1", ""))
	h.want(200, "alice", "GET", rules+"/high?tenant=acme", "")
	h.want(404, "alice", "GET", rules+"/low?tenant=acme", "")
	h.want(200, "alice", "GET", "/api/v1/runbooks/SiteDown", "")
	h.want(200, "nobody", "GET", "/api/v1/runbooks/SiteDown", "")
	h.want(401, "", "GET", "/api/v1/runbooks/SiteDown", "")
	h.want(404, "alice", "GET", "/api/v1/runbooks/Nothing", "")
	h.want(400, "alice", "GET", "/api/v1/runbooks/No-Name", "")
	const try, replay = "/api/v1/health/try", "/api/v1/health/replay"
	h.want(200, "alice", "POST", replay+"?since=24h&cursor=paris-07", `{"kind":"HealthPolicy","metadata":{},"spec":{}}`)
	if r := h.health.last(); r.URL.Query().Get("since") != "24h" || r.URL.Query().Get("tenant") != "acme" {
		t.Errorf("the health role was asked %s", r.URL)
	}
	h.want(400, "alice", "POST", replay+"?bogus=1", `{}`)
	h.want(403, "nobody", "POST", replay, `{}`)
	h.want(200, "alice", "POST", try, `{"kind":"HealthPolicy","metadata":{},"spec":{}}`)
	h.want(401, "", "POST", try, `{}`)
	h.want(403, "alice", "POST", try+"?tenant=globex", `{"kind":"HealthPolicy","metadata":{},"spec":{}}`)
	h.want(403, "nobody", "POST", try, `{"kind":"HealthPolicy","metadata":{},"spec":{}}`)
	h.want(400, "both", "POST", try, `{"kind":"HealthPolicy","metadata":{},"spec":{}}`)
	h.want(400, "alice", "POST", try+"?bogus=1", `{}`)
	h.want(415, "alice", "POST", try, `x`, form...)
	h.want(413, "alice", "POST", try, strings.Repeat(" ", maxPolicyBytes+1))
	if r := h.health.last(); r.Method != http.MethodPost || r.Header.Get("X-Muster-Tenants") != "acme" || r.URL.RawQuery != "tenant=acme" {
		t.Errorf("the health role was asked %s %s for %q", r.Method, r.URL, r.Header.Get("X-Muster-Tenants"))
	}
	h.want(403, "alice", "GET", "/api/v1/health/stream?tenant=globex", "")

	h.want(200, "alice", "GET", "/api/v1/sites/paris-07?tenant=acme", "")
	h.want(404, "alice", "GET", "/api/v1/sites/nowhere?tenant=acme", "")
	h.want(404, "both", "GET", "/api/v1/sites/nowhere", "")
	h.want(409, "both", "GET", "/api/v1/sites/twin", "")
	h.want(200, "alice", "PUT", "/api/v1/sites/paris-07/maintenance?tenant=acme", `{"reason":"new router","until":"2026-02-01T00:00:00Z"}`)
	h.want(204, "alice", "DELETE", "/api/v1/sites/paris-07/maintenance?tenant=acme", "")
	h.want(403, "carol", "PUT", "/api/v1/sites/paris-07/maintenance?tenant=acme", `{"reason":"x"}`)
	h.want(403, "carol", "DELETE", "/api/v1/sites/paris-07/maintenance?tenant=acme", "")

	const reset = "/api/v1/sites/paris-07/reset?tenant=acme"
	h.want(409, "alice", "DELETE", reset, "")
	h.want(200, "alice", "POST", reset, `{"wait":"1h","approveAgain":true}`)
	h.want(400, "alice", "POST", reset, `{}`)
	h.want(403, "carol", "POST", reset, `{"wait":"1h"}`)
	h.want(403, "carol", "DELETE", reset, "")
	h.want(204, "alice", "DELETE", reset, "")
	h.want(404, "alice", "POST", "/api/v1/sites/nowhere/reset?tenant=acme", `{"wait":"1h"}`)
	h.want(404, "alice", "DELETE", "/api/v1/sites/nowhere/reset?tenant=acme", "")

	const bulk = "/api/v1/sites:change"
	h.want(200, "alice", "POST", bulk, `{"sites":[{"tenant":"acme","name":"paris-07"}],"maintenance":{"reason":"new router","until":"2026-02-01T00:00:00Z"}}`)
	h.want(400, "alice", "POST", bulk, `{"sites":[{"tenant":"acme","name":"paris-07"}],"maintenance":{"reason":""}}`)
	h.want(400, "alice", "POST", bulk, `{"sites":[],"approve":true}`)
	h.want(400, "alice", "POST", bulk, `{"sites":[{"tenant":"acme","name":"paris-07"}],"approve":true,"endMaintenance":true}`)
	h.want(400, "alice", "POST", bulk, `{"sites":[{"tenant":"acme","name":"No_Name"}],"approve":true}`)
	h.want(400, "alice", "POST", bulk, `{"sites":[{"tenant":"acme","name":"paris-07"}],"labels":{"muster.dev/tenant":"globex"}}`)
	h.want(400, "alice", "POST", bulk, `{"sites":[{"tenant":"acme","name":"paris-07"}],"labels":{"tier":"not a value"}}`)
	h.want(401, "", "POST", bulk, `{}`)
	h.want(415, "alice", "POST", bulk, `x`, form...)
	h.want(200, "alice", "GET", "/api/v1/registrations?limit=1", "")
	h.want(400, "alice", "GET", "/api/v1/registrations?cursor=%25", "")
	h.want(200, "alice", "POST", "/api/v1/registrations/rome-01/approve?tenant=acme", `{"labels":{"region":"eu-south"},"place":{"latitude":41.9,"longitude":12.5,"address":"Rome"}}`)
	h.want(400, "alice", "POST", "/api/v1/registrations/oslo-001/approve?tenant=acme", `{"place":{"latitude":1,"longitude":1,"address":"refuse me"}}`)
	h.want(403, "carol", "POST", "/api/v1/registrations/oslo-001/approve?tenant=acme", "")
	h.want(403, "carol", "POST", "/api/v1/registrations/oslo-001/reject?tenant=acme", "")
	h.want(204, "alice", "POST", "/api/v1/registrations/oslo-001/reject?tenant=acme", "")

	h.want(200, "alice", "GET", q+"?query=up", "")
	h.want(400, "alice", "GET", q, "")
	h.want(200, "alice", "POST", q, "query=up&time=1", form...)
	h.want(415, "alice", "POST", q, `{"query":"up"}`)
	h.want(413, "alice", "POST", q, "query="+strings.Repeat("x", maxBodyBytes), form...)
	h.want(200, "alice", "GET", q+"_range?query=up&start=0&end=60&step=15s", "")
	h.want(400, "alice", "GET", q+"_range?query=up", "")
	h.want(200, "alice", "POST", q+"_range", "query=up&start=2026-01-31T12:00:00Z&end=2026-01-31T13:00:00Z&step=60", form...)
	h.want(400, "alice", "POST", q+"_range", "query=up&start=0&end=60000000&step=1", form...)
	h.metrics.fail = http.StatusUnprocessableEntity
	h.want(422, "alice", "GET", q+"?query=up", "")

	const (
		window  = "/api/v1/sites/paris-07/maintenance/windows/updates?tenant=acme"
		virtual = "/api/v1/virtualsites/shared/all-eu/maintenance/windows"
		weekly  = `{"reason":"updates","schedule":"0 2 * * SUN","timeZone":"Europe/Berlin","duration":"2h"}`
	)
	h.want(200, "alice", "PUT", window, weekly)
	h.want(200, "alice", "PUT", window, `{"reason":"once","start":"2026-02-01T00:00:00Z","duration":"90m"}`)
	h.want(403, "carol", "PUT", window, weekly)
	h.want(204, "alice", "DELETE", window, "")
	h.want(404, "alice", "DELETE", window, "")
	h.want(200, "alice", "PUT", virtual+"/updates", weekly)
	h.want(200, "alice", "GET", virtual, "")
	h.want(404, "alice", "GET", "/api/v1/virtualsites/shared/none/maintenance/windows", "")
	h.want(403, "carol", "PUT", virtual+"/updates", weekly)
	h.want(204, "alice", "DELETE", virtual+"/updates", "")
	h.want(404, "alice", "DELETE", virtual+"/updates", "")

	h.want(200, "alice", "GET", "/api/v1/logs/search?query=severity:error&from=now-1h&virtualSite=all-eu&site=a,b&site=c&severity=error&namespace=x&limit=10", "")
	h.want(400, "alice", "GET", "/api/v1/logs/search?nonsense=1", "")
	h.want(403, "carol", "GET", "/api/v1/logs/search", "")
	h.want(403, "carol", "GET", "/api/v1/logs/tail", "")
	if a := h.send("alice", "HEAD", "/api/v1/logs/tail", ""); a.StatusCode != 405 {
		t.Errorf("HEAD of a stream: %d", a.StatusCode)
	}

	h.want(200, "alice", "GET", wire.TimelinePath+"?tenant=acme&site=paris-07&virtualSite=shared/all-eu&kind=colour&from=2026-01-01T00:00:00Z&to=4000000000&limit=5", "")
	h.want(400, "alice", "GET", wire.TimelinePath+"?kind=mood", "")
	h.want(401, "", "GET", wire.TimelinePath, "")
	h.want(403, "nobody", "GET", wire.TimelinePath, "")
	h.want(200, "alice", "GET", "/api/v1/alerts?virtualSite=shared/all-eu&site=paris-07&severity=critical&state=active&q=x&limit=5", "")
	h.want(400, "alice", "GET", "/api/v1/alerts?severity=bad", "")
	h.want(200, "alice", "GET", "/api/v1/alerts/state?virtualSite=shared/all-eu", "")
	h.want(403, "nobody", "GET", "/api/v1/alerts/state", "")
	h.want(200, "alice", "GET", "/api/v1/metrics/names?label=job&match=up&q=a&limit=5", "")
	h.want(400, "alice", "GET", "/api/v1/metrics/names?limit=0", "")
	h.want(200, "alice", "GET", "/api/v1/metrics/condition?query=x%20%3E%201&site=paris-07", "")
	h.want(400, "alice", "GET", "/api/v1/metrics/condition?query=x%28", "")
	h.want(200, "alice", "GET", "/api/v1/alerts/groups?severity=critical&sort=count&limit=5", "")
	h.want(400, "alice", "GET", "/api/v1/alerts/groups?sort=age", "")
	h.want(403, "nobody", "GET", "/api/v1/alerts/groups", "")
	h.want(200, "alice", "GET", "/api/v1/alerts/notifications?limit=5", "")
	h.want(400, "alice", "GET", "/api/v1/alerts/notifications?q=x", "")
	h.want(403, "nobody", "GET", "/api/v1/alerts/notifications", "")
	h.want(200, "alice", "GET", "/api/v1/alerts/8a1f6b7c2d3e4f50", "")
	h.want(404, "alice", "GET", "/api/v1/alerts/0000000000000000", "")
	h.want(400, "alice", "GET", "/api/v1/alerts/..%2f..", "")
	h.want(200, "alice", "GET", "/api/v1/silences?state=active", "")
	// What silences of no tenant say is told to who may read all of them, also where those of one tenant are asked for.
	for user, tenants := range map[string]string{"alice": "acme", "root": wire.AllTenants} {
		h.want(200, user, "GET", "/api/v1/silences?tenant=acme", "")
		if r, _ := h.alerts.last(); r.Header.Get(wire.TenantsHeader) != tenants || r.URL.RawQuery != "tenant=acme" {
			t.Errorf("%s: the alerting role was asked %s for %q", user, r.URL, r.Header.Get(wire.TenantsHeader))
		}
	}
	h.want(403, "carol", "GET", "/api/v1/silences", "")
	h.want(201, "alice", "POST", "/api/v1/silences", `{"matchers":[{"name":"site","value":"paris-07"}],"duration":"2h","comment":"disk"}`)
	h.want(400, "alice", "POST", "/api/v1/silences", `{"matchers":[],"duration":"2h","comment":"disk"}`)
	h.want(204, "alice", "DELETE", "/api/v1/silences/5f1d8a52", "")
	h.want(404, "alice", "DELETE", "/api/v1/silences/nothing", "")

	h.want(200, "alice", "GET", "/api/v1/vk8s?tenant=acme", "")
	h.want(400, "alice", "GET", "/api/v1/vk8s?x=y", "")
	h.want(400, "alice", "GET", "/api/v1/views?x=y", "")
	h.want(200, "alice", "GET", "/api/v1/views", "")
	h.want(200, "alice", "PUT", "/api/v1/views/Mine", `{"query":"score<60"}`)
	h.want(409, "alice", "PUT", "/api/v1/views/Mine?new=true", `{}`)
	h.want(403, "alice", "PUT", "/api/v1/views/All?shared=true", `{}`)
	h.want(204, "alice", "DELETE", "/api/v1/views/Mine", "")
	h.want(404, "alice", "DELETE", "/api/v1/views/Mine", "")
	h.want(400, "alice", "GET", "/api/v1/virtualhosts?x=y", "")
	h.want(200, "alice", "GET", "/api/v1/virtualhosts", "")
	h.want(200, "alice", "GET", acmeShop, "")
	h.want(404, "alice", "GET", "/api/v1/vk8s/shop/other?tenant=acme", "")
	h.want(200, "alice", "GET", "/api/v1/vk8s/shop/vk8s/kubeconfig?tenant=acme", "")
	h.want(404, "nobody", "GET", "/api/v1/vk8s/shop/vk8s/kubeconfig", "")
	h.want(200, "alice", "GET", "/api/v1/sites/paris-07/workloads", "")
	h.want(403, "alice", "GET", "/api/v1/sites/nowhere-1/workloads?tenant=globex", "")
	h.want(200, "alice", "GET", acmeShop+"/workloads", "")
	h.want(404, "nobody", "GET", acmeShop+"/workloads", "")
	h.want(200, "alice", "GET", acmeShop+"/workloads/Deployment.apps/web", "")
	h.want(400, "alice", "GET", acmeShop+"/workloads/deployments/web", "")
	h.want(200, "alice", "GET", acmeShop+"/workloads/Deployment.apps/web/object", "")
	h.want(404, "alice", "GET", acmeShop+"/workloads/Deployment.apps/other/object", "")
	h.want(200, "alice", "GET", acmeShop+"/workloads/Deployment.apps/web/pods?limit=2", "")
	h.want(400, "alice", "GET", acmeShop+"/workloads/Deployment.apps/web/pods?site=No_Name", "")
	h.want(204, "alice", "DELETE", acmeShop+"/pods/web-1", "")
	h.want(404, "alice", "DELETE", acmeShop+"/pods/web-9", "")
	h.want(404, "alice", "GET", acmeShop+"/pods/web-9/log", "")
	h.want(400, "alice", "GET", acmeShop+"/pods/web-1/log?lines=0", "")
	h.want(200, "alice", "POST", acmeShop+"/apply", applyBody(twoObjects, ""))
	h.want(415, "alice", "POST", acmeShop+"/apply", "yaml=x", form...)
	h.want(413, "alice", "POST", acmeShop+"/apply", applyBody(strings.Repeat("x", maxApplyBytes), ""))

	for _, path := range []string{"", "/sites", "/gates"} {
		h.want(200, "alice", "GET", webRollout+path, "")
		h.want(404, "alice", "GET", "/api/v1/rollouts/shop/none"+path, "")
	}
	for _, action := range []string{"pause", "resume", "promote", "retry", "abort"} {
		h.want(200, "alice", "POST", webRollout+"/"+action, "")
		h.want(404, "alice", "POST", "/api/v1/rollouts/shop/none/"+action, "")
	}
	h.want(404, "alice", "GET", "/api/v1/rollouts/shop/none/stream", "")
	h.want(403, "nobody", "GET", "/api/v1/rollouts/stream", "")
	h.want(204, "alice", "DELETE", "/api/v1/rollouts/shop/web-0", "")
	h.want(409, "alice", "DELETE", webRollout, "")
	h.want(201, "alice", "POST", "/api/v1/rollouts", startWeb)
	h.want(415, "alice", "POST", "/api/v1/rollouts", `x`, form...)
	h.api.rollouts.verdict = &v1alpha1.GateCheckStatus{Verdict: v1alpha1.GatePass}
	check := h.want(200, "alice", "POST", "/api/v1/gates:evaluate", `{"virtualSite":"shop/canary"}`)
	h.want(400, "alice", "POST", "/api/v1/gates:evaluate", `{}`)
	var made checkView
	check.json(t, &made)
	h.want(200, "alice", "GET", "/api/v1/gates/shop/"+made.Name, "")
	h.want(404, "alice", "GET", "/api/v1/gates/shop/none", "")
	for _, path := range []string{"/web-1", "/web-1/gates", ""} {
		h.want(200, "alice", "GET", "/api/v1/rollouts"+path, "")
		h.want(403, "nobody", "GET", "/api/v1/rollouts"+path, "")
	}

	seen := h.con3.seen
	// The streams' success is read in TestStream, TestLogTail, TestPodLog and TestStreamsOfRollouts.
	for _, id := range []string{"streamHealth", "tailLogs", "followPodLog", "streamRollouts", "streamRollout"} {
		seen[id][200] = true
	}
	for path, item := range h.con3.doc.Paths.Map() {
		for method, op := range item.Operations() {
			var ok, bad bool
			for code := range seen[op.OperationID] {
				ok, bad = ok || code < 400, bad || code >= 400
			}
			if !ok || !bad {
				t.Errorf("%s %s: no success or no error was tried (%v)", method, path, seen[op.OperationID])
			}
		}
	}
}

func TestUnknownPathsAndMethodsAreProblems(t *testing.T) {
	h := newHarness(t)
	for _, path := range []string{"/api/", "/api/v1/nothing", "/api/v2/session", "/api/v1/health/nothing", "/api/v1/sites/a/b/c"} {
		h.want(404, "alice", "GET", path, "")
	}
	for target, allow := range map[string]string{
		"PATCH /api/v1/session":                     "DELETE, GET, HEAD, POST",
		"POST /api/v1/health/sites":                 "GET, HEAD",
		"GET /api/v1/registrations/rome-01/approve": "POST",
		"OPTIONS /api/v1/metrics/query":             "GET, HEAD, POST",
		"DELETE /api/v1/sites/paris-07?tenant=acme": "GET, HEAD",
		"POST /": "GET, HEAD",
		"BREW /api/v1/sites/paris-07/maintenance?a=": "DELETE, PUT",
	} {
		method, path, _ := strings.Cut(target, " ")
		if a := h.want(405, "alice", method, path, ""); a.Header.Get("Allow") != allow {
			t.Errorf("%s: Allow %q, want %q", target, a.Header.Get("Allow"), allow)
		}
	}
}

func TestInvalidInputNamesTheField(t *testing.T) {
	h := newHarness(t)
	for _, c := range []struct{ method, target, body, field string }{
		{"GET", "/api/v1/health/sites?limit=0", "", "limit"},
		{"GET", "/api/v1/health/sites?limit=1001", "", "limit"},
		{"GET", "/api/v1/health/sites?limit=1&limit=2", "", "limit"},
		{"GET", "/api/v1/health/sites?colour=blue", "", "colour"},
		{"GET", "/api/v1/health/sites?phase=online", "", "phase"},
		{"GET", "/api/v1/health/sites?sort=age", "", "sort"},
		{"GET", "/api/v1/health/sites?color=red", "", "color"},
		{"GET", "/api/v1/health/sites?tenant=a,b", "", "tenant"},
		{"GET", "/api/v1/health/sites?tenant=*", "", "tenant"},
		{"GET", "/api/v1/health/sites?a;b", "", "query string"},
		{"GET", "/api/v1/health/sites/..%2f..%2fmetrics", "", "site"},
		{"GET", "/api/v1/sites/UPPER?tenant=acme", "", "site"},
		{"GET", "/api/v1/registrations?cursor=garbage", "", "cursor"},
		{"PUT", "/api/v1/sites/paris-07/maintenance?tenant=acme", `{"reason":"  "}`, "reason"},
		{"PUT", "/api/v1/sites/paris-07/maintenance?tenant=acme", `{"reason":"` + strings.Repeat("ü", 201) + `"}`, "reason"},
		{"PUT", "/api/v1/sites/paris-07/maintenance?tenant=acme", `{"reason":"x","until":"2020-01-01T00:00:00Z"}`, "until"},
		{"PUT", "/api/v1/sites/paris-07/maintenance?tenant=acme", `{"reason":"x","until":"soon"}`, "body"},
		{"POST", "/api/v1/sites/paris-07/reset?tenant=acme", `{"wait":"59s"}`, "wait"},
		{"POST", "/api/v1/sites/paris-07/reset?tenant=acme", `{"wait":"721h"}`, "wait"},
		{"POST", "/api/v1/sites/paris-07/reset?tenant=acme", `{"discardSpool":true}`, "wait"},
		{"POST", "/api/v1/sites/paris-07/reset?tenant=acme", `{"wait":"1h","id":"mine"}`, "body"},
		{"POST", "/api/v1/registrations/rome-01/approve?tenant=acme", `{"labels":{"muster.dev/tenant":"globex"}}`, "labels.muster.dev/tenant"},
		{"POST", "/api/v1/registrations/rome-01/approve?tenant=acme", `{"labels":{"a b":"c"}}`, "labels.a b"},
		{"POST", "/api/v1/registrations/rome-01/approve?tenant=acme", `{"labels":{"a":"b c"}}`, "labels.a"},
		{"POST", "/api/v1/registrations/rome-01/approve?tenant=acme", `{"place":{"latitude":91,"longitude":0}}`, "place.latitude"},
		{"POST", "/api/v1/registrations/rome-01/approve?tenant=acme", `{"place":{"latitude":1}}`, "place.longitude"},
		{"POST", "/api/v1/registrations/rome-01/approve?tenant=acme", `{"place":{"latitude":"1"}}`, "place.latitude"},
		{"POST", "/api/v1/registrations/rome-01/approve?tenant=acme", `{"approved":true}`, "body"},
		{"GET", "/api/v1/logs/search?tenant=acme&limit=1001", "", "limit"},
		{"GET", "/api/v1/logs/search?q=x", "", "q"},
		{"GET", "/api/v1/logs/search?query=a&query=b", "", "query"},
		{"GET", "/api/v1/logs/search?query=" + strings.Repeat("x", 5000), "", "query"},
		{"GET", "/api/v1/logs/search?site=" + strings.Repeat("a,", 300), "", "site"},
		{"GET", "/api/v1/logs/tail?cursor=x", "", "cursor"},
		{"GET", "/api/v1/alerts?state=firing", "", "state"},
		{"GET", "/api/v1/alerts/state?q=x", "", "q"},
		{"GET", "/api/v1/alerts/UPPER", "", "fingerprint"},
		{"GET", "/api/v1/silences?limit=1", "", "limit"},
		{"DELETE", "/api/v1/silences/a%2fb", "", "silence"},
		{"POST", "/api/v1/silences", `{"matchers":[{"name":"tenant","value":"globex"}],"duration":"1h","comment":"x"}`, "matchers[0].name"},
		{"POST", "/api/v1/silences", `{"matchers":[{"name":"a","value":"(","isRegex":true}],"duration":"1h","comment":"x"}`, "matchers[0].value"},
		{"POST", "/api/v1/silences", `{"matchers":[{"name":"a","value":"b"}],"comment":"x"}`, "duration"},
		{"POST", "/api/v1/silences", `{"matchers":[{"name":"a","value":"b"}],"duration":"1h","endsAt":"2027-01-01T00:00:00Z","comment":"x"}`, "duration"},
		{"POST", "/api/v1/silences", `{"matchers":[{"name":"a","value":"b"}],"endsAt":"2020-01-01T00:00:00Z","comment":"x"}`, "endsAt"},
		{"POST", "/api/v1/silences", `{"matchers":[{"name":"a","value":"b"}],"duration":"9y","comment":"x"}`, "endsAt"},
		{"POST", "/api/v1/silences", `{"matchers":[{"name":"a","value":"b"}],"duration":"1h","comment":" "}`, "comment"},
		{"POST", "/api/v1/silences", `{"matchers":[{"name":"a","value":"b"}],"duration":"1h","comment":"x","createdBy":"bob"}`, "body"},
		{"PUT", "/api/v1/sites/paris-07/maintenance/windows/w?tenant=acme", `{"reason":"x","duration":"2h"}`, "start"},
		{"PUT", "/api/v1/sites/paris-07/maintenance/windows/w?tenant=acme", `{"reason":"x","start":"2026-02-01T00:00:00Z","schedule":"0 2 * * *","duration":"2h"}`, "schedule"},
		{"PUT", "/api/v1/sites/paris-07/maintenance/windows/w?tenant=acme", `{"reason":"x","start":"2026-01-31T09:00:00Z","duration":"2h"}`, "start"},
		{"PUT", "/api/v1/sites/paris-07/maintenance/windows/w?tenant=acme", `{"reason":"x","schedule":"@daily","duration":"2h"}`, "schedule"},
		{"PUT", "/api/v1/sites/paris-07/maintenance/windows/w?tenant=acme", `{"reason":"x","schedule":"0 2 * * *","duration":"2 weeks"}`, "duration"},
		{"PUT", "/api/v1/sites/paris-07/maintenance/windows/w?tenant=acme", `{"reason":"x","schedule":"0 2 * * *","duration":"2h","timeZone":"Mars/Olympus"}`, "timeZone"},
		{"PUT", "/api/v1/sites/paris-07/maintenance/windows/W?tenant=acme", `{"reason":"x","schedule":"0 2 * * *","duration":"2h"}`, "window"},
		{"PUT", "/api/v1/virtualsites/Shared/all-eu/maintenance/windows/w?tenant=acme", `{"reason":"x","schedule":"0 2 * * *","duration":"2h"}`, "namespace"},
		{"GET", "/api/v1/metrics/query?query=up&time=yesterday", "", "time"},
		{"GET", "/api/v1/metrics/query_range?query=up&start=1&end=0&step=1", "", "end"},
		{"GET", "/api/v1/metrics/query_range?query=up&start=0&end=1&step=-1", "", "step"},
		{"GET", "/api/v1/metrics/query_range?query=up&start=0&end=1e9&step=1", "", "step"},
	} {
		a := h.want(400, "alice", c.method, c.target, c.body)
		p := a.problem(t)
		if len(p.Errors) == 0 || p.Errors[0].Field != c.field || p.Errors[0].Detail == "" {
			t.Errorf("%s %s %s: problem names %+v, want %s", c.method, c.target, c.body, p.Errors, c.field)
		}
	}
	for _, e := range h.api.auditLog() {
		if strings.Contains(e, "patch") {
			t.Errorf("invalid input led to %s", e)
		}
	}
}

func TestPanicBecomesAProblemWithANumber(t *testing.T) {
	h := newHarness(t)
	a := h.send("alice", "GET", "/api/v1/metrics/query?query=panic_now", "")
	p := a.problem(t)
	if a.StatusCode != 500 || !strings.HasPrefix(p.Instance, "urn:muster:incident:") {
		t.Fatalf("%d %s", a.StatusCode, a.body)
	}
	if n := strings.Count(h.log.String(), "instance="+p.Instance); n != 1 {
		t.Errorf("the log names the incident %d times, want once", n)
	}
	if strings.Contains(string(a.body), "a bug in") {
		t.Errorf("the cause went to the user: %s", a.body)
	}
}

func TestDocumentIsServedAsJSON(t *testing.T) {
	h := newHarness(t)
	a := h.want(200, "", "GET", "/api/v1/openapi.json", "")
	var doc struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]any
	}
	a.json(t, &doc)
	if doc.OpenAPI != "3.0.3" || len(doc.Paths) < 14 {
		t.Errorf("%s with %d paths", doc.OpenAPI, len(doc.Paths))
	}
	if got := fmt.Sprint(a.Header["Cache-Control"], a.Header["X-Content-Type-Options"], a.Header["Content-Security-Policy"]); got != "[no-store] [nosniff] [default-src 'none'; frame-ancestors 'none'; sandbox]" {
		t.Errorf("headers: %s", got)
	}
}

// TestMockKeepsTheContract holds the mock that the page is developed and tested against
// to the same document: else a browser test could pass on an answer that nobody gives.
func TestMockKeepsTheContract(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node on this machine")
	}
	cmd := exec.CommandContext(t.Context(), node, "mock/server.mjs", "0")
	cmd.Dir, cmd.Env = "ui", append(os.Environ(), "MOCK_STILL=1", "MOCK_TICK_MS=1000", "TOKEN=mock")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // after the test's context has ended it
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	base := regexp.MustCompile(`http://[^/]+`).FindString(line)
	c, cookie := loadContract(t), ""
	send := func(status int, method, path, body string) []byte {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		req.Header.Set("Cookie", cookie)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != status {
			t.Errorf("%s %s: %d, want %d: %.300s", method, path, res.StatusCode, status, b)
		}
		for _, k := range res.Cookies() {
			cookie = k.Name + "=" + k.Value
		}
		req.URL.Host, req.URL.Scheme, req.Host = "", "", "" // the document's server is /
		c.check(t, req, res, b)
		return b
	}
	decode := func(b []byte, into any) {
		t.Helper()
		if err := json.Unmarshal(b, into); err != nil {
			t.Fatalf("%v: %.300s", err, b)
		}
	}

	send(401, "GET", "/api/v1/session", "")
	send(401, "POST", "/api/v1/session", `{"token":"wrong"}`)
	send(204, "POST", "/api/v1/session", `{"token":"mock"}`)
	send(200, "GET", "/api/v1/session", "")
	send(200, "GET", "/api/v1/rights", "")
	send(404, "GET", "/api/v1/nothing", "")

	var sites struct {
		Sites []struct{ Tenant, Name, Colour string }
	}
	decode(send(200, "GET", "/api/v1/health/sites?limit=1000", ""), &sites)
	send(400, "GET", "/api/v1/health/sites?nonsense=1", "")
	for _, s := range sites.Sites {
		at := s.Name + "?tenant=" + s.Tenant
		send(200, "GET", "/api/v1/health/sites/"+at, "")
		send(200, "GET", "/api/v1/sites/"+at, "")
	}
	send(404, "GET", "/api/v1/health/sites/nowhere", "")
	send(200, "GET", "/api/v1/health/virtualsites", "")
	send(200, "GET", "/api/v1/health/policies", "")
	send(404, "GET", "/api/v1/health/policies/nothing", "")
	send(200, "GET", "/api/v1/runbooks/SiteDown", "")
	send(404, "GET", "/api/v1/runbooks/Nothing", "")
	send(200, "POST", "/api/v1/alertrules?tenant=acme", rulesBody("high", "up > 1", `,"dryRun":true`))
	send(404, "GET", "/api/v1/alertrules/high?tenant=acme", "")
	send(201, "POST", "/api/v1/alertrules?tenant=acme", rulesBody("high", "up > 1", ""))
	send(200, "GET", "/api/v1/alertrules/high?tenant=acme", "")
	send(409, "POST", "/api/v1/alertrules?tenant=acme", rulesBody("high", "up > 1", ""))
	send(400, "POST", "/api/v1/alertrules?tenant=acme", rulesBody("low", "up >", ""))
	send(400, "POST", "/api/v1/alertrules?tenant=acme", rulesBody("No_Name", "up > 1", ""))
	var written struct{ Spec json.RawMessage }
	decode(send(200, "GET", "/api/v1/health/policies/default?tenant=acme", ""), &written)
	candidate := `{"kind":"HealthPolicy","metadata":{"name":"default"},"spec":` + string(written.Spec) + `}`
	send(200, "POST", "/api/v1/health/try?tenant=acme&patience=2s", candidate)
	send(200, "POST", "/api/v1/health/replay?tenant=acme&since=24h", candidate)
	send(400, "POST", "/api/v1/health/try?tenant=acme", `{}`)
	site := sites.Sites[0]
	at := "/api/v1/sites/" + site.Name + "/maintenance"
	in := "?tenant=" + site.Tenant
	send(200, "PUT", at+in, `{"reason":"new router","until":"2099-02-01T00:00:00Z"}`)
	send(400, "PUT", at+in, `{}`)
	send(204, "DELETE", at+in, "")
	send(200, "PUT", at+"/windows/updates"+in, `{"reason":"updates","schedule":"0 2 * * SUN","timeZone":"Europe/Berlin","duration":"2h"}`)
	send(400, "PUT", at+"/windows/updates"+in, `{"reason":"updates"}`)
	send(200, "GET", "/api/v1/sites/"+site.Name+in, "")
	send(204, "DELETE", at+"/windows/updates"+in, "")
	send(404, "DELETE", at+"/windows/updates"+in, "")

	var pending struct {
		Registrations []struct{ Tenant, Name string }
	}
	decode(send(200, "GET", "/api/v1/registrations", ""), &pending)
	for i, p := range pending.Registrations {
		path := "/api/v1/registrations/" + p.Name + []string{"/approve", "/reject"}[i%2] + "?tenant=" + p.Tenant
		send([]int{200, 204}[i%2], "POST", path, "{}")
		send(404, "POST", path, "{}")
	}
	send(200, "GET", "/api/v1/metrics/query_range?query=muster_site_health_score%7Bsite%3D%22"+site.Name+"%22%7D&start=0&end=600&step=60"+"&tenant="+site.Tenant, "")
	send(200, "GET", "/api/v1/metrics/query?query=node_load1&tenant=acme", "")
	send(400, "GET", "/api/v1/metrics/query?query=sum(&tenant=acme", "")
	send(200, "GET", "/api/v1/metrics/names?label=__name__&q=node&tenant=acme", "")
	send(200, "GET", "/api/v1/metrics/condition?query=node_load1%20%3E%203&site="+site.Name, "")
	send(400, "GET", "/api/v1/metrics/names?nonsense=1", "")

	for _, tenant := range []string{"acme", "globex"} {
		in := "&tenant=" + tenant
		send(200, "GET", "/api/v1/logs/search?from=now-24h&limit=1000"+in, "")
		send(200, "GET", "/api/v1/logs/search?query=severity:error&limit=5"+in, "")
		send(400, "GET", "/api/v1/logs/search?query=%22"+in, "")
		send(200, "GET", "/api/v1/alerts/state?"+in[1:], "")
		send(200, "GET", "/api/v1/alerts/groups?sort=count&limit=5"+in, "")
		send(200, "GET", "/api/v1/alerts/notifications?"+in[1:], "")
		var alerts struct {
			Alerts []struct{ Fingerprint string }
		}
		decode(send(200, "GET", "/api/v1/alerts?limit=1000"+in, ""), &alerts)
		for _, a := range alerts.Alerts {
			send(200, "GET", "/api/v1/alerts/"+a.Fingerprint+"?tenant="+tenant, "")
		}
		if len(alerts.Alerts) == 0 {
			t.Errorf("no alert of %s", tenant)
		}
		var made struct{ ID string }
		decode(send(201, "POST", "/api/v1/silences?tenant="+tenant, `{"matchers":[{"name":"site","value":"x"}],"duration":"1h","comment":"x"}`), &made)
		send(400, "POST", "/api/v1/silences?tenant="+tenant, `{"matchers":[]}`)
		send(200, "GET", "/api/v1/silences?tenant="+tenant, "")
		send(204, "DELETE", "/api/v1/silences/"+made.ID+"?tenant="+tenant, "")
		send(404, "DELETE", "/api/v1/silences/nothing?tenant="+tenant, "")
	}
	send(200, "GET", "/api/v1/sites?q=score%3C60&sort=-score,name&columns=score,label.tier,virtualSite,lastSeen,maintenance,kidn&group=tier&limit=20", "")
	send(200, "GET", "/api/v1/sites?limit=0&group=virtualSite", "")
	send(200, "GET", "/api/v1/sites?format=csv", "")
	send(400, "GET", "/api/v1/sites?q=score%3C", "")
	send(200, "GET", "/api/v1/site-fields?tenant=acme", "")
	send(200, "GET", "/api/v1/site-map?q=score%3C60&by=version", "")
	send(200, "GET", "/api/v1/site-map?tenant=acme&by=memoryUsed", "")
	send(400, "GET", "/api/v1/site-map?q=score%3C", "")
	send(200, "GET", "/api/v1/site-distributions?q=phase%3DOnline&of=memoryUsed,score", "")
	send(400, "GET", "/api/v1/site-distributions?of=name", "")
	send(200, "GET", "/api/v1/links?q=phase%3DOnline&by=virtualSite&sort=-link.roundTrip&limit=20", "")
	send(200, "GET", "/api/v1/links?tenant=acme&limit=0", "")
	send(400, "GET", "/api/v1/links?by=name", "")
	send(200, "POST", "/api/v1/sites:change", `{"sites":[{"tenant":"acme","name":"nowhere"}],"labels":{"tier":"gold"}}`)
	send(400, "POST", "/api/v1/sites:change", `{"sites":[],"approve":true}`)
	send(200, "GET", "/api/v1/vk8s", "")
	send(409, "GET", "/api/v1/vk8s/shop/vk8s", "")
	send(200, "GET", "/api/v1/vk8s/shop/vk8s?tenant=acme", "")
	var workloads wire.WorkloadList
	decode(send(200, "GET", "/api/v1/vk8s/shop/vk8s/workloads?tenant=acme", ""), &workloads)
	for _, w := range workloads.Items {
		at := "/api/v1/vk8s/shop/vk8s/workloads/" + strings.TrimSuffix(w.Kind+"."+w.Group, ".") + "/" + w.Name
		var one wire.Workload
		decode(send(200, "GET", at+"?tenant=acme", ""), &one)
		send(200, "GET", at+"/object?tenant=acme", "")
		var pods podListView
		decode(send(200, "GET", at+"/pods?limit=3&tenant=acme", ""), &pods)
		if len(pods.Pods) > 0 {
			send(204, "DELETE", "/api/v1/vk8s/shop/vk8s/pods/"+pods.Pods[0].Name+"?tenant=acme", "")
			pod := pods.Pods[1%len(pods.Pods)]
			send(200, "GET", "/api/v1/vk8s/shop/vk8s/pods/"+pod.Name+"/log?previous=true&tenant=acme&container="+pod.Containers[0], "")
			if len(pod.Containers) > 1 {
				send(400, "GET", "/api/v1/vk8s/shop/vk8s/pods/"+pod.Name+"/log?tenant=acme", "")
			}
		}
		send(200, "GET", "/api/v1/sites/"+one.Sites[0].Site+"/workloads?tenant=acme", "")
	}
	if len(workloads.Items) == 0 {
		t.Error("no workload of acme")
	}
	send(404, "GET", "/api/v1/vk8s/shop/vk8s/pods/none/log?tenant=acme", "")
	const apply = "/api/v1/vk8s/lab/vk8s/apply?tenant=acme"
	send(200, "POST", apply, `{"yaml":"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n","dryRun":true}`)
	send(200, "POST", apply, `{"yaml":"apiVersion: v1\nkind: Nothing\nmetadata:\n  name: a\n"}`)
	send(400, "POST", apply, `{"yaml":""}`)
	send(400, "GET", "/api/v1/alerts?severity=purple", "")
	send(404, "GET", "/api/v1/alerts/0000000000000000?tenant=acme", "")
	send(204, "DELETE", "/api/v1/session", "")
}
