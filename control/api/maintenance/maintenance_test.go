package maintenance

import (
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
		// 29 March 2026: 02:00 to 03:00 does not exist in Berlin; the window comes not at all, or an hour late, but never twice.
		{cronWindow("30 3 * * *", "Europe/Berlin", time.Hour), "2026-03-29T01:45:00Z", "2026-03-29T02:30:00Z"},
		{cronWindow("nonsense", "", time.Hour), "2026-03-01T00:00:00Z", ""},
	} {
		s, ok := Open([]v1alpha1.MaintenanceWindow{c.w}, at(c.at))
		if ok != (c.ends != "") || ok && !s.End.Equal(at(c.ends)) {
			t.Errorf("%s%v at %s: %+v, %v; want the end %s", c.w.Schedule, c.w.Start, c.at, s, ok, c.ends)
		}
	}
	both := []v1alpha1.MaintenanceWindow{once("2026-03-01T10:00:00Z", time.Hour), once("2026-03-01T10:30:00Z", time.Hour)}
	if s, ok := Open(both, at("2026-03-01T10:45:00Z")); !ok || !s.End.Equal(at("2026-03-01T11:30:00Z")) {
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
		if e := NextEdge(w, at(now), 24*time.Hour); !e.Equal(at(want)) {
			t.Errorf("after %s comes %s, want %s", now, e, want)
		}
	}
	if e := NextEdge(nil, at("2026-03-01T00:00:00Z"), time.Hour); !e.IsZero() {
		t.Error(e)
	}
	if n := len(Between([]v1alpha1.MaintenanceWindow{cronWindow("* * * * *", "", time.Minute)}, at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z"))); n > maxSpans {
		t.Errorf("%d spans", n)
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
		if s, ok := Open(w, now); ok && !s.Covers(now) {
			t.Fatalf("%+v does not cover %s", s, now)
		}
	})
}
