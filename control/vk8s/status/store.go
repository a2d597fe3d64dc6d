// Package status holds what sites report of their clusters, Pods, Nodes, Events and what
// became of each object that they were given, and serves the first three as Kubernetes
// does: list, watch, delete, logs and the rest, under the stock types.
//
// It is in memory, with a copy on disk from which a restart begins; etcd holds intent
// alone. control/fleetapi hands it what arrives, control/vk8s mounts it, control/vk8s/sum
// reads the states of workloads. A site is believed about itself alone: what it says of a
// namespace that is not its tenant's is dropped, and sizes and numbers are bounded.
//
// Objects are kept as the sites sent them, in protobuf, with what selectors ask beside
// them, and become core/v1 objects when somebody reads them: a decoded Pod takes four
// times as much.
package status

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	"github.com/google/btree"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"muster.dev/muster/internal/fairshare"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/mirror"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// Limits of what one site may say. Beyond them things are dropped, and its Problem says so.
type Limits struct {
	Objects     int // mirrored, of all kinds
	ObjectBytes int // of one
	Decoded     int // bytes that one may take in memory, once it is decoded
	Events      int // among the objects
	Workloads   int
	StatusBytes int // of one workload's status
}

// DefaultLimits are a site of a hundred nodes full of pods.
var DefaultLimits = Limits{Objects: 20_000, ObjectBytes: 128 << 10, Decoded: 1 << 20, Events: 2_000, Workloads: 20_000, StatusBytes: workload.MaxStatus}

// Options of a Store.
type Options struct {
	// MayName says whether objects of a tenant's sites may be in a namespace; nil: those
	// that begin with the tenant's name. It is asked under a lock and must not wait.
	MayName func(tenant, namespace string) bool
	// Workload is the UID of an object of the centre, for the owners of pods; nil or
	// false: it is not there.
	Workload func(group, kind, namespace, name string) (types.UID, bool)
	Limits   Limits // zero: DefaultLimits
	// Bytes bounds what is kept of what sites said, of which a tenant's have as much as they
	// leave free; 0: 4 GiB.
	Bytes int
	// TenantOf is whose a namespace is, for the Events that the centre has of it; nil: of what
	// is before its first hyphen. Asked as MayName is.
	TenantOf func(namespace string) string
	// Ring is how many changes of each kind of one tenant a watch can be behind; 0: 16,384.
	// ChangeBytes bounds what those of all tenants take; 0: 256 MiB.
	Ring, ChangeBytes int
	// Dir is where the copy on disk is; empty: there is none.
	Dir    string
	Logger *slog.Logger
}

// Store holds what sites report. Its methods may be called at any time.
type Store struct {
	o Options

	mu          sync.RWMutex
	version     uint64 // the resourceVersion of the last change
	sites       map[fleet.SiteID]*site
	centre      *site // whose Events are of the centre itself; not among the sites
	tables      [kinds]*table
	rings       []*ring // of all tables
	changeBytes int     // of all rings
	room        *fairshare.Shares
	workloads   map[string]map[fleet.SiteID]*wire.WorkloadStatus // by item
	changed     []func(items []string)
	names       chan struct{} // something is shown by another name than its own: it is to be kept
}

// kind of a mirrored object.
type kind uint8

const (
	pods kind = iota
	nodes
	events
	kinds
)

var kindNames = [kinds]string{"Pod", "Node", "Event"}

// key is an object within its site.
type key struct {
	kind            kind
	namespace, name string
}

// site is what is known of one site.
type site struct {
	id     fleet.SiteID
	at     mirror.Cursor
	online bool
	items  map[key]*item
	events int
	states map[string]*wire.WorkloadStatus // by item
	bytes  int                             // of items and states, taken of the room
	// staged is what a snapshot of several messages has said so far; nil: none is coming.
	staged *staging
	dirty  bool
	named  bool // the copy on disk lacks a name by which something is shown
	left   mirror.Leavings
}

type staging struct {
	seen   map[key]bool
	events int // among the seen
	said   map[string]bool
}

// New returns an empty Store.
func New(o Options) *Store {
	if o.Limits == (Limits{}) {
		o.Limits = DefaultLimits
	}
	o.Bytes = cmp.Or(o.Bytes, 4<<30)
	o.Ring, o.ChangeBytes = cmp.Or(o.Ring, 16_384), cmp.Or(o.ChangeBytes, changeBytes)
	if o.TenantOf == nil {
		o.TenantOf = func(namespace string) string { tenant, _, _ := strings.Cut(namespace, "-"); return tenant }
	}
	if o.MayName == nil {
		o.MayName = func(tenant, namespace string) bool { return strings.HasPrefix(namespace, tenant+"-") }
	}
	if o.Workload == nil {
		o.Workload = func(_, _, _, _ string) (types.UID, bool) { return "", false }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	// Versions grow over restarts, so that a client with an old one is told to list anew.
	s := &Store{o: o, room: fairshare.NewShares(o.Bytes), version: uint64(time.Now().UnixMicro()), sites: map[fleet.SiteID]*site{}, centre: &site{items: map[key]*item{}}, workloads: map[string]map[fleet.SiteID]*wire.WorkloadStatus{}, names: make(chan struct{}, 1)}
	for k := range s.tables {
		s.tables[k] = newTable(s, kind(k))
	}
	return s
}

// OnWorkloads has fn called, outside of the store's lock and in order, with the items whose
// states changed. To be called before the first Apply.
func (s *Store) OnWorkloads(fn func(items []string)) { s.changed = append(s.changed, fn) }

func (s *Store) notifyChanged(items []string) {
	if len(items) > 0 {
		for _, fn := range s.changed {
			fn(items)
		}
	}
}

// Version is the version of a site's status that is held: epoch "" is none.
func (s *Store) Version(id fleet.SiteID) (epoch string, seq uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if st := s.sites[id]; st != nil {
		return st.at.Version()
	}
	return "", 0
}

// Interrupted says that what has begun to come in of a site will not be completed.
func (s *Store) Interrupted(id fleet.SiteID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.sites[id]; st != nil {
		st.at.Interrupted()
		st.staged, st.left.Asked = nil, false
	}
}

// Online says whether a site is connected.
func (s *Store) Online(id fleet.SiteID, online bool) {
	s.mu.Lock()
	st := s.siteLocked(id)
	if st.online == online {
		s.mu.Unlock()
		return
	}
	st.online = online
	for k, it := range st.items {
		if k.kind == nodes { // which are not ready while nobody hears of them
			next := *it
			next.offline = !online
			s.tables[nodes].put(&next)
			st.items[k] = &next
		}
	}
	items := slices.Collect(maps.Keys(st.states))
	s.tables[nodes].announce()
	s.mu.Unlock()
	s.notifyChanged(items)
}

// IsOnline says whether a site is connected.
func (s *Store) IsOnline(id fleet.SiteID) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	st := s.sites[id]
	return st != nil && st.online
}

func (s *Store) siteLocked(id fleet.SiteID) *site {
	st := s.sites[id]
	if st == nil {
		st = &site{id: id, items: map[key]*item{}, states: map[string]*wire.WorkloadStatus{}, left: mirror.NewLeavings()}
		s.sites[id] = st
	}
	return st
}

// Gone forgets a site.
func (s *Store) Gone(id fleet.SiteID) {
	s.mu.Lock()
	st := s.sites[id]
	if st == nil {
		s.mu.Unlock()
		return
	}
	for k := range st.items {
		s.dropLocked(st, k)
	}
	items := slices.Collect(maps.Keys(st.states))
	for _, item := range items {
		s.forgetLocked(st, item)
	}
	delete(s.sites, id)
	s.announceLocked()
	s.mu.Unlock()
	s.removeFile(id)
	s.notifyChanged(items)
}

// Apply takes what a site said. It returns false if that does not follow what is held, or if
// there is room again for what was left out: the caller asks for a snapshot. What is wrong in
// it is dropped and counted in Problem.
func (s *Store) Apply(id fleet.SiteID, m *wire.KubernetesStatus) bool { return s.Read(id, m)() }

// Read is the slow part of Apply, which is to be called without any lock. The rest is what
// it returns.
func (s *Store) Read(id fleet.SiteID, m *wire.KubernetesStatus) (apply func() bool) {
	read := s.read(id, m)
	return func() bool { return s.apply(id, m, read) }
}

func (s *Store) apply(id fleet.SiteID, m *wire.KubernetesStatus, read []*item) bool {
	s.mu.Lock()
	st := s.siteLocked(id)
	ok, first := st.at.Take(m)
	if !ok {
		s.mu.Unlock()
		return false
	}
	if first {
		st.staged = nil
		if m.GetSnapshot() {
			st.staged, st.left = &staging{seen: map[key]bool{}, said: map[string]bool{}}, mirror.NewLeavings()
		}
	}
	changed := s.applyLocked(st, m, read)
	if st.staged != nil && !m.GetMore() {
		changed = append(changed, s.sweepLocked(st)...)
		st.staged = nil
	}
	st.dirty = true
	again := !m.GetSnapshot() && !m.GetMore() && s.roomAgainLocked(st)
	s.announceLocked()
	s.mu.Unlock()
	s.notifyChanged(changed)
	return !again
}

// applyLocked returns the items whose states changed.
func (s *Store) applyLocked(st *site, m *wire.KubernetesStatus, read []*item) (changed []string) {
	for _, gone := range m.GetGone() {
		st.left.Remove(gone)
		if item, ok := strings.CutPrefix(gone, "item/"); ok {
			if s.forgetLocked(st, item) {
				changed = append(changed, item)
			}
		} else if k, ok := parseKey(gone); ok {
			s.dropLocked(st, k)
		}
	}
	for i, it := range read {
		key := wire.KeyOf(m.GetMirrored()[i])
		if it.bytes == nil {
			st.left.Add(key, it.aux, 0)
		} else if reason, bytes := s.putLocked(st, it); reason != "" {
			st.left.Add(key, reason, bytes)
		} else {
			st.left.Remove(key)
		}
	}
	for _, w := range m.GetWorkloads() {
		item, key := w.GetName(), wire.WorkloadKey(w.GetName())
		_, _, ns, _, err := workload.ParseItemName(item)
		_, known := st.states[item]
		switch {
		case err != nil || len(item) > 600:
			st.left.Add(key, "a state of an item without a name", 0)
			continue
		case ns != "" && !s.o.MayName(st.id.Tenant, ns):
			st.left.Add(key, "of a namespace that is not the tenant's", 0)
			continue
		case !known && len(st.states) >= s.o.Limits.Workloads:
			st.left.Add(key, tooManyStates, stateBytes(w))
			continue
		}
		w = s.clamp(w)
		grows := stateBytes(w) - stateBytes(st.states[item])
		if !s.growLocked(st, grows) {
			st.left.Add(key, noRoom, grows)
			continue
		}
		st.left.Remove(key)
		st.states[item] = w
		if s.workloads[item] == nil {
			s.workloads[item] = map[fleet.SiteID]*wire.WorkloadStatus{}
		}
		s.workloads[item][st.id] = w
		if st.staged != nil {
			st.staged.said[item] = true
		}
		changed = append(changed, item)
	}
	return changed
}

// sweepLocked removes what a snapshot, which has come to its end, did not say.
func (s *Store) sweepLocked(st *site) (changed []string) {
	for k := range st.items {
		if !st.staged.seen[k] {
			s.dropLocked(st, k)
		}
	}
	for item := range st.states {
		if !st.staged.said[item] {
			s.forgetLocked(st, item)
			changed = append(changed, item)
		}
	}
	return changed
}

func (s *Store) forgetLocked(st *site, item string) bool {
	if _, ok := st.states[item]; !ok {
		return false
	}
	s.growLocked(st, -stateBytes(st.states[item]))
	delete(st.states, item)
	delete(s.workloads[item], st.id)
	if len(s.workloads[item]) == 0 {
		delete(s.workloads, item)
	}
	return true
}

// putLocked makes an object what the site says it is now, or says why it does not, and how
// many bytes more it would have taken.
func (s *Store) putLocked(st *site, it *item) (reason string, bytes int) {
	k := it.key()
	had := st.items[k]
	objects, ofEvents, known := len(st.items), st.events, had != nil
	if g := st.staged; g != nil { // what it will not name again goes at its end
		objects, ofEvents, known = len(g.seen), g.events, g.seen[k]
	}
	switch {
	case !known && objects >= s.o.Limits.Objects:
		return tooManyObjects, it.bytesKept()
	case !known && k.kind == events && ofEvents >= s.o.Limits.Events:
		return tooManyEvents, it.bytesKept()
	}
	it.site, it.offline = st, !st.online
	grows := it.bytesKept()
	if had != nil {
		grows -= had.bytesKept()
	}
	if !s.growLocked(st, grows) {
		return noRoom, grows
	}
	if g := st.staged; g != nil {
		if k.kind == events && !g.seen[k] {
			g.events++
		}
		g.seen[k] = true
	}
	if had != nil && string(had.bytes) == string(it.bytes) {
		return "", 0
	}
	if had != nil {
		it.name, it.renamed = had.name, had.renamed // it keeps the name that people know it by
	} else {
		name := s.freeLocked(st, it)
		if name != it.name {
			it.name, it.renamed = name, true
			s.collided(st)
		}
		if k.kind == events {
			st.events++
		}
	}
	if k.kind == events {
		it.aux = s.refLocked(st, it)
	}
	st.items[k] = it
	s.tables[k.kind].put(it)
	return "", 0
}

// growLocked counts bytes that are kept of a site, or no more; false: there is no room for
// them.
func (s *Store) growLocked(st *site, n int) bool {
	switch {
	case st == s.centre: // what is in etcd has bounds of its own
		return true
	case n > 0 && !s.room.TakeN(st.id.Tenant, n):
		return false
	case n < 0:
		s.room.GiveN(st.id.Tenant, -n)
	}
	st.bytes += n
	return true
}

// stateBytes is about what a state takes as it is kept.
func stateBytes(w *wire.WorkloadStatus) int {
	if w == nil {
		return 0
	}
	n := 320 + len(w.Name) + len(w.Digest) + len(w.Wanted) + len(w.Reason) + len(w.Message) + len(w.Status)
	for _, field := range w.Changed {
		n += 16 + len(field)
	}
	return n
}

// freeLocked is the name by which an object is shown: the one that it gets by itself, or
// one with more in it if another site's object has that.
func (s *Store) freeLocked(st *site, it *item) string {
	t := s.tables[it.kind]
	for _, name := range []string{it.name, it.name + "-" + st.id.Name, it.name + "-" + st.id.Name + "-" + short(it.own)} {
		if len(name) > validation.DNS1123SubdomainMaxLength {
			name = name[:200] + "-" + short(st.id.Name+"/"+it.own)
		}
		if t.get(it.namespace, name) == nil {
			return unique.Make(name).Value()
		}
	}
	return it.name[:min(len(it.name), 200)] + "-" + short(st.id.Name+"/"+it.own)
}

func (s *Store) dropLocked(st *site, k key) {
	it := st.items[k]
	if it == nil {
		return
	}
	delete(st.items, k)
	s.growLocked(st, -it.bytesKept())
	if k.kind == events {
		st.events--
	}
	s.tables[k.kind].remove(it)
}

func (s *Store) announceLocked() {
	for _, t := range s.tables {
		t.announce()
	}
}

// States are the states of an item, by site. The messages must not be changed.
func (s *Store) States(item string) map[fleet.SiteID]*wire.WorkloadStatus {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.workloads[item])
}

// Items are the names of the items of a namespace of which any site has said something.
func (s *Store) Items(namespace string) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []string
	for item := range s.workloads {
		if strings.Contains(item, "/"+namespace+"/") {
			out = append(out, item)
		}
	}
	slices.Sort(out)
	return out
}

// Stats for people.
type Stats struct {
	Sites, Online               int
	Pods, Nodes, Events, States int
	Bytes                       int // about what of sites takes
}

// Stats counts.
func (s *Store) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := Stats{Sites: len(s.sites), Pods: s.tables[pods].byName.Len(), Nodes: s.tables[nodes].byName.Len(), Events: s.tables[events].byName.Len()}
	for _, st := range s.sites {
		out.States += len(st.states)
		out.Bytes += st.bytes
		if st.online {
			out.Online++
		}
	}
	return out
}

// table holds the objects of a kind in the order of a list, and each tenant's last changes.
type table struct {
	store  *Store
	kind   kind
	byName *btree.BTreeG[*item]

	rings   map[string]*ring // by tenant
	touched []*ring          // since the last announcement
	began   uint64           // before any change
}

func newTable(s *Store, k kind) *table {
	return &table{store: s, kind: k, rings: map[string]*ring{}, began: s.version,
		byName: btree.NewG(32, func(a, b *item) bool {
			return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name)) < 0
		})}
}

func (t *table) get(namespace, name string) *item {
	it, _ := t.byName.Get(&item{namespace: namespace, name: name})
	return it
}

func (t *table) put(it *item) {
	t.store.version++
	it.version = t.store.version
	was, _ := t.byName.ReplaceOrInsert(it)
	t.record(it, change{version: it.version, was: was, is: it, shared: &shared{}})
}

func (t *table) remove(it *item) {
	t.store.version++
	t.byName.Delete(it)
	t.record(it, change{version: t.store.version, was: it, shared: &shared{}})
}

// clamp is what is kept of what a site says of an item: bounded, and a copy, since a part of
// what came holds all of it in memory, and so do fields that this version does not know.
func (s *Store) clamp(w *wire.WorkloadStatus) *wire.WorkloadStatus {
	out := &wire.WorkloadStatus{Name: w.GetName(), State: w.GetState(), Drifted: w.GetDrifted(),
		Digest: cut(w.GetDigest(), 64), Wanted: cut(w.GetWanted(), 64), Reason: cut(w.GetReason(), 64), Message: cut(w.GetMessage(), 1024)}
	if len(w.GetStatus()) <= s.o.Limits.StatusBytes {
		out.Status = w.GetStatus()
	}
	if !slices.Contains(workload.States, workload.State(out.State)) {
		out.State = string(workload.Progressing)
	}
	if t := w.GetSince(); t != nil {
		out.Since = &timestamppb.Timestamp{Seconds: t.GetSeconds(), Nanos: t.GetNanos()}
	}
	if n := min(len(w.GetChanged()), workload.MaxFields); n > 0 {
		out.Changed = make([]string, n)
		for i := range out.Changed {
			out.Changed[i] = cut(w.GetChanged()[i], workload.MaxField)
		}
	}
	return out
}

// cut bounds a text, and takes what is no text from it. What is left of a longer one is a copy.
func cut(s string, n int) string {
	if len(s) > n {
		s = strings.Clone(s[:n])
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}

func parseKey(s string) (key, bool) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 {
		return key{}, false
	}
	i := slices.Index(kindNames[:], parts[0])
	return key{kind(max(i, 0)), parts[1], parts[2]}, i >= 0
}
