package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/forward"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/remotewrite"
)

const (
	// batchSeries is the number of series in one write.
	batchSeries = 5000
	// The scores of a tenant wait this long for Cortex, in at most so many bytes, oldest
	// dropped first.
	queueBytes = 64 << 20
	queueAge   = 48 * time.Hour
	// Nobody is told that a score is kept, so that one sync serves the scores of a while.
	queueSync = time.Second
	// saveEvery is how often the state is saved when no colour changed.
	saveEvery = 4
)

// writer turns views into series, for Cortex through a queue on disk for each tenant, and for each
// regional about its own sites, and saves the engine's state. It works beside the
// ticks; if it can't keep up, views are left out.
type writer struct {
	e      *Engine
	views  chan *View
	queues *forward.Queues // nil: no store to write to

	// What follows belongs to the goroutine of run.
	sites    map[fleet.SiteID]*siteSeries
	virtual  map[[2]string]*virtualSeries
	unsaved  int
	colours  map[fleet.SiteID]fleet.Colour
	complain *obs.Every
	out      out
	series   []remotewrite.Series
	samples  []remotewrite.Sample
}

// siteSeries are the series of one site as they were last written.
type siteSeries struct {
	region string
	home   int32
	// score, colour, the four dimensions
	labels [6]labels.Labels
	// live says which of them had a value.
	live    [6]bool
	members []memberSeries
	mark    uint64
}

type memberSeries struct {
	key    string
	labels labels.Labels
}

type virtualSeries struct {
	labels [3]labels.Labels // mean, p10, worst
	live   bool
	homes  []int32 // regionals that it was written to
	mark   uint64
}

var stats = [3]string{"mean", "p10", "worst"}

func newWriter(e *Engine) (*writer, error) {
	w := &writer{e: e, views: make(chan *View, 1), sites: map[fleet.SiteID]*siteSeries{}, virtual: map[[2]string]*virtualSeries{}, colours: map[fleet.SiteID]fleet.Colour{}, complain: obs.NewEvery(time.Minute), out: out{tenants: map[string]*batch{}, regionals: map[int32]*batch{}}}
	if e.opts.StoreWriteURL == "" {
		return w, nil
	}
	var err error
	w.queues, err = forward.Open(forward.Options{Dir: filepath.Join(e.opts.Dir, "forward"), URL: e.opts.StoreWriteURL, Client: e.opts.Client, MaxBytes: queueBytes, MaxAge: queueAge, SyncInterval: queueSync,
		UserAgent: "muster-health", Logger: e.log, Registerer: e.opts.Registerer})
	if err != nil {
		return nil, fmt.Errorf("health engine: towards the store: %w", err)
	}
	return w, nil
}

// take hands over a view without waiting. The one before, if it was not begun, is
// left out.
func (w *writer) take(v *View) {
	select {
	case <-w.views:
		w.e.metrics.skipped.Inc()
	default:
	}
	w.views <- v // there is room: nobody else sends
}

func (w *writer) run(ctx context.Context) {
	var last *View
loop:
	for {
		select {
		case <-ctx.Done():
			break loop
		case v := <-w.views:
			last = v
			w.write(ctx, v)
			w.unsaved++
			if w.recoloured(v) || w.unsaved >= saveEvery {
				w.save(v)
			}
		}
	}
	select {
	case last = <-w.views: // shown already
	default:
	}
	if last != nil {
		w.save(last)
	}
	if w.queues != nil {
		if err := w.queues.Close(); err != nil {
			w.e.log.Warn("queues towards the store can't be closed", "err", err)
		}
	}
}

// recoloured says whether a site has another colour than when the state was saved.
func (w *writer) recoloured(v *View) bool {
	changed := len(w.colours) != len(v.Sites)
	for _, s := range v.Sites {
		if w.colours[s.ID] != s.Colour() {
			changed = true
			break
		}
	}
	return changed
}

func (w *writer) save(v *View) {
	if err := w.e.save(v, w.sites, w.virtual); err != nil {
		w.e.metrics.saveFailed.Inc()
		w.warn("save", "the health state can't be saved; a restart would lose it", err)
		return
	}
	w.e.metrics.saved.Inc()
	w.unsaved = 0
	clear(w.colours)
	for _, s := range v.Sites {
		w.colours[s.ID] = s.Colour()
	}
}

// warn logs once a minute a kind.
func (w *writer) warn(kind, msg string, err error) {
	if _, ok := w.complain.Pass(kind, w.e.now()); ok {
		w.e.log.Warn(msg, "to", kind, "err", err)
	}
}

// batch collects what goes to one destination.
type batch struct {
	labels []labels.Labels
	values []float64
}

func (b *batch) add(l labels.Labels, v float64) {
	b.labels = append(b.labels, l)
	b.values = append(b.values, v)
}

// parts yields the batch as series, in pieces that are valid until the next one.
func (w *writer) parts(b *batch, t int64) iter.Seq[[]remotewrite.Series] {
	return func(yield func([]remotewrite.Series) bool) {
		for from := 0; from < len(b.labels); from += batchSeries {
			n := min(batchSeries, len(b.labels)-from)
			w.series, w.samples = slices.Grow(w.series[:0], n), slices.Grow(w.samples[:0], n)
			for i := range n {
				w.samples = append(w.samples, remotewrite.Sample{T: t, V: b.values[from+i]})
				w.series = append(w.series, remotewrite.Series{Labels: b.labels[from+i], Samples: w.samples[i : i+1 : i+1]})
			}
			if !yield(w.series) {
				return
			}
		}
	}
}

// out is what one view writes.
type out struct {
	t         int64
	tenants   map[string]*batch
	regionals map[int32]*batch
}

func (o *out) add(tenant string, homes []int32, l labels.Labels, v float64) {
	b := o.tenants[tenant]
	if b == nil {
		b = &batch{}
		o.tenants[tenant] = b
	}
	b.add(l, v)
	for _, h := range homes {
		o.at(h, l, v)
	}
}

func (o *out) at(home int32, l labels.Labels, v float64) {
	if home < 0 {
		return
	}
	b := o.regionals[home]
	if b == nil {
		b = &batch{}
		o.regionals[home] = b
	}
	b.add(l, v)
}

// reset empties the batches and keeps their room, but not for tenants that were not
// written to.
func (o *out) reset() {
	for t, b := range o.tenants {
		if len(b.labels) == 0 {
			delete(o.tenants, t)
		}
		b.reset()
	}
	for _, b := range o.regionals {
		b.reset()
	}
}

func (b *batch) reset() {
	clear(b.labels)
	b.labels, b.values = b.labels[:0], b.values[:0]
}

var stale = math.Float64frombits(value.StaleNaN)

func (w *writer) write(ctx context.Context, v *View) {
	o := &w.out
	o.t = v.AsOf.UnixMilli()
	for _, s := range v.Sites {
		if s.State != nil {
			w.site(o, v, s)
		}
	}
	for id, x := range w.sites {
		if x.mark != v.Version { // gone, or no longer evaluated
			end(o, id, x)
			delete(w.sites, id)
		}
	}
	for _, vs := range v.VirtualSites {
		w.virtualSite(o, v, vs)
	}
	for key, x := range w.virtual {
		if x.mark != v.Version {
			if x.live {
				for _, l := range x.labels {
					o.add(key[0], x.homes, l, stale)
				}
			}
			delete(w.virtual, key)
		}
	}
	w.send(ctx, o)
}

func (w *writer) site(o *out, v *View, s *Site) {
	x := w.sites[s.ID]
	if x != nil && x.region != s.Region {
		end(o, s.ID, x)
		x = nil
	}
	if x == nil {
		x = &siteSeries{region: s.Region, home: s.home, labels: scoreLabels(s.ID, s.Region)}
		w.sites[s.ID] = x
	}
	if x.home != s.home { // the former regional must not keep the last word
		for i, l := range x.labels {
			if x.live[i] {
				o.at(x.home, l, stale)
			}
		}
		for i := range x.members {
			o.at(x.home, x.members[i].labels, stale)
		}
		x.home = s.home
	}
	x.mark = v.Version
	homes := []int32{x.home}
	put := func(i int, value float64, known bool) {
		switch {
		case known:
			o.add(s.ID.Tenant, homes, x.labels[i], value)
		case x.live[i]:
			o.add(s.ID.Tenant, homes, x.labels[i], stale)
		}
		x.live[i] = known
	}
	put(0, s.State.Score, s.State.Known)
	put(1, s.State.Colour.Number(), true)
	for d := range s.State.Dimensions {
		put(2+d, s.State.Dimensions[d].Score, s.State.Dimensions[d].Known)
	}
	w.membership(o, s, x, homes)
}

// membership writes 1 for each virtual site of the site; both lists are sorted.
func (w *writer) membership(o *out, s *Site, x *siteSeries, homes []int32) {
	same := len(x.members) == len(s.VirtualSites)
	for i := 0; same && i < len(x.members); i++ {
		same = x.members[i].key == s.VirtualSites[i]
	}
	if !same {
		old := x.members
		x.members = make([]memberSeries, 0, len(s.VirtualSites))
		for _, key := range s.VirtualSites {
			x.members = append(x.members, memberSeries{strings.Clone(key), memberLabels(s.ID, key)})
		}
		for i := range old {
			if !slices.Contains(s.VirtualSites, old[i].key) {
				o.add(s.ID.Tenant, homes, old[i].labels, stale)
			}
		}
	}
	for i := range x.members {
		o.add(s.ID.Tenant, homes, x.members[i].labels, 1)
	}
}

// end marks all series of a site as over.
func end(o *out, id fleet.SiteID, x *siteSeries) {
	homes := []int32{x.home}
	for i, l := range x.labels {
		if x.live[i] {
			o.add(id.Tenant, homes, l, stale)
		}
	}
	for i := range x.members {
		o.add(id.Tenant, homes, x.members[i].labels, stale)
	}
}

func (w *writer) virtualSite(o *out, v *View, vs *VirtualSite) {
	key := [2]string{vs.Tenant, vs.Key()}
	x := w.virtual[key]
	if x == nil {
		x = &virtualSeries{labels: virtualLabels(vs.Tenant, vs.Key())}
		w.virtual[key] = x
	}
	x.mark = v.Version
	var homes []int32
	for _, i := range vs.Members {
		if h := v.Sites[i].home; h >= 0 && !slices.Contains(homes, h) {
			homes = append(homes, h)
			if len(homes) == len(w.e.opts.Regionals) {
				break
			}
		}
	}
	for _, h := range x.homes {
		if x.live && !slices.Contains(homes, h) {
			for _, l := range x.labels {
				o.at(h, l, stale)
			}
		}
	}
	switch {
	case vs.Known:
		for i, value := range [3]float64{vs.Mean, vs.P10, vs.Worst} {
			o.add(vs.Tenant, homes, x.labels[i], value)
		}
	case x.live:
		for _, l := range x.labels {
			o.add(vs.Tenant, homes, l, stale)
		}
	}
	x.live, x.homes = vs.Known, homes
}

func scoreLabels(id fleet.SiteID, region string) (out [6]labels.Labels) {
	b := labels.NewBuilder(labels.EmptyLabels())
	b.Set(fleet.SeriesTenant, id.Tenant).Set(fleet.SeriesSite, id.Name).Set(fleet.SeriesRegion, region) // an empty label is none
	out[0] = b.Set(labels.MetricName, fleet.MetricSiteScore).Labels()
	out[1] = b.Set(labels.MetricName, fleet.MetricSiteColour).Labels()
	b.Set(labels.MetricName, fleet.MetricDimensionScore)
	for d, name := range fleet.Dimensions {
		out[2+d] = b.Set("dimension", string(name)).Labels()
	}
	return out
}

func memberLabels(id fleet.SiteID, key string) labels.Labels {
	return labels.FromStrings(labels.MetricName, fleet.MetricVirtualSite, fleet.SeriesSite, id.Name, fleet.SeriesTenant, id.Tenant, "virtual_site", key)
}

func virtualLabels(tenant, key string) (out [3]labels.Labels) {
	for i, stat := range stats {
		out[i] = labels.FromStrings(labels.MetricName, fleet.MetricVirtualSiteScore, "stat", stat, fleet.SeriesTenant, tenant, "virtual_site", key)
	}
	return out
}

func (w *writer) send(ctx context.Context, o *out) {
	defer o.reset()
	if w.queues != nil {
		for tenant, b := range o.tenants {
			for part := range w.parts(b, o.t) {
				if err := w.queue(tenant, part); err != nil {
					w.e.metrics.writeFailed.WithLabelValues("store").Inc()
					w.warn("store for "+tenant, "scores can't be queued for the store", err)
					break
				}
				w.e.metrics.written.WithLabelValues("store").Add(float64(len(part)))
			}
		}
	}
	for home, b := range o.regionals {
		r := w.e.opts.Regionals[home]
		for part := range w.parts(b, o.t) {
			if err := w.post(ctx, r, part); err != nil {
				if ctx.Err() != nil {
					return
				}
				w.e.metrics.writeFailed.WithLabelValues(r.Name).Inc()
				w.warn(r.Name, "scores can't be written into the regional; its rules that use them see gaps", err)
				break
			}
			w.e.metrics.written.WithLabelValues(r.Name).Add(float64(len(part)))
		}
	}
}

// queue keeps scores of a tenant for the store, unless the disk is nearly full of those of this tenant.
// Nobody could send them again: the store has a gap, and the regionals and the page have them.
func (w *writer) queue(tenant string, series []remotewrite.Series) error {
	if err := w.e.opts.Disk.Admit(tenant); err != nil {
		return err
	}
	if err := w.queues.Append(tenant, series); err != nil {
		return err
	}
	w.e.opts.Disk.Count(tenant, len(series))
	return nil
}

// post writes into a regional's edge engine. A failed write is not repeated: the
// next tick's scores are worth more, and Cortex has the history.
func (w *writer) post(ctx context.Context, r Regional, series []remotewrite.Series) error {
	ctx, cancel := context.WithTimeout(ctx, w.e.opts.QueryTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL+"/edge/api/v1/write", bytes.NewReader(remotewrite.EncodeV2(series)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request")
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("X-Prometheus-Remote-Write-Version", "2.0.0")
	req.Header.Set("User-Agent", "muster-health")
	resp, err := w.e.opts.Client.Do(req)
	if err != nil {
		return plainURLError(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 500))
	if resp.StatusCode/100 != 2 {
		return errors.Join(fmt.Errorf("HTTP status %d: %s", resp.StatusCode, strings.TrimSpace(string(text))), err)
	}
	return nil
}
