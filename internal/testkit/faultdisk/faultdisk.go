// Package faultdisk is a disk that fails as a test says: it fills up, an operation
// of it fails by name, and it loses its power, which costs what was not synced.
//
// It keeps the files in a real directory, so that code which only reads may go
// around it, and remembers beside them what a power cut would leave: the content of
// a file as of its last Sync, and the names in a directory as of its last SyncDir.
// After Crash the directory holds just that. Tests of whatever writes through
// disk.FS use it (spool, log queue, atomicfile and what is kept with it).
package faultdisk

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster.dev/muster/internal/disk"
)

// ErrPowerOff is what every operation returns from the power cut to Crash.
var ErrPowerOff = errors.New("the power is off")

// Disk implements disk.FS. Safe for concurrent use.
type Disk struct {
	t    testing.TB
	root string

	mu       sync.Mutex
	real     disk.OS
	fail     map[string]error
	syncTime time.Duration
	short    int
	capacity int64 // -1: none
	life     int   // grows with each Crash; files of an earlier life are dead
	off      bool
	ops      int // that change something
	offAt    int // 0: never
	counts   map[string]int
	nodes    map[string]*node // what has a name now, by path
}

// node is a file or a directory.
type node struct {
	dir bool
	// synced is what a power cut leaves of a file, and lost are the stretches that a
	// failed Sync has given up: no later one brings them to the disk.
	synced []byte
	lost   [][2]int
	// names are what a power cut leaves in a directory, and pending what was done
	// to it since.
	names   map[string]*node
	pending []nameOp
}

// nameOp is a change of a directory: remove a name (node nil), set it, or, with
// from, both at once.
type nameOp struct {
	name, from string
	node       *node
}

// New returns a disk over an existing directory; what is in it is synced.
func New(t testing.TB, root string) *Disk {
	d := &Disk{t: t, root: filepath.Clean(root), capacity: -1}
	d.settle()
	return d
}

// settle takes what is there for synced.
func (d *Disk) settle() {
	d.nodes, d.fail, d.counts = map[string]*node{}, map[string]error{}, map[string]int{}
	d.off, d.offAt, d.ops = false, 0, 0
	err := filepath.WalkDir(d.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		d.adopt(path, e.IsDir())
		return nil
	})
	if err != nil {
		d.t.Fatalf("faultdisk: %v", err)
	}
}

// adopt takes what somebody else made for synced.
func (d *Disk) adopt(path string, dir bool) *node {
	n := &node{dir: dir}
	if dir {
		n.names = map[string]*node{}
	} else {
		n.synced, _ = os.ReadFile(path)
	}
	d.nodes[path] = n
	if up := d.nodes[filepath.Dir(path)]; up != nil && path != d.root {
		up.names[filepath.Base(path)] = n
	}
	return n
}

// Fail makes an operation fail with err; nil makes it work again. Operations are
// mkdir, readdir, open, create, read, write, truncate, sync, syncdir, rename, remove.
func (d *Disk) Fail(op string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail[op] = err
}

// SlowSync makes each Sync of a file take so long.
func (d *Disk) SlowSync(each time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.syncTime = each
}

// ShortWrites lets so many bytes of a write that fails reach the file.
func (d *Disk) ShortWrites(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.short = n
}

// SetCapacity bounds the bytes of all files together; a write beyond is cut short
// and fails with ENOSPC. Less than what is there means a full disk. -1: no bound.
func (d *Disk) SetCapacity(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.capacity = n
}

// Used returns the bytes of all files together.
func (d *Disk) Used() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.usedLocked()
}

// Count returns how often an operation was done since New or Crash; see Fail.
func (d *Disk) Count(op string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts[op]
}

// Ops returns how many operations since New or Crash changed something.
func (d *Disk) Ops() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ops
}

// PowerOffAfter cuts the power before the operation that follows n more changes.
func (d *Disk) PowerOffAfter(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.offAt = d.ops + n + 1
}

// Crash cuts the power, if it is on, and turns it on again: the directory holds
// what was synced. With seed 0 nothing else survives; with another one a part of
// the rest does: of each directory the first few changes, of each file some of its
// new sectors. All open files are dead. Capacity and faults are as in New.
func (d *Disk) Crash(seed uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var rnd *rand.Rand
	if seed != 0 {
		rnd = rand.New(rand.NewPCG(seed, 7))
	}
	d.life++
	now := map[*node][]byte{} // contents, of those that have a name
	for path, n := range d.nodes {
		if !n.dir {
			now[n], _ = os.ReadFile(path)
		}
	}
	left := map[string]*node{}
	survivors(d.root, d.nodes[d.root], rnd, left)
	for path := range d.nodes {
		if path != d.root && left[path] == nil {
			_ = os.RemoveAll(path)
		}
	}
	paths := make([]string, 0, len(left))
	for path := range left {
		paths = append(paths, path)
	}
	slices.Sort(paths) // directories before what is in them
	for _, path := range paths {
		n, err := left[path], error(nil)
		cur, named := now[n]
		switch {
		case n.dir:
			err = os.MkdirAll(path, 0o700)
		case !named: // its name was taken by another, or removed
			err = os.WriteFile(path, n.synced, 0o600)
		default:
			if b := torn(n.synced, cur, rnd); !bytes.Equal(b, cur) || d.nodes[path] != n {
				err = os.WriteFile(path, b, 0o600)
			}
		}
		if err != nil {
			d.t.Fatalf("faultdisk: %v", err)
		}
	}
	d.capacity, d.short = -1, 0
	d.settle()
}

// survivors fills left with what a power cut leaves below path.
func survivors(path string, n *node, rnd *rand.Rand, left map[string]*node) {
	left[path] = n
	if !n.dir {
		return
	}
	if rnd != nil {
		n.apply(rnd.IntN(len(n.pending) + 1))
	}
	names := make([]string, 0, len(n.names))
	for name := range n.names {
		names = append(names, name)
	}
	slices.Sort(names) // for the same random numbers each time
	for _, name := range names {
		survivors(filepath.Join(path, name), n.names[name], rnd, left)
	}
}

// apply makes the first k changes of a directory survive. A journalling file system
// keeps their order.
func (n *node) apply(k int) {
	for _, op := range n.pending[:k] {
		if op.from != "" {
			delete(n.names, op.from)
		}
		if op.node == nil {
			delete(n.names, op.name)
		} else {
			n.names[op.name] = op.node
		}
	}
	n.pending = n.pending[k:]
}

const sector = 512

// torn is what a power cut may leave of a file: each of its sectors as synced, or
// as written since, or, where the file grew, zeros.
func torn(synced, now []byte, rnd *rand.Rand) []byte {
	if rnd == nil || bytes.Equal(synced, now) {
		return synced
	}
	if rnd.IntN(3) == 0 {
		return now
	}
	size := len(synced)
	if len(now) != size {
		size = min(size, len(now)) + rnd.IntN(max(size, len(now))-min(size, len(now))+1)
	}
	out := make([]byte, size)
	copy(out, synced)
	for at := 0; at < size; at += sector {
		if end := min(at+sector, size, len(now)); at < end && rnd.IntN(2) == 0 {
			copy(out[at:end], now[at:end])
		}
	}
	return out
}

// beginLocked counts an operation and tells whether it fails.
func (d *Disk) beginLocked(op string, changes bool) error {
	if changes {
		if d.ops++; d.offAt > 0 && d.ops >= d.offAt {
			d.off = true
		}
	}
	if d.off {
		return ErrPowerOff
	}
	d.counts[op]++
	return d.fail[op]
}

func (d *Disk) usedLocked() int64 {
	var n int64
	for path, f := range d.nodes {
		if fi, err := os.Stat(path); err == nil && !f.dir {
			n += fi.Size()
		}
	}
	return n
}

// nodeLocked returns the node of a path that exists; nil for what is elsewhere.
func (d *Disk) nodeLocked(path string) *node {
	path = filepath.Clean(path)
	if n := d.nodes[path]; n != nil {
		return n
	}
	if path != d.root && !strings.HasPrefix(path, d.root+string(filepath.Separator)) {
		return nil
	}
	fi, err := os.Stat(path)
	if err != nil {
		return nil
	}
	d.nodeLocked(filepath.Dir(path))
	return d.adopt(path, fi.IsDir())
}

func (d *Disk) noteLocked(path string, op nameOp) {
	op.name = filepath.Base(path)
	if up := d.nodeLocked(filepath.Dir(path)); up != nil {
		up.pending = append(up.pending, op)
	}
}

// Mkdir implements disk.FS.
func (d *Disk) Mkdir(path string, perm fs.FileMode) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.beginLocked("mkdir", true); err != nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	if err := d.real.Mkdir(path, perm); err != nil {
		return err
	}
	path = filepath.Clean(path)
	n := &node{dir: true, names: map[string]*node{}}
	d.nodes[path] = n
	d.noteLocked(path, nameOp{node: n})
	return nil
}

// ReadDir implements disk.FS.
func (d *Disk) ReadDir(path string) ([]fs.DirEntry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.beginLocked("readdir", false); err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: path, Err: err}
	}
	return d.real.ReadDir(path)
}

// OpenFile implements disk.FS.
func (d *Disk) OpenFile(path string, flag int, perm fs.FileMode) (disk.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	path = filepath.Clean(path)
	_, err := os.Lstat(path)
	create := flag&os.O_CREATE != 0 && err != nil
	op := "open"
	if create {
		op = "create"
	}
	if err := d.beginLocked(op, create || flag&os.O_TRUNC != 0); err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if create && d.capacity >= 0 && d.usedLocked() >= d.capacity {
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOSPC}
	}
	var n *node
	if !create {
		n = d.nodeLocked(path)
	}
	f, err := d.real.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err
	}
	if create {
		n = &node{}
		d.nodes[path] = n
		d.noteLocked(path, nameOp{node: n})
	}
	return &file{File: f, d: d, node: n, life: d.life}, nil
}

// Rename implements disk.FS, within a directory.
func (d *Disk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.beginLocked("rename", true); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	from, to = filepath.Clean(from), filepath.Clean(to)
	if filepath.Dir(from) != filepath.Dir(to) {
		d.t.Fatalf("faultdisk: rename %s to %s: only within a directory", from, to)
	}
	n := d.nodeLocked(from)
	if err := d.real.Rename(from, to); err != nil {
		return err
	}
	if n != nil {
		delete(d.nodes, from)
		d.nodes[to] = n
		d.noteLocked(to, nameOp{from: filepath.Base(from), node: n})
	}
	return nil
}

// Remove implements disk.FS.
func (d *Disk) Remove(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.beginLocked("remove", true); err != nil {
		return &fs.PathError{Op: "remove", Path: path, Err: err}
	}
	path = filepath.Clean(path)
	n := d.nodeLocked(path)
	if err := d.real.Remove(path); err != nil {
		return err
	}
	if n != nil {
		delete(d.nodes, path)
		d.noteLocked(path, nameOp{})
	}
	return nil
}

// SyncDir implements disk.FS.
func (d *Disk) SyncDir(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.beginLocked("syncdir", true); err != nil {
		return &fs.PathError{Op: "sync", Path: path, Err: err}
	}
	if n := d.nodeLocked(path); n != nil {
		n.apply(len(n.pending))
	}
	return nil
}

// Space implements disk.FS.
func (d *Disk) Space(path string) (free, total int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.capacity < 0 {
		return d.real.Space(path)
	}
	return max(0, d.capacity-d.usedLocked()), d.capacity, nil
}

type file struct {
	disk.File
	d    *Disk
	node *node // nil: outside
	life int
}

func (f *file) beginLocked(op string, changes bool) error {
	if f.life != f.d.life {
		return ErrPowerOff
	}
	return f.d.beginLocked(op, changes)
}

func (f *file) ReadAt(b []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.beginLocked("read", false); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, off)
}

func (f *file) Write(b []byte) (int, error) {
	d := f.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := f.beginLocked("write", true); err != nil {
		if errors.Is(err, ErrPowerOff) {
			return 0, err
		}
		n, _ := f.File.Write(b[:min(d.short, len(b))])
		return n, err
	}
	if d.capacity >= 0 {
		if free := max(0, d.capacity-d.usedLocked()); free < int64(len(b)) {
			n, _ := f.File.Write(b[:free])
			return n, syscall.ENOSPC
		}
	}
	return f.File.Write(b)
}

func (f *file) Truncate(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.beginLocked("truncate", true); err != nil {
		return err
	}
	if f.node != nil {
		for i := range f.node.lost {
			f.node.lost[i][1] = min(f.node.lost[i][1], int(size))
		}
	}
	return f.File.Truncate(size)
}

// Sync that fails gives up what was written since the last one, as Linux does: the
// next Sync reports success, and the bytes are not on the disk all the same.
func (f *file) Sync() error {
	d := f.d
	d.mu.Lock()
	pause := d.syncTime
	d.mu.Unlock()
	if pause > 0 {
		time.Sleep(pause)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	err := f.beginLocked("sync", true)
	if errors.Is(err, ErrPowerOff) || f.node == nil {
		return err
	}
	for path, n := range d.nodes {
		if n != f.node {
			continue
		}
		b, rerr := os.ReadFile(path)
		if rerr != nil {
			return rerr
		}
		if err != nil {
			n.lost = append(n.lost, [2]int{len(n.synced), len(b)})
			return err
		}
		for _, l := range n.lost {
			if l[0] < l[1] {
				clear(b[min(l[0], len(b)):min(l[1], len(b))])
			}
		}
		n.synced = b
	}
	return err
}
