package embedded

import (
	"errors"
	"io/fs"
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

// Retain deletes the days that are past the retention, then the oldest days for as
// long as the store is over its size cap. The newest day is never deleted for size: with that
// alone over the cap, Write asks for retries instead. It runs by itself once a minute.
func (s *Store) Retain() error {
	s.writeStamp(s.clock.Horizon())
	oldest := store.Day(s.opts.Now().Add(-s.opts.Retention))
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
	sizes := map[key]int64{}
	var total int64
	kept := keys[:0]
	for _, k := range keys {
		if k.day.Before(oldest) {
			errs = append(errs, s.delete(k, "age"))
			continue
		}
		sizes[k] = dirSize(dirs[k])
		total += sizes[k]
		kept = append(kept, k)
	}
	for s.opts.MaxBytes > 0 && total > s.opts.MaxBytes && len(kept) > 0 && kept[0].day.Before(kept[len(kept)-1].day) {
		s.opts.Logger.Warn("the log store is over its size cap: its oldest day is deleted", "cap_bytes", s.opts.MaxBytes, "bytes", total, "tenant", kept[0].tenant, "day", kept[0].day.Format(time.DateOnly))
		errs = append(errs, s.delete(kept[0], "size"))
		total -= sizes[kept[0]]
		kept = kept[1:]
	}
	s.full.Store(s.opts.MaxBytes > 0 && total > s.opts.MaxBytes)
	s.metrics.bytes.Set(float64(total))
	return errors.Join(errs...)
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
