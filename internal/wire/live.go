package wire

import (
	"encoding/json"
	"fmt"
	"time"
)

// LivePath is where a regional serves its LiveView, on its query listener.
const LivePath = "/api/v1/live"

// LiveView is what a regional's gateway knows of its sites at one moment: the JSON of
// GET LivePath. The health engine and the dead man's switch read it.
type LiveView struct {
	Regional string     `json:"regional"`
	Region   string     `json:"region"`
	AsOf     time.Time  `json:"asOf"`
	Sites    []SiteLive `json:"sites"`
}

// SiteLive is one site in a LiveView. Times that never were are absent, and zero here.
type SiteLive struct {
	Tenant         string    `json:"tenant"`
	Site           string    `json:"site"`
	Region         string    `json:"region"`
	Connected      bool      `json:"connected"`
	ConnectedSince time.Time `json:"connectedSince,omitzero"`
	LastHeartbeat  time.Time `json:"lastHeartbeat,omitzero"`
	LastPush       time.Time `json:"lastPush,omitzero"`
	AgentVersion   string    `json:"agentVersion"`
	// Limited names the limit that the site ran into lately; empty when none.
	Limited string `json:"limited,omitempty"`
}

// clockSlack is what two clocks may differ by and are still taken for the same.
const clockSlack = 2 * time.Second

// Settle puts the times of the last signs of life into those of the reader's clock, who asked and
// was answered at these times, and returns how far the regional's clock is at least ahead of that:
// behind, if it is negative, and 0 if the way there and back explains it. What a site is told by,
// ConnectedSince, stays as it is: it has to be the same each time.
func (v *LiveView) Settle(asked, answered time.Time) (ahead time.Duration) {
	switch {
	case v.AsOf.IsZero():
	case v.AsOf.After(answered.Add(clockSlack)):
		ahead = v.AsOf.Sub(answered)
	case v.AsOf.Before(asked.Add(-clockSlack)):
		ahead = v.AsOf.Sub(asked)
	}
	if ahead == 0 {
		return 0
	}
	for i := range v.Sites {
		s := &v.Sites[i]
		for _, t := range []*time.Time{&s.LastHeartbeat, &s.LastPush} {
			if !t.IsZero() {
				*t = t.Add(-ahead)
			}
		}
	}
	return ahead
}

// DecodeLiveView reads the live view of the regional of this name.
func DecodeLiveView(b []byte, regional string) (LiveView, error) {
	var v LiveView
	if err := json.Unmarshal(b, &v); err != nil {
		return LiveView{}, fmt.Errorf("not a live view: %w", err)
	}
	if v.Regional != regional {
		return LiveView{}, fmt.Errorf("the live view is of regional %.80q, not %q; check regionals[].queryURL", v.Regional, regional)
	}
	return v, nil
}
