// Package logrules evaluates tenants' LogRules over the log store of a region and
// hands the alerts on. The types of rules and their options are ElastAlert's; each site is
// looked at by itself.
//
// Any number of processes may run over the same State: one at a time owns it, by a
// lease (lease.go), and only the owner evaluates and sends. What a rule knows (how far
// it has read, its windows, when it last alerted, what is still to be sent) is one
// document of the State, written with compare-and-swap before anything is sent. An
// alert waits in that document until the Sink has taken it, so that a crash loses
// none; sent again, it has the same labels and StartsAt, so that it is the same alert.
//
// Time. A rule reads lines in the order in which the store took them in, each once
// and however late, and counts a line at its own time. Lines are counted in steps of a
// twentieth of the rule's timeframe, at least a second (see steps), and what is
// judged at a moment (spike, flatline, min_cardinality, metric_aggregation,
// percentage_match) is judged at the ends of steps, query_delay behind the store's
// clock. What only grows (frequency, max_cardinality) and what looks at lines one by
// one is judged as lines come in; query_delay matters there to change alone, which has to
// see lines in their order.
//
// It does no I/O but through Source, State and Sink. cmd/internal/regional connects it to the
// region's store and to Alertmanager.
package logrules

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/internal/logquery"
	"muster.dev/muster/internal/wire"
)

// Query asks for lines of one tenant that the store took in after After, up to and
// including UpTo, that Text finds, counted by the values of By and by steps of the
// lines' own Timestamp.
type Query struct {
	Tenant string
	Text   string   // as in package logquery; empty: every line
	Sites  []string // only theirs
	After  time.Time
	UpTo   time.Time
	By     []string // fields as the store names them, or labels.KEY; the first is the site
	Step   time.Duration
	Metric string // labels.KEY; empty: none
	Spread bool   // also of the metric
	// Include are fields of each group's newest line.
	Include []string
	// MaxGroups is how many groups the answer may have.
	MaxGroups int
}

// What the store answers to a Query.
type (
	Group  = logquery.Group
	Groups = logquery.Groups
)

// ErrTooMuch is a Query that the store can't answer in the time it allows: ask about a
// shorter stretch.
var ErrTooMuch = errors.New("too many lines at once")

// Source is the log store.
type Source interface {
	// Groups answers a Query; ErrTooMuch.
	Groups(ctx context.Context, q Query) (Groups, error)
	// Now is a time of the store's own clock at or before which no line will appear
	// as taken in any more.
	Now(ctx context.Context) (time.Time, error)
}

// Errors of a State.
var (
	ErrNoState  = errors.New("no such state")
	ErrConflict = errors.New("the state was changed by somebody else")
)

// State keeps small documents, safe against kill -9 once Put returns. Values are
// under 1 MiB, keys under 512 bytes of [A-Za-z0-9_./-].
type State interface {
	// Get returns ErrNoState if there is none.
	Get(ctx context.Context, key string) (value []byte, version string, err error)
	// Put writes over the version given, "" creates; else ErrConflict.
	Put(ctx context.Context, key string, value []byte, version string) (string, error)
	Delete(ctx context.Context, key, version string) error
}

// Sink takes alerts. No error: they are taken over for good.
type Sink interface {
	Send(ctx context.Context, alerts []wire.Alert) error
}

// Site is one of the inventory.
type Site struct {
	Tenant, Name, Region string
	Labels               map[string]string
	VirtualSites         []string // NAMESPACE/NAME, sorted
}

// Defaults of Options.
const (
	DefaultInterval  = 15 * time.Second
	DefaultLeaseTTL  = 30 * time.Second
	DefaultMaxKeys   = 10_000
	DefaultMaxTerms  = 50_000
	DefaultMaxGroups = 50_000
)

// Options of New.
type Options struct {
	Name   string // this regional, for the lease
	Source Source
	State  State
	Sink   Sink
	// Sites are those whose lines are in the store, of all tenants. nil: not known yet,
	// and nothing is evaluated; empty: there are none. It is called from several
	// goroutines.
	Sites       func() []Site
	Interval    time.Duration // between evaluations
	LeaseTTL    time.Duration // after how much silence of its owner another process takes over
	ExternalURL string        // of the console, for links; empty: no links
	// MaxKeys bounds, for each rule and tenant, the values of query_key that are counted
	// apart and the alerts that fire; MaxTerms the values that new_term and
	// cardinality remember; MaxGroups one answer of the Source. A site always has its
	// share of the first two, whatever the others use up.
	MaxKeys, MaxTerms, MaxGroups int
	Concurrency                  int // rules evaluated side by side; 4
	Logger                       *slog.Logger
	Registerer                   prometheus.Registerer
	Now                          func() time.Time
}

func (o *Options) defaults() error {
	switch {
	case o.Name == "":
		return errors.New("log rules: Name is empty")
	case o.Source == nil || o.State == nil || o.Sink == nil || o.Sites == nil:
		return errors.New("log rules: Source, State, Sink and Sites are wanted")
	}
	o.Interval = cmp.Or(max(o.Interval, 0), DefaultInterval)
	o.LeaseTTL = cmp.Or(max(o.LeaseTTL, 0), DefaultLeaseTTL)
	o.MaxKeys = cmp.Or(max(o.MaxKeys, 0), DefaultMaxKeys)
	o.MaxTerms = cmp.Or(max(o.MaxTerms, 0), DefaultMaxTerms)
	o.MaxGroups = cmp.Or(max(o.MaxGroups, 0), DefaultMaxGroups)
	o.Concurrency = cmp.Or(max(o.Concurrency, 0), 4)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return nil
}
