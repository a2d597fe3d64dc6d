package inventory

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/fleet"
)

// saved is the file: the objects as the API server had them, without what the
// inventory doesn't read.
type saved struct {
	Format       int                          `json:"format"`
	Namespaces   map[string]string            `json:"namespaces"` // full name to tenant
	Tenants      []v1alpha1.Tenant            `json:"tenants"`
	VirtualSites []v1alpha1.VirtualSite       `json:"virtualSites"`
	Sites        []v1alpha1.Site              `json:"sites"`
	Policies     map[string][]json.RawMessage `json:"policies,omitempty"` // by kind
	// Rollouts of policies.
	Rollouts []v1alpha1.RolloutState `json:"rollouts,omitempty"`
}

const savedFormat = 1

// load reads the file of an earlier run. One that can't be used is as good as none.
func (inv *Inventory) load() error {
	if err := disk.MkdirAll(disk.OS{}, filepath.Dir(inv.opts.File), 0o700); err != nil {
		return fmt.Errorf("inventory: %w", err)
	}
	b, err := os.ReadFile(inv.opts.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("inventory: %w", err)
	}
	st := newState(inv.log)
	if err := st.decode(b, inv.opts.Policies); err != nil {
		inv.log.Error("the inventory on disk can't be read; waiting for the API server", "file", inv.opts.File, "err", err)
		return nil
	}
	inv.state = st
	s, _ := st.next(nil)
	inv.snapshot.Store(s)
	return nil
}

func (st *state) decode(b []byte, policies []PolicyKind) error {
	var in saved
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	if in.Format != savedFormat {
		return fmt.Errorf("format %d, want %d", in.Format, savedFormat)
	}
	for name, tenant := range in.Namespaces {
		if tenant != fleet.PlatformTenant {
			if err := fleet.ValidateTenant(tenant); err != nil {
				return fmt.Errorf("namespaces: %s: %w", name, err)
			}
		}
		st.putNamespace(name, tenant)
	}
	for i := range in.Tenants {
		st.putTenant(&in.Tenants[i])
	}
	for i := range in.VirtualSites {
		st.putVirtual(&in.VirtualSites[i])
	}
	for i := range in.Sites {
		o := &in.Sites[i]
		if err := (fleet.SiteID{Tenant: "any", Name: o.Name}).Validate(); err != nil {
			return fmt.Errorf("sites[%d]: %w", i, err)
		}
		st.putSite(o)
	}
	for i := range in.Rollouts {
		st.putRollout(&in.Rollouts[i])
	}
	for i := range policies {
		k := &policies[i]
		for n, raw := range in.Policies[k.Kind] {
			o := k.Object()
			if err := json.Unmarshal(raw, o); err != nil {
				return fmt.Errorf("policies: %s[%d]: %w", k.Kind, n, err)
			}
			st.putPolicy(k, o)
		}
	}
	return nil
}

// save writes the file if something changed that is in it.
func (inv *Inventory) save() {
	if inv.opts.File == "" {
		return
	}
	inv.mu.Lock()
	if !inv.unsaved {
		inv.mu.Unlock()
		return
	}
	b, err := inv.state.encode()
	inv.unsaved = false
	inv.mu.Unlock()
	if err == nil {
		err = atomicfile.Write(inv.opts.File, b, 0o600)
	}
	if err != nil {
		inv.log.Error("the inventory can't be saved; a restart without the API server would begin with an older one", "err", err)
		inv.mu.Lock()
		inv.unsaved = true
		inv.mu.Unlock()
	}
}

func (st *state) encode() ([]byte, error) {
	out := saved{Format: savedFormat, Namespaces: map[string]string{}, Policies: map[string][]json.RawMessage{}, Tenants: []v1alpha1.Tenant{}, VirtualSites: []v1alpha1.VirtualSite{}, Sites: []v1alpha1.Site{}}
	for name, n := range st.namespaces {
		out.Namespaces[name] = n.tenant
	}
	for _, name := range slices.Sorted(maps.Keys(st.tenants)) {
		out.Tenants = append(out.Tenants, v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TenantSpec{Quotas: st.tenants[name]}})
	}
	for _, k := range slices.SortedFunc(maps.Keys(st.virtual), compareKeys) {
		v := st.virtual[k]
		out.VirtualSites = append(out.VirtualSites, v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: k.name},
			Spec: v1alpha1.VirtualSiteSpec{SiteSelector: v.source, Description: v.description, MaintenanceWindows: v.windows}})
	}
	for _, k := range slices.SortedFunc(maps.Keys(st.sites), compareKeys) {
		out.Sites = append(out.Sites, st.sites[k].base.object(k))
	}
	for _, k := range slices.SortedFunc(maps.Keys(st.policies), func(a, b policyKey) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), compareKeys(a.objectKey, b.objectKey))
	}) {
		r := st.policies[k]
		if r.policy == nil {
			continue
		}
		raw, err := st.encodePolicy(r)
		if err != nil {
			return nil, fmt.Errorf("%s %s/%s: %w", k.kind, k.namespace, k.name, err)
		}
		out.Policies[k.kind] = append(out.Policies[k.kind], raw)
	}
	for _, k := range slices.SortedFunc(maps.Keys(st.rollouts), compareKeys) {
		if o := st.rollouts[k].object; o != nil {
			spec := o.Spec
			spec.Decided = nil
			out.Rollouts = append(out.Rollouts, v1alpha1.RolloutState{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: k.name}, Spec: spec})
		}
	}
	return json.Marshal(out)
}

func compareKeys(a, b objectKey) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}

// object is what siteOf was told, as far as it is kept.
func (s *Site) object(k objectKey) v1alpha1.Site {
	o := v1alpha1.Site{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: k.name, Labels: s.Labels, CreationTimestamp: metav1.Time{Time: s.CreatedAt}},
		Spec:       v1alpha1.SiteSpec{Approved: s.Counts(), Decommissioned: s.Phase == fleet.PhaseDecommissioned, Maintenance: s.ByHand, MaintenanceWindows: s.Windows, Software: s.Pins},
		Status:     v1alpha1.SiteStatus{Phase: s.Phase, Regional: s.Regional, Health: s.Health, PolicyHash: s.PolicyHash, Versions: s.Versions, Software: s.Software},
	}
	if !s.LastSeen.IsZero() {
		o.Status.LastSeen = &metav1.Time{Time: s.LastSeen}
	}
	if p := s.Place; p != nil {
		o.Spec.Place = &v1alpha1.Place{Latitude: strconv.FormatFloat(p.Latitude, 'f', -1, 64), Longitude: strconv.FormatFloat(p.Longitude, 'f', -1, 64), Address: p.Address}
	}
	return o
}

// encodePolicy leaves out what a policy was made by, and its status.
func (st *state) encodePolicy(r *policyRecord) (json.RawMessage, error) {
	p := r.policy
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p.Object)
	if err != nil {
		return nil, err
	}
	meta := map[string]any{"namespace": p.Object.GetNamespace(), "name": p.Object.GetName(), "generation": p.Generation, "uid": string(p.uid)}
	if known := st.rollouts[objectKey{r.key.namespace, r.rollout}]; known != nil && known.object != nil {
		meta["annotations"] = map[string]any{v1alpha1.AnnotationRollout: r.rollout}
	}
	return json.Marshal(map[string]any{"spec": u["spec"], "metadata": meta})
}
