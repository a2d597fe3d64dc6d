package fleetapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/factoryreset"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/wire"
)

// resetRig is a Site whose status follows what is said, and the machine that is it.
type resetRig struct {
	t      *testing.T
	site   *v1alpha1.Site
	key    *ecdsa.PrivateKey
	now    time.Time
	signed []factoryreset.Order
	says   resetSays
	late   bool // it began by an order that was taken back by then
}

const nextKey = "abababababababababababababababababababababababababababababababab"

func newResetRig(t *testing.T) *resetRig {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := identity.KeyHash(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	r := &resetRig{t: t, key: key, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), says: resetSays{id: fleet.SiteID{Tenant: "acme", Name: "paris"}, online: true}}
	r.site = &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "paris"}, Spec: v1alpha1.SiteSpec{Approved: true, PublicKey: hash}}
	return r
}

func (r *resetRig) ask(id string) {
	r.site.Spec.Reset = &v1alpha1.SiteReset{ID: id, Expires: metav1.NewTime(r.now.Add(time.Hour))}
}

// step is one look; it checks that a second one changes nothing.
func (r *resetRig) step(phase v1alpha1.ResetPhase) *v1alpha1.SiteResetStatus {
	r.t.Helper()
	sign := func(o *factoryreset.Order) ([]byte, error) {
		r.signed = append(r.signed, *o)
		return json.Marshal(o)
	}
	r.site.Status.Reset = nextReset(r.site, r.says, r.now, sign)
	st := r.site.Status.Reset
	if st == nil || st.Phase != phase {
		r.t.Fatalf("%+v, want %s", st, phase)
	}
	n := len(r.signed)
	if again := nextReset(r.site, r.says, r.now.Add(time.Minute), sign); resetPatch(st, again) != nil || len(r.signed) != n {
		r.t.Fatalf("and a minute later %+v", again)
	}
	if (st.Order != nil) != (phase == v1alpha1.ResetConfirmed || phase == v1alpha1.ResetResetting && !r.late) {
		r.t.Fatalf("%s with the order %q", phase, st.Order)
	}
	return st
}

// answer is what the site says to a request.
func (r *resetRig) answer(id string, nonce byte, change func(*factoryreset.Answer)) {
	r.t.Helper()
	a := factoryreset.Answer{ID: id, Site: r.says.id, Key: r.site.Spec.PublicKey, NextKey: nextKey, Nonce: append(make([]byte, factoryreset.NonceBytes-1), nonce)}
	if change != nil {
		change(&a)
	}
	sig, err := a.Sign(r.key)
	if err != nil {
		r.t.Fatal(err)
	}
	pub, err := x509.MarshalPKIXPublicKey(r.key.Public())
	if err != nil {
		r.t.Fatal(err)
	}
	r.says.answer = &wire.FactoryResetAnswer{Request: id, Nonce: a.Nonce, NextKey: a.NextKey, PublicKey: pub, Signature: sig}
}

func TestResetGoesItsWay(t *testing.T) {
	r := newResetRig(t)
	if st := nextReset(r.site, r.says, r.now, nil); st != nil {
		t.Fatalf("nobody asked: %+v", st)
	}
	r.ask("one")
	r.site.Spec.Reset.Spool = v1alpha1.ResetDiscard
	r.says.online = false
	if st := r.step(v1alpha1.ResetAsked); !strings.Contains(st.Message, "not connected: it is asked if it is back by 2026-03-01T13:00:00Z") {
		t.Error(st.Message)
	}
	r.says.online = true
	since := r.step(v1alpha1.ResetAsked).Since
	r.now = r.now.Add(10 * time.Minute)
	r.answer("one", 1, nil)
	st := r.step(v1alpha1.ResetConfirmed)
	if o := r.signed[0]; o.ID != "one" || o.Key != r.site.Spec.PublicKey || o.NextKey != nextKey || o.Nonce[31] != 1 || o.ValidFor != 50*time.Minute || o.Drain || st.NextKey != nextKey || st.Since.Equal(&since) {
		t.Errorf("%+v %+v", o, st)
	}
	// It made up another nonce, as after a restart.
	r.answer("one", 2, nil)
	if r.step(v1alpha1.ResetConfirmed); r.signed[1].Nonce[31] != 2 {
		t.Error("no order for it")
	}
	r.says.online = false // what it has confirmed stands while it is away
	r.step(v1alpha1.ResetConfirmed)
	r.says.online = true
	r.says.answer = &wire.FactoryResetAnswer{Request: "one", Begun: true, Message: "3 left"}
	if st := r.step(v1alpha1.ResetResetting); st.Message != "3 left" {
		t.Error(st.Message)
	}
	// There is no way back: not by time, nor by taking it back.
	r.now = r.now.Add(48 * time.Hour)
	r.says.answer, r.says.online = nil, false
	r.step(v1alpha1.ResetResetting)
	asked := r.site.Spec.Reset
	r.site.Spec.Reset = nil
	r.step(v1alpha1.ResetResetting)
	r.site.Spec.Reset = asked
	if !r.site.ComesBackAs(nextKey) || r.site.ComesBackAs(r.site.Spec.PublicKey) || r.site.ComesBackAs("") {
		t.Error("who comes back")
	}
	former := r.site.Spec.PublicKey
	r.site.Spec.PublicKey = nextKey
	if st := r.step(v1alpha1.ResetCompleted); st.Message != "back as paris, with a new key" || st.Key != former {
		t.Errorf("%+v", st)
	}
	if r.site.ComesBackAs(nextKey) || r.site.ComesBackAs(former) {
		t.Error("it may come back once more")
	}
	// What it said before is said again, by somebody: it is of the former key.
	r.answer("one", 1, nil)
	r.step(v1alpha1.ResetCompleted)
	r.ask("two")
	r.answer("two", 1, func(a *factoryreset.Answer) { a.Key = former })
	r.step(v1alpha1.ResetAsked)
	if len(r.signed) != 2 {
		t.Errorf("%d orders", len(r.signed))
	}
}

// A word that is not the site's own gets no order.
func TestResetAnswersOfOthers(t *testing.T) {
	for name, forge := range map[string]func(r *resetRig){
		"of another request":            func(r *resetRig) { r.answer("zero", 1, nil) },
		"of another request, renamed":   func(r *resetRig) { r.answer("zero", 1, nil); r.says.answer.Request = "one" },
		"of another site":               func(r *resetRig) { r.answer("one", 1, func(a *factoryreset.Answer) { a.Site.Name = "rome" }) },
		"another nonce than was signed": func(r *resetRig) { r.answer("one", 1, nil); r.says.answer.Nonce[0] = 9 },
		"another next key than signed":  func(r *resetRig) { r.answer("one", 1, nil); r.says.answer.NextKey = strings.Repeat("c", 64) },
		"no next key":                   func(r *resetRig) { r.answer("one", 1, func(a *factoryreset.Answer) { a.NextKey = "" }) },
		"the same key again":            func(r *resetRig) { r.answer("one", 1, func(a *factoryreset.Answer) { a.NextKey = a.Key }) },
		"with another key": func(r *resetRig) {
			own, other := r.key, newResetRig(r.t).key
			r.key = other
			r.answer("one", 1, nil)
			r.key = own
		},
		"that it has begun, without an order": func(r *resetRig) { r.says.answer = &wire.FactoryResetAnswer{Request: "one", Begun: true} },
	} {
		r := newResetRig(t)
		r.ask("one")
		forge(r)
		if r.step(v1alpha1.ResetAsked); len(r.signed) != 0 {
			t.Errorf("%s: an order was signed", name)
		}
	}
}

func TestResetThatEnds(t *testing.T) {
	r := newResetRig(t)
	r.ask("one")
	r.step(v1alpha1.ResetAsked)
	r.site.Spec.Reset = nil
	r.step(v1alpha1.ResetCancelled)

	r.ask("taken back")
	r.answer("taken back", 1, nil)
	r.step(v1alpha1.ResetConfirmed)
	asked := r.site.Spec.Reset
	r.site.Spec.Reset = nil
	r.step(v1alpha1.ResetCancelled)
	r.site.Spec.Reset = asked // and what is over does not begin again
	r.step(v1alpha1.ResetCancelled)

	r.ask("two")
	r.answer("two", 1, nil)
	r.step(v1alpha1.ResetConfirmed)
	r.now = r.now.Add(time.Hour)
	st := r.step(v1alpha1.ResetExpired)
	if st.NextKey != nextKey || !r.site.ComesBackAs(nextKey) || !strings.HasPrefix(st.Message, "the site confirmed it, and did not say by 2026-03-01T13:00:00Z") {
		t.Errorf("it may have begun, and is locked out: %+v", st)
	}
	r.ask("three") // what it vouched for stays
	if st := r.step(v1alpha1.ResetAsked); st.NextKey != nextKey || st.Nonce != "" {
		t.Errorf("%+v", st)
	}
	r.now = r.now.Add(time.Hour)
	if st := r.step(v1alpha1.ResetExpired); !strings.HasPrefix(st.Message, "the site did not answer by ") {
		t.Error(st.Message)
	}
	r.answer("three", 2, nil) // too late
	r.step(v1alpha1.ResetExpired)

	r.ask("four")
	r.says.answer = &wire.FactoryResetAnswer{Request: "four", Refused: "switch it on"}
	if st := r.step(v1alpha1.ResetRefused); st.Message != "switch it on" {
		t.Error(st.Message)
	}
	r.ask("five")
	r.says.answer, r.says.refused = nil, "too old"
	if st := r.step(v1alpha1.ResetRefused); st.Message != "too old" {
		t.Error(st.Message)
	}
	r.site.Spec.PublicKey, r.site.Status.Reset.NextKey = "", ""
	r.step(v1alpha1.ResetRefused) // that it has no key is not the key that it was to come back with
	r.site.Status.Reset = nil
	if st := nextReset(r.site, r.says, r.now, nil); st.Phase != v1alpha1.ResetRefused || !strings.Contains(st.Message, "no machine") {
		t.Errorf("%+v", st)
	}
}

// A request that is withdrawn ends where it was: before the site was told to begin nothing has
// happened; after it was given its order nobody knows until it says so, or is back; and while it
// wipes, there is no way back.
func TestWhatAWithdrawnResetSays(t *testing.T) {
	withdrawn := func(confirmed bool) *resetRig {
		r := newResetRig(t)
		if r.ask("one"); confirmed {
			r.answer("one", 1, nil)
			r.step(v1alpha1.ResetConfirmed)
		} else {
			r.step(v1alpha1.ResetAsked)
		}
		r.site.Spec.Reset, r.says.answer = nil, nil
		return r
	}
	begins := &wire.FactoryResetAnswer{Request: "one", Begun: true, Message: "3 left"}
	t.Run("before the site has its order", func(t *testing.T) {
		r := withdrawn(false)
		if st := r.step(v1alpha1.ResetCancelled); st.Message != "taken back before the site was told to begin; it is as it was" {
			t.Error(st.Message)
		}
		r.says.answer = begins // it had no order to begin by
		r.step(v1alpha1.ResetCancelled)
	})
	t.Run("the order crosses it, and the site says that it wipes", func(t *testing.T) {
		r := withdrawn(true)
		if st := r.step(v1alpha1.ResetCancelled); !strings.Contains(st.Message, "or has begun meanwhile") || st.NextKey != nextKey {
			t.Errorf("%+v", st)
		}
		r.late, r.now = true, r.now.Add(time.Minute)
		r.says.answer = &wire.FactoryResetAnswer{Request: "zero", Begun: true}
		r.step(v1alpha1.ResetCancelled)
		r.says.answer = begins
		if st := r.step(v1alpha1.ResetResetting); st.Message != "3 left" || !st.Since.Equal(&metav1.Time{Time: r.now}) {
			t.Errorf("%+v", st)
		}
		r.says.answer = &wire.FactoryResetAnswer{Request: "one", Begun: true, Message: "1 left"}
		if st := r.step(v1alpha1.ResetResetting); st.Message != "1 left" {
			t.Error(st.Message)
		}
		r.says.answer = &wire.FactoryResetAnswer{Request: "one", Begun: true}
		if st := r.step(v1alpha1.ResetResetting); st.Message != "1 left" || !st.Overdue(r.now.Add(v1alpha1.ResetOverdueAfter)) {
			t.Errorf("%+v", st)
		}
		r.says.answer, r.late, r.site.Spec.PublicKey = nil, false, nextKey
		r.step(v1alpha1.ResetCompleted)
	})
	t.Run("the site says so for the first time when it is withdrawn already", func(t *testing.T) {
		r := withdrawn(true)
		r.says.answer = &wire.FactoryResetAnswer{Request: "one", Begun: true}
		r.site.Status.Reset = nextReset(r.site, r.says, r.now, nil)
		if st := r.site.Status.Reset; st.Phase != v1alpha1.ResetResetting || st.Message != "the site has begun" {
			t.Errorf("%+v", st)
		}
	})
	t.Run("it wipes, and is back before it could say so", func(t *testing.T) {
		r := withdrawn(true)
		r.step(v1alpha1.ResetCancelled)
		if !r.site.ComesBackAs(nextKey) {
			t.Fatal("it is locked out")
		}
		r.site.Spec.PublicKey = nextKey
		r.step(v1alpha1.ResetCompleted)
	})
	t.Run("time ended it, and the site had begun", func(t *testing.T) {
		r := newResetRig(t)
		r.ask("one")
		r.answer("one", 1, nil)
		r.step(v1alpha1.ResetConfirmed)
		r.now = r.now.Add(time.Hour)
		r.step(v1alpha1.ResetExpired)
		r.late, r.says.answer = true, begins
		r.step(v1alpha1.ResetResetting)
	})
	t.Run("another is asked for: the former one's word is not its own", func(t *testing.T) {
		r := withdrawn(true)
		r.step(v1alpha1.ResetCancelled)
		r.ask("two")
		r.says.answer = begins
		r.step(v1alpha1.ResetAsked)
	})
}

// That a site refused a former request refuses no other.
func TestARefusalIsOfItsOwnRequest(t *testing.T) {
	r := newResetRig(t)
	r.ask("two")
	r.says.answer = &wire.FactoryResetAnswer{Request: "one", Refused: "switch it on"}
	if st := r.step(v1alpha1.ResetAsked); st.Message != "waits for the site to confirm it" {
		t.Error(st.Message)
	}
}

// A site sends what it has not sent, unless it was asked to drop that.
func TestAResetDrainsUnlessToldOtherwise(t *testing.T) {
	for spool, drain := range map[string]bool{"": true, v1alpha1.ResetDrain: true, v1alpha1.ResetDiscard: false} {
		r := newResetRig(t)
		r.ask("one")
		r.site.Spec.Reset.Spool = spool
		r.answer("one", 1, nil)
		if r.step(v1alpha1.ResetConfirmed); r.signed[0].Drain != drain {
			t.Errorf("spool %q: drains %v", spool, r.signed[0].Drain)
		}
	}
}

// What speaks against a reset before the site answers, and what its answer takes the place of.
func TestWhatSpeaksAgainstAReset(t *testing.T) {
	condition := func(status metav1.ConditionStatus, message string) *report {
		return &report{conditions: []metav1.Condition{{Type: conditionResetApplied, Status: status, Reason: "Because", Message: message}}}
	}
	answering := condition(metav1.ConditionFalse, "not yet")
	answering.reset = &wire.FactoryResetAnswer{Request: "one"}
	id := fleet.SiteID{Tenant: "acme", Name: "paris"}
	for name, c := range map[string]struct {
		st   siteState
		want string
	}{
		"nothing was said":             {siteState{online: true}, ""},
		"an older agent":               {siteState{capability: wire.ResetCapability - 1, agent: "1.2.3"}, "the agent 1.2.3 of the site can't be reset from the centre: update it"},
		"an older one without a name":  {siteState{capability: 1}, "the agent (version unknown) of the site can't"},
		"one that can":                 {siteState{capability: wire.ResetCapability, report: &report{}}, ""},
		"one that refuses":             {siteState{capability: wire.ResetCapability, report: condition(metav1.ConditionFalse, "switch it on")}, "switch it on"},
		"without a word":               {siteState{report: condition(metav1.ConditionFalse, "")}, "Because"},
		"older, and it refuses":        {siteState{capability: 1, agent: "1.2.3", report: condition(metav1.ConditionFalse, "switch it on")}, "the agent 1.2.3"},
		"one that takes it":            {siteState{report: condition(metav1.ConditionTrue, "waits")}, ""},
		"one that refuses and answers": {siteState{report: answering}, ""},
	} {
		c.st.id = id
		got := c.st.resetSaysLocked()
		if !strings.HasPrefix(got.refused, c.want) || (got.refused == "") != (c.want == "") || got.id != id || got.online != c.st.online || (got.answer != nil) != (c.st.report == answering) {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
}

// An order that could not be signed is asked for again, and confirms nothing.
func TestResetWithoutAnOrder(t *testing.T) {
	r := newResetRig(t)
	r.ask("one")
	r.answer("one", 1, nil)
	for name, sign := range map[string]func(*factoryreset.Order) ([]byte, error){
		"nobody signs":       nil,
		"it can't be signed": func(*factoryreset.Order) ([]byte, error) { return nil, errors.New("the key is away") },
	} {
		if st := nextReset(r.site, r.says, r.now, sign); st.Phase != v1alpha1.ResetAsked || st.NextKey != "" || st.Order != nil || st.Message != "waits for the site to confirm it" {
			t.Errorf("%s: %+v", name, st)
		}
	}
	r.step(v1alpha1.ResetConfirmed)
	r.says.answer = &wire.FactoryResetAnswer{Request: "one", Begun: true, Message: "3 left"}
	r.step(v1alpha1.ResetResetting)
	for _, silent := range []*wire.FactoryResetAnswer{nil, {Request: "one", Begun: true}, {Request: "another", Begun: true, Message: "9 left"}} {
		if r.says.answer = silent; r.step(v1alpha1.ResetResetting).Message != "3 left" {
			t.Errorf("what was said last is forgotten: %+v", r.site.Status.Reset)
		}
	}
}

// Time alone ends what was asked for or confirmed, and nothing else.
func TestWhatOfAResetIsDue(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		asked   string
		expires time.Duration
		is      *v1alpha1.SiteResetStatus
		want    bool
	}{
		"asked, and over":        {"one", 0, &v1alpha1.SiteResetStatus{ID: "one", Phase: v1alpha1.ResetAsked}, true},
		"asked":                  {"one", time.Second, &v1alpha1.SiteResetStatus{ID: "one", Phase: v1alpha1.ResetAsked}, false},
		"confirmed, and over":    {"one", 0, &v1alpha1.SiteResetStatus{ID: "one", Phase: v1alpha1.ResetConfirmed}, true},
		"begun":                  {"one", 0, &v1alpha1.SiteResetStatus{ID: "one", Phase: v1alpha1.ResetResetting, Since: metav1.NewTime(now)}, false},
		"refused":                {"one", 0, &v1alpha1.SiteResetStatus{ID: "one", Phase: v1alpha1.ResetRefused}, false},
		"another was asked for":  {"two", 0, &v1alpha1.SiteResetStatus{ID: "one", Phase: v1alpha1.ResetAsked}, false},
		"nothing is known of it": {"one", 0, nil, false},
		"taken back":             {"", 0, &v1alpha1.SiteResetStatus{ID: "one", Phase: v1alpha1.ResetAsked}, false},
	} {
		st := siteState{obj: &v1alpha1.Site{Status: v1alpha1.SiteStatus{Reset: c.is}}}
		if c.asked != "" {
			st.obj.Spec.Reset = &v1alpha1.SiteReset{ID: c.asked, Expires: metav1.NewTime(now.Add(c.expires))}
		}
		if got := st.resetDueLocked(now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A merge patch takes away what is gone, and is none where nothing changed.
func TestResetPatch(t *testing.T) {
	was := &v1alpha1.SiteResetStatus{ID: "one", Phase: v1alpha1.ResetConfirmed, Nonce: "aa", Order: []byte("o"), NextKey: nextKey}
	is := was.DeepCopy()
	if p := resetPatch(was, is); p != nil {
		t.Errorf("nothing changed: %v", p)
	}
	if p := resetPatch(was, nil); p != nil {
		t.Errorf("nothing is known: %v", p)
	}
	is.Phase, is.Nonce, is.Order = v1alpha1.ResetCancelled, "", nil
	p := resetPatch(was, is)
	for _, gone := range []string{"nonce", "order"} {
		if v, named := p[gone]; !named || v != nil {
			t.Errorf("%s stays: %v", gone, p)
		}
	}
	if p["phase"] != string(v1alpha1.ResetCancelled) || p["nextKey"] != nextKey {
		t.Errorf("%v", p)
	}
	if p := resetPatch(nil, was); p["nonce"] != "aa" || p["id"] != "one" {
		t.Errorf("the first: %v", p)
	}
}

// The certificates of the key before are refused once, when the site comes back with the next.
func TestTheFormerKeyIsRefused(t *testing.T) {
	w := newWorld(t).started()
	until := metav1.NewTime(time.Now().Add(24 * time.Hour))
	site := func(name string, phase v1alpha1.ResetPhase, next, key string) fleet.SiteID {
		return w.site(name, func(s *v1alpha1.Site) {
			s.Spec.PublicKey, s.Status.CertificateNotAfter = key, &until
			s.Status.Reset = &v1alpha1.SiteResetStatus{ID: "one", Phase: phase, Key: "former", NextKey: next}
		})
	}
	refused := w.server.revoked.Get
	back := site("back", v1alpha1.ResetResetting, nextKey, nextKey)
	first, is := refused(back)
	if !is || first.Reason != "the site was reset, and has another key now" || first.IssuedBefore.IsZero() {
		t.Fatalf("%+v", first)
	}
	w.pass(time.Hour) // the certificate that it gets now is good
	w.server.SetSite(back, w.get("back"))
	if again, _ := refused(back); again != first {
		t.Errorf("refused once more: %+v, %+v", first, again)
	}
	for _, id := range []fleet.SiteID{
		site("away", v1alpha1.ResetResetting, nextKey, "former"),
		site("asked", v1alpha1.ResetAsked, "", ""),
		site("long-ago", v1alpha1.ResetCompleted, nextKey, nextKey), // told before control started anew
	} {
		if r, is := refused(id); is {
			t.Errorf("%s: %+v", id, r)
		}
	}
}

// A site that began and does not come back is said to be overdue, until it is back.
func TestResetThatIsOverdue(t *testing.T) {
	r := newResetRig(t)
	r.ask("one")
	r.answer("one", 1, nil)
	r.step(v1alpha1.ResetConfirmed)
	r.says.answer.Begun = true
	began := r.now
	st := r.step(v1alpha1.ResetResetting)
	if _, is := resetOverdue(st, false, r.now); is || st.Overdue(began.Add(v1alpha1.ResetOverdueAfter-time.Second)) {
		t.Error("overdue as it begins")
	}
	site := &siteState{obj: r.site}
	r.now = began.Add(v1alpha1.ResetOverdueAfter)
	if site.resetDueLocked(r.now.Add(-time.Second)) || !site.resetDueLocked(r.now) {
		t.Error("want time alone to say so, and not before")
	}
	st = r.step(v1alpha1.ResetResetting) // what it has begun is not given up
	site.obj.Status.Conditions = site.conditionsLocked(st, r.now)
	c := meta.FindStatusCondition(site.obj.Status.Conditions, v1alpha1.ConditionResetOverdue)
	if c == nil || c.Status != metav1.ConditionTrue || !c.LastTransitionTime.Time.Equal(r.now) || !strings.Contains(c.Message, began.Format(time.RFC3339)) || !strings.Contains(c.Message, "decommission") {
		t.Fatalf("%+v", c)
	}
	if site.resetDueLocked(r.now.Add(time.Hour)) {
		t.Error("it is said again and again")
	}
	scraped := func() string {
		c := &siteCollector{&Server{sites: map[fleet.SiteID]*siteState{site.id: site}}}
		text, err := testutil.CollectAndFormat(c, expfmt.TypeTextPlain, "muster_site_reset_begun_timestamp_seconds")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	site.id = fleet.SiteID{Tenant: "acme", Name: "one"}
	site.obj.Status.Reset = st
	if got := scraped(); !strings.HasSuffix(got, fmt.Sprintf(`{site="one",tenant="acme"} %s`, strconv.FormatFloat(float64(began.Unix()), 'g', -1, 64))) {
		t.Errorf("while it is away: %q", got)
	}
	r.site.Spec.PublicKey = nextKey
	st = r.step(v1alpha1.ResetCompleted)
	site.obj.Status.Reset = st
	if got := scraped(); got != "" {
		t.Errorf("when it is back: %q", got)
	}
	if c := meta.FindStatusCondition(site.conditionsLocked(st, r.now), v1alpha1.ConditionResetOverdue); c == nil || c.Status != metav1.ConditionFalse {
		t.Errorf("%+v", c)
	}
	if _, is := resetOverdue(nil, false, r.now); is {
		t.Error("a site that was never reset has the condition")
	}
	for reason, r := range map[string]*v1alpha1.SiteResetStatus{"Over": st, "Resetting": {Phase: v1alpha1.ResetResetting, Since: metav1.NewTime(r.now)}} {
		if c, is := resetOverdue(r, true, r.Since.Time); !is || c.Status != metav1.ConditionFalse || c.Reason != reason {
			t.Errorf("of one that is %s and had the condition: %+v", r.Phase, c)
		}
	}
}

// A site's answer is outside bytes.
func TestCleanReset(t *testing.T) {
	problems := 0
	problem := func(string, ...any) { problems++ }
	fits := &wire.FactoryResetAnswer{Request: strings.Repeat("a", 63), Nonce: make([]byte, 32), PublicKey: make([]byte, 1024), Signature: make([]byte, 1024), NextKey: nextKey}
	if a := cleanReset(fits, problem); problems != 0 || len(a.GetRequest()) != 63 || len(a.GetNonce()) != 32 || len(a.GetPublicKey()) != 1024 || len(a.GetSignature()) != 1024 || a.GetNextKey() != nextKey {
		t.Errorf("what fits: %v", a)
	}
	for name, a := range map[string]*wire.FactoryResetAnswer{
		"a long id": {Request: strings.Repeat("a", 64)}, "a long nonce": {Nonce: make([]byte, 33)}, "a long key": {PublicKey: make([]byte, 1025)},
		"a long signature": {Signature: make([]byte, 1025)}, "no hash": {NextKey: "x"},
	} {
		if problems = 0; cleanReset(a, problem) != nil || problems != 1 {
			t.Errorf("%s is taken", name)
		}
	}
	if a := cleanReset(&wire.FactoryResetAnswer{Request: "one", Message: strings.Repeat("m\x00", 300)}, problem); len(a.Message) > maxResetMessage || strings.Contains(a.Message, "\x00") {
		t.Errorf("%q", a.Message)
	}
	if cleanReset(nil, problem) != nil {
		t.Error("of nothing comes something")
	}
}
