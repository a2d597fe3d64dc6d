// Package diskshare says whose new data a disk takes that is nearly full: the more of what
// came lately is a tenant's, the earlier it waits, so that who fills a disk does not stop the
// others. Nothing that is stored goes for it.
//
// What came lately is kept beside the data, so that who filled the disk does not begin anew
// with each restart, which a full disk makes likely.
//
// It counts and decides; who refuses, and tells the sender to come again, are the gateway of a
// regional and the metric store.
package diskshare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
)

// Every is how often the disk is looked at, and what came is forgotten by a fiftieth: it is
// known of some ten minutes.
const (
	Every  = 10 * time.Second
	forget = 0.98
)

// What came is written every saveEvery looks, and at each while the disk is nearly full: a
// crash forgets no more than what came since. fileName is where.
const (
	saveEvery = 6
	fileName  = "diskshare.json"
)

// A disk is nearly full when so little is free: a twentieth of it, and no more than maxMark
// bytes.
const (
	markPart = 20
	maxMark  = 2 << 30
)

// Pause is the least after which a sender comes back whose data had to wait.
const Pause = 30 * time.Second

// Shares are those of the tenants of one disk; nil takes everybody's. Safe for concurrent use.
type Shares struct {
	space func() (free, total int64, err error)

	mu     sync.Mutex
	recent map[string]float64
	sum    float64
	free   int64
	mark   int64 // 0: not known

	// What follows belongs to Run.
	file  string // "": nothing is kept
	looks int
}

// New returns shares of a disk whose space is asked for by Look. reg, which may be nil, gets a
// gauge that says whether it is nearly full.
func New(space func() (free, total int64, err error), reg prometheus.Registerer) *Shares {
	s := &Shares{space: space, recent: map[string]float64{}}
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_disk_nearly_full", Help: "1: the disk of samples is nearly full, so that those of the tenants that send most wait."}, func() float64 {
		if s.Low() {
			return 1
		}
		return 0
	})
	return s
}

// Of returns shares of the disk that a directory is on, in which what came lately is kept. A
// file of it that can't be read is an error to tell; the shares begin without it.
func Of(dir string, reg prometheus.Registerer) (*Shares, error) {
	s := New(func() (int64, int64, error) { return disk.OS{}.Space(dir) }, reg)
	s.file = filepath.Join(dir, fileName)
	err := s.load()
	s.Look() // not to be open until Run begins
	return s, err
}

// load reads what came before a restart. A restart is not time: what came is as it was.
func (s *Shares) load() error {
	b, err := os.ReadFile(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	recent := map[string]float64{}
	if err == nil {
		err = json.Unmarshal(b, &recent)
	}
	if err != nil {
		return fmt.Errorf("what tenants sent lately is forgotten: %s: %w", s.file, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for t, n := range recent {
		if n > 0 && !math.IsInf(n, 0) {
			s.recent[t] += n
			s.sum += n
		}
	}
	return nil
}

// save writes what came. On a disk that has not even room for that the file stays as it was,
// which says who filled it.
func (s *Shares) save() {
	if s.file == "" {
		return
	}
	s.mu.Lock()
	b, err := json.Marshal(s.recent)
	s.mu.Unlock()
	if err == nil {
		_ = atomicfile.Write(s.file, b, 0o600)
	}
}

// Run looks at the disk until ctx ends.
func (s *Shares) Run(ctx context.Context) error {
	t := time.NewTicker(Every)
	defer t.Stop()
	defer s.save()
	for {
		s.Look()
		if s.looks++; s.looks%saveEvery == 0 || s.Low() {
			s.save()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// Look asks for the disk's space. A disk that can't be asked takes everything.
func (s *Shares) Look() {
	free, total, err := s.space()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free, s.mark = free, min(total/markPart, maxMark)
	if err != nil {
		s.mark = 0
	}
	s.sum = 0
	for t, n := range s.recent {
		if n *= forget; n < 1 {
			delete(s.recent, t)
			continue
		}
		s.recent[t] = n
		s.sum += n
	}
}

// Count says how much of a tenant came, in whatever unit, the same for all.
func (s *Shares) Count(tenant string, n int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent[tenant] += float64(n)
	s.sum += float64(n)
}

// ErrNearlyFull says that a tenant's data have to wait.
var ErrNearlyFull = errors.New("the disk is nearly full")

// Admit tells whether a tenant's data may come in now. With a part p of the mark left, a
// tenant waits whose part of what came lately is larger than p.
func (s *Shares) Admit(tenant string) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free >= s.mark || s.sum == 0 {
		return nil
	}
	if part := s.recent[tenant] / s.sum; part*float64(s.mark) > float64(s.free) {
		return fmt.Errorf("%w, %d MiB are free, and tenant %s is %.0f %% of what came in lately: it waits until there is room again", ErrNearlyFull, s.free>>20, tenant, 100*part)
	}
	return nil
}

// Low tells whether the disk is nearly full.
func (s *Shares) Low() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free < s.mark
}
