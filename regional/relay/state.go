package relay

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// desiredStore keeps the newest desired state of each site, also on disk, so that a
// regional that restarts while control is away still serves it. Sites that should hold
// the same share one state, in memory and in the file.
//
// The file is written whole, a moment after a change: a change for thousands of sites is
// one write. A regional that is killed in that moment, and starts while control is away,
// tells sites what they should have held before, until control is back.
type desiredStore struct {
	file string
	log  *slog.Logger
	wake chan struct{}

	mu    sync.Mutex
	sites map[fleet.SiteID]*wire.DesiredState
	sets  map[string]*sharedSet // by revision
	dirty bool
}

type sharedSet struct {
	state *wire.DesiredState
	sites int
}

const (
	saveEvery = time.Second // at most
	saveAgain = 30 * time.Second
)

// openDesired reads what is there. What can't be used is dropped: control sends it again.
func openDesired(file string, log *slog.Logger) *desiredStore {
	d := &desiredStore{file: file, log: log, wake: make(chan struct{}, 1), sites: map[fleet.SiteID]*wire.DesiredState{}, sets: map[string]*sharedSet{}}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return d
	}
	var saved *wire.SavedDesired
	if err == nil {
		saved, err = decodeSaved(b)
	}
	if err != nil {
		log.Warn("what sites should hold can't be read; they keep what they have until control sends it again", "file", file, "err", err)
		return d
	}
	for _, set := range saved.Sets {
		for _, s := range set.Sites {
			d.setLocked(fleet.SiteID{Tenant: s.Tenant, Name: s.Site}, set.Desired)
		}
	}
	d.dirty = false
	return d
}

// decodeSaved parses and checks the file.
func decodeSaved(b []byte) (*wire.SavedDesired, error) {
	saved := &wire.SavedDesired{}
	if err := proto.Unmarshal(b, saved); err != nil {
		return nil, err
	}
	for _, set := range saved.Sets {
		if set.GetDesired().GetRevision() != wire.RevisionOf(set.GetDesired().GetItems()) {
			return nil, errors.New("a revision does not match its items")
		}
		for _, s := range set.Sites {
			if err := (fleet.SiteID{Tenant: s.GetTenant(), Name: s.GetSite()}).Validate(); err != nil {
				return nil, err
			}
		}
	}
	return saved, nil
}

// run writes what changes until ctx ends, and then once more.
func (d *desiredStore) run(ctx context.Context) {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for pause := saveEvery; ; {
		select {
		case <-ctx.Done():
		case <-d.wake:
			t.Reset(pause) // more is likely to come
			select {
			case <-ctx.Done():
			case <-t.C:
			}
		}
		pause = saveEvery
		if err := d.save(); err != nil {
			d.log.Warn("what sites should hold could not be saved; a restart without control goes on with what was saved before", "again", saveAgain, "err", err)
			pause = saveAgain
			d.poke()
		}
		if ctx.Err() != nil {
			return
		}
	}
}

func (d *desiredStore) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// save writes the file if something changed since it was written.
func (d *desiredStore) save() error {
	d.mu.Lock()
	if !d.dirty {
		d.mu.Unlock()
		return nil
	}
	d.dirty = false
	sets := map[string]*wire.SitesDesired{}
	for id, st := range d.sites {
		set := sets[st.Revision]
		if set == nil {
			set = &wire.SitesDesired{Desired: st}
			sets[st.Revision] = set
		}
		set.Sites = append(set.Sites, &wire.SiteName{Tenant: id.Tenant, Site: id.Name})
	}
	d.mu.Unlock()
	b, err := proto.Marshal(&wire.SavedDesired{Sets: slices.Collect(maps.Values(sets))})
	if err == nil {
		err = atomicfile.Write(d.file, b, 0o640)
	}
	if err != nil {
		d.mu.Lock()
		d.dirty = true
		d.mu.Unlock()
	}
	return err
}

func (d *desiredStore) get(id fleet.SiteID) *wire.DesiredState {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sites[id]
}

// tenants tells of each blob that a site should hold whose site that is; of several tenants,
// the first by name.
func (d *desiredStore) tenants() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	byRevision := map[string]string{}
	for id, st := range d.sites {
		if t, ok := byRevision[st.Revision]; !ok || id.Tenant < t {
			byRevision[st.Revision] = id.Tenant
		}
	}
	out := map[string]string{}
	for revision, tenant := range byRevision {
		for _, it := range d.sets[revision].state.GetItems() {
			if t, ok := out[it.GetDigest()]; !ok || tenant < t {
				out[it.GetDigest()] = tenant
			}
		}
	}
	return out
}

func (d *desiredStore) len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.sites)
}

// set takes a state of a site, whose id must be valid, and returns the one that all sites
// share that hold the same.
func (d *desiredStore) set(id fleet.SiteID, st *wire.DesiredState) *wire.DesiredState {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.setLocked(id, st)
}

func (d *desiredStore) setLocked(id fleet.SiteID, st *wire.DesiredState) *wire.DesiredState {
	old := d.sites[id]
	if old != nil && old.Revision == st.Revision {
		return old
	}
	set := d.sets[st.Revision]
	if set == nil {
		set = &sharedSet{state: st}
		d.sets[st.Revision] = set
	}
	set.sites++
	d.sites[id] = set.state
	d.releaseLocked(old)
	d.changedLocked()
	return set.state
}

func (d *desiredStore) releaseLocked(st *wire.DesiredState) {
	if st == nil {
		return
	}
	if set := d.sets[st.Revision]; set.sites > 1 {
		set.sites--
	} else {
		delete(d.sets, st.Revision)
	}
}

func (d *desiredStore) changedLocked() {
	d.dirty = true
	d.poke()
}

func (d *desiredStore) remove(id fleet.SiteID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.sites[id]; old != nil {
		delete(d.sites, id)
		d.releaseLocked(old)
		d.changedLocked()
	}
}
