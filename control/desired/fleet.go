package desired

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// Kinds of the objects that a Rules item is made of.
const (
	KindAlertRules = "AlertRules"
	KindLogRules   = "LogRules"
)

// How changes of what regionals hold are gathered: a pass comes so long after the
// first change, and the next one at least Options.RenderEvery later, or later still
// if the last one made more than one second's worth of bytes a second.
const (
	renderSettle         = 300 * time.Millisecond
	renderBytesPerSecond = 1 << 20
)

// maxHistory is of how many Rules blobs of a tenant it is known what they hold.
const maxHistory = 50

// Fleet collects what all regionals are told of every tenant: its sites and its
// rules. Set and Delete only note what changed; Store.Start renders everything once
// and Store.Run renders the tenants that changed, all in one pass, so that rules
// and the labels that they select by come together. Safe for concurrent use.
type Fleet struct {
	store     *Store
	regionals []string
	wake      chan struct{}

	mu         sync.Mutex
	tenants    map[string]*tenantFleet
	namespaces map[string]namespace                  // by name in Kubernetes
	virtual    map[string]map[string]labels.Selector // by namespace in Kubernetes, then name
	dirty      map[string]bool                       // tenants
	// contents tells which specs, by digest, a Rules blob is made of; by the blob's
	// digest, then KIND/NAME. history has each tenant's blobs, oldest first.
	contents map[string]map[string]string
	history  map[string][]string

	rendering sync.Mutex
	items     map[itemKey]Piece // as last published; guarded by rendering
}

type itemKey struct{ kind, tenant string }

type namespace struct{ tenant, short string } // short: as users type it

type tenantFleet struct {
	exists         bool // a Tenant object says so
	logBytesPerDay int64
	sites          map[string]*member
	policies       []*policy // strongest first
	alerts         map[string]alertSpec
	logs           map[string]logSpec
	keys           map[string]bool // labels that the log rules select by

	virtual []virtualSite // as of the last pass
	stale   bool          // every site has to be placed anew
}

type alertSpec struct {
	spec   v1alpha1.AlertRulesSpec
	digest string
}

type logSpec struct {
	spec   v1alpha1.LogRulesSpec
	digest string
}

type virtualSite struct {
	name     string // NAMESPACE/NAME
	selector labels.Selector
}

// member is one site of the inventory.
type member struct {
	labels   labels.Set
	regional string // as observed; empty: never connected
	placed   bool
	out      region.Site // without LogPolicy
	logs     region.LogPolicy
	logsKey  string
}

func newFleet(s *Store, regionals []string) *Fleet {
	return &Fleet{
		store: s, regionals: slices.Clone(regionals), wake: make(chan struct{}, 1), tenants: map[string]*tenantFleet{}, namespaces: map[string]namespace{},
		virtual: map[string]map[string]labels.Selector{}, dirty: map[string]bool{}, contents: map[string]map[string]string{}, history: map[string][]string{}, items: map[itemKey]Piece{},
	}
}

// Fleet is where what regionals are told is set.
func (s *Store) Fleet() *Fleet { return s.fleet }

func (f *Fleet) tenantLocked(name string) *tenantFleet {
	t := f.tenants[name]
	if t == nil {
		t = &tenantFleet{sites: map[string]*member{}, alerts: map[string]alertSpec{}, logs: map[string]logSpec{}, stale: true}
		f.tenants[name] = t
	}
	return t
}

func (f *Fleet) touchLocked(tenant string) {
	f.dirty[tenant] = true
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// replaceLocked makes every site of the tenant be placed anew.
func (f *Fleet) replaceLocked(tenant string) {
	f.tenantLocked(tenant).stale = true
	f.touchLocked(tenant)
}

// SetTenant adds a tenant or changes its quota of logs; 0: none.
func (f *Fleet) SetTenant(name string, logBytesPerDay int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.tenantLocked(name)
	if !t.exists || t.logBytesPerDay != logBytesPerDay {
		t.exists, t.logBytesPerDay = true, logBytesPerDay
		f.touchLocked(name)
	}
}

// DeleteTenant forgets the tenant's quota. Its sites and rules stay in force until
// they are deleted themselves.
func (f *Fleet) DeleteTenant(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.tenants[name]; t != nil && t.exists {
		t.exists, t.logBytesPerDay = false, 0
		f.touchLocked(name)
	}
}

// SetNamespace says to which tenant a Kubernetes namespace belongs; "": to none.
func (f *Fleet) SetNamespace(name, tenant string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := namespace{tenant: tenant}
	var ok bool
	if now.short, ok = strings.CutPrefix(name, tenant+"-"); !ok || tenant == "" {
		now = namespace{}
	}
	was := f.namespaces[name]
	if was == now {
		return
	}
	if was.tenant != "" {
		f.replaceLocked(was.tenant)
	}
	delete(f.namespaces, name)
	if now.tenant != "" {
		f.namespaces[name] = now
		f.replaceLocked(now.tenant)
	}
}

// SetVirtualSite adds or changes a virtual site of a Kubernetes namespace. One whose
// selector can't be used takes no sites.
func (f *Fleet) SetVirtualSite(ns, name string, selector metav1.LabelSelector) {
	sel, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		f.store.opts.Logger.Warn("a virtual site's selector can't be read and takes no site", "namespace", ns, "virtualSite", name, "err", err)
		sel = labels.Nothing()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := f.virtual[ns][name]; old != nil && old.String() == sel.String() {
		return // only its status changed
	}
	if f.virtual[ns] == nil {
		f.virtual[ns] = map[string]labels.Selector{}
	}
	f.virtual[ns][name] = sel
	if n, ok := f.namespaces[ns]; ok {
		f.replaceLocked(n.tenant)
	}
}

// DeleteVirtualSite forgets a virtual site.
func (f *Fleet) DeleteVirtualSite(ns, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.virtual[ns], name)
	if len(f.virtual[ns]) == 0 {
		delete(f.virtual, ns)
	}
	if n, ok := f.namespaces[ns]; ok {
		f.replaceLocked(n.tenant)
	}
}

// SetSite adds a site that is approved and not decommissioned, or changes it.
// regional is the one that it is or was connected to; "": never connected. set
// must not be changed afterwards.
func (f *Fleet) SetSite(id fleet.SiteID, set map[string]string, regional string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.tenantLocked(id.Tenant)
	old := t.sites[id.Name]
	if old != nil && old.regional == regional && maps.Equal(old.labels, set) {
		return
	}
	t.sites[id.Name] = &member{labels: set, regional: regional}
	f.touchLocked(id.Tenant)
}

// DeleteSite forgets a site.
func (f *Fleet) DeleteSite(id fleet.SiteID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.tenants[id.Tenant]; t != nil && t.sites[id.Name] != nil {
		delete(t.sites, id.Name)
		f.touchLocked(id.Tenant)
	}
}

// setPolicies takes a tenant's collection policies, strongest first.
func (f *Fleet) setPolicies(tenant string, list []*policy) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.tenantLocked(tenant)
	same := slices.EqualFunc(t.policies, list, func(a, b *policy) bool {
		return a == b || (a.selector.String() == b.selector.String() && equality.Semantic.DeepEqual(a.spec.Logs, b.spec.Logs))
	})
	t.policies = slices.Clone(list)
	if !same {
		f.replaceLocked(tenant)
	}
}

// SetAlertRules adds or changes an AlertRules object of the tenant.
func (f *Fleet) SetAlertRules(tenant, name string, spec v1alpha1.AlertRulesSpec) {
	digest := SpecDigest(spec)
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.tenantLocked(tenant)
	if t.alerts[name].digest != digest {
		t.alerts[name] = alertSpec{*spec.DeepCopy(), digest}
		f.touchLocked(tenant)
	}
}

// SetLogRules adds or changes a LogRules object of the tenant.
func (f *Fleet) SetLogRules(tenant, name string, spec v1alpha1.LogRulesSpec) {
	digest := SpecDigest(spec)
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.tenantLocked(tenant)
	if t.logs[name].digest != digest {
		t.logs[name] = logSpec{*spec.DeepCopy(), digest}
		f.keysChangedLocked(tenant, t)
		f.touchLocked(tenant)
	}
}

// DeleteRules forgets an object; kind is KindAlertRules or KindLogRules.
func (f *Fleet) DeleteRules(tenant, kind, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.tenants[tenant]
	if t == nil {
		return
	}
	switch kind {
	case KindAlertRules:
		delete(t.alerts, name)
	case KindLogRules:
		delete(t.logs, name)
		f.keysChangedLocked(tenant, t)
	}
	f.touchLocked(tenant)
}

// keysChangedLocked notes which labels log rules select by: regionals get no others.
// The platform's rules see all tenants' sites.
func (f *Fleet) keysChangedLocked(tenant string, t *tenantFleet) {
	keys := map[string]bool{}
	for _, l := range t.logs {
		for k := range l.spec.SiteSelector.MatchLabels {
			keys[k] = true
		}
		for _, e := range l.spec.SiteSelector.MatchExpressions {
			keys[e.Key] = true
		}
	}
	if maps.Equal(keys, t.keys) {
		return
	}
	t.keys = keys
	if tenant != fleet.PlatformTenant {
		f.replaceLocked(tenant)
		return
	}
	for name := range f.tenants {
		f.replaceLocked(name)
	}
}

// SpecDigest names a spec by what it holds.
func SpecDigest(spec any) string {
	b, err := json.Marshal(spec)
	if err != nil {
		panic(fmt.Sprintf("desired: encode %T: %v", spec, err)) // plain data: can't fail
	}
	return wire.DigestOf(b)
}

// SpecIn returns the SpecDigest with which the object, of KindAlertRules or
// KindLogRules, is in a tenant's Rules blob; "": it is not in it, or the blob is not
// known any more.
func (s *Store) SpecIn(blobDigest, kind, name string) string {
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	return s.fleet.contents[blobDigest][kind+"/"+name]
}

// Run renders what changed for regionals until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	f := s.fleet
	var next time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.wake:
		}
		t := time.NewTimer(max(renderSettle, next.Sub(s.opts.Now())))
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
		if !s.Started() {
			continue // Start renders all there is
		}
		made := f.render()
		next = s.opts.Now().Add(max(s.opts.RenderEvery, time.Duration(made)*time.Second/renderBytesPerSecond))
	}
}

// render makes new items for the tenants that changed and publishes them together.
// It returns the size of those that differ from before.
func (f *Fleet) render() (made int64) {
	f.rendering.Lock()
	defer f.rendering.Unlock()
	f.mu.Lock()
	var inventories []region.Inventory
	var rules []region.Rules
	contents := map[string]map[string]string{} // by tenant
	gone := map[itemKey]bool{}
	for name := range f.dirty {
		gone[itemKey{region.KindInventory, name}], gone[itemKey{region.KindRules, name}] = true, true
		t := f.tenants[name]
		if t == nil {
			continue
		}
		if t.exists || len(t.sites) > 0 {
			inventories = append(inventories, f.inventoryLocked(name, t))
		}
		if len(t.alerts)+len(t.logs) > 0 {
			r, c := t.rules(name)
			rules, contents[name] = append(rules, r), c
		}
		if !t.exists && len(t.sites)+len(t.alerts)+len(t.logs)+len(t.policies) == 0 {
			delete(f.tenants, name)
		}
	}
	clear(f.dirty)
	f.mu.Unlock()

	put := func(kind, tenant string, blob []byte) Piece {
		key := itemKey{kind, tenant}
		delete(gone, key)
		old, had := f.items[key]
		if len(blob) > region.MaxBytes {
			f.store.opts.Logger.Error("too large for regionals; they keep what they have", "kind", kind, "tenant", tenant, "bytes", len(blob), "limit", region.MaxBytes)
			return old
		}
		if p := NewPiece(tenant, blob); !had || p.Digest != old.Digest {
			f.items[key] = p
			made += int64(len(blob))
		}
		return f.items[key]
	}
	for _, i := range inventories {
		put(region.KindInventory, i.Tenant, i.Encode())
	}
	f.mu.Lock()
	for _, r := range rules { // known before the first regional can report it
		blob := r.Encode()
		if p := put(region.KindRules, r.Tenant, blob); bytes.Equal(p.Blob, blob) {
			f.rememberLocked(r.Tenant, p.Digest, contents[r.Tenant])
		}
	}
	f.mu.Unlock()
	for key := range gone {
		delete(f.items, key)
	}
	f.publish()
	return made
}

// rememberLocked keeps what the tenant's last Rules blobs were made of: a regional
// that is away goes on with an old one.
func (f *Fleet) rememberLocked(tenant, digest string, contents map[string]string) {
	history := slices.DeleteFunc(f.history[tenant], func(d string) bool { return d == digest })
	history = append(history, digest)
	for len(history) > maxHistory {
		delete(f.contents, history[0])
		history = history[1:]
	}
	f.history[tenant], f.contents[digest] = history, contents
}

// publish gives the items to the store.
func (f *Fleet) publish() {
	keys := slices.SortedFunc(maps.Keys(f.items), func(a, b itemKey) int {
		if c := strings.Compare(a.kind, b.kind); c != 0 {
			return c
		}
		return strings.Compare(a.tenant, b.tenant)
	})
	items := make([]*wire.Item, len(keys))
	blobs := make([][]byte, len(keys))
	for i, k := range keys {
		p := f.items[k]
		items[i], blobs[i] = &wire.Item{Kind: k.kind, Name: k.tenant, Digest: p.Digest, Size: int64(len(p.Blob))}, p.Blob
	}
	f.store.setRegional(&wire.DesiredState{Revision: wire.RevisionOf(items), Items: items}, blobs)
}

func (t *tenantFleet) rules(name string) (region.Rules, map[string]string) {
	out := region.Rules{Tenant: name}
	contents := map[string]string{}
	for _, n := range slices.Sorted(maps.Keys(t.alerts)) {
		out.Alerts = append(out.Alerts, region.AlertRuleSet{Name: n, Spec: t.alerts[n].spec})
		contents[KindAlertRules+"/"+n] = t.alerts[n].digest
	}
	for _, n := range slices.Sorted(maps.Keys(t.logs)) {
		out.Logs = append(out.Logs, region.LogRuleSet{Name: n, Spec: t.logs[n].spec})
		contents[KindLogRules+"/"+n] = t.logs[n].digest
	}
	return out, contents
}
