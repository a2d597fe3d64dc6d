package regional

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/regional/gateway"
	"muster.dev/muster/regional/logs/intake"
	"muster.dev/muster/regional/logs/query"
	"muster.dev/muster/regional/logs/store"
	"muster.dev/muster/regional/logs/store/elastic"
	"muster.dev/muster/regional/logs/store/embedded"
	"muster.dev/muster/regional/relay"
)

// openLogStore opens the region's Elasticsearch, or the embedded store.
func openLogStore(env *role.Env, dir string, r config.Regional, processors *turns.Processors) (store.Store, error) {
	l := r.Logs
	log := env.Log.With("part", "log store")
	es := l.Elasticsearch
	if len(es.URLs) == 0 {
		return embedded.Open(embedded.Options{Dir: dir, Retention: l.Retention.D(), MaxBytes: l.MaxBytes, Processors: processors, Logger: log, Registerer: env.Reg})
	}
	o := elastic.Options{URLs: es.URLs, Username: es.Username, Prefix: es.Prefix, Replicas: es.Replicas, Shards: es.Shards, Clusters: es.RemoteClusters, Writer: r.Name,
		Retention: l.Retention.D(), Logger: log, Registerer: env.Reg}
	for _, f := range []struct {
		field, file string
		into        *string
	}{{"passwordFile", es.PasswordFile, &o.Password}, {"apiKeyFile", es.APIKeyFile, &o.APIKey}} {
		if f.file == "" {
			continue
		}
		b, err := os.ReadFile(f.file)
		if err != nil {
			return nil, fmt.Errorf("elasticsearch.%s: %w", f.field, err)
		}
		*f.into = strings.TrimSpace(string(b))
	}
	if es.CAFile != "" {
		b, err := os.ReadFile(es.CAFile)
		if err != nil {
			return nil, fmt.Errorf("elasticsearch.caFile: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("elasticsearch.caFile: %s holds no certificate in PEM", es.CAFile)
		}
		o.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return elastic.Open(o)
}

// startLogs starts the intake before the store, the queries to it and the rules over
// it. The handler is for the gateway.
func startLogs(env *role.Env, c config.Config, dir string, r config.Regional, files *identity.Files, held *holdings, up *relay.Relay, processors *turns.Processors) (http.Handler, *intake.Intake, error) {
	st, err := openLogStore(env, filepath.Join(dir, "logs", "store"), r, processors)
	if err != nil {
		return nil, nil, fmt.Errorf("log store: %w", err)
	}
	env.Stack.OnStop("log store", func(context.Context) error { return st.Close() })
	if err := startLogRules(env, c, r, st, held); err != nil {
		return nil, nil, err
	}
	key := ""
	if f := r.Logs.ForwardSharedKeyFile; f != "" {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, nil, fmt.Errorf("regionals[%s].logs.forwardSharedKeyFile: %w", r.Name, err)
		}
		if key = strings.TrimSpace(string(b)); key == "" {
			return nil, nil, fmt.Errorf("regionals[%s].logs.forwardSharedKeyFile: %s is empty", r.Name, f)
		}
	}
	in, err := intake.New(intake.Options{
		SharedKey: key, MaxLineBytes: r.Logs.LineBytes,
		Name: r.Name, Dir: filepath.Join(dir, "logs"), Listen: r.Logs.ForwardListen, TLS: files.ServerConfig(tls.RequireAndVerifyClientCert),
		Denied: up.Denied, Limits: held.inv.logLimits, SiteBytesPerSecond: r.Logs.SiteBytesPerSecond, Retention: r.Logs.Retention.D(), TenantLogBytesPerDay: held.inv.tenantLogBytes, QueueBytes: r.Logs.QueueBytes, QueueAge: r.Logs.QueueAge.D(), SyncInterval: r.Logs.QueueSync.D(), Sink: st, Processors: processors, OnCondition: newLogConditions(up).changed, Logger: env.Log.With("part", "log intake"), Registerer: env.Reg,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("regionals[%s].logs: %w", r.Name, err)
	}
	env.Go("log intake", in.Run)
	env.Ops.Status("logs", func() any { return in.Status() })

	var joined []string
	for _, name := range r.Logs.Elasticsearch.RemoteClusters {
		joined = append(joined, name)
	}
	queries, err := query.New(query.Options{Regional: r.Name, Joined: joined, Store: st, Members: held.inv.virtualMembers, Logger: env.Log.With("part", "log queries"), Registerer: env.Reg})
	if err != nil {
		return nil, nil, err
	}
	queries.Register(env.Ops.Mux())
	env.Go("log queries", func(ctx context.Context) error {
		<-ctx.Done()
		queries.Close() // open tails would hold up the end of the listener
		return nil
	})
	return in.Handler(sender), in, nil
}

// sender says who sent a request that the gateway passed on.
func sender(r *http.Request) (fleet.SiteID, string, error) {
	id, region, err := gateway.Identity(r)
	if errors.Is(err, gateway.ErrRenew) {
		err = fmt.Errorf("%w: %w", intake.ErrExpired, err)
	}
	return id, region, err
}
