package software

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
)

// slow takes what it is given for whole, and counts restarts.
type slow struct {
	stub
	other string
	boots int
}

func (s *slow) State(context.Context) (State, error) {
	return State{Running: "1.0.0", Boot: "a", Good: true, Other: s.other}, nil
}
func (s *slow) Verify(context.Context, string, string, int64) error {
	if s.other == "" {
		return errors.New("the slot is empty")
	}
	return nil
}
func (s *slow) Switch(context.Context, string) error { return nil }
func (s *slow) FallBack(context.Context) error       { return nil }
func (s *slow) Boot(context.Context) error           { s.boots++; return nil }

// A window that ends before the site restarts waits for the next one, unless somebody forces it.
func TestRestartsAreInsideOfWindows(t *testing.T) {
	night := []fleet.Window{{From: "22:00", To: "23:00"}}
	for name, tc := range map[string]struct {
		force func(m *Machine, w *Wanted) error
		at    string // when it restarts; empty: it does not
	}{
		"it waits for the next window":     {nil, "2026-11-23 22:00"},
		"the site's own operator hurries":  {func(m *Machine, _ *Wanted) error { return m.Now() }, "2026-11-23 00:30"},
		"the fleet's operator takes it on": {func(_ *Machine, w *Wanted) error { w.Windows = nil; return nil }, "2026-11-23 00:30"},
		"it is withdrawn meanwhile":        {func(_ *Machine, w *Wanted) error { w.Withdrawn = "eats disks"; return nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 11, 22, 22, 30, 0, 0, time.UTC)
			d, taken, turn := &slow{}, false, errors.New("another node restarts")
			m, err := New(Options{Component: "os", Driver: d, Path: filepath.Join(t.TempDir(), "os.json"), Now: func() time.Time { return now },
				Fetch:      func(context.Context, Wanted, func(int)) (string, error) { return os.DevNull, nil },
				BeforeBoot: func(context.Context) error { taken = true; return turn },
				AfterTrial: func(context.Context) error { taken = false; return nil }})
			if err != nil {
				t.Fatal(err)
			}
			w := Wanted{Version: "2.0.0", Windows: night}
			d.other = "2.0.0" // it is there already
			for range 4 {
				_, _ = m.Step(t.Context(), w)
			}
			if s := m.Status(); s.Phase != Installing || !strings.Contains(s.Message, "another node restarts") || !taken {
				t.Fatalf("in the window: %+v, taken %t", s, taken)
			}
			turn, now = nil, now.Add(time.Hour)
			for range 4 {
				if _, err := m.Step(t.Context(), w); err != nil {
					t.Fatal(err)
				}
			}
			if s := m.Status(); s.Phase != Scheduled || s.Wanted != "2.0.0" || s.Message != "it is written, and the restart is scheduled for 2026-11-23T22:00:00Z" || !s.StartsAt.Equal(time.Date(2026, 11, 23, 22, 0, 0, 0, time.UTC)) || taken || d.boots != 0 {
				t.Fatalf("after it: %+v, taken %t, %d boots", s, taken, d.boots)
			}
			now = now.Add(time.Hour)
			if tc.force != nil {
				if err := tc.force(m, &w); err != nil {
					t.Fatal(err)
				}
			}
			at := ""
			for range 48 {
				for range 3 {
					if _, err := m.Step(t.Context(), w); err != nil {
						t.Fatal(err)
					}
				}
				if d.boots > 0 {
					at = now.Format("2006-01-02 15:04")
					break
				}
				now = now.Add(30 * time.Minute)
			}
			if at != tc.at {
				t.Errorf("it restarts at %q, want %q: %+v", at, tc.at, m.Status())
			}
		})
	}
}

// A turn that comes in the window and a restart that fails until after it: it is not tried
// again outside.
func TestARestartThatFailsIsNotTriedOutsideOfWindows(t *testing.T) {
	now := time.Date(2026, 11, 22, 22, 30, 0, 0, time.UTC)
	d, refuse := &slow{other: "2.0.0"}, false
	m, err := New(Options{Component: "os", Driver: d, Path: filepath.Join(t.TempDir(), "os.json"), Now: func() time.Time { return now },
		BeforeBoot: func(context.Context) error {
			if refuse {
				return errors.New("not drained yet")
			}
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	w := Wanted{Version: "2.0.0", Windows: []fleet.Window{{From: "22:00", To: "23:00"}}}
	for m.rec.Step != booting {
		if _, err := m.Step(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	refuse = true
	_, _ = m.Step(t.Context(), w)
	refuse, now = false, now.Add(time.Hour)
	for range 3 {
		if _, err := m.Step(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	if s := m.Status(); d.boots != 0 || s.Phase != Scheduled {
		t.Errorf("%d boots, %+v", d.boots, s)
	}
}

// What ran before and was withdrawn since is not gone back to.
func TestBackToWhatWasWithdrawn(t *testing.T) {
	m, err := New(Options{Component: "os", Driver: &slow{other: "0.9.0"}, Path: filepath.Join(t.TempDir(), "os.json")})
	if err != nil {
		t.Fatal(err)
	}
	m.rec.Before = "0.9.0"
	w := Wanted{Back: true, WithdrawnOf: map[string]string{"0.9.0": "eats disks"}}
	for range 3 {
		if moving, err := m.Step(t.Context(), w); err != nil || moving {
			t.Errorf("it moves: %t, %v", moving, err)
		}
	}
	if s := m.Status(); s.Phase != Failed || s.Message != "0.9.0, which ran before, was withdrawn: eats disks; name the version that shall run; 1.0.0 runs" {
		t.Errorf("%+v", s)
	}
	if _, err := m.Step(t.Context(), Wanted{Back: true}); err != nil || m.rec.Step != switching {
		t.Errorf("of one that was not withdrawn: %s, %v", m.rec.Step, err)
	}
}
