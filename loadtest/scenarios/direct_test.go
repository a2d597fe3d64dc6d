package scenarios

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"

	"muster.dev/muster/collector"
	"muster.dev/muster/collector/filter"
	"muster.dev/muster/health"
	"muster.dev/muster/health/defaults"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/loadtest/simsite"
)

// direct does for a site what its collector does, without text, HTTP, spool and remote
// write: it hands what the exporters have to the real filter and what that lets through to
// the regional's database. Failed scrapes, markers of series that end, a line that is cut or
// slow, and the collector's own series are as with a collector; TestDirect compares the two.
type direct struct {
	s       *simulated
	table   *filter.Table
	targets []*directTarget
	own     *directTarget
	began   time.Time

	mu     sync.Mutex
	queue  []directBatch
	spare  [][]filter.Out // to be used again
	ahead  float64        // samples that exporters say are of the future
	ready  chan struct{}  // has something while the queue may
	newest int64          // sample that was delivered, milliseconds since 1970
	failed float64        // pushes
}

type directTarget struct {
	id            uint64
	job, instance string
	page          simsite.NodePage
	series        []directSeries
	names         map[string]int // places in series, by text
	samples       []simsite.Sample
	scrapes       int
	up, took, all directSeries
	passed, added directSeries

	stored []storedSeries // by place in the last batch; belongs to deliver
}

type storedSeries struct {
	from labels.Labels
	life time.Time // of the site
	*stamped
}

// directBatch is what one scrape brought.
type directBatch struct {
	of   *directTarget
	outs []filter.Out
}

type directSeries struct {
	labels  labels.Labels
	kind    model.MetricType
	ref     uint64
	scrape  int  // in which it was seen last
	dropped bool // by the rules of the collector's scrape configurations
}

// scrapeTimeout is what a collector gives an exporter.
const scrapeTimeout = 10 * time.Second

func newDirect(s *simulated, policy fleet.CollectionPolicy, compiled *filter.Policy) (*direct, error) {
	d := &direct{s: s, table: filter.NewTable(compiled), ready: make(chan struct{}, 1), began: time.Now()}
	nodes := s.sim.Nodes()
	var drop []*regexp.Regexp
	for _, x := range policy.DropSeries {
		re, err := regexp.Compile("^(?:(?:" + x.Metric + ");(?:" + x.Values + "))$")
		if err != nil {
			return nil, err
		}
		drop = append(drop, re)
	}
	for _, p := range s.sim.NodePages() {
		if len(s.sc.Site.Exporters) > 0 && !contains(s.sc.Site.Exporters, p.Exporter) {
			continue
		}
		t := newDirectTarget(len(d.targets)+1, p.Exporter, p.Exporter)
		if p.Node >= 0 {
			t.instance = nodes[p.Node]
		}
		t.page = p
		for _, x := range p.Series() {
			one, err := t.parse(x.Text)
			if err != nil {
				return nil, err
			}
			one.kind = model.MetricType(x.Type)
			for i, re := range drop {
				one.dropped = one.dropped || re.MatchString(one.labels.Get(model.MetricNameLabel)+";"+one.labels.Get(policy.DropSeries[i].Label))
			}
			t.series = append(t.series, one)
		}
		if err := t.reports(); err != nil {
			return nil, err
		}
		d.targets = append(d.targets, t)
	}
	d.own = newDirectTarget(len(d.targets)+1, "muster-edge", "muster-edge")
	return d, d.own.reports()
}

func newDirectTarget(id int, job, instance string) *directTarget {
	return &directTarget{id: uint64(id), job: job, instance: instance, names: map[string]int{}}
}

// parse reads NAME{LABELS} and adds the target's labels.
func (t *directTarget) parse(text string) (directSeries, error) {
	p := textparse.NewPromParser([]byte(text+" 0\n"), labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return directSeries{}, fmt.Errorf("no series: %s", text)
		} else if err != nil {
			return directSeries{}, fmt.Errorf("%s: %w", text, err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var ls labels.Labels
		p.Labels(&ls)
		b := labels.NewBuilder(ls)
		for name, v := range map[string]string{model.JobLabel: t.job, model.InstanceLabel: t.instance} {
			if was := ls.Get(name); was != "" {
				b.Set(model.ExportedLabelPrefix+name, was)
			}
			b.Set(name, v)
		}
		return directSeries{labels: b.Labels(), kind: model.MetricTypeGauge}, nil
	}
}

// reports prepares what a scrape says of itself.
func (t *directTarget) reports() error {
	for name, to := range map[string]*directSeries{
		"up": &t.up, "scrape_duration_seconds": &t.took, "scrape_samples_scraped": &t.all,
		"scrape_samples_post_metric_relabeling": &t.passed, "scrape_series_added": &t.added,
	} {
		var err error
		if *to, err = t.parse(name); err != nil {
			return err
		}
	}
	return nil
}

// Run scrapes and delivers until ctx ends.
func (d *direct) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { d.deliver(ctx) })
	every := cmp.Or(d.s.sc.Site.Interval.D(), fleet.DefaultInterval)
	for i, t := range append(d.targets, d.own) {
		wg.Go(func() {
			// Each at its own moment, as the targets of a collector.
			wait := time.Duration(rand.New(rand.NewPCG(uint64(len(d.s.sc.Name)), uint64(i))).Int64N(int64(every)))
			for sleep(ctx, wait) {
				began := time.Now()
				d.scrape(ctx, t)
				wait = every - time.Since(began)
			}
		})
	}
	wg.Wait()
	return nil
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Status is what the filter says.
func (d *direct) Status() collector.Status {
	st := d.table.Stats()
	return collector.Status{Series: st.Series, Budget: st.Budget, Refused: st.Refused}
}

func (d *direct) scrape(ctx context.Context, t *directTarget) {
	at, up := time.Now(), true
	if t != d.own {
		down, slow := t.page.State()
		if slow > 0 && !sleep(ctx, min(slow, scrapeTimeout)) {
			return
		}
		up = !down && slow < scrapeTimeout
	}
	t.scrapes++
	now := at.UnixMilli()
	sc := d.table.Begin(t.id, t == d.own, now)
	sc.Of(t.job, t.instance)
	all, passed, added := 0, 0, 0
	add := func(x *directSeries, v float64, at int64) {
		all++
		if x.dropped {
			return
		}
		passed++
		ref, err := sc.Append(x.ref, x.labels, cmp.Or(at, now), v)
		if err != nil {
			return
		}
		if ref != x.ref {
			sc.SetMetadata(ref, x.kind, "")
			added++
		}
		x.ref, x.scrape = ref, t.scrapes
	}
	switch {
	case t == d.own:
		d.ownPage(func(text string, v float64) {
			i, ok := t.names[text]
			if !ok {
				x, err := t.parse(text)
				if err != nil {
					d.s.rig.t.Error(err)
				}
				i, t.names[text] = len(t.series), len(t.series)
				t.series = append(t.series, x)
			}
			add(&t.series[i], v, 0)
		})
	case up:
		var err error
		if t.samples, err = t.page.Samples(t.samples[:0]); err != nil {
			d.s.rig.t.Error(err)
		}
		for _, x := range t.samples {
			if x.At > now+10*time.Minute.Milliseconds() { // as the scrape loop does
				d.ahead++
				continue
			}
			add(&t.series[x.Series], x.Value, x.At)
		}
	}
	for i := range t.series {
		if x := &t.series[i]; x.scrape == t.scrapes-1 && x.ref != 0 {
			_, _ = sc.Append(x.ref, x.labels, now, math.Float64frombits(value.StaleNaN))
		}
	}
	for x, v := range map[*directSeries]float64{&t.up: yes(up), &t.took: time.Since(at).Seconds(), &t.all: float64(all), &t.passed: float64(passed), &t.added: float64(added)} {
		x.ref, _ = sc.Append(x.ref, x.labels, now, v)
	}
	batch := d.room()
	sc.Commit(func(o filter.Out) { batch = append(batch, o) })
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = append(d.queue, directBatch{t, batch})
	select {
	case d.ready <- struct{}{}:
	default:
	}
}

func (d *direct) room() []filter.Out {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.spare)
	if n == 0 {
		return make([]filter.Out, 0, 64)
	}
	b := d.spare[n-1]
	d.spare = d.spare[:n-1]
	return b[:0]
}

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// ownPage is what of a collector's own series health reads.
func (d *direct) ownPage(add func(text string, v float64)) {
	st := d.table.Stats()
	d.mu.Lock()
	failed, newest, ahead, waiting := d.failed, d.newest, d.ahead, 0
	for _, b := range d.queue {
		waiting += len(b.outs)
	}
	d.mu.Unlock()
	since := d.began
	if newest > 0 {
		since = time.UnixMilli(newest)
	}
	add("muster_collector_series", float64(st.Series))
	add("muster_collector_series_budget", float64(st.Budget))
	add("muster_collector_series_refused", float64(st.Refused))
	for metric, n := range st.RefusedByName {
		add(fmt.Sprintf("muster_collector_metric_series_refused{metric=%q}", metric), float64(n))
	}
	add("muster_collector_health_series_refused", float64(st.RefusedReserved))
	for _, b := range d.table.Bad(time.Now().UnixMilli()) {
		add(fmt.Sprintf("muster_collector_doubtful_samples{target_job=%q,target=%q,metric=%q,problem=%q}", b.Job, b.Instance, b.Metric, b.Problem), 1)
	}
	for _, r := range filter.Reasons() {
		add(fmt.Sprintf("muster_collector_samples_dropped_total{reason=%q}", r), float64(st.Dropped[r]))
	}
	add(`muster_collector_samples_dropped_total{reason="future"}`, ahead)
	add(`muster_collector_samples_dropped_total{reason="out_of_order"}`, 0)
	add("muster_collector_spool_bytes", float64(20*waiting))
	add("muster_collector_push_errors_total", failed)
	add("muster_collector_push_delay_seconds", max(0, time.Since(since).Seconds()))
	add("muster_edge_build_timestamp_seconds", float64(d.began.Add(-30*24*time.Hour).Unix()))
}

// TestDirect plays scenarios without collectors: what comes out is to be as with them,
// or what many sites in a long time show by it means nothing.
func TestDirect(t *testing.T) {
	list, failing := chosen(t), known(t)
	r := &rig{t: t, direct: true}
	r.run(t, map[string]*health.Model{shipped: defaults.Model()}, list)
	for _, sc := range list {
		if sc.Expect != nil {
			sc.Expect.Within += cmp.Or(sc.Site.Interval, Duration(fleet.DefaultInterval)) // its scrapes have other moments
		}
		if v := judge(sc, r.seen[shipped][sc.Name]); !v.ok() && failing[sc.Name] == "" {
			t.Errorf("%s: %s", sc.Name, strings.Join(v.wrong, "; "))
			for _, o := range r.seen[shipped][sc.Name] {
				t.Log(o)
			}
		}
	}
}
