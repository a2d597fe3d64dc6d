package registration

import (
	"crypto"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/identity"
)

// asked is a site that registered, and has vouched for the key that it will come back with.
func (b *bench) asked(tok Token, name string, next crypto.Signer, approval string) (former crypto.Signer) {
	b.t.Helper()
	former = newKey(b.t)
	mustDo(b.register(tok, name, former))
	hash, err := identity.KeyHash(next.Public())
	if err != nil {
		b.t.Fatal(err)
	}
	s := b.site(name)
	s.Labels["shop"] = "7"
	s.Spec.Reset = &v1alpha1.SiteReset{ID: "one", Approval: approval}
	if err := b.client.Update(b.t.Context(), s); err != nil {
		b.t.Fatal(err)
	}
	s.Status.Reset = &v1alpha1.SiteResetStatus{ID: "one", Phase: v1alpha1.ResetConfirmed, Key: s.Spec.PublicKey, NextKey: hash}
	if err := b.client.Status().Update(b.t.Context(), s); err != nil {
		b.t.Fatal(err)
	}
	return former
}

// A site that was reset is let in by the key that it vouched for, whatever became of its token,
// as the Site that it was; its former key, and everybody else's, is not.
func TestComesBackAfterAReset(t *testing.T) {
	b := newBench(t)
	tok := b.token("tok", v1alpha1.RegistrationTokenSpec{AutoApprove: true, MaxUses: 1})
	next := newKey(t)
	former := b.asked(tok, "paris", next, "")

	_, err := b.register(tok, "paris", newKey(t))
	wantRefusal(t, err, codes.PermissionDenied, "used up")
	other := b.token("other", v1alpha1.RegistrationTokenSpec{AutoApprove: true})
	_, err = b.register(other, "paris", newKey(t))
	wantRefusal(t, err, codes.AlreadyExists, "another key")
	if resp, err := b.register(tok, "paris", former); err != nil || resp.Issued == nil {
		t.Errorf("before it has begun it is as it was: %v", err)
	}
	rt := b.rt("tok")
	rt.Spec.Revoked = true
	if err := b.client.Update(t.Context(), rt); err != nil {
		t.Fatal(err)
	}

	resp, err := b.register(tok, "paris", next)
	if err != nil || resp.Issued != nil || resp.Site != "paris" || resp.RetryAfter.AsDuration() < 1e9 {
		t.Fatalf("%v %v", resp, err)
	}
	if err := b.client.Delete(t.Context(), rt); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a certificate, and another one when that is over
		if resp, err := b.register(tok, "paris", next); err != nil || resp.Issued == nil {
			t.Fatalf("%v %v", resp, err)
		}
	}
	s := b.site("paris")
	if s.Labels["shop"] != "7" || s.Labels[LabelKey] != s.Spec.PublicKey[:63] || s.Spec.PublicKey != s.Status.Reset.NextKey || !s.Spec.Approved || len(b.sites()) != 1 {
		t.Errorf("%+v", s)
	}
	if b.count(Returned) != 1 {
		t.Errorf("%v returned", b.count(Returned))
	}
	_, err = b.register(tok, "paris", former)
	wantRefusal(t, err, codes.PermissionDenied, "refused")
	_, err = b.register(other, "paris", former)
	wantRefusal(t, err, codes.AlreadyExists, "another key")
	if _, err := b.register(other, "rome", next); err == nil {
		t.Error("it came back under another name as well")
	}
}

func TestComesBackAndWaits(t *testing.T) {
	b := newBench(t)
	tok := b.token("tok", v1alpha1.RegistrationTokenSpec{AutoApprove: true})
	next := newKey(t)
	b.asked(tok, "paris", next, v1alpha1.ResetManual)
	var wg sync.WaitGroup
	for range 4 { // its first attempts overtake each other
		wg.Go(func() { _, _ = b.register(tok, "paris", next) })
	}
	wg.Wait()
	if resp, err := b.register(tok, "paris", next); err != nil || resp.Issued != nil || b.site("paris").Spec.Approved {
		t.Errorf("%v %v", resp, err)
	}
	s := b.site("paris")
	s.Spec.Approved = true
	if err := b.client.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if resp, err := b.register(tok, "paris", next); err != nil || resp.Issued == nil || len(b.sites()) != 1 {
		t.Errorf("%v %v", resp, err)
	}
}

// Decommissioned, or with a key that is not the one that vouched, nobody comes back.
func TestDoesNotComeBack(t *testing.T) {
	for name, change := range map[string]func(s *v1alpha1.Site){
		"decommissioned":       func(s *v1alpha1.Site) { s.Spec.Decommissioned = true },
		"it has another since": func(s *v1alpha1.Site) { s.Spec.PublicKey = s.Spec.PublicKey[1:] + "0" },
	} {
		b := newBench(t)
		tok, next := b.token("tok", v1alpha1.RegistrationTokenSpec{AutoApprove: true}), newKey(t)
		b.asked(tok, "paris", next, "")
		s := b.site("paris")
		change(s)
		if err := b.client.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if resp, err := b.register(tok, "paris", next); err == nil || len(b.sites()) != 1 {
			t.Errorf("%s: %v", name, resp)
		}
	}
}
