package intake

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/internal/fleet"
)

type metrics struct {
	lines, bytes                        *prometheus.CounterVec // tenant, site
	dropped, changed, messages, refused *prometheus.CounterVec
	connections, full                   prometheus.Gauge

	written, duplicates, retried, deadLettered prometheus.Counter
	storeDown, parkedLoads, parkedLines        prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_logs_intake_" + name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_logs_" + name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_logs_" + name, Help: help})
	}
	m := &metrics{
		lines:    vec("lines_total", "Log lines queued.", "tenant", "site"),
		bytes:    vec("bytes_total", "Bytes of log messages taken, uncompressed.", "tenant", "site"),
		dropped:  vec("dropped_lines_total", "Log lines left out: stream is what the policy does not want, malformed what is no record, too_old what is older than the store keeps lines.", "reason"),
		changed:  vec("changed_lines_total", "Log lines that were changed: utf8 had bytes that are none, truncated were too long, time had an impossible time, labels more fields than a record may have.", "reason"),
		messages: vec("messages_total", "Messages and requests by result: stored, duplicate (acknowledged before), delayed (to be sent again), refused, broken, size differs.", "result"),
		refused:  vec("refused_total", "Senders and messages refused: identity, connections, handshakes, quota (of the tenant's day), silent (a sender that waits for a handshake), signal (metrics and traces).", "reason"),

		connections:  gauge("intake_connections", "Open connections of the forward protocol."),
		full:         gauge("intake_queue_full", "1 while messages of any site are not acknowledged because its part of the queue on disk is full, or the queue can't be written."),
		written:      counter("written_lines_total", "Log lines that the store has taken from the queue."),
		duplicates:   counter("duplicate_lines_total", "Log lines that the store had already; written_lines_total counts them too."),
		retried:      counter("write_retries_total", "Writes to the store that failed and were tried again."),
		deadLettered: counter("dead_letters_total", "Log lines that the store refused for good; they are in the dead-letter file with the reason."),
		storeDown:    gauge("store_down", "1 while writes to the store fail, so that all lines wait."),
		parkedLoads:  gauge("intake_parked_loads", "Writes of which the store refuses some lines for now; they are tried again beside the others."),
		parkedLines:  gauge("intake_parked_lines", "Log lines in parked loads; they are in the queue on disk until the store takes them."),
	}
	for _, c := range []prometheus.Collector{m.lines, m.bytes, m.dropped, m.changed, m.messages, m.refused, m.connections, m.full, m.written, m.duplicates, m.retried, m.deadLettered, m.storeDown, m.parkedLoads, m.parkedLines} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) forget(id fleet.SiteID) {
	m.lines.DeleteLabelValues(id.Tenant, id.Name)
	m.bytes.DeleteLabelValues(id.Tenant, id.Name)
}

// The types of a Condition.
const (
	// ConditionQueueFull: a site is not acknowledged, because its part of the queue is full
	// or the queue can't be written.
	ConditionQueueFull = "LogQueueFull"
	// ConditionStoreDown: lines stay in the queue, because writes to the store fail.
	ConditionStoreDown = "LogStoreDown"
	// ConditionParked: the store refuses some lines for now and takes others, as when an
	// index is blocked. The message names one of the tenants; Status.Parked has all.
	ConditionParked = "LogLinesParked"
	// ConditionOverBudget: a site sends more than its budget and is delayed.
	ConditionOverBudget = "LogBudgetExceeded"
	// ConditionOverQuota: a site is refused until the next day, because its tenant has logged
	// as much as it may in one.
	ConditionOverQuota = "LogQuotaExceeded"
)

// Condition is something that an operator should know. Site is zero when it is the
// regional's own.
type Condition struct {
	Site    fleet.SiteID
	Type    string
	Active  bool
	Message string
	Since   time.Time
}

type conditionKey struct {
	site fleet.SiteID
	typ  string
}

// conditions are those that are active.
type conditions struct {
	changed func(Condition)
	now     func() time.Time

	mu     sync.Mutex
	active map[conditionKey]Condition
}

// set begins or ends a condition, and tells so if that is a change, which it returns.
func (c *conditions) set(cond Condition, active bool) bool {
	k := conditionKey{cond.Site, cond.Type}
	c.mu.Lock()
	defer c.mu.Unlock()
	old, was := c.active[k]
	if was == active {
		return false
	}
	cond.Active, cond.Since = active, c.now()
	if active {
		if c.active == nil {
			c.active = map[conditionKey]Condition{}
		}
		c.active[k] = cond
	} else {
		cond.Message = old.Message
		delete(c.active, k)
	}
	if c.changed != nil {
		c.changed(cond)
	}
	return true
}

func (c *conditions) forget(id fleet.SiteID) {
	for _, typ := range []string{ConditionOverBudget, ConditionOverQuota, ConditionQueueFull} {
		c.set(Condition{Site: id, Type: typ}, false)
	}
}

func (c *conditions) list() []Condition {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Condition, 0, len(c.active))
	for _, cond := range c.active {
		out = append(out, cond)
	}
	slices.SortFunc(out, func(a, b Condition) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Site.String(), b.Site.String()))
	})
	return out
}
