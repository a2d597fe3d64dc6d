package relay

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// desiredStore keeps the newest desired state of each site, also on disk, so that
// a regional that restarts while control is away still serves it.
type desiredStore struct {
	dir string
	log *slog.Logger

	mu    sync.Mutex
	sites map[fleet.SiteID]*wire.DesiredState
}

const desiredSuffix = ".desired"

// openDesired reads what is there. A file that can't be used is dropped: control
// sends the state again.
func openDesired(dir string, log *slog.Logger) *desiredStore {
	d := &desiredStore{dir: dir, log: log, sites: map[fleet.SiteID]*wire.DesiredState{}}
	files, _ := filepath.Glob(filepath.Join(dir, "*", "*"+desiredSuffix))
	for _, name := range files {
		base := filepath.Base(name)
		id := fleet.SiteID{Tenant: filepath.Base(filepath.Dir(name)), Name: base[:len(base)-len(desiredSuffix)]}
		b, err := os.ReadFile(name)
		var st wire.DesiredState
		if err == nil {
			err = proto.Unmarshal(b, &st)
		}
		if err == nil && (id.Validate() != nil || st.Revision != wire.RevisionOf(st.Items)) {
			err = errors.New("the revision does not match the items")
		}
		if err != nil {
			log.Warn("dropping a cached desired state", "file", name, "err", err)
			_ = os.Remove(name)
			continue
		}
		d.sites[id] = &st
	}
	return d
}

func (d *desiredStore) path(id fleet.SiteID) string {
	return filepath.Join(d.dir, id.Tenant, id.Name+desiredSuffix)
}

func (d *desiredStore) get(id fleet.SiteID) *wire.DesiredState {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sites[id]
}

func (d *desiredStore) len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.sites)
}

// set takes a state. The id must be valid: it becomes a file name. A failed write
// only costs the state after a restart.
func (d *desiredStore) set(id fleet.SiteID, st *wire.DesiredState) {
	d.mu.Lock()
	old := d.sites[id]
	d.sites[id] = st
	d.mu.Unlock()
	if old != nil && old.Revision == st.Revision {
		return
	}
	if err := d.save(id, st); err != nil {
		d.log.Warn("a desired state could not be cached on disk", "site", id, "err", err)
	}
}

// save does not sync: a file that power loss tore is dropped at the next start, and
// a change for every site must not cost thousands of syncs.
func (d *desiredStore) save(id fleet.SiteID, st *wire.DesiredState) error {
	b, err := proto.Marshal(st)
	if err != nil {
		return err
	}
	path := d.path(id)
	if err := disk.MkdirAll(disk.OS{}, filepath.Dir(path), 0o750); err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, b, 0o640); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

func (d *desiredStore) remove(id fleet.SiteID) {
	d.mu.Lock()
	delete(d.sites, id)
	d.mu.Unlock()
	if err := os.Remove(d.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Warn("a cached desired state could not be removed", "site", id, "err", err)
	}
}

// denyList is the revoked sites. It is on disk, so that a restart without control
// lets nobody back in.
type denyList struct {
	file string

	mu    sync.RWMutex
	sites map[string]denial // by SiteID.String
}

type denial struct {
	Reason string `json:"reason"`
	// IssuedBefore: only certificates whose life began earlier are refused. Zero: all.
	IssuedBefore time.Time `json:"issuedBefore,omitzero"`
}

func openDenied(file string) (*denyList, error) {
	d := &denyList{file: file, sites: map[string]denial{}}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &d.sites)
	}
	if err != nil {
		// To start without it would let revoked sites in again.
		return nil, fmt.Errorf("revoked sites: %s: %w; remove the file only if control is up, which repeats them", file, err)
	}
	return d, nil
}

func (d *denyList) len() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.sites)
}

func (d *denyList) add(id fleet.SiteID, reason string, before time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	entry := denial{Reason: reason, IssuedBefore: before}
	if d.sites[id.String()] == entry {
		return nil
	}
	d.sites[id.String()] = entry
	b, err := json.Marshal(d.sites)
	if err != nil {
		return err
	}
	return atomicfile.Write(d.file, b, 0o640)
}

func (d *denyList) check(id fleet.SiteID, cert *x509.Certificate) (string, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if len(d.sites) == 0 {
		return "", false
	}
	e, ok := d.sites[id.String()]
	if !ok || (!e.IssuedBefore.IsZero() && cert != nil && !cert.NotBefore.Before(e.IssuedBefore)) {
		return "", false
	}
	return e.Reason, true
}
