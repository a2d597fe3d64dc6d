package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"muster.dev/muster/internal/atomicfile"
)

// stateFile is what must survive a restart and can't be read off the cluster. Without it
// everything is applied once more, and what was rolled back is tried once more.
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
	// RolledBack: this version failed, and the last good one is wanted instead.
	RolledBack bool   `json:"rolledBack,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Message    string `json:"message,omitempty"`
}

func newSaved() saved {
	return saved{Items: map[string]savedItem{}, Units: map[string]savedUnit{}}
}

// loadState reads the file; one that can't be read is as good as none.
func loadState(dir string) (saved, error) {
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return newSaved(), nil
	} else if err != nil {
		return newSaved(), err
	}
	return decodeState(b)
}

func decodeState(b []byte) (saved, error) {
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
	return s, nil
}

// state is saved with what the disk holds of it. It belongs to the worker.
type state struct {
	saved
	dir   string
	dirty bool
}

func (s *state) item(name string, it savedItem) {
	if s.Items[name] != it {
		s.Items[name], s.dirty = it, true
	}
}

func (s *state) unit(key string, u savedUnit) {
	if s.Units[key] != u {
		s.Units[key], s.dirty = u, true
	}
}

func (s *state) forget(items, units func(string) bool) {
	n := len(s.Items) + len(s.Units)
	maps.DeleteFunc(s.Items, func(k string, _ savedItem) bool { return !items(k) })
	maps.DeleteFunc(s.Units, func(k string, _ savedUnit) bool { return !units(k) })
	s.dirty = s.dirty || n != len(s.Items)+len(s.Units)
}

func (s *state) kind(name string) {
	if !s.Kinds[name] {
		if s.Kinds == nil {
			s.Kinds = map[string]bool{}
		}
		s.Kinds[name], s.dirty = true, true
	}
}

// save writes what changed.
func (s *state) save() error {
	if !s.dirty {
		return nil
	}
	b, err := json.Marshal(s.saved)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(s.dir, stateFile), b, 0o600); err != nil {
		return err
	}
	s.dirty = false
	return nil
}
