package console

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster.dev/muster/control/api/v1alpha1"
)

// Everybody sees the use of the tenants that they may read, and of no other.
func TestTenantsAndTheirQuotas(t *testing.T) {
	h := newHarness(t)
	h.api.usage = map[string][]v1alpha1.QuotaUsage{
		"acme":   {{Quota: v1alpha1.QuotaSeries, Used: 900, Limit: 1000}, {Quota: v1alpha1.QuotaSites, Used: 3}, {Quota: "ofTheFuture", Used: 1}},
		"globex": {{Quota: v1alpha1.QuotaSites, Used: 7, Limit: 7}},
	}
	acme := tenantView{"acme", []quotaView{{v1alpha1.QuotaSites, 3, 0}, {v1alpha1.QuotaSeries, 900, 1000}}}
	globex := tenantView{"globex", []quotaView{{v1alpha1.QuotaSites, 7, 7}}}
	for user, want := range map[string][]tenantView{"alice": {acme}, "carol": {acme}, "bob": {globex}, "both": {acme, globex}, "root": {acme, globex}} {
		var got tenantListView
		h.want(200, user, "GET", "/api/v1/tenants", "").json(t, &got)
		if d := cmp.Diff(want, got.Tenants); d != "" {
			t.Errorf("%s: %s", user, d)
		}
	}
	h.want(403, "alice", "GET", "/api/v1/tenants?tenant=globex", "")
}
