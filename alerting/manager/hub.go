package manager

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/alertmanager/provider"
	"github.com/prometheus/alertmanager/provider/mem"
	"github.com/prometheus/alertmanager/types"
	"github.com/prometheus/common/model"
)

// hub hands each alert on to the shard that it belongs to, and to those that see all. It
// is the callback of Alertmanager's store of alerts, whose own subscribers get all
// alerts, and the slowest of them holds up whoever posts.
//
// It bounds how many alerts a shard has, and how long each is: the store would take any
// number of any size from one tenant, in the memory of all.
type hub struct {
	store *mem.Alerts
	by    string // label
	most  int

	mu      sync.Mutex
	alerts  map[string]map[model.Fingerprint]*types.Alert // by value of the label
	queues  map[string]map[*queue]bool                    // likewise; "": all alerts
	refused int64
}

func newHub(by string, most int) *hub {
	return &hub{by: by, most: most, alerts: map[string]map[model.Fingerprint]*types.Alert{}, queues: map[string]map[*queue]bool{}}
}

func (h *hub) keyOf(a *types.Alert) string {
	if h.by == "" {
		return ""
	}
	return string(a.Labels[model.LabelName(h.by)])
}

func (h *hub) refusals() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refused
}

// PreStore implements mem.AlertStoreCallback.
func (h *hub) PreStore(a *types.Alert, existing bool) error {
	key := h.keyOf(a)
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := sizeOf(a.Labels); n > maxLabels {
		h.refused++
		return fmt.Errorf("an alert of %s %q has labels of %d bytes, want at most %d", h.by, key, n, maxLabels)
	}
	if !existing && key != "" && len(h.alerts[key]) >= h.most {
		h.refused++
		return fmt.Errorf("%s %q has %d alerts, which is the most", h.by, key, h.most)
	}
	a.Annotations = shortened(a.Annotations, maxAnnotations)
	return nil
}

// Of an alert, in bytes, names and values. Admission of templates (control/api/templates)
// goes by what annotations may have; labels may have twice as much as those of a series,
// and identify the alert, so they are not cut.
const (
	maxAnnotations = 16 << 10
	maxLabels      = 32 << 10
)

func sizeOf(set model.LabelSet) (n int) {
	for k, v := range set {
		n += len(k) + len(v)
	}
	return n
}

// shortened is annotations of at most room bytes: the longest are cut, and if there are
// too many even so, some are left out. What is short enough is returned as it is.
func shortened(set model.LabelSet, room int) model.LabelSet {
	if sizeOf(set) <= room {
		return set
	}
	size := func(k model.LabelName) int { return len(k) + len(set[k]) }
	names := slices.SortedFunc(maps.Keys(set), func(a, b model.LabelName) int {
		return cmp.Or(cmp.Compare(size(a), size(b)), cmp.Compare(a, b))
	})
	out := model.LabelSet{}
	for i, k := range names {
		const more = "..."
		share := room
		if fit := room / (len(names) - i); size(k) > fit {
			if share = fit; share < 64 { // no room for them all: whole ones, as many as go in
				share = room
			}
		}
		v := set[k]
		if size(k) > share {
			if share < len(k)+len(more) {
				break
			}
			v = model.LabelValue(strings.ToValidUTF8(string(v[:share-len(k)-len(more)]), "") + more)
		}
		out[k] = v
		room -= len(k) + len(v)
	}
	return out
}

// PostStore implements mem.AlertStoreCallback. It waits for nobody.
func (h *hub) PostStore(a *types.Alert, _ bool) {
	key := h.keyOf(a)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.alerts[key] == nil {
		h.alerts[key] = map[model.Fingerprint]*types.Alert{}
	}
	h.alerts[key][a.Fingerprint()] = a
	for q := range h.queues[key] {
		q.put(a)
	}
	if key != "" {
		for q := range h.queues[""] {
			q.put(a)
		}
	}
}

// PostDelete implements mem.AlertStoreCallback.
func (h *hub) PostDelete(a *types.Alert) {
	key := h.keyOf(a)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.alerts[key], a.Fingerprint())
	if len(h.alerts[key]) == 0 {
		delete(h.alerts, key)
	}
}

// view is the alerts of one shard; "" is all.
func (h *hub) view(key string) provider.Alerts { return &view{Alerts: h.store, hub: h, key: key} }

type view struct {
	*mem.Alerts
	hub *hub
	key string
}

// SlurpAndSubscribe implements provider.Alerts.
func (v *view) SlurpAndSubscribe(string) ([]*types.Alert, provider.AlertIterator) {
	h := v.hub
	q := &queue{pending: map[model.Fingerprint]*types.Alert{}, wake: make(chan struct{}, 1)}
	out, done := make(chan *provider.Alert), make(chan struct{})
	h.mu.Lock()
	defer h.mu.Unlock()
	var now []*types.Alert
	for key, alerts := range h.alerts {
		if v.key == "" || v.key == key {
			for _, a := range alerts {
				now = append(now, a)
			}
		}
	}
	if h.queues[v.key] == nil {
		h.queues[v.key] = map[*queue]bool{}
	}
	h.queues[v.key][q] = true
	go func() {
		q.run(out, done)
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.queues[v.key], q)
		if len(h.queues[v.key]) == 0 {
			delete(h.queues, v.key)
		}
	}()
	return now, provider.NewAlertIterator(out, done, nil)
}

// queue holds the newest of each alert that its reader has not seen, so it is no longer
// than there are alerts.
type queue struct {
	mu      sync.Mutex
	pending map[model.Fingerprint]*types.Alert
	order   []model.Fingerprint
	wake    chan struct{}
}

func (q *queue) put(a *types.Alert) {
	fp := a.Fingerprint()
	q.mu.Lock()
	if q.pending[fp] == nil {
		q.order = append(q.order, fp)
	}
	q.pending[fp] = a
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) take() *types.Alert {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.order) == 0 {
		q.order = nil
		return nil
	}
	a := q.pending[q.order[0]]
	delete(q.pending, q.order[0])
	q.order = q.order[1:]
	return a
}

func (q *queue) run(out chan<- *provider.Alert, done <-chan struct{}) {
	for {
		a := q.take()
		if a == nil {
			select {
			case <-q.wake:
				continue
			case <-done:
				return
			}
		}
		select {
		case out <- &provider.Alert{Header: map[string]string{}, Data: a}:
		case <-done:
			return
		}
	}
}
