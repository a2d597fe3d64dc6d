package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/journal"
)

// stateFile is what must survive a restart and can't be read off the cluster. Without it
// everything is applied once more, but for what was rolled back: that stands as it is.
const stateFile = "kubernetes.json"

type saved struct {
	// Items by name: what was applied last.
	Items map[string]savedItem `json:"items"`
	// Units by key: what is under way, or was given up.
	Units map[string]savedUnit `json:"units"`
	// Kinds, as KIND.VERSION.GROUP, of which there may be objects to remove. Absent: not
	// known, the cluster is searched.
	Kinds map[string]bool `json:"kinds"`
}

type savedItem struct {
	Digest string `json:"digest"`
	// Fields digests the fields that were applied; another value means drift.
	Fields uint64 `json:"fields"`
}

type savedUnit struct {
	Version string    `json:"version"` // of the unit
	Since   time.Time `json:"since"`   // when it was applied first
	// Waited is how long it has not been ready since, while the agent ran and the API server
	// answered, as it was last written down.
	Waited time.Duration `json:"waited,omitempty"`
	// RolledBack: this version failed, and the last good one is wanted instead.
	RolledBack bool `json:"rolledBack,omitempty"`
	// Refused names the item that the API server refused when others of the unit were
	// changed already: the last good version is wanted until all of it is tried again.
	Refused string `json:"refused,omitempty"`
	Reason  string `json:"reason,omitempty"` // of either
	Message string `json:"message,omitempty"`
	// Stands: it was rolled back before all else was forgotten. By the objects that say so
	// it is known, and nothing of it is touched until another version is wanted.
	Stands bool `json:"stands,omitempty"`
}

func newSaved() saved {
	return saved{Items: map[string]savedItem{}, Units: map[string]savedUnit{}}
}

// savedChange is a line of the changes beside stateFile: what is other, and null for what is
// there no more.
type savedChange struct {
	Items map[string]*savedItem `json:"items,omitempty"`
	Units map[string]*savedUnit `json:"units,omitempty"`
	Kinds map[string]bool       `json:"kinds,omitempty"` // false: none of it any more
}

// loadState reads what is in dir; what can't be read is as good as nothing.
func loadState(dir string) (*state, error) {
	s := newState(dir)
	b, changes, err := s.file.Load()
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		s.saved, err = decodeState(b, changes)
	}
	if err != nil {
		return newState(dir), err
	}
	return s, nil
}

func decodeState(b []byte, changes [][]byte) (saved, error) {
	s := newSaved()
	if err := json.Unmarshal(b, &s); err != nil {
		return newSaved(), fmt.Errorf("%s: %w", stateFile, err)
	}
	// null in the file is a nil map here.
	if s.Items == nil {
		s.Items = map[string]savedItem{}
	}
	if s.Units == nil {
		s.Units = map[string]savedUnit{}
	}
	for _, line := range changes {
		var c savedChange
		if err := json.Unmarshal(line, &c); err != nil {
			return newSaved(), fmt.Errorf("%s: %w", stateFile, err)
		}
		replay(s.Items, c.Items)
		replay(s.Units, c.Units)
		for name, is := range c.Kinds {
			if s.Kinds == nil {
				s.Kinds = map[string]bool{}
			}
			if s.Kinds[name] = true; !is {
				delete(s.Kinds, name)
			}
		}
	}
	return s, nil
}

func replay[V any](to map[string]V, changes map[string]*V) {
	for k, v := range changes {
		if v == nil {
			delete(to, k)
		} else {
			to[k] = *v
		}
	}
}

// state is saved, and what of it is not on the disk yet. It belongs to the worker.
type state struct {
	saved
	file   *journal.File
	change savedChange
}

func newState(dir string) *state {
	s := &state{saved: newSaved(), file: journal.New(disk.OS{}, filepath.Join(dir, stateFile), 0o600)}
	s.written()
	return s
}

func (s *state) written() {
	s.change = savedChange{Items: map[string]*savedItem{}, Units: map[string]*savedUnit{}, Kinds: map[string]bool{}}
}

func (s *state) item(name string, it savedItem) {
	if s.Items[name] != it {
		s.Items[name], s.change.Items[name] = it, &it
	}
}

func (s *state) unit(key string, u savedUnit) {
	if s.Units[key] != u {
		s.Units[key], s.change.Units[key] = u, &u
	}
}

func (s *state) forgetUnit(key string) {
	if _, there := s.Units[key]; there {
		delete(s.Units, key)
		s.change.Units[key] = nil
	}
}

// keep forgets all other items and units.
func (s *state) keep(items, units func(string) bool) {
	for name := range s.Items {
		if !items(name) {
			delete(s.Items, name)
			s.change.Items[name] = nil
		}
	}
	for key := range s.Units {
		if !units(key) {
			s.forgetUnit(key)
		}
	}
}

func (s *state) kind(name string) {
	if !s.Kinds[name] {
		if s.Kinds == nil {
			s.Kinds = map[string]bool{}
		}
		s.Kinds[name], s.change.Kinds[name] = true, true
	}
}

func (s *state) forgetKind(name string) {
	if s.Kinds[name] {
		delete(s.Kinds, name)
		s.change.Kinds[name] = false
	}
}

// save writes what changed.
func (s *state) save() error {
	if len(s.change.Items)+len(s.change.Units)+len(s.change.Kinds) == 0 {
		return nil
	}
	change, err := json.Marshal(s.change)
	if err != nil {
		return err
	}
	if err := s.file.Write(change, func() ([]byte, error) { return json.Marshal(s.saved) }); err != nil {
		return err
	}
	s.written()
	return nil
}
