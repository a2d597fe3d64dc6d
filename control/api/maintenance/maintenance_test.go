package maintenance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/v1alpha1"
)

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}

func once(start string, d time.Duration) v1alpha1.MaintenanceWindow {
	m := metav1.NewTime(at(start))
	return v1alpha1.MaintenanceWindow{Name: "once", Reason: "r", Start: &m, Duration: metav1.Duration{Duration: d}}
}

func cronWindow(schedule, zone string, d time.Duration) v1alpha1.MaintenanceWindow {
	return v1alpha1.MaintenanceWindow{Name: "again", Reason: "r", Schedule: schedule, TimeZone: zone, Duration: metav1.Duration{Duration: d}}
}

func TestOpen(t *testing.T) {
	for _, c := range []struct {
		w    v1alpha1.MaintenanceWindow
		at   string
		ends string // "": not open
	}{
		{once("2026-03-01T10:00:00Z", time.Hour), "2026-03-01T09:59:59Z", ""},
		{once("2026-03-01T10:00:00Z", time.Hour), "2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z"},
		{once("2026-03-01T10:00:00Z", time.Hour), "2026-03-01T11:00:00Z", ""},
		{cronWindow("0 2 * * *", "", 3*time.Hour), "2026-03-01T04:59:00Z", "2026-03-01T05:00:00Z"},
		{cronWindow("0 2 * * *", "", 3*time.Hour), "2026-03-01T05:00:00Z", ""},
		{cronWindow("0 23 * * SUN", "", 4*time.Hour), "2026-03-02T02:00:00Z", "2026-03-02T03:00:00Z"}, // over midnight
		{cronWindow("0 2 * * *", "Europe/Berlin", time.Hour), "2026-01-15T01:30:00Z", "2026-01-15T02:00:00Z"},
		{cronWindow("0 2 * * *", "Europe/Berlin", time.Hour), "2026-07-15T00:30:00Z", "2026-07-15T01:00:00Z"}, // summer time
		{cronWindow("30 3 * * *", "Europe/Berlin", time.Hour), "2026-03-29T01:45:00Z", "2026-03-29T02:30:00Z"},
		{cronWindow("nonsense", "", time.Hour), "2026-03-01T00:00:00Z", ""},
	} {
		s, ok := NewPlan([]v1alpha1.MaintenanceWindow{c.w}).Open(at(c.at))
		if ok != (c.ends != "") || ok && !s.End.Equal(at(c.ends)) {
			t.Errorf("%s%v at %s: %+v, %v; want the end %s", c.w.Schedule, c.w.Start, c.at, s, ok, c.ends)
		}
	}
	both := []v1alpha1.MaintenanceWindow{once("2026-03-01T10:00:00Z", time.Hour), once("2026-03-01T10:30:00Z", time.Hour)}
	if s, ok := NewPlan(both).Open(at("2026-03-01T10:45:00Z")); !ok || !s.End.Equal(at("2026-03-01T11:30:00Z")) {
		t.Errorf("of two, the later end counts: %+v", s)
	}
}

func TestBetweenAndNextEdge(t *testing.T) {
	w := []v1alpha1.MaintenanceWindow{cronWindow("0 2 * * *", "", time.Hour), once("2026-03-01T10:00:00Z", time.Hour)}
	got := Between(w, at("2026-03-01T00:00:00Z"), at("2026-03-03T00:00:00Z"))
	if len(got) != 3 || got[0].Name != "again" || got[1].Name != "once" || !got[2].Start.Equal(at("2026-03-02T02:00:00Z")) {
		t.Errorf("%+v", got)
	}
	for now, want := range map[string]string{"2026-03-01T00:00:00Z": "2026-03-01T02:00:00Z", "2026-03-01T02:00:00Z": "2026-03-01T03:00:00Z", "2026-03-01T03:00:00Z": "2026-03-01T10:00:00Z"} {
		if e := NewPlan(w).NextEdge(at(now)); !e.Equal(at(want)) {
			t.Errorf("after %s comes %s, want %s", now, e, want)
		}
	}
	if e := NewPlan(nil).NextEdge(at("2026-03-01T00:00:00Z")); !e.IsZero() {
		t.Error(e)
	}
	if n := len(Between([]v1alpha1.MaintenanceWindow{cronWindow("* * * * *", "", time.Minute)}, at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z"))); n > maxSpans {
		t.Errorf("%d spans", n)
	}
}

// On the days when the clocks change a window comes once: an hour later if the hour
// of its start is left out, and the first time if there are two.
func TestClockChanges(t *testing.T) {
	for _, c := range []struct {
		name, schedule, zone string
		from                 string // two days from here
		want                 []string
	}{
		{"left out", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"}},
		{"at the change", "0 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"}},
		{"only on that day of the week", "15 2 * * SUN", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:15:00Z"}},
		{"with the one that follows", "0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z", "2026-03-30T01:00:00Z"}},
		{"around the gap", "30 1-3 * * *", "Europe/Berlin", "2026-03-28T23:00:00Z", []string{"2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z", "2026-03-29T23:30:00Z", "2026-03-30T00:30:00Z"}},
		{"twice on the clock", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		{"at the change back", "0 3 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"2026-10-25T02:00:00Z", "2026-10-26T02:00:00Z"}},
		{"west of Greenwich", "30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", []string{"2026-03-08T07:30:00Z", "2026-03-09T06:30:00Z"}},
		{"west of Greenwich, back", "30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", []string{"2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"}},
		{"by half an hour", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", []string{"2026-10-03T15:45:00Z", "2026-10-04T15:15:00Z"}},
		{"at midnight", "0 0 * * *", "Africa/Cairo", "2026-04-23T12:00:00Z", []string{"2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"}},
		{"every six hours", "30 2-23/6 * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-25T07:30:00Z", "2026-10-25T13:30:00Z", "2026-10-25T19:30:00Z", "2026-10-26T01:30:00Z", "2026-10-26T07:30:00Z", "2026-10-26T13:30:00Z", "2026-10-26T19:30:00Z"}},
	} {
		from := at(c.from)
		var got []string
		for _, s := range Between([]v1alpha1.MaintenanceWindow{cronWindow(c.schedule, c.zone, time.Minute)}, from, from.Add(48*time.Hour)) {
			got = append(got, s.Start.Format(time.RFC3339))
		}
		if c.name == "around the gap" && len(got) > 4 {
			got = got[:4]
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %s in %s begins at\n%v, want\n%v", c.name, c.schedule, c.zone, got, c.want)
		}
	}
	// Every hour has no wall clock: 25 on the longer day, 23 on the shorter, an hour apart.
	for day, want := range map[string]int{"2026-10-24T22:00:00Z": 25, "2026-03-28T23:00:00Z": 23} {
		from := at(day)
		until := from.Add(time.Duration(want) * time.Hour)
		if got := Between([]v1alpha1.MaintenanceWindow{cronWindow("10 * * * *", "Europe/Berlin", time.Minute)}, from, until); len(got) != want {
			t.Errorf("%d windows on the day from %s, want %d", len(got), day, want)
		}
	}
}

// A year of a daily window has as many as there are days, in any zone and at any hour.
func TestEveryDayOnce(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Beirut", "America/Santiago", "Pacific/Chatham", "Africa/Casablanca", "Asia/Kolkata"} {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for minute := 0; minute < 24*60; minute += 15 {
			w := cronWindow(fmt.Sprintf("%d %d * * *", minute%60, minute/60), zone, time.Minute)
			days := map[string]bool{}
			p := NewPlan([]v1alpha1.MaintenanceWindow{w})
			n := 0
			for month := time.January; month <= time.December; month++ {
				from := time.Date(2026, month, 1, 12, 0, 0, 0, time.UTC)
				for _, s := range p.Between(from, time.Date(2026, month+1, 1, 12, 0, 0, 0, time.UTC)) {
					n++
					days[s.Start.In(loc).Format(time.DateOnly)] = true
				}
			}
			if n != 365 || len(days) != 365 {
				t.Errorf("%s in %s: %d windows on %d days", w.Schedule, zone, n, len(days))
			}
		}
	}
}

// A plan that is asked all day long gives what a new one does, however many windows
// there are.
func TestPlanRemembers(t *testing.T) {
	w := []v1alpha1.MaintenanceWindow{cronWindow("*/5 * * * *", "", time.Minute), cronWindow("0 2 * * *", "Europe/Berlin", time.Hour), once("2026-03-02T10:00:00Z", 26*time.Hour)}
	p := NewPlan(w)
	for now := at("2026-03-01T00:00:30Z"); now.Before(at("2026-03-05T00:00:00Z")); now = now.Add(7 * time.Minute) {
		a, open := p.Open(now)
		if b, want := NewPlan(w).Open(now); open != want || a != b {
			t.Fatalf("at %s: %+v %v, want %+v %v", now, a, open, b, want)
		}
		if a, b := p.NextEdge(now), NewPlan(w).NextEdge(now); !a.Equal(b) {
			t.Fatalf("after %s comes %s, want %s", now, a, b)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		w    v1alpha1.MaintenanceWindow
		want string
	}{
		{cronWindow("0 2 * * *", "Europe/Berlin", time.Hour), ""},
		{once("2026-03-01T10:00:00Z", time.Hour), ""},
		{cronWindow("0 2 * *", "", time.Hour), "windows[0].schedule"},
		{cronWindow("@daily", "", time.Hour), "windows[0].schedule"},
		{cronWindow("TZ=UTC 0 2 * * *", "", time.Hour), "windows[0].schedule"},
		{cronWindow("0 0 31 2 *", "", time.Hour), "never comes"},
		{cronWindow("0 2 * * *", "Mars/Olympus", time.Hour), "windows[0].timeZone"},
		{cronWindow("0 2 * * *", "Local", time.Hour), "windows[0].timeZone"},
		{cronWindow("*/10 * * * *", "", time.Hour), "windows[0].duration"},
	} {
		errs := Check(field.NewPath("windows"), []v1alpha1.MaintenanceWindow{c.w})
		if (len(errs) > 0) != (c.want != "") || c.want != "" && !strings.Contains(errs.ToAggregate().Error(), c.want) {
			t.Errorf("%s %s: %v, want %q", c.w.Schedule, c.w.TimeZone, errs, c.want)
		}
	}
}

func FuzzSchedule(f *testing.F) {
	f.Add("0 2 * * *", "Europe/Berlin", int64(3600))
	f.Fuzz(func(t *testing.T, schedule, zone string, seconds int64) {
		w := []v1alpha1.MaintenanceWindow{cronWindow(schedule, zone, time.Duration(seconds%604800)*time.Second)}
		if len(Check(field.NewPath("w"), w)) > 0 {
			return
		}
		now := at("2026-03-01T00:00:00Z")
		p := NewPlan(w)
		if s, ok := p.Open(now); ok && !s.Covers(now) {
			t.Fatalf("%+v does not cover %s", s, now)
		}
		// What a plan remembers is what it would work out anew.
		for range 5 {
			edge := p.NextEdge(now)
			if edge.IsZero() {
				return
			}
			a, open := p.Open(edge)
			b, again := NewPlan(w).Open(edge)
			if open != again || a != b {
				t.Fatalf("at %s: remembered %+v, worked out %+v", edge, a, b)
			}
			now = edge
		}
	})
}
