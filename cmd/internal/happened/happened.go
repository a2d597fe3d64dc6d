// Package happened composes the timeline: the part that a role keeps, and all of them together.
// The rooms of control, health and alerting open theirs with it, the console's asks.
package happened

import (
	"context"
	"path/filepath"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/internal/peers"
	"muster.dev/muster/internal/timeline"
	"muster.dev/muster/internal/wire"
)

// Open opens the role's part below dir and serves it; the role's row in the table of roles says
// who may ask.
func Open(env *role.Env, dir string) (*timeline.Store, error) {
	s, err := timeline.Open(timeline.Options{File: filepath.Join(dir, "timeline.db"), Logger: env.Log.With("part", "timeline"), Registerer: env.Reg})
	if err != nil {
		return nil, err
	}
	env.Stack.OnStop("timeline", func(context.Context) error { return s.Close() })
	env.Go("timeline", s.Run)
	s.Register(env.Ops.Mux())
	return s, nil
}

// Merged has the parts of all roles. Several alerting roles are told of the same alerts; who sent a notification, and
// through whom a silence was made, has it alone.
func Merged(env *role.Env, c config.Config, known *peers.Peers) *timeline.Merger {
	m := &timeline.Merger{Client: known.Client(), Logger: env.Log, Parts: []timeline.Part{
		{Role: "control", URL: c.ControlURL(), Kinds: []string{wire.EventMaintenance, wire.EventRegistration, wire.EventConnection, wire.EventPolicy, wire.EventRollout, wire.EventSoftware}},
		{Role: "health", URL: c.HealthURL(), Kinds: []string{wire.EventColour}},
	}}
	for _, u := range c.AlertingURLs() {
		m.Parts = append(m.Parts, timeline.Part{Role: "alerting", URL: u, Kinds: []string{wire.EventAlert, wire.EventNotification, wire.EventSilence}, Shared: []string{wire.EventAlert}})
	}
	return m
}
