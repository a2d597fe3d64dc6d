// Package revoked is the list of sites whose certificates are refused: control's, which tells
// regionals, and each regional's, which goes by it. It is on disk, so that a restart lets
// nobody back in.
//
// An entry counts at once and is written behind, together with those that come meanwhile:
// nothing that asks the list waits for a disk, however fast a tenant makes sites and deletes
// them. It decides nothing about who is revoked.
package revoked

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/journal"
)

// UnknownLife is for how long a site is refused of whose certificates it is not known how
// long they last.
const UnknownLife = 48 * time.Hour

// MaxPerTenant is how many entries of one tenant are kept. With more, those go that would have
// gone first: the tenant's own sites, which are told that they don't exist when they connect.
const MaxPerTenant = 20_000

// tryAgain is when what could not be written is written again.
const tryAgain = time.Second

// Entry is why a site is refused, and for how long.
type Entry struct {
	Reason string `json:"reason"`
	// IssuedBefore: only certificates whose life began earlier are refused. Zero: all.
	IssuedBefore time.Time `json:"issuedBefore,omitzero"`
	// Until the last certificate that was issued before is over.
	Until time.Time `json:"until,omitzero"`
}

// List is safe for concurrent use.
type List struct {
	wake chan struct{}

	saving sync.Mutex
	file   *journal.File // nil: in memory alone

	mu      sync.RWMutex
	sites   map[fleet.SiteID]Entry
	tenants map[string]int // entries
	unsaved map[fleet.SiteID]bool
}

// Open reads the list, and leaves out what is over by now. An empty name is a list in memory.
func Open(name string, perm fs.FileMode, now time.Time) (*List, error) {
	l := &List{wake: make(chan struct{}, 1), sites: map[fleet.SiteID]Entry{}, tenants: map[string]int{}, unsaved: map[fleet.SiteID]bool{}}
	if name == "" {
		return l, nil
	}
	l.file = journal.New(disk.OS{}, name, perm)
	whole, changes, err := l.file.Load()
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	for _, part := range append([][]byte{whole}, changes...) {
		var entries map[string]Entry
		if err := json.Unmarshal(part, &entries); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for text, e := range entries {
			id, err := fleet.ParseSiteID(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if e.Until.IsZero() { // written by an earlier version
				e.Until = now.Add(UnknownLife)
			}
			l.setLocked(id, e)
		}
	}
	l.Prune(now)
	return l, nil
}

// Add takes an entry in, which counts from now on.
func (l *List) Add(id fleet.SiteID, e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sites[id] == e {
		return
	}
	if _, is := l.sites[id]; !is && l.tenants[id.Tenant] >= MaxPerTenant {
		l.makeRoomLocked(id.Tenant)
	}
	l.setLocked(id, e)
	if l.file == nil {
		return
	}
	l.unsaved[id] = true
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *List) setLocked(id fleet.SiteID, e Entry) {
	if _, is := l.sites[id]; !is {
		l.tenants[id.Tenant]++
	}
	l.sites[id] = e
}

func (l *List) removeLocked(id fleet.SiteID) {
	delete(l.sites, id)
	delete(l.unsaved, id)
	if l.tenants[id.Tenant]--; l.tenants[id.Tenant] == 0 {
		delete(l.tenants, id.Tenant)
	}
}

// makeRoomLocked drops a tenth of a tenant's entries, so that it is rare.
func (l *List) makeRoomLocked(tenant string) {
	var own []fleet.SiteID
	for id := range l.sites {
		if id.Tenant == tenant {
			own = append(own, id)
		}
	}
	slices.SortFunc(own, func(a, b fleet.SiteID) int {
		return cmp.Or(l.sites[a].Until.Compare(l.sites[b].Until), cmp.Compare(a.Name, b.Name))
	})
	for _, id := range own[:len(own)/10] {
		l.removeLocked(id)
	}
}

// Prune drops what is over.
func (l *List) Prune(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, e := range l.sites {
		if !now.Before(e.Until) {
			l.removeLocked(id)
		}
	}
}

// Get returns the entry of a site.
func (l *List) Get(id fleet.SiteID) (Entry, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	e, ok := l.sites[id]
	return e, ok
}

// Check tells whether a site's certificate is refused, and why. Without one, the site is.
func (l *List) Check(id fleet.SiteID, cert *x509.Certificate) (reason string, refused bool) {
	e, ok := l.Get(id)
	if !ok || (!e.IssuedBefore.IsZero() && cert != nil && !cert.NotBefore.Before(e.IssuedBefore)) {
		return "", false
	}
	return e.Reason, true
}

// All returns a copy.
func (l *List) All() map[fleet.SiteID]Entry {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return maps.Clone(l.sites)
}

// Len is how many there are.
func (l *List) Len() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.sites)
}

// Run writes what is added until ctx ends, and then what came meanwhile. failed hears of each
// attempt that fails; it is tried again.
func (l *List) Run(ctx context.Context, failed func(error)) {
	for over := false; !over; {
		select {
		case <-ctx.Done():
		case <-l.wake:
		}
		over = ctx.Err() != nil // asked before save: what is added while it writes is due again
		for {
			err := l.save()
			if err == nil {
				break
			}
			failed(err)
			if over {
				return
			}
			t := time.NewTimer(tryAgain)
			select {
			case <-t.C:
			case <-ctx.Done():
			}
			t.Stop()
			over = ctx.Err() != nil
		}
	}
}

// save writes what was added since the last time.
func (l *List) save() error {
	l.saving.Lock()
	defer l.saving.Unlock()
	l.mu.Lock()
	due := l.unsaved
	l.unsaved = map[fleet.SiteID]bool{}
	entries := make(map[string]Entry, len(due))
	for id := range due {
		entries[id.String()] = l.sites[id]
	}
	l.mu.Unlock()
	if len(due) == 0 {
		return nil
	}
	line, err := json.Marshal(entries)
	if err == nil {
		err = l.file.Write(line, l.whole)
	}
	if err != nil {
		l.mu.Lock()
		for id := range due {
			if _, still := l.sites[id]; still {
				l.unsaved[id] = true
			}
		}
		l.mu.Unlock()
	}
	return err
}

func (l *List) whole() ([]byte, error) {
	all := l.All()
	entries := make(map[string]Entry, len(all))
	for id, e := range all {
		entries[id.String()] = e
	}
	return json.Marshal(entries)
}
