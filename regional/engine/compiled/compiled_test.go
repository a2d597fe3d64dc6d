package compiled_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb"

	"muster.dev/muster/alerting/rules"
	"muster.dev/muster/health/defaults"
	"muster.dev/muster/regional/engine"
	"muster.dev/muster/regional/engine/compiled"
)

// store is a head with series that begin, end, break off, go back, are late and come to
// nothing, and PromQL over it.
type store struct {
	t          *testing.T
	db         *tsdb.DB
	kept, runs *compiled.Recent // runs: of expressions for which samples of one value are one
	ng         *promql.Engine
	rng        *rand.Rand
	now        int64
	lookback   map[*compiled.Program]time.Duration // if it is another one than PromQL's
}

func newStore(t *testing.T, seed uint64) *store {
	t.Helper()
	o := tsdb.DefaultOptions()
	o.OutOfOrderTimeWindow = time.Hour.Milliseconds()
	db, err := tsdb.Open(t.TempDir(), nil, nil, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	ng := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e7, Timeout: time.Minute})
	t.Cleanup(func() { _ = ng.Close() })
	return &store{t: t, db: db, kept: compiled.NewRecent(), runs: compiled.NewRecent(), ng: ng, rng: rand.New(rand.NewPCG(seed, 1)), now: 1_700_000_000_000, lookback: map[*compiled.Program]time.Duration{}}
}

func (s *store) append(ls labels.Labels, at int64, v float64) {
	s.t.Helper()
	app := s.runs.Appender(s.kept.Appender(s.db.Appender(context.Background())))
	if _, err := app.Append(0, ls, at, v); err != nil {
		s.t.Fatal(ls, err)
	}
	if err := app.Commit(); err != nil {
		s.t.Fatal(err)
	}
}

// odd are values that calculation must take as PromQL does.
var odd = []float64{0, 0, 1, 1, 1, 2, 3, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e300, math.Float64frombits(value.StaleNaN), math.Float64frombits(value.StaleNaN)}

// round appends samples of 15 s for some of the series with these metrics, of which there
// are more with time.
func (s *store) round(metrics []string, more func(metric string, n int) labels.Labels) {
	s.now += 15_000
	for _, metric := range metrics {
		for n := range 1 + int(s.now/15_000%40)/4 {
			ls := more(metric, n)
			switch s.rng.IntN(12) {
			case 0: // nothing
			case 1:
				s.append(ls, s.now-int64(s.rng.IntN(5))*1000, odd[s.rng.IntN(len(odd))])
			case 2: // late
				s.append(ls, s.now-int64(s.rng.IntN(600))*1000, float64(s.rng.IntN(50)))
			default:
				at := s.now
				if metric == "b" { // stays for a minute
					at -= at % 60_000
				}
				s.append(ls, s.now-int64(s.rng.IntN(4))*1000, float64(at/15_000%(7+int64(n)*5)))
			}
		}
	}
}

// same compares the two ways at one moment. It says whether the program had an answer.
func (s *store) same(text string, p *compiled.Program, at int64) bool {
	s.t.Helper()
	got, err := p.Eval(context.Background(), s.db, time.UnixMilli(at), func(context.Context) error { return nil })
	if errors.Is(err, compiled.ErrUnsupported) {
		return false
	} else if err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
	q, err := s.ng.NewInstantQuery(context.Background(), s.db, promql.NewPrometheusQueryOpts(false, s.lookback[p]), text, time.UnixMilli(at))
	if err != nil {
		s.t.Fatal(err)
	}
	defer q.Close()
	res := q.Exec(context.Background())
	if res.Err != nil {
		s.t.Fatalf("%s: the program has %d results, PromQL says: %v", text, len(got), res.Err)
	}
	want, err := res.Vector()
	if err != nil {
		s.t.Fatal(err)
	}
	if a, b := lines(got), lines(want); !slices.EqualFunc(a, b, line.same) {
		s.t.Fatalf("%s at %d:\ncompiled %v\nPromQL   %v", text, at, a, b)
	}
	return true
}

type line struct {
	labels string
	t      int64
	v      float64
}

// same allows for sums in another order.
func (l line) same(o line) bool {
	close := math.Abs(l.v-o.v) <= 1e-9*math.Max(math.Abs(l.v), math.Abs(o.v))
	return l.labels == o.labels && l.t == o.t && (l.v == o.v || close || math.IsNaN(l.v) && math.IsNaN(o.v))
}

func lines(v promql.Vector) []line {
	var out []line
	for _, s := range v {
		out = append(out, line{s.Metric.String(), s.T, s.F})
	}
	slices.SortFunc(out, func(a, b line) int { return strings.Compare(a.labels, b.labels) })
	return out
}

var metrics = []string{"a", "b", "c_total"}

func series(metric string, n int) labels.Labels {
	ls := []string{labels.MetricName, metric, "tenant", fmt.Sprint("t", n%2), "site", fmt.Sprint("s", n%3), "pod", fmt.Sprint("p", n)}
	if n%4 == 3 {
		ls = append(ls, "job", "x")
	}
	return labels.FromStrings(ls...)
}

// expression makes one of some depth.
func expression(r *rand.Rand, depth int) string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	selector := func() string {
		return pick("a", "b", "c_total", "missing") + pick("", "", "", `{site="s1"}`, `{site=~"s0|s1"}`, `{job=""}`, `{job!="x"}`, `{pod!~"p[12]"}`)
	}
	offset := func() string { return pick("", "", "", " offset 75s") }
	if depth == 0 {
		if r.IntN(2) == 0 {
			return selector() + offset()
		}
		return pick("rate", "increase", "changes", "resets", "max_over_time", "min_over_time", "avg_over_time", "count_over_time", "sum_over_time", "delta") +
			"(" + selector() + pick("[1m]", "[75s]", "[5m]", "[10m]") + offset() + ")"
	}
	sub := func() string { return expression(r, r.IntN(depth)) }
	number := func() string { return pick("0", "1", "2.5", "100", "-1", "time()", "(1 + 2)") }
	switch r.IntN(8) {
	case 0, 1:
		return pick("sum", "avg", "min", "max", "count") + " by (" + pick("tenant, site", "site", "tenant, site, pod", "", "job") + ") (" + sub() + ")"
	case 2:
		return pick("abs", "-", "timestamp") + "(" + sub() + ")"
	case 3:
		return pick("clamp_max", "clamp_min") + "(" + sub() + ", " + number() + ")"
	case 4:
		op := pick("+", "-", "*", "/", ">", "<", "==", "!=", ">= bool", "<= bool", "> bool")
		if r.IntN(3) == 0 {
			return "(" + number() + " " + op + " " + sub() + ")"
		}
		return "(" + sub() + " " + op + " " + number() + ")"
	case 5:
		return "(" + sub() + " " + pick("and", "or", "unless") + pick("", " on (tenant, site)", " on (site, pod)", " ignoring (pod)") + " " + sub() + ")"
	default:
		return "(" + sub() + " " + pick("+", "-", "*", "/", ">", "== bool", "<") + pick("", "", " on (tenant, site, pod)", " ignoring (job)") + " " + sub() + ")"
	}
}

// TestSameAsPromQL: over random series, random expressions have the same answers compiled
// as by PromQL, while series come and the same programs are asked at one moment after the other.
func TestSameAsPromQL(t *testing.T) {
	s := newStore(t, 3)
	for range 44 {
		s.round(metrics, series)
	}
	texts := map[string]*compiled.Program{}
	each := regexp.MustCompile("rate|increase|delta|(avg|sum|count)_over_time")
	for len(texts) < 200 {
		text, kept := expression(s.rng, 4), s.runs
		if each.MatchString(text) {
			kept = s.kept
		}
		lookback := []time.Duration{45 * time.Second, compiled.Lookback, 2 * compiled.Lookback}[len(texts)%3]
		p, err := compiled.Compile(text, lookback, kept)
		s.lookback[p] = lookback
		if errors.Is(err, compiled.ErrUnsupported) {
			continue
		} else if err != nil {
			t.Fatal(text, err)
		}
		texts[text] = p
	}
	answered, asked := 0, 0
	for range 16 {
		for text, p := range texts {
			asked++
			if s.same(text, p, s.now-int64(s.rng.IntN(60))*1000) {
				answered++
			}
		}
		s.round(metrics, series)
	}
	t.Logf("%d of %d evaluations were not left to PromQL", answered, asked)
	if answered < asked/2 {
		t.Errorf("only %d of %d evaluations had an answer", answered, asked)
	}
	for _, u := range []compiled.Use{s.kept.Use(), s.runs.Use()} {
		if t.Logf("%+v", u); u.Kept < u.Head {
			t.Error("too few samples were kept")
		}
	}
}

// shipped are the expressions that health and the shipped rules ask.
func shipped(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	spec := defaults.HealthPolicy().Spec
	for _, s := range spec.Signals {
		out["signal "+s.Name] = s.Query
	}
	for _, p := range spec.Packs {
		out["pack "+p.Name] = p.When
	}
	groups, errs := rulefmt.Parse(rules.Shipped(engine.Edge).Content, false, model.UTF8Validation)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			out["rule "+r.Alert+r.Record] = r.Expr
		}
	}
	return out
}

// byPromQL are the shipped expressions that can't be compiled, and why that is so.
var byPromQL = map[string]string{
	"signal talos-versions": "a subquery, asked every third tick",
}

// TestShippedExpressionsAreCompiled: a signal that only PromQL can evaluate costs a regional
// ten times as much, so that there is one is a decision.
func TestShippedExpressionsAreCompiled(t *testing.T) {
	for what, text := range shipped(t) {
		_, err := compiled.Compile(text, compiled.Lookback, compiled.NewRecent())
		if (err != nil) != (byPromQL[what] != "") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestHistogramsAreLeftToPromQL: what has a native histogram among its samples.
func TestHistogramsAreLeftToPromQL(t *testing.T) {
	s := newStore(t, 4)
	app := s.kept.Appender(s.db.Appender(t.Context()))
	h := &histogram.Histogram{Count: 1, Sum: 1, Schema: 1, PositiveSpans: []histogram.Span{{Offset: 0, Length: 1}}, PositiveBuckets: []int64{1}}
	if _, err := app.AppendHistogram(0, series("a", 0), s.now, h, nil); err != nil {
		t.Fatal(err)
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	p, err := compiled.Compile("sum by (site) (a)", compiled.Lookback, s.kept)
	if err != nil {
		t.Fatal(err)
	}
	if s.same("sum by (site) (a)", p, s.now) {
		t.Error("the program had an answer")
	}
}

// TestSeriesThatGo: series that the head drops take nothing of those that stay, and what
// is asked about a time that is not in the head is left to PromQL.
func TestSeriesThatGo(t *testing.T) {
	const text = "sum by (site) (a) / sum by (site) (b > 0) or count by (site) (a)"
	s := newStore(t, 5)
	p, err := compiled.Compile(text, compiled.Lookback, s.kept)
	if err != nil {
		t.Fatal(err)
	}
	answered := 0
	for hour := range 12 {
		for range 240 {
			s.now += 15_000
			for n := range 4 {
				for _, m := range metrics[:2] {
					s.append(series(m, n+hour/3*3), s.now, float64(n+1))
				}
			}
			if s.rng.IntN(20) == 0 && s.same(text, p, s.now) {
				answered++
			}
		}
		if err := s.db.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.same(text, p, s.now-(5*time.Hour).Milliseconds()) && hour > 6 {
			t.Error("the head had an answer about a time that it does not hold")
		}
	}
	if n := s.db.Head().NumSeries(); n > 30 {
		t.Errorf("the head has %d series, nothing went", n)
	}
	if answered < 50 {
		t.Errorf("only %d evaluations had an answer", answered)
	}
	s.same(text, p, s.now)
	if kept, has := s.kept.Use().Series, s.db.Head().NumSeries(); uint64(kept) > has {
		t.Errorf("%d series are kept, the head has %d", kept, has)
	}
}

// TestLateSamplesInBlocks: late samples that were moved into a block whose time the head has
// too are not missed, and such a block is in the way no longer than they could be in a window.
func TestLateSamplesInBlocks(t *testing.T) {
	const text = "sum by (site) (count_over_time(a[10m]))"
	for name, c := range map[string]struct {
		start  time.Time
		answer bool
	}{
		"made after its samples came":   {time.UnixMilli(1_700_000_000_000), false},
		"made well before what is read": {time.Now().Add(150 * time.Minute).Truncate(2 * time.Hour), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, 6)
			p, err := compiled.Compile(text, compiled.Lookback, s.kept)
			if err != nil {
				t.Fatal(err)
			}
			for s.now = c.start.UnixMilli(); s.now < c.start.Add(15*time.Minute).UnixMilli(); s.now += 15_000 {
				s.append(series("a", 0), s.now, 1)
			}
			s.append(series("a", 0), s.now-61_000, 1)
			if !s.same(text, p, s.now) {
				t.Error("no answer with a late sample in the head")
			}
			if err := s.db.CompactOOOHead(t.Context()); err != nil {
				t.Fatal(err)
			}
			if blocks := s.db.Blocks(); len(blocks) != 1 || blocks[0].MaxTime() <= s.now {
				t.Fatalf("blocks: %v", blocks)
			}
			for range 80 {
				s.append(series("a", 0), s.now, 1)
				s.now += 15_000
			}
			if got := s.same(text, p, s.now); got != c.answer {
				t.Errorf("answered: %v", got)
			}
		})
	}
}
