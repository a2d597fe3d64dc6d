// Package inventory is what the alerting role knows of the fleet: the sites with
// their virtual sites and maintenance, from the API server, and kept on disk so that
// the role works while the API server is away.
//
// It decides nothing. The dead-man and the maintenance silences read its snapshots;
// internal/app runs it.
package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/fleet"
)

// Site is one approved site.
type Site struct {
	ID       fleet.SiteID `json:"id"`
	Region   string       `json:"region,omitempty"`
	Regional string       `json:"regional,omitempty"` // that it is or was last connected to
	// Connected: it has been connected at some time.
	Connected bool      `json:"connected,omitempty"`
	Created   time.Time `json:"created"`
	// VirtualSites as NAMESPACE/NAME, the namespace as users type it, sorted.
	VirtualSites []string `json:"virtualSites,omitempty"`
	// Maintenance is on now, until it is removed or its Until.
	Maintenance *v1alpha1.Maintenance `json:"maintenance,omitempty"`
	// Windows of the site's own.
	Windows []v1alpha1.MaintenanceWindow `json:"windows,omitempty"`
}

// VirtualSite is one that has maintenance windows; others need no mention.
type VirtualSite struct {
	Tenant  string                       `json:"tenant"`
	Name    string                       `json:"name"` // NAMESPACE/NAME
	Windows []v1alpha1.MaintenanceWindow `json:"windows"`
}

// Snapshot is the fleet at one moment. It is never changed once made.
type Snapshot struct {
	Sites        []Site        `json:"sites"`        // by tenant and name
	VirtualSites []VirtualSite `json:"virtualSites"` // by tenant and name
}

// WindowsOf are a site's windows: its own and those of its virtual sites.
func (s *Snapshot) WindowsOf(site Site) []v1alpha1.MaintenanceWindow {
	out := slices.Clone(site.Windows)
	for _, v := range s.VirtualSites {
		if v.Tenant == site.ID.Tenant && slices.Contains(site.VirtualSites, v.Name) {
			out = append(out, v.Windows...)
		}
	}
	return out
}

// Options of New. Cache, File and Logger are needed.
type Options struct {
	// Cache of the API server, with namespaces, sites and virtual sites; somebody else
	// starts it.
	Cache cache.Cache
	File  string // keeps the last snapshot
	// Debounce is how long changes are collected; default 500 ms.
	Debounce time.Duration
	Logger   *slog.Logger
}

// Inventory keeps the snapshot. Safe for concurrent use.
type Inventory struct {
	opts    Options
	touched chan struct{}
	changed chan struct{}

	mu       sync.Mutex
	snapshot *Snapshot // nil: nothing is known yet
	fresh    bool
	saved    string // encoded, as on disk
}

// New loads the snapshot of a former run, if there is one.
func New(o Options) (*Inventory, error) {
	if o.Cache == nil || o.File == "" || o.Logger == nil {
		return nil, errors.New("alerting inventory: Cache, File and Logger must be set")
	}
	if o.Debounce <= 0 {
		o.Debounce = 500 * time.Millisecond
	}
	inv := &Inventory{opts: o, touched: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
	if err := os.MkdirAll(filepath.Dir(o.File), 0o700); err != nil {
		return nil, fmt.Errorf("alerting inventory: %w", err)
	}
	b, err := os.ReadFile(o.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("alerting inventory: %w", err)
	default:
		s, err := decode(b)
		if err != nil {
			o.Logger.Error("the inventory on disk can't be read; waiting for the API server", "file", o.File, "err", err)
			break
		}
		inv.snapshot, inv.saved = s, string(b)
	}
	return inv, nil
}

func decode(b []byte) (*Snapshot, error) {
	var s Snapshot
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, err
	}
	for i, site := range s.Sites {
		if err := site.ID.Validate(); err != nil {
			return nil, fmt.Errorf("sites[%d]: %w", i, err)
		}
	}
	return &s, nil
}

// Ready is nil once something is known, be it from the disk.
func (inv *Inventory) Ready() error {
	if inv.Snapshot() == nil {
		return errors.New("the inventory has not been read from the API server yet")
	}
	return nil
}

// Fresh tells whether the snapshot is the API server's, and not one from the disk.
func (inv *Inventory) Fresh() bool {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return inv.fresh
}

// Snapshot returns the fleet as last known; nil before anything is.
func (inv *Inventory) Snapshot() *Snapshot {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return inv.snapshot
}

// Changed gets a value after each change; one reader.
func (inv *Inventory) Changed() <-chan struct{} { return inv.changed }

// Run watches until ctx ends.
func (inv *Inventory) Run(ctx context.Context) error {
	var synced []toolscache.InformerSynced
	for _, kind := range []client.Object{&corev1.Namespace{}, &v1alpha1.VirtualSite{}, &v1alpha1.Site{}} {
		informer, err := inv.opts.Cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("alerting inventory: watch %T: %w", kind, err)
		}
		h, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { inv.touch() }, UpdateFunc: func(any, any) { inv.touch() }, DeleteFunc: func(any) { inv.touch() },
		})
		if err != nil {
			return fmt.Errorf("alerting inventory: watch %T: %w", kind, err)
		}
		defer func() { _ = informer.RemoveEventHandler(h) }()
		synced = append(synced, h.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return ctx.Err()
	}
	inv.touch()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-inv.touched:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(inv.opts.Debounce):
		}
		select {
		case <-inv.touched:
		default:
		}
		if err := inv.refresh(ctx); err != nil && ctx.Err() == nil {
			inv.opts.Logger.Error("alerting inventory", "err", err)
		}
	}
}

func (inv *Inventory) touch() {
	select {
	case inv.touched <- struct{}{}:
	default:
	}
}

// refresh makes the snapshot anew, and saves it if it differs.
func (inv *Inventory) refresh(ctx context.Context) error {
	s, err := inv.read(ctx)
	if err != nil {
		return err
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	inv.mu.Lock()
	same := inv.fresh && string(b) == inv.saved
	inv.snapshot, inv.fresh = s, true
	inv.mu.Unlock()
	if same {
		return nil
	}
	select {
	case inv.changed <- struct{}{}:
	default:
	}
	if err := atomicfile.Write(inv.opts.File, b, 0o600); err != nil {
		return fmt.Errorf("save the inventory: %w", err)
	}
	inv.mu.Lock()
	inv.saved = string(b)
	inv.mu.Unlock()
	return nil
}

type virtual struct {
	name     string
	selector labels.Selector
}

func (inv *Inventory) read(ctx context.Context) (*Snapshot, error) {
	var (
		namespaces corev1.NamespaceList
		virtuals   v1alpha1.VirtualSiteList
		sites      v1alpha1.SiteList
	)
	for _, l := range []client.ObjectList{&namespaces, &virtuals, &sites} {
		if err := inv.opts.Cache.List(ctx, l); err != nil {
			return nil, fmt.Errorf("list %T: %w", l, err)
		}
	}
	tenantOf := map[string]string{}
	for _, n := range namespaces.Items {
		tenantOf[n.Name] = n.Labels[fleet.LabelTenant]
	}
	s := &Snapshot{Sites: []Site{}, VirtualSites: []VirtualSite{}}
	byTenant := map[string][]virtual{}
	for _, v := range virtuals.Items {
		tenant := tenantOf[v.Namespace]
		short, ok := strings.CutPrefix(v.Namespace, tenant+"-")
		selector, err := metav1.LabelSelectorAsSelector(&v.Spec.SiteSelector)
		if tenant == "" || !ok || err != nil {
			continue // admission refuses bad selectors, and others belong to nobody
		}
		byTenant[tenant] = append(byTenant[tenant], virtual{short + "/" + v.Name, selector})
		if len(v.Spec.MaintenanceWindows) > 0 {
			s.VirtualSites = append(s.VirtualSites, VirtualSite{Tenant: tenant, Name: short + "/" + v.Name, Windows: v.Spec.MaintenanceWindows})
		}
	}
	for i := range sites.Items {
		o := &sites.Items[i]
		tenant, ok := fleet.TenantOfSystemNamespace(o.Namespace)
		if !ok || !o.Spec.Approved || o.Spec.Decommissioned || !o.DeletionTimestamp.IsZero() {
			continue
		}
		site := Site{ID: fleet.SiteID{Tenant: tenant, Name: o.Name}, Region: o.Labels[fleet.LabelRegion], Regional: o.Status.Regional, Connected: o.Status.LastSeen != nil,
			Created: o.CreationTimestamp.UTC(), Maintenance: o.Spec.Maintenance, Windows: o.Spec.MaintenanceWindows}
		for _, v := range byTenant[tenant] {
			if v.selector.Matches(labels.Set(o.Labels)) {
				site.VirtualSites = append(site.VirtualSites, v.name)
			}
		}
		slices.Sort(site.VirtualSites)
		s.Sites = append(s.Sites, site)
	}
	slices.SortFunc(s.Sites, func(a, b Site) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	slices.SortFunc(s.VirtualSites, func(a, b VirtualSite) int { return strings.Compare(a.Tenant+"/"+a.Name, b.Tenant+"/"+b.Name) })
	return s, nil
}
