package rollout

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/muster/control/api/v1alpha1"
)

// remembered is how long the series of a rollout that has ended stay.
const remembered = time.Hour

// A rollout has two dozen series under a name that its tenant chose, which whoever scrapes
// this process keeps for hours. So of a tenant's names shownAtOnce have them, and one more
// each shownEvery; those that had to wait come later.
const (
	shownAtOnce = 200
	shownEvery  = 30 * time.Second
)

// metrics tells of the rollouts that are under way, or ended within the last hour.
type metrics struct {
	passes    *prometheus.HistogramVec
	decisions *prometheus.CounterVec
	phase     *prometheus.Desc
	sites     *prometheus.Desc
	gate      *prometheus.Desc
	moved     *prometheus.Desc

	mu   sync.Mutex
	seen map[types.NamespacedName]*seen
	show map[string]*rate.Limiter // by tenant
}

// seen is a rollout as it was last looked at.
type seen struct {
	tenant string
	status v1alpha1.RolloutStatus
	moved  time.Time // when a site or the phase changed last
}

func newMetrics() *metrics {
	of := []string{"tenant", "namespace", "rollout"}
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append(append([]string{}, of...), more...), nil)
	}
	return &metrics{
		passes:    prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "muster_rollout_pass_seconds", Help: "How long it took to look at a rollout once.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)}, []string{"result"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_rollout_decisions_total", Help: "Decisions about rollouts, by what was decided."}, []string{"what"}),
		phase:     desc("muster_rollout_phase", "1 for the phase that the rollout is in; of one that has ended for an hour.", "phase"),
		sites:     desc("muster_rollout_sites", "Sites of the rollout, by where they stand.", "step"),
		gate:      desc("muster_rollout_gate", "1 for what the gate of the current wave says.", "gate", "verdict"),
		moved:     desc("muster_rollout_progress_timestamp_seconds", "When a site or the phase of the rollout changed last, or its soak got on."),
		seen:      map[types.NamespacedName]*seen{}, show: map[string]*rate.Limiter{},
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	m.passes.Describe(out)
	m.decisions.Describe(out)
	for _, d := range []*prometheus.Desc{m.phase, m.sites, m.gate, m.moved} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	m.passes.Collect(out)
	m.decisions.Collect(out)
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, s := range m.seen {
		if at := s.status.EndedAt; s.status.Phase.Ended() && (at == nil || time.Since(at.Time) > remembered) {
			delete(m.seen, key)
			continue
		}
		gauge := func(d *prometheus.Desc, v float64, more ...string) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{s.tenant, key.Namespace, key.Name}, more...)...)
		}
		gauge(m.phase, 1, string(s.status.Phase))
		gauge(m.moved, float64(s.moved.UnixMilli())/1000)
		n := s.status.Sites
		for step, v := range map[string]int32{"waiting": n.Waiting, "updating": n.Updating, "updated": n.Updated, "passed": n.Passed, "failed": n.Failed, "offline": n.Offline, "held": n.Held, "rolled_back": n.RolledBack} {
			gauge(m.sites, float64(v), step)
		}
		for _, g := range s.status.Gates {
			gauge(m.gate, 1, g.Name, string(g.Verdict))
		}
	}
}

func (m *metrics) decided(list []v1alpha1.RolloutDecision) {
	for _, d := range list {
		m.decisions.WithLabelValues(d.What).Inc()
	}
}

// see takes up how a rollout stands.
func (m *metrics) see(j *job, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.seen[j.key]
	if at := j.r.Status.EndedAt; j.r.Status.Phase.Ended() && (at == nil || now.Sub(at.Time) > remembered) {
		delete(m.seen, j.key)
		return
	}
	if was == nil && !m.showLocked(j.tenant, now) {
		return
	}
	next := &seen{tenant: j.tenant, status: *j.r.Status.DeepCopy(), moved: now}
	if was != nil {
		if was.status.Phase == next.status.Phase && was.status.Sites == next.status.Sites && soaked(&was.status) == soaked(&next.status) {
			next.moved = was.moved
		}
	} else if n := len(next.status.Decisions); n > 0 { // this process has just started
		next.moved = next.status.Decisions[n-1].At.Time
	}
	m.seen[j.key] = next
}

// showLocked tells whether one more rollout of the tenant may have series.
func (m *metrics) showLocked(tenant string, now time.Time) bool {
	l := m.show[tenant]
	if l == nil {
		l = rate.NewLimiter(rate.Every(shownEvery), shownAtOnce)
		m.show[tenant] = l
	}
	return l.AllowN(now, 1)
}

// soaked is how far the gates of the current wave have come.
func soaked(s *v1alpha1.RolloutStatus) (seconds int32) {
	for _, g := range s.Gates {
		seconds += g.Seconds
	}
	return seconds
}

func (m *metrics) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.seen, key)
}
