// Package control composes the control plane: the API server, the fleet's CA,
// registration, desired state, the fleet API for regionals, and the controllers.
package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/aggregator/query"
	"muster.dev/muster/cmd/internal/cli"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/happened"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/apiserver"
	"muster.dev/muster/control/chronicle"
	"muster.dev/muster/control/controllers"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/fleetapi"
	"muster.dev/muster/control/granted"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/control/quota"
	"muster.dev/muster/control/registration"
	"muster.dev/muster/control/rollout/readings"
	"muster.dev/muster/control/vk8s"
	"muster.dev/muster/control/vk8s/sum"
	"muster.dev/muster/health/defaults"
	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/egress"
	"muster.dev/muster/internal/factoryreset"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/peers"
	"muster.dev/muster/internal/strangers"
)

// certEvery is how often the certificates of servers are looked at, which are renewed at
// two thirds of their life; caEvery how often the CA is, which `muster ca` changes.
const (
	certEvery = time.Hour
	caEvery   = 2 * time.Second
)

// Run runs the role until ctx ends.
func Run(ctx context.Context, c config.Config) error {
	// Its certificate is there before its first listener is.
	ca, err := pki.Open(pki.Options{Dir: filepath.Join(Dir(c), "pki"), TrustDomain: c.TrustDomain, SiteLife: c.Control.SiteCertLife.D()})
	if err != nil {
		return err
	}
	if err := ensureCertificates(ca, c); err != nil {
		return err
	}
	known, err := c.OpenPeers("control")
	if err != nil {
		return err
	}
	return role.Run(ctx, role.Options{Role: "control", Shared: true, OpsListen: c.Control.OpsListen, Guard: known.Listener(config.OpsRules("control")), Hosts: c.HostNames(), Log: obs.LogOptions(c.Log), Gather: []prometheus.Gatherer{apiserver.Gatherer()}},
		func(ctx context.Context, env *role.Env) error { return start(ctx, env, c, ca, known) })
}

// Dir is where control keeps its state.
func Dir(c config.Config) string { return c.Path("control") }

// Kubeconfig is the kubeconfig of one of Muster's own roles.
func Kubeconfig(c config.Config, role string) string {
	return filepath.Join(Dir(c), "apiserver", role+".kubeconfig")
}

func start(ctx context.Context, env *role.Env, c config.Config, ca *pki.CA, known *peers.Peers) error {
	dir := Dir(c)
	if err := writeJoinInfo(ca, c); err != nil {
		return err
	}
	pair := c.PairFile("control")
	door := c.Egress()
	door.Logger, door.Registerer = env.Log, env.Reg
	reach, err := egress.New(door)
	if err != nil {
		return err
	}
	mount := vk8s.New()
	server, err := apiserver.Start(ctx, apiserver.Options{
		Dir: filepath.Join(dir, "apiserver"), Listen: c.Control.Listen, CertFile: pair, KeyFile: pair, CAPEM: ca.BundlePEM(), KubeconfigDir: c.DataDir,
		Users: ownUsers(),
		Etcd:  apiserver.Etcd(c.Control.Etcd), OIDC: oidc(c), Quotas: v1alpha1.TenantQuotas(c.Control.Quotas), Reach: reach.Named, Virtual: mount, Logger: env.Log, Closed: strangers.Counting(env.Reg, "muster_control_api_closed_connections_total"),
	})
	if err != nil {
		return fmt.Errorf("control.listen: %w", err)
	}
	env.Stack.OnStop("API server", server.Stop)
	env.Go("API server", func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-server.Done():
			return fmt.Errorf("ended: %w", server.Err())
		}
	})
	env.Log.Info("the Kubernetes API is up", "url", "https://"+server.Addr())
	env.Go("certificates", func(ctx context.Context) error { return keepCertificates(ctx, env.Log, c, ca, server) })
	software, err := startSoftware(ctx, env, c)
	if err != nil {
		return err
	}
	metrics, err := query.New(query.Options{URL: c.CortexURL(), Client: known.Client(), Registerer: env.Reg})
	if err != nil {
		return err
	}
	gates := func(kube client.Reader) (*readings.Readings, error) {
		return newReadings(env, c, known, kube, metrics, reach)
	}
	return startFleet(ctx, env, c, ca, known, server.ConfigOf(controlUser), server, mount, metrics, gates, software.Root)
}

func oidc(c config.Config) apiserver.OIDC {
	o := c.OIDC
	return apiserver.OIDC{IssuerURL: o.IssuerURL, CAFile: o.CAFile, ClientID: o.ClientID, UsernameClaim: o.UsernameClaim, UsernamePrefix: o.UsernamePrefix, GroupsClaim: o.GroupsClaim, GroupsPrefix: o.GroupsPrefix}
}

// stored is what there is in etcd, as counted there; *apiserver.Server knows it.
type stored interface {
	Usage(tenant string) quota.Usage
	Holds(namespace string, of schema.GroupResource) bool
	Embedded() bool
	Snapshot(ctx context.Context, w io.Writer) error
}

// startFleet starts what runs on top of the API server.
func startFleet(ctx context.Context, env *role.Env, c config.Config, ca *pki.CA, known *peers.Peers, cfg *rest.Config, stored stored, mount *vk8s.Mount, metrics *query.Client, gates func(kube client.Reader) (*readings.Readings, error), softwareRoot func() []byte) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(controllers.AddToScheme(scheme), sum.AddToScheme(scheme)); err != nil {
		return err
	}
	cfg.QPS = -1 // each user of the client bounds itself
	kube, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	if err := bootstrap(ctx, kube, c); err != nil {
		return err
	}
	informers, err := cache.New(cfg, cache.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	if err := registration.IndexKeys(ctx, informers); err != nil {
		return err
	}
	env.Go("watch", informers.Start)
	objects, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	grants := granted.New(objects, env.Log)
	env.Go("granted kinds", grants.Run)
	core, err := typedcorev1.NewForConfig(cfg)
	if err != nil {
		return err
	}
	clusters, err := newVirtual(ctx, env, c, informers, core)
	if err != nil {
		return err
	}

	told, err := happened.Open(env, Dir(c))
	if err != nil {
		return err
	}
	serveBackups(env, c, stored, told)
	recorder := newRecorder(env, core, scheme)
	audit, err := registration.OpenAudit(registration.AuditOptions{File: filepath.Join(Dir(c), "registration-audit.log")})
	if err != nil {
		return err
	}
	env.Stack.OnStop("registration audit", func(context.Context) error { return audit.Close() })
	var fleetServer *fleetapi.Server // which calls the registrar
	registrar := registration.New(registration.Options{SiteQuota: c.Control.Quotas.Sites, Client: kube, Cache: informers, Issuer: ca, Audit: audit, Recorder: recorder, Logger: env.Log, Registerer: env.Reg,
		Certified: func(site *v1alpha1.Site, notAfter time.Time) bool { return fleetServer.Certified(site, notAfter) }})

	regionals := regionalNames(c)
	kept, err := openContent(ctx, c)
	if err != nil {
		return err
	}
	store := desired.New(desired.Options{Content: kept, Quotas: v1alpha1.TenantQuotas(c.Control.Quotas), Regionals: regionals, ShippedHealth: &defaults.HealthPolicy().Spec, SoftwareRoot: softwareRoot, Logger: env.Log, Registerer: env.Reg})
	env.Ops.Status("desired state", func() any { return store.Stats() })
	env.Go("desired state of regionals", store.Run)
	env.Go("root of the software repository", func(ctx context.Context) error { return followRoot(ctx, softwareRoot, store) })
	files, err := identity.LoadFiles(c.PairFile("control"), c.TrustFile("control"))
	if err != nil {
		return err
	}
	fleetServer, err = fleetapi.New(fleetapi.Options{Orders: resetOrders(files), Registrar: registrar, Regionals: regionals, Desired: store, Clusters: clusters.store, Client: kube, Recorder: recorder, Logger: env.Log, Registerer: env.Reg,
		RevocationsFile: filepath.Join(Dir(c), "revocations.json")})
	if err != nil {
		return err
	}
	env.Go("fleet API writer", fleetServer.Run)
	alerting, err := known.ClientOf(c.AlertingURLs())
	if err != nil {
		return err
	}
	alerts := &alertEvents{url: c.AlertingURL(), client: alerting, tell: fleetServer.Tell, now: time.Now}
	env.Go("alerts as events", alerts.run)

	inv, err := inventory.New(inventory.Options{Cache: informers, Policies: []inventory.PolicyKind{inventory.CollectionPolicies(), inventory.HealthPolicies(), inventory.SoftwarePolicies(), inventory.HostConfigurations()}, Logger: env.Log})
	if err != nil {
		return err
	}
	env.Go("inventory", inv.Run)
	env.Ops.Status("inventory", inv.Status)

	if err := clusters.serve(ctx, env, kube, mount, store, grants, fleetServer, metrics); err != nil {
		return err
	}
	runner := controllers.New(controllers.Options{Client: kube, Workloads: store, Offered: grants, Cache: informers, Inventory: inv, RenderedPolicy: store.PolicyHash, RenderedPolicies: store.PolicyGenerations, Reports: fleetServer, Software: softwareParts{store, fleetServer}, Hosts: softwareParts{store, fleetServer}, Rules: fleetServer, Stored: stored.Usage, Sent: fleetServer.TenantUse, Quotas: v1alpha1.TenantQuotas(c.Control.Quotas), GroupsPrefix: c.OIDC.GroupsPrefix, Recorder: recorder, Logger: env.Log, Registerer: env.Reg,
		DefaultCollectionPolicy: defaults.CollectionPolicy().Spec, DefaultHealthPolicy: defaults.HealthPolicy().Spec})
	env.Go("controllers", runner.Run)
	read, err := gates(kube)
	if err != nil {
		return err
	}
	startRollouts(env, rolloutParts{client: kube, cache: informers, objects: objects, inventory: inv, grants: grants, store: store, clusters: clusters, fleet: fleetServer, readings: read, recorder: recorder})

	if err := startChronicle(env, chronicle.Options{Cache: informers, Timeline: told, Fleet: inv.Snapshot, TenantOf: clusters.tenantOf}, recorder); err != nil {
		return err
	}

	if err := desired.FeedWorkloads(ctx, desired.Workloads{Cache: informers, Client: objects, Offered: grants, Holds: stored.Holds, Logger: env.Log}, store); err != nil {
		return err
	}
	if err := desired.Feed(ctx, informers, inv, store); err != nil {
		return err
	}
	if err := fleetapi.Feed(ctx, informers, fleetServer); err != nil {
		return err
	}
	return serveFleet(env, c, files, fleetServer)
}

// startChronicle tells the timeline of what happens to objects, and each object of its edits.
func startChronicle(env *role.Env, o chronicle.Options, recorder record.EventRecorder) error {
	o.Edited = func(edited client.Object, text string) {
		recorder.Event(edited, corev1.EventTypeNormal, "Edited", text)
	}
	o.Logger = env.Log.With("part", "chronicle")
	tell, err := chronicle.New(o)
	if err != nil {
		return err
	}
	env.Go("chronicle", tell.Run)
	return nil
}

// serveFleet takes connections of regionals.
func serveFleet(env *role.Env, c config.Config, files *identity.Files, fleetServer *fleetapi.Server) error {
	ln, err := role.Listen("control.fleetListen", c.Control.FleetListen)
	if err != nil {
		return err
	}
	door := strangers.NewDoor(ln, strangers.Usual, nil, strangers.Counting(env.Reg, "muster_control_fleet_closed_connections_total"))
	grpcServer := fleetServer.NewGRPC(files, door.Known)
	env.Stack.OnStop("fleet API", func(context.Context) error { grpcServer.Stop(); return nil })
	go func() { env.Fail(grpcServer.Serve(door)) }()
	return nil
}

// resetOrders signs orders of factory resets as control.
func resetOrders(files *identity.Files) func(*factoryreset.Order) ([]byte, error) {
	return func(o *factoryreset.Order) ([]byte, error) {
		pair, _, err := files.Current()
		if pair == nil {
			return nil, err
		}
		return o.Sign(pair)
	}
}

func regionalNames(c config.Config) []string {
	var out []string
	for _, r := range c.Regionals {
		out = append(out, r.Name)
	}
	return out
}

// keepCertificates renews what is served with, and takes up what `muster ca` does: whom
// the roles trust and are trusted by changes on disk, where each looks when it connects.
func keepCertificates(ctx context.Context, log *slog.Logger, c config.Config, ca *pki.CA, server *apiserver.Server) error {
	looked, behind, said := time.Now(), false, ""
	for tick := time.NewTicker(caEvery); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		changed, err := ca.Reload()
		if err != nil && err.Error() != said {
			said = err.Error()
			log.Error("the fleet's CA can't be read", "err", err)
		}
		if changed {
			said = ""
			log.Info("the fleet's CA has changed", "hash", ca.Hash(), "trusted", len(ca.Bundle()))
			behind = true
		}
		if !behind && time.Since(looked) < certEvery {
			continue
		}
		looked = time.Now()
		err = ensureCertificates(ca, c)
		if err == nil && behind {
			err = errors.Join(writeJoinInfo(ca, c), server.Trust(ca.BundlePEM()))
		}
		if err != nil {
			log.Error("renew certificates", "err", err)
			continue
		}
		behind = false
	}
}

// ensureCertificates keeps the certificates of all roles fresh, and of those who may ask
// them.
func ensureCertificates(ca *pki.CA, c config.Config) error {
	for _, r := range config.Roles {
		for _, i := range r.Instances(&c) {
			hosts := unique(slices.Concat(hostsOf(i.Reached...), []string{c.RoleHost(i.Name), "localhost", "127.0.0.1", "::1"}, i.ExtraSANs, c.OpsHosts))
			var err error
			switch dir := c.Identity(i.Name); {
			case r.Name == "control":
				_, err = ca.EnsureControl(dir, hosts)
			case i.Regional != "":
				_, err = ca.EnsureRegional(dir, i.Regional, hosts)
			default:
				_, err = ca.EnsureRole(dir, r.Name, hosts)
			}
			if err != nil {
				return fmt.Errorf("certificate of %s: %w", i.Name, err)
			}
		}
	}
	for _, name := range config.People {
		if _, err := ca.EnsureRole(c.Identity(name), name, nil); err != nil {
			return fmt.Errorf("certificate of %s: %w", name, err)
		}
	}
	return nil
}

// hostsOf are the hosts of URLs and HOST:PORT addresses, without wildcard addresses.
func hostsOf(addrs ...string) []string {
	var out []string
	for _, a := range addrs {
		if u, err := url.Parse(a); err == nil && u.Host != "" {
			a = peers.HostPort(u)
		}
		host, _, err := net.SplitHostPort(a)
		if ip := net.ParseIP(host); err != nil || host == "" || (ip != nil && ip.IsUnspecified()) {
			continue
		}
		out = append(out, host)
	}
	return out
}

func unique(in []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, s := range in {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// writeJoinInfo leaves what `muster token create` prints, and where the console is.
func writeJoinInfo(ca *pki.CA, c config.Config) error {
	return errors.Join(
		atomicfile.Write(c.Path(cli.JoinHashFile), []byte(ca.Hash()+"\n"), 0o600),
		atomicfile.Write(c.Path(cli.ConsoleFile), []byte(c.Console.URL()+"\n"), 0o600),
		atomicfile.Write(c.Path(cli.JoinServerFile), []byte(c.Regionals[0].GatewayAddress()+"\n"), 0o600))
}

func newRecorder(env *role.Env, core typedcorev1.EventsGetter, scheme *runtime.Scheme) record.EventRecorder {
	b := record.NewBroadcaster()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: core.Events("")})
	env.Stack.OnStop("events", func(context.Context) error { b.Shutdown(); return nil })
	return b.NewRecorder(scheme, corev1.EventSource{Component: "muster-control"})
}

// bootstrap makes what every installation has: cluster roles, the rights of
// Muster's own roles, the tenants of the config.
func bootstrap(ctx context.Context, kube client.Client, c config.Config) error {
	for _, role := range append(controllers.ClusterRoles(), ownRoles()...) {
		want := role.DeepCopy()
		err := kube.Create(ctx, role)
		if apierrors.IsAlreadyExists(err) {
			var have rbacv1.ClusterRole
			if err = kube.Get(ctx, client.ObjectKeyFromObject(want), &have); err == nil {
				have.Rules = want.Rules
				err = kube.Update(ctx, &have)
			}
		}
		if err != nil {
			return fmt.Errorf("cluster role %s: %w", want.Name, err)
		}
	}
	for _, role := range ownRoles() {
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: role.Name}}}
		if err := kube.Create(ctx, b); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("bind %s: %w", role.Name, err)
		}
	}
	for _, name := range c.Control.Tenants {
		t := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := kube.Create(ctx, t); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make tenant %s: %w", name, err)
		}
	}
	return nil
}
