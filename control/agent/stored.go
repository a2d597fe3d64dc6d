package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/holdings"
	"muster.dev/muster/internal/journal"
	"muster.dev/muster/internal/wire"
)

// stored is desired.json.
type stored struct {
	Revision string       `json:"revision"`
	Items    []storedItem `json:"items"`
	// Good is the digest that was last applied with success, by kind/name.
	Good map[string]string `json:"good,omitempty"`
}

type storedItem struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

func (s stored) state() *wire.DesiredState {
	state := &wire.DesiredState{Revision: s.Revision}
	for _, it := range s.Items {
		state.Items = append(state.Items, it.wire())
	}
	return state
}

func (it storedItem) key() string { return it.Kind + "/" + it.Name }
func (it storedItem) wire() *wire.Item {
	return &wire.Item{Kind: it.Kind, Name: it.Name, Digest: it.Digest, Size: it.Size}
}

// storedChange is a line of the changes beside desired.json.
type storedChange struct {
	// Items is a wire.DesiredChange; absent: they stay.
	Items []byte `json:"items,omitempty"`
	// Good has what is other in that of stored; an empty digest: nothing any more.
	Good map[string]string `json:"good,omitempty"`
}

// changeOf is how s becomes next, for the journal; nil: the whole is as well written.
func changeOf(s, next stored) []byte {
	var c storedChange
	if s.Revision != next.Revision {
		items := wire.ChangeBetween(s.state(), next.state())
		if items == nil {
			return nil
		}
		b, err := proto.Marshal(items)
		if err != nil {
			return nil
		}
		c.Items = b
	}
	for k, digest := range next.Good {
		if s.Good[k] != digest {
			c.good(k, digest)
		}
	}
	for k := range s.Good {
		if _, ok := next.Good[k]; !ok {
			c.good(k, "")
		}
	}
	b, err := json.Marshal(c)
	if err != nil {
		return nil
	}
	return b
}

func (c *storedChange) good(key, digest string) {
	if c.Good == nil {
		c.Good = map[string]string{}
	}
	c.Good[key] = digest
}

// loadStored reads desired.json and what changed since; what is damaged is set aside.
func (a *Agent) loadStored() error {
	d := &a.desired
	d.file = journal.New(disk.OS{}, filepath.Join(a.opts.Dir, desiredFile), 0o600)
	b, changes, err := d.file.Load()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("agent state: %w", err)
	}
	held, state, err := decodeStored(b, changes, a.opts.MaxBlob)
	if err != nil {
		a.opts.Logger.Warn("the stored desired state can't be used; waiting for a new one", "err", err)
		d.file = journal.New(disk.OS{}, filepath.Join(a.opts.Dir, desiredFile), 0o600) // to be replaced
		return nil
	}
	d.held, d.target = held, state
	d.poke()
	return nil
}

// decodeStored puts what is on the disk together, and checks what comes of it.
func decodeStored(b []byte, changes [][]byte, maxBlob int64) (stored, *wire.DesiredState, error) {
	fail := func(err error) (stored, *wire.DesiredState, error) {
		return stored{}, nil, fmt.Errorf("stored desired state: %w", err)
	}
	var s stored
	if err := json.Unmarshal(b, &s); err != nil {
		return fail(err)
	}
	if s.Good == nil {
		s.Good = map[string]string{}
	}
	state := s.state()
	for _, line := range changes {
		var c storedChange
		if err := json.Unmarshal(line, &c); err != nil {
			return fail(err)
		}
		maps.Copy(s.Good, c.Good)
		if c.Items == nil {
			continue
		}
		var change wire.DesiredChange
		if err := proto.Unmarshal(c.Items, &change); err != nil {
			return fail(err)
		}
		items, err := wire.Spliced(state.Items, change.Splices)
		if err != nil {
			return fail(err)
		}
		state = &wire.DesiredState{Revision: change.Revision, Items: items} // the last one's is verified
	}
	if err := validate(state, maxBlob); err != nil {
		return stored{}, nil, err
	}
	s.Revision, s.Items = state.Revision, nil
	for _, it := range state.Items {
		s.Items = append(s.Items, storedItem{it.Kind, it.Name, it.Digest, it.Size})
	}
	for k, digest := range s.Good {
		if !holdings.IsDigest(digest) {
			delete(s.Good, k)
		}
	}
	return s, state, nil
}

// store writes down what is held from now on. Of a long list what is other in it than before
// is written.
func (a *Agent) store(s stored) error {
	d := &a.desired
	d.mu.Lock()
	old := d.held
	d.mu.Unlock()
	if err := d.file.Write(changeOf(old, s), func() ([]byte, error) { return json.Marshal(s) }); err != nil {
		return fmt.Errorf("store the desired state: %w", err)
	}
	d.mu.Lock()
	d.held = s
	d.mu.Unlock()
	return nil
}
