package sitequery

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster.dev/muster/internal/fleet"
)

// Kind says which values a field has, and so which operators it takes.
type Kind string

// The kinds of fields.
const (
	Text    Kind = "text"    // = != ~ !~ in
	Choice  Kind = "choice"  // = != in, of a few values
	List    Kind = "list"    // = != ~ !~ in; one of its values decides
	Numeric Kind = "number"  // = != < <= > >= in
	Time    Kind = "time"    // < <= > >= with an age or a date; = never
	Version Kind = "version" // = != < <= > >= ~ !~ in
	Flag    Kind = "flag"    // = != with true or false
)

// Field is something that a site has and a query can name.
type Field struct {
	Name    string
	Aliases []string
	Kind    Kind
	Values  []string // of a Choice
	// Keyed fields have a key behind a dot, as label.tier does.
	Keyed   bool
	Doc     string
	Example string

	text   func(r *Row, key string) string
	list   func(r *Row, yield func(string) bool)
	number func(r *Row, key string) Number
	time   func(r *Row) time.Time
	flag   func(r *Row) bool
}

const (
	fieldLabel    = "label"
	fieldVersion  = "version"
	fieldMeasured = "measured"
	fieldLastSeen = "lastSeen"
	// FieldPhase decides whether decommissioned sites are among those that are meant.
	FieldPhase = "phase"
	// agentVersion is the component that version alone is about.
	agentVersion = "agent"
)

func of(f func(r *Row) string) func(*Row, string) string {
	return func(r *Row, _ string) string { return f(r) }
}

func severities(r *Row, severity string) Number {
	n := 0
	for _, a := range r.Alerts {
		if s, _, _ := strings.Cut(a, "/"); severity == "" || s == severity {
			n++
		}
	}
	return Number{float64(n), r.AlertsKnown}
}

// link is a field with a figure of the site's link.
func link(name string, figure int, doc, example string) Field {
	return Field{Name: "link." + name, Kind: Numeric, Doc: doc, Example: example, number: func(r *Row, _ string) Number { return r.Link.Number(figure) }}
}

// Fields are all there are, in the order in which people read of them.
var Fields = makeFields()

// reading is the value of a signal.
func (r *Row) reading(signal string) Number {
	if r.Reading == nil {
		return Number{}
	}
	return r.Reading(signal)
}

func makeFields() []Field {
	out := []Field{
		{Name: "name", Kind: Text, Doc: "The site's name.", Example: "name=paris-*", text: of(func(r *Row) string { return r.Name })},
		{Name: "tenant", Kind: Text, Doc: "The tenant that it belongs to.", Example: "tenant=acme", text: of(func(r *Row) string { return r.Tenant })},
		{Name: "colour", Aliases: []string{"color"}, Kind: Choice, Values: []string{"green", "orange", "red", "grey"}, Doc: "The colour of its health; grey is unknown.", Example: "colour in (red, orange)",
			text: of(func(r *Row) string { return string(r.Colour) })},
		{Name: "score", Kind: Numeric, Doc: "Its health, 0 to 100, or unknown.", Example: "score<60", number: func(r *Row, _ string) Number { return r.Score }},
	}
	for i, d := range fleet.Dimensions {
		out = append(out, Field{Name: string(d), Kind: Numeric, Doc: "The score of its " + string(d) + ", 0 to 100, or unknown.", Example: string(d) + "<40", number: func(r *Row, _ string) Number { return r.Dimensions[i] }})
	}
	return append(out, []Field{
		{Name: "cpuUsed", Kind: Numeric, Doc: "How much of its CPU is in use, percent: the signal cpu-used.", Example: "cpuUsed>80", number: func(r *Row, _ string) Number { return r.reading("cpu-used") }},
		{Name: "memoryUsed", Kind: Numeric, Doc: "How much of its memory is in use on the fullest node, percent: what the signal memory-available leaves.", Example: "memoryUsed>75", number: func(r *Row, _ string) Number {
			n := r.reading("memory-available")
			n.Value = 100 - n.Value
			return n
		}},
		{Name: "diskUsed", Kind: Numeric, Doc: "How full its fullest filesystem is, percent: the signal disk-used.", Example: "diskUsed>=90", number: func(r *Row, _ string) Number { return r.reading("disk-used") }},
		{Name: fieldMeasured, Kind: Numeric, Keyed: true, Doc: "The value of a signal of its health policy, in the signal's unit, or unknown.", Example: "measured.packet-loss>1", number: func(r *Row, key string) Number { return r.reading(key) }},
		{Name: "since", Kind: Time, Doc: "When its colour changed last.", Example: "since<1h", time: func(r *Row) time.Time { return r.Since }},
		{Name: "signal", Kind: List, Doc: "The signals that cost it points.", Example: "signal=disk-used", list: func(r *Row, yield func(string) bool) {
			for i := range r.Reasons {
				if s := r.Reasons[i].Signal; s != "" && !yield(s) {
					return
				}
			}
		}},
		{Name: "reason", Kind: List, Doc: "Why it lost points, the worst first; a column shows the first.", Example: `reason~"not ready"`, list: func(r *Row, yield func(string) bool) {
			for i := range r.Reasons {
				if !yield(r.Reasons[i].Text) {
					return
				}
			}
		}},
		{Name: FieldPhase, Kind: Choice, Values: []string{"Pending", "Approved", "Online", "Offline", "Decommissioned"}, Doc: "Where it is in its life. Decommissioned sites are listed only by a query that names the phase.", Example: "phase=Offline",
			text: of(func(r *Row) string { return string(r.Phase) })},
		{Name: fieldLastSeen, Aliases: []string{"seen"}, Kind: Time, Doc: "When it was heard of last, or never.", Example: "lastSeen>10m", time: func(r *Row) time.Time { return r.LastSeen }},
		{Name: "created", Aliases: []string{"registered"}, Kind: Time, Doc: "When it registered.", Example: "created<7d", time: func(r *Row) time.Time { return r.Created }},
		{Name: "region", Kind: Text, Doc: "Its label region.", Example: "region=eu-west", text: of(func(r *Row) string { return r.Region })},
		{Name: "regional", Kind: Text, Doc: "The regional that it is or was last connected to.", Example: "regional!=eu-1", text: of(func(r *Row) string { return r.Regional })},
		{Name: "virtualSite", Aliases: []string{"vs"}, Kind: List, Doc: "The virtual sites that it belongs to, as NAMESPACE/NAME or the name alone.", Example: "virtualSite=shared/all-eu", list: func(r *Row, yield func(string) bool) {
			for _, v := range r.VirtualSites {
				if !yield(v) {
					return
				}
			}
		}},
		{Name: "address", Aliases: []string{"place"}, Kind: Text, Doc: "Where it stands, as people call it.", Example: "address~Lyon", text: of(func(r *Row) string { return r.Address })},
		{Name: "onMap", Kind: Flag, Doc: "Whether it has a place on the map.", Example: "onMap=false", flag: func(r *Row) bool { return r.Placed }},
		{Name: "policy", Kind: Text, Doc: "The HealthPolicy that its score is from; empty for the shipped one.", Example: `policy=""`, text: of(func(r *Row) string { return r.Policy })},
		{Name: fieldLabel, Kind: Text, Keyed: true, Doc: "A label, by its key. A name that is no field is a label's key too, so tier=gold is label.tier=gold.", Example: "label.tier=gold",
			text: func(r *Row, key string) string { return r.Labels[key] }},
		{Name: fieldVersion, Kind: Version, Keyed: true, Doc: "The version of a component as the agent reports it: version.os, version.kernel, version.kubernetes, …; version alone is the agent's.", Example: "version.os<24.04",
			text: func(r *Row, key string) string { return r.Versions[key] }},
		{Name: "kubernetes", Aliases: []string{"k8s"}, Kind: Version, Doc: "The version of its Kubernetes, as version.kubernetes.", Example: "kubernetes<1.33", text: of(func(r *Row) string { return r.Versions["kubernetes"] })},
		{Name: "alerts", Kind: Numeric, Doc: "How many alerts fire and are not suppressed.", Example: "alerts>0", number: func(r *Row, _ string) Number { return severities(r, "") }},
		{Name: "alerts.critical", Kind: Numeric, Doc: "How many of these are critical.", Example: "alerts.critical>0", number: func(r *Row, _ string) Number { return severities(r, "critical") }},
		{Name: "alerts.warning", Kind: Numeric, Doc: "How many of these are warnings.", Example: "alerts.warning>=3", number: func(r *Row, _ string) Number { return severities(r, "warning") }},
		{Name: "alerts.info", Kind: Numeric, Doc: "How many of these are for information.", Example: "alerts.info>0", number: func(r *Row, _ string) Number { return severities(r, "info") }},
		{Name: "alert", Kind: List, Doc: "The names of the alerts that fire and are not suppressed.", Example: "alert=SiteSilent", list: func(r *Row, yield func(string) bool) {
			for _, a := range r.Alerts {
				if _, name, _ := strings.Cut(a, "/"); !yield(name) {
					return
				}
			}
		}},
		link("roundTrip", LinkRoundTrip, "How long a round trip to its regional takes, milliseconds.", "link.roundTrip>200"),
		link("loss", LinkLoss, "How many of the TCP segments to its regional were sent again in 5 minutes, or four scrapes, percent.", "link.loss>1"),
		link("sent", LinkSent, "What it sends to its regional, bytes a second.", "link.sent>100000"),
		link("received", LinkReceived, "What it receives from its regional, bytes a second.", "link.received>100000"),
		link("handshake", LinkHandshake, "How long its last TLS handshake took, milliseconds.", "link.handshake>1000"),
		link("reconnects", LinkReconnects, "How often its stream was opened anew in an hour.", "link.reconnects>2"),
		link("requests", LinkRequests, "Its requests to its regional, a minute.", "link.requests>60"),
		link("errors", LinkErrors, "How many of these failed in 5 minutes, or four scrapes, percent.", "link.errors>5"),
		{Name: "maintenance", Kind: Flag, Doc: "Whether planned work goes on.", Example: "maintenance=false", flag: func(r *Row) bool { return r.Maintenance != nil }},
	}...)
}

// Column is a field, with its key if it has one: what a query compares, and what a table
// shows and is sorted by.
type Column struct {
	field *Field
	key   string
}

// Field of the column.
func (c Column) Field() *Field { return c.field }

// Name is how a query names the column.
func (c Column) Name() string {
	if c.field.Keyed && c.field.Name+c.key != fieldVersion+agentVersion {
		return c.field.Name + "." + c.key
	}
	return c.field.Name
}

// ParseColumn finds a column by its name: that of a field, or a label's key.
func ParseColumn(name string) (Column, error) {
	for i := range Fields {
		f := &Fields[i]
		if strings.EqualFold(f.Name, name) || slices.ContainsFunc(f.Aliases, func(a string) bool { return strings.EqualFold(a, name) }) {
			switch {
			case f.Name == fieldVersion:
				return Column{f, agentVersion}, nil
			case f.Keyed:
				return Column{}, fmt.Errorf("%s needs a key, such as %s", f.Name, f.Example)
			}
			return Column{f, ""}, nil
		}
	}
	for i := range Fields {
		f := &Fields[i]
		if before, key, ok := strings.Cut(name, "."); f.Keyed && ok && strings.EqualFold(before, f.Name) {
			if key == "" {
				return Column{}, fmt.Errorf("%s. needs a key behind the dot, such as %s", f.Name, f.Example)
			}
			return Column{f, key}, nil
		}
	}
	// Those of Kubernetes: a prefix, a slash, and a name.
	if name == "" || len(name) > 317 || strings.ContainsFunc(name, func(r rune) bool { return !labelRune(r) }) {
		return Column{}, fmt.Errorf("%.60q is neither a field nor the key of a label; the fields are %s", name, strings.Join(fieldNames(), ", "))
	}
	return Column{labelField, name}, nil
}

var labelField = &Fields[slices.IndexFunc(Fields, func(f Field) bool { return f.Name == fieldLabel })]

func labelRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./", r)
}

func fieldNames() []string {
	out := make([]string, len(Fields))
	for i := range Fields {
		if out[i] = Fields[i].Name; Fields[i].Keyed {
			out[i] += ".KEY"
		}
	}
	return out
}

// Value is what the column has for a site, fit for JSON: a string, a number or nil where
// it is unknown, a time or nil for never, a list of strings, or a truth.
func (c Column) Value(r *Row) any {
	switch c.field.Kind {
	case Numeric:
		if n := c.field.number(r, c.key); n.Known {
			return math.Round(n.Value*10) / 10
		}
		return nil
	case Time:
		if t := c.field.time(r); !t.IsZero() {
			return t.UTC().Truncate(time.Second)
		}
		return nil
	case Flag:
		return c.field.flag(r)
	case List:
		if c.field.Name == "reason" {
			if len(r.Reasons) == 0 {
				return ""
			}
			return r.Reasons[0].Text
		}
		return c.list(r)
	}
	return c.field.text(r, c.key)
}

func (c Column) list(r *Row) []string {
	out := []string{}
	c.field.list(r, func(s string) bool {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
		return true
	})
	return out
}

// Cell is Value as the text of a table's cell: "" for what is not known.
func (c Column) Cell(r *Row) string {
	switch v := c.Value(r).(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case time.Time:
		return v.Format(time.RFC3339)
	case bool:
		return strconv.FormatBool(v)
	case []string:
		return strings.Join(v, " ")
	}
	return ""
}

// Grouped tells whether sites can be grouped by the column: by what has few values.
func (c Column) Grouped() bool {
	switch c.field.Kind {
	case Numeric, Time:
		return false
	}
	return c.field.Name != "name" && c.field.Name != "reason"
}

// Groups calls with the values by which a site is in groups, "" for none.
func (c Column) Groups(r *Row, yield func(string)) {
	if c.field.Kind != List {
		yield(c.Cell(r))
		return
	}
	all := c.list(r)
	if len(all) == 0 {
		all = []string{""}
	}
	for _, v := range all {
		yield(v)
	}
}
