package fleetapi

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/factoryreset"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// conditionResetApplied is reported by sites.
const conditionResetApplied = factoryreset.Kind + "Applied"

const maxResetMessage = 300

// resetSays is what decides about a factory reset beside the Site itself.
type resetSays struct {
	id     fleet.SiteID
	answer *wire.FactoryResetAnswer // nil: none
	// refused is why the site does not take the item; empty: it does, or has said nothing.
	refused string
	online  bool
}

// resetSaysLocked is what is known of the site.
func (st *siteState) resetSaysLocked() resetSays {
	out := resetSays{id: st.id, online: st.online}
	if st.capability != 0 && st.capability < wire.ResetCapability {
		out.refused = fmt.Sprintf("the agent %s of the site can't be reset from the centre: update it", cmp.Or(st.agent, "(version unknown)"))
	}
	if st.report == nil {
		return out
	}
	out.answer = st.report.reset
	if c := meta.FindStatusCondition(st.report.conditions, conditionResetApplied); c != nil && c.Status == metav1.ConditionFalse && out.answer == nil {
		out.refused = cmp.Or(out.refused, c.Message, c.Reason)
	}
	return out
}

// cleanReset makes an answer harmless; what it claims is checked by nextReset.
func cleanReset(a *wire.FactoryResetAnswer, problem func(string, ...any)) *wire.FactoryResetAnswer {
	if a == nil {
		return nil
	}
	if len(a.GetRequest()) > 63 || len(a.GetNonce()) > factoryreset.NonceBytes || len(a.GetPublicKey()) > 1024 || len(a.GetSignature()) > 1024 || !hexDigest.MatchString(a.GetNextKey()) {
		problem("what it answers to a request for a factory reset is no answer")
		return nil
	}
	return &wire.FactoryResetAnswer{Request: a.GetRequest(), Refused: text(a.GetRefused(), maxResetMessage), Nonce: a.GetNonce(), PublicKey: a.GetPublicKey(), NextKey: a.GetNextKey(),
		Signature: a.GetSignature(), Begun: a.GetBegun(), Message: text(a.GetMessage(), maxResetMessage)}
}

// nextReset is how far the site's factory reset is, after what is known now: a pure function
// but for sign, which is called where the site made up another nonce. nil: there never was
// one. A site that came back counts whatever else is said, since that was its key's word.
func nextReset(site *v1alpha1.Site, says resetSays, now time.Time, sign func(*factoryreset.Order) ([]byte, error)) *v1alpha1.SiteResetStatus {
	asked, key := site.Spec.Reset, site.Spec.PublicKey
	st := site.Status.Reset.DeepCopy()
	to := func(phase v1alpha1.ResetPhase, format string, args ...any) *v1alpha1.SiteResetStatus {
		if st.Phase != phase {
			st.Phase, st.Since = phase, metav1.NewTime(now.Truncate(time.Second))
		}
		if st.Message = text(fmt.Sprintf(format, args...), maxResetMessage); phase.Over() {
			st.Nonce, st.Order = "", nil
		}
		return st
	}
	if st != nil && st.NextKey != "" && st.NextKey == key {
		if asked == nil || asked.ID == st.ID {
			return to(v1alpha1.ResetCompleted, "back as %s, with a new key", site.Name)
		}
	}
	if says.answer.GetBegun() && mayHaveBegun(st) && says.answer.GetRequest() == st.ID && (asked == nil || asked.ID == st.ID) {
		m := cmp.Or(says.answer.GetMessage(), "the site has begun")
		if st.Phase == v1alpha1.ResetResetting && says.answer.GetMessage() == "" {
			m = st.Message
		}
		return to(v1alpha1.ResetResetting, "%s", m)
	}
	if asked == nil {
		switch {
		case st == nil:
		case st.Phase == v1alpha1.ResetAsked:
			return to(v1alpha1.ResetCancelled, "taken back before the site was told to begin; it is as it was")
		case st.Phase == v1alpha1.ResetConfirmed:
			return to(v1alpha1.ResetCancelled, "taken back when the site had been given its order; it is as it was, or has begun meanwhile: then it says so once it can, and comes back with its new key")
		}
		return st
	}
	if st == nil || st.ID != asked.ID {
		was := st
		st = &v1alpha1.SiteResetStatus{ID: asked.ID, Key: key}
		if was != nil && was.Key == key {
			st.NextKey = was.NextKey // it may have begun by an order that was given before
		}
		if key == "" {
			return to(v1alpha1.ResetRefused, "no machine has registered as %s", site.Name)
		}
		to(v1alpha1.ResetAsked, "")
	}
	answer := says.answer
	if answer.GetRequest() != asked.ID {
		answer = nil
	}
	switch {
	case st.Phase.Over(), st.Phase == v1alpha1.ResetResetting:
		return st
	case !now.Before(asked.Expires.Time) && st.Phase == v1alpha1.ResetConfirmed:
		return to(v1alpha1.ResetExpired, "the site confirmed it, and did not say by %s that it begins; it is as it was, or comes back with its new key", asked.Expires.UTC().Format(time.RFC3339))
	case !now.Before(asked.Expires.Time):
		return to(v1alpha1.ResetExpired, "the site did not answer by %s; it is as it was", asked.Expires.UTC().Format(time.RFC3339))
	case answer.GetRefused() != "":
		return to(v1alpha1.ResetRefused, "%s", answer.GetRefused())
	case says.refused != "":
		return to(v1alpha1.ResetRefused, "%s", says.refused)
	}
	if nonce := hex.EncodeToString(answer.GetNonce()); nonce != "" && nonce != st.Nonce {
		if order, ok := order(site, says.id, answer, now, sign); ok {
			st.Nonce, st.NextKey, st.Order = nonce, answer.GetNextKey(), order
			return to(v1alpha1.ResetConfirmed, "the site confirmed it, and is given its order")
		}
	}
	if st.Phase == v1alpha1.ResetAsked && !says.online {
		return to(v1alpha1.ResetAsked, "the site is not connected: it is asked if it is back by %s", asked.Expires.UTC().Format(time.RFC3339))
	} else if st.Phase == v1alpha1.ResetAsked {
		return to(v1alpha1.ResetAsked, "waits for the site to confirm it")
	}
	return st
}

// mayHaveBegun tells whether the site was given an order, which it may have followed whatever
// became of the request meanwhile.
func mayHaveBegun(st *v1alpha1.SiteResetStatus) bool {
	if st == nil {
		return false
	}
	switch st.Phase {
	case v1alpha1.ResetConfirmed, v1alpha1.ResetResetting:
		return true
	case v1alpha1.ResetCancelled, v1alpha1.ResetExpired:
		return st.NextKey != ""
	}
	return false
}

// order signs what the site asked for, if it was that site.
func order(site *v1alpha1.Site, id fleet.SiteID, answer *wire.FactoryResetAnswer, now time.Time, sign func(*factoryreset.Order) ([]byte, error)) ([]byte, bool) {
	asked := site.Spec.Reset
	a := factoryreset.Answer{ID: asked.ID, Site: id, Key: site.Spec.PublicKey, NextKey: answer.GetNextKey(), Nonce: answer.GetNonce()}
	if len(a.NextKey) != 64 || a.NextKey == a.Key || a.Verify(answer.GetPublicKey(), answer.GetSignature()) != nil || sign == nil {
		return nil, false // somebody else's word, on the way
	}
	out, err := sign(&factoryreset.Order{ID: a.ID, Site: a.Site, Key: a.Key, NextKey: a.NextKey, Nonce: bytes.Clone(a.Nonce), ValidFor: asked.Expires.Sub(now), Drain: asked.Spool != v1alpha1.ResetDiscard})
	return out, err == nil
}

// resetLocked is status.reset as it should be.
func (s *Server) resetLocked(st *siteState, now time.Time) *v1alpha1.SiteResetStatus {
	return nextReset(st.obj, st.resetSaysLocked(), now, s.opts.Orders)
}

// resetOverdue is the condition of a site that is reset; false: there is nothing to say. was
// tells whether it has one.
func resetOverdue(r *v1alpha1.SiteResetStatus, was bool, now time.Time) (metav1.Condition, bool) {
	c := metav1.Condition{Type: v1alpha1.ConditionResetOverdue, Status: metav1.ConditionFalse, Reason: "Over", Message: "the last reset is over"}
	if r.Overdue(now) {
		c.Status, c.Reason = metav1.ConditionTrue, "NotBack"
		c.Message = fmt.Sprintf("it began to reset itself at %s, and has not come back since: look whether the machine has power and its uplink, and at its log; if it is gone, decommission the Site, since its former certificate is good until it ends", r.Since.UTC().Format(time.RFC3339))
		return c, true
	}
	if r != nil && r.Phase == v1alpha1.ResetResetting {
		c.Reason, c.Message = "Resetting", "a reset is under way"
	}
	return c, was
}

// resetDueLocked tells whether time alone changes status.reset.
func (st *siteState) resetDueLocked(now time.Time) bool {
	asked, is := st.obj.Spec.Reset, st.obj.Status.Reset
	if is.Overdue(now) {
		return !meta.IsStatusConditionTrue(st.obj.Status.Conditions, v1alpha1.ConditionResetOverdue)
	}
	return asked != nil && is != nil && is.ID == asked.ID && (is.Phase == v1alpha1.ResetAsked || is.Phase == v1alpha1.ResetConfirmed) && !now.Before(asked.Expires.Time)
}

// resetPatch replaces status.reset; nil: nothing changed. A merge patch keeps what it does not
// name, so what is gone is named.
func resetPatch(old, now *v1alpha1.SiteResetStatus) map[string]any {
	if now == nil || equality.Semantic.DeepEqual(old, now) {
		return nil
	}
	fields := func(v *v1alpha1.SiteResetStatus) map[string]any {
		out := map[string]any{}
		if b, err := json.Marshal(v); err == nil && v != nil {
			_ = json.Unmarshal(b, &out) // it was just made
		}
		return out
	}
	out := fields(now)
	for k := range fields(old) {
		if _, still := out[k]; !still {
			out[k] = nil
		}
	}
	return out
}

// rekeyedLocked refuses the certificates of the key that the site had before it was reset.
// It is called with each Site, and acts once a key.
func (s *Server) rekeyedLocked(st *siteState) {
	r := st.obj.Status.Reset
	if r == nil || r.NextKey == "" || r.NextKey != st.obj.Spec.PublicKey || r.Phase == v1alpha1.ResetCompleted || st.rekeyed == r.NextKey {
		return
	}
	st.rekeyed = r.NextKey
	s.revokeLocked(st, "the site was reset, and has another key now")
}
