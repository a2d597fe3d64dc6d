package decide

import (
	"testing"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

func TestWindows(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	night := []v1alpha1.RolloutWindow{{Days: []string{"Fri", "Sat"}, From: "22:00", To: "04:30"}}
	for _, c := range []struct {
		name    string
		windows []v1alpha1.RolloutWindow
		freezes []v1alpha1.RolloutFreeze
		at      string // of the site's clock, with its offset
		open    bool
		next    string
	}{
		{"before", night, nil, "2026-11-27T21:59:00+01:00", false, "2026-11-27T22:00:00+01:00"},
		{"as it begins", night, nil, "2026-11-27T22:00:00+01:00", true, ""},
		{"past midnight", night, nil, "2026-11-28T04:29:00+01:00", true, ""},
		{"as it ends", night, nil, "2026-11-28T04:30:00+01:00", false, "2026-11-28T22:00:00+01:00"},
		{"past midnight into a day that has none", night, nil, "2026-11-29T01:00:00+01:00", true, ""},
		{"the night before the first day", night, nil, "2026-11-27T01:00:00+01:00", false, "2026-11-27T22:00:00+01:00"},
		{"by the site's clock, not by UTC", night, nil, "2026-11-27T21:30:00+00:00", true, ""},
		{"all day", []v1alpha1.RolloutWindow{{From: "00:00", To: "00:00"}}, nil, "2026-11-27T12:00:00+01:00", true, ""},
		// 29 March: 02:00 becomes 03:00.
		{"an hour that there isn't", []v1alpha1.RolloutWindow{{From: "02:15", To: "02:45"}}, nil, "2026-03-29T01:59:00+01:00", false, "2026-03-30T02:15:00+02:00"},
		{"short night, its end", []v1alpha1.RolloutWindow{{From: "22:00", To: "04:00"}}, nil, "2026-03-29T03:59:00+02:00", true, ""},
		// 25 October: 03:00 becomes 02:00.
		{"an hour that there is twice, first", []v1alpha1.RolloutWindow{{From: "02:00", To: "03:00"}}, nil, "2026-10-25T02:30:00+02:00", true, ""},
		{"and again", []v1alpha1.RolloutWindow{{From: "02:00", To: "03:00"}}, nil, "2026-10-25T02:30:00+01:00", true, ""},
		{"frozen", nil, []v1alpha1.RolloutFreeze{{From: "2026-12-20", To: "2027-01-02"}}, "2026-12-20T00:00:00+01:00", false, "2027-01-03T00:00:00+01:00"},
		{"the last frozen day", nil, []v1alpha1.RolloutFreeze{{From: "2026-12-20", To: "2027-01-02"}}, "2027-01-02T23:59:00+01:00", false, "2027-01-03T00:00:00+01:00"},
		{"after", nil, []v1alpha1.RolloutFreeze{{From: "2026-12-20", To: "2027-01-02"}}, "2027-01-03T00:00:00+01:00", true, ""},
		{"frozen, with windows", night, []v1alpha1.RolloutFreeze{{From: "2026-12-20", To: "2027-01-01"}}, "2026-12-26T23:00:00+01:00", false, "2027-01-02T00:00:00+01:00"},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		cal, err := newCalendar(&v1alpha1.RolloutPlan{Windows: c.windows, Freezes: c.freezes}, at)
		if err != nil {
			t.Fatal(err)
		}
		o := cal.of(berlin)
		next := ""
		if !o.next.IsZero() {
			next = o.next.Format(time.RFC3339)
		}
		if o.open != c.open || next != c.next {
			t.Errorf("%s, %s: open %v, next %s; want %v, %s", c.name, c.at, o.open, next, c.open, c.next)
		}
	}
}
