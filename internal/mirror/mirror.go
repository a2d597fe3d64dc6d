// Package mirror keeps what a site said of what runs on its cluster, and what of that the
// next hop has not been told: the agent towards its regional, and the regional towards
// control. What changes twice before it is told is told once, as it is then.
//
// Every hop holds a version, named as the site named it (wire.KubernetesStatus): a hop
// that comes back and holds the right one is told what changed since, another one a
// snapshot. The package does no I/O; who uses it sends.
package mirror

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/resource"

	"muster.dev/muster/internal/wire"
)

// PartBytes is about how large a message is at most, unless a single object is larger.
const PartBytes = 64 << 10

// Limits of what is kept of a site; what goes beyond is left out and counted, until it is
// gone, or there is room again.
type Limits struct {
	Objects int // mirrored, and states of items
	Bytes   int
	Object  int // bytes of one
	// Room are bytes that the mirrors of all tenants' sites share; nil: there is no other
	// bound. Tenant is whose this one is.
	Room   Room
	Tenant string
}

// Room is a fairshare.Shares.
type Room interface {
	TakeN(tenant string, n int) bool
	GiveN(tenant string, n int)
}

// DefaultLimits hold a site of 5,000 pods, and the states of all items that a site takes.
var DefaultLimits = Limits{Objects: 40_000, Bytes: 32 << 20, Object: 128 << 10}

// Mirror is one site's. Safe for concurrent use.
type Mirror struct {
	limits Limits
	wake   func()

	mu      sync.Mutex
	at      Cursor
	objects map[string]object
	bytes   int
	left    Leavings
	seen    map[string]bool // of a snapshot that is coming in
	closed  bool

	// What the next hop was told. The newest version may have been on its way as the stream
	// broke: before is the one before it, and last what it changed; nil: it was a snapshot.
	told     uint64 // the seq that it holds of this epoch
	before   uint64
	last     []string
	snapshot bool // it needs everything
	due      map[string]bool
}

// object is one of the two.
type object struct {
	mirrored *wire.Mirrored
	workload *wire.WorkloadStatus
}

func (o object) size() int {
	if o.mirrored != nil {
		return len(o.mirrored.Object) + len(o.mirrored.Namespace) + len(o.mirrored.Name) + 32
	}
	w := o.workload
	n := len(w.Name) + len(w.Digest) + len(w.Wanted) + len(w.State) + len(w.Reason) + len(w.Message) + len(w.Status) + len(w.ProtoReflect().GetUnknown()) + 64
	for _, field := range w.Changed {
		n += len(field) + 16
	}
	return n
}

// New returns an empty Mirror. wake, which must be quick, is called when there is
// something to tell; nil: nobody is.
func New(l Limits, wake func()) *Mirror {
	if wake == nil {
		wake = func() {}
	}
	return &Mirror{limits: l, wake: wake, objects: map[string]object{}, left: NewLeavings(), due: map[string]bool{}, snapshot: true}
}

// Begin starts a new epoch of a Mirror whose content is made here, with Put and Drop. Until
// then nothing is told: call it once all that there is has been put, or the next hop would
// take the rest for gone.
func (m *Mirror) Begin() {
	m.mu.Lock()
	m.at, m.snapshot = Cursor{epoch: rand.Text(), seq: 1}, true
	m.mu.Unlock()
	m.wake()
}

// Put keeps an object, which must not be changed afterwards.
func (m *Mirror) Put(o *wire.Mirrored) { m.put(wire.KeyOf(o), object{mirrored: o}) }

// PutWorkload keeps what became of an item.
func (m *Mirror) PutWorkload(w *wire.WorkloadStatus) {
	m.put(wire.WorkloadKey(w.GetName()), object{workload: w})
}

func (m *Mirror) put(key string, o object) {
	m.mu.Lock()
	changed := m.putLocked(key, o)
	m.mu.Unlock()
	if changed {
		m.wake()
	}
}

// Drop forgets what a key names (wire.KeyOf, wire.WorkloadKey).
func (m *Mirror) Drop(key string) {
	m.mu.Lock()
	changed := m.dropLocked(key)
	m.mu.Unlock()
	if changed {
		m.wake()
	}
}

func (m *Mirror) putLocked(key string, o object) bool {
	old, have := m.objects[key]
	if have && same(old, o) {
		m.left.Remove(key) // it is again what it was before it grew too large
		return false
	}
	grows := o.size()
	if have {
		grows -= old.size()
	}
	if m.closed || o.size() > m.limits.Object || m.bytes+grows > m.limits.Bytes || (!have && len(m.objects) >= m.limits.Objects) || !m.growLocked(grows) {
		reason := noRoom
		if o.size() > m.limits.Object {
			reason = tooLarge
		}
		m.left.Add(key, reason, grows)
		return false
	}
	m.left.Remove(key)
	m.objects[key] = o
	m.due[key] = true
	return true
}

// Why something is left out: what is too large by itself stays so, however much room there is.
const tooLarge, noRoom = "too large", "no room"

// roomAgainLocked tells, once, that what was left out would be taken now.
func (m *Mirror) roomAgainLocked() bool {
	objects, bytes := m.left.More[noRoom], 0
	for key, o := range m.left.Known {
		if o.Reason != noRoom {
			continue
		}
		bytes += o.Bytes
		if _, have := m.objects[key]; !have {
			objects++
		}
	}
	if m.left.Asked || m.closed || bytes == 0 && m.left.More[noRoom] == 0 || len(m.objects)+objects > m.limits.Objects || m.bytes+bytes > m.limits.Bytes || !m.growLocked(bytes) {
		return false
	}
	m.growLocked(-bytes)
	m.left.Asked = true
	return true
}

// Again tells whether there is room again for what was left out of a Mirror whose content is
// made here: all that there is is to be put again then.
func (m *Mirror) Again() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	again := m.roomAgainLocked()
	if again {
		m.left.Asked = false
		clear(m.left.More)
	}
	return again
}

func (m *Mirror) dropLocked(key string) bool {
	m.left.Remove(key)
	old, have := m.objects[key]
	if !have {
		return false
	}
	delete(m.objects, key)
	m.growLocked(-old.size())
	m.due[key] = true
	return true
}

// growLocked counts bytes that are kept, or no more; false: there is no room for them.
func (m *Mirror) growLocked(n int) bool {
	if r := m.limits.Room; r != nil && n > 0 && !r.TakeN(m.limits.Tenant, n) {
		return false
	} else if r != nil && n < 0 {
		r.GiveN(m.limits.Tenant, -n)
	}
	m.bytes += n
	return true
}

// Close gives back the room of a Mirror that is not used any more.
func (m *Mirror) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.growLocked(-m.bytes)
	m.objects, m.closed = map[string]object{}, true
}

func same(a, b object) bool {
	if a.mirrored != nil {
		return b.mirrored != nil && bytes.Equal(a.mirrored.Object, b.mirrored.Object)
	}
	return b.workload != nil && proto.Equal(a.workload, b.workload)
}

// Stats of what is kept.
type Stats struct{ Objects, Bytes, LeftOut int }

// Stats returns current figures. LeftOut counts what the limits refused.
func (m *Mirror) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Stats{len(m.objects), m.bytes, m.left.Len()}
}

// LeftOut is how many objects the limits refused.
func (m *Mirror) LeftOut() int { return m.Stats().LeftOut }

// Limits says what is kept at most.
func (m *Mirror) Limits() string {
	size := func(n int) string { return resource.NewQuantity(int64(n), resource.BinarySI).String() }
	return fmt.Sprintf("%d in %s, each of %s", m.limits.Objects, size(m.limits.Bytes), size(m.limits.Object))
}

// Version is what is held: "", 0 before the first, and while one is coming in.
func (m *Mirror) Version() (epoch string, seq uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at.Version()
}

// Apply takes what the hop before says. It is false if that does not follow what is held, or
// if there is room again for what was left out: a snapshot is needed.
func (m *Mirror) Apply(st *wire.KubernetesStatus) bool {
	m.mu.Lock()
	ok := m.applyLocked(st)
	again := ok && !st.GetMore() && !st.GetSnapshot() && m.roomAgainLocked()
	m.mu.Unlock()
	if ok && !st.GetMore() {
		m.wake()
	}
	return ok && !again
}

func (m *Mirror) applyLocked(st *wire.KubernetesStatus) bool {
	before := m.at.epoch
	ok, first := m.at.Take(st)
	if !ok {
		return false
	}
	if first {
		m.seen = nil
		if st.GetSnapshot() {
			m.seen, m.left = map[string]bool{}, NewLeavings()
		}
	}
	take := func(key string, o object) {
		m.putLocked(key, o)
		if _, kept := m.objects[key]; kept && m.seen != nil {
			m.seen[key] = true
		}
	}
	for _, o := range st.GetMirrored() {
		take(wire.KeyOf(o), object{mirrored: o})
	}
	for _, w := range st.GetWorkloads() {
		take(wire.WorkloadKey(w.GetName()), object{workload: w})
	}
	for _, key := range st.GetGone() {
		m.dropLocked(key)
	}
	if !st.GetMore() && st.GetSnapshot() {
		for key := range m.objects {
			if !m.seen[key] {
				m.dropLocked(key)
			}
		}
		m.seen = nil
		if before != m.at.epoch {
			m.snapshot = true // the next hop holds another epoch, if any
		}
	}
	return true
}

// Interrupted says that the hop before is gone. What came of a version that is not whole
// is worth nothing without the rest: a snapshot is needed.
func (m *Mirror) Interrupted() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at.Interrupted()
	m.left.Asked = false
}

// Assume takes the next hop to hold what is held here, and returns which version that is;
// it says so if it does not, and Resync is called. "": there is none yet.
func (m *Mirror) Assume() (epoch string, seq uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if epoch, seq = m.at.Version(); epoch == "" {
		m.snapshot = true
		return "", 0
	}
	m.told, m.snapshot = seq, false
	clear(m.due)
	return epoch, seq
}

// Held says which version the next hop holds. What it lacks is due from now on.
func (m *Mirror) Held(epoch string, seq uint64) {
	m.mu.Lock()
	switch {
	case epoch == "" || epoch != m.at.epoch:
		m.snapshot = true
	case seq == m.told:
	case seq == m.before && m.last != nil && !m.snapshot:
		m.told = seq
		for _, key := range m.last {
			m.due[key] = true
		}
	default:
		m.snapshot = true
	}
	m.mu.Unlock()
	m.wake()
}

// Resync makes all of it due.
func (m *Mirror) Resync() {
	m.mu.Lock()
	m.snapshot = true
	m.mu.Unlock()
	m.wake()
}

// Next returns the messages that bring the next hop from what it was told to what is held
// now, or nil if it holds that, or nothing is known yet. The caller sends all of them in
// order, or calls Held or Resync before the next call. They must not be changed. own says
// that this hop names the versions: the first one, where the content is made.
func (m *Mirror) Next(own bool) []*wire.KubernetesStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	epoch, seq := m.at.Version()
	if epoch == "" || (!m.snapshot && len(m.due) == 0 && m.told == seq) {
		return nil
	}
	if own && (len(m.due) > 0 || m.snapshot) {
		m.at.seq++
		seq++
	}
	head := wire.KubernetesStatus{Epoch: epoch, Seq: seq, Snapshot: m.snapshot}
	keys := slices.Sorted(maps.Keys(m.due))
	if m.snapshot {
		keys = slices.Sorted(maps.Keys(m.objects))
	} else {
		head.After = m.told
	}
	parts := m.partsLocked(&head, keys)
	m.before, m.last = m.told, keys
	if m.snapshot {
		m.last = nil
	}
	m.told, m.snapshot = seq, false
	clear(m.due)
	return parts
}

func (m *Mirror) partsLocked(head *wire.KubernetesStatus, keys []string) []*wire.KubernetesStatus {
	part := func() *wire.KubernetesStatus {
		return &wire.KubernetesStatus{Epoch: head.Epoch, Seq: head.Seq, Snapshot: head.Snapshot, After: head.After, More: true}
	}
	now, size := part(), 0
	var out []*wire.KubernetesStatus
	for _, key := range keys {
		o, have := m.objects[key]
		n := len(key)
		if have {
			n = o.size()
		}
		if size > 0 && size+n > PartBytes {
			out = append(out, now)
			now, size = part(), 0
		}
		size += n
		switch {
		case o.mirrored != nil:
			now.Mirrored = append(now.Mirrored, o.mirrored)
		case o.workload != nil:
			now.Workloads = append(now.Workloads, o.workload)
		default:
			now.Gone = append(now.Gone, key)
		}
	}
	now.More = false
	return append(out, now)
}
