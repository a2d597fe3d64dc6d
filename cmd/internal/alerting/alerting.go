// Package alerting composes the alerting role: Alertmanager with the tenants' routes,
// the index of what fires, the dead-man and the silences of maintenance windows. All
// that it takes from the Kubernetes API it keeps on disk: it starts and works while
// control and the aggregator are away.
package alerting

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/alertmanager/cluster"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/alerting/deadman"
	"muster.dev/muster/alerting/maintenance"
	"muster.dev/muster/alerting/manager"
	"muster.dev/muster/alerting/routes"
	"muster.dev/muster/alerting/state"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/control"
	"muster.dev/muster/cmd/internal/happened"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/egress"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/kubetls"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/peers"
	"muster.dev/muster/internal/timeline"
)

// Run runs the role until ctx ends.
func Run(ctx context.Context, c config.Config) error {
	known, err := c.OpenPeers("alerting")
	if err != nil {
		return err
	}
	return role.Run(ctx, role.Options{Role: "alerting", Shared: true, OpsListen: c.Alerting.OpsListen, Guard: known.Listener(config.OpsRules("alerting")), Hosts: c.HostNames(), Log: obs.LogOptions(c.Log)},
		func(_ context.Context, env *role.Env) error { return start(env, c, known) })
}

func start(env *role.Env, c config.Config, known *peers.Peers) error {
	dir := c.Path("alerting")
	if err := disk.MkdirAll(disk.OS{}, dir, 0o700); err != nil {
		return fmt.Errorf("alerting: %w", err)
	}
	kube, objects, err := kubernetes(env, c)
	if err != nil {
		return err
	}
	reach := c.Egress()
	reach.Logger, reach.Registerer = env.Log.With("part", "receivers"), env.Reg
	door, err := egress.New(reach)
	if err != nil {
		return err
	}
	told, err := happened.Open(env, dir)
	if err != nil {
		return err
	}
	var tally *state.Tally
	if len(c.Alerting.Alertmanager.URLs) == 0 {
		if tally, err = startTally(env, dir); err != nil {
			return err
		}
	}
	am, err := startAlertmanager(env, c, known, dir, door, newNotified(told, tally, env.Log.With("part", "notifications")), shared(tally))
	if err != nil {
		return err
	}
	watcher, err := routes.NewWatcher(routes.WatcherOptions{Cache: objects, Client: kube, Apply: am.apply, Reach: door.Named, File: filepath.Join(dir, "alertmanager.yml"), Logger: env.Log.With("part", "alert routes"), Registerer: env.Reg})
	if err != nil {
		return err
	}
	env.Go("alert routes", watcher.Run)
	env.Ops.Status("alert routes", func() any { return map[string]any{"notFromTheAPIServer": text(watcher.Fresh())} })

	inv, err := inventory.New(inventory.Options{Cache: objects, File: filepath.Join(dir, "inventory.json"), Logger: env.Log.With("part", "inventory")})
	if err != nil {
		return err
	}
	env.Go("inventory", inv.Run)
	env.Ops.Ready("inventory", inv.Ready)
	env.Ops.Status("inventory", inv.Status)

	if err := startState(env, dir, am, told, tally); err != nil {
		return err
	}
	if err := startDeadman(env, c, known, dir, inv, am.client); err != nil {
		return err
	}
	keeper, err := maintenance.New(maintenance.Options{Alertmanager: am.client, Snapshot: inv.Snapshot, Logger: env.Log.With("part", "maintenance"), Registerer: env.Reg})
	if err != nil {
		return err
	}
	env.Go("maintenance", keeper.Run)
	changed := inv.Changed()
	env.Go("maintenance changes", func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
				keeper.Changed()
			}
		}
	})
	env.Ops.Status("maintenance", func() any { return keeper.Status() })
	return nil
}

// kubernetes connects to the API server, which need not answer: the kinds are known
// beforehand, and the cache goes on asking.
func kubernetes(env *role.Env, c config.Config) (client.Client, cache.Cache, error) {
	cfg, _, err := kubetls.Load(control.Kubeconfig(c, "alerting"))
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig of the alerting role: %w; `muster control` makes it", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, k := range []struct {
		gv               schema.GroupVersion
		kind             string
		plural, singular string
		scope            meta.RESTScope
	}{
		{corev1.SchemeGroupVersion, "Namespace", "namespaces", "namespace", meta.RESTScopeRoot},
		{corev1.SchemeGroupVersion, "Secret", "secrets", "secret", meta.RESTScopeNamespace},
		{v1alpha1.GroupVersion, "Tenant", "tenants", "tenant", meta.RESTScopeRoot},
		{v1alpha1.GroupVersion, "Site", "sites", "site", meta.RESTScopeNamespace},
		{v1alpha1.GroupVersion, "VirtualSite", "virtualsites", "virtualsite", meta.RESTScopeNamespace},
		{v1alpha1.GroupVersion, "AlertRoute", "alertroutes", "alertroute", meta.RESTScopeNamespace},
	} {
		mapper.AddSpecific(k.gv.WithKind(k.kind), k.gv.WithResource(k.plural), k.gv.WithResource(k.singular), k.scope)
	}
	crlog.SetLogger(logr.FromSlogHandler(env.Log.Handler())) // else it complains, after 30 s, that nobody did this
	objects, err := cache.New(cfg, cache.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, nil, fmt.Errorf("cache of the Kubernetes API: %w", err)
	}
	direct, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, nil, fmt.Errorf("client of the Kubernetes API: %w", err)
	}
	env.Go("kubernetes cache", objects.Start)
	return direct, objects, nil
}

// alertmanager is the embedded or the external one.
type alertmanager struct {
	client *amclient.Client
	source state.Source
	apply  func([]byte) error
}

// shared is what alerting roles whose Alertmanagers gossip tell each other besides.
func shared(tally *state.Tally) map[string]cluster.State {
	return map[string]cluster.State{"muster-tally": tally}
}

func startAlertmanager(env *role.Env, c config.Config, known *peers.Peers, dir string, door *egress.Policy, told *notified, shared map[string]cluster.State) (*alertmanager, error) {
	o := c.Alerting.Alertmanager
	log := env.Log.With("part", "alertmanager")
	am := &alertmanager{}
	if len(o.URLs) == 0 {
		gossip, err := clusterTLS(c, dir)
		if err != nil {
			return nil, err
		}
		m, err := manager.New(manager.Options{Dir: dir, Listen: o.Listen, Guard: known.Listener(config.AlertmanagerRules(&c)), ExternalURL: o.ExternalURL, Hosts: c.HostNames(), ShardBy: fleet.SeriesTenant, Retention: o.Retention.D(), Maintenance: time.Minute, Dial: door.DialContext, Notified: told.record,
			Cluster: manager.Cluster{Listen: o.Cluster.Listen, Advertise: o.Cluster.Advertise, Peers: o.Cluster.Peers, TLSConfig: gossip, Shared: shared}, Logger: log, Registerer: env.Reg})
		if err != nil {
			return nil, fmt.Errorf("alerting.alertmanager: %w", err)
		}
		env.Go("alertmanager", m.Run)
		env.Ops.Ready("alertmanager", m.Ready)
		am.source, am.apply = m, m.SetConfig
	}
	urls := c.AlertmanagerURLs()
	var err error
	if am.client, err = amclient.New(amclient.Options{URLs: urls, Client: known.Client(), Logger: log}); err != nil {
		return nil, err
	}
	if am.source == nil {
		am.source = state.External{Client: am.client}
		am.apply = routes.NewExternal(filepath.Join(dir, "external", "alertmanager.yml"), urls, &http.Client{Timeout: 10 * time.Second, Transport: known.Transport()}, log).Apply
	}
	return am, nil
}

// clusterTLS writes the file by which gossiping Alertmanagers know each other, as
// Alertmanager's --cluster.tls-config; "" where they need not. Certificates are read for
// each handshake, the CA at the start alone: Alertmanager takes no tls.Config of ours, and its
// peer can't be closed and made anew, since it never frees its port.
func clusterTLS(c config.Config, dir string) (string, error) {
	if c.Alerting.Alertmanager.Cluster.Listen == "" || c.InsecureLoopback {
		return "", nil
	}
	pair, err := filepath.Abs(c.PairFile("alerting"))
	if err != nil {
		return "", err
	}
	trust, name := filepath.Join(filepath.Dir(pair), filepath.Base(c.TrustFile("alerting"))), c.RoleHost("alerting")
	type object = map[string]any
	b, err := yaml.Marshal(object{
		"tls_server_config": object{"cert_file": pair, "key_file": pair, "client_ca_file": trust, "client_auth_type": "RequireAndVerifyClientCert", "client_allowed_sans": []string{name}},
		"tls_client_config": object{"cert_file": pair, "key_file": pair, "ca_file": trust, "server_name": name},
	})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "cluster-tls.yml")
	return file, atomicfile.Write(file, b, 0o600)
}

// tallyEvery is how often the counts of notifications are saved.
const tallyEvery = time.Minute

// startTally counts what the embedded Alertmanager notifies.
func startTally(env *role.Env, dir string) (*state.Tally, error) {
	t, err := state.OpenTally(filepath.Join(dir, "notifications.json"))
	if err != nil {
		return nil, err
	}
	save := func() {
		if err := t.Save(time.Now()); err != nil {
			env.Log.Error("the tally of notifications is not saved", "err", err)
		}
	}
	env.Stack.OnStop("tally of notifications", func(context.Context) error { save(); return nil })
	env.Go("tally of notifications", func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(tallyEvery):
				save()
			}
		}
	})
	return t, nil
}

func startState(env *role.Env, dir string, am *alertmanager, told *timeline.Store, tally *state.Tally) error {
	st, err := state.New(state.Options{Timeline: told, Tally: tally, Source: am.source, Silences: am.client, File: filepath.Join(dir, "history.db"), Logger: env.Log.With("part", "alerts"), Registerer: env.Reg})
	if err != nil {
		return err
	}
	env.Stack.OnStop("alerts", func(context.Context) error { return st.Close() })
	env.Go("alerts", st.Run)
	env.Ops.Ready("alerts", st.Ready)
	st.Register(env.Ops.Mux())
	return nil
}

func startDeadman(env *role.Env, c config.Config, known *peers.Peers, dir string, inv *inventory.Inventory, am *amclient.Client) error {
	var regionals []deadman.Regional
	for _, r := range c.Regionals {
		regionals = append(regionals, deadman.Regional{Name: r.Name, URL: c.QueryURL(r)})
	}
	d, err := deadman.New(deadman.Options{Client: known.Client(), Console: c.Console.URL(), Regionals: regionals, SiteFor: c.Alerting.SiteDownFor.D(), File: filepath.Join(dir, "deadman.json"),
		Sites: func() ([]deadman.Site, bool) {
			s := inv.Snapshot()
			if s == nil {
				return nil, false
			}
			return watched(s, time.Now()), true
		},
		Sink: am, Logger: env.Log.With("part", "dead-man"), Registerer: env.Reg})
	if err != nil {
		return err
	}
	env.Go("dead-man", d.Run)
	env.Ops.Status("dead-man", func() any { return d.Status() })
	return nil
}

// watched are the sites as the dead-man wants them.
func watched(s *inventory.Snapshot, now time.Time) []deadman.Site {
	sites := make([]deadman.Site, 0, len(s.Sites))
	for _, x := range s.Sites {
		if x.Counts() {
			sites = append(sites, deadman.Site{ID: x.ID, Region: x.Region, Regional: x.Regional, Connected: !x.LastSeen.IsZero(), Created: x.CreatedAt, VirtualSites: x.VirtualSites, Maintenance: x.MaintenanceAt(now) != nil})
		}
	}
	return sites
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
