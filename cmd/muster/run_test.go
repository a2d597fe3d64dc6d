package main

import (
	"testing"

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
