package control

import (
	"context"
	"fmt"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/aggregator/query"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/fleetlogs"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/control/rollout/readings"
	"muster.dev/muster/internal/egress"
	"muster.dev/muster/internal/peers"
)

// newReadings connects what gates read to the roles that know it.
func newReadings(env *role.Env, c config.Config, known *peers.Peers, kube client.Reader, store *query.Client, reach *egress.Policy) (*readings.Readings, error) {
	health, err := url.Parse(c.HealthURL())
	if err != nil {
		return nil, err
	}
	alerting, err := url.Parse(c.AlertingURL())
	if err != nil {
		return nil, err
	}
	asks, err := known.ClientOf(c.AlertingURLs())
	if err != nil {
		return nil, err
	}
	search, err := fleetlogs.New(env, c, known)
	if err != nil {
		return nil, err
	}
	return readings.New(readings.Options{
		Health: health, Alerting: alerting, Client: asks, Metrics: gateMetrics{store}, Logs: search, Token: gateToken(kube),
		Dial: reach.DialContext, Logger: env.Log.With("part", "gates"), Registerer: env.Reg,
	})
}

// gateToken reads a Secret's key token: only those that a gate names are asked for, one by
// one.
func gateToken(kube client.Reader) func(ctx context.Context, namespace, name string) (string, error) {
	return func(ctx context.Context, namespace, name string) (string, error) {
		var s corev1.Secret
		if err := kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &s); err != nil {
			return "", err
		}
		token := s.Data["token"]
		if len(token) == 0 {
			return "", fmt.Errorf("Secret %s has no key token, or an empty one", name)
		}
		return string(token), nil
	}
}

// gateMetrics evaluates expressions in Cortex.
type gateMetrics struct{ *query.Client }

// Value implements readings.Metrics.
func (m gateMetrics) Value(ctx context.Context, tenant, expr string, at time.Time, lookback time.Duration) (int, []byte) {
	return m.Ask(ctx, tenant, query.Request{Expr: expr, Time: at, Lookback: lookback})
}
