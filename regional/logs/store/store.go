// Package store is where a region keeps its log records: the record, the queries
// over records, and the Store interface with its two implementations, elastic (an
// Elasticsearch cluster) and embedded (bleve on the local disk). Package storetest
// holds the one suite that both pass.
//
// A Store keeps tenants apart by itself: the tenant of a Query is a field of its own
// that no query text can change. It does not decide who may read a tenant, and it does not
// parse what sites send; the caller, the regional, has done both.
package store

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"muster.dev/muster/internal/wire"
)

// Record is one log line. Timestamp, Tenant and ID are required.
type Record struct {
	Timestamp time.Time `json:"timestamp"` // when the line was written, to the nanosecond
	Tenant    string    `json:"tenant"`
	Site      string    `json:"site,omitempty"`
	Region    string    `json:"region,omitempty"`
	Node      string    `json:"node,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Pod       string    `json:"pod,omitempty"`
	Container string    `json:"container,omitempty"`
	Unit      string    `json:"unit,omitempty"`   // systemd unit, for lines from no pod
	Stream    string    `json:"stream,omitempty"` // stdout, stderr
	Severity  string    `json:"severity,omitempty"`
	Message   string    `json:"message"`
	// Labels are whatever else is known of the line, flat.
	Labels map[string]string `json:"labels,omitempty"`
	// ID names the record for good: the same ID at the same Timestamp is the same record, stored once
	// however often it is sent. Records of one Timestamp are ordered by ID.
	ID string `json:"id"`
	// Ingested is when the store took the record, in the store's own strictly
	// growing time; Write sets it.
	Ingested time.Time `json:"ingested,omitzero"`
}

// Limits on one record. Outside them it goes to the dead letters: see Check.
const (
	MaxMessageBytes = 1 << 20
	MaxFieldBytes   = 512 // any other field, a label's name or value
	MaxLabels       = 64
)

// Failure is one record of a Write that was not stored.
type Failure struct {
	Index  int // in the slice handed to Write
	Reason string
}

// Result of a Write, record by record: each is in exactly one of the four.
type Result struct {
	Stored     int
	Duplicates int       // stored before, by ID
	Retry      []Failure // not stored now; send these again later
	Dead       []Failure // never going to be stored as they are
}

// Histogram is the number of hits over time. Bucket i counts Start+i·Step ≤ t <
// Start+(i+1)·Step.
type Histogram struct {
	Start  time.Time
	Step   time.Duration
	Counts []int64
}

// Missing is a joined cluster that did not answer, or not in full.
type Missing = wire.MissingRegion

// Page is one page of hits, newest first.
type Page struct {
	Hits      []Record
	Total     int64      // all hits of the query, on all pages
	Histogram *Histogram // if Query.Buckets asked for it
	Next      Cursor     // of the next page; empty on the last
	Missing   []Missing  // Elasticsearch clusters joined to this one that did not answer
}

// TailPage is what came in after a cursor, in the order in which it came.
type TailPage struct {
	Hits []Record
	Next Cursor // hand it to the next call of Tail; never empty
	More bool   // Limit cut the page: ask again at once
}

// Store keeps records. All methods are safe for concurrent use.
type Store interface {
	// Write stores records and returns once they are safe against kill -9. An error
	// means that nothing is known of any of them: write them all again. What was stored already
	// counts as a duplicate then.
	Write(ctx context.Context, records []Record) (Result, error)
	// Search returns one page of what the query finds. A *QueryError is the user's
	// mistake; ErrTimeout means that the query is too expensive.
	Search(ctx context.Context, q Query) (Page, error)
	// Tail returns at once with what was stored after the cursor, late records (old Timestamp, new
	// Ingested) included, each exactly once; an empty cursor starts now. It looks at Tenant, Text,
	// the filters and Limit of the query, and at From and To if they are set.
	Tail(ctx context.Context, q Query, after Cursor) (TailPage, error)
	// Groups counts what came in within the query's bounds, each record once; ErrNotKnown.
	// Its memory is bounded by MaxGroups. A *QueryError is the user's mistake; ErrTimeout
	// means that there is too much between After and UpTo to be read at once.
	Groups(ctx context.Context, q GroupQuery) (Groups, error)
	// Now is a time up to which all is known: nothing that was taken in at or before it
	// appears any more. It never goes back. Tail and Groups see everything up to it.
	Now(ctx context.Context) (time.Time, error)
	// GetState returns what PutState wrote under a key, and its version; ErrNoState. All
	// processes on the same store share one state.
	GetState(ctx context.Context, key string) (value []byte, version string, err error)
	// PutState writes if the version is still the one that was read, or if there is
	// nothing yet and version is ""; ErrStateConflict if not. After another error it is
	// not known whether it wrote: read again.
	PutState(ctx context.Context, key string, value []byte, version string) (newVersion string, err error)
	// DeleteState deletes that version; ErrStateConflict if it is another one or gone.
	DeleteState(ctx context.Context, key, version string) error
	// Ready says why the store can't take records now, or nil.
	Ready(ctx context.Context) error
	// Close waits for what is going on, for a bounded time.
	Close() error
}

// ErrTimeout is a query that took longer than the store allows.
var ErrTimeout = errors.New("the query takes too long: narrow its time range, or name a site or a namespace")

// QueryError is a mistake in a query: for the user, with what to change.
type QueryError struct {
	Field string // of Query: tenant, query, cursor, limit, …
	Err   error
}

func (e *QueryError) Error() string { return e.Field + ": " + e.Err.Error() }
func (e *QueryError) Unwrap() error { return e.Err }

// A tenant's name is a DNS label; part of index and directory names, so checked here
// again whoever may have done it before.
var tenantName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckTenant refuses what is no name of a tenant.
func CheckTenant(tenant string) error {
	if !tenantName.MatchString(tenant) {
		return fmt.Errorf("%.80q is not the name of a tenant: lower-case letters, digits and hyphens, 63 at most", tenant)
	}
	return nil
}

// Window is the span of timestamps that a store takes at a time, so that a site with a
// broken clock, or a hostile one, can't make it open days without end.
type Window struct {
	Retention time.Duration // how long records are kept
	Future    time.Duration // how far ahead of now a clock may be
}

// Check normalises a record in place (UTC, valid UTF-8, severity in lower case) and
// returns why it can never be stored, or "".
func (w Window) Check(r *Record, now time.Time) string {
	if err := CheckTenant(r.Tenant); err != nil {
		return "tenant: " + err.Error()
	}
	if r.ID == "" {
		return "id: empty"
	}
	// Elasticsearch's client does not escape an ID as JSON wants it.
	if !utf8.ValidString(r.ID) || strings.ContainsFunc(r.ID, func(c rune) bool { return !strconv.IsPrint(c) }) {
		return fmt.Sprintf("id: %.80q has characters that don't print", r.ID)
	}
	r.Timestamp = r.Timestamp.UTC()
	if r.Timestamp.Before(Day(now.Add(-w.Retention))) {
		return fmt.Sprintf("timestamp: %s is older than the retention of %s", r.Timestamp.Format(time.RFC3339), w.Retention)
	}
	if r.Timestamp.After(now.Add(w.Future)) {
		return fmt.Sprintf("timestamp: %s is more than %s in the future: the site's clock is wrong", r.Timestamp.Format(time.RFC3339), w.Future)
	}
	r.Severity = strings.ToLower(r.Severity)
	if len(r.Message) > MaxMessageBytes {
		return fmt.Sprintf("message: %d bytes, the limit is %d", len(r.Message), MaxMessageBytes)
	}
	r.Message = strings.ToValidUTF8(r.Message, "\uFFFD")
	for _, f := range r.short() {
		if len(*f.value) > MaxFieldBytes {
			return fmt.Sprintf("%s: %d bytes, the limit is %d", f.name, len(*f.value), MaxFieldBytes)
		}
		*f.value = strings.ToValidUTF8(*f.value, "\uFFFD")
	}
	return r.checkLabels()
}

func (r *Record) checkLabels() string {
	if len(r.Labels) > MaxLabels {
		return fmt.Sprintf("labels: %d of them, the limit is %d", len(r.Labels), MaxLabels)
	}
	bad := false
	for k, v := range r.Labels {
		if k == "" || len(k) > MaxFieldBytes || len(v) > MaxFieldBytes {
			return fmt.Sprintf("labels: %.80q: empty name, or more than %d bytes", k, MaxFieldBytes)
		}
		// A zero byte parts names from values in both stores.
		bad = bad || !utf8.ValidString(k) || !utf8.ValidString(v) || strings.ContainsRune(k, 0) || strings.ContainsRune(v, 0)
	}
	if bad {
		clean := make(map[string]string, len(r.Labels))
		for k, v := range r.Labels {
			clean[cleanLabel(k)] = cleanLabel(v)
		}
		r.Labels = clean
	}
	return ""
}

func cleanLabel(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

type shortField struct {
	name  string
	value *string
}

func (r *Record) short() []shortField {
	return []shortField{{"id", &r.ID}, {"site", &r.Site}, {"region", &r.Region}, {"node", &r.Node}, {"namespace", &r.Namespace},
		{"pod", &r.Pod}, {"container", &r.Container}, {"unit", &r.Unit}, {"stream", &r.Stream}, {"severity", &r.Severity}}
}

// Day is the start of t's day in UTC, the unit in which records are filed and deleted.
func Day(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }
