package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/controllers"
	healthapi "muster.dev/muster/health/api"
	"muster.dev/muster/health/defaults"
	"muster.dev/muster/health/engine"
	"muster.dev/muster/health/status"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// During planned work of every sort kubectl's status, the health API, which the console
// shows, and the CLI say the same: of each site, and of the counts of virtual sites.
func TestAllAgreeOnMaintenance(t *testing.T) {
	cfg := kubeapi.Start(t)
	scheme := runtime.NewScheme()
	if err := controllers.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := cache.New(cfg, cache.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := inventory.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	// Control's inventory and health's, each as its role has it.
	ofControl, err := inventory.New(inventory.Options{Cache: objects, Policies: []inventory.PolicyKind{inventory.CollectionPolicies()}, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	ofHealth, err := inventory.New(inventory.Options{Client: watcher, Policies: []inventory.PolicyKind{inventory.HealthPolicies()}, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	runner := controllers.New(controllers.Options{Client: c, Cache: objects, Inventory: ofControl, RenderedPolicy: func(fleet.SiteID) string { return "" }, Logger: log, Registerer: prometheus.NewRegistry(),
		DefaultHealthPolicy: defaults.HealthPolicy().Spec, DefaultCollectionPolicy: defaults.CollectionPolicy().Spec})
	writer := status.New(status.Options{Client: watcher, Logger: log})
	health, err := engine.New(engine.Options{Inventory: ofHealth, Status: writer, Shipped: defaults.Model(), Dir: t.TempDir(), Tick: time.Second, Logger: log, Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{objects.Start, ofControl.Run, ofHealth.Run, runner.Run, writer.Run, health.Run} {
		wg.Go(func() { _ = run(ctx) })
	}
	defer func() { cancel(); wg.Wait() }()

	now := time.Now()
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(d)} }
	once := func(name string, start time.Duration) []v1alpha1.MaintenanceWindow {
		return []v1alpha1.MaintenanceWindow{{Name: name, Reason: name, Start: at(start), Duration: metav1.Duration{Duration: time.Hour}}}
	}
	always := []v1alpha1.MaintenanceWindow{{Name: "cron", Reason: "cron", Schedule: "0 * * * *", TimeZone: "Europe/Berlin", Duration: metav1.Duration{Duration: time.Hour}}}
	site := func(name, region string, change func(*v1alpha1.Site)) *v1alpha1.Site {
		s := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "agree-system", Name: name, Labels: map[string]string{"region": region}}, Spec: v1alpha1.SiteSpec{Approved: true}}
		if change != nil {
			change(s)
		}
		return s
	}
	virtual := func(name, region string, windows []v1alpha1.MaintenanceWindow) *v1alpha1.VirtualSite {
		return &v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: "agree-shared", Name: name}, Spec: v1alpha1.VirtualSiteSpec{
			SiteSelector: metav1.LabelSelector{MatchLabels: map[string]string{"region": region}}, MaintenanceWindows: windows}}
	}
	if err := c.Create(ctx, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "agree"}}); err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{
		site("none", "quiet", nil), site("by-hand", "quiet", func(s *v1alpha1.Site) { s.Spec.Maintenance = &v1alpha1.Maintenance{Reason: "disks"} }),
		site("by-hand-till", "quiet", func(s *v1alpha1.Site) {
			s.Spec.Maintenance = &v1alpha1.Maintenance{Reason: "disks", Until: at(time.Hour)}
		}),
		site("over", "quiet", func(s *v1alpha1.Site) {
			s.Spec.Maintenance = &v1alpha1.Maintenance{Reason: "disks", Until: at(-time.Hour)}
		}),
		site("own", "quiet", func(s *v1alpha1.Site) { s.Spec.MaintenanceWindows = once("own", -time.Minute) }),
		site("later", "quiet", func(s *v1alpha1.Site) { s.Spec.MaintenanceWindows = once("later", time.Minute*30) }),
		site("cron", "quiet", func(s *v1alpha1.Site) { s.Spec.MaintenanceWindows = always }),
		site("member", "busy", nil), site("member-by-hand", "busy", func(s *v1alpha1.Site) {
			s.Spec.Maintenance = &v1alpha1.Maintenance{Reason: "short", Until: at(time.Minute)}
		}),
		site("member-of-later", "soon", nil), site("pending", "busy", func(s *v1alpha1.Site) { s.Spec.Approved = false }),
		virtual("quiet", "quiet", nil), virtual("busy", "busy", once("racks", -time.Minute)), virtual("soon", "soon", once("soon", 30*time.Minute)),
	} {
		for err := c.Create(ctx, o); err != nil; err = c.Create(ctx, o) { // its namespace is being made
			if time.Since(now) > 30*time.Second {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	want := []string{"by-hand disks", "by-hand-till disks", "cron cron", "later ", "member racks", "member-by-hand racks", "member-of-later ", "none ", "over ", "own own", "pending "}
	wantCounts := []string{"shared/busy 2 of 2", "shared/quiet 4 of 7", "shared/soon 0 of 1"}

	ofKubectl := func() (sites, cli, counts, cliCounts []string, err error) {
		var list v1alpha1.SiteList
		var virtual v1alpha1.VirtualSiteList
		if err := errors.Join(c.List(ctx, &list, client.InNamespace("agree-system")), c.List(ctx, &virtual, client.InNamespace("agree-shared"))); err != nil {
			return nil, nil, nil, nil, err
		}
		for _, s := range list.Items {
			reason, says := "", ""
			if m := s.Status.Maintenance; m != nil {
				reason = m.Reason
			}
			if m := s.MaintenanceAt(time.Now()); m != nil {
				says = m.Reason
			}
			if strings.Contains(siteRow("agree", &s)[1], ",Maintenance") != (says != "") {
				says += "?"
			}
			sites, cli = append(sites, s.Name+" "+reason), append(cli, s.Name+" "+says)
		}
		for _, v := range virtual.Items {
			counts = append(counts, fmt.Sprintf("shared/%s %d of %d", v.Name, v.Status.Maintenance, v.Status.Sites))
			row := virtualSiteRow("agree", &v)
			cliCounts = append(cliCounts, row[0]+" "+row[6]+" of "+row[1])
		}
		return sites, cli, counts, cliCounts, nil
	}
	ofConsole := func() (sites, counts []string) {
		v := health.View()
		if v == nil {
			return nil, nil
		}
		for _, s := range v.Sites {
			if s.ID.Tenant == "agree" {
				reason := ""
				if m := healthapi.SiteOf(s, v.AsOf).Maintenance; m != nil {
					reason = m.Reason
				}
				sites = append(sites, s.ID.Name+" "+reason)
			}
		}
		for _, x := range v.VirtualSites {
			if x.Tenant == "agree" {
				o := healthapi.VirtualSiteOf(x)
				counts = append(counts, fmt.Sprintf("%s/%s %d of %d", o.Namespace, o.Name, o.Maintenance, o.Sites))
			}
		}
		return sites, counts
	}
	for {
		sites, cli, counts, cliCounts, err := ofKubectl()
		shown, shownCounts := ofConsole()
		if err == nil && slices.Equal(sites, want) && slices.Equal(cli, want) && slices.Equal(shown, want) && slices.Equal(counts, wantCounts) && slices.Equal(cliCounts, wantCounts) && slices.Equal(shownCounts, wantCounts) {
			return
		}
		if time.Since(now) > time.Minute {
			t.Fatalf("want    %v %v\nkubectl %v %v\nCLI     %v %v\nconsole %v %v\n%v", want, wantCounts, sites, counts, cli, cliCounts, shown, shownCounts, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
