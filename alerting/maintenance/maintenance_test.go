package maintenance

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/alerting/manager"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/wire"
)

func once(name string, start time.Time, length time.Duration) v1alpha1.MaintenanceWindow {
	return v1alpha1.MaintenanceWindow{Name: name, Reason: "because", Start: &metav1.Time{Time: start}, Duration: metav1.Duration{Duration: length}}
}

// alertmanager is the real one.
func alertmanager(t *testing.T) *amclient.Client {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	m, err := manager.New(manager.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if err := m.SetConfig([]byte("route: {receiver: none}\nreceivers: [{name: none}]\n")); err != nil {
		t.Fatal(err)
	}
	c, err := amclient.New(amclient.Options{URLs: []string{m.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// list says what stands: state, end and comment of each silence that is not over.
func list(t *testing.T, c *amclient.Client, now time.Time) []string {
	t.Helper()
	all, err := c.Silences(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, s := range all {
		if s.Status.State != "expired" {
			out = append(out, fmt.Sprintf("%s until +%s %s by %s", s.Status.State, s.EndsAt.Sub(now).Round(time.Second), s.Comment, s.CreatedBy))
		}
	}
	slices.Sort(out)
	return out
}

func TestSilencesFollowTheWindows(t *testing.T) {
	c := alertmanager(t)
	now := time.Now().UTC().Truncate(time.Second)
	clock := now
	snapshot := inventory.NewSnapshot(1, []*inventory.Site{
		{ID: fleet.SiteID{Tenant: "acme", Name: "paris"}, Windows: []v1alpha1.MaintenanceWindow{once("now", now.Add(-time.Minute), time.Hour), once("later", now.Add(23*time.Hour), time.Hour), once("far", now.Add(25*time.Hour), time.Hour)}},
		{ID: fleet.SiteID{Tenant: "acme", Name: "rome"}, ByHand: &v1alpha1.Maintenance{Reason: "new disk"}},
		{ID: fleet.SiteID{Tenant: "acme", Name: "oslo"}, ByHand: &v1alpha1.Maintenance{Reason: "moved", Until: &metav1.Time{Time: now.Add(2 * time.Hour)}}},
		{ID: fleet.SiteID{Tenant: "acme", Name: "done"}, ByHand: &v1alpha1.Maintenance{Reason: "over", Until: &metav1.Time{Time: now.Add(-time.Second)}}},
		{ID: fleet.SiteID{Tenant: "acme", Name: "waits"}, Phase: fleet.PhasePending, ByHand: &v1alpha1.Maintenance{Reason: "not yet"}},
	}, []*inventory.VirtualSite{{Tenant: "acme", Namespace: "shared", Name: "e.u", Windows: []v1alpha1.MaintenanceWindow{once("all", now.Add(time.Hour), time.Hour)}}}, nil)
	k, err := New(Options{Alertmanager: c, Snapshot: func() *inventory.Snapshot { return snapshot }, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Now: func() time.Time { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	mine := amclient.Silence{Matchers: []wire.Matcher{wire.EqualMatcher("tenant", "acme"), wire.EqualMatcher("site", "paris")}, StartsAt: now, EndsAt: now.Add(3 * time.Hour), CreatedBy: "alice", Comment: "mine"}
	if _, err := c.SetSilence(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	check := func(step string, want ...string) {
		t.Helper()
		if _, err := k.sync(t.Context(), snapshot); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		slices.Sort(want)
		if got := list(t, c, now); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", step, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	person := "active until +3h0m0s mine by alice"
	all := []string{
		person,
		"active until +59m0s Maintenance window now of site acme/paris: because by muster-maintenance",
		"pending until +24h0m0s Maintenance window later of site acme/paris: because by muster-maintenance",
		"active until +12h0m0s Maintenance of site acme/rome: new disk by muster-maintenance",
		"active until +2h0m0s Maintenance of site acme/oslo: moved by muster-maintenance",
		"pending until +2h0m0s Maintenance window all of virtual site acme/shared/e.u: because by muster-maintenance",
	}
	check("first", all...)
	ids := func() (out []string) {
		s, err := c.Silences(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range s {
			out = append(out, x.ID)
		}
		slices.Sort(out)
		return out
	}
	before := ids()
	check("again, and nothing is made twice", all...)
	if after := ids(); !slices.Equal(before, after) {
		t.Errorf("silences were made anew: %v, %v", before, after)
	}

	// An end is prolonged in time, under the same ID; what a window no longer says is over.
	clock = now.Add(7 * time.Hour)
	snapshot = inventory.NewSnapshot(2, []*inventory.Site{{ID: fleet.SiteID{Tenant: "acme", Name: "rome"}, ByHand: &v1alpha1.Maintenance{Reason: "new disk"}}}, nil, nil)
	check("seven hours later", person, "active until +19h0m0s Maintenance of site acme/rome: new disk by muster-maintenance")
	if after := ids(); !slices.Equal(before, after) {
		t.Errorf("the open end has another ID: %v, %v", before, after)
	}
	snapshot = &inventory.Snapshot{}
	check("no maintenance any more", person)
}

// What Alertmanager takes for a virtual site finds its alerts and no other's.
func TestVirtualSiteMatcher(t *testing.T) {
	c := alertmanager(t)
	now := time.Now()
	snapshot := inventory.NewSnapshot(1, nil, []*inventory.VirtualSite{{Tenant: "acme", Namespace: "shared", Name: "e.u", Windows: []v1alpha1.MaintenanceWindow{once("all", now.Add(-time.Minute), time.Hour)}}}, nil)
	k, err := New(Options{Alertmanager: c, Snapshot: func() *inventory.Snapshot { return snapshot }, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.sync(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	alert := func(name, tenant, vs string) wire.Alert {
		return wire.Alert{Labels: map[string]string{"alertname": name, "tenant": tenant, "virtual_sites": vs}, StartsAt: now, EndsAt: now.Add(time.Hour)}
	}
	if err := c.PostAlerts(t.Context(), []wire.Alert{alert("Member", "acme", "|shared/all|shared/e.u|"), alert("Dot", "acme", "|shared/exu|"), alert("Part", "acme", "|shared/e.u2|"), alert("Other", "umbrella", "|shared/e.u|")}); err != nil {
		t.Fatal(err)
	}
	got, err := c.Alerts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range got {
		if silenced := len(a.Status.SilencedBy) > 0; silenced != (a.Labels["alertname"] == "Member") {
			t.Errorf("%s: silenced %t", a.Labels["alertname"], silenced)
		}
	}
	if len(got) != 4 {
		t.Errorf("%d alerts", len(got))
	}
}

// A change is followed at once, and an Alertmanager that does not answer is asked again.
func TestRun(t *testing.T) {
	c := alertmanager(t)
	flaky := &flakyAPI{API: c}
	flaky.fails.Store(2)
	var snapshot atomic.Pointer[inventory.Snapshot]
	k, err := New(Options{Alertmanager: flaky, Snapshot: snapshot.Load, Interval: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	snapshot.Store(inventory.NewSnapshot(1, []*inventory.Site{{ID: fleet.SiteID{Tenant: "acme", Name: "rome"}, ByHand: &v1alpha1.Maintenance{Reason: "new disk"}}}, nil, nil))
	k.Changed()
	for end := time.Now().Add(10 * time.Second); ; {
		if len(list(t, c, time.Now())) == 1 && k.Status().LastError == "" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no silence: %+v", k.Status())
		}
		time.Sleep(5 * time.Millisecond)
	}
	if flaky.fails.Load() >= 0 {
		t.Error("the failures were not met")
	}
}

type flakyAPI struct {
	API
	fails atomic.Int32
}

func (f *flakyAPI) Silences(ctx context.Context, filter ...string) ([]amclient.Silence, error) {
	if f.fails.Add(-1) >= 0 {
		return nil, fmt.Errorf("not now")
	}
	return f.API.Silences(ctx, filter...)
}
