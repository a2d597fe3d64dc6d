package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// maxBody is how much of an answer is read, in bytes: a page of 1,000 sites has about 2 MB.
const maxBody = 64 << 20

// Client asks one console. It is safe for concurrent use.
type Client struct {
	HTTP *http.Client
	// URL is the console's, without a last slash.
	URL string
	// Tenant is asked for; empty: what the console takes then.
	Tenant string
	// Authorization is the user's, a whole header value.
	Authorization string
}

// Problem is an error that the console answered.
type Problem struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
}

func (p *Problem) Error() string {
	if p.Detail != "" {
		return p.Detail
	}
	return fmt.Sprintf("the console answered %d %s", p.Status, p.Title)
}

// StatusOf is the status that the console answered with the error, or 0.
func StatusOf(err error) int {
	if p := (*Problem)(nil); errors.As(err, &p) {
		return p.Status
	}
	return 0
}

// Get reads what stands at path, below /api/v1, into out. Empty parameters are left out,
// and the tenant is added.
func (c *Client) Get(ctx context.Context, path string, params url.Values, out any) error {
	resp, err := c.do(ctx, http.MethodGet, path, params)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return decode(resp, out)
}

// Open opens the stream at path. The caller closes it.
func (c *Client) Open(ctx context.Context, path string, params url.Values) (io.ReadCloser, error) {
	resp, err := c.do(ctx, http.MethodGet, path, params)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, decode(resp, nil)
	}
	return resp.Body, nil
}

// post sends a form, as long PromQL needs.
func (c *Client) post(ctx context.Context, path string, params url.Values, out any) error {
	resp, err := c.do(ctx, http.MethodPost, path, params)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return decode(resp, out)
}

func (c *Client) do(ctx context.Context, method, path string, params url.Values) (*http.Response, error) {
	set := url.Values{}
	for k, vs := range params {
		for _, v := range vs {
			if v != "" {
				set.Add(k, v)
			}
		}
	}
	if c.Tenant != "" && path != sessionPath { // who asks is of no tenant
		set.Set("tenant", c.Tenant)
	}
	// A viewer's site may be called "..": the request would go elsewhere, with this token.
	for part := range strings.SplitSeq(path, "/") {
		if part == "." || part == ".." {
			return nil, &Problem{Status: http.StatusBadRequest, Detail: fmt.Sprintf("%q is no name", part)}
		}
	}
	at := c.URL + "/api/v1" + path
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader(set.Encode())
	} else if len(set) > 0 {
		at += "?" + set.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, at, body)
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	req.Header.Set("Authorization", c.Authorization)
	// The console redirects nobody; what does stands before it, and is not to have the token.
	stay := *c.HTTP
	stay.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := stay.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the console can't be reached: %w", err)
	}
	return resp, nil
}

// decode reads an answer. PromQL that was refused comes in Prometheus' form.
func decode(resp *http.Response, out any) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return fmt.Errorf("the console's answer broke off: %w", err)
	}
	if len(b) > maxBody {
		return fmt.Errorf("the console's answer has more than %d MiB: ask for less", maxBody>>20)
	}
	if resp.StatusCode/100 == 2 {
		if err := json.Unmarshal(b, out); err != nil {
			return fmt.Errorf("the console's answer is not what its API says: %w", err)
		}
		return nil
	}
	var p struct {
		Problem
		Prometheus string `json:"error"`
	}
	if json.Unmarshal(b, &p) != nil || p.Detail == "" && p.Title == "" && p.Prometheus == "" {
		return &Problem{Status: resp.StatusCode, Title: http.StatusText(resp.StatusCode) + ", and not as a Muster console does: check the URL"}
	}
	if p.Detail == "" {
		p.Detail = p.Prometheus
	}
	p.Status = resp.StatusCode
	return &p.Problem
}

// pageSize is what is asked for at once.
const pageSize = 1000

// pages reads pages until there are limit things, or no more. next reads one and says how
// many it had and the cursor of the one after.
func pages(params url.Values, limit int, next func(url.Values) (n int, cursor string, err error)) error {
	p := url.Values{}
	for k, v := range params {
		p[k] = v
	}
	for got := 0; got < limit; {
		p.Set("limit", strconv.Itoa(min(pageSize, limit-got)))
		n, cursor, err := next(p)
		if err != nil {
			return err
		}
		if got += n; cursor == "" || n == 0 {
			return nil
		}
		p.Set("cursor", cursor)
	}
	return nil
}
