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
