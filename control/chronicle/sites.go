package chronicle

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// toldSite is what is remembered of a site.
type toldSite struct {
	UID            string            `json:"u"`
	Phase          fleet.Phase       `json:"p,omitempty"`
	Approved       bool              `json:"a,omitempty"`
	Decommissioned bool              `json:"d,omitempty"`
	Maintenance    string            `json:"m,omitempty"` // its reason, and window if it is one
	Versions       map[string]string `json:"v,omitempty"`
	Reset          string            `json:"r,omitempty"` // its id and phase
	Software       map[string]string `json:"s,omitempty"` // by component: state and version wanted
}

func siteNow(s *v1alpha1.Site) toldSite {
	x := toldSite{UID: string(s.UID), Phase: s.Status.Phase, Approved: s.Spec.Approved, Decommissioned: s.Spec.Decommissioned, Maintenance: s.Status.Maintenance.Text(), Versions: s.Status.Versions, Software: map[string]string{}}
	if r := s.Status.Reset; r != nil {
		x.Reset = r.ID + " " + string(r.Phase)
	}
	for _, c := range s.Status.Software {
		if c.State != "" {
			x.Software[string(c.Component)] = string(c.State) + " " + c.Wanted
		}
	}
	return x
}

func tellSite(c *Chronicle, id identity, was string, o client.Object) (string, []wire.TimelineEvent) {
	var before toldSite
	known := was != "" && json.Unmarshal([]byte(was), &before) == nil
	t := &siteTeller{now: c.o.Now(), base: wire.TimelineEvent{Severity: wire.EventInfo, Tenant: id.tenant, Site: id.name, VirtualSites: c.virtualSites(id.tenant, id.name), Link: wire.SiteLink(id.tenant, id.name)}}
	if o == nil {
		t.base.Link = ""
		t.say(wire.EventRegistration, "", "removed", "the site was removed")
		return "", t.events
	}
	s := o.(*v1alpha1.Site)
	is := siteNow(s)
	if !known || before.UID != is.UID {
		text := "registered"
		if s.Spec.Token != "" {
			text += " with token " + s.Spec.Token
		}
		t.say(wire.EventRegistration, "", "registered", text).Time = s.CreationTimestamp.UTC()
		if !known {
			before = toldSite{Phase: is.Phase, Reset: is.Reset, Versions: is.Versions, Software: is.Software} // how it is, and no news
		} else {
			before = toldSite{}
		}
	}
	t.registration(s, &before, &is)
	t.reset(s, &before, &is)
	t.connection(s, &before, &is)
	t.maintenance(s, &before, &is)
	t.software(s, &before, &is)
	value, err := json.Marshal(is)
	if err != nil {
		return was, nil
	}
	return string(value), t.events
}

type siteTeller struct {
	now    time.Time
	base   wire.TimelineEvent
	events []wire.TimelineEvent
}

func (t *siteTeller) say(kind, before, after, text string) *wire.TimelineEvent {
	e := t.base
	e.Time, e.Kind, e.Before, e.After, e.Text = t.now, kind, before, after, text
	t.events = append(t.events, e)
	return &t.events[len(t.events)-1]
}

func (t *siteTeller) registration(s *v1alpha1.Site, before, is *toldSite) {
	if is.Approved && !before.Approved {
		e := t.say(wire.EventRegistration, string(fleet.PhasePending), string(fleet.PhaseApproved), "approved")
		e.Severity, e.By, e.Time = wire.EventGood, changedBy(s), changedAt(s, t.now)
		if e.By == "" {
			e.Text = "approved by its token"
			e.Time = timeOf(&s.CreationTimestamp, t.now)
		}
	}
	if is.Decommissioned && !before.Decommissioned {
		e := t.say(wire.EventRegistration, "", string(fleet.PhaseDecommissioned), "decommissioned: refused for good")
		e.Severity, e.By, e.Time = wire.EventWarning, changedBy(s), changedAt(s, t.now)
	}
}

// reset tells how far a factory reset is.
func (t *siteTeller) reset(s *v1alpha1.Site, before, is *toldSite) {
	r := s.Status.Reset
	if is.Reset == before.Reset || r == nil {
		return
	}
	was := ""
	if id, phase, ok := strings.Cut(before.Reset, " "); ok && id == r.ID {
		was = phase
	}
	text := "factory reset " + strings.ToLower(string(r.Phase))
	if r.Message != "" && r.Phase != v1alpha1.ResetResetting { // how much is left changes
		text += ": " + r.Message
	}
	e := t.say(wire.EventRegistration, was, string(r.Phase), text)
	e.Time = timeOf(&r.Since, t.now)
	switch r.Phase {
	case v1alpha1.ResetAsked, v1alpha1.ResetCancelled:
		e.By = changedBy(s)
	case v1alpha1.ResetResetting, v1alpha1.ResetExpired, v1alpha1.ResetRefused:
		e.Severity = wire.EventWarning
	case v1alpha1.ResetCompleted:
		e.Severity = wire.EventGood
	}
}

func (t *siteTeller) connection(s *v1alpha1.Site, before, is *toldSite) {
	if is.Phase == before.Phase {
		return
	}
	at := t.now
	if ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		at = timeOf(&ready.LastTransitionTime, t.now)
	}
	switch is.Phase {
	case fleet.PhaseOnline:
		e := t.say(wire.EventConnection, string(before.Phase), string(is.Phase), "connected to regional "+s.Status.Regional)
		e.Severity, e.Time = wire.EventGood, at
	case fleet.PhaseOffline:
		e := t.say(wire.EventConnection, string(before.Phase), string(is.Phase), "not connected any more; it was on regional "+s.Status.Regional)
		e.Severity, e.Time = wire.EventWarning, at
	}
}

func (t *siteTeller) maintenance(s *v1alpha1.Site, before, is *toldSite) {
	if is.Maintenance == before.Maintenance {
		return
	}
	if is.Maintenance == "" {
		t.say(wire.EventMaintenance, "maintenance", "ended", "maintenance ended: "+before.Maintenance)
		return
	}
	m := s.Status.Maintenance
	text := "maintenance: " + is.Maintenance
	if m.Until != nil {
		text += ", until " + fleet.Moment(m.Until.Time)
	}
	e := t.say(wire.EventMaintenance, "", "maintenance", text)
	if m.Window == "" {
		e.By = changedBy(s)
	}
}

func (t *siteTeller) software(s *v1alpha1.Site, before, is *toldSite) {
	var parts []string
	first := [2]string{}
	for _, name := range slices.Sorted(maps.Keys(is.Versions)) {
		was, now := before.Versions[name], is.Versions[name]
		if was == now || was == "" {
			continue
		}
		if len(parts) == 0 {
			first = [2]string{was, now}
		}
		parts = append(parts, fmt.Sprintf("%s %s → %s", name, was, now))
	}
	if len(parts) > 0 {
		t.say(wire.EventSoftware, first[0], first[1], strings.Join(parts, "; ")).Object = "Versions/" + s.Name
	}
	for _, x := range s.Status.Software {
		name := string(x.Component)
		was, now := before.Software[name], is.Software[name]
		if was == now || now == "" {
			continue
		}
		e := t.say(wire.EventSoftware, strings.Fields(was + " -")[0], string(x.State), fmt.Sprintf("%s %s: %s", name, x.Wanted, strings.ToLower(string(x.State))))
		if x.Message != "" {
			e.Text += ": " + x.Message
		}
		if was == "" {
			e.Before = ""
		}
		e.Object, e.Time = "SoftwareVersion/"+name+"-"+x.Wanted, timeOf(x.Since, t.now)
		switch x.State {
		case v1alpha1.SoftwareFailed:
			e.Severity = wire.EventWarning
		case v1alpha1.SoftwareDone:
			e.Severity = wire.EventGood
		}
	}
}
