package peers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"muster.dev/muster/internal/wire"
)

// Question is a GET of one role's at another, for what is answered as JSON.
type Question struct {
	URL     string     // without a query
	Query   url.Values // may be nil
	Tenants string     // that the asker may read, as wire.TenantsHeader has them; "": not said
	Agent   string     // who asks, as User-Agent; "": not said
	Max     int64      // bytes of an answer
}

// Get asks by a client that knows roles (see Peers.Client), and returns the body of an
// answer with status 200, for a decoder of package wire. The error of a refusal wraps its
// *wire.Problem, that of a call without an answer is a *url.Error.
func (q Question) Get(ctx context.Context, client *http.Client) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, q.URL, nil)
	if err != nil {
		return nil, err
	}
	req.URL.RawQuery = q.Query.Encode()
	if q.Tenants != "" {
		req.Header.Set(wire.TenantsHeader, q.Tenants)
	}
	if q.Agent != "" {
		req.Header.Set("User-Agent", q.Agent)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		if p := wire.ReadProblem(resp); p != nil {
			return nil, fmt.Errorf("%d: %w", resp.StatusCode, p)
		}
		return nil, fmt.Errorf("answers %d", resp.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, q.Max+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > q.Max {
		return nil, fmt.Errorf("answers with more than %d MiB", q.Max>>20)
	}
	return b, nil
}
