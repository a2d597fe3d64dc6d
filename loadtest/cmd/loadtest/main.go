// Command loadtest measures what a fleet costs on this machine; see --help. `make
// loadtest` runs it. It is a tool for those who develop and size Muster, and no part of
// the product.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"muster.dev/muster/loadtest/rig"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "loadtest:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	o := rig.Options{Out: os.Stdout}
	cmd := &cobra.Command{
		Use:   "loadtest",
		Short: "Measure what a fleet costs: real roles, simulated sites",
		Long: `Start a whole Muster with "muster up", on a directory and on free ports of its own (so it
runs beside another), and let simulated sites use it: each registers with a token, has a
certificate, holds the agent's stream and pushes remote write 2.0 over mutual TLS. What each
process used is read from outside. The phases:

  registration  every site gets a certificate and opens its stream
  cold          all series begin at once; ends when every site is scored
  steady        nothing special, for --steady: what the table's cores and memory are of
  policy        the collection policy of all sites is edited
  workloads     a Deployment is applied to all sites, changed, read back and deleted
  rollout       a Deployment's new image goes over all sites in four waves, a tenth of them
                offline, who then come back
  software      a version of the agent goes over all sites in four waves; on --software-bad of them
                it is not well and goes back. Another one may fail at half as many, and is put back
  cut           the uplinks of 1 % of the sites swallow everything; ends when they are back
  restart       the regional is stopped and started; ends when all samples are caught up

A phase that does not get there by its deadline ends the run (--go-on: the phase) and says
what it waited for. At the end the table is printed. The run's directory has it too
(table.txt, result.json), with muster.log and profiles/PHASE.ROLE.{cpu,heap}.pb.gz:

  go tool pprof -top BINARY RUN/profiles/steady.regional.cpu.pb.gz

CPU seconds compare well between runs; latencies only on a machine that does nothing else.`,
		Example: `  make loadtest SITES=1000 SERIES=500
  make loadtest SITES=1000 SERIES=500 STEADY=15m
  make loadtest SITES=60 SERIES=900 STEADY=1h FLAGS="--phases steady --visitors 12"
  make loadtest SITES=100 SERIES=200 FLAGS="--phases steady --steady 1m"
  make loadtest SITES=3000 FLAGS="--phases workloads,rollout"
  make loadtest SITES=3000 SERIES=20 FLAGS="--phases software --deadline 10m"
  make loadtest SITES=3000 SERIES=2000 FLAGS="--no-store --deadline 15m --phases registration,cold,steady"
  bin/loadtest --sites 3000 --series 200 --deadline 10m --go-on --dir /tmp/run-1`,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Command = "loadtest " + strings.Join(os.Args[1:], " ")
			if o.Commit == "" {
				o.Commit = commit(cmd.Context())
			}
			own := o.Dir == ""
			if own {
				dir, err := os.MkdirTemp("", "muster-loadtest-")
				if err != nil {
					return err
				}
				o.Dir = dir
			}
			var err error
			if o.Dir, err = filepath.Abs(o.Dir); err != nil {
				return err
			}
			res, err := rig.Run(cmd.Context(), o)
			if res != nil {
				fmt.Println()
				res.Table(os.Stdout)
				fmt.Printf("\nThe run is in %s.\n", o.Dir)
			}
			if !o.Keep {
				// What Muster stored is large and of no further use.
				_ = os.RemoveAll(filepath.Join(o.Dir, "data"))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Muster, "muster", "bin/muster", "the binary to measure")
	f.StringVar(&o.Dir, "dir", "", "directory of the run (default: a new one in the temporary directory)")
	f.IntVar(&o.Sites, "sites", 1000, "number of sites")
	f.IntVar(&o.Series, "series", 500, "series of each site")
	f.IntVar(&o.Pushes, "pushes", 1, "requests that carry a site's samples in each interval; a real site sends one for each scrape target")
	f.DurationVar(&o.Interval, "interval", 15*time.Second, "between samples of a series")
	f.Float64Var(&o.Churn, "churn", 0.01, "share of the series that others take the place of in a minute")
	f.DurationVar(&o.Steady, "steady", 3*time.Minute, "how long the steady phase takes")
	f.IntVar(&o.Visitors, "visitors", 0, "people who look at the console in the steady phase: two requests a second each, every third with streams")
	f.Float64Var(&o.Cut, "cut", 0.01, "share of the sites whose uplink is cut")
	f.Float64Var(&o.SoftwareBad, "software-bad", 0.01, "share of the sites on which no version of the agent is ever well")
	f.StringSliceVar(&o.Phases, "phases", nil, "run these alone: "+strings.Join(rig.Phases, ",")+" (and what they need)")
	f.DurationVar(&o.Deadline, "deadline", 5*time.Minute, "for each phase, beyond --steady")
	f.BoolVar(&o.GoOn, "go-on", false, "go on with the next phase after one that missed its deadline")
	f.BoolVar(&o.Keep, "keep", false, "keep what Muster stored, in DIR/data")
	f.BoolVar(&o.NoStore, "no-store", false, "take what the regional forwards and drop it, in place of Cortex: for a regional whose fleet's history has no room beside it")
	f.StringVar(&o.Commit, "commit", "", "what is measured, for the table (default: git describe)")
	return cmd
}

func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
