package manager

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/dispatch"
	"github.com/prometheus/alertmanager/inhibit"
	"github.com/prometheus/alertmanager/notify"
	"github.com/prometheus/alertmanager/pkg/labels"
	"github.com/prometheus/alertmanager/timeinterval"
	"github.com/prometheus/alertmanager/types"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/internal/turns"
)

// A shard is what one value of Options.ShardBy, a tenant, has of the configuration: its
// routes, inhibitions and receivers, with a dispatcher of its own. Its groups are
// counted by themselves, its notifications wait for each other and for nobody else's,
// and a change of another shard's routes neither ends nor repeats what it is sending.
// The shard with no name has what belongs to nobody, and sees all alerts.
type shard struct {
	key        string
	sum        [sha256.Size]byte // of its part of the configuration
	dispatcher *dispatch.Dispatcher
	inhibitor  *inhibit.Inhibitor
	figures    *prometheus.Registry // the dispatcher's
}

func (s *shard) stop() {
	s.inhibitor.Stop()
	s.dispatcher.Stop()
}

// piece is a shard's part of a configuration.
type piece struct {
	key     string
	route   *dispatch.Route
	inhibit []config.InhibitRule
	across  bool // an inhibition may look beyond the shard's alerts
	sum     [sha256.Size]byte
}

// split takes a configuration apart. Only what stands right below the first route, with
// an equality on ShardBy, goes on to its siblings and leaves nothing to the first route's
// own receiver becomes a shard: then the parts do what the whole does.
func (m *Manager) split(p *prepared, text []byte) (map[string]*piece, error) {
	var raw map[string]any
	if err := yaml.Unmarshal(text, &raw); err != nil {
		return nil, err
	}
	root, _ := raw["route"].(map[string]any)
	rawRoutes, _ := root["routes"].([]any)
	rawInhibit, _ := raw["inhibit_rules"].([]any)
	parts := map[string]map[string]any{} // what each depends on
	pieces := map[string]*piece{}
	get := func(key string) (*piece, map[string]any) {
		if pieces[key] == nil {
			route := *p.routes
			route.Routes = nil
			pieces[key] = &piece{key: key, route: &route}
			parts[key] = map[string]any{}
		}
		return pieces[key], parts[key]
	}
	get("")
	drops := len(p.receivers[p.routes.RouteOpts.Receiver]) == 0
	for i, r := range p.routes.Routes {
		key := ""
		if drops && r.Continue {
			key = m.valueOf(r.Matchers)
		}
		piece, part := get(key)
		piece.route.Routes = append(piece.route.Routes, r)
		part[fmt.Sprint("route ", len(piece.route.Routes))] = rawRoutes[i]
	}
	shared, sharedText, across := []config.InhibitRule{}, []any{}, false
	for i, rule := range p.conf.InhibitRules {
		key := m.valueOf(rule.SourceMatchers)
		if key != "" && key == m.valueOf(rule.TargetMatchers) {
			piece, part := get(key)
			piece.inhibit = append(piece.inhibit, rule)
			part[fmt.Sprint("inhibit ", len(piece.inhibit))] = rawInhibit[i]
			continue
		}
		shared, sharedText = append(shared, rule), append(sharedText, rawInhibit[i])
		across = across || !slices.Contains(rule.Equal, m.opts.ShardBy)
	}
	common := map[string]any{"inhibit": sharedText}
	for k, v := range raw {
		if k != "route" && k != "receivers" && k != "inhibit_rules" && k != "time_intervals" && k != "mute_time_intervals" {
			common[k] = v
		}
	}
	first := maps.Clone(root)
	delete(first, "routes")
	common["route"] = first
	for key, piece := range pieces {
		piece.inhibit = slices.Concat(shared, piece.inhibit)
		piece.across = across || key == ""
		part := parts[key]
		part["common"] = common
		named := map[string]bool{}
		names(first, named)
		for _, r := range part {
			names(r, named)
		}
		for _, list := range []string{"receivers", "time_intervals", "mute_time_intervals"} {
			all, _ := raw[list].([]any)
			for _, v := range all {
				if o, _ := v.(map[string]any); o != nil && named[fmt.Sprint(o["name"])] {
					part[list+" "+fmt.Sprint(o["name"])] = v
				}
			}
		}
		b, err := json.Marshal(part)
		if err != nil {
			return nil, err
		}
		piece.sum = sha256.Sum256(b)
	}
	return pieces, nil
}

// names collects the receivers and time intervals that a route and those below it name.
func names(v any, out map[string]bool) {
	r, _ := v.(map[string]any)
	if name, is := r["receiver"]; is {
		out[fmt.Sprint(name)] = true
	}
	for _, k := range []string{"mute_time_intervals", "active_time_intervals"} {
		l, _ := r[k].([]any)
		for _, name := range l {
			out[fmt.Sprint(name)] = true
		}
	}
	below, _ := r["routes"].([]any)
	for _, sub := range below {
		names(sub, out)
	}
}

// valueOf is the one value of ShardBy that the matchers let through, if they name it.
func (m *Manager) valueOf(matchers []*labels.Matcher) string {
	for _, x := range matchers {
		if m.opts.ShardBy != "" && x.Name == m.opts.ShardBy && x.Type == labels.MatchEqual {
			return x.Value
		}
	}
	return ""
}

// startShard puts a piece to work; it can't fail.
func (m *Manager) startShard(p *prepared, piece *piece) *shard {
	s := &shard{key: piece.key, sum: piece.sum, figures: prometheus.NewRegistry()}
	wait := func() time.Duration { return 0 }
	if m.peer != nil {
		wait = func() time.Duration { return time.Duration(m.peer.Position()) * m.opts.Cluster.PeerTimeout }
	}
	alerts := m.hub.view(piece.key)
	if piece.across {
		s.inhibitor = inhibit.NewInhibitor(m.hub.view(""), piece.inhibit, m.marker, m.log)
	} else {
		s.inhibitor = inhibit.NewInhibitor(alerts, piece.inhibit, m.marker, m.log)
	}
	receivers := map[string][]notify.Integration{}
	piece.route.Walk(func(r *dispatch.Route) {
		if name := r.RouteOpts.Receiver; receivers[name] == nil {
			receivers[name] = m.inSlots(piece.key, name, p.receivers[name])
		}
	})
	stages := m.pipeline.New(receivers, wait, s.inhibitor, p.silencer, timeinterval.NewIntervener(p.intervals), m.marker, m.nflog, m.pipelinePeer())
	timeout := func(d time.Duration) time.Duration { return max(d, notify.MinTimeout) + wait() }
	bound := groups(m.opts.MaxGroups)
	if piece.key == "" {
		bound = 0
	}
	s.dispatcher = dispatch.NewDispatcher(alerts, piece.route, stages, m.marker, timeout, maintenanceOfGroups, bound, m.log, dispatch.NewDispatcherMetrics(false, s.figures))
	// The inhibitor first: an alert that is to be inhibited must not be notified.
	go s.inhibitor.Run()
	s.inhibitor.WaitForLoading()
	go s.dispatcher.Run(m.started)
	s.dispatcher.WaitForLoading()
	return s
}

// groups bounds a dispatcher's, as dispatch.Limits; 0: without a bound.
type groups int

func (g groups) MaxNumberOfAggregationGroups() int { return int(g) }

// inSlots has integrations wait until one of their shard's slots is free, of which one
// receiver may have a quarter: one that never answers keeps each for as long as a notification
// may take. The slots outlive the configuration: what still sends for a former one counts.
func (m *Manager) inSlots(key, receiver string, all []notify.Integration) []notify.Integration {
	slots := m.slots[key]
	if slots == nil {
		slots = turns.New(m.opts.Slots, m.opts.Slots, max(1, m.opts.Slots/4))
		m.slots[key] = slots
	}
	out := make([]notify.Integration, 0, len(all))
	for _, in := range all {
		out = append(out, notify.NewIntegration(&waiting{in: in, receiver: receiver, slots: slots}, &in, in.Name(), in.Index(), receiver))
	}
	return out
}

// waiting is an integration that sends when a slot is free.
type waiting struct {
	in       notify.Integration
	receiver string
	slots    *turns.Slots // of receivers, who stand in for tenants here
}

func (w *waiting) Notify(ctx context.Context, alerts ...*types.Alert) (bool, error) {
	release, err := w.slots.Acquire(ctx, turns.Class{Tenant: w.receiver})
	if err != nil {
		return true, fmt.Errorf("as many notifications of the receiver, or of its tenant, as may be at a time were under way: %w", err)
	}
	defer release()
	return w.in.Notify(ctx, alerts...)
}

// Collect implements prometheus.Collector for the sum of the dispatchers.
func (m *Manager) Collect(ch chan<- prometheus.Metric) {
	groups := 0.0
	if r := m.current.Load(); r != nil {
		for _, s := range r.shards {
			families, err := s.figures.Gather()
			if err != nil {
				continue
			}
			for _, f := range families {
				if f.GetName() == "alertmanager_dispatcher_aggregation_groups" {
					groups += f.GetMetric()[0].GetGauge().GetValue()
				}
			}
		}
	}
	ch <- prometheus.MustNewConstMetric(groupsDesc, prometheus.GaugeValue, groups)
	ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(m.hub.refusals()))
}

// Describe implements prometheus.Collector.
func (m *Manager) Describe(ch chan<- *prometheus.Desc) { ch <- groupsDesc; ch <- refusedDesc }

var (
	groupsDesc  = prometheus.NewDesc("alertmanager_dispatcher_aggregation_groups", "Number of active aggregation groups", nil, nil)
	refusedDesc = prometheus.NewDesc("muster_alertmanager_alerts_refused_total", "Alerts that were not taken because their tenant has as many as it may, or their labels are too long.", nil, nil)
)
