package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/control/agent/hostconfig"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	wired "muster.dev/muster/internal/hostconfig"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/fakehost"
	"muster.dev/muster/internal/wire"
)

// taker is a collector that takes every policy.
type taker struct{}

func (taker) Apply(context.Context, *wire.Item, []byte) error { return nil }

// hosted is a site whose host is a directory.
type hosted struct {
	*fakehost.Host
	stop func()
}

func (f *fleetWorld) hosted(dir, site string, host *fakehost.Host) *hosted {
	f.t.Helper()
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(f.t.Output(), nil))
	}
	f.join(filepath.Join(dir, "agent"), site)
	driver, err := hostconfig.New(hostconfig.Options{Root: host.Root, Dir: filepath.Join(dir, "host"), Run: host.Run, Every: 50 * time.Millisecond, Logger: log})
	if err != nil {
		f.t.Fatal(err)
	}
	a, err := agent.New(agent.Options{Dir: filepath.Join(dir, "agent"), Version: "1.0.0", Sets: map[string]agent.SetApplier{wired.Kind: driver}, Appliers: map[string]agent.Applier{fleet.KindCollectionPolicy: taker{}}, Logger: log,
		MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond, ConditionEvery: 10 * time.Millisecond})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = a.Run(ctx) })
	wg.Go(func() { _ = driver.Run(ctx, a) })
	h := &hosted{host, sync.OnceFunc(func() { cancel(); wg.Wait() })}
	f.t.Cleanup(h.stop)
	return h
}

func (f *fleetWorld) config(name string) *v1alpha1.HostConfiguration {
	f.t.Helper()
	var o v1alpha1.HostConfiguration
	if err := f.client.Get(f.t.Context(), types.NamespacedName{Namespace: f.tenant + "-system", Name: name}, &o); err != nil {
		f.t.Fatal(err)
	}
	return &o
}

func (f *fleetWorld) patch(name, patch string) {
	f.t.Helper()
	if err := f.client.Patch(f.t.Context(), f.config(name), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		f.t.Fatal(err)
	}
}

// says waits for a condition of an object.
func says(t *testing.T, get func() []metav1.Condition, typ string, status metav1.ConditionStatus, message string) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%s is %s: %s", typ, status, message), func() error {
		c := meta.FindStatusCondition(get(), typ)
		if c == nil || c.Status != status || !strings.Contains(c.Message, message) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// From kubectl to /etc and back: what is wanted is applied, joined from several objects,
// healed, tried dry, kept over restarts and while the centre is silent, and put back.
func TestHostConfiguration(t *testing.T) {
	f := newFleet(t)
	dir, host := t.TempDir(), fakehost.New(t)
	before := host.Files()
	site := f.hosted(dir, "paris", host)
	object := func(name string, spec v1alpha1.HostConfigurationSpec) *v1alpha1.HostConfiguration {
		return &v1alpha1.HostConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: f.tenant + "-system", Name: name}, Spec: spec}
	}

	// Admission names the field.
	err := f.client.Create(t.Context(), object("bad", v1alpha1.HostConfigurationSpec{Sysctls: map[string]string{"kernel.core_pattern": "|/bin/sh"}}))
	if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.sysctls[kernel.core_pattern]") {
		t.Errorf("%v", err)
	}

	f.create(object("base", v1alpha1.HostConfigurationSpec{Priority: 10, Sysctls: map[string]string{"vm.swappiness": "10"}, Hosts: []v1alpha1.HostEntry{{Address: "192.0.2.10", Names: []string{"db"}}}}))
	conditions := func(name string) func() []metav1.Condition {
		return func() []metav1.Condition { return f.config(name).Status.Conditions }
	}
	ofSite := func() []metav1.Condition { return f.site("paris").Status.Conditions }
	says(t, conditions("base"), "Applied", metav1.ConditionTrue, "in effect on every site")
	says(t, conditions("base"), v1alpha1.ConditionConflict, metav1.ConditionFalse, "")
	says(t, ofSite, "HostConfigurationApplied", metav1.ConditionTrue, "")
	if f := host.Files(); f["proc/sys/vm/swappiness"] != "10" || !strings.Contains(f["etc/hosts"], "192.0.2.10 db") {
		t.Fatalf("%v", f)
	}

	// A weaker one that sets the same is overruled, and says so; the rest of it counts.
	f.create(object("shop", v1alpha1.HostConfigurationSpec{Sysctls: map[string]string{"vm.swappiness": "20", "net.core.somaxconn": "4096"}}))
	says(t, conditions("shop"), v1alpha1.ConditionConflict, metav1.ConditionTrue, "HostConfiguration base sets sysctl vm.swappiness to another value, and decides by its priority, then its name; on paris")
	says(t, conditions("shop"), "Applied", metav1.ConditionTrue, "")
	testkit.EventuallyTrue(t, "the rest of it is applied", func() bool {
		f := host.Files()
		return f["proc/sys/net/core/somaxconn"] == "4096" && f["proc/sys/vm/swappiness"] == "10"
	})

	// Drift is healed, and said.
	host.Write("proc/sys/vm/swappiness", "99\n")
	says(t, ofSite, hostconfig.ConditionDrift, metav1.ConditionFalse, "")
	testkit.EventuallyTrue(t, "it is healed", func() bool { return host.Files()["proc/sys/vm/swappiness"] == "10" })

	// A dry run changes nothing, and says what it would.
	f.create(object("try", v1alpha1.HostConfigurationSpec{DryRun: true, Priority: 20, Sysctls: map[string]string{"vm.swappiness": "1"}}))
	says(t, ofSite, hostconfig.ConditionDryRun, metav1.ConditionTrue, "sysctl vm.swappiness: 10 → 1")
	if v := host.Files()["proc/sys/vm/swappiness"]; v != "10" {
		t.Error(v)
	}

	// What the host can't do leaves the last good one, and says where and why.
	f.patch("base", `{"spec":{"sysctls":{"net.core.nonesuch":"1"}}}`)
	says(t, conditions("base"), "Applied", metav1.ConditionFalse, "refused by paris; why is in the site's condition HostConfigurationApplied")
	says(t, ofSite, "HostConfigurationApplied", metav1.ConditionFalse, "sysctl net.core.nonesuch: this kernel has no such setting")
	if v := host.Files()["proc/sys/net/core/somaxconn"]; v != "4096" {
		t.Error(v)
	}
	f.patch("base", `{"spec":{"sysctls":{"net.core.nonesuch":null}}}`)
	says(t, conditions("base"), "Applied", metav1.ConditionTrue, "")

	// The centre falls silent, and the agent starts anew: the host keeps what it has, and heals.
	f.silence()
	site.stop()
	host.Write("proc/sys/vm/swappiness", "98\n")
	host.Write("etc/hosts", "127.0.0.1 localhost\n")
	f.hosted(dir, "paris", host)
	testkit.EventuallyTrue(t, "healed without the centre", func() bool {
		f := host.Files()
		return f["proc/sys/vm/swappiness"] == "10" && strings.Contains(f["etc/hosts"], "192.0.2.10 db")
	})
	f.speak()

	// All is taken away: the host is as it was.
	for _, name := range []string{"try", "shop", "base"} {
		if err := f.client.Delete(t.Context(), f.config(name)); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "as it was before", func() error {
		if now := host.Files(); !maps.Equal(now, before) {
			return fmt.Errorf("%v\nwant %v", now, before)
		}
		return nil
	})
}
