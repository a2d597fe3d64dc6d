// Package colours tells the timeline when sites change colour. It follows the engine's views
// and compares them with what it told last, which outlives a restart; it works out nothing of
// health itself. cmd/internal runs it beside the engine.
package colours

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"muster.dev/muster/health/engine"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/timeline"
	"muster.dev/muster/internal/wire"
)

// Source is what it needs of *engine.Engine.
type Source interface {
	View() *engine.View
	Subscribe(size int) *engine.Subscription
}

// Options of New. All are needed.
type Options struct {
	Source   Source
	Timeline *timeline.Store
	Logger   *slog.Logger
}

// Teller tells.
type Teller struct {
	o    Options
	told *timeline.Tracker
}

// New reads what was told.
func New(o Options) (*Teller, error) {
	if o.Source == nil || o.Timeline == nil || o.Logger == nil {
		return nil, errors.New("colours: Source, Timeline and Logger must be set")
	}
	told, err := o.Timeline.Track("colours")
	if err != nil {
		return nil, err
	}
	return &Teller{o: o, told: told}, nil
}

// Run tells until ctx ends.
func (t *Teller) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		sub := t.o.Source.Subscribe(64)
		t.look(t.o.Source.View(), nil)
		t.follow(ctx, sub) // ends when it fell behind: the next look is at all sites
		sub.Close()
	}
	return nil
}

func (t *Teller) follow(ctx context.Context, sub *engine.Subscription) {
	for {
		select {
		case <-ctx.Done():
			return
		case u, ok := <-sub.C:
			if !ok {
				return
			}
			if u.Tick || len(u.Removed) > 0 {
				t.look(u.View, nil) // also what could not be written before
			} else {
				t.look(u.View, u.Sites)
			}
		}
	}
}

// look compares some sites, or if there are none all, with what was told.
func (t *Teller) look(v *engine.View, sites []*engine.Site) {
	if v == nil {
		return
	}
	all := sites == nil
	if all {
		sites = v.Sites
	}
	var changes []timeline.Change
	for _, s := range sites {
		if s.State == nil {
			continue // not evaluated yet, or not part of the fleet
		}
		k, is := s.ID.String(), string(s.State.Colour)
		was := t.told.Get(k)
		if was == is {
			continue
		}
		c := timeline.Change{Key: k, Value: is}
		if was != "" {
			c.Events = []wire.TimelineEvent{event(s, fleet.Colour(was))}
		}
		changes = append(changes, c)
	}
	if all {
		for k := range t.told.Keys() {
			if id, err := fleet.ParseSiteID(k); err != nil || v.Snapshot.Find(id.Tenant, id.Name) < 0 {
				changes = append(changes, timeline.Change{Key: k})
			}
		}
	}
	if err := t.told.Commit(changes); err != nil {
		t.o.Logger.Error("colours are not in the timeline; they are told at the next tick", "err", err)
	}
}

func event(s *engine.Site, was fleet.Colour) wire.TimelineEvent {
	is := s.State.Colour
	e := wire.TimelineEvent{Time: s.State.Since, Kind: wire.EventColour, Tenant: s.ID.Tenant, Site: s.ID.Name, VirtualSites: s.VirtualSites, Before: string(was), After: string(is), Link: wire.SiteLink(s.ID.Tenant, s.ID.Name)}
	switch is {
	case fleet.Red:
		e.Severity = wire.EventCritical
	case fleet.Orange:
		if e.Severity = wire.EventWarning; was == fleet.Red {
			e.Severity = wire.EventGood
		}
	case fleet.Green:
		e.Severity = wire.EventGood
	}
	e.Text = fmt.Sprintf("%s → %s", was, is)
	if s.State.Known {
		e.Text += fmt.Sprintf(", score %.0f", s.State.Score)
	}
	if len(s.State.Reasons) > 0 && is != fleet.Green {
		e.Text += ": " + s.State.Reasons[0].Text
	}
	return e
}
