package factoryreset

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/factoryreset"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/testkit/faultdisk"
	"muster.dev/muster/internal/wire"
)

var paris = fleet.SiteID{Tenant: "acme", Name: "paris"}

// site is a machine that is enrolled, and a control that signs.
type site struct {
	t       *testing.T
	ca      *pki.CA
	control *tls.Certificate
	dir     string
	agent   *agent.Agent
	*Reset
	elapsed time.Duration
	applied error
}

func newSite(t *testing.T) *site {
	t.Helper()
	ca, err := pki.Open(pki.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, ca: ca, dir: t.TempDir()}
	s.control = s.certificate(func(pub crypto.PublicKey) (pki.Issued, error) { return ca.IssueControl(pub, nil) })
	if err := agent.Join(filepath.Join(s.dir, "agent"), agent.JoinConfig{Servers: []string{"gw:1"}, Token: "t", CAHash: ca.Hash()}); err != nil {
		t.Fatal(err)
	}
	s.start()
	key, _, err := s.agent.Key()
	if err != nil {
		t.Fatal(err)
	}
	issued, err := ca.IssueSite(key.Public(), paris, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"cert.pem": issued.CertPEM, "bundle.pem": issued.BundlePEM} {
		if err := os.WriteFile(filepath.Join(s.dir, "agent", name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	return s
}

func (s *site) certificate(issue func(crypto.PublicKey) (pki.Issued, error)) *tls.Certificate {
	s.t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := issue(k.Public())
	if err != nil {
		s.t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{out.Leaf.Raw}, PrivateKey: k}
}

// start is a process that starts.
func (s *site) start() {
	s.t.Helper()
	var err error
	if s.agent, err = agent.New(agent.Options{Dir: filepath.Join(s.dir, "agent"), Version: "1", Logger: slog.New(slog.DiscardHandler)}); err != nil {
		s.t.Fatal(err)
	}
	if s.Reset, err = New(s.options()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) options() Options {
	return Options{Dir: filepath.Join(s.dir, "reset"), Every: time.Millisecond, Elapsed: func() time.Duration { return s.elapsed }, Logger: slog.New(slog.DiscardHandler)}
}

// ask has control want what the blob says, and returns what the site answers.
func (s *site) ask(r *factoryreset.Request) *wire.FactoryResetAnswer {
	s.t.Helper()
	s.applied = errors.New("nothing was said")
	blob := r.Encode()
	s.TakeSet(agent.Set{Site: paris, Items: []agent.SetItem{{Name: factoryreset.Name, Digest: wire.DigestOf(blob)}},
		Blob: func(string) ([]byte, error) { return blob, nil }, Applied: func(_, _ string, err error) { s.applied = err }})
	s.look(s.agent)
	return s.Answer()
}

func (s *site) key() string {
	_, hash, err := s.agent.Key()
	if err != nil {
		s.t.Fatal(err)
	}
	return hash
}

func (s *site) request(id string) *factoryreset.Request {
	return &factoryreset.Request{ID: id, Site: paris, Key: s.key()}
}

// orderFor is what control gives for an answer.
func (s *site) orderFor(a *wire.FactoryResetAnswer) *factoryreset.Order {
	return &factoryreset.Order{ID: a.GetRequest(), Site: paris, Key: s.key(), NextKey: a.GetNextKey(), Nonce: bytes.Clone(a.GetNonce()), ValidFor: time.Hour}
}

func (s *site) order(o *factoryreset.Order, by *tls.Certificate) *factoryreset.Request {
	s.t.Helper()
	b, err := o.Sign(by)
	if err != nil {
		s.t.Fatal(err)
	}
	r := s.request(o.ID)
	r.Order = b
	return r
}

// The site confirms with the key that it has, and begins with the order for just that.
func TestBegins(t *testing.T) {
	s := newSite(t)
	a := s.ask(s.request("one"))
	signed := factoryreset.Answer{ID: "one", Site: paris, Key: s.key(), NextKey: a.GetNextKey(), Nonce: a.GetNonce()}
	if err := signed.Verify(a.GetPublicKey(), a.GetSignature()); err != nil || s.applied != nil || a.GetBegun() {
		t.Fatalf("%v %v %v", err, s.applied, a)
	}
	if b := s.ask(s.request("one")); b != a {
		t.Errorf("asked again, it says something else: %v", b)
	}
	if got := s.ask(s.order(s.orderFor(a), s.control)); !got.GetBegun() || !s.Begun() || s.applied != nil {
		t.Fatalf("%v %v", got, s.applied)
	}
	s.start()
	if !s.Begun() || !s.Answer().GetBegun() || s.Answer().GetRequest() != "one" {
		t.Error("a power cut made it forget")
	}
}

// What does not belong to this site, as it is now, does nothing, whoever sends it and whenever.
func TestNothingElseBegins(t *testing.T) {
	regional := func(s *site) *tls.Certificate {
		return s.certificate(func(pub crypto.PublicKey) (pki.Issued, error) { return s.ca.IssueRegional(pub, "eu-1", nil) })
	}
	for name, attack := range map[string]func(s *site, a *wire.FactoryResetAnswer) *factoryreset.Request{
		"an order of a regional": func(s *site, a *wire.FactoryResetAnswer) *factoryreset.Request {
			return s.order(s.orderFor(a), regional(s))
		},
		"no signature": func(s *site, _ *wire.FactoryResetAnswer) *factoryreset.Request {
			r := s.request("one")
			r.Order = []byte(`{}`)
			return r
		},
		"another nonce": func(s *site, a *wire.FactoryResetAnswer) *factoryreset.Request {
			o := s.orderFor(a)
			o.Nonce[0] ^= 1
			return s.order(o, s.control)
		},
		"no nonce": func(s *site, a *wire.FactoryResetAnswer) *factoryreset.Request {
			o := s.orderFor(a)
			o.Nonce = nil
			return s.order(o, s.control)
		},
		"another site": func(s *site, a *wire.FactoryResetAnswer) *factoryreset.Request {
			o := s.orderFor(a)
			o.Site.Name = "rome"
			return s.order(o, s.control)
		},
		"another site's request": func(s *site, a *wire.FactoryResetAnswer) *factoryreset.Request {
			r := s.order(s.orderFor(a), s.control)
			r.Site.Name = "rome"
			return r
		},
		"another key": func(s *site, a *wire.FactoryResetAnswer) *factoryreset.Request {
			o := s.orderFor(a)
			o.Key = "x" + o.Key[1:]
			return s.order(o, s.control)
		},
		"another key's request": func(s *site, a *wire.FactoryResetAnswer) *factoryreset.Request {
			r := s.order(s.orderFor(a), s.control)
			r.Key = "x" + r.Key[1:]
			return r
		},
		"another key to come back with": func(s *site, a *wire.FactoryResetAnswer) *factoryreset.Request {
			o := s.orderFor(a)
			o.NextKey = "x" + o.NextKey[1:]
			return s.order(o, s.control)
		},
		"another request's order": func(s *site, a *wire.FactoryResetAnswer) *factoryreset.Request {
			r := s.order(s.orderFor(a), s.control)
			r.ID = "two"
			return r
		},
		"the order of a request that another one replaced": func(s *site, a *wire.FactoryResetAnswer) *factoryreset.Request {
			r := s.order(s.orderFor(a), s.control)
			s.ask(s.request("two"))
			return r
		},
		"an order that was taken back, and sent again": func(s *site, a *wire.FactoryResetAnswer) *factoryreset.Request {
			r := s.order(s.orderFor(a), s.control)
			s.TakeSet(agent.Set{Site: paris})
			s.look(s.agent)
			s.ask(s.request("one"))
			return r
		},
		"a delayed one": func(s *site, a *wire.FactoryResetAnswer) *factoryreset.Request {
			s.elapsed = factoryreset.NonceLife
			return s.order(s.orderFor(a), s.control)
		},
		"one that control meant to be over": func(s *site, a *wire.FactoryResetAnswer) *factoryreset.Request {
			o := s.orderFor(a)
			o.ValidFor = time.Second
			s.elapsed = time.Second
			return s.order(o, s.control)
		},
		"one of before a restart": func(s *site, a *wire.FactoryResetAnswer) *factoryreset.Request {
			r := s.order(s.orderFor(a), s.control)
			s.start()
			s.ask(s.request("one"))
			return r
		},
		"one of before a restart, as the first message after it": func(s *site, a *wire.FactoryResetAnswer) *factoryreset.Request {
			r := s.order(s.orderFor(a), s.control)
			s.start()
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			r := attack(s, s.ask(s.request("one")))
			s.ask(r)
			if _, err := os.Stat(filepath.Join(s.dir, "reset", journalFile)); s.Begun() || !os.IsNotExist(err) {
				t.Fatalf("it began: %v", err)
			}
			// What is asked rightly still works.
			if a := s.ask(s.request("three")); !s.ask(s.order(s.orderFor(a), s.control)).GetBegun() {
				t.Error("and then nothing works any more")
			}
		})
	}
}

// The machine's clock may jump as it will: a nonce's life is told by another one.
func TestAClockThatJumps(t *testing.T) {
	for _, jump := range []time.Duration{-300 * time.Hour, 0, 24 * time.Hour} {
		s := newSite(t)
		now := time.Now()
		s.o.Now = func() time.Time { return now }
		a := s.ask(s.request("one"))
		r := s.order(s.orderFor(a), s.control)
		now = now.Add(jump)
		s.elapsed += factoryreset.NonceLife
		if s.ask(r); s.Begun() {
			t.Errorf("%s: it began with what is over", jump)
		}
	}
}

// A nonce that grew old is replaced while the request stands, so that a site that was away
// at the wrong moment needs nobody's hand; the key that it comes back with stays the same.
func TestAnotherNonce(t *testing.T) {
	s := newSite(t)
	a := s.ask(s.request("one"))
	s.elapsed += factoryreset.NonceLife
	b := s.ask(s.request("one"))
	if bytes.Equal(a.GetNonce(), b.GetNonce()) || a.GetNextKey() != b.GetNextKey() {
		t.Errorf("%v\n%v", a, b)
	}
	s.start()
	if c := s.ask(s.request("one")); bytes.Equal(c.GetNonce(), b.GetNonce()) || c.GetNextKey() != b.GetNextKey() {
		t.Errorf("after a restart: %v", c)
	}
}

// filled is what a site has when the running part of its reset is done.
func filled(t *testing.T) (s *site, w Wipe, next []byte) {
	t.Helper()
	s = newSite(t)
	a := s.ask(s.request("one"))
	s.ask(s.order(s.orderFor(a), s.control))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.o.Restart = cancel
	done := make(chan struct{})
	go func() { defer close(done); _ = s.agent.Run(ctx) }()
	if err := s.Run(ctx, s.agent); err != nil {
		t.Fatal(err)
	}
	<-done
	for _, name := range []string{"spool/a/1", "spool/2", "agent/blobs/b"} {
		name = filepath.Join(s.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	next, err := os.ReadFile(filepath.Join(s.dir, "reset", nextKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	return s, Wipe{Dir: filepath.Join(s.dir, "reset"), AgentDir: filepath.Join(s.dir, "agent"), Remove: []string{filepath.Join(s.dir, "spool"), filepath.Join(s.dir, "kubernetes")}, Logger: slog.New(slog.DiscardHandler)}, next
}

// reset checks that the machine is one that registers for the first time, under its name.
func (s *site) isReset(next []byte) error {
	for _, gone := range []string{"spool", "agent/blobs/b", "agent/cert.pem", "agent/desired.json", "reset/" + journalFile, "reset/" + nextKeyFile} {
		if _, err := os.Lstat(filepath.Join(s.dir, gone)); !os.IsNotExist(err) {
			return fmt.Errorf("%s: %v", gone, err)
		}
	}
	j, err := agent.Joined(filepath.Join(s.dir, "agent"))
	if err != nil || j.Site != "paris" || j.CAHash != s.ca.Hash() || len(j.Servers) != 1 {
		return fmt.Errorf("how it joined: %+v %v", j, err)
	}
	if !agent.HasKey(filepath.Join(s.dir, "agent"), next) {
		return errors.New("it has another key than the one that it vouched for")
	}
	return nil
}

func TestFinish(t *testing.T) {
	s, w, next := filled(t)
	restored := 0
	w.Restore = func(context.Context) error { restored++; return errors.New("sysctl: no such setting") }
	if done, err := Finish(t.Context(), w); !done || err != nil || restored != 1 {
		t.Fatalf("%v %v %d", done, err, restored)
	}
	if err := s.isReset(next); err != nil {
		t.Error(err)
	}
	if done, err := Finish(t.Context(), w); done || err != nil {
		t.Errorf("once more: %v %v", done, err)
	}
	s.start()
	if _, _, ok := s.agent.Identity(); ok || s.Begun() {
		t.Error("it has an identity")
	}
	key, err := agent.ParseKey(next)
	if err != nil {
		t.Fatal(err)
	}
	if hash, err := identity.KeyHash(key.Public()); err != nil || hash != s.key() {
		t.Errorf("%v", err)
	}
}

// A site that restarts after it has begun, and before it gave back what it could while it
// runs, does that first: nothing is taken away at its start.
func TestFinishWaitsForTheRunningSite(t *testing.T) {
	s := newSite(t)
	a := s.ask(s.request("one"))
	s.ask(s.order(s.orderFor(a), s.control))
	if !s.Begun() {
		t.Fatal("it has not begun")
	}
	unsent := filepath.Join(s.dir, "spool", "1")
	if err := errors.Join(os.MkdirAll(filepath.Dir(unsent), 0o700), os.WriteFile(unsent, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	key := s.key()
	w := Wipe{Dir: filepath.Join(s.dir, "reset"), AgentDir: filepath.Join(s.dir, "agent"), Remove: []string{filepath.Dir(unsent)}, Logger: slog.New(slog.DiscardHandler)}
	w.Restore = func(context.Context) error { t.Error("the host's configuration was put back"); return nil }
	if done, err := Finish(t.Context(), w); done || err != nil {
		t.Fatalf("%v %v", done, err)
	}
	if _, err := os.Stat(unsent); err != nil {
		t.Error(err)
	}
	if s.start(); !s.Begun() || s.key() != key {
		t.Error("it no longer is the site that began")
	}
}

// The power may go at any step, and again at the next: the site ends up reset, with the key
// that it vouched for and never without one.
func TestPowerCuts(t *testing.T) {
	for cut := 0; ; cut++ {
		s, w, next := filled(t)
		d := faultdisk.New(t, s.dir)
		w.FS = d
		d.PowerOffAfter(cut)
		_, err := Finish(t.Context(), w)
		d.Crash(uint64(cut))
		former := err != nil && !agent.HasKey(w.AgentDir, next)
		if _, kerr := agent.New(agent.Options{Dir: w.AgentDir, Version: "1", Logger: slog.New(slog.DiscardHandler)}); kerr != nil {
			t.Fatalf("cut %d: %v (the former key: %v)", cut, kerr, former)
		}
		d.PowerOffAfter(3)
		_, _ = Finish(t.Context(), w)
		d.Crash(uint64(cut) + 1000)
		if _, again := Finish(t.Context(), w); again != nil {
			t.Fatalf("cut %d: %v", cut, again)
		}
		if err := s.isReset(next); err != nil {
			t.Fatalf("cut %d: %v", cut, err)
		}
		if err == nil {
			if cut < 10 {
				t.Fatalf("only %d steps", cut)
			}
			return
		}
	}
}

// What was not sent is waited for, though not for ever; without Drain it is not.
func TestWaitsForWhatIsLeft(t *testing.T) {
	for _, drain := range []bool{true, false} {
		s := newSite(t)
		s.o.Unsent = func() string { return "3 records" }
		s.o.Left = func() string {
			if s.agent.Empty() && drain {
				s.elapsed += s.o.Within / 3
			}
			return ""
		}
		o := s.orderFor(s.ask(s.request("one")))
		o.Drain = drain
		s.ask(s.order(o, s.control))
		ctx, cancel := context.WithCancel(t.Context())
		s.o.Restart = cancel
		done := make(chan struct{})
		go func() { defer close(done); _ = s.agent.Run(ctx) }()
		if err := s.Run(ctx, s.agent); err != nil {
			t.Fatal(err)
		}
		cancel()
		<-done
		if m := s.Answer().GetMessage(); drain != strings.HasSuffix(m, "3 records") || drain != (s.elapsed >= s.o.Within) {
			t.Errorf("drain %v: after %s it says %q", drain, s.elapsed, m)
		}
		if j, err := readJournal(filepath.Join(s.dir, "reset")); err != nil || !j.Wiping {
			t.Errorf("%+v %v", j, err)
		}
	}
}

// Where the disk may go with a pod, the site says that it has begun, and takes something away,
// only once another place knows that it has.
func TestTakesNothingAwayBeforeItIsKept(t *testing.T) {
	s := newSite(t)
	a := &clearable{Agent: s.agent}
	kept := 0
	s.o.Keep = func(context.Context) error {
		if kept++; s.Answer().GetBegun() || a.cleared {
			t.Error("it goes on, and nobody knows that it has begun")
		}
		return nil
	}
	if got := s.ask(s.order(s.orderFor(s.ask(s.request("one"))), s.control)); got.GetBegun() || !s.Begun() {
		t.Fatalf("%v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.o.Restart, s.o.Within = cancel, 0
	if err := s.Run(ctx, a); err != nil {
		t.Fatal(err)
	}
	if kept != 1 || !a.cleared || !s.Answer().GetBegun() {
		t.Errorf("kept %d times, cleared: %v, %v", kept, a.cleared, s.Answer())
	}
	o := s.options()
	o.Keep = s.o.Keep
	if again, err := New(o); err != nil || !again.Begun() || again.Answer() != nil {
		t.Errorf("after a restart it says so before that is kept: %v", err)
	}
}

type clearable struct {
	*agent.Agent
	cleared bool
}

func (c *clearable) Clear() { c.cleared = true; c.Agent.Clear() }
