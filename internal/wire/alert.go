package wire

import (
	"encoding/json"
	"strconv"
	"time"
)

// Alert is one as Alertmanager's API v2 takes and lists it. The dead-man and the log
// rules make them; internal to Muster it goes as this type. To send, Labels are needed,
// the rest may be zero: an alert without EndsAt ends after Alertmanager's
// resolve_timeout unless sent again, one whose EndsAt is past is resolved.
type Alert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	StartsAt     time.Time         `json:"startsAt,omitzero"`
	EndsAt       time.Time         `json:"endsAt,omitzero"`
	GeneratorURL string            `json:"generatorURL,omitempty"`

	// Only in what Alertmanager answers.
	UpdatedAt   time.Time   `json:"updatedAt,omitzero"`
	Fingerprint string      `json:"fingerprint,omitempty"`
	Status      AlertStatus `json:"status,omitzero"`
}

// AlertStatus is what Alertmanager makes of an alert.
type AlertStatus struct {
	State       string   `json:"state"` // unprocessed, active or suppressed
	SilencedBy  []string `json:"silencedBy"`
	InhibitedBy []string `json:"inhibitedBy"` // fingerprints
	MutedBy     []string `json:"mutedBy,omitempty"`
}

// Matcher of a silence, in Alertmanager's API and in ours. Its zero IsEqual means "not
// equal".
type Matcher struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	IsRegex bool   `json:"isRegex"`
	IsEqual bool   `json:"isEqual"`
}

// UnmarshalJSON reads a missing isEqual as true, as Alertmanager does.
func (m *Matcher) UnmarshalJSON(b []byte) error {
	type plain Matcher
	p := plain{IsEqual: true}
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	*m = Matcher(p)
	return nil
}

// String is the matcher as amtool writes it.
func (m Matcher) String() string {
	op := map[[2]bool]string{{false, true}: "=", {false, false}: "!=", {true, true}: "=~", {true, false}: "!~"}[[2]bool{m.IsRegex, m.IsEqual}]
	return m.Name + op + strconv.Quote(m.Value)
}

// EqualMatcher is name="value".
func EqualMatcher(name, value string) Matcher {
	return Matcher{Name: name, Value: value, IsEqual: true}
}

// Values of KnownAlert.State.
const (
	AlertActive     = "active"
	AlertSuppressed = "suppressed"
	AlertResolved   = "resolved"
)

// KnownAlert is an alert in Muster's own API: the alerting role serves it, the console
// passes it on, the page and the CLI show it.
type KnownAlert struct {
	Fingerprint  string            `json:"fingerprint"`
	Name         string            `json:"name"`
	Tenant       string            `json:"tenant"`
	Site         string            `json:"site"`
	Region       string            `json:"region"`
	VirtualSites []string          `json:"virtualSites"` // NAMESPACE/NAME
	Severity     string            `json:"severity"`     // critical, warning or info; warning if the alert has no such
	State        string            `json:"state"`        // active, suppressed; of one alert also resolved
	SilencedBy   []string          `json:"silencedBy"`   // IDs of silences
	InhibitedBy  []string          `json:"inhibitedBy"`  // fingerprints
	StartsAt     time.Time         `json:"startsAt"`
	UpdatedAt    time.Time         `json:"updatedAt"`
	EndsAt       time.Time         `json:"endsAt"`
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	GeneratorURL string            `json:"generatorURL"`
}

// AlertCounts are by severity.
type AlertCounts struct {
	Critical int `json:"critical"`
	Warning  int `json:"warning"`
	Info     int `json:"info"`
}

// Add counts one; what is neither critical nor info is a warning.
func (c *AlertCounts) Add(severity string) {
	switch severity {
	case "critical":
		c.Critical++
	case "info":
		c.Info++
	default:
		c.Warning++
	}
}

// AlertList is a page of alerts. Total and Counts are of all pages.
type AlertList struct {
	AsOf       time.Time     `json:"asOf"`
	Total      int           `json:"total"`
	Counts     AlertCounts   `json:"counts"`
	Alerts     []*KnownAlert `json:"alerts"`
	NextCursor string        `json:"nextCursor,omitempty"`
}

// AlertState is what fires, in figures. Firing leaves out what is suppressed; Sites
// counts those with an alert that fires.
type AlertState struct {
	AsOf       time.Time   `json:"asOf"`
	Firing     AlertCounts `json:"firing"`
	Suppressed int         `json:"suppressed"`
	Sites      int         `json:"sites"`
}

// GroupedAlerts are the alerts that a receiver gets in one notification, as the group_by of the
// route says; by fingerprint.
type GroupedAlerts struct {
	Receiver     string
	Labels       map[string]string // those of group_by
	Fingerprints []string
}

// AlertGroup is a group of alerts in Muster's own API.
type AlertGroup struct {
	// Receiver as users call it; "": nobody is told.
	Receiver string            `json:"receiver"`
	Tenant   string            `json:"tenant"`
	Labels   map[string]string `json:"labels"` // what they are grouped by, without the tenant
	Total    int               `json:"total"`
	// Counts of those that fire and tell; Suppressed the rest.
	Counts     AlertCounts `json:"counts"`
	Suppressed int         `json:"suppressed"`
	StartsAt   time.Time   `json:"startsAt"` // of the oldest
	NewestAt   time.Time   `json:"newestAt"` // when the newest began
	// Alerts are the first of them, the worst first.
	Alerts []*KnownAlert `json:"alerts"`
}

// AlertGroupList is the answer of GET /api/v1/alerts/groups. Total counts groups, also those
// that the answer leaves out.
type AlertGroupList struct {
	AsOf   time.Time    `json:"asOf"`
	Total  int          `json:"total"`
	Groups []AlertGroup `json:"groups"`
}

// RuleLoudness is how often a rule's alerts made somebody be notified. One notification about
// several rules counts for each.
type RuleLoudness struct {
	Tenant        string   `json:"tenant"`
	Rule          string   `json:"rule"`
	Notifications int      `json:"notifications"`
	Failed        int      `json:"failed"` // attempts, beside these
	Receivers     []string `json:"receivers"`
}

// LoudnessList is the answer of GET /api/v1/alerts/notifications: the loudest first.
type LoudnessList struct {
	Hours int `json:"hours"` // that are looked back
	// Counted: it is known; false where another Alertmanager notifies.
	Counted bool           `json:"counted"`
	Total   int            `json:"total"` // of all rules
	Rules   []RuleLoudness `json:"rules"`
}

// AlertSpan is one time that an alert fired.
type AlertSpan struct {
	StartsAt time.Time  `json:"startsAt"`
	EndsAt   *time.Time `json:"endsAt"` // nil: it fires
}

// AlertDetail is an alert with the times that it fired, newest first.
type AlertDetail struct {
	KnownAlert
	History []AlertSpan `json:"history"`
}

// KnownSilence is a silence in Muster's own API. One that no single tenant owns, made by an
// operator with amtool or on Alertmanager's page, has no Tenant. Those whose alerts it keeps quiet see that it is there and until
// when; those who may read all tenants also what it matches, and who made it and why.
type KnownSilence struct {
	ID          string    `json:"id"`
	Tenant      string    `json:"tenant"`
	Matchers    []Matcher `json:"matchers"`
	StartsAt    time.Time `json:"startsAt"`
	EndsAt      time.Time `json:"endsAt"`
	CreatedBy   string    `json:"createdBy"`
	Comment     string    `json:"comment"`
	State       string    `json:"state"`       // active, pending or expired
	Maintenance bool      `json:"maintenance"` // from a maintenance window
}

// SilenceList is the answer of a list.
type SilenceList struct {
	Silences []KnownSilence `json:"silences"`
}

// Bounds of a silence: its matchers, bytes of the value of one, instructions of all their
// regular expressions, which Alertmanager keeps compiled, and how long it lasts.
const (
	MaxMatchers     = 20
	MaxMatcherBytes = 4096
	MaxSilenceRegex = 5000
	MaxSilence      = 366 * 24 * time.Hour
)

// SilenceRequest is a new silence, from StartsAt, or now, up to EndsAt or for Duration.
type SilenceRequest struct {
	Matchers []Matcher  `json:"matchers"`
	StartsAt *time.Time `json:"startsAt,omitempty"`
	EndsAt   *time.Time `json:"endsAt,omitempty"`
	Duration string     `json:"duration,omitempty"`
	Comment  string     `json:"comment"`
}
