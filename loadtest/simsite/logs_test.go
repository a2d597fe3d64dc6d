package simsite

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

func logSite(t *testing.T) (*Site, time.Time) {
	t.Helper()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s, err := New(Options{Name: "paris", Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	return s, now
}

// However often the site is asked, it tells every line once.
func TestLogsAreTheSameInPieces(t *testing.T) {
	s, now := logSite(t)
	whole := s.Logs(now, now.Add(10*time.Minute))
	var pieces []LogLine
	for at := now; at.Before(now.Add(10 * time.Minute)); at = at.Add(7 * time.Second) {
		to := at.Add(7 * time.Second)
		if end := now.Add(10 * time.Minute); to.After(end) {
			to = end
		}
		pieces = append(pieces, s.Logs(at, to)...)
	}
	if len(whole) < 100 || len(whole) != len(pieces) {
		t.Fatalf("%d lines at once, %d in pieces", len(whole), len(pieces))
	}
	if !slices.Equal(whole, pieces) {
		t.Fatal("the pieces are other lines")
	}
}

func TestFaultsAreInTheLogs(t *testing.T) {
	for _, f := range Catalogue() {
		s, now := logSite(t)
		bad := func() (n int) {
			for _, l := range s.Logs(now, now.Add(time.Minute)) {
				if l.Severity != "info" && !strings.HasPrefix(l.Text, "retry") {
					n++
				}
			}
			return n
		}
		if n := bad(); n != 0 {
			t.Fatalf("a healthy site logs %d bad lines", n)
		}
		if err := s.Break(f.Name); err != nil {
			t.Fatal(err)
		}
		silent := map[string]bool{"memory-tight": true, "cpu-busy": true, "cert-ageing": true, "updates-pending": true} // leave no line in real logs either
		if n := bad(); (n == 0) != silent[f.Name] {
			t.Errorf("%s: %d bad lines in a minute", f.Name, n)
		}
	}
}

func TestLogLineJSON(t *testing.T) {
	s, now := logSite(t)
	if err := s.Break("oom-kills"); err != nil {
		t.Fatal(err)
	}
	units, pods := 0, 0
	for _, l := range s.Logs(now, now.Add(2*time.Minute)) {
		var rec map[string]any
		if err := json.Unmarshal(l.AppendJSON(nil), &rec); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(l.Text, "{") {
			t.Errorf("unfilled: %s", l.Text)
		}
		if rec["_SYSTEMD_UNIT"] == l.Unit && l.Unit != "" {
			units++
		}
		if k, ok := rec["kubernetes"].(map[string]any); ok && k["pod_name"] == l.Pod {
			pods++
		}
	}
	if units == 0 || pods == 0 {
		t.Errorf("%d lines of units, %d of pods", units, pods)
	}
}
