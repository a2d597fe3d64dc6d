package engine

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"muster.dev/muster/health"
	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/fleet"
)

// The state file: what must outlive a restart, so that colours don't flap, no
// "since" is lost, and series of what vanished meanwhile are ended.
//
//	magic  "musterhealth1\n"
//	crc32  Castagnoli of the rest, 4 bytes little-endian
//	body   gob of savedState
const (
	stateFile  = "state"
	stateMagic = "musterhealth1\n"
)

type savedState struct {
	Ticks   uint64
	Names   [][]string // signals of each model
	Sites   []savedSite
	Virtual []savedVirtual
	Left    []savedLeft
}

// savedLeft is a site that is gone.
type savedLeft struct {
	Tenant, Name string
	At           int64 // milliseconds since 1970
}

type savedSite struct {
	Tenant, Name string
	Home         string // name of the regional
	Seen         int64  // milliseconds since 1970
	Born, Before int64  // the same; 0: not known, and none
	Model        int    // position in Names; -1: no state
	State        health.Saved
	// What was written of it.
	Wrote   bool
	Region  string
	Live    [6]bool
	Members []string
}

type savedVirtual struct {
	Tenant, Key string
	Homes       []string
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// save writes the state file anew; a crash leaves the old one or the new one.
func (e *Engine) save(v *View, sites map[fleet.SiteID]*siteSeries, virtual map[[2]string]*virtualSeries) error {
	st := savedState{Ticks: v.Tick, Sites: make([]savedSite, 0, len(v.Sites))}
	models := map[*health.Model]int{}
	for _, s := range v.Sites {
		x := savedSite{Tenant: s.ID.Tenant, Name: s.ID.Name, Home: s.Home, Model: -1}
		if !s.LastSeen.IsZero() {
			x.Seen = s.LastSeen.UnixMilli()
		}
		x.Born, x.Before = millisOf(s.CreatedAt), millisOf(s.before)
		if s.State != nil {
			n, ok := models[s.State.Model]
			if !ok {
				n = len(st.Names)
				models[s.State.Model] = n
				st.Names = append(st.Names, s.State.Model.Names())
			}
			x.Model, x.State = n, s.State.Save(nil)
		}
		if w := sites[s.ID]; w != nil {
			x.Wrote, x.Region, x.Live = true, w.region, w.live
			for i := range w.members {
				x.Members = append(x.Members, w.members[i].key)
			}
		}
		st.Sites = append(st.Sites, x)
	}
	for id, at := range v.left {
		st.Left = append(st.Left, savedLeft{id.Tenant, id.Name, at.UnixMilli()})
	}
	for key, w := range virtual {
		if w.live {
			x := savedVirtual{Tenant: key[0], Key: key[1]}
			for _, h := range w.homes {
				x.Homes = append(x.Homes, e.opts.Regionals[h].Name)
			}
			st.Virtual = append(st.Virtual, x)
		}
	}
	return writeState(filepath.Join(e.opts.Dir, stateFile), &st)
}

func millisOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func ofMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func writeState(path string, st *savedState) error {
	var b bytes.Buffer
	b.WriteString(stateMagic + "\x00\x00\x00\x00")
	if err := gob.NewEncoder(&b).Encode(st); err != nil {
		return err
	}
	out := b.Bytes()
	head := len(stateMagic) + 4
	binary.LittleEndian.PutUint32(out[len(stateMagic):], crc32.Checksum(out[head:], castagnoli))
	return atomicfile.Write(path, out, 0o640)
}

func readState(r io.Reader) (*savedState, error) {
	head := make([]byte, len(stateMagic)+4)
	if _, err := io.ReadFull(r, head); err != nil || string(head[:len(stateMagic)]) != stateMagic {
		return nil, errors.New("it is no health state of this version")
	}
	body, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(head[len(stateMagic):]) {
		return nil, errors.New("its checksum is wrong")
	}
	var st savedState
	if err := gob.NewDecoder(bytes.NewReader(body)).Decode(&st); err != nil {
		return nil, err
	}
	return &st, nil
}

func (e *Engine) load() error {
	path := filepath.Join(e.opts.Dir, stateFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := readState(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	regional := map[string]int32{}
	for i, r := range e.opts.Regionals {
		regional[r.Name] = int32(i)
	}
	home := func(name string) int32 {
		if i, ok := regional[name]; ok {
			return i
		}
		return homeUnknown
	}
	e.ticks = st.Ticks
	for i := range st.Sites {
		x := &st.Sites[i]
		id := fleet.SiteID{Tenant: x.Tenant, Name: x.Name}
		m := &memory{id: id, home: home(x.Home), seen: ofMillis(x.Seen), born: ofMillis(x.Born), before: ofMillis(x.Before)}
		if x.Model >= 0 && x.Model < len(st.Names) {
			x.State.Names = st.Names[x.Model]
			if s, ok := x.State.Restore(); ok {
				m.state, m.link, m.since = s, s.Link, s.LinkSince
			}
		}
		e.mem[id] = m
		if x.Wrote {
			w := &siteSeries{region: x.Region, home: m.home, labels: scoreLabels(id, x.Region), live: x.Live}
			for _, key := range x.Members {
				w.members = append(w.members, memberSeries{key, memberLabels(id, key)})
			}
			e.writer.sites[id] = w
		}
	}
	for _, x := range st.Left {
		e.left[fleet.SiteID{Tenant: x.Tenant, Name: x.Name}] = ofMillis(x.At)
	}
	for _, x := range st.Virtual {
		w := &virtualSeries{labels: virtualLabels(x.Tenant, x.Key), live: true}
		for _, name := range x.Homes {
			if h := home(name); h != homeUnknown {
				w.homes = append(w.homes, h)
			}
		}
		e.writer.virtual[[2]string{x.Tenant, x.Key}] = w
	}
	return nil
}
