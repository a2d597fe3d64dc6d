package logrules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/logquery"
	"muster.dev/muster/internal/wire"
)

var t0 = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// line is one record of memSource.
type line struct {
	tenant, site string
	at, ingested time.Time
	fields       map[string]string // by the stores' names
	message      string
}

// memSource answers as Source says: lines by ingest, once, counted by their own time.
type memSource struct {
	mu      sync.Mutex
	now     func() time.Time
	lines   []line
	told    time.Time // the latest Now: no line may appear at or before it
	err     error
	failBy  string                    // a field by which nothing can be grouped
	extra   []Group                   // more than was asked for
	most    time.Duration             // of one query; 0: any
	slow    func(Query) time.Duration // how long one takes; nil: no time
	queries []Query
}

func (s *memSource) Now(context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.told = s.now()
	}
	return s.now(), s.err
}

func (s *memSource) Groups(_ context.Context, q Query) (Groups, error) {
	if s.slow != nil {
		time.Sleep(s.slow(q)) // in a bubble of synctest
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return Groups{}, s.err
	}
	if s.failBy != "" && slices.Contains(q.By, s.failBy) {
		return Groups{}, errInjected
	}
	s.queries = append(s.queries, q)
	if q.By[0] != logquery.FieldSite || q.UpTo.After(s.now()) || !q.After.Before(q.UpTo) || q.Step <= 0 {
		return Groups{}, fmt.Errorf("a query outside of what Source allows: %+v", q)
	}
	if s.most > 0 && q.UpTo.Sub(q.After) > s.most {
		return Groups{}, fmt.Errorf("%w: %s", ErrTooMuch, q.UpTo.Sub(q.After))
	}
	node, err := logquery.Parse(q.Text, logquery.LogFields(), s.now())
	if err != nil {
		return Groups{}, err
	}
	sites := map[string]bool{}
	for _, n := range q.Sites {
		sites[n] = true
	}
	groups := map[string]*Group{}
	for _, l := range s.lines {
		if l.tenant != q.Tenant || !sites[l.site] || !l.ingested.After(q.After) || l.ingested.After(q.UpTo) || !l.matches(node) {
			continue
		}
		add(groups, q, l)
	}
	out := Groups{Groups: slices.Clone(s.extra)}
	for _, k := range slices.Sorted(maps.Keys(groups)) {
		if len(out.Groups) == q.MaxGroups {
			out.Truncated = true
			break
		}
		out.Groups = append(out.Groups, *groups[k])
	}
	return out, nil
}

func add(groups map[string]*Group, q Query, l line) {
	key := []string{l.site}
	for _, f := range q.By[1:] {
		key = append(key, l.fields[f])
	}
	step := q.Step.Milliseconds()
	at := time.UnixMilli(l.at.UnixMilli() / step * step).UTC()
	id := strings.Join(key, "\x00") + at.String()
	g := groups[id]
	if g == nil {
		g = &Group{Key: key, Time: at, First: l.at, Last: l.at, Message: l.message, Include: l.of(q.Include)}
		groups[id] = g
	}
	g.Count++
	if l.at.Before(g.First) {
		g.First = l.at
	}
	if l.at.After(g.Last) {
		g.Last, g.Message, g.Include = l.at, l.message, l.of(q.Include)
	}
	var v float64
	if _, err := fmt.Sscanf(l.fields[q.Metric], "%g", &v); q.Metric != "" && err == nil {
		if g.MetricCount == 0 {
			g.Min, g.Max = v, v
		}
		g.MetricCount++
		g.Min, g.Max, g.Sum = min(g.Min, v), max(g.Max, v), g.Sum+v
		if q.Spread {
			g.Spread = g.Spread.Add(v, 1)
		}
	}
}

func (l line) of(names []string) (values []string) {
	for _, name := range names {
		values = append(values, l.fields[name])
	}
	return values
}

func (l line) matches(n logquery.Node) bool {
	get := func(f logquery.Field, key string) string {
		if key != "" {
			return l.fields[f.Name+"."+key]
		}
		if f.Name == logquery.FieldMessage {
			return l.message
		}
		return l.fields[f.Name]
	}
	switch n := n.(type) {
	case logquery.All:
		return true
	case logquery.And:
		return !slices.ContainsFunc(n, func(n logquery.Node) bool { return !l.matches(n) })
	case logquery.Or:
		return slices.ContainsFunc(n, l.matches)
	case logquery.Not:
		return !l.matches(n.Node)
	case logquery.Exists:
		return get(n.Field, n.Key) != ""
	case logquery.Term:
		if n.Field.Kind == logquery.Text {
			return strings.Contains(l.message, n.Value)
		}
		return get(n.Field, n.Key) == n.Value
	case logquery.Matcher:
		return get(n.Of()) != "" && n.Matches(get(n.Of()))
	}
	panic(fmt.Sprintf("%T is not needed so far", n))
}

// memState is a State; fail may make a call fail before or after it took effect.
type memState struct {
	mu   sync.Mutex
	docs map[string][]byte
	ver  map[string]int
	n    int
	fail func(op, key string) (before, after error)
	puts int
}

func newMemState() *memState { return &memState{docs: map[string][]byte{}, ver: map[string]int{}} }

func (s *memState) faults(op, key string) (before, after error) {
	if s.fail == nil {
		return nil, nil
	}
	return s.fail(op, key)
}

func (s *memState) Get(_ context.Context, key string) ([]byte, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err, _ := s.faults("get", key); err != nil {
		return nil, "", err
	}
	if _, ok := s.docs[key]; !ok {
		return nil, "", ErrNoState
	}
	return slices.Clone(s.docs[key]), fmt.Sprint(s.ver[key]), nil
}

func (s *memState) Put(_ context.Context, key string, value []byte, version string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after := s.faults("put", key)
	if before != nil {
		return "", before
	}
	if _, ok := s.docs[key]; ok != (version != "") || ok && fmt.Sprint(s.ver[key]) != version {
		return "", ErrConflict
	}
	if len(value) >= 1<<20 || len(key) > 512 {
		return "", fmt.Errorf("%s: %d bytes", key, len(value))
	}
	s.n++
	s.puts++
	s.docs[key], s.ver[key] = slices.Clone(value), s.n
	return fmt.Sprint(s.n), after
}

func (s *memState) Delete(_ context.Context, key, version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.docs[key]; !ok {
		return ErrNoState
	}
	if fmt.Sprint(s.ver[key]) != version {
		return ErrConflict
	}
	delete(s.docs, key)
	return nil
}

// memSink is an Alertmanager that remembers everything.
type memSink struct {
	mu    sync.Mutex
	now   func() time.Time
	sends []sent
	fail  func() (before, after error)
}

type sent struct {
	wire.Alert
	when time.Time
}

func (s *memSink) Send(_ context.Context, alerts []wire.Alert) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var before, after error
	if s.fail != nil {
		before, after = s.fail()
	}
	if before != nil {
		return before
	}
	for _, a := range alerts {
		s.sends = append(s.sends, sent{a, s.now()})
	}
	return after
}

func id(labels map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if k != "alertname" && k != "severity" && k != "tenant" && k != "region" && k != "virtual_sites" {
			parts = append(parts, k+"="+labels[k])
		}
	}
	return labels["alertname"] + "{" + strings.Join(parts, ",") + "}"
}

// raised lists alerts that fired at some time when they were sent, as NAME{LABELS}@SECONDS since t0.
func (s *memSink) raised() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]bool{}
	for _, a := range s.sends {
		if a.EndsAt.After(a.when) {
			out[fmt.Sprintf("%s@%g", id(a.Labels), a.StartsAt.Sub(t0).Seconds())] = true
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// firing lists alerts that fire now, by what was sent last.
func (s *memSink) firing() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := map[string]time.Time{}
	for _, a := range s.sends {
		last[id(a.Labels)] = a.EndsAt
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(last)) {
		if last[k].After(s.now()) {
			out = append(out, k)
		}
	}
	return out
}

type world struct {
	t     testing.TB
	now   time.Time
	src   *memSource
	state *memState
	sink  *memSink
	sites []Site
	rules []region.Rules
}

func newWorld(t testing.TB, sites ...string) *world {
	w := &world{t: t, now: t0, state: newMemState(), sites: []Site{}}
	w.src = &memSource{now: func() time.Time { return w.now }}
	w.sink = &memSink{now: func() time.Time { return w.now }}
	for _, s := range sites {
		w.sites = append(w.sites, Site{Tenant: "acme", Name: s, Region: "eu", VirtualSites: []string{"shared/all"}})
	}
	return w
}

func (w *world) rule(text string) v1alpha1.LogRule {
	w.t.Helper()
	r := v1alpha1.LogRule{Name: "R"}
	if err := yaml.UnmarshalStrict([]byte(text), &r); err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) use(tenant string, texts ...string) {
	w.t.Helper()
	set := region.LogRuleSet{Name: "rules"}
	for _, t := range texts {
		set.Spec.Rules = append(set.Spec.Rules, w.rule(t))
	}
	w.rules = []region.Rules{{Tenant: tenant, Logs: []region.LogRuleSet{set}}}
}

func (w *world) runner(change ...func(*Options)) *Runner {
	w.t.Helper()
	o := Options{Name: "one", Source: w.src, State: w.state, Sink: w.sink, Sites: func() []Site { return w.sites },
		Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return w.now }, Concurrency: 1}
	for _, c := range change {
		c(&o)
	}
	r, err := New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	if errs := r.SetRules(w.rules); len(errs) > 0 {
		w.t.Fatal(errs)
	}
	return r
}

// round is what Run does in one Interval.
func round1(r *Runner) {
	r.keep(context.Background())
	r.once(context.Background())
}

// run lets time go by in Intervals, with a round at each end.
func (w *world) run(d time.Duration, rs ...*Runner) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(min(DefaultInterval, end.Sub(w.now)))
		for _, r := range rs {
			round1(r)
		}
	}
}

// log takes lines in now, written at seconds since t0. text is SITE MESSAGE, fields are k=v.
func (w *world) log(site, message string, at float64, fields ...string) {
	f := map[string]string{logquery.FieldSite: site}
	for _, kv := range fields {
		k, v, _ := strings.Cut(kv, "=")
		if c, ok := logquery.LogFields()[k]; ok {
			k = c.Name
		}
		f[k] = v
	}
	w.src.mu.Lock()
	defer w.src.mu.Unlock()
	ingested := w.now
	if !ingested.After(w.src.told) {
		ingested = w.src.told.Add(time.Millisecond)
	}
	w.src.lines = append(w.src.lines, line{"acme", site, t0.Add(time.Duration(at * float64(time.Second))), ingested, f, message})
}

func (w *world) expect(what string, got []string, want ...string) {
	w.t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

var errInjected = errors.New("injected")
