package timeline

import (
	"fmt"

	bolt "go.etcd.io/bbolt"

	"muster.dev/muster/internal/wire"
)

// Tracker remembers, on the disk, what it was last told of each of many things, for sources
// that see how things are and not how they change. What follows from a change is written in
// the same transaction as what is remembered: after kill -9 it is told once, neither lost nor
// doubled. One goroutine may use it.
type Tracker struct {
	s     *Store
	name  []byte
	known map[string]string
	fresh bool
}

// Change is what is to be remembered of a thing from now on; an empty Value forgets it.
type Change struct {
	Key, Value string
	Events     []wire.TimelineEvent
}

// Track returns the tracker of this name, with what it remembers.
func (s *Store) Track(name string) (*Tracker, error) {
	t := &Tracker{s: s, name: []byte(name), known: map[string]string{}}
	err := s.db.Update(func(tx *bolt.Tx) error {
		all := tx.Bucket(bucketTracked)
		if t.fresh = all.Bucket(t.name) == nil; t.fresh {
			return nil
		}
		return all.Bucket(t.name).ForEach(func(k, v []byte) error {
			t.known[string(k)] = string(v)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("timeline: read %s: %w", name, err)
	}
	return t, nil
}

// Fresh says that it was never told of anything: what it sees first is how things are, and
// not news.
func (t *Tracker) Fresh() bool { return t.fresh }

// Get is what is remembered of a thing; "": nothing.
func (t *Tracker) Get(key string) string { return t.known[key] }

// Keys are the things of which something is remembered. Callers must not change the map.
func (t *Tracker) Keys() map[string]string { return t.known }

// Commit writes changes and their events. If it fails nothing is remembered, and the caller
// tells the same again at its next look.
func (t *Tracker) Commit(changes []Change) error {
	if len(changes) == 0 && !t.fresh {
		return nil
	}
	var events []wire.TimelineEvent
	for _, c := range changes {
		events = append(events, c.Events...)
	}
	events, err := t.s.admit(events)
	if err != nil {
		return err
	}
	var done *written
	err = t.s.db.Update(func(tx *bolt.Tx) error {
		b, err := tx.Bucket(bucketTracked).CreateBucketIfNotExists(t.name)
		if err != nil {
			return err
		}
		for _, c := range changes {
			if c.Value == "" {
				err = b.Delete([]byte(c.Key))
			} else {
				err = b.Put([]byte(c.Key), []byte(c.Value))
			}
			if err != nil {
				return err
			}
		}
		done, err = t.s.put(tx, events)
		return err
	})
	if err := t.s.finish(done, err); err != nil {
		return err
	}
	for _, c := range changes {
		if c.Value == "" {
			delete(t.known, c.Key)
		} else {
			t.known[c.Key] = c.Value
		}
	}
	t.fresh = false
	return nil
}
