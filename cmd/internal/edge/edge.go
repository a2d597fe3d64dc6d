// Package edge composes what runs on a site: the agent that registers it and
// brings policies, and the collector that sends its metrics. cmd/muster-edge runs
// one site; the demo's fleet runs many of the same.
package edge

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	grpcstatus "google.golang.org/grpc/status"

	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/collector"
	"muster.dev/muster/collector/hostexporter"
	"muster.dev/muster/control/agent"
	"muster.dev/muster/control/agent/facts"
	"muster.dev/muster/control/agent/hostconfig"
	"muster.dev/muster/control/agent/hosts"
	"muster.dev/muster/internal/obs"
)

// Run runs the site of the config until ctx ends.
func Run(ctx context.Context, c Config) error {
	for {
		again, err := runOnce(ctx, c)
		if !again || err != nil && !errors.Is(err, context.Canceled) || ctx.Err() != nil {
			return err
		}
	}
}

// runOnce says whether the site is to be started anew in this process, after a factory reset.
func runOnce(ctx context.Context, c Config) (again bool, err error) {
	ctx, restart := context.WithCancel(ctx) // by the watchdog, in another version
	defer restart()
	var reset atomic.Bool
	ends := ends{restart: restart, again: func() { reset.Store(true); restart() }}
	err = role.Run(ctx, role.Options{Role: "edge", OpsListen: c.OpsListen, Log: obs.LogOptions(c.Log)},
		func(ctx context.Context, env *role.Env) error { return start(ctx, env, c, ends) })
	return reset.Load(), err
}

// ends have the site stop: for another process, or to start again in this one.
type ends struct{ restart, again func() }

func start(ctx context.Context, env *role.Env, c Config, ends ends) error {
	in, err := newInCluster(c, env)
	if err != nil {
		return err
	}
	if c.ProbeListen != "" { // before what may wait for the cluster's API server
		ln, err := role.Listen("probeListen", c.ProbeListen)
		if err != nil {
			return err
		}
		env.Serve("probes", ln, &http.Server{Handler: probes(env.Ops), ReadHeaderTimeout: 10 * time.Second})
	}
	env.Ops.Status("waiting", func() any { return in.waitsFor() })
	if in != nil {
		if err := in.prepare(ctx, env); err != nil {
			return err
		}
	}
	if err := finishReset(ctx, c, env, in); err != nil {
		return err
	}
	s, err := newSite(ctx, env, c, in, ends)
	if err != nil {
		return err
	}
	if in != nil {
		in.run(env)
	}
	if c.LogsListen != "" {
		ln, err := role.Listen("logsListen", c.LogsListen)
		if err != nil {
			return err
		}
		env.Serve("logs", ln, logServer(s.Agent, in.pair))
	}
	env.Ops.Status("agent", func() any { return s.Agent.Status() })
	env.Ops.Status("collector", func() any { return s.Collector.Status() })
	env.Ops.Status("conditions", func() any { return s.Collector.Conditions() })
	env.Ops.Status("feeds", func() any {
		policy, _ := s.Collector.Policy()
		return feedsOf(policy, s.Collector.Metrics(), s.Collector.Status().Targets, in.discovered())
	})
	if s.software != nil {
		runSoftware(env, s.software)
	}
	env.Go("site", s.Run)
	env.Go("watchdog", watchdog)
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
	return nil
}

func newSite(ctx context.Context, env *role.Env, c Config, in *inCluster, ends ends) (*Site, error) {
	scrape, err := c.scrapeYAML()
	if err != nil {
		return nil, err
	}
	join, err := c.join()
	if err != nil {
		return nil, err
	}
	joined, err := agent.Joined(agentDir(c.StateDir))
	named := join.Site != "" || err == nil && joined.Site != ""
	var labels, versions func() map[string]string
	var conditions func() []collector.Condition
	if in != nil {
		if !named {
			if err := in.retry(ctx, env, "name the site", func(ctx context.Context) (err error) {
				join.Site, err = in.siteName(ctx)
				return err
			}); err != nil {
				return nil, err
			}
		}
		labels = func() map[string]string { return in.refreshed().Labels() }
		versions = func() map[string]string { return in.refreshed().Versions() }
		conditions = in.conditions
	} else {
		f := facts.Discover(facts.Options{Root: os.DirFS("/")})
		labels, versions = f.Labels, f.Versions
		if !named {
			join.Site = f.Hostname
		}
	}
	o := SiteOptions{
		Dir: c.StateDir, Join: join, Version: obs.Version, ScrapeConfigs: scrape, SystemLabels: labels, Versions: versions, Conditions: conditions,
		SpoolSync: cmp.Or(c.SpoolSync.D(), -1), ProcessMetrics: true, Logger: env.Log, Registerer: env.Reg,
	}
	if in != nil {
		if o.Kube, err = in.workloads(c, env); err == nil && o.Kube != nil && c.Kubernetes.VirtualHosts {
			o.Hosts = hosts.New(hosts.Options{Site: o.Kube, Logger: env.Log})
		}
		if err != nil {
			return nil, err
		}
	}
	if c.HostMetrics {
		host, err := hostexporter.New(hostexporter.Options{Logger: env.Log})
		if err != nil {
			return nil, fmt.Errorf("hostMetrics: %w", err)
		}
		o.Targets = append(o.Targets, collector.Target{Job: "node", Handler: host})
	}
	o.FactoryReset = newReset(c, env, in, ends.again)
	var s *Site
	if o.Software, err = newSoftware(ctx, c, in, env, healthy(&s), ends.restart); err != nil {
		return nil, err
	}
	if o.Host, err = newHost(ctx, c, env); err != nil {
		return nil, err
	}
	s, err = NewSite(o)
	if err != nil || in == nil {
		return s, err
	}
	if err := in.keep(ctx, env); err != nil {
		return nil, err
	}
	return s, in.watch(c, s.Collector, env)
}

// hostDir is where the configuration of the host is remembered.
func hostDir(stateDir string) string { return filepath.Join(stateDir, "host") }

// newHost is what configures this machine; nil: the centre may not, and what it was given
// before is put back.
func newHost(ctx context.Context, c Config, env *role.Env) (*hostconfig.Host, error) {
	dir := hostDir(c.StateDir)
	if _, err := os.Stat(dir); !c.HostConfiguration.Enabled && errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // it stays as it is
	}
	o := hostconfig.Options{Root: c.HostConfiguration.Root, Dir: dir, Every: c.HostConfiguration.Every.D(), Logger: env.Log}
	if c.HostConfiguration.Enabled {
		o.Registerer = env.Reg
		return hostconfig.New(o)
	}
	h, err := hostconfig.New(o)
	if err == nil {
		err = h.Restore(ctx)
	}
	if err != nil { // the site goes on all the same
		env.Log.Error("hostConfiguration is switched off, and the host is not as it was before", "err", err)
	}
	return nil, nil //nolint:nilnil // switched off
}

// join is how the config says to join; empty if it says nothing.
func (c *Config) join() (agent.JoinConfig, error) {
	token, err := c.token()
	if err != nil || len(c.Gateways) == 0 {
		return agent.JoinConfig{}, err
	}
	return agent.JoinConfig{Servers: c.Gateways, Token: token, CAHash: c.CAHash, Site: c.Site}, nil
}

// watchdog tells systemd that the process lives, if it wants to know.
func watchdog(ctx context.Context) error {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every / 3):
			_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog)
		}
	}
}

// Check checks a config file and the scrape configs in it.
func Check(file string) error {
	c, err := LoadConfig(file, false)
	if err != nil {
		return err
	}
	scrape, err := c.scrapeYAML()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "muster-edge-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	col, err := collector.New(collector.Options{Dir: dir, ScrapeConfigs: scrape, Endpoint: func() string { return "" }})
	if err != nil {
		return fmt.Errorf("config %s: scrapeConfigs: %w", file, err)
	}
	return col.Close()
}

// JoinOptions are the flags of `muster-edge join`.
type JoinOptions struct {
	Servers []string
	CAHash  string
	Token   string // "-": from standard input
	Site    string
	Out     io.Writer
	Stdin   io.Reader
}

// readToken reads the token from standard input if it is there.
func (o *JoinOptions) readToken() error {
	if o.Token != "-" {
		return nil
	}
	if o.Stdin == nil {
		o.Stdin = os.Stdin
	}
	b, err := io.ReadAll(io.LimitReader(o.Stdin, 4096))
	if err != nil {
		return fmt.Errorf("read the token from standard input: %w", err)
	}
	o.Token = strings.TrimSpace(string(b))
	return nil
}

// Join registers this machine and waits until it has a certificate.
func Join(ctx context.Context, c Config, o JoinOptions) error {
	if err := o.readToken(); err != nil {
		return err
	}
	if len(o.Servers) > 0 {
		c.Gateways = o.Servers
	}
	if o.CAHash != "" {
		c.CAHash = o.CAHash
	}
	if o.Token != "" {
		c.Token, c.TokenFile = o.Token, ""
	}
	if o.Site != "" {
		c.Site = o.Site
	}
	if err := c.Validate(); err != nil {
		return err
	}
	for _, missing := range []struct {
		empty bool
		flag  string
	}{{len(c.Gateways) == 0, "--server"}, {c.CAHash == "", "--ca-hash"}, {c.Token == "" && c.TokenFile == "", "--token"}} {
		if missing.empty {
			return fmt.Errorf("%s is missing; `muster token create` prints the whole command", missing.flag)
		}
	}
	join, err := c.join()
	if err != nil {
		return err
	}
	f := facts.Discover(facts.Options{Root: os.DirFS("/")})
	if join.Site == "" {
		join.Site = f.Hostname
	}
	dir := agentDir(c.StateDir)
	if err := agent.Join(dir, join); err != nil {
		return err
	}
	log, err := obs.NewLogger(io.Discard, obs.LogOptions{})
	if err != nil {
		return err
	}
	a, err := agent.New(agent.Options{Dir: dir, Version: obs.Version, SystemLabels: f.Labels, Versions: f.Versions, Logger: log})
	if err != nil {
		return err
	}
	return enrol(ctx, a, o.Out)
}

func enrol(ctx context.Context, a *agent.Agent, out io.Writer) error {
	said := ""
	for {
		wait, err := a.Enrol(ctx)
		switch {
		case ctx.Err() != nil:
			return errors.New("stopped before the site was approved; `muster-edge run` or another join goes on where this left off")
		case err != nil:
			return errors.New(grpcstatus.Convert(err).Message()) // the sentence, without gRPC's wrapping
		}
		if id, region, ok := a.Identity(); ok && wait == 0 {
			where := ""
			if region != "" {
				where = " in region " + region
			}
			fmt.Fprintf(out, "This machine is site %s of tenant %s%s.\nStart it: systemctl enable --now muster-edge, or muster-edge run.\n", id.Name, id.Tenant, where)
			return nil
		}
		if st := a.Status(); st.Message != said {
			said = st.Message
			fmt.Fprintln(out, said)
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(wait, 5*time.Second)):
		}
	}
}

// get asks the running muster-edge.
func get(ctx context.Context, c Config, path string) ([]byte, error) {
	return call(ctx, c, http.MethodGet, path, nil)
}

// post has the running muster-edge do something.
func post(ctx context.Context, c Config, path string, body []byte) error {
	_, err := call(ctx, c, http.MethodPost, path, body)
	return err
}

func call(ctx context.Context, c Config, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.OpsListen+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("muster-edge does not answer on %s; is it running? (systemctl status muster-edge)", c.OpsListen)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err == nil && method == http.MethodPost {
		if resp.StatusCode/100 != 2 {
			return nil, errors.New(strings.TrimSpace(string(b)))
		}
		return b, nil
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("muster-edge answers %s on %s: %w", strconv.Itoa(resp.StatusCode), c.OpsListen, err)
	}
	return b, nil
}
