package wire

import "time"

// TimelinePath is where the roles that keep a part of the timeline serve it, and where the
// console serves the whole.
const TimelinePath = "/api/v1/timeline"

// The kinds of timeline events. Their order is part of what is on disk: new ones come last.
const (
	EventColour       = "colour"       // a site's colour changed
	EventAlert        = "alert"        // an alert began to fire, or ended
	EventNotification = "notification" // somebody was notified, or could not be
	EventSilence      = "silence"      // alerts were silenced, or a silence was ended
	EventMaintenance  = "maintenance"  // planned work began or ended at a site
	EventRegistration = "registration" // a site came, was approved, decommissioned or removed
	EventConnection   = "connection"   // a site connected, or was lost
	EventPolicy       = "policy"       // an object that says how the fleet is run was written or deleted
	EventRollout      = "rollout"      // a decision of a rollout, or what became of a site in it
	EventSoftware     = "software"     // a version at a site changed
)

// TimelineKinds are all of them, in their order.
var TimelineKinds = []string{EventColour, EventAlert, EventNotification, EventSilence, EventMaintenance, EventRegistration, EventConnection, EventPolicy, EventRollout, EventSoftware}

// Values of TimelineEvent.Severity.
const (
	EventGood     = "good" // something got better
	EventInfo     = "info"
	EventWarning  = "warning"
	EventCritical = "critical"
)

// Values of TimelineEvent.After of an EventNotification.
const (
	NotificationSent   = "sent"
	NotificationFailed = "failed"
)

// TimelineEvent is one thing that happened: what the timeline keeps, the console and the
// CLI show, Grafana draws as an annotation and control repeats as Kubernetes Events.
type TimelineEvent struct {
	// ID names the event for good: 32 hexadecimal digits, unique within the tenant. IDs
	// sort as times do.
	ID       string    `json:"id"`
	Time     time.Time `json:"time"`
	Kind     string    `json:"kind"`
	Severity string    `json:"severity"`
	Tenant   string    `json:"tenant"`
	// Namespace of the object, as users type it; "": none.
	Namespace string `json:"namespace,omitempty"`
	// Site that it happened at; "": none, or more than one.
	Site string `json:"site,omitempty"`
	// VirtualSites, as NAMESPACE/NAME, that it belongs to: those of the site at the time,
	// or those that the object names.
	VirtualSites []string `json:"virtualSites,omitempty"`
	// Object is KIND/NAME of what it is about, where that is not the site.
	Object string `json:"object,omitempty"`
	// By is who did it; "": nobody, or nobody knows.
	By   string `json:"by,omitempty"`
	Text string `json:"text"` // one line
	// Before and After are colours, severities, versions or states, by kind.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Link is the path of the console's page about it.
	Link string `json:"link,omitempty"`
}

// TimelinePage is a part of the timeline, the newest first.
type TimelinePage struct {
	Events []TimelineEvent `json:"events"`
	// NextCursor gets what is older; "": there is nothing.
	NextCursor string `json:"nextCursor,omitempty"`
	// Missing are the roles whose part is not in here because they did not answer; a role
	// itself has none.
	Missing []TimelineMissing `json:"missing,omitempty"`
}

// TimelineMissing is a role that did not answer, and what it would have told.
type TimelineMissing struct {
	Role string `json:"role"`
	// At is the address of the one that did not, where there are several of the role.
	At     string   `json:"at,omitempty"`
	Kinds  []string `json:"kinds"`
	Reason string   `json:"reason"`
	// Late: it has not answered in time, and may when it is asked again.
	Late bool `json:"late,omitempty"`
}

// Name is what people call it.
func (m *TimelineMissing) Name() string {
	if m.At != "" {
		return m.Role + " at " + m.At
	}
	return m.Role
}

// TimelinePosition is what a cursor of the timeline holds: the last event of the page.
type TimelinePosition struct {
	ID     string `json:"i"`
	Tenant string `json:"t"`
}

// SiteLink is the path of a site's page.
func SiteLink(tenant, site string) string {
	return "/sites/" + site + "?tenant=" + tenant
}
