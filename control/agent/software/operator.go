package software

import (
	"errors"
	"fmt"
	"time"
)

// offer is since when the site knows of a version, and what its own operator said of it.
type offer struct {
	Version string    `json:"version"`
	Retry   int       `json:"retry,omitempty"`
	At      time.Time `json:"at"`
	Choice  *choice   `json:"choice,omitempty"`
}

// choice of the site's own operator: to begin at once, or at a time. Empty: as the fleet's
// operator wants it.
type choice struct {
	Now   bool      `json:"now,omitempty"`
	Until time.Time `json:"until,omitzero"`
}

// limits of a choice, as of the last Step.
type limits struct {
	version string
	open    bool      // it has not begun yet, or its restart waits
	latest  time.Time // by when it has to begin
}

// resolve names the version of what ran before.
func (m *Machine) resolve(w Wanted) Wanted {
	if w.Back {
		w.Version = m.rec.Before
		w.Withdrawn = w.WithdrawnOf[w.Version]
	}
	return w
}

// offer notes that a version is wanted, and what the operator has said since.
func (m *Machine) offer(w Wanted, s State) error {
	m.mu.Lock()
	ask := m.ask
	m.ask = nil
	m.mu.Unlock()
	if w.Version == "" || w.Version == s.Running {
		return nil
	}
	old := m.rec.Offer
	if old != nil && old.Version == w.Version && old.Retry == w.Retry && ask == nil {
		return nil
	}
	o := offer{Version: w.Version, Retry: w.Retry, At: m.o.Now()}
	if old != nil && old.Version == w.Version && old.Retry == w.Retry {
		if o.At = old.At; *ask != (choice{}) {
			o.Choice = ask
		}
	}
	m.rec.Offer = &o
	if err := m.save(); err != nil {
		m.rec.Offer = old
		return err
	}
	return nil
}

// verdict is what is to be done about what is wanted, while nothing is under way.
type verdict struct {
	begin    bool
	phase    Phase
	startsAt time.Time
	message  string
}

// judge decides by what is known at the site alone.
func (m *Machine) judge(s State, w Wanted) verdict {
	no := func(format string, a ...any) verdict {
		return verdict{phase: Failed, message: fmt.Sprintf(format, a...) + "; " + s.Running + " runs"}
	}
	switch {
	case w.Version == "" && !w.Back:
		return verdict{}
	case w.Version == "", w.Version == s.Running:
		return verdict{phase: Done}
	case m.failed(w):
		return verdict{phase: Failed, message: m.rec.Failed.Message}
	case w.Back && s.Other != w.Version:
		other := s.Other
		if other == "" {
			other = "nothing that was verified"
		}
		return no("%s, which ran before, is not in the other slot any more, which holds %s: name the version that shall run", w.Version, other)
	case w.Withdrawn != "" && w.Back:
		return no("%s, which ran before, was withdrawn: %s; name the version that shall run", w.Version, w.Withdrawn)
	case w.Withdrawn != "":
		return no("it was withdrawn: %s", w.Withdrawn)
	case w.Lacks != "" && s.Other != w.Version:
		return no("%s", w.Lacks)
	}
	if m.o.Versions != nil || len(w.Requires) > 0 {
		var running map[string]string
		if m.o.Versions != nil {
			running = m.o.Versions()
		}
		if why := w.unmet(running); why != "" {
			return verdict{phase: Available, message: why}
		}
	}
	if start := m.start(w); m.o.Now().Before(start) {
		return verdict{phase: Scheduled, startsAt: start}
	}
	return verdict{begin: true, phase: Available}
}

// start is when it may begin: as the fleet's operator says, or the site's own within what
// that one allows.
func (m *Machine) start(w Wanted) time.Time {
	now := m.o.Now()
	from := now
	if w.NotBefore.After(now) {
		from = w.NotBefore
	}
	fleet := w.Opens(from)
	o := m.rec.Offer
	if o == nil || o.Choice == nil {
		return fleet
	}
	if o.Choice.Now {
		return from
	}
	// Windows are for the site's sake, and its own operator has said when it suits.
	until := o.Choice.Until
	if last := latest(fleet, o.At, w.DeferBy); until.After(last) {
		until = last // it was shortened since
	}
	if until.Before(from) {
		return from
	}
	return until
}

func latest(fleet, offered time.Time, deferBy time.Duration) time.Time {
	if t := offered.Add(deferBy); deferBy > 0 && t.After(fleet) {
		return t
	}
	return fleet
}

// limit notes what a choice may be until the next Step.
func (m *Machine) limit(w Wanted) {
	l := limits{version: w.Version}
	if o := m.rec.Offer; (m.rec.Step == idle || m.restartAt(w).After(m.o.Now())) && o != nil && o.Version == w.Version && o.Retry == w.Retry {
		from := m.o.Now()
		if w.NotBefore.After(from) {
			from = w.NotBefore
		}
		l.open, l.latest = true, latest(w.Opens(from), o.At, w.DeferBy)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.status.Phase; p != Available && p != Scheduled {
		l.open = false
	}
	m.may = l
}

// Now has what is offered begin at once, whatever the windows say, but not before the
// fleet's operator allows it. It takes effect with the next Step. Safe for any caller, as
// are Defer and Cancel.
func (m *Machine) Now() error { return m.choose(choice{Now: true}) }

// Defer puts off what is offered until a time, or brings it forward to it.
func (m *Machine) Defer(until time.Time) error { return m.choose(choice{Until: until}) }

// Cancel forgets what Now or Defer said.
func (m *Machine) Cancel() error { return m.choose(choice{}) }

func (m *Machine) choose(c choice) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.may.open && (m.status.Phase == Downloading || m.status.Phase == Installing):
		return fmt.Errorf("%s %s has begun", m.o.Component, m.status.Wanted)
	case !m.may.open:
		return fmt.Errorf("nothing is offered for %s", m.o.Component)
	case c.Until.After(m.may.latest):
		if !m.may.latest.After(m.o.Now()) {
			return errors.New("the fleet's operator does not let this site put it off")
		}
		return fmt.Errorf("it has to begin by %s", m.may.latest.UTC().Format(time.RFC3339))
	}
	m.ask = &c
	return nil
}
