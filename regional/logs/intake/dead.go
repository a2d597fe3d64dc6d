package intake

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muster.dev/muster/internal/disk"
)

// deadLetter is a line of a dead-letter file, in JSON.
type deadLetter struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	Record *Record   `json:"record,omitempty"`
	Batch  []byte    `json:"batch,omitempty"` // in base64, when it could not be read
}

// deadLetters are files TENANT.NUMBER.jsonl in one directory. When they are over the limit
// together, the oldest file of the tenant that has most goes: what one tenant's sites make
// undeliverable costs no neighbour its dead letters.
type deadLetters struct {
	fs      disk.FS
	dir     string
	limit   int64
	written atomic.Uint64

	mu      sync.Mutex
	tenants map[string][]deadFile // oldest first
	total   int64
}

type deadFile struct {
	name   string
	number int
	size   int64
}

// deadFiles is how many files a tenant alone has at the limit.
const deadFiles = 16

func openDeadLetters(fsys disk.FS, dir string, limit int64) (*deadLetters, error) {
	if err := disk.MkdirAll(fsys, dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	d := &deadLetters{fs: fsys, dir: dir, limit: limit, tenants: map[string][]deadFile{}}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || e.IsDir() {
			continue
		}
		// Files of an earlier version, of all tenants together, are those of nobody.
		tenant, rest, _ := strings.Cut(e.Name(), ".")
		number, _ := strconv.Atoi(strings.TrimSuffix(rest, ".jsonl"))
		d.tenants[tenant] = append(d.tenants[tenant], deadFile{e.Name(), number, info.Size()})
		d.total += info.Size()
	}
	for _, files := range d.tenants {
		slices.SortFunc(files, func(a, b deadFile) int { return cmp.Compare(a.number, b.number) })
	}
	return d, nil
}

// add is durable when it returns.
func (d *deadLetters) add(tenant string, letters []deadLetter) error {
	if len(letters) == 0 {
		return nil
	}
	var b []byte
	for _, l := range letters {
		line, err := json.Marshal(l)
		if err != nil {
			return err
		}
		b = append(append(b, line...), '\n')
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	files := d.tenants[tenant]
	if n := len(files); n == 0 || files[n-1].size+int64(len(b)) > d.limit/deadFiles {
		number := 1
		if n > 0 {
			number = files[n-1].number + 1
		}
		files = append(files, deadFile{name: fmt.Sprintf("%s.%06d.jsonl", tenant, number), number: number})
		d.tenants[tenant] = files
	}
	f := &files[len(files)-1]
	if err := d.makeRoomLocked(int64(len(b)), f.name); err != nil {
		return err
	}
	n, err := d.append(f.name, b)
	d.total += int64(n)
	files = d.tenants[tenant] // some of them may have gone
	files[len(files)-1].size += int64(n)
	if err == nil {
		d.written.Add(uint64(len(letters)))
	}
	return err
}

func (d *deadLetters) append(name string, b []byte) (n int, err error) {
	f, err := d.fs.OpenFile(filepath.Join(d.dir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	if n, err = f.Write(b); err != nil {
		return n, err
	}
	if err = f.Sync(); err != nil {
		return n, err
	}
	return n, d.fs.SyncDir(d.dir) // its name
}

// makeRoomLocked deletes files until n more bytes fit, but not the one that is written to.
func (d *deadLetters) makeRoomLocked(n int64, writing string) error {
	for d.total+n > d.limit {
		most, size := "", int64(0)
		for tenant, files := range d.tenants {
			var all int64
			for _, f := range files {
				all += f.size
			}
			if files[0].name != writing && (all > size || all == size && tenant < most) {
				most, size = tenant, all
			}
		}
		if most == "" {
			return nil // more than all of it in one write
		}
		oldest := d.tenants[most][0]
		if err := d.fs.Remove(filepath.Join(d.dir, oldest.name)); err != nil {
			return err
		}
		d.total -= oldest.size
		if d.tenants[most] = d.tenants[most][1:]; len(d.tenants[most]) == 0 {
			delete(d.tenants, most)
		}
	}
	return nil
}
