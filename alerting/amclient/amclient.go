// Package amclient is a thin client of Alertmanager's HTTP API v2. Everything in
// Muster that sends alerts, lists them or makes silences goes through it, so that the
// embedded Alertmanager and an external one, alone or as a cluster, are used alike.
//
// It holds no state and no policy, and must not know tenants. The alerting role's
// parts call it; the regionals send with Prometheus' own notifier instead.
package amclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"muster.dev/muster/internal/wire"
)

// CreatedByMaintenance is Silence.CreatedBy of those that Muster makes from the
// maintenance windows of sites and virtual sites.
const CreatedByMaintenance = "muster-maintenance"

// ErrNotFound is wrapped by errors about a silence that does not exist.
var ErrNotFound = errors.New("not found")

// maxBody bounds an answer, in bytes; 100,000 alerts are about 100 MB.
const maxBody = 512 << 20

// Silence is set and listed. With an ID, SetSilence changes that one; Alertmanager
// may end it and make another with a new ID instead.
type Silence struct {
	ID        string         `json:"id,omitempty"`
	Matchers  []wire.Matcher `json:"matchers"`
	StartsAt  time.Time      `json:"startsAt"`
	EndsAt    time.Time      `json:"endsAt"`
	CreatedBy string         `json:"createdBy"`
	Comment   string         `json:"comment"`

	// Only in what Alertmanager answers.
	UpdatedAt time.Time     `json:"updatedAt,omitzero"`
	Status    SilenceStatus `json:"status,omitzero"`
}

// SilenceStatus is where a silence stands.
type SilenceStatus struct {
	State string `json:"state"` // active, pending or expired
}

// Status of one Alertmanager.
type Status struct {
	URL         string `json:"-"` // whose answer it is
	VersionInfo struct {
		Version string `json:"version"`
	} `json:"versionInfo"`
	Uptime  time.Time `json:"uptime"` // when it started
	Cluster struct {
		Name   string `json:"name"`
		Status string `json:"status"` // ready, settling or disabled
		Peers  []struct {
			Name    string `json:"name"`
			Address string `json:"address"`
		} `json:"peers"`
	} `json:"cluster"`
	Config struct {
		Original string `json:"original"` // without its secrets
	} `json:"config"`
}

// Options of a Client. URLs is needed.
type Options struct {
	// URLs are the base URLs of Alertmanagers of one cluster, with their path prefix
	// if any, such as http://127.0.0.1:9093.
	URLs []string
	// Client default: a new one without a proxy. Time is bounded by Timeout.
	Client *http.Client
	// Timeout of one request to one URL; default 30 s.
	Timeout time.Duration
	// Logger gets what fails at one URL while another one answers; may be nil.
	Logger *slog.Logger
}

// Client is safe for concurrent use.
type Client struct {
	bases   []*url.URL
	http    *http.Client
	timeout time.Duration
	log     *slog.Logger
}

// New checks the URLs; it does not connect.
func New(o Options) (*Client, error) {
	if len(o.URLs) == 0 {
		return nil, errors.New("alertmanager: no URL is given")
	}
	c := &Client{http: o.Client, timeout: o.Timeout, log: o.Logger}
	for _, s := range o.URLs {
		u, err := url.Parse(s)
		if err != nil {
			return nil, fmt.Errorf("alertmanager: %w", err)
		}
		if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, fmt.Errorf("alertmanager: %q: want http://HOST:PORT or https://HOST:PORT, with a path prefix if there is one", u.Redacted())
		}
		u.Path = strings.TrimRight(u.Path, "/")
		c.bases = append(c.bases, u)
	}
	if c.http == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy = nil
		c.http = &http.Client{Transport: t}
	}
	if c.timeout <= 0 {
		c.timeout = 30 * time.Second
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// PostAlerts sends to every URL at once, because Alertmanagers of a cluster do not
// share alerts. It fails only if none took them; alerts that Alertmanager finds
// invalid make it fail there, though it keeps the valid ones.
func (c *Client) PostAlerts(ctx context.Context, alerts []wire.Alert) error {
	if len(alerts) == 0 {
		return nil
	}
	body, err := json.Marshal(alerts)
	if err != nil {
		return fmt.Errorf("alertmanager: encode alerts: %w", err)
	}
	results := make(chan error, len(c.bases))
	for _, b := range c.bases {
		go func() {
			results <- c.call(ctx, b, http.MethodPost, "/api/v2/alerts", nil, body, nil)
		}()
	}
	var errs []error
	for range c.bases {
		if err := <-results; err != nil {
			errs = append(errs, err)
		}
	}
	err = errors.Join(errs...)
	if err != nil && len(errs) < len(c.bases) {
		c.log.Warn("alerts were taken by only some Alertmanagers", "failed", len(errs), "of", len(c.bases), "err", err)
		return nil
	}
	return err
}

// Alerts lists the alerts that fire, suppressed ones too, from the first URL that
// answers. A filter is a matcher as in `amtool alert query`, such as tenant="acme";
// all must hold.
func (c *Client) Alerts(ctx context.Context, filter ...string) ([]wire.Alert, error) {
	var out []wire.Alert
	err := c.first(ctx, func(b *url.URL) error {
		out = nil
		return c.call(ctx, b, http.MethodGet, "/api/v2/alerts", query(filter), nil, &out)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Groups lists the groups that notifications are made of, with the alerts for which all
// matchers hold.
func (c *Client) Groups(ctx context.Context, filter ...wire.Matcher) ([]wire.GroupedAlerts, error) {
	matchers := make([]string, len(filter))
	for i, m := range filter {
		matchers[i] = m.String()
	}
	var groups []struct {
		Labels   map[string]string `json:"labels"`
		Receiver struct {
			Name string `json:"name"`
		} `json:"receiver"`
		Alerts []struct {
			Fingerprint string `json:"fingerprint"`
		} `json:"alerts"`
	}
	err := c.first(ctx, func(b *url.URL) error {
		groups = nil
		return c.call(ctx, b, http.MethodGet, "/api/v2/alerts/groups", query(matchers), nil, &groups)
	})
	if err != nil {
		return nil, err
	}
	out := make([]wire.GroupedAlerts, len(groups))
	for i, g := range groups {
		out[i] = wire.GroupedAlerts{Receiver: g.Receiver.Name, Labels: g.Labels}
		for _, a := range g.Alerts {
			out[i].Fingerprints = append(out[i].Fingerprints, a.Fingerprint)
		}
	}
	return out, nil
}

// Silences lists silences that have all the filter's matchers, expired ones too.
func (c *Client) Silences(ctx context.Context, filter ...string) ([]Silence, error) {
	var out []Silence
	err := c.first(ctx, func(b *url.URL) error {
		out = nil
		return c.call(ctx, b, http.MethodGet, "/api/v2/silences", query(filter), nil, &out)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Silence returns one silence; ErrNotFound if there is none.
func (c *Client) Silence(ctx context.Context, id string) (*Silence, error) {
	out := &Silence{}
	err := c.first(ctx, func(b *url.URL) error {
		*out = Silence{}
		return c.call(ctx, b, http.MethodGet, "/api/v2/silence/"+url.PathEscape(id), nil, nil, out)
	})
	if err != nil {
		return nil, fmt.Errorf("silence %.64q: %w", id, err)
	}
	return out, nil
}

// SetSilence makes or changes a silence at the first URL that answers; the cluster
// replicates it. It returns the ID.
func (c *Client) SetSilence(ctx context.Context, s Silence) (string, error) {
	s.Status, s.UpdatedAt = SilenceStatus{}, time.Time{}
	body, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("alertmanager: encode silence: %w", err)
	}
	var out struct {
		SilenceID string `json:"silenceID"`
	}
	err = c.first(ctx, func(b *url.URL) error {
		return c.call(ctx, b, http.MethodPost, "/api/v2/silences", nil, body, &out)
	})
	return out.SilenceID, err
}

// ExpireSilence ends a silence; ErrNotFound if there is none.
func (c *Client) ExpireSilence(ctx context.Context, id string) error {
	err := c.first(ctx, func(b *url.URL) error {
		return c.call(ctx, b, http.MethodDelete, "/api/v2/silence/"+url.PathEscape(id), nil, nil, nil)
	})
	if err != nil {
		return fmt.Errorf("silence %.64q: %w", id, err)
	}
	return nil
}

// Status asks the first URL that answers.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	var out *Status
	err := c.first(ctx, func(b *url.URL) error {
		out = &Status{URL: b.Redacted()}
		return c.call(ctx, b, http.MethodGet, "/api/v2/status", nil, nil, out)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func query(filter []string) url.Values {
	if len(filter) == 0 {
		return nil
	}
	return url.Values{"filter": filter}
}

// Error is a refusal by one Alertmanager.
type Error struct {
	URL    string
	Status int    // of HTTP
	Detail string // what it said, shortened
}

func (e *Error) Error() string {
	return fmt.Sprintf("alertmanager %s: %d %s: %s", e.URL, e.Status, http.StatusText(e.Status), e.Detail)
}

// Unwrap makes a 404 an ErrNotFound.
func (e *Error) Unwrap() error {
	if e.Status == http.StatusNotFound {
		return ErrNotFound
	}
	return nil
}

// final says whether another Alertmanager of the cluster would answer the same.
func (e *Error) final() bool {
	return e.Status >= 400 && e.Status < 500 && e.Status != http.StatusNotFound
}

// first tries one URL after the other.
func (c *Client) first(ctx context.Context, f func(*url.URL) error) error {
	var errs []error
	for _, b := range c.bases {
		err := f(b)
		if err == nil {
			if len(errs) > 0 {
				c.log.Warn("an Alertmanager does not answer, another one does", "err", errors.Join(errs...))
			}
			return nil
		}
		errs = append(errs, err)
		var refused *Error
		if ctx.Err() != nil || errors.As(err, &refused) && refused.final() {
			break
		}
	}
	return errors.Join(errs...)
}

func (c *Client) call(ctx context.Context, base *url.URL, method, path string, q url.Values, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	u := *base
	u.Path, u.RawPath, u.RawQuery = base.Path+path, "", q.Encode()
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), r)
	if err != nil {
		return fmt.Errorf("alertmanager %s: %w", base.Redacted(), err)
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return fmt.Errorf("alertmanager %s: %s %s: %w", base.Redacted(), method, path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return &Error{URL: base.Redacted(), Status: resp.StatusCode, Detail: detail(b)}
	}
	if out == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)) // so that the connection is used again
		return nil
	}
	if err := decode(resp.Body, out); err != nil {
		return fmt.Errorf("alertmanager %s: %s %s: %w", base.Redacted(), method, path, err)
	}
	return nil
}

func decode(r io.Reader, out any) error {
	limited := &io.LimitedReader{R: r, N: maxBody + 1}
	err := json.NewDecoder(limited).Decode(out)
	if limited.N <= 0 {
		return fmt.Errorf("the answer is longer than %d bytes", maxBody)
	}
	if err != nil {
		return fmt.Errorf("the answer is not what Alertmanager's API v2 gives: %w", err)
	}
	return nil
}

// detail is an error body, which is a JSON string or object or plain text, in a line.
func detail(b []byte) string {
	var s string
	var o struct {
		Message string `json:"message"`
	}
	switch {
	case json.Unmarshal(b, &s) == nil:
	case json.Unmarshal(b, &o) == nil && o.Message != "":
		s = o.Message
	default:
		s = string(b)
	}
	if s = strings.Join(strings.Fields(s), " "); s == "" {
		s = "no details"
	}
	return s
}
