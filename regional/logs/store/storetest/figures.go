package storetest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"muster.dev/muster/regional/logs/store"
)

// EnvLines is how many lines Figures writes; without it, it does nothing.
const EnvLines = "MUSTER_BENCH_LINES"

// Figures writes so many lines, spread over one day, from one writer in chunks of
// 2,000, and logs how fast that went and how long typical queries take: each beside the time
// that a plain scan of the same lines in one file takes. It asserts no time.
func Figures(t *testing.T, f Factory) {
	n, err := strconv.Atoi(os.Getenv(EnvLines))
	if err != nil || n <= 0 {
		t.Skipf("set %s=10000000 to measure", EnvLines)
	}
	s := f(t, Config{})
	plain := filepath.Join(t.TempDir(), "lines")
	fill(t, s, n, plain)
	Settle(t, s)
	day := store.Day(base())
	over := store.Query{Tenant: "acme", From: day, To: day.Add(24 * time.Hour)}
	scan := scanPlain(t, plain, "out of memory")
	t.Logf("%-32s %10s  (%d lines)", "plain scan for a phrase", scan.Round(time.Millisecond), n)
	report := func(name string, f func() int64) {
		best, hits := time.Duration(0), int64(0)
		for range 3 { // the first run reads from disk
			from := time.Now()
			hits = f()
			if d := time.Since(from); best == 0 || d < best {
				best = d
			}
		}
		t.Logf("%-32s %10s  %.3f of the scan, %d hits", name, best.Round(time.Microsecond), best.Seconds()/scan.Seconds(), hits)
	}
	search := func(name string, q store.Query) (last store.Page) {
		report(name, func() int64 {
			p, err := s.Search(t.Context(), q)
			if errors.Is(err, store.ErrTimeout) {
				t.Logf("%s: %v", name, err)
				return -1
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			last = p
			return p.Total
		})
		return last
	}
	hour := over
	hour.Text, hour.From = "site:site-0042", over.To.Add(-time.Hour)
	search("term, last hour", hour)
	phrase := over
	phrase.Text = `"out of memory"`
	p := search("phrase, everything", phrase)
	phrase.Cursor = p.Next
	search("phrase, page 2", phrase)
	histogram := over
	histogram.Buckets = 100
	search("histogram over the day", histogram)
}

// fill writes n lines into the store, and the same into a plain file.
func fill(t *testing.T, s store.Store, n int, plain string) {
	out, err := os.Create(plain)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(out, 1<<20)
	day, step := store.Day(base()), 24*time.Hour/time.Duration(n)
	var spent time.Duration
	next := n / 10
	for first := 0; first < n; first += chunk {
		records := Lines(first, min(chunk, n-first))
		for i := range records {
			r := &records[i]
			r.Timestamp = day.Add(time.Duration(first+i) * step)
			fmt.Fprintf(w, "%s %s %s %s\n", r.Timestamp.Format(time.RFC3339Nano), r.Site, r.Severity, r.Message)
		}
		from := time.Now()
		writeAll(t, s, records)
		if spent += time.Since(from); first+chunk >= next {
			t.Logf("written %d lines, %.0f lines/s", first+len(records), float64(first+len(records))/spent.Seconds())
			next += n / 10
		}
	}
	if err := errors.Join(w.Flush(), out.Close()); err != nil {
		t.Fatal(err)
	}
}

// writeAll writes until all is stored, as the intake does: a store at its limits
// refuses for a moment.
func writeAll(t *testing.T, s store.Store, records []store.Record) {
	var res store.Result
	var err error
	for range 100 {
		if res, err = s.Write(t.Context(), records); err == nil && res.Stored+res.Duplicates == len(records) {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Fatalf("%+v, %v", res, err)
}

func scanPlain(t *testing.T, plain, phrase string) time.Duration {
	best := time.Duration(0)
	for range 3 {
		from := time.Now()
		f, err := os.Open(plain)
		if err != nil {
			t.Fatal(err)
		}
		sc := bufio.NewScanner(f)
		hits := 0
		for sc.Scan() {
			if bytes.Contains(sc.Bytes(), []byte(phrase)) {
				hits++
			}
		}
		if err := errors.Join(sc.Err(), f.Close()); err != nil || hits == 0 {
			t.Fatalf("scan: %d hits, %v", hits, err)
		}
		if d := time.Since(from); best == 0 || d < best {
			best = d
		}
	}
	return best
}
