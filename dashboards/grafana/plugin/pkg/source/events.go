package source

import (
	"cmp"
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"muster.dev/muster/dashboards/grafana/plugin/pkg/console"
)

func (s *Source) alerts(ctx context.Context, c *console.Client, q query) (data.Frames, error) {
	if q.Numeric {
		q.State = cmp.Or(q.State, "active") // what is silenced or inhibited is not to alert by another way
		q.Limit = 1                         // how many there are is told all the same
	}
	rows, total, err := c.Alerts(ctx, q.ofAlerts(), q.Limit)
	if err != nil {
		return nil, err
	}
	type row = console.Alert
	if q.Numeric { // one number: how many fire
		n := float64(total)
		return data.Frames{data.NewFrame("alerts", data.NewField("alerts", nil, []float64{n})).
			SetMeta(&data.FrameMeta{Type: data.FrameTypeNumericWide, TypeVersion: data.FrameTypeVersion{0, 1}})}, nil
	}
	f := table("alerts",
		column("alert", rows, func(a *row) string { return a.Name }),
		column("severity", rows, func(a *row) string { return a.Severity }),
		column("site", rows, func(a *row) string { return a.Site }),
		column("summary", rows, func(a *row) string { return a.Annotations["summary"] }),
		column("state", rows, func(a *row) string { return a.State }),
		column("since", rows, func(a *row) time.Time { return a.StartsAt }),
		column("tenant", rows, func(a *row) string { return a.Tenant }),
		column("region", rows, func(a *row) string { return a.Region }),
		column("runbook", rows, func(a *row) string { return a.Annotations["runbook_url"] }),
		column("labels", rows, func(a *row) json.RawMessage { return labelsJSON(a.Labels) }),
	)
	cut(f, len(rows), total)
	return data.Frames{f}, nil
}

// ofAlerts are the parameters that choose alerts.
func (q *query) ofAlerts() url.Values {
	return url.Values{"virtualSite": {q.VirtualSite}, "site": {q.Site}, "severity": {q.Severity}, "state": {q.State}, "q": {q.Text}}
}

func labelsJSON(m map[string]string) json.RawMessage {
	if m == nil {
		m = map[string]string{}
	}
	b, _ := json.Marshal(m) // strings alone
	return b
}

func (s *Source) rollouts(ctx context.Context, c *console.Client, q query) (data.Frames, error) {
	rows, err := c.Rollouts(ctx, q.ofRollouts(), q.Limit+1)
	if err != nil {
		return nil, err
	}
	more := len(rows) > q.Limit
	rows = rows[:min(len(rows), q.Limit)]
	type row = console.Rollout
	fields := []*data.Field{
		column("rollout", rows, func(r *row) string { return r.Name }),
		column("namespace", rows, func(r *row) string { return r.Namespace }),
		column("tenant", rows, func(r *row) string { return r.Tenant }),
		column("phase", rows, func(r *row) string { return r.Phase }),
		column("wave", rows, func(r *row) string { return r.Progress }),
		column("changes", rows, func(r *row) string { return changes(r) }),
		column("message", rows, func(r *row) string { return r.Message }),
		column("strategy", rows, func(r *row) string { return r.Strategy }),
		column("virtual sites", rows, func(r *row) string { return strings.Join(r.VirtualSites, ", ") }),
	}
	for _, k := range []string{"total", "waiting", "updating", "updated", "passed", "failed", "offline", "held", "rolledBack"} {
		fields = append(fields, column(k, rows, func(r *row) int64 { return r.Sites[k] }))
	}
	fields = append(fields,
		column("created", rows, func(r *row) time.Time { return r.CreatedAt }),
		column("started", rows, func(r *row) *time.Time { return r.StartedAt }),
		column("ended", rows, func(r *row) *time.Time { return r.EndedAt }))
	f := table("rollouts", fields...)
	if more {
		notice(f, data.NoticeSeverityWarning, "the newest %d: raise the limit, or ask for fewer", len(rows))
	}
	return data.Frames{f}, nil
}

func (q *query) ofRollouts() url.Values {
	return url.Values{"namespace": {q.Namespace}, "state": {q.State}, "q": {q.Text}}
}

func changes(r *console.Rollout) string {
	var out []string
	for _, c := range r.Changes {
		out = append(out, strings.TrimSpace(c.Kind+"/"+c.Name+" "+c.Text))
	}
	return strings.Join(out, "; ")
}

var annotationKinds = []string{"timeline", "alerts", "rollouts", "maintenance"}

// mark is an annotation.
type mark struct {
	at, end *time.Time
	title   string
	text    string
	tags    []string
}

// annotations are what happened within the dashboard's time.
func (s *Source) annotations(ctx context.Context, c *console.Client, q query) (data.Frames, error) {
	if q.Annotations == "" {
		q.Annotations = "timeline"
	}
	var marks []mark
	var err error
	switch q.Annotations {
	case "alerts":
		marks, err = alertMarks(ctx, c, q)
	case "rollouts":
		marks, err = rolloutMarks(ctx, c, q)
	case "maintenance":
		marks, err = maintenanceMarks(ctx, c, q)
	case "timeline":
		marks, err = timelineMarks(ctx, c, q)
	default:
		err = oneOf("annotations", q.Annotations, annotationKinds...)
	}
	if err != nil {
		return nil, err
	}
	var rows []mark
	for _, m := range marks {
		if m.at != nil && m.at.Before(q.to) && (m.end != nil && m.end.After(q.from) || m.end == nil && (m.at.After(q.from) || q.Annotations == "alerts")) {
			rows = append(rows, m)
		}
	}
	return data.Frames{data.NewFrame("annotations",
		column("time", rows, func(m *mark) *time.Time { return m.at }),
		column("timeEnd", rows, func(m *mark) *time.Time { return m.end }),
		column("title", rows, func(m *mark) string { return m.title }),
		column("text", rows, func(m *mark) string { return m.text }),
		column("tags", rows, func(m *mark) string { return strings.Join(m.tags, ",") }),
	)}, nil
}

func alertMarks(ctx context.Context, c *console.Client, q query) ([]mark, error) {
	alerts, _, err := c.Alerts(ctx, q.ofAlerts(), q.Limit)
	var out []mark
	for _, a := range alerts {
		out = append(out, mark{at: timeOf(a.StartsAt), title: a.Name, text: strings.TrimPrefix(a.Site+": "+a.Annotations["summary"], ": "), tags: []string{"alert", a.Severity}})
	}
	return out, err
}

// rolloutMarks are the time that each rollout took. Those of other virtual sites are left
// out where one is chosen; a rollout that names none goes over all.
func rolloutMarks(ctx context.Context, c *console.Client, q query) ([]mark, error) {
	rollouts, err := c.Rollouts(ctx, q.ofRollouts(), q.Limit)
	var out []mark
	for _, r := range rollouts {
		if q.VirtualSite != "" && len(r.VirtualSites) > 0 && !named(r.VirtualSites, q.VirtualSite) {
			continue
		}
		out = append(out, mark{at: r.StartedAt, end: r.EndedAt, title: r.Namespace + "/" + r.Name + ": " + r.Phase, text: strings.TrimSpace(changes(&r) + "\n" + r.Message), tags: []string{"rollout", r.Phase}})
	}
	return out, err
}

// named is whether a virtual site is among these; without a namespace one is in shared.
func named(among []string, vs string) bool {
	for _, v := range among {
		if v == vs || !strings.Contains(v, "/") && "shared/"+v == vs {
			return true
		}
	}
	return false
}

func maintenanceMarks(ctx context.Context, c *console.Client, q query) ([]mark, error) {
	var windows []console.Window
	var out []mark
	if q.Site != "" {
		s, err := c.Site(ctx, q.Site)
		if err != nil {
			return nil, err
		}
		windows = s.MaintenanceWindows
		if m := s.Maintenance; m != nil { // since when is not told
			at := q.from
			end := m.Until
			if end == nil {
				end = &q.to
			}
			out = append(out, mark{at: &at, end: end, title: "Maintenance of " + s.Name, text: m.Reason, tags: []string{"maintenance"}})
		}
	}
	if namespace, name, ok := strings.Cut(q.VirtualSite, "/"); ok {
		ws, err := c.Windows(ctx, namespace, name)
		if err != nil {
			return nil, err
		}
		windows = append(windows, ws...)
	}
	for _, w := range windows {
		d, err := time.ParseDuration(w.Duration)
		if w.Start == nil || err != nil { // those that come again are marked by the site's state alone
			continue
		}
		end := w.Start.Add(d)
		out = append(out, mark{at: w.Start, end: &end, title: "Maintenance: " + w.Name, text: w.Reason, tags: []string{"maintenance"}})
	}
	return out, nil
}

func timelineMarks(ctx context.Context, c *console.Client, q query) ([]mark, error) {
	events, err := c.Timeline(ctx, url.Values{"site": values(q.Site), "virtualSite": values(q.VirtualSite), "kind": strings.FieldsFunc(q.Kinds, func(r rune) bool { return r == ' ' || r == ',' }),
		"from": {q.from.UTC().Format(time.RFC3339)}, "to": {q.to.UTC().Format(time.RFC3339)}}, q.Limit)
	var out []mark
	for _, e := range events {
		text := strings.TrimPrefix(e.Site+": "+e.Text, ": ")
		if e.By != "" {
			text += " (" + e.By + ")"
		}
		out = append(out, mark{at: timeOf(e.Time), title: e.Kind, text: text, tags: []string{e.Kind, e.Severity}})
	}
	return out, err
}
