package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esutil"

	"muster.dev/muster/regional/logs/store"
)

// flushBytes is the size of one bulk request.
const flushBytes = 4 << 20

// Write stores records with the bulk API; see store.Store. Each is created under its own ID,
// so one that is there already is a duplicate and not written again.
func (s *Store) Write(ctx context.Context, records []store.Record) (store.Result, error) {
	// Without the template Elasticsearch would guess a mapping, for a whole day.
	if err := s.ensureTemplate(ctx); err != nil {
		return store.Result{}, err
	}
	// A little longer than Elasticsearch's own limit, so that its answer comes first.
	ctx, stop := context.WithTimeout(ctx, s.opts.WriteTimeout+5*time.Second)
	defer stop()
	defer context.AfterFunc(s.ctx, stop)()

	s.writing.Add(1)
	defer s.writing.Done()
	if err := s.mayWrite(ctx); err != nil {
		return store.Result{}, err
	}
	stamp, done := s.clock.Begin()
	ingested := time.Unix(0, stamp).UTC()
	w := &writing{settled: make([]bool, len(records))}
	// What the indexer reports as failed requests, the records that no answer named have in common.
	workers, flush := sizes(records)
	bi, err := esutil.NewBulkIndexer(esutil.BulkIndexerConfig{
		Client: s.client, NumWorkers: workers, FlushBytes: flush, FlushInterval: time.Hour, Timeout: s.opts.WriteTimeout,
		OnFlushStart: func(context.Context) context.Context { return ctx }, // its own is never cancelled
		OnError:      func(_ context.Context, err error) { w.requestFailed(err) },
	})
	if err != nil {
		done()
		return store.Result{}, fmt.Errorf("bulk indexer: %w", err)
	}
	now := s.opts.Now()
	for i, r := range records {
		if reason := s.window.Check(&r, now); reason != "" {
			w.settle(i, func(res *store.Result) { res.Dead = append(res.Dead, store.Failure{Index: i, Reason: reason}) })
			continue
		}
		r.Ingested = ingested
		body, err := encode(&r)
		if err != nil {
			w.settle(i, func(res *store.Result) {
				res.Dead = append(res.Dead, store.Failure{Index: i, Reason: "encode: " + err.Error()})
			})
			continue
		}
		err = bi.Add(ctx, esutil.BulkIndexerItem{
			Index: s.indexName(r.Tenant, r.Timestamp), Action: "create", DocumentID: r.ID, Body: bytes.NewReader(body),
			OnSuccess: func(context.Context, esutil.BulkIndexerItem, esutil.BulkIndexerResponseItem) {
				w.settle(i, func(res *store.Result) { res.Stored++ })
			},
			OnFailure: func(_ context.Context, _ esutil.BulkIndexerItem, item esutil.BulkIndexerResponseItem, err error) {
				w.itemFailed(i, item, err)
			},
		})
		if err != nil {
			w.requestFailed(err)
			break
		}
	}
	if err := bi.Close(ctx); err != nil {
		w.requestFailed(err)
	}
	if w.doubt() {
		// The request may be at work still; its records would appear below a horizon.
		time.AfterFunc(doubtFor, done)
	} else {
		done()
	}
	res, err := w.result()
	s.count(res)
	return res, err
}

// sizes spares a small Write the buffers of a large one.
func sizes(records []store.Record) (workers, flush int) {
	total := 0
	for i := range records {
		total += len(records[i].Message) + 1024
	}
	if total <= flushBytes {
		return 1, max(total, 4096)
	}
	return 2, flushBytes
}

func (s *Store) count(r store.Result) {
	s.records.WithLabelValues("stored").Add(float64(r.Stored))
	s.records.WithLabelValues("duplicate").Add(float64(r.Duplicates))
	s.records.WithLabelValues("retry").Add(float64(len(r.Retry)))
	s.records.WithLabelValues("dead").Add(float64(len(r.Dead)))
}

// writing gathers what became of each record of one Write.
type writing struct {
	mu      sync.Mutex
	settled []bool
	res     store.Result
	err     error // of a whole request
}

func (w *writing) settle(i int, f func(*store.Result)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.settled[i] {
		w.settled[i] = true
		f(&w.res)
	}
}

func (w *writing) requestFailed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// doubt says whether a request failed as a whole: it may have arrived all the same.
func (w *writing) doubt() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

func (w *writing) itemFailed(i int, item esutil.BulkIndexerResponseItem, err error) {
	reason := item.Error.Type + ": " + item.Error.Reason
	if item.Error.Cause.Reason != "" {
		reason += ": " + item.Error.Cause.Reason
	}
	if err != nil {
		reason = err.Error()
	}
	w.settle(i, func(res *store.Result) {
		switch {
		case item.Status == 409:
			res.Duplicates++
		case err == nil && dead(item.Status, item.Error.Type, reason):
			res.Dead = append(res.Dead, store.Failure{Index: i, Reason: strings.TrimSpace(reason)})
		default:
			res.Retry = append(res.Retry, store.Failure{Index: i, Reason: strings.TrimSpace(reason)})
		}
	})
}

// dead says whether trying again is of no use: the record itself is refused. A 4xx that
// speaks of the index or of us (blocked, being closed, not allowed to write) passes
// when an operator mends it, and the record must wait for that.
func dead(status int, errType, reason string) bool {
	if status != 400 {
		return false
	}
	switch errType {
	case "document_parsing_exception", "mapper_parsing_exception", "strict_dynamic_mapping_exception", "parsing_exception", "x_content_parse_exception":
		return true
	case "illegal_argument_exception":
		// The limit of shards in a cluster comes under this name too.
		return strings.Contains(reason, "immense term")
	}
	return false
}

// result: records that no answer named go again, for the request's reason.
func (w *writing) result() (store.Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	open := 0
	for _, s := range w.settled {
		if !s {
			open++
		}
	}
	if open == 0 {
		return w.res, nil
	}
	reason := "elasticsearch did not answer for this record"
	if w.err != nil {
		reason = w.err.Error()
	}
	if open == len(w.settled) {
		return store.Result{}, fmt.Errorf("elasticsearch: %w", w.err)
	}
	for i, s := range w.settled {
		if !s {
			w.res.Retry = append(w.res.Retry, store.Failure{Index: i, Reason: reason})
		}
	}
	return w.res, nil
}

// document is a record in Elastic Common Schema.
type document struct {
	Timestamp    string            `json:"@timestamp"`
	Message      string            `json:"message"`
	Log          logFields         `json:"log,omitzero"`
	Event        eventFields       `json:"event"`
	Host         named             `json:"host,omitzero"`
	Orchestrator orchestrator      `json:"orchestrator,omitzero"`
	Container    named             `json:"container,omitzero"`
	Systemd      systemd           `json:"systemd,omitzero"`
	Muster       muster            `json:"muster"`
	Labels       map[string]string `json:"labels,omitempty"`
}

type (
	named struct {
		Name string `json:"name,omitempty"`
	}
	logFields struct {
		Level    string `json:"level,omitempty"`
		IOStream string `json:"iostream,omitempty"`
	}
	eventFields struct {
		ID       string `json:"id"`
		Ingested string `json:"ingested"`
	}
	orchestrator struct {
		Namespace string `json:"namespace,omitempty"`
		Resource  named  `json:"resource,omitzero"`
	}
	systemd struct {
		Unit string `json:"unit,omitempty"`
	}
	muster struct {
		Tenant string `json:"tenant"`
		Site   string `json:"site,omitempty"`
		Region string `json:"region,omitempty"`
	}
)

func encode(r *store.Record) ([]byte, error) {
	return json.Marshal(document{
		Timestamp: r.Timestamp.Format(time.RFC3339Nano), Message: r.Message,
		Log:   logFields{r.Severity, r.Stream},
		Event: eventFields{r.ID, r.Ingested.Format(time.RFC3339Nano)},
		Host:  named{r.Node}, Orchestrator: orchestrator{r.Namespace, named{r.Pod}}, Container: named{r.Container},
		Systemd: systemd{r.Unit}, Muster: muster{r.Tenant, r.Site, r.Region}, Labels: r.Labels,
	})
}

func decode(data []byte) (store.Record, error) {
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		return store.Record{}, err
	}
	t, err := time.Parse(time.RFC3339Nano, d.Timestamp)
	if err != nil {
		return store.Record{}, fmt.Errorf("@timestamp: %w", err)
	}
	ingested, _ := time.Parse(time.RFC3339Nano, d.Event.Ingested) // zero if another shipper wrote it
	r := d.record()
	r.Timestamp, r.Ingested = t.UTC(), ingested.UTC()
	return r, nil
}

// record is what a document says, without its times.
func (d *document) record() store.Record {
	return store.Record{
		Tenant: d.Muster.Tenant, Site: d.Muster.Site, Region: d.Muster.Region, Node: d.Host.Name,
		Namespace: d.Orchestrator.Namespace, Pod: d.Orchestrator.Resource.Name, Container: d.Container.Name, Unit: d.Systemd.Unit,
		Stream: d.Log.IOStream, Severity: d.Log.Level, Message: d.Message, Labels: d.Labels, ID: d.Event.ID,
	}
}
