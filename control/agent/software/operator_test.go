package software

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
)

func TestOpens(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	night := []fleet.Window{{From: "22:00", To: "04:30"}}
	sat := []fleet.Window{{Days: []string{"Sat"}, From: "22:00", To: "04:30"}}
	for _, tc := range []struct {
		name    string
		windows []fleet.Window
		now     string
		want    string // the same, in Berlin
	}{
		{"none", nil, "2026-11-22T12:00:00Z", "2026-11-22T13:00:00+01:00"},
		{"before", night, "2026-11-22T12:00:00Z", "2026-11-22T22:00:00+01:00"},
		{"within", night, "2026-11-22T22:30:00Z", "2026-11-22T23:30:00+01:00"},
		{"past midnight", night, "2026-11-23T02:00:00Z", "2026-11-23T03:00:00+01:00"},
		{"just over", night, "2026-11-23T03:30:00Z", "2026-11-23T22:00:00+01:00"},
		{"saturday's, on sunday morning", sat, "2026-11-22T03:00:00Z", "2026-11-22T04:00:00+01:00"},
		{"a week on", sat, "2026-11-22T03:30:00Z", "2026-11-28T22:00:00+01:00"},
		{"the earliest of several", append([]fleet.Window{{From: "15:00", To: "16:00"}}, sat...), "2026-11-22T12:00:00Z", "2026-11-22T15:00:00+01:00"},
		{"summer time", night, "2026-07-01T12:00:00Z", "2026-07-01T22:00:00+02:00"},
		{"the clocks skip it", []fleet.Window{{From: "02:30", To: "04:00"}}, "2026-03-29T00:00:00Z", "2026-03-29T03:00:00+02:00"},
		{"the clocks skip all of it", []fleet.Window{{Days: []string{"Sun"}, From: "02:15", To: "02:45"}}, "2026-03-29T00:00:00Z", "2026-04-05T02:15:00+02:00"},
		{"the clocks skip its end", []fleet.Window{{From: "01:30", To: "02:30"}}, "2026-03-29T01:10:00Z", "2026-03-30T01:30:00+02:00"},
		{"there is one twice", []fleet.Window{{From: "02:15", To: "02:45"}}, "2026-10-25T00:50:00Z", "2026-10-25T02:15:00+01:00"},
	} {
		now, err := time.Parse(time.RFC3339, tc.now)
		if err != nil {
			t.Fatal(err)
		}
		if got := (Wanted{Windows: tc.windows, Zone: berlin}).Opens(now).In(berlin).Format(time.RFC3339); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestJudge(t *testing.T) {
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		w     Wanted
		other string
		phase Phase
		says  string
	}{
		"nothing":            {Wanted{}, "", "", ""},
		"never asked":        {Wanted{Back: true}, "", Done, ""},
		"it runs":            {Wanted{Version: "1.0.0", Withdrawn: "it eats disks"}, "", Done, ""},
		"begins":             {Wanted{Version: "2.0.0"}, "", Available, ""},
		"withdrawn":          {Wanted{Version: "2.0.0", Withdrawn: "it eats disks"}, "2.0.0", Failed, "it was withdrawn: it eats disks; 1.0.0 runs"},
		"no file":            {Wanted{Version: "2.0.0", Lacks: "it has no file for arm64"}, "", Failed, "it has no file for arm64; 1.0.0 runs"},
		"no file, and there": {Wanted{Version: "2.0.0", Lacks: "it is not released any more"}, "2.0.0", Available, ""},
		"requires":           {Wanted{Version: "2.0.0", Requires: map[string]string{"os": "3.10.0"}}, "", Available, "it needs os 3.10.0 or later, and 3.9.0 runs"},
		"requires, and has":  {Wanted{Version: "2.0.0", Requires: map[string]string{"os": "3.9.0"}}, "", Available, ""},
		"requires, unknown":  {Wanted{Version: "2.0.0", Requires: map[string]string{"platform": "1.0.0"}}, "", Available, "does not know which platform it runs"},
		"not before":         {Wanted{Version: "2.0.0", NotBefore: noon.Add(time.Hour)}, "", Scheduled, ""},
		"windows":            {Wanted{Version: "2.0.0", Windows: []fleet.Window{{From: "22:00", To: "23:00"}}}, "", Scheduled, ""},
	} {
		m, err := New(Options{Component: "agent", Driver: &stub{}, Path: filepath.Join(t.TempDir(), "agent.json"), Now: func() time.Time { return noon },
			Versions: func() map[string]string { return map[string]string{"os": "3.9.0"} }})
		if err != nil {
			t.Fatal(err)
		}
		v := m.judge(State{Running: "1.0.0", Other: tc.other}, m.resolve(tc.w))
		if v.phase != tc.phase || !strings.Contains(v.message, tc.says) || (tc.says == "") != (v.message == "") || v.begin != (tc.phase == Available && tc.says == "") {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// The site's own operator puts a version off as far as the fleet's lets it, and hurries it.
func TestOperator(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	path := filepath.Join(t.TempDir(), "agent.json")
	open := func() *Machine {
		m, err := New(Options{Component: "agent", Driver: &stub{}, Path: path, Now: func() time.Time { return now },
			Fetch: func(ctx context.Context, _ Wanted, _ func(int)) (string, error) { return "", io.ErrUnexpectedEOF }})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := open()
	w := Wanted{Version: "2.0.0", NotBefore: now.Add(time.Hour), DeferBy: 3 * time.Hour, Windows: []fleet.Window{{From: "13:30", To: "20:00"}}}
	step := func(want Phase, at string) {
		t.Helper()
		_, _ = m.Step(t.Context(), w)
		if s := m.Status(); s.Phase != want || at != "" && s.StartsAt.Format("15:04") != at {
			t.Fatalf("%+v, want %s %s", s, want, at)
		}
	}
	if err := m.Now(); err == nil || err.Error() != "nothing is offered for agent" {
		t.Error(err)
	}
	step(Scheduled, "13:30")
	if err := m.Defer(now.Add(4 * time.Hour)); err == nil || !strings.Contains(err.Error(), "has to begin by 2026-11-22T15:00:00Z") {
		t.Error(err)
	}
	if err := m.Defer(now.Add(170 * time.Minute)); err != nil {
		t.Error(err)
	}
	step(Scheduled, "14:50")
	m = open() // it is on disk
	step(Scheduled, "14:50")
	w.DeferBy = time.Minute // the fleet's operator hurries
	step(Scheduled, "13:30")
	w.DeferBy = 3 * time.Hour
	if err := m.Cancel(); err != nil {
		t.Error(err)
	}
	step(Scheduled, "13:30")
	if err := m.Now(); err != nil {
		t.Error(err)
	}
	step(Scheduled, "13:00") // not before the fleet's operator lets it
	now = now.Add(time.Hour)
	step(Downloading, "")
	if err := m.Defer(now); err == nil || err.Error() != "agent 2.0.0 has begun" {
		t.Error(err)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"step":"trial","version":"2.0.0","failed":{"version":"1"},"offer":{"choice":{}}}`))
	f.Add([]byte(`{"offer":null,"before":7}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "os.json")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := New(Options{Component: "os", Driver: &stub{}, Path: path})
		if err != nil {
			return
		}
		if m.rec.Step == idle {
			m.judge(State{Running: "1.0.0"}, m.resolve(Wanted{Version: "2.0.0", Back: len(b)%2 == 0}))
		}
		if _, err := json.Marshal(m.rec); err != nil {
			t.Error(err)
		}
	})
}
