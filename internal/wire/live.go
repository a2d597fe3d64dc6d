package wire

import (
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
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

// Append appends the JSON of the view with these sites, as json.Marshal makes it, at a fraction of
// the cost and without garbage.
func (v LiveView) Append(b []byte, sites iter.Seq[SiteLive]) []byte {
	b = append(b, `{"regional":`...)
	b = AppendString(b, v.Regional)
	b = append(b, `,"region":`...)
	b = AppendString(b, v.Region)
	b = appendTime(append(b, `,"asOf":`...), v.AsOf)
	b = append(b, `,"sites":[`...)
	first := true
	for s := range sites {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = s.append(b)
	}
	return append(b, "]}"...)
}

func (s *SiteLive) append(b []byte) []byte {
	b = AppendString(append(b, `{"tenant":`...), s.Tenant)
	b = AppendString(append(b, `,"site":`...), s.Site)
	b = AppendString(append(b, `,"region":`...), s.Region)
	b = strconv.AppendBool(append(b, `,"connected":`...), s.Connected)
	if !s.ConnectedSince.IsZero() {
		b = appendTime(append(b, `,"connectedSince":`...), s.ConnectedSince)
	}
	if !s.LastHeartbeat.IsZero() {
		b = appendTime(append(b, `,"lastHeartbeat":`...), s.LastHeartbeat)
	}
	if !s.LastPush.IsZero() {
		b = appendTime(append(b, `,"lastPush":`...), s.LastPush)
	}
	b = AppendString(append(b, `,"agentVersion":`...), s.AgentVersion)
	if s.Limited != "" {
		b = AppendString(append(b, `,"limited":`...), s.Limited)
	}
	return append(b, '}')
}

func appendTime(b []byte, t time.Time) []byte {
	return append(t.AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
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
