package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"muster.dev/muster/internal/sse"
	"muster.dev/muster/internal/wire"
)

// exitIncomplete is the exit code of a search that lacks a region.
const exitIncomplete = 3

type logOptions struct {
	virtualSite, since, until string
	sites, namespaces, levels []string
	limit                     int
	patience                  time.Duration
	follow                    bool
	output                    string
}

func logsCmd(g *Globals) *cobra.Command {
	o := logOptions{}
	cmd := &cobra.Command{
		Use:   "logs [QUERY]",
		Short: "Search the logs of all regions, or follow them",
		Long: `Search the logs of a tenant's sites in all regions at once. The newest lines that
match are printed, oldest first. A region that does not answer is named on stderr,
the others' lines are printed, and the exit code is 3.

QUERY is a Lucene query string:

  timeout                      the word, in the message
  "out of memory"              the words, next to each other
  severity:error pod:checkout-*   both; AND, OR, NOT and ( ) work as well
  labels.app:web               a label of the line
  labels.status:>=500          numbers; [500 TO 599] and {500 TO *] as well
  labels.path:/\/api\/v[12].*/  a regular expression that the whole value fits

Fields: site, region, node, namespace, pod, container, unit, stream, severity,
labels.NAME.`,
		Example: `  muster logs --site paris --since 15m
  muster logs --virtual-site stores 'severity:error AND "out of memory"' --since 1h -f
  muster logs 'unit:kernel' -o json | jq .message`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := g.api()
			if err != nil {
				return err
			}
			q, err := o.query(g, args)
			if err != nil {
				return err
			}
			p := printer{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), output: o.output}
			p.known = func(ctx context.Context, lines []wire.LogHit) error {
				virtualSite := o.virtualSite
				if len(lines) > 0 {
					virtualSite = ""
				}
				return g.known(ctx, a, virtualSite, silent(o.sites, lines)...)
			}
			if o.follow {
				return follow(cmd.Context(), a, q, o, &p)
			}
			if err := search(cmd.Context(), a, q, o, &p); err != nil || !p.incomplete {
				return err
			}
			return &Exit{Code: exitIncomplete} // which regions are missing has been said
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.virtualSite, "virtual-site", "", "only sites of this virtual site: NAME in the shared namespace, or NAMESPACE/NAME")
	f.StringSliceVar(&o.sites, "site", nil, "only these sites")
	f.StringSliceVarP(&o.namespaces, "namespace", "n", nil, "only these Kubernetes namespaces")
	f.StringSliceVar(&o.levels, "severity", nil, "only these severities: error, warning, info, debug, …")
	f.StringVar(&o.since, "since", "1h", "how far back, such as 15m or 2d, or a time as RFC 3339")
	f.StringVar(&o.until, "until", "", "up to when: how long ago, or a time as RFC 3339; default: now")
	f.IntVar(&o.limit, "limit", 200, "print at most so many lines, the newest")
	f.DurationVar(&o.patience, "patience", patience, "how long to wait for a region once another has answered; 0s: as long as it takes")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with new lines as they come")
	f.StringVarP(&o.output, "output", "o", "text", "text, wide (with region, node and container), json (one object a line) or message")
	g.AddFlags(cmd)
	g.addConsole(cmd)
	return cmd
}

func (o logOptions) query(g *Globals, args []string) (url.Values, error) {
	if o.limit < 1 || o.limit > 100_000 {
		return nil, fmt.Errorf("--limit %d: want 1 to 100000", o.limit)
	}
	if o.patience < 0 {
		return nil, fmt.Errorf("--patience %s: want a time such as 10s, or 0s for as long as a region takes", o.patience)
	}
	if !slices.Contains([]string{"text", "wide", "json", "message"}, o.output) {
		return nil, fmt.Errorf("--output %q: want text, wide, json or message", o.output)
	}
	if o.follow && o.until != "" {
		return nil, errors.New("--follow goes on for ever and --until ends; use one of them")
	}
	q := g.query()
	set := func(name, v string) {
		if v != "" {
			q.Set(name, v)
		}
	}
	if len(args) > 0 {
		set("query", args[0])
	}
	set("virtualSite", o.virtualSite)
	set("site", strings.Join(o.sites, ","))
	set("namespace", strings.Join(o.namespaces, ","))
	set("severity", strings.Join(o.levels, ","))
	for _, f := range []struct{ flag, param, value string }{{"since", "from", o.since}, {"until", "to", o.until}} {
		if f.value == "" {
			continue
		}
		t, err := ago(f.value, time.Now())
		if err != nil {
			return nil, fmt.Errorf("--%s %q: want a duration such as 15m, or a time such as 2026-01-31T12:00:00Z", f.flag, f.value)
		}
		q.Set(f.param, t.UTC().Format(time.RFC3339Nano))
	}
	return q, nil
}

// ago reads a time, or a duration back from now.
func ago(s string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	d, err := model.ParseDuration(s)
	if err != nil {
		return time.Time{}, err
	}
	return now.Add(-time.Duration(d)), nil
}

// search pages through the newest lines and prints them, oldest first.
func search(ctx context.Context, a *api, q url.Values, o logOptions, p *printer) error {
	if o.patience > 0 {
		q.Set("patience", o.patience.String())
	}
	var lines []wire.LogHit
	for len(lines) < o.limit {
		q.Set("limit", strconv.Itoa(min(1000, o.limit-len(lines))))
		var page wire.LogPage
		if err := a.get(ctx, "/api/v1/logs/search", q, &page); err != nil {
			return err
		}
		p.missing(page.MissingRegions)
		p.incomplete = p.incomplete || len(page.MissingRegions) > 0
		lines = append(lines, page.Hits...)
		if page.NextCursor == "" || len(page.Hits) == 0 {
			break
		}
		q.Set("cursor", page.NextCursor)
	}
	slices.Reverse(lines)
	for _, l := range lines {
		if err := p.line(l); err != nil {
			return err
		}
	}
	if err := p.known(ctx, lines); err != nil {
		return err
	}
	if len(lines) == 0 && p.output != "json" && p.seen == nil {
		fmt.Fprintln(p.err, "no line matches; widen --since, or check the query with the log page of the console")
	}
	return nil
}

// silent are the sites of which there is no line: they may not be there at all.
func silent(sites []string, lines []wire.LogHit) []string {
	return slices.DeleteFunc(slices.Clone(sites), func(site string) bool {
		return slices.ContainsFunc(lines, func(l wire.LogHit) bool { return l.Site == site })
	})
}

// follow prints what there is and then what comes, over breaks of the connection. The
// stream is opened before the search is made, so that nothing falls between the two;
// what both bring is printed once.
func follow(ctx context.Context, a *api, q url.Values, o logOptions, p *printer) error {
	p.seen = map[string]bool{}
	last, opened := "", func() error {
		backlog := url.Values{}
		for k, v := range q {
			backlog[k] = v
		}
		return search(ctx, a, backlog, o, p)
	}
	stream := url.Values{}
	for k, v := range q {
		if k != "from" { // a late line is news, however old it is
			stream[k] = v
		}
	}
	for {
		id, err := tail(ctx, a, stream, last, opened, p)
		if id != "" {
			opened = nil // what came before is printed, and the stream goes on where it was
		}
		if id != "" {
			last = id
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			if last == "" {
				return err
			}
			fmt.Fprintf(p.err, "muster: the stream broke (%v); connecting again\n", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Second):
		}
	}
}

// tail prints one stream's lines until it ends, and returns where to go on. opened is
// called, if it is not nil, once every region's stream stands.
func tail(ctx context.Context, a *api, q url.Values, last string, opened func() error, p *printer) (string, error) {
	header := http.Header{"Accept": {"text/event-stream"}}
	if last != "" {
		header.Set("Last-Event-ID", last)
	}
	resp, err := a.do(ctx, http.MethodGet, "/api/v1/logs/tail", q, nil, header)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if opened != nil {
		if err := opened(); err != nil {
			return last, err
		}
	}
	r := sse.NewReader(resp.Body, maxAnswer)
	for {
		e, err := r.Next()
		if err != nil {
			return last, err
		}
		switch e.Name {
		case "hits":
			var page wire.LogEvent
			if err := json.Unmarshal([]byte(e.Data), &page); err != nil {
				return last, fmt.Errorf("event of the stream: %w", err)
			}
			for _, l := range page.Hits {
				if err := p.line(l); err != nil {
					return last, err
				}
			}
		case "missing":
			var m wire.LogEvent
			if err := json.Unmarshal([]byte(e.Data), &m); err != nil {
				return last, fmt.Errorf("event of the stream: %w", err)
			}
			p.missing(m.MissingRegions)
		}
		if e.ID != "" {
			last = e.ID
		}
	}
}

// printer writes lines to out and what is missing to err.
type printer struct {
	out, err io.Writer
	output   string
	said     string // what was said to be missing
	// incomplete: a region did not answer a search.
	incomplete bool
	// known fails if what was asked for is not there, which these lines may show.
	known func(ctx context.Context, lines []wire.LogHit) error
	seen  map[string]bool // IDs of lines printed; nil: none need be known
}

func (p *printer) missing(m []wire.MissingRegion) {
	var parts []string
	late := false
	for _, r := range m {
		parts = append(parts, r.Region+" ("+r.Reason+")")
		late = late || r.Late
	}
	if text := strings.Join(parts, ", "); text != p.said {
		p.said = text
		if text == "" {
			fmt.Fprintln(p.err, "muster: all regions answer again")
		} else {
			if late {
				text += "; --patience 0s waits for it"
			}
			fmt.Fprintln(p.err, "muster: the lines are not complete; no answer from "+text)
		}
	}
}

func (p *printer) line(l wire.LogHit) error {
	if p.seen != nil && l.ID != "" {
		if p.seen[l.ID] {
			return nil
		}
		if len(p.seen) > 200_000 {
			clear(p.seen) // the backlog is long past
		}
		p.seen[l.ID] = true
	}
	switch p.output {
	case "json":
		return json.NewEncoder(p.out).Encode(l)
	case "message":
		_, err := fmt.Fprintln(p.out, printable(l.Message))
		return err
	}
	source := l.Unit
	if l.Pod != "" {
		source = l.Namespace + "/" + l.Pod
	}
	parts := []string{l.Timestamp.UTC().Format("2006-01-02T15:04:05.000Z"), l.Site}
	if p.output == "wide" {
		parts = append(parts, orDash(l.Region), orDash(l.Node))
		if l.Container != "" {
			source += "[" + l.Container + "]"
		}
	}
	parts = append(parts, orDash(source), strings.ToUpper(orDash(l.Severity)), l.Message)
	_, err := fmt.Fprintln(p.out, printable(strings.Join(parts, "  ")))
	return err
}

// printable keeps a hostile line from moving the cursor or colouring the terminal.
func printable(s string) string {
	return strings.Map(visible, strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "⏎ "))
}

func visible(r rune) rune {
	if r == '\t' {
		return r
	}
	if r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
		return '\uFFFD'
	}
	return r
}

// plain writes texts of several lines as printable does one.
type plain struct{ io.Writer }

func (p plain) Write(b []byte) (int, error) {
	text := strings.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return visible(r)
	}, string(b))
	if _, err := io.WriteString(p.Writer, text); err != nil {
		return 0, err
	}
	return len(b), nil
}
