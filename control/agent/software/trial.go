package software

import (
	"context"
	"errors"
	"fmt"
	"time"
)

func (m *Machine) boot(ctx context.Context, s State, w Wanted) error {
	switch {
	case s.Running == m.rec.Version:
		return m.to(trying)
	case s.Boot != m.rec.Boot:
		return m.fellBack(ctx, s, "it did not come up")
	case m.booted: // it is told again
	case w.Unheard:
		return nil // whether it is still wanted, and when, will be said
	case !w.is(&m.rec) || w.Withdrawn != "" || m.start(w).After(m.o.Now()): // since it was its turn
		if err := m.o.Driver.FallBack(ctx); err != nil {
			return err
		}
		return m.to(switching)
	}
	if err := m.beforeBoot(ctx); err != nil {
		return err
	}
	if err := m.o.Driver.Switch(ctx, m.rec.Version); err != nil {
		if s.Other != m.rec.Version { // somebody installed something else by hand
			err = errors.Join(err, m.to(fetching))
		}
		return err
	}
	if err := m.o.Driver.Boot(ctx); err != nil {
		return err
	}
	m.booted = true
	return nil
}

func (m *Machine) beforeBoot(ctx context.Context) error {
	m.tidied = false
	if m.o.BeforeBoot == nil {
		return nil
	}
	return m.o.BeforeBoot(ctx)
}

// fellBack is when the old version came up without having been told to.
func (m *Machine) fellBack(ctx context.Context, s State, why string) error {
	if m.rec.Attempts++; m.rec.Attempts < tries {
		m.rec.Boot, m.rec.Starts = "", 0
		return m.to(switching)
	}
	if err := m.o.Driver.FallBack(ctx); err != nil {
		return err
	}
	if why = fmt.Sprintf("%s, %d times", why, tries); s.Why != "" {
		why += ": " + s.Why
	}
	return m.fail(ctx, s.Running, why)
}

func (m *Machine) try(ctx context.Context, s State, w Wanted) error {
	if s.Running != m.rec.Version {
		return m.fellBack(ctx, s, "it went down before it was found well")
	}
	if s.Good { // and that could not be noted
		return m.done(ctx)
	}
	now := m.o.Now()
	if m.trialSince.IsZero() {
		m.trialSince = now
	}
	var sick error
	if m.o.Linked != nil {
		sick = m.o.Linked()
	}
	if m.o.Healthy != nil && sick == nil {
		sick = m.o.Healthy(ctx)
	}
	switch {
	case w.Version == m.rec.From:
		return m.giveUp("it was taken back while on trial")
	case w.Version == m.rec.Version && w.Withdrawn != "":
		return m.giveUp("it was withdrawn while on trial: " + w.Withdrawn)
	case sick == nil && m.wellSince.IsZero():
		m.wellSince = now
	case sick != nil:
		m.wellSince = time.Time{}
		if m.rec.Message != sick.Error() {
			m.rec.Message = sick.Error() // on disk with the next step
		}
	}
	switch {
	case sick == nil && now.Sub(m.wellSince) >= m.o.Hold:
		if err := m.o.Driver.MarkGood(ctx); err != nil {
			return err
		}
		return m.done(ctx)
	case m.rec.Starts > maxStarts:
		return m.giveUp(fmt.Sprintf("the agent was started %d times on trial", m.rec.Starts))
	case sick != nil && now.Sub(m.trialSince) >= m.o.Within:
		return m.giveUp(fmt.Sprintf("it was not well within %s: %v", m.o.Within, sick))
	}
	return nil
}

func (m *Machine) done(ctx context.Context) error {
	if err := m.afterTrial(ctx); err != nil {
		return err
	}
	keep := m.rec.memory
	keep.Failed, keep.Offer, keep.Last = nil, nil, m.rec.Version
	if keep.Before == keep.Last {
		keep.Before = ""
	}
	m.rec, m.trialSince, m.wellSince = record{memory: keep}, time.Time{}, time.Time{}
	return m.save()
}

func (m *Machine) giveUp(why string) error {
	m.rec.Message, m.trialSince, m.wellSince = why, time.Time{}, time.Time{}
	return m.to(goingBack)
}

func (m *Machine) back(ctx context.Context, s State) error {
	if s.Running != m.rec.Version {
		return m.fail(ctx, s.Running, m.rec.Message)
	}
	if err := m.o.Driver.FallBack(ctx); err != nil {
		return err
	}
	return m.o.Driver.Boot(ctx)
}
