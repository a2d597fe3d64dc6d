package api

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"text/tabwriter"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health/engine"
	"muster.dev/muster/internal/fleet"
)

// Replay is the answer of POST /api/v1/health/replay: what a HealthPolicy would have made
// of some sites' history, beside what is on record.
type Replay struct {
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Tenant string    `json:"tenant"`
	Policy string    `json:"policy"`
	// StepSeconds is how far apart the readings are; between them the last one holds.
	StepSeconds float64 `json:"stepSeconds"`
	// Sites are some; Done of Total are done with them, and NextCursor leads on.
	Sites      []ReplayedSite `json:"sites"`
	Done       int            `json:"done"`
	Total      int            `json:"total"`
	NextCursor string         `json:"nextCursor,omitempty"`
	Signals    []TriedSignal  `json:"signals"`
}

// ReplayedSite is one site's history.
type ReplayedSite struct {
	Site string `json:"site"`
	// Would are its changes of colour by the tried policy, Did those on record. Where it would
	// have begun with another colour, both have the first one before, From and To alike.
	Would []Recolour `json:"would"`
	Did   []Recolour `json:"did"`
	// Last is how it would have ended.
	Last Outcome `json:"last"`
	// Differs: Would and Did are not the same colours at about the same times: within two
	// steps and a minute.
	Differs bool `json:"differs"`
}

// Recolour is a change of colour.
type Recolour struct {
	At     time.Time    `json:"at"`
	From   fleet.Colour `json:"from"`
	To     fleet.Colour `json:"to"`
	Reason string       `json:"reason"` // "" for what is on record
}

// ReplayOf makes the JSON of a replay.
func ReplayOf(tenant, policy string, x *engine.Replay) Replay {
	out := Replay{
		From: x.From.UTC(), To: x.To.UTC(), Tenant: tenant, Policy: policy, StepSeconds: x.Step.Seconds(), Done: x.Done, Total: x.Total, NextCursor: x.Next,
		Sites: []ReplayedSite{},
	}
	changes := func(in []engine.Recolour) []Recolour {
		out := make([]Recolour, len(in))
		for i, c := range in {
			out[i] = Recolour{c.At.UTC(), c.From, c.To, c.Reason}
		}
		return out
	}
	for i := range x.Sites {
		s := &x.Sites[i]
		near := 2*x.Step + time.Minute
		if was := s.DidBegin.To; was != "" && was != s.WouldBegin.To {
			s.Would, s.Did = slices.Insert(s.Would, 0, s.WouldBegin), slices.Insert(s.Did, 0, s.DidBegin)
		}
		r := ReplayedSite{Site: s.Site.ID.Name, Would: changes(s.Would), Did: changes(s.Did), Last: OutcomeOf(&s.Last)}
		r.Differs = !slices.EqualFunc(r.Would, r.Did, func(a, b Recolour) bool {
			return a.From == b.From && a.To == b.To && a.At.Sub(b.At).Abs() <= near
		})
		out.Sites = append(out.Sites, r)
	}
	out.Signals = triedSignals(x.Signals)
	return out
}

// WriteText writes the sites that differ for people, each with its changes in order.
func (x *Replay) WriteText(w io.Writer) error {
	var b bytes.Buffer
	writeFailing(&b, x.Signals)
	type line struct {
		Recolour
		who string
	}
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	differ := 0
	for _, s := range x.Sites {
		if !s.Differs {
			continue
		}
		differ++
		var lines []line
		for _, c := range s.Would {
			lines = append(lines, line{c, "would"})
		}
		for _, c := range s.Did {
			lines = append(lines, line{c, "did"})
		}
		slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.At.UnixMilli(), b.At.UnixMilli()) })
		fmt.Fprintln(tw, s.Site)
		for _, l := range lines {
			what := fmt.Sprintf("%s → %s", l.From, l.To)
			if l.From == l.To {
				what = string(l.To) + " from then on"
			}
			fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\n", l.At.Format(time.RFC3339), l.who, what, l.Reason)
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(&b, "%d of %d sites would have had other colours with policy %s, %s to %s, readings %s apart\n", differ, x.Total, x.Policy, x.From.Format(time.RFC3339), x.To.Format(time.RFC3339), time.Duration(x.StepSeconds*float64(time.Second)))
	_, err := w.Write(b.Bytes())
	return err
}

func (s *Server) replay(w http.ResponseWriter, r *http.Request) {
	s.tried(w, r, func(tenant string, policy *v1alpha1.HealthPolicy) (any, error) {
		q := r.URL.Query()
		since, err := time.ParseDuration(q.Get("since"))
		if err != nil {
			return nil, fmt.Errorf("since: %.20q: want a duration such as 24h", q.Get("since"))
		}
		x, err := s.opts.Source.TryHistory(r.Context(), tenant, policy, since, q.Get("cursor"))
		if err != nil {
			return nil, err
		}
		return ReplayOf(tenant, policy.Name, x), nil
	})
}
