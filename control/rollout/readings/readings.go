// Package readings gathers what gates read: scores and alerts of sites, the values of
// PromQL expressions and of log queries, and what webhooks say. It decides nothing, writes
// nothing and keeps nothing for longer than it is fresh: what can't be had now is missing
// from an answer, and decide takes what is missing to be unknown. control/rollout asks it
// for each rollout that is under way, control/rollout/gatecheck for each GateCheck.
package readings

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/internal/wire"
)

// Question is what one rollout's gates have to read now.
type Question struct {
	Tenant string
	// Namespace and Rollout (or GateCheck) that asks: where Secrets of webhooks are, and
	// what a webhook is told. The namespace is as Kubernetes has it.
	Namespace, Rollout string
	// Gates in force. Scores and alerts are read whether a gate is about them or not.
	Gates []v1alpha1.RolloutGate
	// Changed are the wave's sites, and Peers those that they are compared with. Measures,
	// colours and alerts are read for both, logs and webhooks are about Changed.
	Changed, Peers []string
	// Paces of those of them that are scraped once a minute or less often (fleet.Slow): gates' own
	// queries are asked about them in another way.
	Paces map[string]time.Duration
	// Since is when the wave began; logs are counted from then on. Zero: the last hour.
	Since time.Time
}

// Answer is what could be read. It shares nothing with later answers.
type Answer struct {
	// Sites by name; one of which nothing is known is not in it.
	Sites map[string]Site
	// Outside readings by the gate's name, for decide.Input. A gate that could not be read
	// has one too, with verdict Unknown and the reason, whatever its kind.
	Outside map[string]decide.Outside
}

// Site is what was read of a site, as decide.Site has it.
type Site struct {
	// Measures by name: dimensions as v1alpha1.HealthDimension names them, in points, and
	// for a gate with a query the gate's name, in the query's unit.
	Measures map[string]float64
	// Red: its colour.
	Red bool
	// Alerts that fire and are not silenced, SEVERITY/NAME, sorted.
	Alerts []string
	// AlertsKnown is false while the alert index can't be asked: then that none is listed
	// means nothing.
	AlertsKnown bool
	// At is when the oldest of it was true.
	At time.Time
}

// Reader is what the controllers need of *Readings; tests have others.
type Reader interface {
	Read(ctx context.Context, q Question) Answer
	Before(ctx context.Context, tenant string, sites []Subject, from, to time.Time) map[string]map[string]float64
}

// Metrics evaluates an expression for a tenant at a moment (zero: now), looking back so
// far for the last sample of a series. It answers as the Prometheus HTTP API does, also
// when the store can't be reached.
type Metrics interface {
	Value(ctx context.Context, tenant, expr string, at time.Time, lookback time.Duration) (status int, body []byte)
}

// Logs searches the lines of a tenant over all regions: *logs.Client of the aggregator.
type Logs interface {
	Search(ctx context.Context, tenant string, q wire.LogQuery) (*wire.LogPage, *wire.Problem)
}

// Options of Readings. All but the last three are needed.
type Options struct {
	// Health and Alerting are where these roles serve their APIs, and Client calls them:
	// as a role that they believe in wire.TenantsHeader.
	Health, Alerting *url.URL
	Client           *http.Client
	Metrics          Metrics
	Logs             Logs
	// Token reads the key token of a Secret.
	Token func(ctx context.Context, namespace, name string) (string, error)
	// Dial connects to webhooks, and to nothing that tenants have no business at:
	// egress.Policy.DialContext.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Timeout is how long Read waits; default 2 s. The others, which look back and are asked
	// once, wait up to 10 s.
	Timeout    time.Duration
	Logger     *slog.Logger          // nil: none
	Registerer prometheus.Registerer // may be nil
}

const (
	// fresh is how old a reading may be.
	fresh = time.Minute
	// rolesEvery and othersEvery are how long an answer serves for all who ask: of
	// Muster's roles, and of stores and webhooks.
	rolesEvery, othersEvery = 3 * time.Second, 10 * time.Second
	// othersLimit is how long a store or a webhook may take. Who asks does not wait for so
	// long: it is there when they ask again.
	othersLimit = 10 * time.Second
	// lookback for the last sample of a series of quick sites, which makes what an expression
	// reads no older than fresh.
	lookback = fresh
)

// Readings reads the sources. Safe for concurrent use.
type Readings struct {
	o       Options
	log     *slog.Logger
	scores  *shared[*wire.SiteScores]
	alerts  *shared[*wire.FiringAlerts]
	values  *shared[*vector]
	lines   *shared[decide.Outside]
	hooks   *shared[decide.Outside]
	webhook *http.Client
	slots   *turns.Slots // of webhooks and log queries
}

// New checks the options; it asks nobody yet.
func New(o Options) (*Readings, error) {
	if o.Health == nil || o.Alerting == nil || o.Client == nil || o.Metrics == nil || o.Logs == nil || o.Token == nil || o.Dial == nil {
		return nil, errors.New("readings: Health, Alerting, Client, Metrics, Logs, Token and Dial must be set")
	}
	if o.Timeout <= 0 {
		o.Timeout = 2 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	f := promauto.With(o.Registerer)
	m := &figures{
		asked: f.NewCounterVec(prometheus.CounterOpts{Name: "muster_gate_readings_total", Help: "Times that a source was asked for what gates read, by source and result."}, []string{"source", "result"}),
		took:  f.NewHistogramVec(prometheus.HistogramOpts{Name: "muster_gate_reading_duration_seconds", Help: "Time that a source took to answer what gates read.", Buckets: []float64{.01, .05, .2, 1, 2, 5, 10}}, []string{"source"}),
	}
	return &Readings{
		o: o, log: o.Logger, webhook: newWebhookClient(o.Dial), slots: turns.New(64, 64, 8),
		scores: newShared[*wire.SiteScores]("health", rolesEvery, o.Timeout, false, m),
		alerts: newShared[*wire.FiringAlerts]("alerts", rolesEvery, o.Timeout, false, m),
		values: newShared[*vector]("query", othersEvery, othersLimit, true, m),
		lines:  newShared[decide.Outside]("logs", othersEvery, othersLimit, true, m),
		hooks:  newShared[decide.Outside]("webhook", othersEvery, othersLimit, true, m),
	}, nil
}

// Read asks all sources that the gates need at the same time, and returns after
// Options.Timeout at the latest with what has come. It does not fail: what is missing is
// unknown.
func (r *Readings) Read(ctx context.Context, q Question) Answer {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	var (
		wg        sync.WaitGroup
		scores    *wire.SiteScores
		alerts    *wire.FiringAlerts
		scoresErr error
		alertsErr error
		outside   = make([]*decide.Outside, len(q.Gates))
		values    = make([]byPace, len(q.Gates))
	)
	wg.Go(func() { scores, scoresErr = r.siteScores(ctx, q.Tenant) })
	wg.Go(func() { alerts, alertsErr = r.firing(ctx, q.Tenant) })
	for i := range q.Gates {
		wg.Go(func() {
			switch g := &q.Gates[i]; {
			case queryOf(g) != "":
				values[i], outside[i] = r.query(ctx, &q, g)
			case g.Logs != nil:
				outside[i] = r.logs(ctx, &q, g.Logs)
			case g.Webhook != nil:
				outside[i] = r.ask(ctx, &q, g)
			}
		})
	}
	wg.Wait()

	a := Answer{Sites: map[string]Site{}, Outside: map[string]decide.Outside{}}
	now := time.Now()
	for _, name := range slices.Concat(q.Changed, q.Peers) {
		s := Site{Measures: map[string]float64{}}
		if scores != nil {
			s.addScores(scores, name, now)
		}
		if alerts != nil {
			s.Alerts, s.AlertsKnown = slices.Clone(alerts.Sites[name]), true
			s.asOf(alerts.AsOf)
		}
		for i := range values {
			v := values[i][q.Paces[name]]
			if x, known := v.of(name); known {
				s.Measures[q.Gates[i].Name] = x
				s.asOf(v.at)
			}
		}
		if !s.At.IsZero() {
			a.Sites[name] = s
		}
	}
	for i := range q.Gates {
		g := &q.Gates[i]
		switch {
		case outside[i] != nil:
			a.Outside[g.Name] = *outside[i]
		case readsScores(g) && scoresErr != nil:
			a.Outside[g.Name] = unknown("health: %v", scoresErr)
		case g.Alerts != nil && alertsErr != nil:
			a.Outside[g.Name] = unknown("alerts: %v", alertsErr)
		}
	}
	return a
}

// asOf takes a part of the site in that was true then.
func (s *Site) asOf(t time.Time) {
	if s.At.IsZero() || t.Before(s.At) {
		s.At = t
	}
}

// readsScores tells whether a gate is about what health says.
func readsScores(g *v1alpha1.RolloutGate) bool {
	return g.Score != nil || g.Unhealthy != nil || (g.Before != nil || g.Peers != nil) && queryOf(g) == ""
}

// queryOf is the expression that a gate has; "": none.
func queryOf(g *v1alpha1.RolloutGate) string {
	switch {
	case g.Query != nil:
		return g.Query.Query
	case g.Before != nil:
		return g.Before.Query
	case g.Peers != nil:
		return g.Peers.Query
	}
	return ""
}
