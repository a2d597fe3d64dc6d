package registration

import (
	"context"
	"crypto"
	"sync"
	"testing"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
)

// stuck is an issuer that never comes back to one site, until it is let go.
type stuck struct {
	Issuer
	site string
	let  chan struct{}
}

func (s *stuck) IssueSite(pub crypto.PublicKey, site fleet.SiteID, region string) (pki.Issued, error) {
	if site.Name == s.site {
		<-s.let
	}
	return s.Issuer.IssueSite(pub, site, region)
}

// One site has one certificate made at a time, so that its neighbours' renewals and
// registrations go on while it asks for more than there are slots.
func TestOneSiteDoesNotHoldAllSlots(t *testing.T) {
	b := newBench(t)
	tok, key, other := b.token("tok", v1alpha1.RegistrationTokenSpec{AutoApprove: true}), newKey(t), newKey(t)
	mustDo(b.register(tok, "paris", key))
	mustDo(b.register(tok, "berlin", other))
	s := &stuck{Issuer: b.ca, site: "paris", let: make(chan struct{})}
	b.svc.opts.Issuer = s
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	csr := csrOf(t, key)
	for range 200 {
		wg.Go(func() { _, _ = b.svc.Renew(ctx, fleet.SiteID{Tenant: "acme", Name: "paris"}, csr) })
	}
	defer wg.Wait()
	defer close(s.let)
	defer cancel()
	testkit.EventuallyTrue(t, "all of them are here", func() bool {
		busy, waiting := b.svc.line.Use()
		return busy+waiting == 200
	})
	soon, end := context.WithTimeout(t.Context(), 5*time.Second)
	defer end()
	if _, err := b.svc.Renew(soon, fleet.SiteID{Tenant: "acme", Name: "berlin"}, csrOf(t, other)); err != nil {
		t.Errorf("a neighbour of the tenant: %v", err)
	}
	if _, err := b.register(tok, "oslo", newKey(t)); err != nil {
		t.Errorf("a registration: %v", err)
	}
}
