package filter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"muster.dev/muster/internal/fleet"
)

// TestRandomScrapesKeepTheRules plays random pages of several targets under
// changing policies, and watches what a store at the other end would see.
func TestRandomScrapesKeepTheRules(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		w := &watcher{t: t, seed: seed, lastT: map[string]int64{}, flows: map[string]bool{}}
		table := NewTable(randomPolicy(t, rnd))
		loops := []*loop{{}, {}, {}}
		now := int64(1_000_000)
		for range 120 {
			now += 1000 * (1 + rnd.Int64N(15))
			if rnd.IntN(25) == 0 {
				p := randomPolicy(t, rnd)
				table.SetPolicy(p, now, w.emit)
				w.check(table, p)
				continue
			}
			l := rnd.IntN(len(loops))
			loops[l].scrape(rnd, table, uint64(l), now, w.emit)
			w.check(table, table.policy)
		}
		// The same pages again: by now who has a reserved place has it.
		for range 2 {
			for id, l := range loops {
				now += 1000
				s := table.Begin(uint64(id), id == 2, now)
				for _, ls := range l.seen {
					if ref, err := s.Append(l.refs[ls.String()], ls, now, 1); err == nil {
						l.refs[ls.String()] = ref
					}
				}
				s.Commit(w.emit)
			}
		}
		w.check(table, table.policy)
		w.checkReserved(table)
		// All targets go away: in the end nothing flows and nothing is left.
		table.SetPolicy(table.policy, now, w.emit)
		for range 3 {
			now += 3_600_000 * 6
			s := table.Begin(99, false, now)
			s.Commit(w.emit)
		}
		for ls, flows := range w.flows {
			if flows {
				t.Errorf("seed %d: %s never ended", seed, ls)
			}
		}
		if st := table.Stats(); st.Series != 0 || st.Exempt != 0 || len(table.outs) != 0 || len(table.byRaw) != 0 || len(table.free) != len(table.members) {
			t.Errorf("seed %d: left over: %+v, %d outputs, %d of %d members", seed, st, len(table.outs), len(table.members)-len(table.free), len(table.members))
		}
		if t.Failed() {
			return
		}
	}
}

func randomPolicy(t *testing.T, rnd *rand.Rand) *Policy {
	p := fleet.CollectionPolicy{SeriesBudget: 1 + rnd.IntN(12), Interval: 15 * time.Second, SpoolMaxBytes: 1 << 20, SpoolMaxAge: time.Hour, Aggregations: map[string]string{}}
	for _, n := range []string{"a", "b", "c", "d"} {
		if rnd.IntN(4) > 0 {
			p.AllowNames = append(p.AllowNames, n)
		}
		if rnd.IntN(2) == 0 {
			p.Aggregations[n] = []string{"sum", "max", "min", "count"}[rnd.IntN(4)]
		}
	}
	for _, n := range []string{"b", "d"} {
		if rnd.IntN(2) == 0 {
			p.Reserve = append(p.Reserve, n)
		}
	}
	for _, l := range []string{"x", "y"} {
		if rnd.IntN(2) == 0 {
			p.DropLabels = append(p.DropLabels, l)
		}
	}
	c, err := Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type loop struct {
	refs map[string]uint64
	seen []labels.Labels
}

func (l *loop) scrape(rnd *rand.Rand, table *Table, id uint64, now int64, emit func(Out)) {
	if l.refs == nil || rnd.IntN(20) == 0 {
		l.refs = map[string]uint64{} // a new loop knows no refs
	}
	s := table.Begin(id, id == 2, now)
	var page []labels.Labels
	for range rnd.IntN(10) {
		ls := labels.FromStrings("__name__", string(rune('a'+rnd.IntN(5))), "x", fmt.Sprint(rnd.IntN(2)), "y", fmt.Sprint(rnd.IntN(3)), "own", fmt.Sprint(max(id, 1)))
		if slices.ContainsFunc(page, func(o labels.Labels) bool { return labels.Equal(o, ls) }) {
			continue
		}
		page = append(page, ls)
		ref, err := s.Append(l.refs[ls.String()], ls, now, rnd.Float64())
		if err == nil {
			l.refs[ls.String()] = ref
		}
	}
	if rnd.IntN(10) == 0 {
		s.Rollback()
		s, page = table.Begin(id, id == 2, now), nil
	}
	for _, ls := range l.seen {
		if !slices.ContainsFunc(page, func(o labels.Labels) bool { return labels.Equal(o, ls) }) {
			_, _ = s.Append(l.refs[ls.String()], ls, now, math.Float64frombits(value.StaleNaN))
		}
	}
	l.seen = page
	s.Commit(emit)
}

// watcher is the store at the other end.
type watcher struct {
	t     *testing.T
	seed  uint64
	lastT map[string]int64
	flows map[string]bool
}

func (w *watcher) emit(o Out) {
	ls := o.Labels.String()
	if o.T <= w.lastT[ls] {
		w.t.Errorf("seed %d: %s at %d after %d", w.seed, ls, o.T, w.lastT[ls])
	}
	w.lastT[ls] = o.T
	stale := value.IsStaleNaN(o.V)
	if stale && !w.flows[ls] {
		w.t.Errorf("seed %d: stale marker for %s, which does not flow", w.seed, ls)
	}
	w.flows[ls] = !stale
}

// reservedWaits says whether a series with a reserved place that is still served has
// none: one that was refused and did not come again is not asked.
func (t *Table) reservedWaits() bool {
	for i := range t.members {
		if m := &t.members[i]; m.used && m.out == nil && m.reason == ByBudget && m.lastSeen == t.owners[m.owner].lastScrape && t.policy.Reserves(m.labels.Get("__name__")) {
			return true
		}
	}
	return false
}

func (w *watcher) checkReserved(table *Table) {
	if !table.reservedWaits() {
		return
	}
	for _, o := range table.outs {
		for ; o != nil; o = o.next {
			if !o.exempt && !table.policy.Reserves(o.labels.Get("__name__")) {
				w.t.Errorf("seed %d: %s has a place, and a series with a reserved one has none", w.seed, o.labels)
			}
		}
	}
}

// check compares the table's counts with what flows.
func (w *watcher) check(table *Table, p *Policy) {
	st := table.Stats()
	if st.Series > p.budget {
		w.t.Errorf("seed %d: %d series, budget %d", w.seed, st.Series, p.budget)
	}
	counted, exempt, live := 0, 0, map[string]bool{}
	for _, o := range table.outs {
		for ; o != nil; o = o.next {
			if o.exempt {
				exempt++
			} else {
				counted++
			}
			if o.flows && o.live == 0 {
				w.t.Errorf("seed %d: %s flows without a source", w.seed, o.labels)
			}
			if o.flows {
				live[o.labels.String()] = true
			}
		}
	}
	if counted != st.Series || exempt != st.Exempt {
		w.t.Errorf("seed %d: counted %d+%d, stats %+v", w.seed, counted, exempt, st)
	}
	for ls, flows := range w.flows {
		if flows != live[ls] {
			w.t.Errorf("seed %d: %s: flows %v, live %v", w.seed, ls, flows, live[ls])
		}
		if flows && !strings.Contains(ls, `own="2"`) && !p.Allows(ls[strings.Index(ls, `"`)+1:strings.Index(ls, `"`)+2]) {
			w.t.Errorf("seed %d: %s flows against the policy", w.seed, ls)
		}
	}
}

func TestNativeHistograms(t *testing.T) {
	p, err := Compile(policyOf(t, []byte(`{"allowNames": ["h"], "dropLabels": ["x"], "aggregations": {"h": "sum"}}`)))
	if err != nil {
		t.Fatal(err)
	}
	table := NewTable(p)
	s := table.Begin(1, false, 1000)
	h := &histogram.Histogram{Count: 3, Sum: 4}
	for _, x := range []string{"0", "1"} {
		if _, err := s.AppendHistogram(0, labels.FromStrings("__name__", "h", "x", x), 1000, h, nil); err != nil {
			t.Fatal(err)
		}
	}
	var got []Out
	s.Commit(func(o Out) { got = append(got, o) })
	if len(got) != 1 || got[0].H != h || table.Stats().Dropped[ByDuplicate] != 1 {
		t.Errorf("got %+v, %+v", got, table.Stats())
	}
}

func TestMetadata(t *testing.T) {
	p, err := Compile(policyOf(t, []byte(`{"allowPatterns": [".*"], "dropLabels": ["x"], "aggregations": {"n": "count"}}`)))
	if err != nil {
		t.Fatal(err)
	}
	table := NewTable(p)
	s := table.Begin(1, false, 1000)
	for _, n := range []string{"m", "n"} {
		ref, err := s.Append(0, labels.FromStrings("__name__", n, "x", "1"), 1000, 1)
		if err != nil {
			t.Fatal(err)
		}
		s.SetMetadata(ref, "counter", "bytes")
	}
	var got []string
	s.Commit(func(o Out) { got = append(got, fmt.Sprint(o.Labels.Get("__name__"), " ", o.Type, " ", o.Unit)) })
	if s := strings.Join(got, ", "); s != "m counter bytes, n gauge " {
		t.Errorf("got %s", s)
	}
}

func TestKeepRegexpAgrees(t *testing.T) {
	p := policyOf(t, []byte(`{"allowNames": ["a.b", "node_load1"], "allowPatterns": ["x|y", "node_(cpu|memory)_.*"]}`))
	c, err := Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	if want := `up|a\.b|node_load1|(?:node_(cpu|memory)_.*)|(?:x|y)`; c.KeepRegexp() != want {
		t.Errorf("got %s, want %s", c.KeepRegexp(), want)
	}
	for name, want := range map[string]bool{"a.b": true, "axb": false, "x": true, "xy": false, "node_cpu_x": true, "node_load1": true, "node_load15": false, "up": true, "": false} {
		if c.Allows(name) != want {
			t.Errorf("Allows(%q) = %v", name, !want)
		}
	}
}

// BenchmarkScrape is the filter's part of a scrape: 2,000 series that all leave.
func BenchmarkScrape(b *testing.B) {
	p, err := Compile(policyOf(b, []byte(`{"allowPatterns": [".*"], "seriesBudget": 5000}`)))
	if err != nil {
		b.Fatal(err)
	}
	table := NewTable(p)
	ls, refs := make([]labels.Labels, 2000), make([]uint64, 2000)
	for i := range ls {
		ls[i] = labels.FromStrings("__name__", fmt.Sprint("metric_", i%100), "i", fmt.Sprint(i), "instance", "localhost:9100", "job", "node")
	}
	now := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		now += 15000
		s := table.Begin(1, false, now)
		for i := range ls {
			refs[i], _ = s.Append(refs[i], ls[i], now, 1)
		}
		s.Commit(func(Out) {})
	}
}
