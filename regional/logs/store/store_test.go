package store

import (
	"errors"
	"strings"
	"testing"
	"time"
)

var (
	now    = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	window = Window{Retention: 7 * 24 * time.Hour, Future: time.Hour}
)

func TestCheckRefusesWithReason(t *testing.T) {
	good := Record{Tenant: "acme", ID: "1", Timestamp: now, Severity: "ERROR", Message: "a\xffb", Labels: map[string]string{"a\x00": "b\xff"}}
	if reason := window.Check(&good, now); reason != "" {
		t.Fatal(reason)
	}
	if good.Severity != "error" || good.Message != "a\uFFFDb" || good.Labels["a\uFFFD"] != "b\uFFFD" {
		t.Errorf("not normalised: %+v", good)
	}
	for want, change := range map[string]func(*Record){
		"tenant":      func(r *Record) { r.Tenant = "../x" },
		"id: empty":   func(r *Record) { r.ID = "" },
		"don't print": func(r *Record) { r.ID = "a\x00" },
		"retention":   func(r *Record) { r.Timestamp = now.AddDate(0, 0, -9) },
		"future":      func(r *Record) { r.Timestamp = now.Add(2 * time.Hour) },
		"message":     func(r *Record) { r.Message = strings.Repeat("x", MaxMessageBytes+1) },
		"pod":         func(r *Record) { r.Pod = strings.Repeat("x", MaxFieldBytes+1) },
		"labels":      func(r *Record) { r.Labels = map[string]string{"a": strings.Repeat("x", MaxFieldBytes+1)} },
	} {
		r := good
		change(&r)
		if reason := window.Check(&r, now); !strings.Contains(reason, want) {
			t.Errorf("reason %q, want …%s…", reason, want)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	for want, q := range map[string]Query{
		"tenant":   {Tenant: "*"},
		"limit":    {Tenant: "a", Limit: MaxLimit + 1},
		"buckets":  {Tenant: "a", Buckets: -1},
		"cursor":   {Tenant: "a", Cursor: "xx"},
		"query":    {Tenant: "a", Text: "muster.tenant:b"},
		"severity": {Tenant: "a", Severities: make([]string, MaxFilter+1)},
	} {
		_, err := q.Plan(now, window)
		var qe *QueryError
		if !errors.As(err, &qe) || qe.Field != want {
			t.Errorf("%v, want a QueryError of %s", err, want)
		}
	}
}

func TestHistogramSteps(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		n    int
		want time.Duration
	}{{time.Hour, 62, time.Minute}, {time.Hour, 61, 2 * time.Minute}, {time.Second, 60, time.Second}, {7 * 24 * time.Hour, 60, 3 * time.Hour},
		{100 * 24 * time.Hour, 10, 13 * 24 * time.Hour}, {time.Hour, 1, 24 * time.Hour}} {
		if got := step(c.d, c.n); got != c.want {
			t.Errorf("step(%s, %d) = %s, want %s", c.d, c.n, got, c.want)
		}
	}
	p, err := Query{Tenant: "a", From: now.Add(-time.Hour), To: now, Buckets: 62}.Plan(now, window)
	if err != nil {
		t.Fatal(err)
	}
	h := p.NewHistogram()
	h.Add(now.Add(-time.Hour).UnixNano(), 1)
	h.Add(now.Add(-1).UnixNano(), 2)
	h.Add(now.UnixNano(), 4) // outside
	h.Add(now.Add(-time.Hour-1).UnixNano(), 8)
	if len(h.Counts) != 60 || h.Counts[0] != 1 || h.Counts[59] != 2 {
		t.Errorf("%d buckets: %v", len(h.Counts), h.Counts)
	}
}

func TestCursorKindsDontMix(t *testing.T) {
	page, tail := PageCursor(Record{Timestamp: now, ID: "x"}), TailCursor(Position{1, 2, "x"})
	if p, err := page.position(kindPage); err != nil || p != (Position{Nanos: now.UnixNano(), ID: "x"}) {
		t.Error(p, err)
	}
	if p, err := tail.position(kindTail); err != nil || p != (Position{1, 2, "x"}) {
		t.Error(p, err)
	}
	if _, err := page.position(kindTail); err == nil {
		t.Error("a page's cursor is taken for a tail's")
	}
	if _, err := (page[:len(page)-1] + "A").position(kindPage); err == nil {
		t.Error("a damaged cursor is taken")
	}
}

func FuzzCursor(f *testing.F) {
	f.Add(string(PageCursor(Record{Timestamp: now, ID: "x"})))
	f.Add(string(TailCursor(Position{1, 2, "x"})))
	f.Add("")
	f.Add(string(PageCursor(Record{Timestamp: now, ID: "x"})) + "\n")
	f.Fuzz(func(t *testing.T, s string) {
		for _, kind := range []byte{kindPage, kindTail} {
			p, err := Cursor(s).position(kind)
			if err != nil {
				continue
			}
			if got := encodeCursor(kind, p); string(got) != s {
				t.Fatalf("%q came back as %q", s, got)
			}
		}
	})
}
