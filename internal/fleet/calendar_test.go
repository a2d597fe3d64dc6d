package fleet

import (
	"strings"
	"testing"
	"time"
)

// What opens next is what a look at each minute finds: throughout the days of either change of the
// clocks, in zones of both halves of the earth, ones whose clocks change by half an hour and at
// midnight, and ones that have no such days.
func TestOpensIsTheFirstMinuteThatIsOpen(t *testing.T) {
	zones := map[string][]string{ // with days around their changes
		"Europe/Berlin": {"2026-03-28", "2026-10-24"}, "America/New_York": {"2026-03-07", "2026-10-31"}, "Australia/Lord_Howe": {"2026-04-04", "2026-10-03"},
		"Africa/Cairo": {"2026-04-23", "2026-10-29"}, "America/Santiago": {"2026-04-04", "2026-09-05"}, "Asia/Kolkata": {"2026-03-28"},
	}
	calendars := []Calendar{
		{Windows: []Window{{From: "22:00", To: "04:30"}}},
		{Windows: []Window{{From: "02:15", To: "02:45"}}},
		{Windows: []Window{{From: "01:30", To: "02:30"}, {From: "23:50", To: "00:10"}}},
		{Windows: []Window{{From: "00:00", To: "00:00"}}},
		{Windows: []Window{{Days: []string{"Sat"}, From: "22:00", To: "03:00"}}},
		{Windows: []Window{{Days: []string{"Sun"}, From: "02:00", To: "03:00"}, {Days: []string{"Fri", "Sun"}, From: "00:20", To: "00:40"}}},
	}
	const before, days = 2, 18 // that are looked at, of which the first before are asked of
	for name, changes := range zones {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Skip(err)
		}
		for _, day := range changes {
			begin, _ := time.ParseInLocation(time.DateOnly, day, zone)
			frozen := Freeze{From: day, To: begin.AddDate(0, 0, 1).Format(time.DateOnly)}
			for i, c := range append(calendars, Calendar{Freezes: []Freeze{frozen}}, Calendar{Windows: calendars[0].Windows, Freezes: []Freeze{frozen}}) {
				if err := c.Check(); err != nil {
					t.Fatal(err)
				}
				var next time.Time
				for m := days * 24 * 60; m >= 0; m-- {
					now := begin.Add(time.Duration(m) * time.Minute)
					if c.Open(now) {
						next = now
					}
					if m >= before*24*60 || m%7 != 0 {
						continue
					}
					if got := c.Opens(now); !got.Equal(next) {
						t.Fatalf("%s, calendar %d, %s: opens %s, want %s", name, i, now, got, next)
					}
					// Between minutes as well.
					if late := now.Add(-7 * time.Second); !c.Open(late) && !c.Opens(late).Equal(next) {
						t.Fatalf("%s, calendar %d, %s: opens %s, want %s", name, i, late, c.Opens(late), next)
					}
				}
			}
		}
	}
}

// What never opens within a year says so.
func TestACalendarThatDoesNotOpen(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	c := Calendar{Windows: []Window{{From: "22:00", To: "23:00"}}, Freezes: []Freeze{{From: "2026-11-01", To: "2028-01-01", Reason: "no hands"}}}
	if at := c.Opens(now); !at.IsZero() {
		t.Errorf("it opens at %s", at)
	}
	if f := c.Frozen(now); f == nil || f.Reason != "no hands" {
		t.Errorf("it is in %+v", f)
	}
}

func TestACalendarSaysWhatIsWrong(t *testing.T) {
	for want, c := range map[string]Calendar{
		`windows[1]: "nine" to "10:00": want times`:                    {Windows: []Window{{From: "09:00", To: "10:00"}, {From: "nine", To: "10:00"}}},
		`windows[0]: "9:00" to "10:00": want times`:                    {Windows: []Window{{From: "9:00", To: "10:00"}}},
		`windows[0]: "22:00" to "24:00": want times`:                   {Windows: []Window{{From: "22:00", To: "24:00"}}},
		`windows[0].days: "Funday": want some of Mon, Tue`:             {Windows: []Window{{Days: []string{"Fri", "Funday"}, From: "09:00", To: "10:00"}}},
		`freezes[0]: "2026-12-24" to "2026-12-20": want two days such`: {Freezes: []Freeze{{From: "2026-12-24", To: "2026-12-20"}}},
		`freezes[0]: "Christmas" to "": want two days such`:            {Freezes: []Freeze{{From: "Christmas"}}},
	} {
		if err := c.Check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
