package filter

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
)

// TestBadSamples: what no exporter means is told by target and metric for ten minutes,
// and leaves the site as it is.
func TestBadSamples(t *testing.T) {
	p, err := Compile(policyOf(t, []byte(`{"allowPatterns": [".*"]}`)))
	if err != nil {
		t.Fatal(err)
	}
	inf := math.Inf(1)
	for _, c := range []struct {
		name string
		typ  model.MetricType
		rest []string
		vs   []float64
		want Problem
	}{
		{"plain", "gauge", nil, []float64{-5, 1e299}, ""},
		{"nan", "gauge", nil, []float64{math.NaN()}, NotANumber},
		{"summary", "summary", []string{"quantile", "0.5"}, []float64{math.NaN()}, ""},
		{"ttl", "gauge", nil, []float64{inf}, ""}, // a certificate that never expires
		{"below", "gauge", nil, []float64{-inf}, Infinite},
		{"count", "counter", nil, []float64{1, inf}, Infinite},
		{"huge", "gauge", nil, []float64{1e308}, OutOfRange},
		{"deep", "gauge", nil, []float64{-1e308}, OutOfRange},
		{"negative", "counter", nil, []float64{1, -5}, NegativeCounter},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := NewTable(p)
			ls := labels.FromStrings(append([]string{"__name__", c.name}, c.rest...)...)
			now, left, ref := int64(0), 0, uint64(0)
			c.vs = append(c.vs, c.vs[len(c.vs)-1]) // once is nothing yet
			for i, v := range c.vs {
				now = int64(1000 * (i + 1))
				s := table.Begin(1, false, now)
				s.Of("node-exporter", "n1")
				if ref, err = s.Append(ref, ls, now, v); err != nil {
					t.Fatal(err)
				}
				s.SetMetadata(ref, c.typ, "")
				s.Commit(func(Out) { left++ })
			}
			if left != len(c.vs) {
				t.Errorf("%d samples left the site, want %d", left, len(c.vs))
			}
			want := []Bad{{"node-exporter", "n1", c.name, c.want}}
			if c.want == "" {
				want = nil
			}
			if got := table.Bad(now); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if got := table.Bad(now + rememberBad + 1); len(got) > 0 {
				t.Errorf("after ten minutes: %v", got)
			}
		})
	}
}

func TestTypesThatChangeAndDuplicates(t *testing.T) {
	p, err := Compile(policyOf(t, []byte(`{"allowPatterns": [".*"]}`)))
	if err != nil {
		t.Fatal(err)
	}
	table := NewTable(p)
	ls := labels.FromStrings("__name__", "m")
	var ref uint64
	left := 0
	for i, typ := range []model.MetricType{"counter", "gauge"} {
		now := int64(1000 * (i + 1))
		s := table.Begin(1, false, now)
		s.Of("app", "a:1")
		for range 2 {
			if ref, err = s.Append(ref, ls, now, 1); err != nil {
				t.Fatal(err)
			}
		}
		s.SetMetadata(ref, typ, "")
		s.Commit(func(Out) { left++ })
	}
	if want := []Bad{{"app", "a:1", "m", TypeChanged}, {"app", "a:1", "m", Duplicate}}; !slices.Equal(table.Bad(2000), want) {
		t.Errorf("got %v, want %v", table.Bad(2000), want)
	}
	if left != 2 {
		t.Errorf("%d samples left, want one a scrape", left)
	}
}

func TestBadSamplesAreBounded(t *testing.T) {
	p, err := Compile(policyOf(t, []byte(`{"allowPatterns": [".*"], "seriesBudget": 10000}`)))
	if err != nil {
		t.Fatal(err)
	}
	table := NewTable(p)
	for _, now := range []int64{1000, 2000} {
		s := table.Begin(1, false, now)
		for i := range 3 * maxBad {
			if _, err := s.Append(0, labels.FromStrings("__name__", fmt.Sprint("m", i)), now, math.NaN()); err != nil {
				t.Fatal(err)
			}
		}
		s.Commit(func(Out) {})
	}
	if got := table.Bad(2000); len(got) != maxBad {
		t.Errorf("%d are remembered, want %d", len(got), maxBad)
	}
}

// TestRefusedByName: who reads a metric can tell that some of its series are missing.
func TestRefusedByName(t *testing.T) {
	p, err := Compile(policyOf(t, []byte(`{"allowPatterns": [".*"], "seriesBudget": 1, "reserve": ["read"]}`)))
	if err != nil {
		t.Fatal(err)
	}
	table := NewTable(p)
	s := table.Begin(1, false, 1000)
	for i := range 2 * RefusedNames {
		_, _ = s.Append(0, labels.FromStrings("__name__", fmt.Sprint("other", i), "x", "1"), 1000, 1)
		_, _ = s.Append(0, labels.FromStrings("__name__", fmt.Sprint("other", i), "x", "2"), 1000, 1)
	}
	for i := range 3 {
		_, _ = s.Append(0, labels.FromStrings("__name__", "read", "pod", fmt.Sprint(i)), 1000, 1)
	}
	var got []string
	s.Commit(func(o Out) { got = append(got, o.Labels.String()) })
	st := table.Stats()
	if st.RefusedReserved != 2 || st.RefusedByName["read"] != 2 || len(st.RefusedByName) != RefusedNames {
		t.Errorf("refused %d of what is read; by name %v", st.RefusedReserved, st.RefusedByName)
	}
	if want := []string{`{__name__="read", pod="0"}`}; !slices.Equal(got, want) {
		t.Errorf("%v left the site, want %v", got, want)
	}
}

// What a job has is told by the job that scrapes it, whatever the page's own labels say,
// and until the series ends; what is refused is forgotten by the next sweep.
func TestNames(t *testing.T) {
	p, err := Compile(policyOf(t, []byte(`{"allowNames": ["a"], "seriesBudget": 1}`)))
	if err != nil {
		t.Fatal(err)
	}
	table := NewTable(p)
	scrape := func(at int64, v float64) {
		s := table.Begin(1, false, at)
		s.Of("ksm", "i")
		for _, x := range []string{"1", "2"} { // one finds no place in the budget
			_, _ = s.Append(0, labels.FromStrings("__name__", "a", "job", "theirs", "x", x), at, v)
		}
		_, _ = s.Append(0, labels.FromStrings("__name__", "b"), at, v)
		s.Commit(func(Out) {})
	}
	scrape(1000, 1)
	if diff := cmp.Diff(map[string]map[string]int{"a": {"ksm": 2}}, table.Names()); diff != "" {
		t.Error(diff)
	}
	scrape(2000, math.Float64frombits(value.StaleNaN))
	if got := table.Names()["a"]["ksm"]; got != 1 {
		t.Errorf("%d series are left after the one that has a place ended, want the refused one", got)
	}
}

// A value that is no number in one scrape has slipped; in the next one, it is what the exporter serves.
func TestOneBadScrapeIsNoProblemYet(t *testing.T) {
	p, err := Compile(policyOf(t, []byte(`{"allowPatterns": [".*"]}`)))
	if err != nil {
		t.Fatal(err)
	}
	table := NewTable(p)
	for i, want := range []int{0, 1} {
		now := int64(1000 + 15_000*i)
		s := table.Begin(1, false, now)
		s.Of("app", "a:1")
		if _, err := s.Append(0, labels.FromStrings("__name__", "m"), now, math.NaN()); err != nil {
			t.Fatal(err)
		}
		s.Commit(func(Out) {})
		if got := table.Bad(now); len(got) != want {
			t.Errorf("after scrape %d: %v, want %d", i+1, got, want)
		}
	}
}
