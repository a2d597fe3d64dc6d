package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/collector"
	"muster.dev/muster/control/agent"
	"muster.dev/muster/control/agent/factoryreset"
	"muster.dev/muster/control/agent/hostconfig"
	"muster.dev/muster/control/agent/hosts"
	"muster.dev/muster/control/agent/kube"
	"muster.dev/muster/control/agent/software/components"
	resetwire "muster.dev/muster/internal/factoryreset"
	"muster.dev/muster/internal/fleet"
	hostwire "muster.dev/muster/internal/hostconfig"
	"muster.dev/muster/internal/mirror"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/software"
	"muster.dev/muster/internal/vhost"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// conditionsEvery is how often the collector's conditions are handed to the agent,
// which reports those that changed.
const conditionsEvery = 5 * time.Second

// SiteOptions configure a Site.
type SiteOptions struct {
	Dir     string
	Join    agent.JoinConfig // servers may be empty if the site is enrolled already
	Version string
	// ScrapeConfigs in Prometheus' format; Targets are scraped in-process.
	ScrapeConfigs []byte
	Targets       []collector.Target
	SystemLabels  func() map[string]string
	Versions      func() map[string]string
	// Conditions beside the collector's own; nil: none.
	Conditions func() []collector.Condition
	SpoolSync  time.Duration // as collector.Options.SpoolSync
	// Dial replaces the network; nil: the real one.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Simulated makes a cluster that is not there, which tells the mirror what it holds; nil:
	// the site has none of that kind.
	Simulated func(*mirror.Mirror) Simulated
	// Kube is the agent on the site's own cluster; nil: the site takes no workloads.
	Kube *kube.Kube
	// Hosts are virtual hosts of the site; nil: it serves and reaches none.
	Hosts *hosts.Hosts
	// Software replaces parts of the site; nil: nothing is.
	Software *components.Components
	// Host configures the machine; nil: the centre may not.
	Host *hostconfig.Host
	// FactoryReset is how the site is reset; nil: it can't be. What NewSite knows is filled in.
	FactoryReset *factoryreset.Options
	// ProcessMetrics: this process is this site and nothing else.
	ProcessMetrics bool
	Logger         *slog.Logger
	Registerer     prometheus.Registerer // nil: no metrics of the process
}

// Simulated is a cluster that is not there.
type Simulated interface {
	agent.Applier
	agent.Remover
	// Serve answers on a tunnel.
	Serve(ctx context.Context, conn net.Conn)
}

// Site is the agent and the collector of one site, connected: the agent brings
// policies and the certificate, the collector brings conditions. The edge binary
// runs one; the simulated fleet many in one process.
type Site struct {
	Agent     *agent.Agent
	Collector *collector.Collector
	further   func() []collector.Condition
	kube      *kube.Kube
	hosts     *hosts.Hosts
	software  *components.Components
	host      *hostconfig.Host
	reset     *factoryreset.Reset
}

// agentDir is where a site's agent keeps its state.
func agentDir(stateDir string) string { return filepath.Join(stateDir, "agent") }

// NewSite puts a site together. Nothing runs before Run.
func NewSite(o SiteOptions) (*Site, error) {
	s := &Site{further: o.Conditions, kube: o.Kube, hosts: o.Hosts, software: o.Software, host: o.Host}
	dir := agentDir(o.Dir)
	if len(o.Join.Servers) > 0 {
		if err := agent.Join(dir, o.Join); err != nil {
			if _, was := agent.Joined(dir); was != nil || !errors.Is(err, syscall.ENOSPC) {
				return nil, err
			}
			o.Logger.Warn("the disk is full: the site goes on with how it joined before", "err", err)
		}
	}
	var err error
	appliers := map[string]agent.Applier{fleet.KindCollectionPolicy: policyApplier{s}}
	ao := agent.Options{
		Dir: dir, Version: o.Version, Appliers: appliers,
		SystemLabels: o.SystemLabels, Versions: o.Versions, Logger: o.Logger, Registerer: o.Registerer, Dial: o.Dial,
	}
	var simulated Simulated
	switch {
	case o.Kube != nil:
		ao.Sets, ao.Tunnel = map[string]agent.SetApplier{workload.Kind: o.Kube}, o.Kube.Serve
	case o.Simulated == nil:
		ao.SwitchedOff = []string{workload.Kind}
	default:
		ao.Tunnel = func(ctx context.Context, conn net.Conn) { simulated.Serve(ctx, conn) }
	}
	if ao.Sets == nil {
		ao.Sets = map[string]agent.SetApplier{}
	}
	if o.Software == nil {
		ao.SwitchedOff = append(ao.SwitchedOff, software.Kind)
	} else {
		ao.Sets[software.Kind], ao.Software = o.Software, o.Software.Report
	}
	if o.Host == nil {
		ao.SwitchedOff = append(ao.SwitchedOff, hostwire.Kind)
	} else {
		ao.Sets[hostwire.Kind] = o.Host
	}
	if o.FactoryReset == nil {
		ao.SwitchedOff = append(ao.SwitchedOff, resetwire.Kind)
	} else {
		ro := *o.FactoryReset
		ro.Dir, ro.Logger, ro.Unsent, ro.Left = resetDir(o.Dir), o.Logger, s.unsent, s.runsYet
		if s.reset, err = factoryreset.New(ro); err != nil {
			return nil, err
		}
		ao.Sets[resetwire.Kind], ao.FactoryReset = s.reset, s.reset.Answer
	}
	if o.Hosts == nil {
		ao.SwitchedOff = append(ao.SwitchedOff, vhost.Kind)
	} else {
		ao.Sets[vhost.Kind], ao.OpenHost = o.Hosts, o.Hosts.Open
	}
	if s.Agent, err = agent.New(ao); err != nil {
		return nil, err
	}
	if o.Hosts != nil && o.Registerer != nil {
		if err := o.Registerer.Register(o.Hosts); err != nil {
			return nil, err
		}
	}
	if s.reset != nil && s.reset.Begun() { // before the power was cut
		s.Agent.Clear()
	}
	if o.Simulated != nil {
		simulated = o.Simulated(s.Agent.Mirror())
		appliers[workload.Kind] = simulated
	}
	id, _, ok := s.Agent.Identity()
	if !ok {
		id = fleet.SiteID{Name: o.Join.Site}
	}
	s.Collector, err = collector.New(collector.Options{
		Dir: spoolDir(o.Dir), Site: id, ScrapeConfigs: o.ScrapeConfigs, Targets: o.Targets, Version: o.Version, BuildTime: obs.Built(),
		Endpoint: s.pushURL, Client: s.Agent.HTTPClient, Self: s.self(), SpoolSync: o.SpoolSync, ProcessMetrics: o.ProcessMetrics, Logger: o.Logger, Registerer: o.Registerer,
	})
	return s, err
}

// self is what the site tells of itself beside the collector's own series.
func (s *Site) self() prometheus.Collector {
	if s.hosts == nil {
		return s.Agent.Link()
	}
	return both{s.Agent.Link(), s.hosts}
}

// both are two collectors as one.
type both [2]prometheus.Collector

// Describe implements prometheus.Collector.
func (b both) Describe(ch chan<- *prometheus.Desc) {
	b[0].Describe(ch)
	b[1].Describe(ch)
}

// Collect implements prometheus.Collector.
func (b both) Collect(ch chan<- prometheus.Metric) {
	b[0].Collect(ch)
	b[1].Collect(ch)
}

// pushURL is where samples go; empty until the site has a certificate.
func (s *Site) pushURL() string {
	if _, _, ok := s.Agent.Identity(); !ok {
		return ""
	}
	if e := s.Agent.Endpoint(); e != "" {
		return e + "/api/v1/push"
	}
	return ""
}

// Run runs the site until ctx ends. Without a certificate it collects into the
// spool and keeps asking for one.
func (s *Site) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, 7)
	run := func(what string, fn func(context.Context) error) {
		err := fn(ctx)
		if err != nil && !errors.Is(err, context.Canceled) {
			err = fmt.Errorf("%s: %w", what, err)
		} else {
			err = nil
		}
		cancel()
		errs <- err
	}
	go run("collector", s.Collector.Run)
	go run("agent", s.Agent.Run)
	go run("kubernetes", func(ctx context.Context) error {
		if s.kube != nil {
			return s.kube.Run(ctx, s.Agent.Mirror(), s.Agent.SetCondition)
		}
		<-ctx.Done()
		return nil
	})
	go run("virtual hosts", func(ctx context.Context) error {
		if s.hosts != nil {
			return s.hosts.Run(ctx, s.Agent)
		}
		<-ctx.Done()
		return nil
	})
	go run("software", func(ctx context.Context) error {
		if s.software != nil {
			return s.software.Run(ctx, s.Agent)
		}
		<-ctx.Done()
		return nil
	})
	go run("host configuration", func(ctx context.Context) error {
		if s.host != nil {
			return s.host.Run(ctx, s.Agent)
		}
		<-ctx.Done()
		return nil
	})
	go run("factory reset", func(ctx context.Context) error {
		if s.reset != nil {
			return s.reset.Run(ctx, s.Agent)
		}
		<-ctx.Done()
		return nil
	})
	go s.passConditions(ctx)
	return errors.Join(<-errs, <-errs, <-errs, <-errs, <-errs, <-errs, <-errs)
}

func (s *Site) passConditions(ctx context.Context) {
	for {
		list := s.Collector.Conditions()
		if s.further != nil {
			list = append(list, s.further()...)
		}
		for _, c := range list {
			if c.Type != collector.PolicyApplied { // the agent tells that itself
				s.Agent.SetCondition(c.Type, c.Status, c.Reason, c.Message)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(conditionsEvery):
		}
	}
}

// policyApplier hands collection policies to the collector.
type policyApplier struct{ site *Site }

// Apply implements agent.Applier.
func (p policyApplier) Apply(_ context.Context, _ *wire.Item, blob []byte) error {
	policy, err := fleet.DecodeCollectionPolicy(blob)
	if err != nil {
		return err
	}
	return p.site.Collector.ApplyPolicy(policy)
}
