package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/cmd/internal/cli"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/edge"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/collector"
	"muster.dev/muster/control/agent"
	"muster.dev/muster/control/agent/hosts"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/mirror"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/loadtest/cities"
	"muster.dev/muster/loadtest/link"
	"muster.dev/muster/loadtest/shipper"
	"muster.dev/muster/loadtest/simcluster"
	"muster.dev/muster/loadtest/simsite"
)

const (
	// thisMachine is the site that is real.
	thisMachine       = "this-machine"
	thisMachineConfig = "this-machine.yaml"
	// exampleSite is a healthy one, for the hint that the demo prints.
	exampleSite = "paris"
	// unscored is how many sites stay unapproved, so that there is something to
	// approve and something grey.
	unscored = 1
)

// simulated is one site of the fleet that is not real.
type simulated struct {
	sim  *simsite.Site
	link *link.Link
	site *edge.Site
	logs *shipper.Shipper
	*premises
	release
}

// Break implements faultTarget.
func (s *simulated) Break(fault string) error {
	if err := s.sim.Break(fault); err != nil {
		return err
	}
	s.follow()
	return nil
}

// Set implements faultTarget.
func (s *simulated) Set(object, property, value string) error {
	if err := s.sim.Set(object, property, value); err != nil {
		return err
	}
	s.follow()
	return nil
}

// Heal implements faultTarget. What a bad release does goes on until it is put back.
func (s *simulated) Heal() {
	s.sim.Heal()
	s.again(s.sim)
	s.follow()
}

// Faults implements faultTarget.
func (s *simulated) Faults() []string {
	var out []string
	for _, f := range s.sim.Faults() {
		out = append(out, f.Name)
	}
	return out
}

// follow makes the link do what the simulated site's uplink does.
func (s *simulated) follow() {
	if s.sim.UplinkDown() {
		s.link.Cut()
	} else {
		s.link.Restore()
	}
}

// plannedSite says where a simulated site stands and how it does.
type plannedSite struct {
	city    cities.City
	profile simsite.Profile
	pending bool // its token does not approve it
	labels  map[string]string
}

// plan spreads n simulated sites over the cities. The last one stays pending; a
// few are degraded or failing, so that the map has every colour.
func plan(n int) []plannedSite {
	all := cities.All()
	kinds := []string{"store", "charger", "factory"}
	var out []plannedSite
	for i := range n {
		c := all[i%len(all)]
		if i >= len(all) {
			c.Name = fmt.Sprintf("%s-%d", c.Name, i/len(all)+1)
			c.Latitude += 0.2 * float64(i/len(all))
		}
		p := plannedSite{city: c, profile: simsite.Healthy, pending: i == n-1, labels: map[string]string{
			"city": c.Name, "country": strings.ToLower(c.Country), "kind": kinds[i%len(kinds)], "model-year": fmt.Sprint(2015 + i%5),
		}}
		switch {
		case p.pending || i == 0:
		case i%7 == 3:
			p.profile = simsite.Degraded
		case i%13 == 5:
			p.profile = simsite.Failing
		}
		if i%10 == 1 {
			p.labels["canary"] = "yes"
		}
		out = append(out, p)
	}
	return out
}

// RunFleet runs the simulated sites, and prepares this machine as a site.
func RunFleet(ctx context.Context, c config.Config, sites int) error {
	return role.Run(ctx, role.Options{Role: "fleet", OpsListen: OpsListen, Hosts: c.HostNames(), Log: obs.LogOptions{Level: "warn", Format: c.Log.Format}},
		func(ctx context.Context, env *role.Env) error { return startFleet(ctx, env, c, sites) })
}

func startFleet(ctx context.Context, env *role.Env, c config.Config, n int) error {
	kube, err := kubeClient(c)
	if err != nil {
		return err
	}
	plans := plan(n - 1)
	p := provisioner{kube: kube, c: c, dir: c.Path("demo"), log: env.Log}
	if err := p.objects(ctx); err != nil {
		return err
	}
	env.Ops.Mux().Handle(onCallPath, &phone{})
	if err := p.alerting(ctx); err != nil {
		return err
	}
	if err := p.workloads(ctx); err != nil {
		return err
	}
	hash, err := os.ReadFile(c.Path(cli.JoinHashFile))
	if err != nil {
		return err
	}
	caHash := strings.TrimSpace(string(hash))
	fleet := map[string]*simulated{}
	templates := simsite.NewTemplates()
	prices, err := servePrices(env)
	if err != nil {
		return err
	}
	for _, plan := range plans {
		token, err := p.token(ctx, plan.city.Region, !plan.pending)
		if err != nil {
			return err
		}
		s, err := newSimulated(c, plan, agent.JoinConfig{Servers: gateways(c, plan.city.Region), Token: token, CAHash: caHash, Site: plan.city.Name}, templates, prices, env.Log)
		if err != nil {
			return fmt.Errorf("site %s: %w", plan.city.Name, err)
		}
		fleet[plan.city.Name] = s
		env.Go("site "+plan.city.Name, s.site.Run)
		env.Go("logs of "+plan.city.Name, s.logs.Run)
		env.Go("shop of "+plan.city.Name, s.premises.shop)
	}
	// No cluster, and so not of Europe: from its first moment, or the shop's rollouts wait for it.
	token, err := p.token(ctx, "eu", true, "kind", "real")
	if err != nil {
		return err
	}
	if err := p.thisMachine(gateways(c, "eu"), caHash, token); err != nil {
		return err
	}
	env.Once("places", func(ctx context.Context) error { return p.places(ctx, plans) })
	serveFleetFaults(env, fleet)
	return nil
}

func serveFleetFaults(env *role.Env, fleet map[string]*simulated) {
	kinds := map[string]string{}
	for _, f := range simsite.Catalogue() {
		kinds[f.Name] = f.Text
	}
	target := func(name string) (faultTarget, error) {
		if s, ok := fleet[name]; ok {
			return s, nil
		}
		if name == thisMachine {
			return nil, errors.New("this machine is real; only simulated sites can be broken from here")
		}
		return nil, fmt.Errorf("there is no simulated site %q; `muster get sites` lists all", name)
	}
	serveFaults(env.Ops.Mux(), kinds, target, func() map[string][]string {
		out := map[string][]string{}
		for name, s := range fleet {
			if f := s.Faults(); len(f) > 0 {
				out[name] = f
			}
		}
		return out
	})
	env.Ops.Status("sites", func() any {
		out := map[string]any{}
		for name, s := range fleet {
			out[name] = map[string]any{"faults": s.Faults(), "agent": s.site.Agent.Status().Phase, "logs": s.logs.Stats()}
		}
		return out
	})
}

// newSimulated puts one site together: the same agent and collector as a real one,
// over a link that can be cut, scraping exporters that are made up.
func newSimulated(c config.Config, plan plannedSite, join agent.JoinConfig, templates *simsite.Templates, prices string, log *slog.Logger) (*simulated, error) {
	sim, err := simsite.New(simsite.Options{Name: plan.city.Name, Profile: plan.profile, Templates: templates})
	if err != nil {
		return nil, err
	}
	s := &simulated{sim: sim, link: &link.Link{}, premises: &premises{prices: prices}}
	s.follow()
	var targets []collector.Target
	for _, page := range simsite.Pages() {
		job := strings.Split(strings.Trim(page, "/"), "/")[0]
		targets = append(targets, collector.Target{Job: job, Path: page, Handler: sim.Handler()})
		if job == "cadvisor" { // what the tenant deploys uses something, too
			targets = append(targets, collector.Target{Job: job, Instance: "workloads", Path: page, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { s.premises.cluster.ServeUsage(w, req) })})
		}
	}
	s.site, err = edge.NewSite(edge.SiteOptions{
		Dir: c.Path("demo", "sites", plan.city.Name), Join: join, Version: obs.Version, Targets: targets, Dial: s.link.DialContext,
		Simulated: func(m *mirror.Mirror) edge.Simulated {
			c := simcluster.New(plan.city.Name, m)
			c.OnImages(func(images []string) { s.runs(s.sim, images) })
			s.premises.cluster = c
			return c
		},
		Hosts: hosts.New(hosts.Options{Site: s.premises, Listen: "127.0.0.1", Logger: log.With("site", plan.city.Name)}),
		SystemLabels: func() map[string]string {
			return map[string]string{"arch": "arm64", "os": "simulated", "vendor": "muster-demo", "cpus": "4", "memory-mib": "8192"}
		},
		Versions: func() map[string]string {
			return map[string]string{"agent": obs.Version, "os": "Simulated Linux 1.0", "kernel": "6.12.48", "kubernetes": "v1.34.2"}
		},
		Logger: log.With("site", plan.city.Name),
	})
	if err != nil {
		return nil, err
	}
	s.logs = shipper.New(shipper.Options{
		Collect: func(b []byte, from, to time.Time) []byte {
			for _, l := range sim.Logs(from, to) {
				b = l.AppendJSON(b)
			}
			return b
		},
		Endpoint: s.logEndpoint, Client: s.site.Agent.HTTPClient, Logger: log.With("site", plan.city.Name),
	})
	return s, nil
}

// logEndpoint is the gateway; empty until the site has a certificate.
func (s *simulated) logEndpoint() string {
	if _, _, ok := s.site.Agent.Identity(); !ok {
		return ""
	}
	return s.site.Agent.Endpoint()
}

// gateways lists the regionals for a region, the nearest first.
func gateways(c config.Config, region string) []string {
	var out []string
	for _, r := range c.Regionals {
		out = append(out, r.GatewayAddress())
	}
	if len(out) > 1 && (region == "us" || region == "sa") {
		out[0], out[1] = out[1], out[0]
	}
	return out
}

func kubeClient(c config.Config) (client.Client, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Path("admin.kubeconfig"))
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Burst, cfg.Timeout = 50, 100, 30*time.Second
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.New(cfg, client.Options{Scheme: scheme})
}
