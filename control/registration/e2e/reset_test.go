package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/control/agent/factoryreset"
	"muster.dev/muster/control/agent/hostconfig"
	"muster.dev/muster/control/api/v1alpha1"
	resetwire "muster.dev/muster/internal/factoryreset"
	"muster.dev/muster/internal/fleet"
	wired "muster.dev/muster/internal/hostconfig"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/fakehost"
)

// resettable is a site that may be reset, and starts anew when it was, as muster-edge does.
type resettable struct {
	f       *fleetWorld
	dir     string
	refuses string
	host    *fakehost.Host

	mu     sync.Mutex
	reset  *factoryreset.Reset
	unsent string
	starts int
}

func (s *resettable) wipe() factoryreset.Wipe {
	return factoryreset.Wipe{Dir: filepath.Join(s.dir, "reset"), AgentDir: filepath.Join(s.dir, "agent"), Remove: []string{filepath.Join(s.dir, "spool")}, Logger: slog.New(slog.DiscardHandler),
		Restore: func(ctx context.Context) error {
			h, err := hostconfig.New(hostconfig.Options{Root: s.host.Root, Dir: filepath.Join(s.dir, "host"), Run: s.host.Run, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				return err
			}
			return h.Restore(ctx)
		}}
}

// once runs the site until ctx ends, or until it is reset.
func (s *resettable) once(ctx context.Context) error {
	if _, err := factoryreset.Finish(ctx, s.wipe()); err != nil {
		return err
	}
	ctx, again := context.WithCancel(ctx)
	defer again()
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(s.f.t.Output(), nil))
	}
	driver, err := hostconfig.New(hostconfig.Options{Root: s.host.Root, Dir: filepath.Join(s.dir, "host"), Run: s.host.Run, Every: 50 * time.Millisecond, Logger: log})
	if err != nil {
		return err
	}
	reset, err := factoryreset.New(factoryreset.Options{Dir: filepath.Join(s.dir, "reset"), Refuses: s.refuses, Restart: again, Every: 10 * time.Millisecond, Logger: log,
		Unsent: func() string { s.mu.Lock(); defer s.mu.Unlock(); return s.unsent }})
	if err != nil {
		return err
	}
	a, err := agent.New(agent.Options{Dir: filepath.Join(s.dir, "agent"), Version: "1.0.0", Logger: log, FactoryReset: reset.Answer,
		Sets:       map[string]agent.SetApplier{wired.Kind: driver, resetwire.Kind: reset},
		Appliers:   map[string]agent.Applier{fleet.KindCollectionPolicy: taker{}},
		MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond, ConditionEvery: 10 * time.Millisecond})
	if err != nil {
		return err
	}
	if reset.Begun() {
		a.Clear()
	}
	s.mu.Lock()
	s.reset = reset
	s.starts++
	s.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { _ = a.Run(ctx) })
	wg.Go(func() { _ = driver.Run(ctx, a) })
	wg.Go(func() { _ = reset.Run(ctx, a) })
	wg.Wait()
	return nil
}

// start runs it again and again; what is returned stops it.
func (s *resettable) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := s.once(ctx); err != nil && ctx.Err() == nil {
				s.f.t.Error(err)
				return
			}
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	s.f.t.Cleanup(stop)
	return stop
}

func (f *fleetWorld) resettable(name, refuses string) *resettable {
	f.t.Helper()
	s := &resettable{f: f, dir: f.t.TempDir(), refuses: refuses, host: fakehost.New(f.t)}
	f.join(filepath.Join(s.dir, "agent"), name)
	return s
}

func (f *fleetWorld) online(name string) {
	f.t.Helper()
	testkit.Eventually(f.t, name+" is online", func() error {
		var s v1alpha1.Site
		if err := f.client.Get(f.t.Context(), types.NamespacedName{Namespace: f.tenant + "-system", Name: name}, &s); err != nil {
			return err
		}
		if s.Status.Phase != fleet.PhaseOnline {
			return fmt.Errorf("%s", s.Status.Phase)
		}
		return nil
	})
}

func (f *fleetWorld) ask(name string, r *v1alpha1.SiteReset) {
	f.t.Helper()
	s := f.site(name)
	before := s.DeepCopy()
	s.Spec.Reset = r
	if err := f.client.Patch(f.t.Context(), s, client.MergeFrom(before)); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleetWorld) becomes(name, id string, phase v1alpha1.ResetPhase, message string) *v1alpha1.Site {
	f.t.Helper()
	var out *v1alpha1.Site
	testkit.Eventually(f.t, fmt.Sprintf("reset %s of %s is %s: %s", id, name, phase, message), func() error {
		out = f.site(name)
		if r := out.Status.Reset; r == nil || r.ID != id || r.Phase != phase || !strings.Contains(r.Message, message) {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	return out
}

func inAnHour() metav1.Time { return metav1.NewTime(time.Now().Add(time.Hour)) }

// From the request to the site that is back: confirmed by the site, its samples sent first, its
// host as it was before it came, the same Site with another key, the former one refused, and a
// token that is long gone not needed.
func TestFactoryReset(t *testing.T) {
	f := newFleet(t)
	s := f.resettable("paris", "")
	pristine := s.host.Files()
	if err := os.MkdirAll(filepath.Join(s.dir, "spool", "segments"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.create(&v1alpha1.HostConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: f.tenant + "-system", Name: "base"}, Spec: v1alpha1.HostConfigurationSpec{Sysctls: map[string]string{"vm.swappiness": "10"}}})
	s.start()
	f.online("paris")
	testkit.EventuallyTrue(t, "the host is configured", func() bool { return s.host.Files()["proc/sys/vm/swappiness"] == "10" })
	before := f.site("paris")
	former, err := os.ReadFile(filepath.Join(s.dir, "agent", agent.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	stolen := t.TempDir() // a copy of its identity, that somebody has
	if err := os.CopyFS(filepath.Join(stolen, "agent"), os.DirFS(filepath.Join(s.dir, "agent"))); err != nil {
		t.Fatal(err)
	}
	// Neither the token nor a right to make sites is there any more when it comes back.
	if err := f.client.Delete(t.Context(), &v1alpha1.RegistrationToken{ObjectMeta: metav1.ObjectMeta{Namespace: f.tenant + "-system", Name: "tok"}}); err != nil {
		t.Fatal(err)
	}

	s.mu.Lock()
	s.unsent = "7 records"
	s.mu.Unlock()
	f.ask("paris", &v1alpha1.SiteReset{ID: "one", Expires: inAnHour()})
	f.becomes("paris", "one", v1alpha1.ResetResetting, "7 records")
	testkit.EventuallyTrue(t, "the host is as it was before", func() bool { return maps.Equal(s.host.Files(), pristine) })
	// A request after there is no way back changes nothing.
	s.mu.Lock()
	s.unsent = ""
	s.mu.Unlock()
	after := f.becomes("paris", "one", v1alpha1.ResetCompleted, "back as paris")
	if after.UID != before.UID || after.Spec.PublicKey == before.Spec.PublicKey || after.Spec.PublicKey != after.Status.Reset.NextKey || !after.Spec.Approved {
		t.Errorf("%+v", after.Spec)
	}
	if now, err := os.ReadFile(filepath.Join(s.dir, "agent", agent.KeyFile)); err != nil || string(now) == string(former) {
		t.Errorf("the key stayed: %v", err)
	}
	for _, gone := range []string{"spool", "reset/reset.json", "reset/next-key.pem"} {
		if _, err := os.Stat(filepath.Join(s.dir, gone)); !os.IsNotExist(err) {
			t.Errorf("%s: %v", gone, err)
		}
	}
	f.online("paris")
	testkit.EventuallyTrue(t, "it has again what the fleet gives its sites", func() bool { return s.host.Files()["proc/sys/vm/swappiness"] == "10" })
	var sites v1alpha1.SiteList
	if err := f.client.List(t.Context(), &sites, client.InNamespace(f.tenant+"-system")); err != nil || len(sites.Items) != 1 {
		t.Errorf("%d sites, %v", len(sites.Items), err)
	}

	// The former identity gets neither a stream nor a certificate.
	thief, err := agent.New(agent.Options{Dir: filepath.Join(stolen, "agent"), Version: "1.0.0", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := thief.Enrol(t.Context()); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("the former key: %v", err)
	}
	if reason, denied := f.denied("paris"); !denied || !strings.Contains(reason, "was reset") {
		t.Errorf("its certificate: %q %v", reason, denied)
	}

	// Once more, and this time it waits for approval.
	f.ask("paris", &v1alpha1.SiteReset{ID: "two", Expires: inAnHour(), Spool: v1alpha1.ResetDiscard, Approval: v1alpha1.ResetManual})
	testkit.EventuallyTrue(t, "it waits for approval", func() bool { s := f.site("paris"); return !s.Spec.Approved && s.Status.Phase == fleet.PhasePending })
	pending := f.site("paris")
	grant := pending.DeepCopy()
	grant.Spec.Approved = true
	if err := f.client.Patch(t.Context(), grant, client.MergeFrom(pending)); err != nil {
		t.Fatal(err)
	}
	f.online("paris")
	f.becomes("paris", "two", v1alpha1.ResetCompleted, "")
}

// denied is what the regional was told of a site's former certificates.
func (f *fleetWorld) denied(name string) (string, bool) {
	b, err := os.ReadFile(f.revocations)
	if err != nil {
		f.t.Fatal(err)
	}
	var byName map[string]struct {
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal(b, &byName); err != nil {
		f.t.Fatal(err)
	}
	r, ok := byName[f.tenant+"/"+name]
	return r.Reason, ok
}

// A site that is away is asked for as long as the request stands; one that does not take
// resets says what would have to be done; a request that was taken back is over.
func TestFactoryResetThatDoesNotHappen(t *testing.T) {
	f := newFleet(t)
	unwilling := f.resettable("rome", "set factoryReset.enabled in its edge.yaml")
	unwilling.start()
	away := f.resettable("oslo", "")
	stop := away.start()
	f.online("rome")
	f.online("oslo")
	key := f.site("rome").Spec.PublicKey

	f.ask("rome", &v1alpha1.SiteReset{ID: "r", Expires: inAnHour()})
	f.becomes("rome", "r", v1alpha1.ResetRefused, "set factoryReset.enabled in its edge.yaml")

	stop()
	testkit.EventuallyTrue(t, "it is offline", func() bool { return f.site("oslo").Status.Phase == fleet.PhaseOffline })
	f.ask("oslo", &v1alpha1.SiteReset{ID: "a", Expires: inAnHour()})
	f.becomes("oslo", "a", v1alpha1.ResetAsked, "not connected")
	f.ask("oslo", nil)
	f.becomes("oslo", "a", v1alpha1.ResetCancelled, "")
	f.ask("oslo", &v1alpha1.SiteReset{ID: "b", Expires: metav1.NewTime(time.Now().Add(2 * time.Second))})
	f.becomes("oslo", "b", v1alpha1.ResetExpired, "did not answer")
	away.start()
	f.online("oslo")
	if s := f.site("oslo"); s.Status.Reset.Phase != v1alpha1.ResetExpired || away.reset.Begun() {
		t.Errorf("%+v", s.Status.Reset)
	}
	// A key that the site did not vouch for takes the place of none.
	s := f.site("rome")
	before := s.DeepCopy()
	s.Spec.PublicKey = strings.Repeat("a", 64)
	if err := f.client.Patch(t.Context(), s, client.MergeFrom(before)); err == nil || !strings.Contains(err.Error(), "can't be exchanged") {
		t.Errorf("%v", err)
	}
	if f.site("rome").Spec.PublicKey != key {
		t.Error("the key was exchanged")
	}
}
