package logrules

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func busyState() *state {
	s := newState()
	s.init()
	s.Hash, s.LabelHash, s.Position, s.Judged = "h", "l", t0, t0.UnixMilli()
	s.Keys["paris\x00a"] = &window{First: 1, Last: 2, Buckets: []bucket{{T: 1000, N: 3}, {T: 4000, N: 1, M: 1, Sum: 0.5}}, Terms: map[string]int64{"x": 1}, Value: "v", ValueAt: 7}
	s.Silenced["paris"] = 9
	s.Collecting["paris"] = &collected{Until: 5, Count: 2}
	s.Pending = []pending{{Key: "paris", At: 3}}
	s.Active["paris"] = &active{Site: "paris", Labels: map[string]string{"alertname": "A"}, StartsAt: 4, Lasting: true}
	s.Ended = []*active{{Site: "rome", StartsAt: 1, Until: 2}}
	return s
}

// FuzzState: whatever a document says, a rule with it evaluates and writes again.
func FuzzState(f *testing.F) {
	text, err := json.Marshal(busyState())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, byte(0))
	for i, text := range []string{`{"keys":{"a":null},"active":{"a":null},"ended":[null],"collecting":{"x":null}}`, `{"judged":-5,"position":"2026-11-21T11:59:00Z","keys":{"paris":{"b":[{"t":5},{"t":1}]}}}`} {
		f.Add([]byte(text), byte(i))
	}
	f.Fuzz(func(t *testing.T, b []byte, which byte) {
		_, _ = decodeIndex(b)
		_, _ = decodeState(b)
		_, _ = decodeLease(b)
		packed := packer().EncodeAll(b, nil)
		_, _ = decodeIndex(packed)
		s, err := decodeState(packed)
		if err != nil {
			return
		}
		s.init()
		rules := []string{"{type: frequency, num_events: 3, timeframe: 1m}", "{type: flatline, threshold: 1, timeframe: 1h}", "{type: change, compare_key: pod}", "{type: cardinality, cardinality_field: pod, min_cardinality: 1, max_cardinality: 2, timeframe: 5m}", "{type: new_term, fields: [pod]}"}
		w := newWorld(t, "paris")
		w.use("acme", rules[int(which)%len(rules)])
		for _, ps := range w.runner().plans {
			p := ps[0]
			sites := selected(p, w.sites)
			end := t0.UnixMilli()
			s.Judged = min(max(s.Judged, end-10*minute), end) // as read does: in stretches
			box := &outbox{p: p, st: s, sites: sites, limits: limits{10, 10}, now: end}
			box.left()
			r := &round{p: p, st: s, sites: sites, limits: limits{10, 10}, after: end - minute, upTo: end, from: s.Judged, to: max(s.Judged, floor(end, p.step))}
			g := Group{Key: []string{"paris"}, Time: t0, Count: 1, First: t0, Last: t0}
			if p.perValue {
				g.Key = append(g.Key, "v")
			}
			r.run([][]Group{{g}})
			box.take(r.events, end)
			_, taken := box.toSend()
			taken()
			if _, err := s.encode(); err != nil && len(s.Active)+len(s.Ended) == 0 {
				t.Fatal(err)
			}
		}
	})
}

func TestStateRoundTrip(t *testing.T) {
	b, err := busyState().encode()
	if err != nil {
		t.Fatal(err)
	}
	s, err := decodeState(b)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.encode()
	if err != nil || !bytes.Equal(b, again) {
		t.Errorf("%v: %d and %d bytes", err, len(b), len(again))
	}
	if _, err := decodeState(packer().EncodeAll([]byte(`{"v":99}`), nil)); err != errVersion {
		t.Error(err)
	}
}

// A state that is too big gives up what can be learned again, not alerts.
func TestStateShrinks(t *testing.T) {
	s := newState()
	s.init()
	for i := range 30_000 {
		k := "paris\x00" + termHash(fmt.Sprint("k", i))
		s.Keys[k] = &window{Last: int64(i) * 1000, Terms: map[string]int64{termHash(fmt.Sprint(i)): int64(i), termHash(fmt.Sprint(i, "x")): int64(i * 7)}}
	}
	s.Active["paris"] = &active{Site: "paris"}
	b, err := s.encode()
	if err != nil || len(b) > maxValue {
		t.Fatal(err, len(b))
	}
	if s.Cut == 0 || len(s.Keys) == 0 || len(s.Active) != 1 {
		t.Errorf("cut %d, %d keys, %d alerts", s.Cut, len(s.Keys), len(s.Active))
	}
	for _, w := range s.Keys {
		if w.Last < 1000*1000 {
			t.Fatal("an old window stayed and newer ones went")
		}
	}
}

// The largest state that the bounds allow for the usual rule fits.
func TestFullStateFits(t *testing.T) {
	s := newState()
	s.init()
	for i := range DefaultMaxKeys {
		k := fmt.Sprintf("site-%d\x00checkout-%s", i%1000, termHash(fmt.Sprint(i)))
		w := &window{First: t0.UnixMilli() - int64(i)*997, Last: t0.UnixMilli()}
		for b := range 20 {
			w.Buckets = append(w.Buckets, bucket{T: t0.UnixMilli() + int64(b)*15000, N: int64(i*b*7919%1000) + 1, First: int64(i * b % 16 * 937), Last: int64(i * b * 31 % 16 * 937), Seen: t0.UnixMilli()})
		}
		s.Keys[k] = w
	}
	b, err := s.encode()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d keys of 20 steps: %d bytes", DefaultMaxKeys, len(b))
	if s.Cut > 0 {
		t.Logf("%d keys had to go", s.Cut)
	}
}

func TestKeysOfTheState(t *testing.T) {
	id := unitID{strings.Repeat("t", 63), strings.Repeat("o", 253), strings.Repeat("R", 100), strings.Repeat("s", 63)}
	if k := id.key(); len(k) > 512 {
		t.Error(len(k))
	}
	other := id
	other.Object = id.Object[:252] + "x"
	if id.key() == other.key() {
		t.Error("two objects, one key")
	}
}

// BenchmarkEvaluate is one evaluation of 20 rules over 1,000 sites, each of which has sent
// a line in ten since the last one.
func BenchmarkEvaluate(b *testing.B) {
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("site-%04d", i))
	}
	w := newWorld(b, names...)
	var rules []string
	for i := range 20 {
		rules = append(rules, []string{
			fmt.Sprintf("{name: R%d, type: frequency, num_events: 1000, timeframe: 5m, query_key: [pod]}", i),
			fmt.Sprintf("{name: R%d, type: flatline, threshold: 1, timeframe: 10m}", i),
			fmt.Sprintf("{name: R%d, type: spike, timeframe: 10m, spike_height: '3', spike_type: both, threshold_ref: 100}", i),
			fmt.Sprintf("{name: R%d, type: cardinality, cardinality_field: pod, max_cardinality: 100, timeframe: 5m}", i),
		}[i%4])
	}
	w.use("acme", rules...)
	r := w.runner()
	src := &cannedSource{w: w, names: names}
	r.o.Source = src
	round1(r)
	for range 40 { // windows are full
		w.now = w.now.Add(DefaultInterval)
		round1(r)
	}
	b.ResetTimer()
	puts := w.state.puts
	for b.Loop() {
		w.now = w.now.Add(DefaultInterval)
		round1(r)
	}
	b.ReportMetric(float64(w.state.puts-puts)/float64(b.N), "puts/op")
	var size int
	for k, v := range w.state.docs {
		if strings.HasPrefix(k, "logrules/rule/") {
			size += len(v)
		}
	}
	b.ReportMetric(float64(size)/20, "bytes/rule")
	for _, u := range r.units {
		if u.err != nil {
			b.Fatal(u.err)
		}
	}
}

// cannedSource answers at once: one group for each site.
type cannedSource struct {
	w     *world
	names []string
}

func (s *cannedSource) Now(context.Context) (time.Time, error) { return s.w.now, nil }

func (s *cannedSource) Groups(_ context.Context, q Query) (Groups, error) {
	out := make([]Group, 0, len(q.Sites))
	at := q.UpTo.Add(-time.Second)
	step := q.Step.Milliseconds()
	for _, n := range q.Sites {
		key := append(make([]string, 0, 3), n)
		for range q.By[1:] {
			key = append(key, "pod-1")
		}
		out = append(out, Group{Key: key, Time: time.UnixMilli(at.UnixMilli() / step * step), Count: 10, First: at, Last: at, Message: "something happened"})
	}
	return Groups{Groups: out}, nil
}
