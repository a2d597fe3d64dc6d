// Package logs searches and follows the log records of all regions: it asks every
// regional at once, merges what they answer, and names those that did not answer
// instead of failing or hanging.
//
// It keeps no records and decides nothing about rights: the tenant comes from the caller, as an
// argument and never out of the query, and goes to the regionals in a header. A hit of
// another tenant makes a region's whole answer garbage. The console calls it through its
// own small interface (Search, Tail); cmd/internal/console connects them.
package logs

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"

	"muster.dev/muster/internal/fairshare"
)

const (
	pathSearch = "/api/v1/logs/search"
	pathTail   = "/api/v1/logs/tail"
)

// Regional is where one region's records are asked for.
type Regional struct {
	Name string // the region's name in answers
	URL  string // of the regional's private query listener, such as http://127.0.0.1:9120
	// JoinedTo are the regionals whose Elasticsearch clusters this one's cluster searches
	// too: it is then asked for all of them, and they are asked themselves only
	// for what it can't give.
	JoinedTo []string
	// Spares are the regionals that keep their records in the very same store. One that
	// answers speaks for all of them: the next is asked only if it does not.
	Spares []Spare
}

// Spare is another way to a Regional's store.
type Spare struct {
	Name, URL string
}

// names are those of all regionals that the answer, or its absence, is about.
func (r Regional) names() []string {
	out := []string{r.Name}
	for _, s := range r.Spares {
		out = append(out, s.Name)
	}
	return out
}

// ways are the regional and its spares, the one to ask first in front.
func (r Regional) ways() []Regional {
	out := []Regional{r}
	for _, s := range r.Spares {
		way := r
		way.URL = s.URL
		out = append(out, way)
	}
	return out
}

// Options of a Client. Regionals is needed; zero limits get defaults.
type Options struct {
	Regionals []Regional
	// Client sends the requests; nil: one of its own, without a proxy. Its Timeout must be
	// zero: it would cut the tails.
	Client *http.Client
	// PerRegionTimeout bounds one regional's answer to a search; default 10 s. Where
	// regionals are joined, a search may take twice as long.
	PerRegionTimeout time.Duration
	MaxSearches      int           // at once, beyond which 429; default 32. One tenant gets half at most
	MaxTails         int           // at once, beyond which 429; default 256. One tenant gets half at most
	MaxAnswerBytes   int64         // of one regional's answer; default 32 MiB
	MaxPageBytes     int           // of the records of one merged page; it is cut there; default 16 MiB
	TailIdle         time.Duration // without a sign of life a regional's tail is given up; default 20 s
	KeepAlive        time.Duration // between comments on a quiet tail; default 15 s
	Logger           *slog.Logger
	Registerer       prometheus.Registerer
	Now              func() time.Time // default time.Now
}

func (o *Options) defaults() error {
	if len(o.Regionals) == 0 {
		return errors.New("log fan-out: Regionals is empty")
	}
	o.Regionals = slices.Clone(o.Regionals)
	names := map[string]bool{}
	check := func(at, name string, address *string) error {
		if name == "" || names[name] {
			return fmt.Errorf("log fan-out: %s.Name: %q is empty or there twice", at, name)
		}
		names[name] = true
		u, err := url.Parse(*address)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" {
			return fmt.Errorf("log fan-out: %s.URL: %q: want a URL such as http://127.0.0.1:9120", at, *address)
		}
		*address = strings.TrimRight(*address, "/")
		return nil
	}
	spares := map[string]bool{}
	for i := range o.Regionals {
		r := &o.Regionals[i]
		r.Spares = slices.Clone(r.Spares)
		at := fmt.Sprintf("Regionals[%d]", i)
		if err := check(at, r.Name, &r.URL); err != nil {
			return err
		}
		for j := range r.Spares {
			if err := check(fmt.Sprintf("%s.Spares[%d]", at, j), r.Spares[j].Name, &r.Spares[j].URL); err != nil {
				return err
			}
			spares[r.Spares[j].Name] = true
		}
	}
	for i, r := range o.Regionals {
		for _, j := range r.JoinedTo {
			if !names[j] || spares[j] || j == r.Name {
				return fmt.Errorf("log fan-out: Regionals[%d].JoinedTo: %q is not the name of another regional", i, j)
			}
		}
	}
	if o.Client == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy = nil // the regionals are ours: never by way of a proxy from the environment
		t.MaxIdleConnsPerHost = 32
		o.Client = &http.Client{Transport: t}
	}
	c := *o.Client
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	o.Client = &c
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.PerRegionTimeout = cmp.Or(max(o.PerRegionTimeout, 0), 10*time.Second)
	o.MaxSearches = cmp.Or(max(o.MaxSearches, 0), 32)
	o.MaxTails = cmp.Or(max(o.MaxTails, 0), 256)
	o.MaxAnswerBytes = cmp.Or(max(o.MaxAnswerBytes, 0), 32<<20)
	o.MaxPageBytes = cmp.Or(max(o.MaxPageBytes, 0), 16<<20)
	o.TailIdle = cmp.Or(max(o.TailIdle, 0), 20*time.Second)
	o.KeepAlive = cmp.Or(max(o.KeepAlive, 0), 15*time.Second)
	return nil
}

// Client asks the regionals. Safe for concurrent use.
type Client struct {
	opts     Options
	log      *slog.Logger
	complain rate.Sometimes // a region that is down must not flood the log
	searches *fairshare.Shares
	tails    *fairshare.Shares

	asked *prometheus.CounterVec   // region, kind, result: ok, late, timeout, unreachable, refused, garbage
	took  *prometheus.HistogramVec // region
	part  prometheus.Counter
	open  prometheus.Gauge
}

// New returns a client that has not talked to any regional yet.
func New(o Options) (*Client, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	f := promauto.With(o.Registerer)
	return &Client{
		opts: o, log: o.Logger, complain: rate.Sometimes{First: 1, Interval: 30 * time.Second},
		searches: fairshare.NewShares(o.MaxSearches), tails: fairshare.NewShares(o.MaxTails),
		asked: f.NewCounterVec(prometheus.CounterOpts{Name: "muster_logs_fanout_requests_total", Help: "Requests to regionals for logs, by region, kind (search, tail) and result."}, []string{"region", "kind", "result"}),
		took: f.NewHistogramVec(prometheus.HistogramOpts{Name: "muster_logs_fanout_search_duration_seconds", Help: "Time that a regional took for a log search.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 12)}, []string{"region"}),
		part: f.NewCounter(prometheus.CounterOpts{Name: "muster_logs_fanout_partial_total", Help: "Log searches that were answered without one region or more."}),
		open: f.NewGauge(prometheus.GaugeOpts{Name: "muster_logs_fanout_tails", Help: "Open live tails over all regions."}),
	}, nil
}
