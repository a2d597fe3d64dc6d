package manager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"maps"
	"slices"
	"sort"
	texttemplate "text/template"
	"time"

	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/config/receiver"
	"github.com/prometheus/alertmanager/dispatch"
	"github.com/prometheus/alertmanager/notify"
	"github.com/prometheus/alertmanager/silence"
	"github.com/prometheus/alertmanager/template"
	"github.com/prometheus/alertmanager/timeinterval"
	"github.com/prometheus/alertmanager/types"
	commoncfg "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"

	"muster.dev/muster/internal/turns"
	"muster.dev/muster/internal/wire"
)

// dropAll is in force until the first SetConfig.
const dropAll = `{"route": {"receiver": "none"}, "receivers": [{"name": "none"}]}`

// maintenanceOfGroups is the time between clean-ups of empty groups.
const maintenanceOfGroups = 30 * time.Second

// running is what one configuration made.
type running struct {
	yaml        []byte
	placeholder bool
	shards      map[string]*shard
	silencer    *silence.Silencer
	by          string // label of the shards
	root        string // receiver of the first route
}

// mark works out anew whether an alert is suppressed; the marker holds the result.
func (r *running) mark(ctx context.Context, labels model.LabelSet) {
	s := r.shards[string(labels[model.LabelName(r.by)])]
	if s == nil {
		s = r.shards[""]
	}
	s.inhibitor.Mutes(ctx, labels)
	r.silencer.Mutes(ctx, labels)
}

// prepared is all of a configuration that can fail.
type prepared struct {
	conf         *config.Config
	tmpl         *template.Template
	text         *texttemplate.Template // tmpl's own
	routes       *dispatch.Route
	receivers    map[string][]notify.Integration
	integrations int
	intervals    map[string][]timeinterval.TimeInterval
	silencer     *silence.Silencer
	pieces       map[string]*piece
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
	m.current.Store(m.start(p, yaml, old))
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
	if p.tmpl, err = template.FromGlobs(conf.Templates, func(text *texttemplate.Template, _ *htmltemplate.Template) { p.text = text }); err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	p.tmpl.ExternalURL = m.external
	active := map[string]bool{}
	p.routes.Walk(func(r *dispatch.Route) { active[r.RouteOpts.Receiver] = true })
	for _, rcv := range conf.Receivers {
		if !active[rcv.Name] {
			continue
		}
		if p.receivers[rcv.Name], err = m.integrations(rcv, p); err != nil {
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
	if p.pieces, err = m.split(p, yaml); err != nil {
		return nil, fmt.Errorf("split by %s: %w", m.opts.ShardBy, err)
	}
	return p, nil
}

// integrations are what a receiver sends with. Connections are not kept: receivers are
// many and notifications rare.
func (m *Manager) integrations(rcv config.Receiver, p *prepared) ([]notify.Integration, error) {
	opts := []commoncfg.HTTPClientOption{commoncfg.WithKeepAlivesDisabled()}
	if m.opts.Dial != nil {
		opts = append(opts, commoncfg.WithDialContextFunc(m.opts.Dial))
	}
	var out []notify.Integration
	err := single(rcv, func(one config.Receiver, conf any, i int) error {
		built := []notify.Integration{}
		if c, is := conf.(*config.EmailConfig); is {
			built = append(built, notify.NewIntegration(newEmail(c, p.tmpl, m.log.With("integration", "email"), m.opts.Dial), c, "email", i, rcv.Name))
		} else {
			var err error
			if built, err = receiver.BuildReceiverIntegrations(one, p.tmpl, m.log, opts...); err != nil {
				return err
			}
		}
		for _, in := range built {
			out = append(out, notify.NewIntegration(&telling{newBounded(in, conf, p, m.log, m.metrics.leftOut), in.Name(), rcv.Name, m.opts.Notified}, &in, in.Name(), i, rcv.Name))
		}
		return nil
	})
	return out, err
}

// start puts a prepared configuration to work; it can't fail. Shards whose part of it is
// the same run on.
func (m *Manager) start(p *prepared, yaml []byte, old *running) *running {
	r := &running{yaml: bytes.Clone(yaml), by: m.opts.ShardBy, root: p.routes.RouteOpts.Receiver, shards: make(map[string]*shard, len(p.pieces)), silencer: silence.NewSilencer(m.silences, m.marker, m.log)}
	p.silencer = r.silencer
	if old != nil {
		for key, s := range old.shards {
			if piece := p.pieces[key]; piece != nil && piece.sum == s.sum {
				r.shards[key] = s
			} else {
				s.stop()
			}
		}
	}
	m.api.Update(p.conf, r.mark)
	for key, piece := range p.pieces {
		if r.shards[key] == nil {
			r.shards[key] = m.startShard(p, piece)
		}
	}
	maps.DeleteFunc(m.slots, func(key string, _ *turns.Slots) bool { return r.shards[key] == nil })
	p.routes.Walk(func(route *dispatch.Route) {
		if o := route.RouteOpts; o.RepeatInterval > m.opts.Retention {
			m.log.Warn("repeat_interval is longer than the retention: notifications can be repeated sooner", "repeat_interval", o.RepeatInterval, "retention", m.opts.Retention, "route", route.Key())
		}
	})
	return r
}

// groups are those of all shards, as the dispatcher of a whole would list them.
func (m *Manager) groups(ctx context.Context, routes func(*dispatch.Route) bool, alerts func(*types.Alert, time.Time) bool) (dispatch.AlertGroups, map[model.Fingerprint][]string, error) {
	var out dispatch.AlertGroups
	receivers := map[model.Fingerprint][]string{}
	now := m.current.Load()
	keys := slices.Sorted(maps.Keys(now.shards))
	slices.Reverse(keys) // the one with no name last: a tenant's routes have the first say
	for _, key := range keys {
		groups, by, err := now.shards[key].dispatcher.Groups(ctx, routes, alerts)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, groups...)
		for fp, names := range by {
			receivers[fp] = append(receivers[fp], names...)
			slices.Sort(receivers[fp])
		}
	}
	out = unrouted(out, now.root)
	for fp, names := range receivers {
		if names = slices.Compact(names); len(names) > 1 {
			names = slices.DeleteFunc(names, func(name string) bool { return name == now.root })
		}
		receivers[fp] = names
	}
	sort.Sort(out)
	return out, receivers, nil
}

// unrouted leaves to the groups of the first route's receiver what no other has, each alert once: in
// the shard with no name, which sees all alerts, that receiver takes what other shards have routes for.
func unrouted(groups dispatch.AlertGroups, root string) dispatch.AlertGroups {
	seen := map[model.Fingerprint]bool{}
	for _, g := range groups {
		if g.Receiver != root {
			for _, a := range g.Alerts {
				seen[a.Fingerprint()] = true
			}
		}
	}
	return slices.DeleteFunc(groups, func(g *dispatch.AlertGroup) bool {
		if g.Receiver != root {
			return false
		}
		g.Alerts = slices.DeleteFunc(slices.Clone(g.Alerts), func(a *types.Alert) bool {
			fp := a.Fingerprint()
			if seen[fp] {
				return true
			}
			seen[fp] = true
			return false
		})
		return len(g.Alerts) == 0
	})
}

// Alerts lists the alerts that fire, as GET /api/v2/alerts does, without the cost of
// encoding and decoding them.
func (m *Manager) Alerts(ctx context.Context) ([]wire.Alert, error) {
	it := m.alerts.GetPending()
	defer it.Close()
	r, now := m.current.Load(), time.Now()
	out := []wire.Alert{}
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

// Groups lists the groups that notifications are made of, as GET /api/v2/alerts/groups does.
func (m *Manager) Groups(ctx context.Context, filter ...wire.Matcher) ([]wire.GroupedAlerts, error) {
	now := time.Now()
	groups, _, err := m.groups(ctx, func(*dispatch.Route) bool { return true }, func(a *types.Alert, _ time.Time) bool {
		return !a.ResolvedAt(now) && !slices.ContainsFunc(filter, func(f wire.Matcher) bool { return string(a.Labels[model.LabelName(f.Name)]) != f.Value })
	})
	if err != nil {
		return nil, fmt.Errorf("alertmanager: list groups: %w", err)
	}
	out := make([]wire.GroupedAlerts, 0, len(groups))
	for _, g := range groups {
		x := wire.GroupedAlerts{Receiver: g.Receiver, Labels: plain(g.Labels)}
		for _, a := range g.Alerts {
			x.Fingerprints = append(x.Fingerprints, a.Fingerprint().String())
		}
		out = append(out, x)
	}
	return out, nil
}

func listed(a *types.Alert, s types.AlertStatus) wire.Alert {
	return wire.Alert{
		Labels: plain(a.Labels), Annotations: plain(a.Annotations),
		StartsAt: a.StartsAt, EndsAt: a.EndsAt, UpdatedAt: a.UpdatedAt, GeneratorURL: a.GeneratorURL,
		Fingerprint: a.Fingerprint().String(),
		Status:      wire.AlertStatus{State: string(s.State), SilencedBy: s.SilencedBy, InhibitedBy: s.InhibitedBy},
	}
}

func plain(l model.LabelSet) map[string]string {
	out := make(map[string]string, len(l))
	for k, v := range l {
		out[string(k)] = string(v)
	}
	return out
}
