package status

import (
	"context"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// bookmarkEvery is how often a watch that wants it is told how far it is.
const bookmarkEvery = 30 * time.Second

// watchBytes is about how much of what it has to send a watch holds while its client doesn't
// read: there may be many of them, and what they hold is of the past.
const watchBytes = 256 << 10

// shared is what all who watch share of a change: its encodings, made once.
type shared struct {
	mu      sync.Mutex
	encoded map[runtime.Identifier][]byte
}

// encodable is an object of a change that all who watch it encode once.
type encodable struct {
	object
	make   func() object
	shared *shared
}

var _ runtime.CacheableObject = &encodable{}

// GetObject implements runtime.CacheableObject.
func (e *encodable) GetObject() runtime.Object { return e.make() }

// DeepCopyObject implements runtime.Object.
func (e *encodable) DeepCopyObject() runtime.Object { return e.make() }

// CacheEncode implements runtime.CacheableObject.
func (e *encodable) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	e.shared.mu.Lock()
	b, ok := e.shared.encoded[id]
	if !ok {
		buf := &writer{}
		if err := encode(e.make(), buf); err != nil {
			e.shared.mu.Unlock()
			return err
		}
		b = buf.b
		if e.shared.encoded == nil {
			e.shared.encoded = map[runtime.Identifier][]byte{}
		}
		e.shared.encoded[id] = b
	}
	e.shared.mu.Unlock()
	_, err := w.Write(b)
	return err
}

type writer struct{ b []byte }

func (w *writer) Write(p []byte) (int, error) { w.b = append(w.b, p...); return len(p), nil }

// watcher follows the changes of a table.
type watcher struct {
	t      *table
	ring   *ring
	filter filter
	out    chan watch.Event
	ctx    context.Context
	stop   context.CancelFunc
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.out }

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.stop() }

func (w *watcher) send(e watch.Event) bool {
	select {
	case w.out <- e:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// watch starts a watch. It begins with what there is where the version is empty or "0", or
// the client asks for it.
func (t *table) watch(ctx context.Context, f filter, o *metainternalversion.ListOptions) (watch.Interface, error) {
	from, err := versionOf(o.ResourceVersion)
	if err != nil {
		return nil, err
	}
	w := &watcher{t: t, filter: f, out: make(chan watch.Event, 1)}
	w.ctx, w.stop = context.WithCancel(ctx)
	s := t.store
	s.mu.Lock()
	w.ring = t.ringLocked(f.tenant)
	s.mu.Unlock()
	s.mu.RLock()
	now := s.version
	initial, all := false, o.SendInitialEvents != nil && *o.SendInitialEvents
	switch {
	case from > now:
		s.mu.RUnlock()
		w.stop()
		return nil, tooLarge(from, now)
	case all || from == 0 && o.SendInitialEvents == nil:
		initial, from = true, now
	case from == 0:
		from = now
	case from < w.ring.floor:
		floor := w.ring.floor
		s.mu.RUnlock()
		w.stop()
		return nil, expired(from, floor)
	}
	s.mu.RUnlock()
	go w.run(initial, from, all, o.AllowWatchBookmarks)
	return w, nil
}

func (w *watcher) run(initial bool, at uint64, endOfInitial, bookmarks bool) {
	defer close(w.out)
	defer w.stop()
	s := w.t.store
	if initial && !w.sendAll(at) {
		return
	}
	if endOfInitial && bookmarks && !w.send(w.t.bookmark(at, map[string]string{metav1.InitialEventsAnnotationKey: "true"})) {
		return
	}
	tick := time.NewTicker(bookmarkEvery)
	defer tick.Stop()
	for {
		s.mu.RLock()
		changes, ok := w.t.since(w.filter.tenant, at, watchBytes)
		wake, now := w.ring.wake, s.version
		s.mu.RUnlock()
		if !ok {
			status := expired(at, now).Status()
			w.send(watch.Event{Type: watch.Error, Object: &status})
			return
		}
		for _, c := range changes {
			if e, ok := w.event(c); ok && !w.send(e) {
				return
			}
		}
		if n := len(changes); n > 0 {
			at = changes[n-1].version // there may be more
			continue
		}
		at = now
		select {
		case <-wake:
		case <-w.filter.scope.Changed:
			status := expired(at, now).Status() // other sites are seen now: it is to be listed anew
			w.send(watch.Event{Type: watch.Error, Object: &status})
			return
		case <-tick.C:
			if bookmarks && !w.send(w.t.bookmark(at, nil)) {
				return
			}
		case <-w.ctx.Done():
			return
		}
	}
}

// sendAll sends what there was at a version, a part at a time, as pages of a list are; false:
// the watch is over.
func (w *watcher) sendAll(version uint64) bool {
	for last := ""; ; {
		part, err := w.part(version, last)
		if err != nil {
			status := expired(version, version+1).Status()
			w.send(watch.Event{Type: watch.Error, Object: &status})
			return false
		}
		for _, it := range part {
			if last = it.name; w.filter.matches(it) && !w.send(watch.Event{Type: watch.Added, Object: w.t.store.encodable(it, it.version, &shared{})}) {
				return false
			}
		}
		if len(part) == 0 {
			return true
		}
	}
}

func (w *watcher) part(version uint64, after string) ([]*item, error) {
	all, _, err := w.t.at(w.filter, after, version)
	if err != nil {
		return nil, err
	}
	n := 0
	for bytes := 0; n < len(all) && bytes < watchBytes; n++ {
		bytes += all[n].bytesKept()
	}
	return slices.Clone(all[:n]), nil
}

// event is what a change is to somebody who sees a part of the table.
func (w *watcher) event(c change) (watch.Event, bool) {
	before, after := c.was != nil && w.filter.matches(c.was), c.is != nil && w.filter.matches(c.is)
	var kind watch.EventType
	it := c.is
	switch {
	case before && after:
		kind = watch.Modified
	case after:
		kind = watch.Added
	case before:
		kind, it = watch.Deleted, c.was
	default:
		return watch.Event{}, false
	}
	sh := c.shared
	if sh == nil || it != c.is && c.is != nil {
		sh = &shared{} // gone from this view alone: others encode what is there now
	}
	return watch.Event{Type: kind, Object: w.t.store.encodable(it, c.version, sh)}, true
}

// encodable decodes an item no sooner than somebody encodes it: many wait to be sent.
func (s *Store) encodable(it *item, version uint64, sh *shared) *encodable {
	return &encodable{object: newObject(it.kind), make: func() object { return s.object(it, version) }, shared: sh}
}

func (t *table) bookmark(version uint64, annotations map[string]string) watch.Event {
	o := newObject(t.kind)
	o.SetResourceVersion(strconv.FormatUint(version, 10))
	o.SetAnnotations(annotations)
	return watch.Event{Type: watch.Bookmark, Object: o}
}

func expired(version, floor uint64) *apierrors.StatusError {
	return apierrors.NewResourceExpired("too old resource version: " + strconv.FormatUint(version, 10) + " (" + strconv.FormatUint(floor, 10) + ")")
}
