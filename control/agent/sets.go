package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/holdings"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// SetApplier puts all items of one kind into effect together and in its own time, because
// their order matters, or one waits for another.
type SetApplier interface {
	// TakeSet hands over what the site shall hold of the kind; what is not in it was taken
	// away by control. It must not wait for anything. It is called at the start with what
	// is on the disk, unless control has never said anything, and then whenever the set may
	// be another or more of its blobs are at hand; each call replaces the one before.
	TakeSet(Set)
}

// Newest is the SetApplier of who works through the newest set in a goroutine of its own.
// NewNewest makes one. Safe for concurrent use.
type Newest struct {
	changed chan struct{}

	mu  sync.Mutex
	set *Set
}

// NewNewest returns one that has no set yet.
func NewNewest() *Newest { return &Newest{changed: make(chan struct{}, 1)} }

// TakeSet implements SetApplier.
func (n *Newest) TakeSet(s Set) {
	n.mu.Lock()
	n.set = &s
	n.mu.Unlock()
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// Changed has one value if sets came since the last was taken from it.
func (n *Newest) Changed() <-chan struct{} { return n.changed }

// Set returns the newest; nil: control has not said anything since the start.
func (n *Newest) Set() *Set {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.set
}

// Set is what a SetApplier shall hold. Its functions may be called from any goroutine, also
// when the next set has come.
type Set struct {
	Site     fleet.SiteID // this one
	Revision string       // of the desired state; equal ones have equal items
	Items    []SetItem
	// Blob reads the content of an item, wanted or good.
	Blob func(digest string) ([]byte, error)
	// Applied says that the content is in effect on the site, or why it is not.
	Applied func(name, digest string, err error)
	// Good says that the content has proved itself: its blob is kept, to go back to, until
	// another one of the item has. False: it comes too late, another content is wanted and
	// the blob is gone.
	Good func(name, digest string) bool
}

// SetItem is one item of a Set.
type SetItem struct {
	Name   string
	Digest string
	Good   string // digest of what last proved itself; empty: nothing
	Err    error  // why the content is not at hand; it is fetched again
}

// set makes the Set of a kind of what is wanted.
func (a *Agent) set(kind string, next stored, missing map[string]error) Set {
	site, _, _ := a.Identity()
	s := Set{
		Site: site, Revision: next.Revision, Blob: a.blobs.Read,
		Applied: func(name, digest string, err error) { a.setApplied(kind, name, digest, err) },
		Good:    func(name, digest string) bool { return a.prove(kind+"/"+name, digest) },
	}
	for _, it := range next.Items {
		if it.Kind == kind {
			s.Items = append(s.Items, SetItem{it.Name, it.Digest, next.Good[it.key()], missing[it.key()]})
		}
	}
	return s
}

// prove keeps the content of an item to go back to, if it is still there.
func (a *Agent) prove(key, digest string) bool {
	d := &a.desired
	d.sweep.Lock()
	defer d.sweep.Unlock()
	if _, err := a.readBlob(digest); err != nil {
		return false
	}
	d.mu.Lock()
	d.proved[key] = digest
	d.mu.Unlock()
	d.note()
	return true
}

func (a *Agent) setApplied(kind, name, digest string, err error) {
	d := &a.desired
	key := kind + "/" + name
	result := "ok"
	d.mu.Lock()
	if err != nil {
		result = "failed"
		d.fails[key] = err.Error()
	} else {
		d.running[key] = digest
		delete(d.fails, key)
	}
	d.mu.Unlock()
	a.metrics.applies.WithLabelValues(kind, result).Inc()
	d.note()
}

// note asks applyLoop to settle what appliers of sets have said.
func (d *desiredState) note() {
	select {
	case d.noted <- struct{}{}:
	default:
	}
}

// settle writes down what has proved itself, and tells what is in effect.
func (a *Agent) settle() error {
	d := &a.desired
	d.mu.Lock()
	held, changed := d.held, false
	said := maps.Clone(d.proved)
	if len(said) > 0 {
		held.Good = make(map[string]string, len(d.held.Good)+len(d.proved))
		for _, it := range held.Items {
			key := it.key()
			digest, was := d.proved[key], d.held.Good[key]
			if digest == "" {
				digest = was
			}
			if digest != "" {
				held.Good[key] = digest
			}
			changed = changed || digest != was
		}
		clear(d.proved)
	}
	d.settleLocked()
	d.mu.Unlock()
	a.setAppliedConditions(held)
	a.reportChanged()
	if !changed {
		return nil
	}
	if err := a.store(held); err != nil {
		d.mu.Lock()
		maps.Copy(said, d.proved)
		d.proved = said
		d.mu.Unlock()
		return err
	}
	a.sweepBlobs()
	return nil
}

// anyProved tells whether something proved itself that is not written down.
func (d *desiredState) anyProved() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.proved) > 0
}

// settleLocked finds out whether the whole state is in effect.
func (d *desiredState) settleLocked() {
	for _, it := range d.held.Items {
		if d.fails[it.key()] != "" || d.running[it.key()] != it.Digest {
			return
		}
	}
	d.applied = d.held.Revision
}

// fetchers is how many blobs are fetched at a time: enough that a thousand small ones don't
// each wait for the way there and back.
const fetchers = 8

// fetch brings the blobs that the disk lacks, and returns by kind/name why some are not
// here. One that can't be had holds up no other.
func (a *Agent) fetch(ctx context.Context, client wire.UplinkClient, items []*wire.Item) map[string]error {
	missing := map[string]error{}
	lacking := map[string][]*wire.Item{} // by digest, of which a download writes one file
	for _, it := range items {
		if !a.knows(it.GetKind()) {
			missing[holdings.Key(it)] = a.unknownKind(it.GetKind())
		} else if !a.blobs.Has(it.Digest, it.Size) {
			lacking[it.Digest] = append(lacking[it.Digest], it)
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	turn := make(chan struct{}, fetchers)
	for _, same := range lacking {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			for _, it := range same { // the first brings it; the others find it, if their size is right
				if err := a.ensureBlob(ctx, client, it); err != nil {
					mu.Lock()
					missing[holdings.Key(it)] = err
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return missing
}

func (a *Agent) knows(kind string) bool {
	return a.opts.Appliers[kind] != nil || a.opts.Sets[kind] != nil
}

func (a *Agent) unknownKind(kind string) error {
	if slices.Contains(a.opts.SwitchedOff, kind) {
		return fmt.Errorf("this site does not take the kind %s; switch it on in edge.yaml", kind)
	}
	return fmt.Errorf("this agent (%s) does not know the kind %s; update the agent", a.opts.Version, kind)
}

// tellNotTaken says of each workload that a site without a cluster should hold why it is not
// there: whoever deployed to it would wait for ever.
func (a *Agent) tellNotTaken(next, old stored) {
	if !slices.Contains(a.opts.SwitchedOff, workload.Kind) {
		return
	}
	wanted := map[string]bool{}
	for _, it := range next.Items {
		if it.Kind == workload.Kind {
			wanted[it.Name] = true
			a.mirror.PutWorkload(&wire.WorkloadStatus{Name: it.Name, Wanted: it.Digest, State: string(workload.Failed), Reason: "NotTaken",
				Message: "this site takes no workloads: it is no Kubernetes cluster, or kubernetes.workloads is not set in its edge.yaml; leave it out of the virtual site, or switch them on"})
		}
	}
	for _, it := range old.Items {
		if it.Kind == workload.Kind && !wanted[it.Name] {
			a.mirror.Drop(wire.WorkloadKey(it.Name))
		}
	}
	if epoch, _ := a.mirror.Version(); epoch == "" && len(wanted) > 0 {
		a.mirror.Begin()
	}
}
