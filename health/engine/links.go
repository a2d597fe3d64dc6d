package engine

import (
	"slices"
	"time"

	"muster.dev/muster/health"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/wire"
)

// regionalState is what is known of one regional.
type regionalState struct {
	Regional
	polled bool // at least one answer or failure
	ok     bool // the last poll was answered
	late   bool // the last poll was not answered in time
	err    string
	at     time.Time // of the last answer
	sites  []wire.SiteLive
}

// memory is what the engine remembers of one site between ticks.
type memory struct {
	id    fleet.SiteID
	state *health.State
	// born is when the site was registered. Another time under the same name is another site.
	born time.Time
	// before is until when there may be samples of another site that had the name; zero:
	// there was none.
	before time.Time
	// shadow is what the policy in shadow makes of it; nil: there is none, or not yet.
	shadow *health.State
	home   int32 // position of the regional that speaks for it, or homeUnknown
	link   health.Link
	since  time.Time // of link
	// changed: link did since the site was last evaluated.
	changed bool
	// down is when a regional first said that the site is not connected, missing
	// when it was first in nobody's live view; zero while connected.
	down, missing time.Time
	seen          time.Time // newest heartbeat
	// proof is the newest heartbeat or acknowledged push, streams says that it ever had
	// a stream.
	proof   time.Time
	streams bool
	// up is when the stream began that was seen last, zero when none was; drops are when
	// streams were lost, the newest last.
	up    time.Time
	drops []time.Time
	// What series say of the link, where there is no live view, and when they said it.
	store     health.Link
	storeAt   time.Time
	readAt    time.Time // of the store's readings
	fromStore bool      // the last tick's readings
	sent      *Site     // as the subscribers know it
}

// heard is what all live views together say of one site.
type heard struct {
	up        int32 // regional that it is connected to, or homeUnknown
	upSince   time.Time
	stream    time.Time // upSince as the regional has it, by which a stream is told from another
	listed    int32     // regional that heard of it last, or homeUnknown
	heartbeat time.Time
	push      time.Time // newest acknowledged push
	agent     bool      // it ever had a stream
}

// fresh says whether a regional's live view may still be believed.
func (e *Engine) fresh(r *regionalState, now time.Time) bool {
	return !r.at.IsZero() && now.Sub(r.at) <= e.opts.LiveMaxAge
}

// answering says whether a regional has answered a query lately.
func (e *Engine) answering(r int, now time.Time) bool {
	at := e.answered[r].Load()
	return at != 0 && now.UnixMilli()-at < (e.opts.Tick+e.opts.QueryTimeout).Milliseconds()
}

// asked says whether a regional is asked about its sites: while its live view comes, and
// while that is only late. A regional that has much to do must not send health to the
// store, which then has as much.
func (e *Engine) asked(r int, now time.Time) bool {
	reg := &e.regionals[r]
	return reg.ok || reg.late && e.answering(r, now)
}

// listen joins the live views.
func (e *Engine) listen(snap *inventory.Snapshot, now time.Time) []heard {
	if cap(e.heard) < len(snap.Sites) {
		e.heard = make([]heard, len(snap.Sites)+len(snap.Sites)/8)
	}
	out := e.heard[:len(snap.Sites)]
	for i := range out {
		out[i] = heard{up: homeUnknown, listed: homeUnknown}
	}
	for r := range e.regionals {
		reg := &e.regionals[r]
		if !e.fresh(reg, now) {
			continue
		}
		for j := range reg.sites {
			l := &reg.sites[j]
			i := snap.Find(l.Tenant, l.Site)
			if i < 0 {
				continue
			}
			h, m, born := &out[i], e.aligned[i], snap.Sites[i].CreatedAt
			// own leaves out what was heard of another site, which had the name before. Times
			// from a regional in the future are its clock's fault, not the site's.
			own := func(t time.Time) time.Time {
				if t = earlier(t, now); !t.Before(born) {
					return t
				}
				if t.After(m.before) {
					m.before = t
				}
				return time.Time{}
			}
			beat, since, push := own(l.LastHeartbeat), earlier(l.ConnectedSince, now), own(l.LastPush)
			if beat.IsZero() && push.IsZero() && !l.Connected && !(l.LastHeartbeat.IsZero() && l.LastPush.IsZero()) {
				continue
			}
			if l.Connected && (h.up == homeUnknown || since.After(h.upSince)) {
				h.up, h.upSince, h.stream = int32(r), since, l.ConnectedSince
			}
			if push.After(h.push) {
				h.push = push
			}
			h.agent = h.agent || l.Connected || l.AgentVersion != ""
			if push.After(beat) {
				beat = push
			}
			if h.listed == homeUnknown || beat.After(h.heartbeat) {
				h.listed = int32(r)
			}
			if beat.After(h.heartbeat) {
				h.heartbeat = beat
			}
		}
	}
	return out
}

func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}

// judge decides a site's link from what was heard, and says whether it changed.
func (e *Engine) judge(m *memory, site *inventory.Site, h *heard, now time.Time) bool {
	if h.heartbeat.After(m.seen) {
		m.seen = h.heartbeat
	}
	if site.LastSeen.After(m.seen) {
		m.seen = site.LastSeen
	}
	if h.heartbeat.After(m.proof) {
		m.proof = h.heartbeat
	}
	m.streams = m.streams || h.agent
	switch {
	case h.up != homeUnknown:
		m.home = h.up
		m.down, m.missing = time.Time{}, time.Time{}
		m.streamed(h.stream, now)
		return m.set(health.LinkUp, later(h.upSince, m.since, m.link == health.LinkUp), now)
	case m.home == homeUnknown && h.listed != homeUnknown:
		m.home = h.listed
	}
	if m.home == homeUnknown {
		for r := range e.regionals {
			if e.regionals[r].Name == site.Regional {
				m.home = int32(r)
			}
		}
	}
	// Nobody who can be asked has it connected. The one that can't be asked might.
	all, homeFresh := true, false
	for r := range e.regionals {
		if f := e.fresh(&e.regionals[r], now); !f {
			all = false
		} else if int32(r) == m.home {
			homeFresh = true
		}
	}
	if all || homeFresh {
		m.streamed(time.Time{}, now)
	}
	patience := e.opts.Patience
	if !m.streams {
		patience = e.opts.patience(site)
	}
	if !h.push.IsZero() && now.Sub(h.push) < patience {
		// The site is where its pushes arrive.
		m.home = h.listed
		m.down, m.missing = time.Time{}, time.Time{}
		return m.set(health.LinkUp, time.Time{}, now)
	}
	if !all && m.store == health.LinkUp && now.Sub(m.storeAt) < 3*e.opts.Tick {
		m.down, m.missing = time.Time{}, time.Time{}
		return m.set(health.LinkUp, time.Time{}, now)
	}
	never := h.listed == homeUnknown && m.seen.IsZero() && site.Phase != fleet.PhaseOnline && site.Phase != fleet.PhaseOffline
	switch {
	case never && (m.link == health.LinkUnknown || m.link == health.LinkNever):
		return m.set(health.LinkNever, time.Time{}, now)
	case m.link == health.LinkDown && (all || homeFresh):
		return false
	}
	if h.listed != homeUnknown && (all || homeFresh) {
		if m.proof.IsZero() || now.Sub(m.proof) < patience {
			return e.gone(m, &m.down, patience, health.LinkDown, now)
		}
		return e.gone(m, &m.down, min(patience, e.opts.LiveInterval*4/5), health.LinkDown, now)
	}
	if all || homeFresh {
		return e.gone(m, &m.missing, e.opts.MissingGrace, health.LinkDown, now)
	}
	if m.store == health.LinkDown && now.Sub(m.storeAt) < 3*e.opts.Tick {
		return m.set(health.LinkDown, m.seen, now)
	}
	return e.gone(m, &m.missing, e.opts.MissingGrace, health.LinkUnknown, now)
}

// flapWindow is how far back lost streams are counted.
const flapWindow = 10 * time.Minute

// streamed takes in the stream that is seen now, by when it began; zero for none. A
// stream that is gone, or another one than before, was lost.
func (m *memory) streamed(since, now time.Time) {
	if !m.up.IsZero() && !m.up.Equal(since) {
		if len(m.drops) == 32 {
			m.drops = slices.Delete(m.drops, 0, 1)
		}
		m.drops = append(m.drops, now)
	}
	m.up = since
}

// reconnects is how many streams were lost lately.
func (m *memory) reconnects(now time.Time) int {
	n := 0
	for _, t := range m.drops {
		if now.Sub(t) < flapWindow {
			n++
		}
	}
	return n
}

// gone changes the link once it has been observed for long enough by polls, not
// merely by looking at the same answer twice.
func (e *Engine) gone(m *memory, first *time.Time, grace time.Duration, to health.Link, now time.Time) bool {
	if first.IsZero() {
		*first = e.lastPoll(now)
		return false
	}
	if e.lastPoll(now).Sub(*first) < grace {
		return false
	}
	return m.set(to, m.seen, now)
}

// lastPoll is when the slowest of the live views that can be had was had.
func (e *Engine) lastPoll(now time.Time) time.Time {
	at := now
	for r := range e.regionals {
		if reg := &e.regionals[r]; e.fresh(reg, now) && reg.at.Before(at) {
			at = reg.at
		}
	}
	return at
}

func (m *memory) set(to health.Link, since, now time.Time) bool {
	if m.link == to {
		return false
	}
	if since.IsZero() {
		since = now
	}
	m.link, m.since = to, since
	return true
}

// later returns a, unless keep says that b stands.
func later(a, b time.Time, keep bool) time.Time {
	if keep {
		return b
	}
	return a
}
