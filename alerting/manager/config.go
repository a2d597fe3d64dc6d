package manager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/config/receiver"
	"github.com/prometheus/alertmanager/dispatch"
	"github.com/prometheus/alertmanager/inhibit"
	"github.com/prometheus/alertmanager/notify"
	"github.com/prometheus/alertmanager/silence"
	"github.com/prometheus/alertmanager/template"
	"github.com/prometheus/alertmanager/timeinterval"
	"github.com/prometheus/alertmanager/types"
	commoncfg "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"

	"muster.dev/muster/alerting/amclient"
)

// dropAll is in force until the first SetConfig.
const dropAll = `{"route": {"receiver": "none"}, "receivers": [{"name": "none"}]}`

// maintenanceOfGroups is the time between clean-ups of empty groups.
const maintenanceOfGroups = 30 * time.Second

// running is what one configuration made.
type running struct {
	yaml        []byte
	placeholder bool
	dispatcher  *dispatch.Dispatcher
	inhibitor   *inhibit.Inhibitor
	silencer    *silence.Silencer
}

// mark works out anew whether an alert is suppressed; the marker holds the result.
func (r *running) mark(ctx context.Context, labels model.LabelSet) {
	r.inhibitor.Mutes(ctx, labels)
	r.silencer.Mutes(ctx, labels)
}

// prepared is all of a configuration that can fail.
type prepared struct {
	conf         *config.Config
	tmpl         *template.Template
	routes       *dispatch.Route
	receivers    map[string][]notify.Integration
	integrations int
	intervals    map[string][]timeinterval.TimeInterval
}

// SetConfig runs a configuration in Alertmanager's format. After an error the former
// one runs on; one that is byte for byte the running one does nothing. Alerts,
// silences and the log of notifications live on, so nothing is notified twice.
func (m *Manager) SetConfig(yaml []byte) error {
	m.configMu.Lock()
	defer m.configMu.Unlock()
	if m.stopped {
		return errors.New("alertmanager: stopped")
	}
	old := m.current.Load()
	if old != nil && !old.placeholder && bytes.Equal(old.yaml, yaml) {
		return nil
	}
	p, err := m.prepare(yaml)
	if err != nil {
		m.metrics.configSuccess.Set(0)
		return fmt.Errorf("alertmanager: configuration: %w", err)
	}
	if old != nil {
		old.inhibitor.Stop()
		old.dispatcher.Stop()
	}
	m.current.Store(m.start(p, yaml))
	m.metrics.config(p, yaml)
	return nil
}

func (m *Manager) prepare(yaml []byte) (*prepared, error) {
	conf, err := config.Load(string(yaml))
	if err != nil {
		return nil, err
	}
	if conf.TracingConfig.Endpoint != "" {
		return nil, errors.New("tracing: not supported; remove the section")
	}
	p := &prepared{conf: conf, routes: dispatch.NewRoute(conf.Route, nil), receivers: map[string][]notify.Integration{}, intervals: map[string][]timeinterval.TimeInterval{}}
	if p.tmpl, err = template.FromGlobs(conf.Templates); err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	p.tmpl.ExternalURL = m.external
	active := map[string]bool{}
	p.routes.Walk(func(r *dispatch.Route) { active[r.RouteOpts.Receiver] = true })
	var opts []commoncfg.HTTPClientOption
	if m.opts.Dial != nil {
		opts = append(opts, commoncfg.WithDialContextFunc(m.opts.Dial))
	}
	for _, rcv := range conf.Receivers {
		if !active[rcv.Name] {
			continue
		}
		if p.receivers[rcv.Name], err = receiver.BuildReceiverIntegrations(rcv, p.tmpl, m.log, opts...); err != nil {
			return nil, fmt.Errorf("receiver %q: %w", rcv.Name, err)
		}
		p.integrations += len(p.receivers[rcv.Name])
	}
	for _, t := range conf.MuteTimeIntervals {
		p.intervals[t.Name] = t.TimeIntervals
	}
	for _, t := range conf.TimeIntervals {
		p.intervals[t.Name] = t.TimeIntervals
	}
	return p, nil
}

// start puts a prepared configuration to work; it can't fail.
func (m *Manager) start(p *prepared, yaml []byte) *running {
	r := &running{
		yaml:      bytes.Clone(yaml),
		inhibitor: inhibit.NewInhibitor(m.alerts, p.conf.InhibitRules, m.marker, m.log),
		silencer:  silence.NewSilencer(m.silences, m.marker, m.log),
	}
	wait := func() time.Duration { return 0 }
	if m.peer != nil {
		wait = func() time.Duration { return time.Duration(m.peer.Position()) * m.opts.Cluster.PeerTimeout }
	}
	stages := m.pipeline.New(p.receivers, wait, r.inhibitor, r.silencer, timeinterval.NewIntervener(p.intervals), m.marker, m.nflog, m.pipelinePeer())
	m.api.Update(p.conf, r.mark)
	timeout := func(d time.Duration) time.Duration { return max(d, notify.MinTimeout) + wait() }
	r.dispatcher = dispatch.NewDispatcher(m.alerts, p.routes, stages, m.marker, timeout, maintenanceOfGroups, nil, m.log, m.dispM)
	p.routes.Walk(func(route *dispatch.Route) {
		if o := route.RouteOpts; o.RepeatInterval > m.opts.Retention {
			m.log.Warn("repeat_interval is longer than the retention: notifications can be repeated sooner", "repeat_interval", o.RepeatInterval, "retention", m.opts.Retention, "route", route.Key())
		}
	})
	// The inhibitor first: an alert that is to be inhibited must not be notified.
	go r.inhibitor.Run()
	r.inhibitor.WaitForLoading()
	go r.dispatcher.Run(m.started)
	r.dispatcher.WaitForLoading()
	return r
}

// Alerts lists the alerts that fire, as GET /api/v2/alerts does, without the cost of
// encoding and decoding them.
func (m *Manager) Alerts(ctx context.Context) ([]amclient.Alert, error) {
	it := m.alerts.GetPending()
	defer it.Close()
	r, now := m.current.Load(), time.Now()
	out := []amclient.Alert{}
	for a := range it.Next() {
		if err := errors.Join(it.Err(), ctx.Err()); err != nil {
			return nil, fmt.Errorf("alertmanager: list alerts: %w", err)
		}
		if x := a.Data; x.EndsAt.IsZero() || !x.EndsAt.Before(now) {
			r.mark(ctx, x.Labels)
			out = append(out, listed(x, m.marker.Status(x.Fingerprint())))
		}
	}
	return out, nil
}

func listed(a *types.Alert, s types.AlertStatus) amclient.Alert {
	return amclient.Alert{
		Labels: plain(a.Labels), Annotations: plain(a.Annotations),
		StartsAt: a.StartsAt, EndsAt: a.EndsAt, UpdatedAt: a.UpdatedAt, GeneratorURL: a.GeneratorURL,
		Fingerprint: a.Fingerprint().String(),
		Status:      amclient.AlertStatus{State: string(s.State), SilencedBy: s.SilencedBy, InhibitedBy: s.InhibitedBy},
	}
}

func plain(l model.LabelSet) map[string]string {
	out := make(map[string]string, len(l))
	for k, v := range l {
		out[string(k)] = string(v)
	}
	return out
}
