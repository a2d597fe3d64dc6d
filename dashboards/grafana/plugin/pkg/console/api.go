package console

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// What follows are the parts of the API's schemas that the plugin shows.

const sessionPath = "/session"

// Session is who asks.
type Session struct {
	User    string   `json:"user"`
	Tenants []string `json:"tenants"`
}

// Dimension of a score.
type Dimension struct {
	Score        *float64 `json:"score"`
	Colour       string   `json:"colour"`
	StaleSeconds float64  `json:"staleSeconds"`
}

// Reason is why a site lost points.
type Reason struct {
	Dimension  string     `json:"dimension"`
	Signal     string     `json:"signal"`
	Value      *float64   `json:"value"`
	Threshold  *float64   `json:"threshold"`
	PointsLost float64    `json:"pointsLost"`
	Since      *time.Time `json:"since"`
	Text       string     `json:"text"`
}

// Place is where a site stands.
type Place struct {
	Latitude  float64 `json:"latitude"`
	Longitude float64 `json:"longitude"`
	Address   string  `json:"address"`
}

// Maintenance of a site.
type Maintenance struct {
	Reason string     `json:"reason"`
	Until  *time.Time `json:"until"`
}

// SiteHealth is a site with its scores.
type SiteHealth struct {
	Name         string               `json:"name"`
	Tenant       string               `json:"tenant"`
	Region       string               `json:"region"`
	VirtualSites []string             `json:"virtualSites"`
	Phase        string               `json:"phase"`
	LastSeen     *time.Time           `json:"lastSeen"`
	Score        *float64             `json:"score"`
	Colour       string               `json:"colour"`
	Since        *time.Time           `json:"since"`
	Dimensions   map[string]Dimension `json:"dimensions"`
	Reasons      []Reason             `json:"reasons"`
	Place        *Place               `json:"place"`
	Maintenance  *Maintenance         `json:"maintenance"`
	Signals      []Signal             `json:"signals"` // of one site
}

// Signal of a site.
type Signal struct {
	Name      string     `json:"name"`
	Dimension string     `json:"dimension"`
	Value     *float64   `json:"value"`
	Score     *float64   `json:"score"`
	Known     bool       `json:"known"`
	Applies   bool       `json:"applies"`
	Error     string     `json:"error"`
	Good      float64    `json:"good"`
	Bad       float64    `json:"bad"`
	Weight    float64    `json:"weight"`
	Critical  bool       `json:"critical"`
	Unit      string     `json:"unit"`
	AsOf      *time.Time `json:"asOf"`
}

// VirtualSite with its scores.
type VirtualSite struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Tenant    string   `json:"tenant"`
	Sites     int64    `json:"sites"`
	Mean      *float64 `json:"mean"`
	P10       *float64 `json:"p10"`
	Worst     *struct {
		Site  string   `json:"site"`
		Score *float64 `json:"score"`
	} `json:"worst"`
	Counts           map[string]int64 `json:"counts"`
	Maintenance      int64            `json:"maintenance"`
	PercentUnhealthy *float64         `json:"percentUnhealthy"`
}

// Condition of a site.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"lastTransitionTime"`
}

// Window is planned maintenance.
type Window struct {
	Name     string     `json:"name"`
	Reason   string     `json:"reason"`
	Start    *time.Time `json:"start"`
	Schedule string     `json:"schedule"`
	Duration string     `json:"duration"`
}

// Site as the control plane knows it.
type Site struct {
	Name               string            `json:"name"`
	Tenant             string            `json:"tenant"`
	Phase              string            `json:"phase"`
	Labels             map[string]string `json:"labels"`
	SystemLabels       map[string]string `json:"systemLabels"`
	Versions           map[string]string `json:"versions"`
	Conditions         []Condition       `json:"conditions"`
	Place              *Place            `json:"place"`
	Maintenance        *Maintenance      `json:"maintenance"`
	MaintenanceWindows []Window          `json:"maintenanceWindows"`
	Regional           string            `json:"regional"`
	LastSeen           *time.Time        `json:"lastSeen"`
}

// Alert that fires.
type Alert struct {
	Fingerprint  string            `json:"fingerprint"`
	Name         string            `json:"name"`
	Tenant       string            `json:"tenant"`
	Site         string            `json:"site"`
	Region       string            `json:"region"`
	Severity     string            `json:"severity"`
	State        string            `json:"state"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       *time.Time        `json:"endsAt"`
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	GeneratorURL string            `json:"generatorURL"`
}

// LogRecord is a line.
type LogRecord struct {
	Timestamp time.Time         `json:"timestamp"`
	Tenant    string            `json:"tenant"`
	Site      string            `json:"site"`
	Region    string            `json:"region"`
	Node      string            `json:"node"`
	Namespace string            `json:"namespace"`
	Pod       string            `json:"pod"`
	Container string            `json:"container"`
	Unit      string            `json:"unit"`
	Severity  string            `json:"severity"`
	Message   string            `json:"message"`
	Labels    map[string]string `json:"labels"`
	ID        string            `json:"id"`
}

// Missing is a region that did not answer.
type Missing struct {
	Region string `json:"region"`
	Reason string `json:"reason"`
}

// LogPage is what a search found.
type LogPage struct {
	Hits      []LogRecord `json:"hits"`
	Total     int64       `json:"total"`
	Histogram *struct {
		Start       time.Time `json:"start"`
		StepSeconds int64     `json:"stepSeconds"`
		Counts      []int64   `json:"counts"`
	} `json:"histogram"`
	Missing []Missing `json:"missingRegions"`
	Next    string    `json:"nextCursor"`
}

// Rollout that goes or went over sites.
type Rollout struct {
	Tenant       string           `json:"tenant"`
	Namespace    string           `json:"namespace"`
	Name         string           `json:"name"`
	Phase        string           `json:"phase"`
	Message      string           `json:"message"`
	VirtualSites []string         `json:"virtualSites"`
	Strategy     string           `json:"strategy"`
	Progress     string           `json:"progress"`
	Sites        map[string]int64 `json:"sites"`
	CreatedAt    time.Time        `json:"createdAt"`
	StartedAt    *time.Time       `json:"startedAt"`
	EndedAt      *time.Time       `json:"endedAt"`
	Changes      []struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
		Text string `json:"text"`
	} `json:"changes"`
}

// Event of the timeline.
type Event struct {
	Time     time.Time `json:"time"`
	Kind     string    `json:"kind"`
	Severity string    `json:"severity"`
	Site     string    `json:"site"`
	By       string    `json:"by"`
	Text     string    `json:"text"`
}

// Series is one of PromQL's answer.
type Series struct {
	Metric map[string]string `json:"metric"`
	Values []Sample          `json:"values"`
}

// Sample is a pair of Unix seconds and a number in quotes.
type Sample struct {
	Time  time.Time
	Value float64
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Sample) UnmarshalJSON(b []byte) error {
	var at float64
	var v string
	if err := json.Unmarshal(b, &[2]any{&at, &v}); err != nil {
		return err
	}
	f, err := strconv.ParseFloat(v, 64)
	if err != nil {
		return err
	}
	s.Time, s.Value = time.UnixMilli(int64(math.Round(at*1000))).UTC(), f
	return nil
}

// Session says who asks.
func (c *Client) Session(ctx context.Context) (s Session, err error) {
	return s, c.Get(ctx, sessionPath, nil, &s)
}

// SiteHealths are the sites that the parameters choose, limit at most, and how many there are.
func (c *Client) SiteHealths(ctx context.Context, params url.Values, limit int) (out []SiteHealth, total int, err error) {
	err = pages(params, limit, func(p url.Values) (int, string, error) {
		var page struct {
			Total int          `json:"total"`
			Sites []SiteHealth `json:"sites"`
			Next  string       `json:"nextCursor"`
		}
		err := c.Get(ctx, "/health/sites", p, &page)
		out, total = append(out, page.Sites...), page.Total
		return len(page.Sites), page.Next, err
	})
	return out, total, err
}

// SiteHealth is that of one site, with its signals.
func (c *Client) SiteHealth(ctx context.Context, site string) (s SiteHealth, err error) {
	return s, c.Get(ctx, "/health/sites/"+url.PathEscape(site), nil, &s)
}

// VirtualSites are all of them with their scores.
func (c *Client) VirtualSites(ctx context.Context, limit int) (out []VirtualSite, err error) {
	err = pages(nil, limit, func(p url.Values) (int, string, error) {
		var page struct {
			VirtualSites []VirtualSite `json:"virtualSites"`
			Next         string        `json:"nextCursor"`
		}
		err := c.Get(ctx, "/health/virtualsites", p, &page)
		out = append(out, page.VirtualSites...)
		return len(page.VirtualSites), page.Next, err
	})
	return out, err
}

// Row is a site of the inventory: a value for each column that was asked for.
type Row map[string]any

// Text is a column's value as text; what is not known is empty.
func (r Row) Text(column string) string {
	switch v := r[column].(type) {
	case nil:
		return ""
	case string:
		return v
	case []any:
		var out []string
		for _, e := range v {
			out = append(out, fmt.Sprint(e))
		}
		return strings.Join(out, ", ")
	default:
		return fmt.Sprint(v)
	}
}

// Number is a column's value as a number, or nil.
func (r Row) Number(column string) *float64 {
	if v, ok := r[column].(float64); ok {
		return &v
	}
	return nil
}

// Time is a column's value as a time, or nil.
func (r Row) Time(column string) *time.Time {
	if at, err := time.Parse(time.RFC3339Nano, r.Text(column)); err == nil {
		return &at
	}
	return nil
}

// Inventory is the sites that a query of the inventory's language means.
type Inventory struct {
	Rows   []Row
	Total  int
	Groups []string // the values of the column that sites are grouped by
	Notes  []string // what is missing
}

// Inventory reads the sites that the parameters mean, limit at most; 0 for groups alone.
func (c *Client) Inventory(ctx context.Context, params url.Values, limit int) (out Inventory, err error) {
	read := func(p url.Values) (int, string, error) {
		var page struct {
			Total  int   `json:"total"`
			Sites  []Row `json:"sites"`
			Groups []struct {
				Value string `json:"value"`
			} `json:"groups"`
			Next  string   `json:"nextCursor"`
			Notes []string `json:"notes"`
		}
		err := c.Get(ctx, "/sites", p, &page)
		out.Rows, out.Total, out.Notes = append(out.Rows, page.Sites...), page.Total, page.Notes
		for _, g := range page.Groups {
			out.Groups = append(out.Groups, g.Value)
		}
		return len(page.Sites), page.Next, err
	}
	if limit == 0 {
		p := url.Values{"limit": {"0"}}
		for k, v := range params {
			p[k] = v
		}
		_, _, err = read(p)
		return out, err
	}
	return out, pages(params, limit, read)
}

// Keys are the labels and the components with a version that sites have.
func (c *Client) Keys(ctx context.Context) (labels, versions []string, err error) {
	type key struct {
		Key string `json:"key"`
	}
	var out struct {
		Labels   []key `json:"labels"`
		Versions []key `json:"versions"`
	}
	err = c.Get(ctx, "/site-fields", nil, &out)
	for _, k := range out.Labels {
		labels = append(labels, k.Key)
	}
	for _, k := range out.Versions {
		versions = append(versions, k.Key)
	}
	return labels, versions, err
}

// Site is one as the control plane knows it.
func (c *Client) Site(ctx context.Context, site string) (s Site, err error) {
	return s, c.Get(ctx, "/sites/"+url.PathEscape(site), nil, &s)
}

// Windows are the planned maintenance of a virtual site's members.
func (c *Client) Windows(ctx context.Context, namespace, name string) ([]Window, error) {
	var out struct {
		Windows []Window `json:"maintenanceWindows"`
	}
	err := c.Get(ctx, "/virtualsites/"+url.PathEscape(namespace)+"/"+url.PathEscape(name)+"/maintenance/windows", nil, &out)
	return out.Windows, err
}

// Alerts that fire, limit at most, and how many there are.
func (c *Client) Alerts(ctx context.Context, params url.Values, limit int) (out []Alert, total int, err error) {
	err = pages(params, limit, func(p url.Values) (int, string, error) {
		var page struct {
			Total  int     `json:"total"`
			Alerts []Alert `json:"alerts"`
			Next   string  `json:"nextCursor"`
		}
		err := c.Get(ctx, "/alerts", p, &page)
		out, total = append(out, page.Alerts...), page.Total
		return len(page.Alerts), page.Next, err
	})
	return out, total, err
}

// Logs searches. The histogram and the regions that are missing are those of the first page.
func (c *Client) Logs(ctx context.Context, params url.Values, limit int) (LogPage, error) {
	var out LogPage
	err := pages(params, limit, func(p url.Values) (int, string, error) {
		var page LogPage
		err := c.Get(ctx, "/logs/search", p, &page)
		if out.Hits == nil {
			out = page
		} else {
			out.Hits = append(out.Hits, page.Hits...)
		}
		return len(page.Hits), page.Next, err
	})
	return out, err
}

// Rollouts, newest first, limit at most.
func (c *Client) Rollouts(ctx context.Context, params url.Values, limit int) (out []Rollout, err error) {
	err = pages(params, limit, func(p url.Values) (int, string, error) {
		var page struct {
			Rollouts []Rollout `json:"rollouts"`
			Next     string    `json:"nextCursor"`
		}
		err := c.Get(ctx, "/rollouts", p, &page)
		out = append(out, page.Rollouts...)
		return len(page.Rollouts), page.Next, err
	})
	return out, err
}

// Timeline is what happened, newest first, limit at most.
func (c *Client) Timeline(ctx context.Context, params url.Values, limit int) (out []Event, err error) {
	err = pages(params, limit, func(p url.Values) (int, string, error) {
		var page struct {
			Events []Event `json:"events"`
			Next   string  `json:"nextCursor"`
		}
		err := c.Get(ctx, "/timeline", p, &page)
		out = append(out, page.Events...)
		return len(page.Events), page.Next, err
	})
	return out, err
}

// QueryRange evaluates PromQL over a stretch of time.
func (c *Client) QueryRange(ctx context.Context, expr string, from, to time.Time, step time.Duration) ([]Series, error) {
	var out struct {
		Data struct {
			Type   string   `json:"resultType"`
			Result []Series `json:"result"`
		} `json:"data"`
	}
	unix := func(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
	err := c.post(ctx, "/metrics/query_range", url.Values{"query": {expr}, "start": {unix(from)}, "end": {unix(to)}, "step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)}}, &out)
	if err == nil && out.Data.Type != "matrix" {
		err = fmt.Errorf("the metric store answered a %s, not a matrix", out.Data.Type)
	}
	return out.Data.Result, err
}
