package status

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// saveEvery is how old the copy on disk may be. What came since, the regionals send again.
const saveEvery = 5 * time.Minute

const suffix = ".status"

func (s *Store) file(id fleet.SiteID) string {
	return filepath.Join(s.o.Dir, id.Tenant, id.Name+suffix)
}

func (s *Store) removeFile(id fleet.SiteID) {
	if s.o.Dir == "" {
		return
	}
	if err := os.Remove(s.file(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.o.Logger.Error("remove the status of a site that is gone", "site", id, "err", err)
	}
}

// Load reads the copy on disk. A file that can't be read costs a snapshot of its site, and
// is logged. To be called before the first Apply.
func (s *Store) Load() error {
	if s.o.Dir == "" {
		return nil
	}
	if err := disk.MkdirAll(disk.OS{}, s.o.Dir, 0o700); err != nil {
		return err
	}
	return filepath.WalkDir(s.o.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, suffix) {
			return err
		}
		id := fleet.SiteID{Tenant: filepath.Base(filepath.Dir(path)), Name: strings.TrimSuffix(d.Name(), suffix)}
		b, err := os.ReadFile(path)
		var m wire.KubernetesStatus
		if err == nil {
			err = errors.Join(proto.Unmarshal(b, &m), id.Validate())
		}
		if err == nil && !s.take(id, &m) {
			err = errors.New("it is not a snapshot")
		}
		if err != nil {
			s.o.Logger.Error("the status of a site on disk can't be read; it will be asked for", "file", path, "err", err)
		}
		return nil
	})
}

// take is Apply of a copy on disk, in which what had a namesake is shown as it was.
func (s *Store) take(id fleet.SiteID, m *wire.KubernetesStatus) bool {
	read := s.read(id, m)
	for i, it := range read {
		if shown := m.GetMirrored()[i].GetShown(); shown != "" && it.bytes != nil {
			it.name, it.renamed = shown, true
		}
	}
	return s.apply(id, m, read)
}

// collided has the copy of a site written soon: which of two was the first nobody knows after
// a restart.
func (s *Store) collided(st *site) {
	st.named = true
	select {
	case s.names <- struct{}{}:
	default:
	}
}

// Run keeps the copy on disk until ctx ends, and brings it up to date then.
func (s *Store) Run(ctx context.Context) error {
	if s.o.Dir == "" {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.Save()
		case <-s.names:
			if err := s.save(func(st *site) bool { return st.named }); err != nil {
				s.o.Logger.Error("keep by which names sites' pods are shown", "err", err)
			}
		case <-tick.C:
			if err := s.Save(); err != nil {
				s.o.Logger.Error("keep what sites report", "err", err)
			}
		}
	}
}

// Save writes what changed since it was written last, site by site.
func (s *Store) Save() error { return s.save(func(st *site) bool { return st.dirty }) }

func (s *Store) save(which func(*site) bool) error {
	s.mu.RLock()
	var ids []fleet.SiteID
	for id, st := range s.sites {
		if which(st) {
			ids = append(ids, id)
		}
	}
	s.mu.RUnlock()
	var failed error
	for _, id := range ids {
		m := s.snapshot(id)
		if m == nil {
			continue
		}
		b, err := proto.Marshal(m)
		if err == nil {
			if err = disk.MkdirAll(disk.OS{}, filepath.Dir(s.file(id)), 0o700); err == nil {
				err = atomicfile.Write(s.file(id), b, 0o600)
			}
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("status of site %s: %w", id, err))
			s.mu.Lock()
			if st := s.sites[id]; st != nil {
				st.dirty = true
			}
			s.mu.Unlock()
		}
	}
	return failed
}

// snapshot is all that is held of a site, as it would say it.
func (s *Store) snapshot(id fleet.SiteID) *wire.KubernetesStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.sites[id]
	if st == nil {
		return nil
	}
	epoch, seq := st.at.Version()
	if epoch == "" { // one is coming in
		return nil
	}
	st.dirty, st.named = false, false
	m := &wire.KubernetesStatus{Epoch: epoch, Seq: seq, Snapshot: true}
	for k, it := range st.items {
		o := &wire.Mirrored{Kind: kindNames[k.kind], Namespace: k.namespace, Name: k.name, Object: it.bytes}
		if it.renamed {
			o.Shown = it.name
		}
		m.Mirrored = append(m.Mirrored, o)
	}
	for _, w := range st.states {
		m.Workloads = append(m.Workloads, w)
	}
	return m
}
