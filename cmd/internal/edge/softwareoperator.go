package edge

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/control/agent/software"
	"muster.dev/muster/control/agent/software/components"
	"muster.dev/muster/internal/obs"
)

// softwareRequest is what the site's own operator asks for.
type softwareRequest struct {
	Component string    `json:"component,omitempty"` // empty: the one that is offered something
	Do        string    `json:"do"`                  // now, defer, cancel
	Until     time.Time `json:"until,omitzero"`
}

const softwarePath = "/api/v1/software"

// serveSoftware lets the site's own operator ask, beside what `muster-edge status` reads.
// Who reaches the listener may: it is bound to the machine. A page in its browser may not,
// which can't send JSON elsewhere without being let.
func serveSoftware(routes obs.Routes, c *components.Components) {
	routes.HandleFunc("POST "+softwarePath, func(w http.ResponseWriter, r *http.Request) {
		var q softwareRequest
		dec := json.NewDecoder(io.LimitReader(r.Body, 4096))
		dec.DisallowUnknownFields()
		if r.Header.Get("Content-Type") != "application/json" {
			http.Error(w, "want application/json", http.StatusUnsupportedMediaType)
			return
		}
		if err := dec.Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var err error
		switch q.Do {
		case "now":
			err = c.Now(q.Component)
		case "defer":
			err = c.Defer(q.Component, q.Until)
		case "cancel":
			err = c.Cancel(q.Component)
		default:
			http.Error(w, fmt.Sprintf("do: %.20q: want now, defer or cancel", q.Do), http.StatusBadRequest)
			return
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// softwareLine is where a component stands, in a sentence.
func softwareLine(s software.Status, now time.Time) string {
	switch s.Phase {
	case software.Available:
		return fmt.Sprintf("%s; %s is available%s", s.Running, s.Wanted, because(s.Message))
	case software.Scheduled:
		return fmt.Sprintf("%s; %s is scheduled for %s, in %s", s.Running, s.Wanted, s.StartsAt.Local().Format("2006-01-02 15:04 MST"), s.StartsAt.Sub(now).Round(time.Minute))
	case software.Downloading:
		return fmt.Sprintf("%s; downloading %s, %d %%%s", s.Running, s.Wanted, s.Percent, because(s.Message))
	case software.Installing:
		return fmt.Sprintf("%s; installing %s%s", s.Running, s.Wanted, because(s.Message))
	case software.Failed:
		return fmt.Sprintf("%s failed%s", cmp.Or(s.Wanted, "going back"), because(s.Message))
	}
	if s.Running == "" {
		return "not known" + because(s.Message)
	}
	return s.Running + because(s.Message)
}

func because(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}

// PrintSoftware says what software the site runs and what it is to run.
func PrintSoftware(ctx context.Context, w io.Writer, c Config, asJSON bool) error {
	b, err := get(ctx, c, "/debug/status")
	if err != nil {
		return err
	}
	var s status
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("answer of muster-edge: %w", err)
	}
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(s.Software)
	}
	for _, x := range s.Software {
		fmt.Fprintf(w, "%-10s%s\n", x.Component, softwareLine(x, time.Now()))
	}
	if len(s.Software) == 0 {
		fmt.Fprintln(w, "Nothing of this site is replaced by Muster.")
	}
	return nil
}

// AskSoftware has the running muster-edge begin with what is offered, now or at another
// time, or do as the fleet's operator wants again.
func AskSoftware(ctx context.Context, w io.Writer, c Config, component, do string, until time.Time) error {
	b, err := json.Marshal(softwareRequest{Component: component, Do: do, Until: until})
	if err != nil {
		return err
	}
	if err := post(ctx, c, softwarePath, b); err != nil {
		return err
	}
	switch do {
	case "now":
		fmt.Fprintln(w, "It begins now.")
	case "defer":
		fmt.Fprintf(w, "It begins at %s.\n", until.Local().Format("2006-01-02 15:04 MST"))
	default:
		fmt.Fprintln(w, "It begins when the fleet's operator wants it to.")
	}
	return nil
}

// Next is the next time that it is such a time of day, as 02:00, on this machine's clock.
func Next(now time.Time, clock string) (time.Time, error) {
	t, err := time.Parse("15:04", clock)
	if err != nil {
		return time.Time{}, fmt.Errorf("--at %q: want a time of day such as 02:00", clock)
	}
	at := time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), 0, 0, now.Location())
	if !at.After(now) {
		at = time.Date(now.Year(), now.Month(), now.Day()+1, t.Hour(), t.Minute(), 0, 0, now.Location())
	}
	return at, nil
}

// runSoftware shows where the components stand, and takes the operator's word.
func runSoftware(env *role.Env, c *components.Components) {
	env.Ops.Status("software", func() any { return c.Statuses() })
	serveSoftware(env.Ops.Mux(), c)
}
