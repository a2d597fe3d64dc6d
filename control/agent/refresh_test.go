package agent_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/testkit/fakeregional"
	"muster.dev/muster/internal/wire"
)

// files of the directory as another program reads them.
func files(t *testing.T, dir string) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "bundle.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if block, _ := pem.Decode(b); block == nil {
		t.Fatal("bundle.pem holds no certificate")
	}
	for _, name := range []string{"cert.pem", "key.pem", "bundle.pem"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v: want 0600", name, st.Mode(), err)
		}
	}
	return pair.Leaf
}

// Each call is a process of its own, as a timer starts it.
func TestRefreshAsATimerDoes(t *testing.T) {
	const life = 24 * time.Hour
	now := time.Now()
	ca, err := pki.Open(pki.Options{Dir: t.TempDir(), SiteLife: life, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	r := fakeregional.Start(t, fakeregional.Options{CA: ca})
	var mu sync.Mutex
	registrations := 0
	approved := false
	r.OnRegister(func(req *wire.RegisterRequest) (*wire.RegisterResponse, error) {
		mu.Lock()
		defer mu.Unlock()
		registrations++
		if !approved {
			return &wire.RegisterResponse{Tenant: "acme", Site: "paris", Message: "site paris waits for approval"}, nil
		}
		return r.Issue(req, paris)
	})
	dir := t.TempDir()
	refresh := func() (time.Duration, bool, error) {
		t.Helper()
		a, err := agent.New(agent.Options{Dir: dir, Version: "v1", Logger: logger(t), Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		again, err := a.Refresh(t.Context())
		_, _, ok := a.Identity()
		return again, ok, err
	}
	if _, _, err := refresh(); err != agent.ErrNotJoined {
		t.Fatalf("err = %v", err)
	}
	join(t, dir, []*fakeregional.Regional{r})
	if again, ok, err := refresh(); ok || err != nil || again <= 0 || again > 5*time.Minute {
		t.Fatalf("before it is approved: %s, %v, %v", again, ok, err)
	}
	mu.Lock()
	approved = true
	mu.Unlock()
	again, ok, err := refresh()
	if !ok || err != nil || again < life/2 || again > life*3/4 {
		t.Fatalf("approved: %s, %v, %v", again, ok, err)
	}
	first := files(t, dir)
	if _, _, err := refresh(); err != nil || r.Renewals() != 0 || files(t, dir).SerialNumber.Cmp(first.SerialNumber) != 0 {
		t.Fatalf("it is good for long: %v, %d renewals", err, r.Renewals())
	}

	now = now.Add(life * 3 / 4)
	if again, _, err = refresh(); err != nil || r.Renewals() != 1 || again < life/2 {
		t.Fatalf("two thirds are over: %s, %v, %d renewals", again, err, r.Renewals())
	}
	if second := files(t, dir); second.SerialNumber.Cmp(first.SerialNumber) == 0 || !second.NotAfter.After(first.NotAfter) {
		t.Errorf("until %s, as before", second.NotAfter)
	}

	// The gateway is away: the certificate stays as it was.
	kept := files(t, dir)
	now = now.Add(life * 3 / 4)
	r.Stop()
	if _, _, err := refresh(); err == nil {
		t.Error("renewed without a gateway")
	}
	if files(t, dir).SerialNumber.Cmp(kept.SerialNumber) != 0 {
		t.Error("another certificate than before")
	}
	r.Restart()
	if registrations != 2 {
		t.Errorf("%d registrations: it registered again while its certificate was good", registrations)
	}
}

// The machine was away for longer than its certificate lasts: it comes back as itself.
func TestRefreshWhenItIsOver(t *testing.T) {
	ca, err := pki.Open(pki.Options{Dir: t.TempDir(), SiteLife: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r := fakeregional.Start(t, fakeregional.Options{CA: ca})
	dir := t.TempDir()
	join(t, dir, []*fakeregional.Regional{r})
	var serials []string
	for range 2 {
		a, err := agent.New(agent.Options{Dir: dir, Version: "v1", Logger: logger(t), Now: func() time.Time { return time.Now().Add(time.Duration(len(serials)) * time.Hour) }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		serials = append(serials, files(t, dir).SerialNumber.String())
	}
	if serials[0] == serials[1] || r.Renewals() != 0 {
		t.Errorf("%v, %d renewals", serials, r.Renewals())
	}
}

// A person said no: the error says it in the centre's words.
func TestRefreshIsRefused(t *testing.T) {
	r := fakeregional.Start(t, fakeregional.Options{})
	r.OnRegister(func(*wire.RegisterRequest) (*wire.RegisterResponse, error) {
		return nil, status.Error(codes.PermissionDenied, "registration token refused")
	})
	dir := t.TempDir()
	join(t, dir, []*fakeregional.Regional{r})
	a, err := agent.New(agent.Options{Dir: dir, Version: "v1", Logger: logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Refresh(t.Context()); status.Convert(err).Message() != "registration token refused" {
		t.Errorf("err = %v", err)
	}
}
