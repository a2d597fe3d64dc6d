package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// alertSeries bounds the series that rules write about a tenant's alerts. They are let
// through where other series meet the tenant's limit, so that no restart forgets an
// alert; but an alert whose labels hold its value is a new one at each evaluation, and
// the head keeps its series for hours.
//
// Safe for concurrent use.
type alertSeries struct {
	limit int // of one tenant, within the time that the head keeps a series

	mu          sync.Mutex
	turned      time.Time
	now, before map[string]map[uint64]struct{} // by tenant, hashes of labels
}

// headKeeps is about how long the head keeps a series that gets no more samples.
const headKeeps = 3 * time.Hour

func newAlertSeries(limit int) *alertSeries {
	return &alertSeries{limit: limit, now: map[string]map[uint64]struct{}{}}
}

func (a *alertSeries) admit(tenant string, l labels.Labels, at time.Time) error {
	h := l.Hash()
	a.mu.Lock()
	defer a.mu.Unlock()
	if at.Sub(a.turned) >= headKeeps {
		a.turned, a.before, a.now = at, a.now, map[string]map[uint64]struct{}{}
	}
	now := a.now[tenant]
	if _, ok := now[h]; ok {
		return nil
	}
	if _, ok := a.before[tenant][h]; !ok && len(now)+len(a.before[tenant]) >= a.limit {
		return &Excess{Kind: "series", Text: fmt.Sprintf("tenant %s has %d series about alerts here, its limit; take $value out of the rules' labels: with it an alert is a new one at each evaluation", tenant, a.limit)}
	}
	if now == nil {
		now = map[uint64]struct{}{}
		a.now[tenant] = now
	}
	delete(a.before[tenant], h)
	now[h] = struct{}{}
	return nil
}

// ruleAppendable is where rules write to.
type ruleAppendable struct{ e *Engine }

// Appender implements storage.Appendable.
func (r ruleAppendable) Appender(ctx context.Context) storage.Appender {
	if round, ok := ctx.Value(roundKey{}).(*round); ok {
		round.settle() // the rule has its alerts
	}
	app := r.e.tee.Appender(ctx)
	if c, ok := ctx.Value(classKey{}).(class); ok && !c.Platform {
		return &ruleAppender{Appender: app, e: r.e, tenant: c.Tenant}
	}
	return app
}

type ruleAppender struct {
	storage.Appender
	e      *Engine
	tenant string
}

// Append implements storage.Appender.
func (a *ruleAppender) Append(ref storage.SeriesRef, l labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	if name := l.Get(labels.MetricName); name == "ALERTS" || name == "ALERTS_FOR_STATE" {
		if err := a.e.alerts.admit(a.tenant, l, a.e.opts.Now()); err != nil {
			return 0, err
		}
	}
	return a.Appender.Append(ref, l, t, v)
}
