package state

import (
	"encoding/json"
	"fmt"
	"time"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/timeline"
	"muster.dev/muster/internal/wire"
)

// teller tells the timeline which alerts begin and end. It remembers those that it said
// began: what ended while the role was away is told when it is back.
type teller struct {
	store *timeline.Store
	told  *timeline.Tracker
}

func newTeller(s *timeline.Store) (*teller, error) {
	if s == nil {
		return nil, nil
	}
	told, err := s.Track("alerts")
	return &teller{s, told}, err
}

// toldAlert is what is needed to say that an alert ended.
type toldAlert struct {
	Start        time.Time `json:"t"`
	Tenant       string    `json:"e"`
	Site         string    `json:"s,omitempty"`
	VirtualSites []string  `json:"v,omitempty"`
	Name         string    `json:"n"`
	Severity     string    `json:"y"`
}

// record writes into the timeline what began and ended since the last call.
func (t *teller) record(now time.Time, v *view) error {
	if t == nil {
		return nil
	}
	var changes []timeline.Change
	for _, a := range v.all {
		x := toldAlert{a.StartsAt, a.Tenant, a.Site, a.VirtualSites, a.Name, a.Severity}
		was := told(t.told.Get(a.Fingerprint))
		if was != nil && was.Start.Equal(x.Start) {
			continue
		}
		value, err := json.Marshal(x)
		if err != nil {
			return err
		}
		c := timeline.Change{Key: a.Fingerprint, Value: string(value)}
		if was != nil {
			c.Events = append(c.Events, was.ended(a.Fingerprint, x.Start))
		}
		c.Events = append(c.Events, x.began(a))
		changes = append(changes, c)
	}
	for fp, value := range t.told.Keys() {
		if v.byID[fp] != nil {
			continue
		}
		c := timeline.Change{Key: fp}
		if was := told(value); was != nil {
			c.Events = []wire.TimelineEvent{was.ended(fp, now)}
		}
		changes = append(changes, c)
	}
	return t.told.Commit(changes)
}

func told(value string) *toldAlert {
	var x toldAlert
	if value == "" || json.Unmarshal([]byte(value), &x) != nil {
		return nil
	}
	return &x
}

func (x *toldAlert) event(fingerprint string, at time.Time) wire.TimelineEvent {
	return wire.TimelineEvent{Time: at, Kind: wire.EventAlert, Tenant: x.Tenant, Site: x.Site, VirtualSites: x.VirtualSites, Object: "Alert/" + x.Name, Link: "/alerts/" + fingerprint + "?tenant=" + x.Tenant}
}

func (x *toldAlert) began(a *wire.KnownAlert) wire.TimelineEvent {
	e := x.event(a.Fingerprint, x.Start)
	e.Severity, e.After = x.Severity, x.Severity // wire's words are Alertmanager's
	e.Text = x.Name + " fires"
	if a.State == wire.AlertSuppressed {
		e.Text += " (silenced)"
	}
	for _, name := range []string{"summary", "description"} {
		if s := a.Annotations[name]; s != "" {
			e.Text += ": " + s
			break
		}
	}
	return e
}

func (x *toldAlert) ended(fingerprint string, at time.Time) wire.TimelineEvent {
	e := x.event(fingerprint, at)
	e.Severity, e.Before, e.After = wire.EventGood, x.Severity, wire.AlertResolved
	e.Text = fmt.Sprintf("%s ended after %s", x.Name, max(at.Sub(x.Start), 0).Round(time.Second))
	return e
}

// silenced tells of a silence that somebody made or ended. What can't be written is logged:
// the silence stands.
func (s *State) silenced(x *amclient.Silence, tenant, who string, ended bool) {
	if s.teller == nil {
		return
	}
	e := wire.TimelineEvent{Time: time.Now(), Kind: wire.EventSilence, Severity: wire.EventInfo, Tenant: tenant, By: who, Link: "/alerts?tenant=" + tenant}
	matchers := ""
	for _, m := range x.Matchers {
		if m.Name == "tenant" {
			continue
		}
		if m.Name == "site" && m.IsEqual && !m.IsRegex {
			e.Site = m.Value
		}
		if matchers != "" {
			matchers += ", "
		}
		matchers += m.String()
	}
	e.Object = "Silence/" + x.ID
	e.After, e.Text = "silenced", fmt.Sprintf("silenced until %s: %s (%s)", fleet.Moment(x.EndsAt), matchers, x.Comment)
	if ended {
		e.Before, e.After, e.Text = "silenced", "ended", fmt.Sprintf("silence ended: %s (%s)", matchers, x.Comment)
	}
	if err := s.teller.store.Add(e); err != nil {
		s.log.Error("alert state: a silence is not in the timeline", "id", x.ID, "err", err)
	}
}
