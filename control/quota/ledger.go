// Package quota counts what each tenant has in etcd and says whether one more write
// fits its quotas: objects, their bytes, sites, and how fast it writes.
//
// Events that Muster itself writes count for nobody: they tell a tenant's users of its
// sites, are bounded where they are made, and are gone after an hour.
//
// The Ledger reads everything once and then follows etcd's watch, so the figures are
// what is stored, whoever wrote it, also after a restart and with several API servers.
// A write that was let in counts from then on until the watch brings it, so that
// concurrent ones can't pass together. It decides nothing about rights;
// control/apiserver asks it at admission, and the controllers show its figures.
package quota

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// How fast a tenant may write. etcd keeps every version for ten minutes at most, so
// this bounds what one tenant's rewriting takes of it to some 190 MB, however small
// what is left in the end.
const (
	WriteBytesPerSecond = 256 << 10
	WriteBurst          = 32 << 20
	writeOverhead       = 512 // of etcd and its indices, a write
)

// RequestOverhead is what a request that may write costs of the same budget besides its
// bytes: to authorize, admit and note it is work, however small and wrong it is. A tenant's
// bad ones are 32 a second in the long run.
const RequestOverhead = 8 << 10

// pendingFor is how long a write that was let in is waited for. Requests end before.
const pendingFor = 70 * time.Second

// The share of etcd's own quota that tenants may fill; the rest is kept for Muster
// and its operators, who need it to mend things.
const (
	storeShareNum = 4
	storeShareDen = 5
)

// Options of a Ledger.
type Options struct {
	// Defaults where a tenant sets no quota; 0: no limit.
	Defaults v1alpha1.TenantQuotas
	Now      func() time.Time // nil: time.Now
}

// Ledger is the count. Safe for concurrent use.
type Ledger struct {
	o Options

	mu      sync.Mutex
	spaces  map[string]*space // by namespace in Kubernetes
	tenants map[string]*tenant
	people  map[string]*rate.Limiter // who is in no tenant, by name
	pending map[object]pending
	store   Store
}

// Store is how full etcd is, in bytes; a Quota of 0 is not known.
type Store struct{ InUse, Size, Quota int64 }

// object names what is stored.
type object struct{ resource, namespace, name string }

// space is one namespace.
type space struct {
	tenant string
	sizes  map[string]int32 // by RESOURCE/NAME
	sites  map[string]Site
	count  // of this namespace
}

// count adds up; sites are not among the objects.
type count struct {
	objects, bytes  int64
	sites, approved int64 // not decommissioned
}

func (c *count) add(d count, sign int64) {
	c.objects += sign * d.objects
	c.bytes += sign * d.bytes
	c.sites += sign * d.sites
	c.approved += sign * d.approved
}

type tenant struct {
	count
	named  []string // its namespaces in Kubernetes, as its Tenant names them; nil: there is none
	quotas v1alpha1.TenantQuotas
	writes *rate.Limiter
}

// pending is a write that was let in and that the watch has not brought yet.
type pending struct {
	count
	tenant string
	until  time.Time
}

// New returns an empty Ledger; Follow fills it.
func New(o Options) *Ledger {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Ledger{o: o, spaces: map[string]*space{}, tenants: map[string]*tenant{}, people: map[string]*rate.Limiter{}, pending: map[object]pending{}}
}

func (l *Ledger) tenantLocked(name string) *tenant {
	t := l.tenants[name]
	if t == nil {
		t = &tenant{writes: rate.NewLimiter(WriteBytesPerSecond, WriteBurst)}
		l.tenants[name] = t
	}
	return t
}

// Usage is what a tenant has.
type Usage struct{ Sites, Objects, ObjectBytes int64 }

// Usage returns what a tenant has stored.
func (l *Ledger) Usage(name string) Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenants[name]
	if t == nil {
		return Usage{}
	}
	return Usage{Sites: t.sites, Objects: t.objects, ObjectBytes: t.bytes}
}

// Holds tells whether a namespace has an object of a resource, GROUP/RESOURCE of one that has
// a definition: whether or not it can be read just now.
func (l *Ledger) Holds(namespace, resource string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.spaces[namespace]
	if s == nil {
		return false
	}
	for name := range s.sizes {
		if rest, ok := strings.CutPrefix(name, resource+"/"); ok && !strings.Contains(rest, "/") {
			return true
		}
	}
	return false
}

// Coming tells whether a namespace is not there yet and some Tenant says that it will
// be: the controllers make it in a moment.
func (l *Ledger) Coming(namespace string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spaces[namespace] != nil {
		return false
	}
	for i, c := range namespace { // a tenant's name may hold a '-'
		if t := l.tenants[namespace[:i]]; c == '-' && t != nil && slices.Contains(t.named, namespace) {
			return true
		}
	}
	return false
}

// SetStore tells how full etcd is.
func (l *Ledger) SetStore(s Store) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.store = s
}

// Write is one that somebody wants to make.
type Write struct {
	Resource, Namespace, Name string
	Create                    bool
	Old, New                  int64 // sizes, in bytes; Old is 0 for a Create
	// Was and Is are the states of a Site; nil for other kinds.
	Was, Is *Site
	// Trusted: Muster's own roles and cluster administrators. Only the number of sites
	// binds them, too.
	Trusted bool
	DryRun  bool
	// Paid is what its request was charged when it came, bytes: see Charge.
	Paid int64
}

// Site is what counts of one.
type Site struct{ Approved, Decommissioned bool }

// Exceeded is a refusal; Tenant is empty for a person who is in none.
type Exceeded struct {
	Tenant, Quota string
	Used, Limit   int64
	Remedy        string
	// Retry: a later try may pass. Seconds.
	Retry int
}

// Error is one line, with what to do.
func (e *Exceeded) Error() string {
	who := "tenant " + e.Tenant + " is at its"
	if e.Tenant == "" {
		who = "you are at your"
	}
	return fmt.Sprintf("%s quota %s: %d of %d are used; %s", who, e.Quota, e.Used, e.Limit, e.Remedy)
}

// Admit says whether the write may be made, as nil or an *Exceeded. What it lets in
// counts until the watch brings it, or for a little longer than a request may take.
func (l *Ledger) Admit(w Write) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.spaces[w.Namespace]
	if s == nil || s.tenant == "" || s.tenant == fleet.PlatformTenant {
		return nil
	}
	t, now := l.tenantLocked(s.tenant), l.o.Now()
	delta := w.delta()
	key := object{w.Resource, w.Namespace, w.Name}
	waiting := l.waitingLocked(s.tenant, key, now)
	quotas := t.quotas.InEffect(l.o.Defaults)

	if err := w.sites(s.tenant, t, waiting, int64(quotas.Sites)); err != nil {
		return err
	}
	if !w.Trusted {
		if err := l.boundsLocked(w, s.tenant, t, waiting, delta, quotas, now); err != nil {
			return err
		}
	}
	if !w.DryRun {
		l.pending[key] = pending{count: delta, tenant: s.tenant, until: now.Add(pendingFor)}
	}
	return nil
}

func (w Write) delta() count {
	d := count{bytes: w.New - w.Old}
	if w.Create && w.Is == nil {
		d.objects = 1
	}
	if w.Is != nil {
		d.add(siteCount(*w.Is), 1)
		if w.Was != nil {
			d.add(siteCount(*w.Was), -1)
		}
	}
	return d
}

func siteCount(s Site) count {
	switch {
	case s.Decommissioned:
		return count{}
	case s.Approved:
		return count{sites: 1, approved: 1}
	}
	return count{sites: 1}
}

// waitingLocked adds up the tenant's writes that the watch has not brought, but for a
// former try of the same one.
func (l *Ledger) waitingLocked(tenant string, key object, now time.Time) count {
	var sum count
	for k, p := range l.pending {
		switch {
		case now.After(p.until):
			delete(l.pending, k)
		case k != key && p.tenant == tenant:
			// What is about to free room has not yet.
			sum.objects += max(p.objects, 0)
			sum.bytes += max(p.bytes, 0)
			sum.sites += max(p.sites, 0)
			sum.approved += max(p.approved, 0)
		}
	}
	return sum
}

// sites checks a new site, and the approval of one.
func (w Write) sites(name string, t *tenant, waiting count, limit int64) error {
	if limit == 0 || w.Is == nil || w.Is.Decommissioned {
		return nil
	}
	const remedy = "decommission a site, or ask an operator to raise the tenant's spec.quotas.sites"
	switch {
	case w.Create && t.sites+waiting.sites >= limit:
		return &Exceeded{Tenant: name, Quota: v1alpha1.QuotaSites, Used: t.sites, Limit: limit, Remedy: remedy}
	case !w.Create && w.Is.Approved && w.Was != nil && !w.Was.Approved && t.approved+waiting.approved >= limit:
		return &Exceeded{Tenant: name, Quota: v1alpha1.QuotaSites, Used: t.approved, Limit: limit, Remedy: remedy}
	}
	return nil
}

// boundsLocked checks what binds a tenant's users.
func (l *Ledger) boundsLocked(w Write, name string, t *tenant, waiting, delta count, q v1alpha1.TenantQuotas, now time.Time) error {
	if used := t.objects + waiting.objects; delta.objects > 0 && q.Objects > 0 && used+delta.objects > q.Objects {
		return &Exceeded{Tenant: name, Quota: v1alpha1.QuotaObjects, Used: used, Limit: q.Objects,
			Remedy: "delete objects that are not needed, or ask an operator to raise the tenant's spec.quotas.objects"}
	}
	if used := t.bytes + waiting.bytes; delta.bytes > 0 && q.ObjectBytes > 0 && used+delta.bytes > q.ObjectBytes {
		return &Exceeded{Tenant: name, Quota: v1alpha1.QuotaObjectBytes, Used: used, Limit: q.ObjectBytes,
			Remedy: fmt.Sprintf("this write needs %d more: delete or shrink objects, or ask an operator to raise the tenant's spec.quotas.objectBytes", delta.bytes)}
	}
	if st := l.store; delta.bytes > 0 && st.Quota > 0 && st.InUse >= st.Quota/storeShareDen*storeShareNum {
		return &Exceeded{Tenant: name, Quota: "of the control plane's store", Used: st.InUse, Limit: st.Quota / storeShareDen * storeShareNum, Retry: 60,
			Remedy: "deletions pass; try again in some minutes, or ask an operator to make room in etcd"}
	}
	if cost := w.New + writeOverhead - w.Paid; cost > 0 && !w.DryRun {
		return spend(name, t.writes, cost, now)
	}
	return nil
}

// Set notes what is stored under a key of etcd, without the registry's prefix, such as
// configmaps/acme-shop/settings. What can't be read is counted by its size all the same.
func (l *Ledger) Set(key string, value []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setLocked(key, value)
}

func (l *Ledger) setLocked(key string, value []byte) {
	if name, ok := strings.CutPrefix(key, keyNamespaces); ok {
		l.namespaceLocked(name, tenantOfNamespace(value))
		return
	}
	if name, ok := strings.CutPrefix(key, keyTenants); ok {
		var t struct {
			Spec struct {
				Quotas     v1alpha1.TenantQuotas
				Namespaces []string
			}
		}
		if json.Unmarshal(value, &t) == nil {
			now := l.tenantLocked(name)
			now.quotas, now.named = t.Spec.Quotas, []string{fleet.SystemNamespace(name), fleet.SharedNamespace(name)}
			for _, n := range t.Spec.Namespaces {
				now.named = append(now.named, name+"-"+n)
			}
		}
		return
	}
	o, s := l.spaceLocked(key)
	if s == nil {
		return
	}
	l.forgetLocked(o, s)
	if o.resource == resourceEvents && ownEvent(value) {
		return
	}
	d := count{objects: 1, bytes: int64(len(key) + len(value))}
	if o.resource == resourceSites {
		var v struct {
			Spec Site
		}
		_ = json.Unmarshal(value, &v)
		s.sites[o.name] = v.Spec
		d.objects = 0
		d.add(siteCount(s.sites[o.name]), 1)
	}
	s.sizes[o.resource+"/"+o.name] = int32(d.bytes)
	l.bookLocked(s, d, 1)
	delete(l.pending, o)
}

// Delete notes that a key is gone.
func (l *Ledger) Delete(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if name, ok := strings.CutPrefix(key, keyNamespaces); ok {
		l.namespaceLocked(name, "")
		delete(l.spaces, name)
		return
	}
	if name, ok := strings.CutPrefix(key, keyTenants); ok {
		t := l.tenantLocked(name)
		t.quotas, t.named = v1alpha1.TenantQuotas{}, nil
		return
	}
	if o, s := l.spaceLocked(key); s != nil {
		l.forgetLocked(o, s)
	}
}

// Keys of etcd, below the registry's prefix.
const (
	keyNamespaces = "namespaces/"
	keyTenants    = "muster.dev/tenants/"
	resourceSites = "muster.dev/sites"

	resourceEvents = "events"
)

// spaceLocked takes a key apart: RESOURCE/NAMESPACE/NAME. nil: it is of no namespace.
func (l *Ledger) spaceLocked(key string) (object, *space) {
	rest, name, ok := cutLast(key)
	resource, ns, ok2 := cutLast(rest)
	if !ok || !ok2 {
		return object{}, nil
	}
	if resource == "services/specs" {
		resource = "services"
	}
	return object{resource, ns, name}, l.spaces[ns]
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+1:], true
}

// forgetLocked takes what is known of an object out of the counts.
func (l *Ledger) forgetLocked(o object, s *space) {
	size, ok := s.sizes[o.resource+"/"+o.name]
	if !ok {
		return
	}
	delete(s.sizes, o.resource+"/"+o.name)
	d := count{objects: 1, bytes: int64(size)}
	if o.resource == resourceSites {
		d.objects = 0
		d.add(siteCount(s.sites[o.name]), 1)
		delete(s.sites, o.name)
	}
	l.bookLocked(s, d, -1)
}

func (l *Ledger) bookLocked(s *space, d count, sign int64) {
	s.add(d, sign)
	if s.tenant != "" {
		l.tenantLocked(s.tenant).add(d, sign)
	}
}

// namespaceLocked makes a namespace known, with what is in it, as a tenant's.
func (l *Ledger) namespaceLocked(name, tenant string) {
	s := l.spaces[name]
	if s == nil {
		s = &space{sizes: map[string]int32{}, sites: map[string]Site{}}
		l.spaces[name] = s
	}
	if s.tenant == tenant {
		return
	}
	if s.tenant != "" {
		l.tenantLocked(s.tenant).add(s.count, -1)
	}
	if s.tenant = tenant; tenant != "" {
		l.tenantLocked(tenant).add(s.count, 1)
	}
}
