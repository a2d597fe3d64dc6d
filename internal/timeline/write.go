package timeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	bolt "go.etcd.io/bbolt"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// What an event may hold at most, in bytes of UTF-8; the rest is cut.
const (
	maxText         = 500
	maxName         = 320
	maxShort        = 64
	maxVirtualSites = 64
)

// stored is an event without what its key says and where it stands.
type stored struct {
	Severity     string   `json:"s,omitempty"`
	Namespace    string   `json:"n,omitempty"`
	Site         string   `json:"o,omitempty"`
	VirtualSites []string `json:"v,omitempty"`
	Object       string   `json:"b,omitempty"`
	By           string   `json:"w,omitempty"`
	Text         string   `json:"t"`
	Before       string   `json:"f,omitempty"`
	After        string   `json:"a,omitempty"`
	Link         string   `json:"l,omitempty"`
}

// Add keeps events; one that it has already is left as it is. When it returns nil they are
// on the disk. An event without a time, text, or a kind that there is, is refused.
func (s *Store) Add(events ...wire.TimelineEvent) error {
	if len(events) == 0 {
		return nil
	}
	kept, err := s.admit(events)
	if err != nil || len(kept) == 0 {
		return err
	}
	var done *written
	err = s.db.Batch(func(tx *bolt.Tx) (err error) {
		done, err = s.put(tx, kept)
		return err
	})
	return s.finish(done, err)
}

// admit checks events, cuts what is too long, and leaves out what is beyond the rates.
func (s *Store) admit(events []wire.TimelineEvent) ([]wire.TimelineEvent, error) {
	now := s.now()
	out := make([]wire.TimelineEvent, 0, len(events))
	for _, e := range events {
		if e.Time.IsZero() || e.Text == "" || !slices.Contains(wire.TimelineKinds, e.Kind) {
			return nil, fmt.Errorf("timeline: an event of kind %q without a time, a text, or a kind that there is", e.Kind)
		}
		if e.Tenant == "" {
			e.Tenant = fleet.PlatformTenant
		}
		if e.Severity == "" {
			e.Severity = wire.EventInfo
		}
		for _, f := range []struct {
			s   *string
			max int
		}{{&e.Text, maxText}, {&e.Object, maxName}, {&e.By, maxName}, {&e.Link, 2 * maxName}, {&e.Site, maxName}, {&e.Namespace, maxName}, {&e.Before, maxShort}, {&e.After, maxShort}} {
			*f.s = clip(*f.s, f.max)
		}
		if len(e.VirtualSites) > maxVirtualSites {
			e.VirtualSites = e.VirtualSites[:maxVirtualSites]
		}
		left, ok := s.limits.take(&e, now)
		if !ok {
			s.metrics.dropped.WithLabelValues("rate").Inc()
			continue
		}
		if left > 0 {
			e.Text = clip(e.Text, maxText-60) + fmt.Sprintf(" (and %d events before it that were too many)", left)
		}
		out = append(out, e)
	}
	return out, nil
}

// clip cuts at a letter, and makes one line of it.
func clip(s string, n int) string {
	if strings.ContainsAny(s, "\r\n\t") {
		s = strings.Join(strings.Fields(s), " ")
	}
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= n {
		return s
	}
	for n -= len("…"); !utf8.RuneStart(s[n]); n-- {
	}
	return s[:n] + "…"
}

// written is what a transaction did, to be told once it is committed.
type written struct {
	uses  map[string]use
	kinds map[string]int
	full  int // removed because there is no room
}

func (s *Store) finish(w *written, err error) error {
	if err != nil {
		s.metrics.failures.Inc()
		return fmt.Errorf("timeline: write: %w", err)
	}
	if w == nil {
		return nil
	}
	s.mu.Lock()
	for t, u := range w.uses {
		if s.uses[t] = u; u.events == 0 {
			delete(s.uses, t)
		}
	}
	s.mu.Unlock()
	for kind, n := range w.kinds {
		s.metrics.taken.WithLabelValues(kind).Add(float64(n))
	}
	s.metrics.dropped.WithLabelValues("full").Add(float64(w.full))
	return nil
}

// put writes events and removes the oldest of their tenants beyond the bounds.
func (s *Store) put(tx *bolt.Tx, events []wire.TimelineEvent) (*written, error) {
	w := &written{uses: map[string]use{}, kinds: map[string]int{}}
	tenants := tx.Bucket(bucketTenants)
	for i := range events {
		e := &events[i]
		b, err := tenants.CreateBucketIfNotExists([]byte(e.Tenant))
		if err != nil {
			return nil, err
		}
		u, known := w.uses[e.Tenant]
		if !known {
			u = useOf(b)
		}
		n, err := insert(b, e)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			u.events++
			u.bytes += n
			w.kinds[e.Kind]++
		}
		w.uses[e.Tenant] = u
	}
	oldest := s.now().Add(-s.opts.Age)
	for t, u := range w.uses {
		full, err := s.trim(tenants.Bucket([]byte(t)), &u, oldest)
		if err != nil {
			return nil, err
		}
		w.full += full
		w.uses[t] = u
	}
	return w, nil
}

// insert returns how many bytes were added; 0: it was there.
func insert(b *bolt.Bucket, e *wire.TimelineEvent) (int64, error) {
	events, err := b.CreateBucketIfNotExists(bucketEvents)
	if err != nil {
		return 0, err
	}
	k := keyOf(e)
	if events.Get(k[:]) != nil {
		return 0, nil
	}
	v, err := json.Marshal(stored{e.Severity, e.Namespace, e.Site, e.VirtualSites, e.Object, e.By, e.Text, e.Before, e.After, e.Link})
	if err != nil {
		return 0, err
	}
	if err := events.Put(k[:], v); err != nil {
		return 0, err
	}
	index, err := b.CreateBucketIfNotExists(bucketIndex)
	if err != nil {
		return 0, err
	}
	size := int64(keyBytes + len(v))
	for _, prefix := range indexed(e) {
		if err := index.Put(append(prefix[:prefixBytes:prefixBytes], k[:]...), nil); err != nil {
			return 0, err
		}
		size += prefixBytes + keyBytes
	}
	return size, nil
}

// trim removes what is older than oldest, and the oldest beyond the bounds, and writes the
// use down.
func (s *Store) trim(b *bolt.Bucket, u *use, oldest time.Time) (full int, err error) {
	events, index := b.Bucket(bucketEvents), b.Bucket(bucketIndex)
	if events == nil {
		return 0, nil
	}
	c := events.Cursor()
	for k, v := c.First(); k != nil; k, v = c.First() {
		old := key(k).time().Before(oldest)
		if !old && u.events <= int64(s.opts.Events) && u.bytes <= s.opts.Bytes {
			break
		}
		if !old {
			full++
		}
		u.events--
		u.bytes -= int64(keyBytes + len(v))
		if e, err := decode(key(k), v); err == nil {
			for _, prefix := range indexed(&e) {
				at := append(prefix[:prefixBytes:prefixBytes], k...)
				if index.Get(at) == nil { // of a time when objects were not indexed
					continue
				}
				if err := index.Delete(at); err != nil {
					return full, err
				}
				u.bytes -= prefixBytes + keyBytes
			}
		}
		if err := c.Delete(); err != nil {
			return full, err
		}
	}
	if u.events <= 0 {
		*u = use{}
	}
	return full, b.Put(keyUse, u.encode())
}

// Prune removes what is older than the age.
func (s *Store) Prune() error {
	s.limits.forget(s.now())
	s.mu.Lock()
	tenants := make([]string, 0, len(s.uses))
	for t := range s.uses {
		tenants = append(tenants, t)
	}
	s.mu.Unlock()
	for _, t := range tenants { // one at a time: writers wait only for one tenant's
		w := &written{uses: map[string]use{}}
		err := s.db.Update(func(tx *bolt.Tx) error {
			all := tx.Bucket(bucketTenants)
			b := all.Bucket([]byte(t))
			if b == nil {
				return nil
			}
			u := useOf(b)
			if _, err := s.trim(b, &u, s.now().Add(-s.opts.Age)); err != nil {
				return err
			}
			w.uses[t] = u
			if u.events == 0 {
				return all.DeleteBucket([]byte(t))
			}
			return nil
		})
		if err := s.finish(w, err); err != nil {
			return err
		}
	}
	return nil
}

func decode(k key, v []byte) (wire.TimelineEvent, error) {
	var x stored
	if err := json.Unmarshal(v, &x); err != nil {
		return wire.TimelineEvent{}, err
	}
	if k.kind() >= len(wire.TimelineKinds) {
		return wire.TimelineEvent{}, fmt.Errorf("kind %d: of a later version", k.kind())
	}
	return wire.TimelineEvent{ID: k.String(), Time: k.time(), Kind: wire.TimelineKinds[k.kind()], Severity: x.Severity, Namespace: x.Namespace, Site: x.Site, VirtualSites: x.VirtualSites,
		Object: x.Object, By: x.By, Text: x.Text, Before: x.Before, After: x.After, Link: x.Link}, nil
}
