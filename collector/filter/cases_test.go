package filter

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/rogpeppe/go-internal/txtar"

	"muster.dev/muster/internal/fleet"
)

var update = flag.Bool("update", false, "rewrite the expected parts of testdata")

// target is a scrape loop's memory: refs by series, and what the last scrape had.
type target struct {
	refs map[string]uint64
	seen map[string]labels.Labels
}

// runner plays a case file: sections "policy", "scrape TARGET SECONDS", "rollback
// TARGET SECONDS", "exempt TARGET SECONDS" in order; "want" holds what must leave.
type runner struct {
	t       *testing.T
	table   *Table
	targets map[string]*target
	out     bytes.Buffer
	now     int64
}

func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r := &runner{t: t, targets: map[string]*target{}}
			var want []byte
			wantAt := -1
			for i, f := range ar.Files {
				if f.Name == "want" {
					want, wantAt = f.Data, i
					continue
				}
				r.step(f)
			}
			if bytes.Equal(r.out.Bytes(), want) {
				return
			}
			if !*update {
				t.Errorf("got:\n%s\nwant:\n%s", r.out.Bytes(), want)
				return
			}
			if wantAt < 0 {
				ar.Files = append(ar.Files, txtar.File{Name: "want"})
				wantAt = len(ar.Files) - 1
			}
			ar.Files[wantAt].Data = r.out.Bytes()
			if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func (r *runner) step(f txtar.File) {
	words := strings.Fields(f.Name)
	if words[0] == "policy" {
		p, err := Compile(policyOf(r.t, f.Data))
		if err != nil {
			fmt.Fprintf(&r.out, "policy: %s\n", err)
			return
		}
		if r.table == nil {
			r.table = NewTable(p)
			return
		}
		fmt.Fprintf(&r.out, "policy:\n")
		r.table.SetPolicy(p, r.now, r.emit)
		return
	}
	sec, err := strconv.ParseInt(words[2], 10, 64)
	if err != nil {
		r.t.Fatal(err)
	}
	r.now = sec * 1000
	fmt.Fprintf(&r.out, "%s:\n", f.Name)
	r.scrape(words[1], f.Data, words[0] == "rollback", words[0] == "exempt")
	st := r.table.Stats()
	fmt.Fprintf(&r.out, "  # series %d/%d", st.Series, st.Budget)
	for _, reason := range Reasons() {
		if n := st.Dropped[reason]; n > 0 {
			fmt.Fprintf(&r.out, ", %s %d", reason, n)
		}
	}
	fmt.Fprintln(&r.out)
}

// scrape does what the scrape loop does: stale markers for what is gone.
func (r *runner) scrape(name string, page []byte, rollback, exempt bool) {
	tg := r.targets[name]
	if tg == nil {
		tg = &target{refs: map[string]uint64{}, seen: map[string]labels.Labels{}}
		r.targets[name] = tg
	}
	s := r.table.Begin(labels.FromStrings("target", name).Hash(), exempt, r.now)
	seen := map[string]labels.Labels{}
	for _, sample := range parse(r.t, page, r.now) {
		key := sample.labels.String()
		ref, err := s.Append(tg.refs[key], sample.labels, sample.t, sample.v)
		if errors.Is(err, ErrOutOfOrder) {
			fmt.Fprintf(&r.out, "  out of order: %s\n", key)
			continue
		}
		seen[key], tg.refs[key] = sample.labels, ref
	}
	if rollback {
		s.Rollback()
		return
	}
	for _, key := range slices.Sorted(maps.Keys(tg.seen)) {
		ls := tg.seen[key]
		if _, ok := seen[key]; !ok {
			if _, err := s.Append(tg.refs[key], ls, r.now, math.Float64frombits(value.StaleNaN)); err != nil && !errors.Is(err, ErrOutOfOrder) {
				r.t.Fatal(err)
			}
			delete(tg.refs, key)
		}
	}
	tg.seen = seen
	s.Commit(r.emit)
}

func (r *runner) emit(o Out) {
	v := strconv.FormatFloat(o.V, 'g', -1, 64)
	if value.IsStaleNaN(o.V) {
		v = "STALE"
	}
	fmt.Fprintf(&r.out, "  %d %s %s\n", o.T/1000, o.Labels, v)
}

func policyOf(t testing.TB, b []byte) fleet.CollectionPolicy {
	p := fleet.CollectionPolicy{SeriesBudget: 100, Interval: 15 * time.Second, SpoolMaxBytes: 1 << 20, SpoolMaxAge: time.Hour}
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

type sample struct {
	labels labels.Labels
	t      int64
	v      float64
}

func parse(t testing.TB, page []byte, now int64) []sample {
	p := textparse.NewPromParser(page, labels.NewSymbolTable(), false)
	var out []sample
	for {
		et, err := p.Next()
		if errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatalf("%v in %q", err, page)
		}
		if et != textparse.EntrySeries {
			continue
		}
		_, ts, v := p.Series()
		var ls labels.Labels
		p.Labels(&ls)
		at := now
		if ts != nil {
			at = *ts
		}
		out = append(out, sample{ls, at, v})
	}
}
