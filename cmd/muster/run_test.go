package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"muster.dev/muster/cmd/internal/cli"
	"muster.dev/muster/cmd/internal/config"
)

func TestEveryRoleRuns(t *testing.T) {
	for _, role := range config.Roles {
		if runners[role.Name] == nil {
			t.Errorf("%s has a row in config.Roles and nothing that runs it", role.Name)
		}
	}
	if len(runners) != len(config.Roles) {
		t.Errorf("%d roles run, config.Roles has %d", len(runners), len(config.Roles))
	}
}

// Each command's path leads to it: none hides behind another of the same name.
func TestEveryCommandIsFound(t *testing.T) {
	cmd := root()
	verbs := cli.Commands(&cli.Globals{})
	var see func(prefix []string, cmds []*cobra.Command)
	see = func(prefix []string, cmds []*cobra.Command) {
		for _, c := range cmds {
			path := append(slices.Clone(prefix), c.Name())
			if found, rest, err := cmd.Find(path); err != nil || len(rest) != 0 || found.Name() != c.Name() {
				t.Errorf("muster %s is not found: %v", strings.Join(path, " "), err)
			} else if !found.Runnable() {
				t.Errorf("muster %s does nothing", strings.Join(path, " "))
			}
			see(path, c.Commands())
		}
	}
	see(nil, verbs)
	for _, role := range config.Roles {
		if found, _, err := cmd.Find([]string{role.Name}); err != nil || !found.Runnable() || found.GroupID != "role" {
			t.Errorf("the role %s is not run by muster %s: %v", role.Name, role.Name, err)
		}
	}
}
