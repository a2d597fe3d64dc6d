package spool

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// recoverLocked reads the directory: which segments there are, what they hold, and
// how much of it is done with. It writes nothing but removes files that are over.
func (s *Spool) recoverLocked() error {
	entries, err := s.fs.ReadDir(s.opts.Dir)
	if err != nil {
		return err
	}
	haveMark := s.loadAcks()
	var found []*segment
	for _, e := range entries {
		first, m, ok := parseSegName(e.Name())
		switch {
		case ok:
			found = append(found, &segment{path: filepath.Join(s.opts.Dir, e.Name()), marker: m, first: first, end: first})
		case strings.HasSuffix(e.Name(), segSuffix):
			s.log.Warn("dropping a file that is no segment of this version", "file", e.Name())
			_ = s.fs.Remove(filepath.Join(s.opts.Dir, e.Name()))
		}
	}
	slices.SortFunc(found, func(a, b *segment) int { return strings.Compare(a.path, b.path) }) // by number
	if !haveMark && len(found) > 0 {
		s.done.add(0, found[0].first)
	}
	saved, at, lost, torn := s.next, uint64(0), uint64(0), int64(0)
	for i, g := range found {
		// What has the number of a later file's first record was taken back. Two files
		// of one number: a power cut brought an empty one back.
		limit := ^uint64(0)
		for _, later := range found[i:] {
			if later.first > g.first {
				limit = later.first
				break
			}
		}
		g.first = max(g.first, at)
		missing, size, err := s.scanSegment(g, limit)
		if err != nil {
			return fmt.Errorf("%s: %w", g.path, err)
		}
		lost += s.missingLocked(at, g.first)
		for _, m := range missing {
			lost += s.missingLocked(m.from, m.to)
		}
		at = max(at, g.end)
		torn = size - g.size
		if g.end > g.first {
			s.segs = append(s.segs, g)
			s.diskBytes += g.size
			s.pending += g.pending
			s.pendBytes += g.pendBytes
		} else if err := s.fs.Remove(g.path); err != nil {
			return err
		}
	}
	s.next = max(saved, at, s.done.end())
	lost += s.missingLocked(at, s.next)
	s.synced = s.next
	s.counts.droppedBad += lost
	switch {
	case lost > 0:
		s.log.Error("records are lost: the disk has damaged or forgotten them", "records", lost)
	case torn > 0:
		s.log.Info("left out a half-written tail", "bytes", torn)
	}
	for _, g := range slices.Clone(s.segs) {
		if g.pending == 0 {
			s.removeLocked(g)
		}
	}
	s.pos = position{seq: s.done.next(0)}
	return s.peekLocked()
}

// scanSegment fills in what the file holds. The last file may have a torn tail, and
// is read whole.
func (s *Spool) scanSegment(g *segment, limit uint64) (missing []span, size int64, err error) {
	f, err := s.fs.OpenFile(g.path, os.O_RDONLY, 0)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	return g.scan(f, limit, limit == ^uint64(0), func(h recHeader) {
		if !s.done.has(h.seq) {
			g.pending++
			g.pendBytes += h.bytes()
		}
	})
}

// missingLocked is done with records that were queued and are in no file. It returns
// how many of them had not been delivered.
func (s *Spool) missingLocked(from, to uint64) uint64 {
	if from >= to {
		return 0
	}
	n := to - from - s.done.count(from, to)
	if n > 0 {
		s.done.add(from, to)
		s.ackDirty = true
	}
	return n
}
