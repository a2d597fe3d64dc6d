package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"muster.dev/muster/collector"
	"muster.dev/muster/collector/cluster"
	"muster.dev/muster/control/agent"
	"muster.dev/muster/control/agent/software"
)

// status is /debug/status of a running muster-edge.
type status struct {
	Agent      agent.Status          `json:"agent"`
	Collector  collector.Status      `json:"collector"`
	Conditions []collector.Condition `json:"conditions"`
	Feeds      feeds                 `json:"feeds"`
	Cluster    *cluster.Status       `json:"cluster"` // nil: no cluster, or not discovered
	Software   []software.Status     `json:"software"`
	Waiting    string                `json:"waiting"` // for what muster-edge waits before it starts
}

// ErrUnhealthy is returned by PrintStatus when something is wrong; what, is printed.
var ErrUnhealthy = errors.New("something is wrong; see above")

// PrintStatus prints what the running muster-edge does, for a person or as JSON.
func PrintStatus(ctx context.Context, w io.Writer, c Config, asJSON bool) error {
	b, err := get(ctx, c, "/debug/status")
	if err != nil {
		return err
	}
	if asJSON {
		_, err = w.Write(append(b, '\n'))
		return err
	}
	var s status
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("answer of muster-edge: %w", err)
	}
	if s.Waiting != "" {
		fmt.Fprintf(w, "It has not started yet:\n  - %s\n", s.Waiting)
		return ErrUnhealthy
	}
	if problems := printStatus(w, s, time.Now()); problems > 0 {
		return ErrUnhealthy
	}
	return nil
}

// printStatus returns how many problems it named.
func printStatus(w io.Writer, s status, now time.Time) int {
	printFacts(w, s, now)
	problems := problemsOf(s, now)
	if len(problems) == 0 {
		fmt.Fprintln(w, "\nNothing is wrong.")
		return 0
	}
	fmt.Fprintln(w, "\nWrong:")
	for _, p := range problems {
		fmt.Fprintf(w, "  - %s\n", p)
	}
	return len(problems)
}

func printFacts(w io.Writer, s status, now time.Time) {
	line := func(k, format string, args ...any) { fmt.Fprintf(w, "%-16s%s\n", k, fmt.Sprintf(format, args...)) }
	a, col := s.Agent, s.Collector
	name := a.Site
	if name == "" {
		name = "(no certificate yet)"
	}
	line("Site", "%s, tenant %s, region %s", name, dash(a.Tenant), dash(a.Region))
	line("Agent", "%s %s: %s", a.Version, a.Phase, dash(a.Message))
	line("Regional", "%s (%s)", dash(a.Regional), dash(a.Server))
	if crt := a.Certificate; crt != nil {
		line("Certificate", "until %s, renews %s", crt.NotAfter.UTC().Format(time.RFC3339), crt.RenewAt.UTC().Format(time.RFC3339))
	}
	line("Policy", "%.12s, every %s", dash(col.PolicyHash), col.Interval)
	line("Series", "%d of a budget of %d; %d refused", col.Series, col.Budget, col.Refused)
	line("Spool", "%d batches, %d bytes", col.Spool.Pending, col.Spool.Bytes)
	line("Last push", "%s", ago(col.Push.LastSuccess, now))
	up := 0
	for _, t := range col.Targets {
		if t.Up {
			up++
		}
	}
	jobs := make([]string, len(s.Feeds.Jobs))
	for i, j := range s.Feeds.Jobs {
		jobs[i] = fmt.Sprintf("%s %d/%d", j.Job, j.Up, j.Targets)
	}
	line("Targets", "%d of %d up: %s", up, len(col.Targets), dash(strings.Join(jobs, ", ")))
	if !s.Feeds.Policy {
		line("Health", "the centre has not said yet what it reads")
	} else {
		line("Health", "is fed by (metrics):")
		for _, d := range s.Feeds.Dimensions {
			line("  "+string(d.Dimension), "%s", d.line())
		}
	}
	for i, x := range s.Software {
		name := "Software"
		if i > 0 {
			name = ""
		}
		line(name, "%s %s", x.Component, softwareLine(x, now))
	}
}

// problemsOf are what is wrong, a cause once.
func problemsOf(s status, now time.Time) (problems []string) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if a := s.Agent; a.LastError != "" && a.Phase != agent.PhaseConnected {
		wrong("%s (%s)", a.LastError, ago(a.LastErrorAt, now))
	}
	for _, t := range s.Collector.Targets {
		if !t.Up && t.Error != "" {
			wrong("scrape of %s: %s", t.URL, t.Error)
		}
	}
	told := map[string]bool{}
	for _, d := range s.Feeds.Dimensions {
		for _, lack := range d.Lacks {
			wrong("%s lacks %s", d.Dimension, lack)
			_, why, _ := strings.Cut(lack, ": ")
			told[why] = true
		}
	}
	if s.Cluster != nil {
		jobs := map[string][]string{}
		for _, l := range s.Cluster.Lacks {
			jobs[l.Message] = append(jobs[l.Message], l.Job)
		}
		for _, l := range s.Cluster.Lacks {
			if !told[l.Message] {
				wrong("%s: %s", strings.Join(jobs[l.Message], ", "), l.Message)
			}
			told[l.Message] = true
		}
	}
	for _, item := range s.Agent.Desired.Items {
		if item.Error != "" {
			wrong("%s %s is not in effect: %s", item.Kind, item.Name, item.Error)
		}
	}
	for _, x := range s.Software {
		if x.Phase == software.Failed {
			wrong("%s %s", x.Component, softwareLine(x, now))
		}
	}
	for _, c := range s.Conditions {
		bad := c.Status == "True"
		if c.Type == collector.PolicyApplied {
			bad = c.Status == "False"
		}
		if bad && c.Type != collector.ScrapeFailing {
			wrong("%s: %s", c.Type, c.Message)
		}
	}
	return problems
}

func ago(t, now time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return now.Sub(t).Round(time.Second).String() + " ago"
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
