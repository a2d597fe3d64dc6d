package regional

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/alerting/logrules"
	"muster.dev/muster/alerting/logrules/members"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/control/api/region"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/logs/store"
	"muster.dev/muster/regional/relay"
)

// startLogRules evaluates the tenants' LogRules over the log store. Regionals that
// share an Elasticsearch share the work: one of them at a time does it.
func startLogRules(env *role.Env, c config.Config, r config.Regional, st store.Store, held *holdings) error {
	log := env.Log.With("part", "log rules")
	am, err := amclient.New(amclient.Options{URLs: c.AlertmanagerURLs(), Client: held.alerts, Timeout: 10 * time.Second, Logger: log})
	if err != nil {
		return fmt.Errorf("log rules: %w", err)
	}
	sharing := members.New(r.Name, ruleState{st})
	env.Go("log store members", func(ctx context.Context) error {
		return sharing.Run(ctx, func(err error) { log.Debug("who shares the log store is not known yet", "err", err) })
	})
	runner, err := logrules.New(logrules.Options{
		Name: r.Name, Source: ruleSource{st}, State: ruleState{st}, Sink: ruleSink{am, func(err error) { log.Error("Alertmanager refuses an alert of a log rule", "err", err) }},
		Sites: func() []logrules.Site { return held.inv.sitesOf(sharing) }, ExternalURL: c.Console.URL(), Logger: log, Registerer: env.Reg,
	})
	if err != nil {
		return err
	}
	held.logRules = func(tenants []region.Rules) []relay.ItemError {
		var out []relay.ItemError
		for _, e := range runner.SetRules(tenants) {
			out = append(out, relay.ItemError{Kind: "LogRules", Name: e.Tenant + "/" + e.Name, Err: e.Err})
		}
		return out
	}
	env.Go("log rules", func(ctx context.Context) error {
		runner.Run(ctx)
		return nil
	})
	env.Ops.Status("log rules", func() any { return runner.Status() })
	return nil
}

// sitesOf are the sites of the regionals on a store; nil before these are known.
func (i *inventory) sitesOf(l *members.List) []logrules.Site {
	if !l.Known() {
		return nil
	}
	return i.ruleSites(l.Has)
}

// ruleSites are the sites whose lines are in this regional's store; nil before
// control has told of any tenant.
func (i *inventory) ruleSites(ours func(regional string) bool) []logrules.Site {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if len(i.tenants) == 0 {
		return nil
	}
	out := []logrules.Site{}
	for tenant, t := range i.tenants {
		for _, s := range t.Sites {
			if ours(s.Regional) {
				out = append(out, logrules.Site{Tenant: tenant, Name: s.Name, Region: s.Region, Labels: s.Labels, VirtualSites: s.VirtualSites})
			}
		}
	}
	return out
}

// ruleSource reads the store.
type ruleSource struct{ store.Store }

func (s ruleSource) Groups(ctx context.Context, q logrules.Query) (logrules.Groups, error) {
	got, err := s.Store.Groups(ctx, store.GroupQuery{Tenant: q.Tenant, Text: q.Text, Sites: q.Sites, After: q.After, UpTo: q.UpTo, By: q.By, Step: q.Step, Metric: q.Metric, Spread: q.Spread, Include: q.Include, MaxGroups: q.MaxGroups})
	if errors.Is(err, store.ErrTimeout) {
		err = fmt.Errorf("%w: %w", logrules.ErrTooMuch, err)
	}
	return got, err
}

// ruleState keeps documents in the store.
type ruleState struct{ store.Store }

func (s ruleState) Get(ctx context.Context, key string) ([]byte, string, error) {
	b, v, err := s.GetState(ctx, key)
	return b, v, ruleError(err)
}

func (s ruleState) Put(ctx context.Context, key string, value []byte, version string) (string, error) {
	v, err := s.PutState(ctx, key, value, version)
	return v, ruleError(err)
}

func (s ruleState) Delete(ctx context.Context, key, version string) error {
	return ruleError(s.DeleteState(ctx, key, version))
}

func ruleError(err error) error {
	switch {
	case errors.Is(err, store.ErrNoState):
		return logrules.ErrNoState
	case errors.Is(err, store.ErrStateConflict):
		return logrules.ErrConflict
	}
	return err
}

// ruleSink posts to Alertmanager and waits for its answer, which an engine's own
// queue does not: what it did not take stays in the rule's document.
type ruleSink struct {
	am      *amclient.Client
	refused func(error)
}

func (s ruleSink) Send(ctx context.Context, alerts []wire.Alert) error {
	err := s.am.PostAlerts(ctx, alerts)
	// It kept the valid ones; asking again changes nothing for the others.
	var e *amclient.Error
	if errors.As(err, &e) && e.Status == http.StatusBadRequest {
		s.refused(err)
		return nil
	}
	return err
}
