package desired

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
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

type itemKey struct{ kind, tenant string }

// tenantRules are a tenant's rules, for the regionals.
type tenantRules struct {
	alerts map[string]alertSpec
	logs   map[string]logSpec
	keys   map[string]bool // labels that the log rules select by
}

type alertSpec struct {
	spec   v1alpha1.AlertRulesSpec
	digest string
}

type logSpec struct {
	spec   v1alpha1.LogRulesSpec
	digest string
}

// sameForRegionals tells whether regionals are told the same of both.
func sameForRegionals(a, b *inventory.Site) bool {
	return a.Counts() == b.Counts() && a.Regional == b.Regional && maps.Equal(a.Labels, b.Labels) && slices.Equal(a.VirtualSites, b.VirtualSites) && slices.Equal(a.Policies, b.Policies)
}

func (s *Store) rulesLocked(tenant string) *tenantRules {
	t := s.rules[tenant]
	if t == nil {
		t = &tenantRules{alerts: map[string]alertSpec{}, logs: map[string]logSpec{}}
		s.rules[tenant] = t
	}
	return t
}

func (s *Store) touchLocked(tenant string) {
	s.dirty[tenant] = true
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// SetAlertRules adds or changes an AlertRules object of the tenant.
func (s *Store) SetAlertRules(tenant, name string, spec v1alpha1.AlertRulesSpec) {
	digest := SpecDigest(spec)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.rulesLocked(tenant)
	if t.alerts[name].digest != digest {
		t.alerts[name] = alertSpec{*spec.DeepCopy(), digest}
		s.touchLocked(tenant)
	}
}

// SetLogRules adds or changes a LogRules object of the tenant.
func (s *Store) SetLogRules(tenant, name string, spec v1alpha1.LogRulesSpec) {
	digest := SpecDigest(spec)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.rulesLocked(tenant)
	if t.logs[name].digest != digest {
		t.logs[name] = logSpec{*spec.DeepCopy(), digest}
		s.keysChangedLocked(tenant, t)
		s.touchLocked(tenant)
	}
}

// DeleteRules forgets an object; kind is KindAlertRules or KindLogRules.
func (s *Store) DeleteRules(tenant, kind, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.rules[tenant]
	if t == nil {
		return
	}
	switch kind {
	case KindAlertRules:
		delete(t.alerts, name)
	case KindLogRules:
		delete(t.logs, name)
		s.keysChangedLocked(tenant, t)
	}
	if len(t.alerts)+len(t.logs) == 0 {
		delete(s.rules, tenant)
	}
	s.touchLocked(tenant)
}

// keysChangedLocked notes which labels log rules select by: regionals get no others.
// The platform's rules see all tenants' sites.
func (s *Store) keysChangedLocked(tenant string, t *tenantRules) {
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
	if tenant != fleet.PlatformTenant || s.known == nil {
		return // the caller marks the tenant
	}
	for _, t := range s.known.Tenants {
		s.touchLocked(t.Name)
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
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.contents[blobDigest][kind+"/"+name]
}

// Run renders what changed for regionals, and of workloads for sites, until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.runWorkloads(ctx) })
	if s.opts.Content != nil {
		wg.Go(func() { s.keepContent(ctx) })
	}
	var next time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
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
		made := s.renderRegional()
		next = s.opts.Now().Add(max(s.opts.RenderEvery, time.Duration(made)*time.Second/renderBytesPerSecond))
	}
}

// renderRegional makes new items for the tenants that changed and publishes them
// together, so that rules and the labels that they select by come together. It returns
// the size of those that differ from before.
func (s *Store) renderRegional() (made int64) {
	s.rendering.Lock()
	defer s.rendering.Unlock()
	s.mu.Lock()
	known := s.known
	if known == nil {
		known = &inventory.Snapshot{}
	}
	var inventories []region.Inventory
	var rules []region.Rules
	contents := map[string]map[string]string{} // by tenant
	gone := map[itemKey]bool{}
	platform := s.rules[fleet.PlatformTenant]
	for name := range s.dirty {
		gone[itemKey{region.KindInventory, name}], gone[itemKey{region.KindRules, name}] = true, true
		t := s.rules[name]
		if inv, ok := inventoryOf(known, name, s.opts.Regionals, s.opts.Quotas, t, platform); ok {
			inv.Hosts = s.hosts.forRegionals(name)
			inventories = append(inventories, inv)
		}
		if t != nil && len(t.alerts)+len(t.logs) > 0 {
			r, c := t.rules(name)
			rules, contents[name] = append(rules, r), c
		}
	}
	clear(s.dirty)
	s.mu.Unlock()

	put := func(kind, tenant string, blob []byte) Piece {
		key := itemKey{kind, tenant}
		delete(gone, key)
		old, had := s.items[key]
		if len(blob) > region.MaxBytes {
			s.opts.Logger.Error("too large for regionals; they keep what they have", "kind", kind, "tenant", tenant, "bytes", len(blob), "limit", region.MaxBytes)
			return old
		}
		if p := NewPiece(tenant, blob); !had || p.Digest != old.Digest {
			s.items[key] = p
			made += int64(len(blob))
		}
		return s.items[key]
	}
	for _, i := range inventories {
		put(region.KindInventory, i.Tenant, i.Encode())
	}
	s.mu.Lock()
	for _, r := range rules { // known before the first regional can report it
		blob := r.Encode()
		if p := put(region.KindRules, r.Tenant, blob); bytes.Equal(p.Blob, blob) {
			s.rememberLocked(r.Tenant, p.Digest, contents[r.Tenant])
		}
	}
	s.mu.Unlock()
	for key := range gone {
		delete(s.items, key)
	}
	s.publish()
	return made
}

// rememberLocked keeps what the tenant's last Rules blobs were made of: a regional
// that is away goes on with an old one.
func (s *Store) rememberLocked(tenant, digest string, contents map[string]string) {
	history := slices.DeleteFunc(s.history[tenant], func(d string) bool { return d == digest })
	history = append(history, digest)
	for len(history) > maxHistory {
		delete(s.contents, history[0])
		history = history[1:]
	}
	s.history[tenant], s.contents[digest] = history, contents
}

// publish gives the items to the store.
func (s *Store) publish() {
	keys := slices.SortedFunc(maps.Keys(s.items), func(a, b itemKey) int {
		if c := strings.Compare(a.kind, b.kind); c != 0 {
			return c
		}
		return strings.Compare(a.tenant, b.tenant)
	})
	items := make([]*wire.Item, len(keys))
	blobs := make([][]byte, len(keys))
	for i, k := range keys {
		p := s.items[k]
		items[i], blobs[i] = &wire.Item{Kind: k.kind, Name: k.tenant, Digest: p.Digest, Size: int64(len(p.Blob))}, p.Blob
	}
	s.setRegional(&wire.DesiredState{Revision: wire.RevisionOf(items), Items: items}, blobs)
}

func (t *tenantRules) rules(name string) (region.Rules, map[string]string) {
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

// inventoryOf is what regionals are told of a tenant's sites; false: it has none, and
// does not exist.
func inventoryOf(known *inventory.Snapshot, name string, regionals []string, defaults v1alpha1.TenantQuotas, own, platform *tenantRules) (region.Inventory, bool) {
	tenant := known.Tenant(name)
	inv := region.Inventory{Tenant: name, Regionals: regionals, Sites: []region.Site{}}
	if tenant != nil {
		quotas := tenant.Quotas.InEffect(defaults)
		inv.Series, inv.LogBytesPerDay = quotas.Series, quotas.LogBytesPerDay
	}
	policies := map[string]int{} // by the set of policies that made them, then by what they say
	same := map[string]int{}
	for _, s := range known.SitesOf(name) {
		if !s.Counts() {
			continue
		}
		site := region.Site{Name: s.ID.Name, Region: s.Region, Regional: s.Regional, VirtualSites: s.VirtualSites}
		if pace := fleet.Pace(s.Interval()); pace > fleet.Quick {
			site.PaceSeconds = int(pace / time.Second)
		}
		if s.Regional == "" || (len(regionals) > 0 && !slices.Contains(regionals, s.Regional)) {
			site.Regional = rendezvous(regionals, s.ID)
		}
		for k, v := range s.Labels {
			if own.selectsBy(k) || platform.selectsBy(k) {
				if site.Labels == nil {
					site.Labels = map[string]string{}
				}
				site.Labels[k] = v
			}
		}
		chosen := s.PoliciesOf(fleet.KindCollectionPolicy)
		key := policiesKey(name, chosen)
		i, ok := policies[key]
		if !ok {
			p := logPolicy(chosen)
			text, err := json.Marshal(p)
			if err != nil {
				panic(fmt.Sprintf("desired: encode a log policy: %v", err)) // plain data: can't fail
			}
			if i, ok = same[string(text)]; !ok {
				i = len(inv.LogPolicies)
				same[string(text)] = i
				inv.LogPolicies = append(inv.LogPolicies, p)
			}
			policies[key] = i
		}
		site.LogPolicy = i
		inv.Sites = append(inv.Sites, site)
	}
	return inv, len(inv.Sites) > 0 || tenant != nil && tenant.Exists
}

// selectsBy tells whether log rules look at a label: regionals get no others. The
// platform's rules see all tenants' sites.
func (t *tenantRules) selectsBy(label string) bool { return t != nil && t.keys[label] }

// logPolicy joins the lists of collection policies, strongest first; each rate is that of
// the strongest one that sets it.
func logPolicy(policies []*inventory.Policy) region.LogPolicy {
	var out region.LogPolicy
	for _, p := range policies {
		l := specOf(p).Logs
		if l == nil {
			continue
		}
		out.Allow = append(out.Allow, l.Allow...)
		out.Deny = append(out.Deny, l.Deny...)
		if out.BytesPerSecond == 0 && l.BytesPerSecond != nil {
			out.BytesPerSecond = l.BytesPerSecond.Value()
		}
		if out.LinesPerSecond == 0 && l.LinesPerSecond != nil {
			out.LinesPerSecond = int64(*l.LinesPerSecond)
		}
	}
	slices.Sort(out.Allow)
	slices.Sort(out.Deny)
	out.Allow, out.Deny = slices.Compact(out.Allow), slices.Compact(out.Deny)
	return out
}

// rendezvous chooses a regional for a site, always the same: that with the highest
// hash of both. One more or less moves only the sites that it wins or had.
func rendezvous(regionals []string, id fleet.SiteID) string {
	best, winner := [sha256.Size]byte{}, ""
	for _, r := range regionals {
		sum := sha256.Sum256([]byte(r + "\x00" + id.String()))
		if winner == "" || slices.Compare(sum[:], best[:]) > 0 {
			best, winner = sum, r
		}
	}
	return winner
}
