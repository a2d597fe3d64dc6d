package hostconfig

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster.dev/muster/internal/hostconfig"
)

const (
	// proveFor is for how long the centre has to be within reach, without a break, with what
	// the host was given. A line that is dead shows in a quarter of that.
	proveFor = time.Minute
	// trialFor is by when it has to have been.
	trialFor = 5 * time.Minute
	// trialEvery is how often it looks meanwhile.
	trialEvery = 5 * time.Second
	// tries is how often the same is tried: the line may have been cut by something else.
	tries = 2
)

// trial is what the host had before, and from when it has something else.
type trial struct {
	Held    hostconfig.Settings `json:"held"`
	OnDrift string              `json:"onDrift,omitempty"`
	Since   time.Time           `json:"since"`
}

// refused is what was put back, and how often.
type refused struct {
	Settings hostconfig.Settings `json:"settings"`
	Message  string              `json:"message"`
	Tries    int                 `json:"tries"`
}

// begin has the host hold something, on trial. Of several in a row what has proved itself is
// what is put back.
func (h *Host) begin(to *hostconfig.Settings, onDrift string) {
	t := h.state.Trial
	if t == nil {
		t = &trial{Held: h.state.Held, OnDrift: h.state.OnDrift}
	}
	t.Since = h.o.Now()
	if h.state.Trial = t; same(to, &t.Held) {
		h.state.Trial = nil
	}
	h.state.Held, h.state.OnDrift, h.linked = *to, onDrift, time.Time{}
}

// mayChange says why the host does not take other settings now; nil: it does.
func (h *Host) mayChange(a Agent, to *hostconfig.Settings) error {
	no := h.state.Refused
	again := no != nil && same(to, &no.Settings)
	if again && no.Tries >= tries {
		return errors.New(no.Message)
	}
	if err := a.Connected(); err != nil {
		if again {
			return errors.New(no.Message)
		}
		return fmt.Errorf("the host is changed only while the centre can be reached, so that it can be told whether that is why it can't be: %w", err)
	}
	return nil
}

// try looks whether what is on trial leaves the centre within reach, and puts back what was
// there before if it does not; false: it can't.
func (h *Host) try(ctx context.Context, a Agent) bool {
	t, now := h.state.Trial, h.o.Now()
	if t == nil {
		return true
	}
	if now.Before(t.Since) { // the clock was put back
		t.Since = now
	}
	why := a.Connected()
	switch {
	case why == nil && h.linked.IsZero():
		h.linked = now
		return true
	case why == nil && now.Sub(h.linked) >= proveFor:
		h.state.Trial, h.state.Refused = nil, nil
		return h.saved()
	case why == nil:
		return true
	}
	if h.linked = (time.Time{}); now.Sub(t.Since) < trialFor {
		return true
	}
	if err := h.apply(ctx, &t.Held); err != nil {
		h.o.Logger.Warn("the centre can't be reached since the host was given what it has, and what it had before can't be put back; trying again", "err", err)
		return false
	}
	h.o.Logger.Warn("the centre can't be reached since the host was given what it has: it has again what it had before", "err", why)
	no := &refused{Settings: h.state.Held, Message: fmt.Sprintf("it was put back: within %s after it was applied the site could not reach the centre for %s without a break", trialFor, proveFor), Tries: 1}
	if was := h.state.Refused; was != nil && same(&was.Settings, &no.Settings) {
		no.Tries += was.Tries
	}
	if no.Tries < tries {
		no.Message += "; it is tried once more"
	}
	h.state.Held, h.state.OnDrift, h.state.Trial, h.state.Refused, h.last = t.Held, t.OnDrift, nil, no, ""
	return h.saved()
}

func (h *Host) saved() bool {
	if err := h.save(); err != nil {
		h.o.Logger.Warn("host configuration", "err", err)
		return false
	}
	return true
}
