package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"
	"time"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
)

// lineBytes is what a line costs beside its own bytes, in budgets and quotas: a record
// of the store has a price of its own, however short its text is.
const lineBytes = 64

// Usage is what a tenant's sites have had queued here today.
type Usage struct {
	Day   string `json:"day"`             // of UTC, as 2026-11-22
	Bytes int64  `json:"bytes"`           // uncompressed, as sent, and 64 more for each line
	Limit int64  `json:"limit,omitempty"` // 0: none
}

// TenantLogUsage is what a tenant has used today at this regional, over all of its
// sites. It outlives a restart; a kill may forget the last seconds of it.
func (in *Intake) TenantLogUsage(tenant string) Usage { return in.quota.usage(tenant) }

// quota counts what each tenant has had queued in the day of UTC that it is. Safe for
// concurrent use.
type quota struct {
	fs    disk.FS
	path  string
	limit func(tenant string) int64 // nil, or 0: none
	now   func() time.Time

	mu    sync.Mutex
	day   string
	used  map[string]int64
	dirty bool
}

// usageFile is the form on disk.
type usageFile struct {
	Day     string           `json:"day"`
	Tenants map[string]int64 `json:"tenants"`
}

// openQuota reads what was counted before a restart. A file that can't be read costs
// the count of one day, and says so by its error beside a quota that works.
func openQuota(fsys disk.FS, path string, limit func(string) int64, now func() time.Time) (*quota, error) {
	q := &quota{fs: fsys, path: path, limit: limit, now: now, used: map[string]int64{}}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return q, nil
	}
	var f usageFile
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err != nil {
		return q, fmt.Errorf("what tenants have logged today is not known, and counts from 0: %s: %w", path, err)
	}
	q.day = f.Day
	for tenant, n := range f.Tenants {
		q.used[tenant] = max(0, n)
	}
	return q, nil
}

// todayLocked begins a new day if it is one.
func (q *quota) todayLocked() {
	if day := q.now().UTC().Format(time.DateOnly); day != q.day {
		q.day, q.dirty = day, true
		clear(q.used)
	}
}

func (q *quota) limitOf(tenant string) int64 {
	if q.limit == nil {
		return 0
	}
	return max(0, q.limit(tenant))
}

func (q *quota) usage(tenant string) Usage {
	limit := q.limitOf(tenant)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.todayLocked()
	return Usage{Day: q.day, Bytes: q.used[tenant], Limit: limit}
}

// take counts n bytes, unless that is more than the tenant may have today. What is
// taken and then not queued is given back with a negative add.
func (q *quota) take(tenant string, n int64) error {
	limit := q.limitOf(tenant)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.todayLocked()
	if limit > 0 && q.used[tenant]+n > limit {
		return &quotaError{tenant: tenant, limit: limit, until: q.untilLocked()}
	}
	q.addLocked(tenant, n)
	return nil
}

// spent is the error of take for a tenant that has nothing left.
func (q *quota) spent(tenant string) error {
	limit := q.limitOf(tenant)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.todayLocked()
	if limit > 0 && q.used[tenant] >= limit {
		return &quotaError{tenant: tenant, limit: limit, until: q.untilLocked()}
	}
	return nil
}

func (q *quota) untilLocked() time.Duration {
	now := q.now().UTC()
	return now.Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
}

func (q *quota) add(tenant string, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.todayLocked()
	q.addLocked(tenant, n)
}

func (q *quota) addLocked(tenant string, n int64) {
	if n != 0 {
		q.used[tenant] = max(0, q.used[tenant]+n) // a day may have begun between take and add
		q.dirty = true
	}
}

// save writes the file if something has changed.
func (q *quota) save() error {
	q.mu.Lock()
	q.todayLocked()
	if !q.dirty {
		q.mu.Unlock()
		return nil
	}
	q.dirty = false
	f := usageFile{Day: q.day, Tenants: maps.Clone(q.used)}
	q.mu.Unlock()
	b, err := json.Marshal(f)
	if err == nil {
		err = atomicfile.WriteTo(q.fs, q.path, b, 0o600)
	}
	if err != nil {
		q.mu.Lock()
		q.dirty = true
		q.mu.Unlock()
		return fmt.Errorf("log intake: save what tenants have logged today: %w", err)
	}
	return nil
}

// quotaError says that a tenant has logged as much as it may in one day.
type quotaError struct {
	tenant string
	limit  int64
	until  time.Duration // to the next day
}

func (e *quotaError) Error() string {
	return fmt.Sprintf("tenant %s has logged the %d bytes that its quota allows in a day (UTC) at this regional; lines wait at the senders until the next day or a larger quotas.logBytesPerDay", e.tenant, e.limit)
}
