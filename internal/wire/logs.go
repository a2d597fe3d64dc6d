package wire

import (
	"strings"
	"time"
)

// LogHit is one log line as a search finds it and a tail brings it: between a regional and the
// fan-out, and from there to the console, its users and the CLI.
type LogHit struct {
	Timestamp time.Time         `json:"timestamp"` // when the line was written, to the nanosecond, in UTC
	Tenant    string            `json:"tenant"`
	Site      string            `json:"site"`
	Region    string            `json:"region"`
	Node      string            `json:"node"`
	Namespace string            `json:"namespace"`
	Pod       string            `json:"pod"`
	Container string            `json:"container"`
	Unit      string            `json:"unit"`             // of systemd, or a service, for lines from no pod
	Stream    string            `json:"stream,omitempty"` // stdout, stderr
	Severity  string            `json:"severity"`
	Message   string            `json:"message"`
	Labels    map[string]string `json:"labels,omitempty"` // what else is known of the line, flat
	ID        string            `json:"id"`               // names the line for good
	// Cursor continues a search below the line, in every region. Regionals set it.
	Cursor string `json:"cursor,omitempty"`
}

// Compare orders hits by time, oldest first, then by ID. A search shows them the other way round.
func (h *LogHit) Compare(o *LogHit) int {
	if c := h.Timestamp.Compare(o.Timestamp); c != 0 {
		return c
	}
	return strings.Compare(h.ID, o.ID)
}

// Size is about what the hit takes in memory and on the wire, in bytes.
func (h *LogHit) Size() int {
	n := 300 + len(h.Message) + len(h.Site) + len(h.Region) + len(h.Node) + len(h.Namespace) + len(h.Pod) + len(h.Container) + len(h.Unit) + len(h.ID)
	for k, v := range h.Labels {
		n += len(k) + len(v) + 6
	}
	return n
}

// LogQuery asks all regions for log lines of one tenant, which is not in it: whoever has
// authorised it hands it over apart.
type LogQuery struct {
	Text string // in the language of package logquery; empty: every line
	// From and To are RFC 3339, a day, Unix seconds, or relative to now, such as now-1h;
	// empty: open.
	From, To                      string
	VirtualSite                   string // NAMESPACE/NAME, or NAME for one in the namespace shared; empty: any
	Sites, Namespaces, Severities []string
	Limit                         int    // of a page, 1 to 1,000; 0: 100
	Cursor                        string // LogPage.NextCursor of the page before; empty: the first
	// Patience is how long regions are waited for once one has answered: those that have
	// not by then are missing, and late. 0: as long as a region may take.
	Patience time.Duration
}

// LogHistogram is the number of hits over time, in steps of whole seconds. Counts[i] is of
// Start+i·step ≤ t < Start+(i+1)·step.
type LogHistogram struct {
	Start       time.Time `json:"start"`
	StepSeconds int64     `json:"stepSeconds"`
	Counts      []int64   `json:"counts"`
}

// MissingRegion is one that did not answer, or not in full.
type MissingRegion struct {
	Region string `json:"region"`
	Reason string `json:"reason"`
	// Late: it may still answer; whoever asks once more, without patience, waits for it.
	Late bool `json:"late,omitempty"`
}

// LogEvent is the data of a tail's events as their readers see it: of "hits", in the order
// in which the lines came in, and of "missing". Each has its own field alone.
type LogEvent struct {
	Hits           []LogHit        `json:"hits"`
	MissingRegions []MissingRegion `json:"missingRegions"`
}

// RegionLogs is a regional's answer to a search.
type RegionLogs struct {
	// Regions that the hits come from: the regional, and those joined to it that answered.
	Regions   []string      `json:"regions"`
	Hits      []LogHit      `json:"hits"` // newest first
	Total     int64         `json:"total"`
	Histogram *LogHistogram `json:"histogram"`
	// Next continues below the last hit; absent when there is no more.
	Next           string          `json:"next,omitempty"`
	MissingRegions []MissingRegion `json:"missingRegions,omitempty"`
}

// LogPage is one page of a search over all regions.
type LogPage struct {
	Hits           []LogHit        `json:"hits"` // newest first
	Total          int64           `json:"total"`
	Histogram      *LogHistogram   `json:"histogram"`
	MissingRegions []MissingRegion `json:"missingRegions"`
	NextCursor     string          `json:"nextCursor,omitempty"`
}
