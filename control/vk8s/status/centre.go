package status

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// Centre takes the Events that the centre itself has of tenants' objects, as a reflector
// tells them; they are shown among those of the sites, as they are. Like the store it may be
// used at any time.
func (s *Store) Centre() cache.ReflectorStore { return centre{s} }

// centre is the store of a reflector of core/v1 Events.
type centre struct{ s *Store }

// systemSuffix is of namespaces that can't have a virtual Kubernetes: nobody sees their
// Events here, and a fleet has many there.
const systemSuffix = "-system"

// Add implements cache.ReflectorStore.
func (c centre) Add(o any) error {
	it, err := centreItem(o)
	if it == nil {
		return err
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.putCentreLocked(it)
	c.s.tables[events].announce()
	return nil
}

// Update implements cache.ReflectorStore.
func (c centre) Update(o any) error { return c.Add(o) }

// Delete implements cache.ReflectorStore.
func (c centre) Delete(o any) error {
	if e, ok := o.(*corev1.Event); ok {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		c.s.dropLocked(c.s.centre, key{events, e.Namespace, e.Name})
		c.s.tables[events].announce()
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (c centre) Replace(list []any, _ string) error {
	there := map[key]bool{}
	var items []*item
	for _, o := range list {
		it, err := centreItem(o)
		if err != nil {
			return err
		}
		if it != nil {
			there[it.key()] = true
			items = append(items, it)
		}
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for k := range c.s.centre.items {
		if !there[k] {
			c.s.dropLocked(c.s.centre, k)
		}
	}
	for _, it := range items {
		c.s.putCentreLocked(it)
	}
	c.s.tables[events].announce()
	return nil
}

// Resync implements cache.ReflectorStore.
func (c centre) Resync() error { return nil }

// centreItem is nil for what nobody would see.
func centreItem(o any) (*item, error) {
	e, ok := o.(*corev1.Event)
	if !ok || strings.HasSuffix(e.Namespace, systemSuffix) {
		return nil, nil
	}
	shown := e.DeepCopy()
	shown.ManagedFields = nil
	b, err := shown.Marshal()
	if err != nil {
		return nil, fmt.Errorf("event %s/%s: %w", e.Namespace, e.Name, err)
	}
	return &item{kind: events, namespace: intern(e.Namespace), name: e.Name, own: e.Name, labels: newLabelSet(e.Labels), aux: e.InvolvedObject.Name, bytes: b, decoded: weigh(events, b)}, nil
}

// putCentreLocked: an Event of a site that has the name already keeps it, and this one waits
// for the next change; names of Events have a part that is drawn from the time.
func (s *Store) putCentreLocked(it *item) {
	it.site = s.centre
	k := it.key()
	had := s.centre.items[k]
	if had != nil && string(had.bytes) == string(it.bytes) || had == nil && s.tables[events].get(it.namespace, it.name) != nil {
		return
	}
	if had == nil {
		s.centre.events++
	}
	s.centre.items[k] = it
	s.tables[events].put(it)
}
