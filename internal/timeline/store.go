// Package timeline keeps what happened in the fleet: colour changes, alerts, approvals,
// edits, rollouts. Each role that sees such things has a Store of its own on its own disk,
// so that nothing has to be sent before it counts; the console asks all of them and merges.
//
// A Store is bounded for each tenant, by age, number and bytes, and each site of a tenant
// has a rate of its own: whoever makes events pushes out nothing but their own. It decides
// nothing of what happens and authenticates nobody: its API must be on a listener that only
// Muster's own roles reach. control, health and alerting write to one; cmd/internal makes it.
package timeline

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bolt "go.etcd.io/bbolt"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/internal/wire"
)

// Options of Open. File and Logger are needed.
type Options struct {
	File string
	// Age, Events and Bytes bound what is kept of each tenant: default 90 days, 200,000
	// events, 128 MiB as stored.
	Age    time.Duration
	Events int
	Bytes  int64
	// SiteBurst is how many events one site, or one object, may have at once, SiteEvery how
	// often one more: default 100, and one in 5 minutes. What comes beyond is counted, and
	// told of in the text of the next one. TenantBurst and TenantEvery are the same of a
	// whole tenant: default 50,000, and one in 100 ms.
	SiteBurst, TenantBurst int
	SiteEvery, TenantEvery time.Duration

	Logger     *slog.Logger
	Registerer prometheus.Registerer // may be nil
	Now        func() time.Time      // nil: time.Now
}

// Store keeps events. Safe for concurrent use.
type Store struct {
	opts    Options
	log     *slog.Logger
	now     func() time.Time
	db      *bolt.DB
	metrics *metrics
	limits  *limits
	// What pages of one tenant take another has its part of: this process does more.
	processors *turns.Processors
	related    atomic.Pointer[func(tenant, site string) []string]

	mu   sync.Mutex
	uses map[string]use // by tenant, as committed
}

// use is how much of a tenant is kept.
type use struct{ events, bytes int64 }

// Buckets. A tenant's is below tenants, and has three of its own: events by key, index by
// site, virtual site or object and key, and its use under a key.
var (
	bucketTenants = []byte("tenants")
	bucketTracked = []byte("tracked")
	bucketEvents  = []byte("events")
	bucketIndex   = []byte("index")
	keyUse        = []byte("use")
)

// key of an event: its time in nanoseconds, its kind, and a digest of the rest. So keys sort
// by time, an event that comes again is found, and a kind is told without reading the event.
type key [keyBytes]byte

const keyBytes = 16

func (k key) kind() int { return int(k[8]) }

func (k key) time() time.Time { return time.Unix(0, int64(binary.BigEndian.Uint64(k[:8]))).UTC() }

func (k key) String() string { return hex.EncodeToString(k[:]) }

func parseKey(s string) (k key, ok bool) {
	if len(s) != 2*keyBytes {
		return k, false
	}
	_, err := hex.Decode(k[:], []byte(s))
	return k, err == nil
}

// keyOf is stable: the same event has the same key whenever it is made.
func keyOf(e *wire.TimelineEvent) key {
	var k key
	binary.BigEndian.PutUint64(k[:], uint64(max(e.Time.UnixNano(), 0)))
	h := sha256.New()
	for _, s := range []string{e.Namespace, e.Site, e.Object, e.After, e.Text} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	copy(k[8:], h.Sum(nil))
	k[8] = byte(slices.Index(wire.TimelineKinds, e.Kind))
	return k
}

// Open opens or makes the file.
func Open(o Options) (*Store, error) {
	if o.File == "" || o.Logger == nil {
		return nil, errors.New("timeline: File and Logger must be set")
	}
	for d, v := range map[*time.Duration]time.Duration{&o.Age: 90 * 24 * time.Hour, &o.SiteEvery: 5 * time.Minute, &o.TenantEvery: 100 * time.Millisecond} {
		if *d <= 0 {
			*d = v
		}
	}
	for n, v := range map[*int]int{&o.Events: 200_000, &o.SiteBurst: 100, &o.TenantBurst: 50_000} {
		if *n <= 0 {
			*n = v
		}
	}
	if o.Bytes <= 0 {
		o.Bytes = 128 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := disk.MkdirAll(disk.OS{}, filepath.Dir(o.File), 0o700); err != nil {
		return nil, fmt.Errorf("timeline: %w", err)
	}
	db, err := bolt.Open(o.File, 0o600, &bolt.Options{Timeout: 5 * time.Second, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return nil, fmt.Errorf("timeline: open %s: %w", o.File, err)
	}
	db.MaxBatchDelay = 5 * time.Millisecond
	s := &Store{opts: o, log: o.Logger, now: o.Now, db: db, uses: map[string]use{}, limits: newLimits(&o), processors: turns.NewProcessors(0)}
	err = db.Update(func(tx *bolt.Tx) error {
		if _, err := tx.CreateBucketIfNotExists(bucketTracked); err != nil {
			return err
		}
		tenants, err := tx.CreateBucketIfNotExists(bucketTenants)
		if err != nil {
			return err
		}
		return tenants.ForEachBucket(func(name []byte) error {
			s.uses[string(name)] = useOf(tenants.Bucket(name))
			return nil
		})
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("timeline: open %s: %w", o.File, err), db.Close())
	}
	s.metrics = newMetrics(o.Registerer, s)
	return s, nil
}

// Relate has pages of a site show edits of objects as well, of KIND/NAME each, such as the policies
// that select it. It is one event, whether it concerns one site or all, so it is found when a page is
// made, by what is related then. f must be safe for concurrent use.
func (s *Store) Relate(f func(tenant, site string) []string) { s.related.Store(&f) }

// Copy writes the file as it is at one moment, while others go on writing to it.
func (s *Store) Copy(w io.Writer) error {
	return s.db.View(func(tx *bolt.Tx) error {
		_, err := tx.WriteTo(w)
		return err
	})
}

// Close closes the file; nothing may be written after.
func (s *Store) Close() error { return s.db.Close() }

// Run removes what has become too old until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	t := time.NewTicker(10 * time.Minute)
	defer t.Stop()
	for {
		if err := s.Prune(); err != nil {
			s.metrics.failures.Inc()
			s.log.Error("timeline", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

func useOf(b *bolt.Bucket) use {
	v := b.Get(keyUse)
	if len(v) != 16 {
		return use{}
	}
	return use{int64(binary.BigEndian.Uint64(v)), int64(binary.BigEndian.Uint64(v[8:]))}
}

func (u use) encode() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(u.events)), uint64(u.bytes))
}

// indexed is what an event is found by besides its tenant and time.
func indexed(e *wire.TimelineEvent) [][]byte {
	var out [][]byte
	if e.Site != "" {
		out = append(out, indexKey('s', e.Site))
	}
	for _, v := range e.VirtualSites {
		out = append(out, indexKey('v', v))
	}
	if ofTenant(e) {
		out = append(out, indexKey('o', e.Object))
	}
	return out
}

// ofTenant tells of an edit of an object that stands for a whole tenant, as policies do, and so may be
// related to sites.
func ofTenant(e *wire.TimelineEvent) bool {
	return e.Kind == wire.EventPolicy && e.Site == "" && e.Namespace == "" && e.Object != ""
}

const prefixBytes = 8

// indexKey is a digest, which makes the index small and of even rows; readers compare the
// name itself.
func indexKey(kind byte, name string) []byte {
	sum := sha256.Sum256(append([]byte{kind}, name...))
	return sum[:prefixBytes]
}
