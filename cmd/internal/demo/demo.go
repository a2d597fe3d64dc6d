// Package demo starts a whole fleet on one machine: all roles, simulated sites
// around the world, and this machine as site one. The simulated sites run the same
// agent and collector as a real one; only what they scrape is made up. It composes
// loadtest, collector and the agent, and is used by `muster demo` and the
// end-to-end tests.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/up"
	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/conf"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/obs"
)

// Tenant is the tenant of the demo's sites.
const Tenant = "demo"

// Options of the demo.
type Options struct {
	Sites      int // this machine included
	DataDir    string
	ConfigFile string // overrides the demo's own configuration
	Verbose    bool
	Out        io.Writer
}

// Config is the demo's configuration: two regionals, a tenant of its own and a
// quick tick.
func Config(dataDir string) config.Config {
	c := config.Default()
	c.DataDir = dataDir
	c.Control.Tenants = []string{Tenant}
	c.Regionals = []config.Regional{config.DefaultRegional("frankfurt", 0), config.DefaultRegional("virginia", 1)}
	c.Health.Tick = conf.Duration(5 * time.Second)
	c.Alerting.Alertmanager.AllowNetworks = []string{OpsListen} // the phone of whoever is on call
	return c
}

// Run starts the demo and keeps it running until ctx ends.
func Run(ctx context.Context, o Options) error {
	if o.Sites < 2 || o.Sites > 500 {
		return fmt.Errorf("--sites %d: want 2 to 500", o.Sites)
	}
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return err
	}
	own := filepath.Join(dir, "demo")
	if err := disk.MkdirAll(disk.OS{}, own, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	c := Config(dir)
	file := filepath.Join(own, "muster.yaml")
	if o.ConfigFile != "" {
		if file, err = filepath.Abs(o.ConfigFile); err != nil {
			return err
		}
		if c, err = config.Load(file); err != nil {
			return err
		}
		c.DataDir = dir
	} else if err := writeYAML(file, c); err != nil {
		return err
	}
	edge, err := edgeBinary()
	if err != nil {
		return err
	}

	logTo := io.Writer(os.Stderr)
	logName := filepath.Join(own, "muster.log")
	if !o.Verbose {
		f, err := os.OpenFile(logName, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		logTo = f
	}
	log, err := obs.NewLogger(logTo, obs.LogOptions(c.Log))
	if err != nil {
		return err
	}
	args := []string{"--config", file, "--data-dir", dir}
	procs := up.Roles(c, args...)
	var roles []string
	for _, p := range procs {
		if p.Name != "aggregator" {
			roles = append(roles, p.Name)
		}
	}
	procs = append(procs,
		up.Process{Name: "fleet", Args: append([]string{"demo", "fleet", "--sites", fmt.Sprint(o.Sites)}, args...), Ready: "http://" + OpsListen + "/-/ready", After: roles},
		up.Process{Name: "edge", Executable: edge, Args: []string{"run", "--config", filepath.Join(own, thisMachineConfig)}, After: []string{"fleet"}})
	known, err := c.Probe(config.Operator)
	if err != nil {
		return err
	}
	s, err := up.New(up.Options{Dir: dir, Out: logTo, Log: log, Transport: known.Transport()}, procs)
	if err != nil {
		return err
	}
	if err := c.CheckPorts(); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "Starting Muster and %d sites in %s (logs: %s). Ctrl-C stops everything.\n", o.Sites, dir, logName)
	go report(ctx, o, c, s)
	err = s.Run(ctx)
	fmt.Fprintln(o.Out, "Stopped. State is kept; the next start resumes, and rm -r "+dir+" forgets.")
	return err
}

// edgeBinary finds muster-edge beside this binary: site one runs the real thing.
func edgeBinary() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	edge := filepath.Join(filepath.Dir(exe), "muster-edge")
	if _, err := os.Stat(edge); err != nil {
		return "", fmt.Errorf("the demo runs muster-edge for this machine, and %s is not there; run `make build`", edge)
	}
	return edge, nil
}

func writeYAML(file string, v any) error {
	b, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	return atomicfile.Write(file, b, 0o600)
}

// report tells how far the start is, until all sites are scored.
func report(ctx context.Context, o Options, c config.Config, s *up.Supervisor) {
	began := time.Now()
	since := func() time.Duration { return time.Since(began).Round(100 * time.Millisecond) }
	select {
	case <-s.Ready("console"):
	case <-ctx.Done():
		return
	}
	link := "http://" + c.Console.Listen + "/"
	token, err := os.ReadFile(filepath.Join(c.DataDir, "admin.token"))
	if err == nil {
		link += "#token=" + strings.TrimSpace(string(token))
	}
	fmt.Fprintf(o.Out, "\n  The map, already logged in (%s after the start):\n\n    %s\n\n", since(), link)
	last := ""
	for ctx.Err() == nil {
		counts, err := colours(ctx, c)
		if err == nil {
			line := fmt.Sprintf("%d of %d sites scored: %d green, %d orange, %d red, %d grey", counts["green"]+counts["orange"]+counts["red"], o.Sites,
				counts["green"], counts["orange"], counts["red"], counts["grey"])
			if line != last {
				fmt.Fprintf(o.Out, "  %6s  %s\n", since(), line)
				last = line
			}
			// The demo keeps one site unapproved and silent: it stays grey.
			if counts["green"]+counts["orange"]+counts["red"] >= o.Sites-unscored {
				break
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
	fmt.Fprintf(o.Out, "\n  Every site is scored. Now break one:\n\n    muster demo faults\n    muster demo break %s disk-full\n    muster demo heal %s\n    muster alerts\n    muster logs --since 5m severity:error\n    muster demo oncall\n    kubectl --kubeconfig %s get sites -A -o wide\n\n  And a shop runs on all sites of Europe:\n\n    muster vk8s status shop/vk8s\n    muster vk8s kubeconfig shop/vk8s > kc; kubectl --kubeconfig kc get pods -o wide\n\n  A new version of it goes over them as fast as their health allows:\n\n    muster demo release good\n    muster demo release bad\n\n", exampleSite, exampleSite, filepath.Join(c.DataDir, "admin.kubeconfig"))
}

// colours counts the sites by colour through the HTTP API, as a user would.
func colours(ctx context.Context, c config.Config) (map[string]int, error) {
	token, err := os.ReadFile(c.Path("admin.token"))
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.Console.Listen+"/api/v1/health/sites?limit=1000", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	var list struct {
		Sites []struct {
			Colour string `json:"colour"`
		} `json:"sites"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, s := range list.Sites {
		counts[s.Colour]++
	}
	return counts, nil
}
