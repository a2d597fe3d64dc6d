package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	index "github.com/blevesearch/bleve_index_api"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/regional/logs/store"
)

const dayFormat = "2006.01.02"

// key of a shard.
type key struct {
	tenant string
	day    time.Time
}

// shard is one day of one tenant. The Store's lock guards refs, used, last and gone.
type shard struct {
	key  key
	dir  string
	refs int
	used int64
	last int64  // greatest stamp that may have been written since the process started
	gone string // where its files went when it was deleted

	opening sync.Mutex
	idx     index.Index // nil while closed; set under opening and the Store's lock

	writing sync.Mutex // one batch at a time: see write
	// unsure, under writing: a batch failed, and what it held may be in memory and not
	// on disk. See settle.
	unsure bool
}

// list finds the shards on disk, and removes what a crash left half deleted.
func (s *Store) list() error {
	tenants, err := os.ReadDir(s.root())
	if err != nil {
		return err
	}
	for _, t := range tenants {
		if store.CheckTenant(t.Name()) != nil {
			continue
		}
		days, err := os.ReadDir(filepath.Join(s.root(), t.Name()))
		if err != nil {
			return err
		}
		for _, d := range days {
			if strings.HasPrefix(d.Name(), ".deleted-") {
				_ = os.RemoveAll(filepath.Join(s.root(), t.Name(), d.Name()))
			} else if day, err := time.Parse(dayFormat, d.Name()); err == nil {
				s.addLocked(key{t.Name(), day})
			}
		}
	}
	return nil
}

func (s *Store) addLocked(k key) *shard {
	sh := &shard{key: k, dir: filepath.Join(s.root(), k.tenant, k.day.Format(dayFormat))}
	s.shards[k] = sh
	return sh
}

// keys of the tenant's shards whose day overlaps from ≤ t < to, newest first.
func (s *Store) keys(tenant string, from, to time.Time) []key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []key
	for k := range s.shards {
		if k.tenant == tenant && k.day.Before(to) && k.day.Add(24*time.Hour).After(from) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b key) int { return b.day.Compare(a.day) })
	return out
}

// acquire returns an open shard, which release must be called for. nil if there is
// none and create is not set.
func (s *Store) acquire(k key, create bool) (*shard, error) {
	s.mu.Lock()
	sh := s.shards[k]
	if sh == nil {
		if !create {
			s.mu.Unlock()
			return nil, nil
		}
		sh = s.addLocked(k)
	}
	sh.refs++
	s.uses++
	sh.used = s.uses
	s.mu.Unlock()
	if err := s.openShard(sh); err != nil {
		s.release(sh)
		return nil, err
	}
	return sh, nil
}

func (s *Store) openShard(sh *shard) error {
	sh.opening.Lock()
	defer sh.opening.Unlock()
	if sh.idx != nil {
		return nil
	}
	idx, err := s.openIndex(sh)
	if err != nil && !errors.Is(err, fs.ErrPermission) && !isOutOfSpace(err) {
		// A damaged shard must not stop the intake, and must not be thrown away either.
		aside := sh.dir + ".damaged-" + strconv.FormatInt(s.opts.Now().Unix(), 10)
		s.opts.Logger.Error("a shard of the log store can't be opened and is set aside; its records are not found any more", "shard", sh.dir, "moved_to", aside, "err", err)
		if rerr := (disk.OS{}).Rename(sh.dir, aside); rerr != nil {
			return fmt.Errorf("open shard %s: %w", sh.dir, errors.Join(err, rerr))
		}
		s.metrics.quarantined.Inc()
		idx, err = s.openIndex(sh)
	}
	if err != nil {
		return fmt.Errorf("open shard %s: %w", sh.dir, err)
	}
	s.mu.Lock()
	sh.idx = idx
	s.open++
	s.mu.Unlock()
	return nil
}

func (s *Store) openIndex(sh *shard) (idx index.Index, err error) {
	if err := disk.MkdirAll(disk.OS{}, sh.dir, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		// bleve's decoders panic on some damaged files.
		if r := recover(); r != nil {
			err = fmt.Errorf("damaged: %v", r)
		}
	}()
	return openScorch(sh.dir, s.analysis)
}

// release gives a shard back, and closes the least used ones over the limit.
func (s *Store) release(sh *shard) {
	s.mu.Lock()
	sh.refs--
	gone := sh.refs == 0 && sh.gone != ""
	s.mu.Unlock()
	if gone {
		s.remove(sh)
	}
	for {
		oldest := s.tooMany()
		if oldest == nil {
			return
		}
		if err := s.closeShard(oldest); err != nil {
			s.opts.Logger.Warn("close a shard of the log store", "shard", oldest.dir, "err", err)
		}
	}
}

// tooMany returns the shard to close next, if too many are open. There is none while
// all are in use: that many queries run then.
func (s *Store) tooMany() *shard {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open <= s.opts.MaxOpen {
		return nil
	}
	var oldest *shard
	for _, c := range s.shards {
		if c.refs == 0 && c.idx != nil && (oldest == nil || c.used < oldest.used) {
			oldest = c
		}
	}
	return oldest
}

// closeShard closes a shard unless somebody uses it again. It may take a while, in
// which nobody else has to wait: the Store's lock is free.
func (s *Store) closeShard(sh *shard) error {
	sh.opening.Lock()
	defer sh.opening.Unlock()
	s.mu.Lock()
	idx := sh.idx
	if sh.refs > 0 {
		idx = nil
	}
	if idx != nil {
		sh.idx = nil
		s.open--
	}
	s.mu.Unlock()
	if idx == nil {
		return nil
	}
	return idx.Close()
}

// delete takes a shard away: out of sight at once, off the disk when nobody reads it any more.
func (s *Store) delete(k key, reason string) error {
	s.mu.Lock()
	sh := s.shards[k]
	if sh == nil {
		s.mu.Unlock()
		return nil
	}
	gone := filepath.Join(filepath.Dir(sh.dir), fmt.Sprintf(".deleted-%s-%d", filepath.Base(sh.dir), s.opts.Now().UnixNano()))
	if err := (disk.OS{}).Rename(sh.dir, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.mu.Unlock()
		return err
	}
	sh.gone = gone
	delete(s.shards, k)
	s.metrics.deleted.WithLabelValues(reason).Inc()
	unused := sh.refs == 0
	s.mu.Unlock()
	if unused {
		s.remove(sh)
	}
	return nil
}

func (s *Store) remove(sh *shard) {
	_ = s.closeShard(sh)
	if err := os.RemoveAll(sh.gone); err != nil {
		s.opts.Logger.Warn("remove a deleted shard of the log store; tried again at the next start", "dir", sh.gone, "err", err)
	}
}

// readStamp returns a stamp that no earlier process has gone past, or 0.
func (s *Store) readStamp() int64 {
	data, err := os.ReadFile(filepath.Join(s.opts.Dir, "STAMP"))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// writeStamp keeps tails' cursors valid when the machine's clock is set back between
// two runs. Best effort: without it the clock alone decides.
func (s *Store) writeStamp(n int64) {
	_ = atomicfile.Write(filepath.Join(s.opts.Dir, "STAMP"), []byte(strconv.FormatInt(n, 10)+"\n"), 0o600)
}
