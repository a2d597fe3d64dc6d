package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"muster.dev/muster/cmd/internal/edge"
)

// softwareCommand is for the site's own operator.
func softwareCommand(load func(*cobra.Command) (edge.Config, error)) *cobra.Command {
	var component string
	ask := func(cmd *cobra.Command, do string, until time.Time) error {
		c, err := load(cmd)
		if err != nil {
			return err
		}
		return edge.AskSoftware(cmd.Context(), cmd.OutOrStdout(), c, component, do, until)
	}
	var asJSON bool
	show := func(cmd *cobra.Command, _ []string) error {
		c, err := load(cmd)
		if err != nil {
			return err
		}
		return edge.PrintSoftware(cmd.Context(), cmd.OutOrStdout(), c, asJSON)
	}
	cmd := &cobra.Command{
		Use: "software", Short: "Say which software this site runs and is to run, and when", Args: cobra.NoArgs, RunE: show,
		Long: `Ask the running muster-edge which versions the site runs, and which ones the fleet's
operator wants it to run. When it begins may be chosen here, as far as the fleet's operator
lets a site put it off.`,
		Example: "  muster-edge software\n  muster-edge software schedule --at 02:00",
	}
	cmd.PersistentFlags().StringVar(&component, "component", "", "os, agent or platform; needed only if more than one is offered something")
	status := &cobra.Command{Use: "status", Short: "The same", Args: cobra.NoArgs, RunE: show}
	for _, c := range []*cobra.Command{cmd, status} {
		c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	}
	var wait time.Duration
	later := &cobra.Command{
		Use: "defer", Short: "Put off what is offered", Args: cobra.NoArgs, Example: "  muster-edge software defer --for 2h",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait <= 0 {
				return errors.New("--for: want for how long, such as 2h")
			}
			return ask(cmd, "defer", time.Now().Add(wait))
		},
	}
	later.Flags().DurationVar(&wait, "for", 0, "for how long, such as 2h")
	var clock string
	schedule := &cobra.Command{
		Use: "schedule", Short: "Have it begin at a time of day", Args: cobra.NoArgs, Example: "  muster-edge software schedule --at 02:00",
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := edge.Next(time.Now(), clock)
			if err != nil {
				return err
			}
			return ask(cmd, "defer", at)
		},
	}
	schedule.Flags().StringVar(&clock, "at", "", "the next time that this machine's clock says so, such as 02:00")
	cmd.AddCommand(status, later, schedule,
		&cobra.Command{
			Use: "now", Short: "Begin with what is offered, or restart into it, outside of its windows as well", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return ask(cmd, "now", time.Time{}) },
		},
		&cobra.Command{
			Use: "cancel", Short: "Forget what was said by defer, schedule or now", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return ask(cmd, "cancel", time.Time{}) },
		})
	return cmd
}
