package engine

import (
	"context"
	"fmt"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"muster.dev/muster/internal/fleet"
)

// alertSeries bounds the series that rules write about a tenant's alerts. They are let
// through where other series meet the tenant's limit, so that no restart forgets an
// alert; but an alert whose labels hold its value is a new one at each evaluation, and
// the head keeps its series for hours.
//
// The head tells of each series that it makes and drops, during the replay of its log
// too. Its PreCreation would be the place to refuse one; but that sees labels and not
// whose rule writes them, and shipped rules' alerts carry their sites' tenant as well.
//
// Safe for concurrent use.
type alertSeries struct {
	tsdb.SeriesLifecycleCallback // is told as well
	limit                        int

	mu   sync.Mutex
	held map[string]int // in the head, by tenant
}

func newAlertSeries(limit int, also tsdb.SeriesLifecycleCallback) *alertSeries {
	if also == nil {
		also = nobody{}
	}
	return &alertSeries{SeriesLifecycleCallback: also, limit: limit, held: map[string]int{}}
}

// nobody is told of series.
type nobody struct{}

func (nobody) PreCreation(labels.Labels) error                     { return nil }
func (nobody) PostCreation(labels.Labels)                          {}
func (nobody) PostDeletion(map[chunks.HeadSeriesRef]labels.Labels) {}

// aboutAlert is the tenant of a series that rules write about an alert; "": it is another.
func aboutAlert(l labels.Labels) string {
	if name := l.Get(labels.MetricName); name != "ALERTS" && name != "ALERTS_FOR_STATE" {
		return ""
	}
	return l.Get(fleet.SeriesTenant)
}

// PostCreation implements tsdb.SeriesLifecycleCallback.
func (a *alertSeries) PostCreation(l labels.Labels) {
	a.count(l, 1)
	a.SeriesLifecycleCallback.PostCreation(l)
}

// PostDeletion implements tsdb.SeriesLifecycleCallback.
func (a *alertSeries) PostDeletion(gone map[chunks.HeadSeriesRef]labels.Labels) {
	for _, l := range gone {
		a.count(l, -1)
	}
	a.SeriesLifecycleCallback.PostDeletion(gone)
}

func (a *alertSeries) count(l labels.Labels, n int) {
	tenant := aboutAlert(l)
	if tenant == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held[tenant] += n; a.held[tenant] == 0 {
		delete(a.held, tenant)
	}
}

// room is an Excess if the tenant can have no new series.
func (a *alertSeries) room(tenant string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held[tenant] < a.limit {
		return nil
	}
	return &Excess{Kind: "series", Text: fmt.Sprintf("tenant %s has %d series about alerts here, its limit; take $value out of the rules' labels: with it an alert is a new one at each evaluation", tenant, a.limit)}
}

// ruleAppendable is where rules write to.
type ruleAppendable struct{ e *Engine }

// Appender implements storage.Appendable.
func (r ruleAppendable) Appender(ctx context.Context) storage.Appender {
	app := r.e.tee.Appender(ctx)
	round, ok := ctx.Value(roundKey{}).(*round)
	if !ok {
		return app
	}
	round.settle() // the rule has its alerts
	return &ruleAppender{Appender: app, e: r.e, round: round}
}

// ruleAppender is for the rules of a tenant.
type ruleAppender struct {
	storage.Appender
	e     *Engine
	round *round
}

// Commit implements storage.Appender.
func (a *ruleAppender) Commit() error {
	a.round.pass() // what follows waits for the disk
	return a.Appender.Commit()
}

// Append implements storage.Appender.
func (a *ruleAppender) Append(ref storage.SeriesRef, l labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	if tenant := aboutAlert(l); tenant != "" && ref == 0 {
		if ref, _ = a.Appender.(storage.GetRef).GetRef(l, l.Hash()); ref == 0 {
			if err := a.e.alerts.room(tenant); err != nil {
				return 0, err
			}
		}
	}
	return a.Appender.Append(ref, l, t, v)
}
