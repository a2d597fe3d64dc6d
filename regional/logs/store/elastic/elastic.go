// Package elastic is the log store of a region on an Elasticsearch cluster, behind
// store.Store: one index a tenant and day, made from a template that this package
// puts, deleted whole when the retention is over. Clusters of other regions that are
// joined by cross-cluster search are asked in the same query.
//
// It uses only what every Elasticsearch 8 has: no index lifecycle management, data
// streams, ingest pipelines or scripts. It never sends a user's text to Elasticsearch's
// own query parser: package logquery reads it, and translate.go writes the query.
package elastic

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/elastic/go-elasticsearch/v8"
	"github.com/elastic/go-elasticsearch/v8/esapi"
	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/internal/logquery"
	"muster.dev/muster/regional/logs/store"
	"muster.dev/muster/regional/logs/store/internal/stamp"
)

// DefaultPrefix of index names: muster-logs-TENANT-2026.11.21.
const DefaultPrefix = "muster-logs"

// Options of a Store. URLs is required; the zero value of the rest is the default.
type Options struct {
	URLs         []string // of the cluster's nodes
	Username     string   // basic authentication, or
	Password     string
	APIKey       string      // an encoded API key
	TLS          *tls.Config // for https; nil: the system's certificates
	Prefix       string      // of index names; default DefaultPrefix
	Replicas     int         // of each index; default 0, right for a cluster of one node
	Shards       int         // of each index; default 1
	Retention    time.Duration
	Future       time.Duration // how far ahead a record's clock may be; default 24 h
	MaxQueryTime time.Duration // default 10 s
	WriteTimeout time.Duration // of one bulk request; default 60 s
	// Writer is this process's name among those that write to the cluster with the same
	// prefix; it stays the same over restarts. Default: a random one.
	Writer string
	// Clusters are those joined to this one: its name in cluster.remote.NAME → the region it holds.
	Clusters   map[string]string
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
}

func (o *Options) defaults() error {
	if len(o.URLs) == 0 {
		return errors.New("no URL of Elasticsearch is set")
	}
	for _, u := range o.URLs {
		if p, err := url.Parse(u); err != nil || p.Host == "" || p.Scheme != "http" && p.Scheme != "https" {
			return fmt.Errorf("URL of Elasticsearch %q: write it as https://host:9200", u)
		}
	}
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&o.Retention, 7*24*time.Hour)
	set(&o.Future, 24*time.Hour)
	set(&o.MaxQueryTime, 10*time.Second)
	set(&o.WriteTimeout, time.Minute)
	if o.Retention < 24*time.Hour {
		return fmt.Errorf("the retention of the log store is %s: records are deleted by days, so it must be 24h or more", o.Retention)
	}
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if strings.Trim(o.Prefix, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.HasPrefix(o.Prefix, "-") {
		return fmt.Errorf("index prefix %q: lower-case letters, digits and hyphens only", o.Prefix)
	}
	if o.Shards == 0 {
		o.Shards = 1
	}
	if o.Shards < 0 || o.Replicas < 0 {
		return fmt.Errorf("%d shards, %d replicas: neither can be negative", o.Shards, o.Replicas)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return nil
}

// Store is a store.Store on Elasticsearch.
type Store struct {
	opts    Options
	window  store.Window
	clock   *stamp.Clock
	client  *elasticsearch.Client
	http    *http.Transport
	records *prometheus.CounterVec
	deleted prometheus.Counter

	ctx      context.Context
	cancel   context.CancelFunc
	loops    sync.WaitGroup
	setup    sync.Mutex
	template bool // put by this process
	writers  *writers
	writing  sync.WaitGroup // calls of Write
}

var _ store.Store = (*Store)(nil)

// Open makes a Store. It does not wait for Elasticsearch: until that answers, Ready
// says why, and Write returns errors to be retried.
func Open(opts Options) (*Store, error) {
	if err := opts.defaults(); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = opts.TLS
	transport.MaxIdleConnsPerHost = 16
	client, err := elasticsearch.NewClient(elasticsearch.Config{
		Addresses: opts.URLs, Username: opts.Username, Password: opts.Password, APIKey: opts.APIKey,
		Transport: transport,
		// The callers queue on disk and retry by themselves, with the reason in their hands.
		DisableRetry: true,
	})
	if err != nil {
		return nil, fmt.Errorf("elasticsearch client: %w", err)
	}
	s := &Store{
		opts:   opts,
		window: store.Window{Retention: opts.Retention, Future: opts.Future},
		clock:  stamp.New(opts.Now, 0), writers: newWriters(opts.Writer),
		client: client, http: transport,
		records: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_logs_store_records_total", Help: "Records handed to the log store, by what became of them."}, []string{"result"}),
		deleted: prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_logs_store_deleted_indices_total", Help: "Indices deleted because of their age."}),
	}
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(s.records, s.deleted)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.loops.Go(s.retentionLoop)
	s.loops.Go(s.publishLoop)
	return s, nil
}

// Close ends what is going on and waits for it.
func (s *Store) Close() error {
	s.cancel()
	s.loops.Wait()
	s.writing.Wait()
	s.leave()
	if s.opts.Registerer != nil {
		s.opts.Registerer.Unregister(s.records)
		s.opts.Registerer.Unregister(s.deleted)
	}
	s.http.CloseIdleConnections()
	return nil
}

// Ready says whether the cluster takes records: it answers, is not red, and has the template.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.ensureTemplate(ctx); err != nil {
		return err
	}
	var health struct {
		Status string `json:"status"`
	}
	if err := s.do(ctx, esapi.ClusterHealthRequest{}, &health); err != nil {
		return fmt.Errorf("elasticsearch health: %w", err)
	}
	if health.Status == "red" {
		return errors.New("elasticsearch: the cluster is red: some of its shards are on no node")
	}
	return nil
}

// Refresh makes all that was written findable at once, instead of within a second.
func (s *Store) Refresh(ctx context.Context) error {
	return s.do(ctx, esapi.IndicesRefreshRequest{Index: []string{s.opts.Prefix + "-*"}}, nil)
}

// indexName of a record. Hyphens in the tenant's name become underscores, which no tenant's name
// has: so no tenant's pattern matches another's indices (of "a" and "a-b"), and
// no two tenants share one.
func (s *Store) indexName(tenant string, t time.Time) string {
	return s.tenantPrefix(tenant) + t.UTC().Format(dayFormat)
}

func (s *Store) tenantPrefix(tenant string) string {
	return s.opts.Prefix + "-" + strings.ReplaceAll(tenant, "-", "_") + "-"
}

const dayFormat = "2006.01.02"

// parseIndexName returns the day of an index of ours.
func (s *Store) parseIndexName(name string) (day time.Time, ok bool) {
	rest, ok := strings.CutPrefix(name, s.opts.Prefix+"-")
	if !ok {
		return day, false
	}
	tenant, date, ok := strings.Cut(rest, "-")
	if !ok || store.CheckTenant(strings.ReplaceAll(tenant, "_", "-")) != nil {
		return day, false
	}
	day, err := time.Parse(dayFormat, date)
	return day, err == nil
}

// ensureTemplate puts the index template once a process, before the first record.
func (s *Store) ensureTemplate(ctx context.Context) error {
	s.setup.Lock()
	defer s.setup.Unlock()
	if s.template {
		return nil
	}
	body, err := json.Marshal(s.indexTemplate())
	if err != nil {
		return err
	}
	if err := s.do(ctx, esapi.IndicesPutIndexTemplateRequest{Name: s.opts.Prefix, Body: bytes.NewReader(body)}, nil); err != nil {
		return fmt.Errorf("elasticsearch: put the index template %s: %w", s.opts.Prefix, err)
	}
	s.template = true
	return nil
}

func (s *Store) indexTemplate() map[string]any {
	type m = map[string]any
	props := m{}
	put := func(field string, mapping m) {
		at := props
		parts := strings.Split(field, ".")
		for _, p := range parts[:len(parts)-1] {
			if at[p] == nil {
				at[p] = m{"properties": m{}}
			}
			at = at[p].(m)["properties"].(m)
		}
		at[parts[len(parts)-1]] = mapping
	}
	keyword := m{"type": "keyword"}
	for _, f := range []string{logquery.FieldSeverity, logquery.FieldStream, logquery.FieldID, logquery.FieldNode, logquery.FieldNamespace, logquery.FieldPod,
		logquery.FieldContainer, logquery.FieldUnit, logquery.FieldTenant, logquery.FieldSite, logquery.FieldRegion} {
		put(f, keyword)
	}
	for alias, field := range logquery.Aliases() {
		put(alias, m{"type": "alias", "path": field})
	}
	put(logquery.FieldTimestamp, m{"type": "date_nanos"})
	put(logquery.FieldIngested, m{"type": "date_nanos"})
	put(logquery.FieldMessage, m{"type": "text", "analyzer": "standard", "norms": false})
	// One field however many labels there are: a site can't make the mapping grow.
	put(logquery.FieldLabels, m{"type": "flattened"})
	return m{
		"index_patterns": []string{s.opts.Prefix + "-*"},
		"priority":       500,
		"_meta":          m{"description": "Muster's log records. Put again at each start of a regional."},
		"template": m{
			"settings": m{"index": m{
				"number_of_shards": s.opts.Shards, "number_of_replicas": s.opts.Replicas,
				"refresh_interval": "1s", "codec": "best_compression",
				"max_result_window": store.MaxLimit + 1,
			}},
			// What is not named here is kept in _source and not indexed.
			"mappings": m{"dynamic": false, "properties": props},
		},
	}
}

// Error is an answer of Elasticsearch that is no success.
type Error struct {
	Status int
	Type   string
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("elasticsearch answered %d %s: %s", e.Status, e.Type, e.Reason)
}

// do sends a request and decodes the answer into out, if there is one.
func (s *Store) do(ctx context.Context, req interface {
	Do(ctx context.Context, transport esapi.Transport) (*esapi.Response, error)
}, out any) error {
	resp, err := req.Do(ctx, s.client)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.IsError() {
		return decodeError(resp)
	}
	if out == nil {
		_, err := io.Copy(io.Discard, resp.Body)
		return err
	}
	dec := json.NewDecoder(resp.Body)
	dec.UseNumber() // sort values are nanoseconds: more than a float holds
	return dec.Decode(out)
}

func decodeError(resp *esapi.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var body struct {
		Error json.RawMessage `json:"error"`
	}
	var cause cause
	if json.Unmarshal(data, &body) != nil || json.Unmarshal(body.Error, &cause) != nil {
		return &Error{Status: resp.StatusCode, Reason: strings.TrimSpace(string(data[:min(len(data), 500)]))}
	}
	return &Error{Status: resp.StatusCode, Type: cause.Type, Reason: cause.text()}
}

// cause is Elasticsearch's way of telling what went wrong.
type cause struct {
	Type     string  `json:"type"`
	Reason   string  `json:"reason"`
	CausedBy *cause  `json:"caused_by"`
	Root     []cause `json:"root_cause"`
}

func (c cause) text() string {
	s := c.Reason
	if len(c.Root) > 0 && c.Root[0].Reason != s {
		s += ": " + c.Root[0].Reason
	}
	for d, n := c.CausedBy, 0; d != nil && n < 4; d, n = d.CausedBy, n+1 {
		s += ": " + d.Reason
	}
	return s
}
