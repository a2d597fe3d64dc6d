// Package console composes the web console and the HTTP API: the console tier in
// front, the health role and Cortex behind it.
package console

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"muster.dev/muster/aggregator/logs"
	"muster.dev/muster/aggregator/query"
	"muster.dev/muster/dashboards/console"
	"muster.dev/muster/internal/app"
	"muster.dev/muster/internal/app/config"
	"muster.dev/muster/internal/app/control"
	"muster.dev/muster/internal/obs"
)

// Run runs the role until ctx ends.
func Run(ctx context.Context, c config.Config) error {
	return app.Run(ctx, app.RoleOptions{Role: "console", OpsListen: c.Console.OpsListen, Log: obs.LogOptions(c.Log)},
		func(_ context.Context, env *app.Env) error { return start(env, c) })
}

func start(env *app.Env, c config.Config) error {
	rest, err := clientcmd.BuildConfigFromFlags("", control.Kubeconfig(c, "console"))
	if err != nil {
		return fmt.Errorf("kubeconfig of the console: %w; `muster control` makes it", err)
	}
	health, err := url.Parse("http://" + c.Health.OpsListen)
	if err != nil {
		return err
	}
	store, err := query.New(query.Options{URL: c.CortexURL(), Registerer: env.Reg})
	if err != nil {
		return err
	}
	alerting, err := url.Parse("http://" + c.Alerting.OpsListen)
	if err != nil {
		return err
	}
	search, err := newLogs(env, c)
	if err != nil {
		return err
	}
	s, err := console.New(console.Options{
		RestConfig: rest, HealthURL: health, AlertingURL: alerting, UI: console.UI(), Dir: c.Path("console"), Logger: env.Log, Registerer: env.Reg,
		Metrics: newMetrics(store), Logs: search,
	})
	if err != nil {
		return err
	}
	ln, err := app.Listen("console.listen", c.Console.Listen)
	if err != nil {
		return err
	}
	srv := s.NewServer()
	env.Go("watch", s.Run)
	env.Ops.Ready("watch", s.Ready)
	if c.Console.CertFile != "" {
		return serveTLS(env, c, srv, ln)
	}
	env.Serve("console", ln, srv)
	return nil
}

// newLogs asks the regionals for logs, of those that share an Elasticsearch one.
func newLogs(env *app.Env, c config.Config) (*logs.Client, error) {
	return logs.New(logs.Options{Regionals: logRegionals(c.Regionals), Logger: env.Log.With("part", "logs"), Registerer: env.Reg})
}

func logRegionals(all []config.Regional) []logs.Regional {
	var out []logs.Regional
	byStore := map[string]int{}
	asked := map[string]string{} // by name of a regional, who is asked for its store
	for _, r := range all {
		es := r.Logs.Elasticsearch
		store := strings.Join(append(slices.Sorted(slices.Values(es.URLs)), es.Prefix), " ")
		if i, shared := byStore[store]; shared && len(es.URLs) > 0 {
			out[i].Spares = append(out[i].Spares, logs.Spare{Name: r.Name, URL: r.URL()})
			asked[r.Name] = out[i].Name
			continue
		}
		byStore[store] = len(out)
		asked[r.Name] = r.Name
		out = append(out, logs.Regional{Name: r.Name, URL: r.URL(), JoinedTo: slices.Sorted(maps.Values(es.RemoteClusters))})
	}
	for i := range out {
		var joined []string
		for _, name := range out[i].JoinedTo {
			if a := asked[name]; a != out[i].Name && !slices.Contains(joined, a) {
				joined = append(joined, a)
			}
		}
		out[i].JoinedTo = joined
	}
	return out
}

// metrics lets the console ask Cortex for one tenant.
type metrics struct{ proxy http.Handler }

type tenantKey struct{}

func newMetrics(c *query.Client) metrics {
	return metrics{proxy: c.ProxyHandler(func(r *http.Request) (string, error) {
		tenant, ok := r.Context().Value(tenantKey{}).(string)
		if !ok {
			return "", errors.New("no tenant")
		}
		return tenant, nil
	})}
}

// ServeQuery implements console.Metrics.
func (m metrics) ServeQuery(w http.ResponseWriter, r *http.Request, tenant, path string) {
	r = r.WithContext(context.WithValue(r.Context(), tenantKey{}, tenant))
	r.URL.Path = path
	m.proxy.ServeHTTP(w, r)
}
