package regional

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"muster.dev/muster/alerting/rules"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/control/api/region"
	"muster.dev/muster/regional/engine"
	"muster.dev/muster/regional/relay"
)

// holdings are what the regional itself holds by control's word: the inventory, and
// the tenants' rules in its engines, beside those of its own configuration.
type holdings struct {
	inv        *inventory
	configured []engine.RuleGroup // for the edge engine
	shipped    bool
	alerts     *http.Client // towards Alertmanager

	mu       sync.Mutex
	compiler rules.Compiler
	engines  map[string]*engine.Engine
	sites    map[string]region.Inventory // by tenant, the last good ones
	rules    map[string]region.Rules
	read     map[string]string // tenant → digest of the blob that its rules were read from
	files    map[string]int    // engine → rule files
	refused  []string
	// logRules is told of the tenants' rules; nil until there is a log store.
	logRules func([]region.Rules) []relay.ItemError
}

func newHoldings(c config.Config, r config.Regional, alerts *http.Client) (*holdings, error) {
	h := &holdings{compiler: rules.Compiler{Console: c.Console.URL()}, alerts: alerts, inv: newInventory(r.Name), shipped: c.Alerting.ShippedRules, engines: map[string]*engine.Engine{}, files: map[string]int{}}
	for _, name := range r.RuleFiles {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("ruleFiles: %w", err)
		}
		h.configured = append(h.configured, engine.RuleGroup{File: name, Content: b})
	}
	return h, nil
}

// groups are the rule files of an engine, and which objects can't be used.
func (h *holdings) groups(name string, tenants []region.Rules) ([]engine.RuleGroup, []rules.Error) {
	h.compiler.Paces = h.inv.paces()
	files, errs := h.compiler.Compile(name, tenants, h.shipped)
	var out []engine.RuleGroup
	if name == engine.Edge {
		out = slices.Clone(h.configured)
	}
	for _, f := range files {
		out = append(out, engine.RuleGroup{File: f.Name, Tenant: f.Tenant, Content: f.Content})
	}
	return out, errs
}

func (h *holdings) startEngine(env *role.Env, o engine.Options, c config.Config, r config.Regional) (*engine.Engine, error) {
	o.Retention, o.Logger, o.Registerer = r.Retention.D(), env.Log.With("engine", o.Name), env.Reg
	o.ExternalURL = c.QueryURL(r) + "/" + o.Name
	o.Alertmanagers, o.AlertClient, o.AlertLabels = c.AlertmanagerURLs(), h.alerts, h.inv.alertLabels
	h.mu.Lock()
	o.Rules, _ = h.groups(o.Name, nil)
	h.mu.Unlock()
	o.TenantAlertBytes = r.Limits.TenantAlertBytes
	e, err := engine.New(o)
	if err != nil {
		return nil, fmt.Errorf("engine %s: %w", o.Name, err)
	}
	env.Stack.OnStop("engine "+o.Name, func(context.Context) error { return e.Close() })
	e.Register(env.Ops.Mux(), env.Reg)
	env.Ops.Ready("engine "+o.Name, e.Ready)
	env.Ops.Status("engine "+o.Name, func() any { return e.Status() })
	h.mu.Lock()
	h.engines[o.Name] = e
	h.mu.Unlock()
	return e, nil
}

// apply puts to work what control has sent; relay calls it, one call at a time. What
// can't be used is reported, and the rest of the set is in effect.
func (h *holdings) apply(items []relay.Item) []relay.ItemError {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []relay.ItemError
	sites, byTenant, read := map[string]region.Inventory{}, map[string]region.Rules{}, map[string]string{}
	// What can't be read leaves in effect what was there before.
	for _, it := range items {
		switch it.Kind {
		case region.KindInventory:
			inv, err := region.DecodeInventory(it.Blob)
			if err == nil && inv.Tenant != it.Name {
				err = fmt.Errorf("it is of tenant %q", inv.Tenant)
			}
			if err != nil {
				errs = append(errs, relay.ItemError{Kind: it.Kind, Name: it.Name, Err: err})
				var had bool
				if inv, had = h.sites[it.Name]; !had {
					continue
				}
			}
			sites[it.Name] = inv
		case region.KindRules:
			if r, had := h.rules[it.Name]; had && it.Digest != "" && h.read[it.Name] == it.Digest {
				byTenant[it.Name], read[it.Name] = r, it.Digest
				continue
			}
			r, err := region.DecodeRules(it.Blob)
			if err == nil && r.Tenant != it.Name {
				err = fmt.Errorf("they are of tenant %q", r.Tenant)
			}
			if err != nil {
				errs = append(errs, relay.ItemError{Kind: it.Kind, Name: it.Name, Err: err})
				var had bool
				if r, had = h.rules[it.Name]; !had {
					continue
				}
			}
			byTenant[it.Name] = r
			if err == nil {
				read[it.Name] = it.Digest
			}
		default:
			errs = append(errs, relay.ItemError{Kind: it.Kind, Name: it.Name, Err: errors.New("this version does not know the kind; upgrade the regional")})
		}
	}
	h.sites, h.rules, h.read = sites, byTenant, read
	h.inv.set(slices.Collect(maps.Values(sites)))
	var tenants []region.Rules
	for _, name := range slices.Sorted(maps.Keys(byTenant)) {
		tenants = append(tenants, byTenant[name])
	}
	for name, e := range h.engines {
		groups, bad := h.groups(name, tenants)
		h.files[name] = len(groups)
		for _, b := range bad {
			errs = append(errs, relay.ItemError{Kind: "AlertRules", Name: b.Tenant + "/" + b.Name, Err: b.Err})
		}
		refused, err := e.SetRules(groups)
		for _, r := range refused { // a file is an object, or one of the configuration
			errs = append(errs, relay.ItemError{Kind: "AlertRules", Name: r.File, Err: r})
		}
		if err != nil { // the engine's own trouble
			for _, t := range tenants {
				errs = append(errs, relay.ItemError{Kind: region.KindRules, Name: t.Tenant, Err: err})
			}
		}
	}
	if h.logRules != nil {
		errs = append(errs, h.logRules(tenants)...)
	}
	h.refused = nil
	for _, e := range errs {
		h.refused = append(h.refused, e.Kind+" "+e.Name+": "+e.Err.Error())
	}
	return errs
}

// reportFailing tells control which objects' rules the engines refuse at work, until ctx ends.
func (h *holdings) reportFailing(ctx context.Context, report func([]relay.ItemError)) error {
	tick := time.NewTicker(failingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			report(h.failing())
		}
	}
}

// failingEvery is how often the engines are asked for rules that give too much.
const failingEvery = 15 * time.Second

// failing names each object once, with the first of its rules.
func (h *holdings) failing() []relay.ItemError {
	h.mu.Lock()
	engines := maps.Clone(h.engines)
	h.mu.Unlock()
	byObject := map[string]relay.ItemError{}
	for _, e := range engines {
		for _, x := range e.Failing() {
			if old, ok := byObject[x.File]; !ok || x.Error() < old.Err.Error() {
				byObject[x.File] = relay.ItemError{Kind: "AlertRules", Name: x.File, Err: x}
			}
		}
	}
	var out []relay.ItemError
	for _, name := range slices.Sorted(maps.Keys(byObject)) {
		out = append(out, byObject[name])
	}
	return out
}

// status is for /debug/.
func (h *holdings) status() any {
	h.mu.Lock()
	defer h.mu.Unlock()
	return map[string]any{"ruleFiles": maps.Clone(h.files), "tenantsWithRules": len(h.rules), "refused": slices.Clone(h.refused)}
}
