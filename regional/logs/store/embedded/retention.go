package embedded

import (
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"muster.dev/muster/regional/logs/store"
)

const retentionInterval = time.Minute

func (s *Store) retentionLoop() {
	tick := time.NewTicker(retentionInterval)
	defer tick.Stop()
	for {
		if err := s.Retain(); err != nil {
			s.opts.Logger.Warn("retention of the log store", "err", err)
		}
		select {
		case <-s.closing:
			return
		case <-tick.C:
		}
	}
}

// Retain deletes the days that are past the retention. For as long as the store is over its
// size cap it then deletes the oldest day of the tenant that holds most, down to what would
// be each one's equal share. The newest day is not deleted for size before it is over: a tenant
// that is over its share with that alone may not write, and the others notice nothing. It
// runs by itself once a minute.
func (s *Store) Retain() error {
	s.writeStamp(s.clock.Horizon())
	now := s.opts.Now()
	oldest := store.Day(now.Add(-s.opts.Retention))
	s.mu.Lock()
	keys := make([]key, 0, len(s.shards))
	dirs := map[key]string{}
	for k, sh := range s.shards {
		keys = append(keys, k)
		dirs[k] = sh.dir
	}
	s.mu.Unlock()
	slices.SortFunc(keys, func(a, b key) int { return a.day.Compare(b.day) })
	var errs []error
	held := map[string]*holding{}
	total := int64(0)
	for _, k := range keys {
		if k.day.Before(oldest) {
			errs = append(errs, s.delete(k, "age"))
			continue
		}
		h := held[k.tenant]
		if h == nil {
			h = &holding{}
			held[k.tenant] = h
		}
		n := dirSize(dirs[k])
		h.days, h.sizes, h.size = append(h.days, k), append(h.sizes, n), h.size+n
		total += n
	}
	today := store.Day(now)
	for s.opts.MaxBytes > 0 && total > s.opts.MaxBytes {
		h := most(held, shareOf(held, s.opts.MaxBytes), today)
		if h == nil {
			break
		}
		k := h.days[0]
		s.opts.Logger.Warn("the log store is over its size cap: the oldest day of a tenant that holds most is deleted", "cap_bytes", s.opts.MaxBytes, "bytes", total, "tenant", k.tenant, "day", k.day.Format(time.DateOnly))
		errs = append(errs, s.delete(k, "size"))
		total -= h.sizes[0]
		h.size -= h.sizes[0]
		h.days, h.sizes = h.days[1:], h.sizes[1:]
	}
	over := map[string]bool{}
	if s.opts.MaxBytes > 0 && total > s.opts.MaxBytes {
		share := shareOf(held, s.opts.MaxBytes)
		for tenant, h := range held {
			if h.size > share {
				over[tenant] = true
			}
		}
	}
	s.over.Store(&over)
	s.nobody.Store(len(over) > 0 && len(over) == len(held))
	s.metrics.bytes.Set(float64(total))
	return errors.Join(errs...)
}

// holding is what a tenant has in the store.
type holding struct {
	days  []key // oldest first
	sizes []int64
	size  int64
}

// shareOf is how much each tenant may have of the cap: those that have less leave the rest to
// the others in equal parts.
func shareOf(held map[string]*holding, limit int64) int64 {
	sizes := make([]int64, 0, len(held))
	for _, h := range held {
		sizes = append(sizes, h.size)
	}
	slices.Sort(sizes)
	for i, n := range sizes {
		share := limit / int64(len(sizes)-i)
		if n > share {
			return share
		}
		limit -= n
	}
	return math.MaxInt64
}

// most returns the tenant that holds most, is over the share and has a day to delete; nil:
// there is none.
func most(held map[string]*holding, share int64, today time.Time) (found *holding) {
	for _, h := range held {
		if h.size <= share || len(h.days) == 0 || len(h.days) == 1 && !h.days[0].day.Before(today) {
			continue
		}
		if found == nil || h.size > found.size || h.size == found.size && h.days[0].tenant < found.days[0].tenant {
			found = h
		}
	}
	return found
}

func dirSize(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // merged away while we look
		}
		if fi, err := d.Info(); err == nil {
			total += fi.Size()
		}
		return nil
	})
	return total
}

func isOutOfSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}
