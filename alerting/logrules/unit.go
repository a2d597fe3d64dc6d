package logrules

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// unitID is a rule over the sites of one tenant; for the rules of the platform that
// is not the tenant of the rule.
type unitID struct {
	Tenant string `json:"tenant"`
	Object string `json:"object"`
	Rule   string `json:"rule"`
	Sites  string `json:"sites"` // the tenant whose sites they are
}

func (id unitID) String() string {
	return fmt.Sprintf("%s/%s/%s of %s", id.Tenant, id.Object, id.Rule, id.Sites)
}

// key of the state. Names are DNS labels and identifiers; only an object's name can be long.
func (id unitID) key() string {
	object := id.Object
	if len(object) > 100 {
		h := sha256.Sum256([]byte(object))
		object = object[:60] + "-" + hex.EncodeToString(h[:16])
	}
	return "logrules/rule/" + id.Tenant + "/" + object + "/" + id.Rule + "/" + id.Sites
}

// Bounds on one question to the Source, in time of ingest.
const (
	maxStretch   = 5 * time.Minute
	maxLearn     = 24 * time.Hour
	minStretch   = time.Second
	maxStretches = 48 // in one evaluation; the next goes on
	// restate is after how long the position is written though nothing happened.
	restate = 5 * time.Minute
)

// unit is what this process holds of a unit while it is the owner. One goroutine at a
// time.
type unit struct {
	id   unitID
	plan *plan

	st      *state
	version string
	dirty   bool
	stretch time.Duration // shorter than maxStretch where there are too many groups
	written time.Time     // the position in the State

	// of the last evaluation, for Status
	err       error
	truncated bool
	behind    time.Duration
	cut       int64
	readTo    time.Time // by the own clock: when what was read last was taken in
	turned    time.Time // when its last turn began
}

// owner is what a unit needs of the Runner.
type owner struct {
	Options
	epoch func() (int64, bool)
	m     *metrics
}

func (w *owner) limits() limits { return limits{w.MaxKeys, w.MaxTerms} }

// mine returns errLost unless the lease is surely held.
func (w *owner) mine() (int64, error) {
	epoch, ok := w.epoch()
	if !ok {
		return 0, errLost
	}
	return epoch, nil
}

// evaluate reads on up to now, in the store's time, and sends what there is to send.
// now is zero if the store does not tell it: then only what waits is sent.
// After any error that leaves open what the State holds, the state is read again.
func (u *unit) evaluate(ctx context.Context, w *owner, sites map[string]Site, now time.Time) (err error) {
	defer func() {
		if err != nil && u.dirty {
			u.st = nil // also after a crash: the state in hand may be ahead of the written one
		}
	}()
	if err := u.load(ctx, w, now); err != nil {
		return err
	}
	box := u.outbox(w, sites)
	box.left()
	u.dirty = u.addWindows(sites, now) || u.dirty || box.changed
	u.truncated = false
	// What waits goes out first: it may not depend on the Source being there.
	if err := u.write(ctx, w); err != nil {
		return err
	}
	sendErr := u.send(ctx, w, box)
	var readErr error
	began := w.Now() // others wait for the turn
	for i := 0; i < maxStretches && u.st.Position.Before(now) && readErr == nil && w.Now().Sub(began) < w.Interval; i++ {
		readErr = u.read(ctx, w, sites, now)
	}
	if !now.IsZero() {
		u.behind = max(0, now.Sub(u.st.Position))
		u.readTo = w.Now().Add(-u.behind)
	}
	u.cut = u.st.Cut
	if err := u.write(ctx, w); err != nil {
		return errors.Join(readErr, sendErr, err)
	}
	if sendErr == nil {
		sendErr = u.send(ctx, w, u.outbox(w, sites))
	}
	return errors.Join(readErr, sendErr)
}

// addWindows gives every site a window, heard of or not, from when it is first in the
// inventory.
func (u *unit) addWindows(sites map[string]Site, now time.Time) (changed bool) {
	if !u.plan.fromInventory || now.IsZero() {
		return false
	}
	for name := range sites {
		if u.st.Keys[name] == nil {
			u.st.Keys[name] = &window{First: now.UnixMilli(), Last: now.UnixMilli()}
			changed = true
		}
	}
	return changed
}

func (u *unit) outbox(w *owner, sites map[string]Site) *outbox {
	return &outbox{p: u.plan, st: u.st, sites: sites, limits: w.limits(), now: w.Now().UnixMilli(), external: w.ExternalURL}
}

func (u *unit) load(ctx context.Context, w *owner, now time.Time) error {
	if u.st == nil {
		if err := u.get(ctx, w); err != nil {
			return err
		}
	}
	if u.st.Hash != u.plan.hash {
		if now.IsZero() {
			return errors.New("the store's time is not known: the rule can't start")
		}
		u.st.restart(u.plan, now, w.Now().UnixMilli())
		if u.plan.traits.learns {
			u.st.Learn = now.UnixMilli()
			u.st.Position = now.Add(-time.Duration(u.plan.traits.termsFor) * time.Millisecond)
		}
		u.dirty = true
	} else if u.st.LabelHash != u.plan.labelHash {
		u.st.relabel(u.plan, w.Now().UnixMilli())
		u.dirty = true
	}
	if ahead := u.st.Position.Sub(now); !now.IsZero() && ahead > time.Minute {
		w.Logger.Error("the log store's time went back; the rule goes on from there", "rule", u.id.String(), "by", ahead)
		u.st.Position, u.st.Judged, u.dirty = now, min(u.st.Judged, now.UnixMilli()-u.plan.delay), true
	}
	return nil
}

func (u *unit) get(ctx context.Context, w *owner) error {
	epoch, err := w.mine()
	if err != nil {
		return err
	}
	b, version, err := w.State.Get(ctx, u.id.key())
	if errors.Is(err, ErrNoState) {
		u.st, u.version, u.dirty = newState(), "", true
		u.st.init()
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the state: %w", err)
	}
	st, err := decodeState(b)
	switch {
	case errors.Is(err, errVersion):
		return fmt.Errorf("read the state: %w", err)
	case err != nil: // nothing can be made of it: start anew rather than never again
		w.Logger.Error("a log rule's state can't be read, it starts anew", "rule", u.id.String(), "error", err)
		st = newState()
	case st.Epoch > epoch:
		return errLost
	}
	st.init()
	// The own epoch in the document shuts out an owner of before.
	u.st, u.version, u.dirty, u.written = st, version, st.Epoch != epoch, st.Position
	return nil
}

// write puts the state. Only after that may anything that it says be sent.
func (u *unit) write(ctx context.Context, w *owner) error {
	if !u.dirty && u.st.Position.Sub(u.written) < restate {
		return nil
	}
	epoch, err := w.mine()
	if err != nil {
		u.dirty = true
		return err
	}
	u.dirty = true // until it is known to be written
	u.st.Epoch = epoch
	cut := u.st.Cut
	b, err := u.st.encode()
	w.m.cut.Add(float64(u.st.Cut - cut))
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	version, err := w.State.Put(ctx, u.id.key(), b, u.version)
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	u.version, u.dirty, u.written = version, false, u.st.Position
	return nil
}

// read evaluates one stretch of ingest and writes what came of it if that has to be
// sent.
func (u *unit) read(ctx context.Context, w *owner, sites map[string]Site, now time.Time) error {
	st, p := u.st, u.plan
	learn := st.Position.UnixMilli() < st.Learn
	most := maxStretch
	if learn {
		most = maxLearn
	}
	if u.stretch <= 0 || u.stretch > most {
		u.stretch = most
	}
	upTo := st.Position.Add(u.stretch)
	if upTo.After(now) {
		upTo = now
	}
	if l := time.UnixMilli(st.Learn); learn && upTo.After(l) {
		upTo = l
	}
	groups, upTo, err := u.ask(ctx, w, sites, upTo, learn)
	if err != nil {
		return err
	}
	r := &round{p: p, st: st, sites: sites, limits: w.limits(), after: st.Position.UnixMilli(), upTo: upTo.UnixMilli(),
		from: st.Judged, to: floor(upTo.UnixMilli()-p.delay, p.step), learn: learn}
	// Whatever the state says, a stretch has only so many ends of steps.
	r.from = min(max(r.from, floor(r.after-p.delay, p.step)-p.step), r.upTo)
	r.to = max(r.from, r.to)
	cut := st.Cut
	r.run(groups)
	box := u.outbox(w, sites)
	box.take(r.events, r.upTo)
	u.topCounts(ctx, w, box.told, upTo)
	st.Position, st.Judged = upTo, r.to
	u.dirty = u.dirty || r.changed || box.changed
	w.m.matches.Add(float64(len(r.events)))
	w.m.cut.Add(float64(st.Cut - cut))
	return nil
}

// ask asks all queries of the rule about one stretch. Where there are too many groups, or
// too many lines to be read in time, the stretch is halved; one of too many groups that
// can't be halved is taken as it is.
func (u *unit) ask(ctx context.Context, w *owner, sites map[string]Site, upTo time.Time, learn bool) ([][]Group, time.Time, error) {
	if len(sites) == 0 {
		return make([][]Group, len(u.plan.queries)), upTo, nil
	}
	names := siteNames(sites)
	for {
		groups, truncated, err := u.askOnce(ctx, w, names, upTo, learn)
		length := upTo.Sub(u.st.Position)
		tooMuch := errors.Is(err, ErrTooMuch) || errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
		if err != nil && (!tooMuch || length/2 < minStretch) {
			return nil, upTo, err
		}
		truncated = truncated || tooMuch
		if !truncated {
			u.stretch = min(2*u.stretch, maxLearn)
			return groups, upTo, nil
		}
		if length/2 < minStretch {
			u.truncated = true
			w.m.truncated.Inc()
			return groups, upTo, nil
		}
		u.stretch = length / 2
		upTo = u.st.Position.Add(u.stretch)
	}
}

func (u *unit) askOnce(ctx context.Context, w *owner, names []string, upTo time.Time, learn bool) (out [][]Group, truncated bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	step := time.Duration(u.plan.step) * time.Millisecond
	if learn {
		step = maxLearn
	}
	for _, q := range u.plan.queries {
		g, err := w.Source.Groups(ctx, Query{Tenant: u.id.Sites, Text: q.text, Sites: names, After: u.st.Position, UpTo: upTo,
			By: q.by, Step: step, Metric: q.metric, Spread: q.spread, Include: u.plan.included(), MaxGroups: w.MaxGroups})
		if err != nil {
			return nil, false, fmt.Errorf("read lines: %w", err)
		}
		out, truncated = append(out, g.Groups), truncated || g.Truncated
	}
	return out, truncated, nil
}

// maxBatch is how many alerts the Sink gets at a time.
const maxBatch = 1000

func (u *unit) send(ctx context.Context, w *owner, box *outbox) error {
	alerts, taken := box.toSend()
	for len(alerts) > 0 {
		if _, err := w.mine(); err != nil {
			return err
		}
		n := min(len(alerts), maxBatch)
		if err := w.Sink.Send(ctx, alerts[:n]); err != nil {
			w.m.sendErrors.Inc()
			return fmt.Errorf("send %d alerts: %w", len(alerts), err)
		}
		w.m.sent.Add(float64(n))
		alerts = alerts[n:]
	}
	taken()
	u.dirty = u.dirty || box.changed
	return nil
}

// retire ends the alerts of a rule that is no more, and then its state.
func (u *unit) retire(ctx context.Context, w *owner) error {
	if u.st == nil {
		if err := u.get(ctx, w); err != nil {
			return err
		}
	}
	box := u.outbox(w, nil)
	box.left()
	if u.version == "" && len(u.st.Ended) == 0 {
		return nil
	}
	u.dirty = u.dirty || box.changed
	err := u.write(ctx, w)
	if err == nil {
		err = u.send(ctx, w, box)
	}
	if err == nil {
		err = w.State.Delete(ctx, u.id.key(), u.version)
		if errors.Is(err, ErrNoState) {
			err = nil
		}
	}
	u.st = nil
	return err
}
