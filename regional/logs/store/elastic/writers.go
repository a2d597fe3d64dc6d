package elastic

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"muster.dev/muster/regional/logs/store"
)

// Several processes may write to one cluster, each with stamps of its own clock. So
// that a reader can tell up to when everything is visible, each writer publishes its
// floor in the state: a stamp below which it has nothing on the way, once a second. A
// reader's Now is the lowest of its own horizon and all floors of writers that live.
//
// A writer whose floor has not moved for writerDead by the reader's own clock counts as
// dead. One that could not publish for writerStale writes nothing before it has
// published again, with stamps above all floors, so nobody is surprised by one that
// was thought dead. What remains is a process that is stopped for more than writerDead
// in the middle of a bulk request: its records are stored, and not seen by Tail.
const (
	publishEvery = time.Second
	writerStale  = 10 * time.Second
	writerDead   = 30 * time.Second
	// A floor may be so much older than what its writer, as a reader, has promised.
	floorMargin = 5 * time.Second
	writersKey  = "writers"
	// What a request that ended in doubt may still do, it does within this time.
	doubtFor = 30 * time.Second
)

// writers is what this process knows of all writers, itself included.
type writers struct {
	id string

	mu        sync.Mutex
	joined    bool
	published time.Time // by our clock; zero: never
	count     int64
	others    map[string]*otherWriter
	last      int64 // highest that Now gave
}

type otherWriter struct {
	floor floorState
	seen  time.Time // when it last moved
}

// floorState is the document of one writer, under floorKey.
type floorState struct {
	Floor int64 `json:"floor"` // Unix nanoseconds
	Count int64 `json:"count"`
}

func newWriters(id string) *writers {
	return &writers{id: cmp.Or(id, rand.Text()), others: map[string]*otherWriter{}}
}

func floorKey(id string) string { return writersKey + "/" + id }

func (s *Store) publishLoop() {
	t := time.NewTicker(publishEvery)
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
		}
		// Only those who have written, or read, have something to say.
		s.writers.mu.Lock()
		if s.writers.joined {
			ctx, cancel := context.WithTimeout(s.ctx, s.opts.MaxQueryTime)
			if err := s.publish(ctx); err != nil && s.ctx.Err() == nil {
				s.opts.Logger.Debug("the floor of this writer can't be published", "err", err)
			}
			cancel()
		}
		s.writers.mu.Unlock()
	}
}

// mayWrite makes sure that the others know of this writer.
func (s *Store) mayWrite(ctx context.Context) error {
	w := s.writers
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.joined && time.Since(w.published) < writerStale {
		return nil
	}
	if err := s.join(ctx); err != nil {
		return fmt.Errorf("elasticsearch: tell the other writers: %w", err)
	}
	return nil
}

// join enters the list of writers and raises the clock above what anybody may have
// been promised.
func (s *Store) join(ctx context.Context) error {
	w := s.writers
	for {
		list, version, err := s.list(ctx)
		if err != nil {
			return err
		}
		if _, in := list[w.id]; in {
			break
		}
		list[w.id] = s.opts.Now().UTC()
		if err := s.putList(ctx, list, version); err == nil {
			break
		} else if !errors.Is(err, store.ErrStateConflict) {
			return err
		}
	}
	if err := s.readFloors(ctx); err != nil {
		return err
	}
	for _, o := range w.others {
		if time.Since(o.seen) < writerDead {
			s.clock.Raise(o.floor.Floor + int64(floorMargin))
		}
	}
	w.joined = true
	return s.publish(ctx)
}

func (s *Store) list(ctx context.Context) (map[string]time.Time, string, error) {
	list := map[string]time.Time{}
	b, version, err := s.GetState(ctx, writersKey)
	if errors.Is(err, store.ErrNoState) {
		return list, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, "", fmt.Errorf("the list of writers: %w", err)
	}
	return list, version, nil
}

func (s *Store) putList(ctx context.Context, list map[string]time.Time, version string) error {
	b, err := json.Marshal(list)
	if err != nil {
		return err
	}
	_, err = s.PutState(ctx, writersKey, b, version)
	return err
}

// publish writes the own floor; the caller holds w.mu.
func (s *Store) publish(ctx context.Context) error {
	if err := s.ensureTemplate(ctx); err != nil {
		return err
	}
	w := s.writers
	w.count++
	at := time.Now()
	b, err := json.Marshal(floorState{Floor: s.clock.Horizon(), Count: w.count})
	if err != nil {
		return err
	}
	if err := s.do(ctx, esapi.IndexRequest{Index: s.stateIndex(), DocumentID: stateID(floorKey(w.id)), Body: bytes.NewReader(b)}, nil); err != nil {
		return err
	}
	w.published = at
	return nil
}

// readFloors brings the other writers' floors up to date; the caller holds w.mu.
func (s *Store) readFloors(ctx context.Context) error {
	w := s.writers
	list, version, err := s.list(ctx)
	if err != nil {
		return err
	}
	delete(list, w.id)
	for id := range w.others {
		if _, ok := list[id]; !ok {
			delete(w.others, id)
		}
	}
	if len(list) == 0 {
		return nil
	}
	var ids []string
	keyOf := map[string]string{}
	for id := range list {
		ids = append(ids, stateID(floorKey(id)))
		keyOf[stateID(floorKey(id))] = id
		if w.others[id] == nil {
			// New to us: it has all its time to show that it lives.
			w.others[id] = &otherWriter{seen: time.Now()}
		}
	}
	body, err := json.Marshal(object{"ids": ids})
	if err != nil {
		return err
	}
	var answer struct {
		Docs []struct {
			ID     string     `json:"_id"`
			Found  bool       `json:"found"`
			Source floorState `json:"_source"`
		} `json:"docs"`
	}
	if err := s.do(ctx, esapi.MgetRequest{Index: s.stateIndex(), Body: bytes.NewReader(body)}, &answer); err != nil {
		return err
	}
	for _, d := range answer.Docs {
		if o := w.others[keyOf[d.ID]]; o != nil && d.Found && d.Source != o.floor {
			o.floor, o.seen = d.Source, time.Now()
		}
	}
	return s.forget(ctx, version)
}

// forget takes writers off the list that have been dead for long.
func (s *Store) forget(ctx context.Context, version string) error {
	w := s.writers
	var gone []string
	for id, o := range w.others {
		if time.Since(o.seen) > 10*writerDead {
			gone = append(gone, id)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	list, current, err := s.list(ctx)
	if err != nil || current != version {
		return err // the next one does it
	}
	for _, id := range gone {
		delete(list, id)
	}
	if err := s.putList(ctx, list, version); err != nil {
		if errors.Is(err, store.ErrStateConflict) {
			return nil
		}
		return err
	}
	for _, id := range gone {
		delete(w.others, id)
		_ = s.do(ctx, esapi.DeleteRequest{Index: s.stateIndex(), DocumentID: stateID(floorKey(id))}, nil)
	}
	return nil
}

// leave tells the others not to wait for this writer. It runs when no Write is going on.
func (s *Store) leave() {
	w := s.writers
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.joined {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for range 5 {
		list, version, err := s.list(ctx)
		if err != nil {
			return
		}
		delete(list, w.id)
		if err := s.putList(ctx, list, version); !errors.Is(err, store.ErrStateConflict) {
			break
		}
	}
	_ = s.do(ctx, esapi.DeleteRequest{Index: s.stateIndex(), DocumentID: stateID(floorKey(w.id))}, nil)
}

// Now is the lowest of this process's horizon and the floors of the other writers that
// live; see store.Store.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	w := s.writers
	ctx, cancel := context.WithTimeout(ctx, s.opts.MaxQueryTime)
	defer cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	// A reader is on the list too: a new writer must keep above what it was promised. Only
	// one that the others may take for dead has to come above their floors: if two did so
	// again and again, their stamps would climb over each other into the future.
	var err error
	switch late := time.Since(w.published); {
	case !w.joined || late >= writerStale:
		err = s.join(ctx)
	case late > 2*publishEvery:
		err = s.publish(ctx)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("elasticsearch: ask the other writers: %w", err)
	}
	horizon := s.clock.Horizon()
	if err := s.readFloors(ctx); err != nil {
		return time.Time{}, fmt.Errorf("elasticsearch: ask the other writers: %w", err)
	}
	for id, o := range w.others {
		if time.Since(o.seen) >= writerDead {
			continue
		}
		if o.floor.Floor == 0 && w.last == 0 {
			return time.Time{}, fmt.Errorf("elasticsearch: the writer %s has only just come; ask again", id)
		}
		horizon = min(horizon, o.floor.Floor)
	}
	w.last = max(w.last, horizon-1)
	return time.Unix(0, w.last).UTC(), nil
}
