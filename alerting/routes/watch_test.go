package routes

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// applied is where a watcher's configurations go.
type applied struct {
	mu   sync.Mutex
	last string
	n    int
	fail error
}

func (a *applied) apply(b []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fail != nil {
		return a.fail
	}
	a.last = string(b)
	a.n++
	return nil
}

func (a *applied) has(text string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Contains(a.last, text)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const withSecret = `
route: {receiver: team}
receivers: [{name: team, webhook_configs: [{url: {secretKeyRef: {name: hook, key: url}}}]}]
`

func TestWatcher(t *testing.T) {
	cfg := kubeapi.Start(t)
	scheme := runtime.NewScheme()
	must(t, errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)))
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	must(t, err)
	informers, err := cache.New(cfg, cache.Options{Scheme: scheme})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()

	a := &applied{}
	file := filepath.Join(t.TempDir(), "alertmanager", "config.json")
	o := WatcherOptions{Cache: informers, Client: c, Apply: a.apply, File: file, Debounce: 20 * time.Millisecond, Every: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	w, err := NewWatcher(o)
	must(t, err)
	if !a.has("site-down") || w.Fresh() == nil {
		t.Error("the start is not the shipped configuration, or counts as fresh")
	}
	wg.Go(func() { _ = informers.Start(ctx) })
	wg.Go(func() { _ = w.Run(ctx) })

	must(t, c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "routes-system"}}))
	route := func(name, text string) *v1alpha1.AlertRoute {
		return &v1alpha1.AlertRoute{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "routes-system"}, Spec: *object(t, "routes", name, text).Spec}
	}
	condition := func(name string) *metav1.Condition {
		r := &v1alpha1.AlertRoute{}
		must(t, c.Get(ctx, client.ObjectKey{Namespace: "routes-system", Name: name}, r))
		return meta.FindStatusCondition(r.Status.Conditions, ConditionApplied)
	}
	is := func(name, reason string) func() bool {
		return func() bool { x := condition(name); return x != nil && x.Reason == reason }
	}
	must(t, c.Create(ctx, route("plain", team)))
	must(t, c.Create(ctx, route("secret", withSecret)))
	testkit.EventuallyTrue(t, "plain applied", is("plain", ReasonApplied))
	testkit.EventuallyTrue(t, "secret missing", is("secret", ReasonSecret))
	if m := condition("secret").Message; !strings.Contains(m, "secret hook, key url: there is no Secret") {
		t.Errorf("status says %q", m)
	}
	if !a.has("routes/plain/phone") || a.has("routes/secret/team") {
		t.Error("the configuration doesn't have just the good one")
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hook", Namespace: "routes-system"}, StringData: map[string]string{"url": "http://one.example/"}}
	must(t, c.Create(ctx, secret))
	testkit.EventuallyTrue(t, "secret applied", is("secret", ReasonApplied))
	if !a.has("http://one.example/") {
		t.Error("the secret's value is not in the configuration")
	}
	secret.StringData = map[string]string{"url": "http://two.example/"}
	must(t, c.Update(ctx, secret))
	testkit.EventuallyTrue(t, "the new value", func() bool { return a.has("http://two.example/") && !a.has("one.example") })
	testkit.EventuallyTrue(t, "fresh", func() bool { return w.Fresh() == nil })

	onDisk := func(text string) bool {
		b, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(b), text)
	}
	testkit.EventuallyTrue(t, "the new value on disk", func() bool { return onDisk("http://two.example/") })
	if s, err := os.Stat(file); err != nil || s.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", s.Mode(), err)
	}
	a.mu.Lock()
	a.fail = errors.New("no")
	a.mu.Unlock()
	testkit.EventuallyTrue(t, "the refusal in status", is("plain", ReasonRefused))
	testkit.EventuallyTrue(t, "no freshness after a refusal", func() bool { return w.Fresh() != nil })
	a.mu.Lock()
	a.fail = &TryLater{errors.New("away")}
	a.mu.Unlock()
	testkit.EventuallyTrue(t, "nobody there, in status", is("plain", ReasonAway))
	a.mu.Lock()
	a.fail = nil
	a.mu.Unlock()
	testkit.EventuallyTrue(t, "applied again", is("plain", ReasonApplied))
	must(t, c.Delete(ctx, route("plain", team)))
	testkit.EventuallyTrue(t, "plain gone", func() bool { return !a.has("routes/plain/") })
	r := &v1alpha1.AlertRoute{}
	must(t, c.Get(ctx, client.ObjectKey{Namespace: "routes-system", Name: "secret"}, r))
	version := r.ResourceVersion
	a.mu.Lock()
	n := a.n
	a.mu.Unlock()
	testkit.EventuallyTrue(t, "some more rounds", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.n > n+3 })
	must(t, c.Get(ctx, client.ObjectKey{Namespace: "routes-system", Name: "secret"}, r))
	if r.ResourceVersion != version {
		t.Error("status is written though nothing changed")
	}

	// A start without the API server: the last configuration, from disk.
	cancel()
	wg.Wait()
	testkit.EventuallyTrue(t, "the last configuration on disk", func() bool { return onDisk("routes/secret/team") && !onDisk("routes/plain/") })
	b := &applied{}
	o.Apply = b.apply
	if _, err := NewWatcher(o); err != nil || !b.has("http://two.example/") {
		t.Errorf("from disk: %v, %s", err, b.last)
	}
	must(t, os.WriteFile(file, []byte("rubbish"), 0o600))
	o.Apply = func([]byte) error { return errors.New("rubbish") }
	if _, err := NewWatcher(o); err != nil {
		t.Errorf("rubbish on disk ends the start: %v", err)
	}
}
