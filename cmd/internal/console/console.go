// Package console composes the web console and the HTTP API: the console tier in
// front, the health role and Cortex behind it.
package console

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"muster.dev/muster/aggregator/query"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/control"
	"muster.dev/muster/cmd/internal/fleetlogs"
	"muster.dev/muster/cmd/internal/happened"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/dashboards/console"
	"muster.dev/muster/internal/kubetls"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/oidclogin"
	"muster.dev/muster/internal/peers"
	"muster.dev/muster/internal/strangers"
)

// Run runs the role until ctx ends.
func Run(ctx context.Context, c config.Config) error {
	known, err := c.OpenPeers("console")
	if err != nil {
		return err
	}
	return role.Run(ctx, role.Options{Role: "console", Shared: true, OpsListen: c.Console.OpsListen, Guard: known.Listener(config.OpsRules("console")), Hosts: c.HostNames(), Log: obs.LogOptions(c.Log)},
		func(_ context.Context, env *role.Env) error { return start(env, c, known) })
}

func start(env *role.Env, c config.Config, known *peers.Peers) error {
	rest, kubeconfig, err := kubetls.Load(control.Kubeconfig(c, "console"))
	if err != nil {
		return fmt.Errorf("kubeconfig of the console: %w; `muster control` makes it", err)
	}
	health, err := url.Parse(c.HealthURL())
	if err != nil {
		return err
	}
	store, err := query.New(query.Options{URL: c.CortexURL(), Client: known.Client(), Registerer: env.Reg})
	if err != nil {
		return err
	}
	alerting, err := url.Parse(c.AlertingURL())
	if err != nil {
		return err
	}
	toAlerting, err := peers.Alike(console.Transport(known.Transport()), c.AlertingURLs())
	if err != nil {
		return err
	}
	search, err := fleetlogs.New(env, c, known)
	if err != nil {
		return err
	}
	o := console.Options{
		RestConfig: rest, KubernetesCA: kubeconfig.CA, HealthURL: health, HealthTransport: console.Transport(known.Transport()), AlertingURL: alerting, AlertingTransport: toAlerting, UI: console.UI(), Dir: c.Path("console"), Logger: env.Log, Registerer: env.Reg,
		Metrics: metrics{store}, Logs: search, Timeline: happened.Merged(env, c, known),
	}
	if err := front(&o, c); err != nil {
		return err
	}
	s, err := console.New(o)
	if err != nil {
		return err
	}
	ln, err := role.Listen("console.listen", c.Console.Listen)
	if err != nil {
		return err
	}
	proxies := o.TrustedProxies
	door := strangers.NewDoor(ln, strangers.Usual, func(a net.Addr) bool {
		from, err := netip.ParseAddrPort(a.String())
		return err == nil && slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap()) })
	}, strangers.Counting(env.Reg, "muster_console_closed_connections_total"))
	s.OnKnown(door.Known)
	srv := s.NewServer()
	env.Go("watch", s.Run)
	env.Ops.Ready("watch", s.Ready)
	if c.Console.CertFile != "" {
		return serveTLS(env, c, srv, door)
	}
	env.Serve("console", door, srv)
	return nil
}

// front sets what depends on how browsers reach the console and log in.
func front(o *console.Options, c config.Config) error {
	for i, p := range c.Console.TrustedProxies {
		network, err := netip.ParsePrefix(p)
		if err != nil {
			return fmt.Errorf("console.trustedProxies[%d]: %w", i, err)
		}
		o.TrustedProxies = append(o.TrustedProxies, network)
	}
	o.SessionKeyFile = c.Console.SessionKeyFile
	if c.Console.ExternalURL == "" && c.OIDC.IssuerURL == "" {
		return nil
	}
	var err error
	if o.ExternalURL, err = url.Parse(c.Console.URL()); err != nil {
		return fmt.Errorf("console.externalURL: %w", err)
	}
	if c.OIDC.IssuerURL == "" {
		return nil
	}
	login := oidclogin.Options{IssuerURL: c.OIDC.IssuerURL, ClientID: c.OIDC.ClientID, Scopes: c.OIDC.Scopes}
	if f := c.OIDC.CAFile; f != "" {
		if login.CAPEM, err = os.ReadFile(f); err != nil {
			return fmt.Errorf("oidc.caFile: %w", err)
		}
	}
	if f := c.OIDC.ClientSecretFile; f != "" {
		secret, err := os.ReadFile(f)
		if err != nil {
			return fmt.Errorf("oidc.clientSecretFile: %w", err)
		}
		login.ClientSecret = strings.TrimSpace(string(secret))
	}
	o.OIDC, o.CLIClientID, o.CLIScopes = &login, c.OIDC.CLIClientID, c.OIDC.CLIScopes
	return nil
}

// metrics lets the console ask Cortex for one tenant.
type metrics struct{ *query.Client }

// Query implements console.Metrics.
func (m metrics) Query(ctx context.Context, tenant string, q console.MetricQuery) (int, []byte) {
	return m.Ask(ctx, tenant, query.Request{Expr: q.Expr, Time: q.Time, Start: q.Start, End: q.End, Step: q.Step, Timeout: q.Timeout, Limit: q.Limit})
}

// Names implements console.Metrics.
func (m metrics) Names(ctx context.Context, tenant string, q console.NameQuery) (int, []byte) {
	return m.Client.Names(ctx, tenant, query.NamesRequest{Label: q.Label, Match: q.Match, Contains: q.Contains, Start: q.Start, End: q.End, Limit: q.Limit})
}
