package regional

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/alerting/logrules"
	"muster.dev/muster/control/api/region"
	"muster.dev/muster/internal/app"
	"muster.dev/muster/internal/app/config"
	"muster.dev/muster/regional/logs/store"
	"muster.dev/muster/regional/relay"
)

// startLogRules evaluates the tenants' LogRules over the log store. Regionals that
// share an Elasticsearch share the work: one of them at a time does it.
func startLogRules(env *app.Env, c config.Config, r config.Regional, st store.Store, own *holdings) error {
	log := env.Log.With("part", "log rules")
	am, err := amclient.New(amclient.Options{URLs: c.AlertmanagerURLs(), Timeout: 10 * time.Second, Logger: log})
	if err != nil {
		return fmt.Errorf("log rules: %w", err)
	}
	sharing := &sharing{name: r.Name, state: ruleState{st}}
	env.Go("log store members", func(ctx context.Context) error {
		sharing.run(ctx, func(err error) { log.Debug("who shares the log store is not known yet", "err", err) })
		return nil
	})
	runner, err := logrules.New(logrules.Options{
		Name: r.Name, Source: ruleSource{st}, State: ruleState{st}, Sink: ruleSink{am, func(err error) { log.Error("Alertmanager refuses an alert of a log rule", "err", err) }},
		Sites: func() []logrules.Site { return sharing.sites(own.inv) }, ExternalURL: c.Console.URL(), Logger: log, Registerer: env.Reg,
	})
	if err != nil {
		return err
	}
	own.logRules = func(tenants []region.Rules) []relay.ItemError {
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
	got, err := s.Store.Groups(ctx, store.GroupQuery{Tenant: q.Tenant, Text: q.Text, Sites: q.Sites, After: q.After, UpTo: q.UpTo, By: q.By, Step: q.Step, Metric: q.Metric, MaxGroups: q.MaxGroups})
	if errors.Is(err, store.ErrTimeout) {
		err = fmt.Errorf("%w: %w", logrules.ErrTooMuch, err)
	}
	if err != nil {
		return logrules.Groups{}, err
	}
	out := logrules.Groups{Truncated: got.Truncated, Groups: make([]logrules.Group, len(got.Groups))}
	for i, g := range got.Groups {
		out.Groups[i] = logrules.Group(g)
	}
	return out, nil
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

func (s ruleSink) Send(ctx context.Context, alerts []logrules.Alert) error {
	out := make([]amclient.Alert, 0, len(alerts))
	for _, a := range alerts {
		out = append(out, amclient.Alert{Labels: a.Labels, Annotations: a.Annotations, StartsAt: a.StartsAt, EndsAt: a.EndsAt, GeneratorURL: a.GeneratorURL})
	}
	err := s.am.PostAlerts(ctx, out)
	// It kept the valid ones; asking again changes nothing for the others.
	var e *amclient.Error
	if errors.As(err, &e) && e.Status == http.StatusBadRequest {
		s.refused(err)
		return nil
	}
	return err
}

// sharing knows which regionals keep their logs in the same store: each enters its
// name in the store's state.
type sharing struct {
	name  string
	state ruleState

	mu    sync.RWMutex
	names map[string]bool // nil: not known yet
}

const (
	sharingKey    = "regionals"
	sharingEvery  = time.Minute
	sharingForget = 30 * 24 * time.Hour // a regional not heard of for so long has left
)

func (s *sharing) has(regional string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.names[regional]
}

// sites are nil until it is known who shares the store: to an owner that knows only
// itself the others' sites would be gone, with their alerts and all that is known of them.
func (s *sharing) sites(inv *inventory) []logrules.Site {
	s.mu.RLock()
	known := s.names != nil
	s.mu.RUnlock()
	if !known {
		return nil
	}
	return inv.ruleSites(s.has)
}

func (s *sharing) run(ctx context.Context, failed func(error)) {
	for {
		wait := sharingEvery
		if err := s.enter(ctx); err != nil {
			failed(err)
			wait = 5 * time.Second
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// enter writes the own name, once an hour, and reads the others'.
func (s *sharing) enter(ctx context.Context) error {
	list := map[string]time.Time{}
	b, version, err := s.state.Get(ctx, sharingKey)
	if err != nil && !errors.Is(err, logrules.ErrNoState) {
		return err
	}
	if err == nil {
		if err := json.Unmarshal(b, &list); err != nil {
			return fmt.Errorf("the list of regionals on this log store: %w", err)
		}
	}
	now := time.Now().UTC()
	if now.Sub(list[s.name]) > time.Hour {
		list[s.name] = now
		for name, at := range list {
			if now.Sub(at) > sharingForget {
				delete(list, name)
			}
		}
		if b, err = json.Marshal(list); err != nil {
			return err
		}
		if _, err := s.state.Put(ctx, sharingKey, b, version); err != nil {
			return err
		}
	}
	names := map[string]bool{s.name: true}
	for name := range list {
		names[name] = true
	}
	s.mu.Lock()
	s.names = names
	s.mu.Unlock()
	return nil
}
