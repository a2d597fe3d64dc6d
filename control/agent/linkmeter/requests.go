package linkmeter

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
)

// reasons for which requests fail, by position in target.errors.
var reasons = [...]string{"refused", "failed", "unreachable"}

// target is all requests that are for the same.
type target struct {
	requests uint64
	took     time.Duration
	errors   [len(reasons)]uint64
}

// targetOf names what a path of the gateway is for: the values of the label target.
func targetOf(path string) string {
	switch {
	case path == "/api/v1/push":
		return "push"
	case path == "/api/v1/logs":
		return "logs"
	case strings.HasPrefix(path, "/software/"):
		return "software"
	}
	return "other"
}

// Transport counts the requests of a transport, by what they are for.
func (m *Meter) Transport(t *http.Transport) http.RoundTripper { return &transport{t, m} }

type transport struct {
	*http.Transport // for CloseIdleConnections
	meter           *Meter
}

// RoundTrip implements http.RoundTripper. A request that its sender gave up is not the
// link's fault, and not counted.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := t.Transport.RoundTrip(r)
	if err != nil && errors.Is(r.Context().Err(), context.Canceled) {
		return resp, err
	}
	took := time.Since(began)
	t.meter.mu.Lock()
	defer t.meter.mu.Unlock()
	of := targetOf(r.URL.Path)
	x := t.meter.targets[of]
	if x == nil {
		x = &target{}
		t.meter.targets[of] = x
	}
	x.requests++
	x.took += took
	switch {
	case err != nil:
		x.errors[2]++
	case resp.StatusCode >= 500:
		x.errors[1]++
	case resp.StatusCode >= 400:
		x.errors[0]++
	}
	return resp, err
}
