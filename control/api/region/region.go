// Package region is what control tells every regional of each tenant: its sites
// (Inventory) and its rules (Rules), as JSON blobs that are named by their digest like
// a site's desired state. A regional keeps the last ones on disk, so that rules and
// budgets go on while control is away.
//
// It holds the shapes and their coding, and does no I/O. control/desired encodes,
// cmd/internal/regional decodes.
package region

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/vhost"
)

// Kinds of a regional's items (wire.Item.Kind). The item's name is the tenant.
const (
	KindInventory = "Inventory"
	KindRules     = "Rules"
)

// MaxBytes of one blob.
const MaxBytes = 256 << 20

// Inventory is a tenant's sites. All regionals get the same one.
type Inventory struct {
	Tenant string `json:"tenant"`
	// Series and LogBytesPerDay bound all sites together; 0: no bound. See Share.
	Series         int64 `json:"series,omitempty"`
	LogBytesPerDay int64 `json:"logBytesPerDay,omitempty"`
	// Regionals there are, by name.
	Regionals []string `json:"regionals,omitempty"`
	// LogPolicies are the different ones in use; Site.LogPolicy is an index into them.
	LogPolicies []LogPolicy `json:"logPolicies,omitempty"`
	// Sites that are approved and not decommissioned, by name.
	Sites []Site `json:"sites"`
	// Hosts are the virtual hosts that sites may reach, by name.
	Hosts []Host `json:"hosts,omitempty"`
}

// Host is a virtual host of the tenant.
type Host struct {
	Name string `json:"name"` // NAMESPACE/NAME
	// Providers and Consumers are virtual sites, whose sites serve it and reach it.
	Providers []string `json:"providers"`
	Consumers []string `json:"consumers"`
}

// Share is how much of a quota of the tenant the regional enforces; 0: there is no
// quota. Each has a part by the number of sites that it answers for, and, where there
// are several, a tenth of the quota in equal parts on top: a site that moves is not
// refused before control has heard of it. So all together enforce the quota and a
// tenth of it at most.
func (i Inventory) Share(quota int64, regional string) int64 {
	if quota <= 0 {
		return 0
	}
	all, own := int64(len(i.Sites)), int64(0)
	for _, s := range i.Sites {
		if s.Regional == regional {
			own++
		}
	}
	regionals := int64(len(i.Regionals))
	if regionals <= 1 {
		return quota
	}
	spare := quota / 10 / regionals
	part := quota / regionals
	if all > 0 {
		part = quota/all*own + quota%all*own/all // quota * own / all, without its overflow
	}
	if part > quota-spare {
		return quota
	}
	return max(1, part+spare)
}

// LogPolicy is what a regional takes of a site's logs; see v1alpha1.LogPolicy.
type LogPolicy struct {
	Allow          []string `json:"allow,omitempty"`
	Deny           []string `json:"deny,omitempty"`
	BytesPerSecond int64    `json:"bytesPerSecond,omitempty"` // 0: the default
	LinesPerSecond int64    `json:"linesPerSecond,omitempty"` // 0: what follows from the bytes
}

// Site is one entry of the inventory.
type Site struct {
	Name   string `json:"name"`
	Region string `json:"region,omitempty"`
	// Regional answers for the site: the one that it is or was last connected to. For a
	// site never heard of, one that control chose, always the same.
	Regional string `json:"regional,omitempty"`
	// Labels that log rules select by, of the tenant or the platform; no others.
	Labels map[string]string `json:"labels,omitempty"`
	// VirtualSites are NAMESPACE/NAME, the namespace as users type it, sorted.
	VirtualSites []string `json:"virtualSites,omitempty"`
	LogPolicy    int      `json:"logPolicy,omitempty"`
	// PaceSeconds is the fleet.Pace of a site that is scraped less than once a minute; 0: as often, or oftener.
	PaceSeconds int `json:"paceSeconds,omitempty"`
}

// Rules are a tenant's rules, by name of the object.
type Rules struct {
	Tenant string         `json:"tenant"`
	Alerts []AlertRuleSet `json:"alerts,omitempty"`
	Logs   []LogRuleSet   `json:"logs,omitempty"`
}

// AlertRuleSet is one AlertRules object.
type AlertRuleSet struct {
	Name string                  `json:"name"`
	Spec v1alpha1.AlertRulesSpec `json:"spec"`
}

// LogRuleSet is one LogRules object.
type LogRuleSet struct {
	Name string                `json:"name"`
	Spec v1alpha1.LogRulesSpec `json:"spec"`
}

// Encode returns the blob; equal values give equal bytes.
func (i Inventory) Encode() []byte { return encode(i) }

// Encode returns the blob; equal values give equal bytes.
func (r Rules) Encode() []byte { return encode(r) }

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("region: encode %T: %v", v, err)) // plain data: can't fail
	}
	return b
}

// DecodeInventory parses and checks a blob. Fields that a newer control has added
// are ignored.
func DecodeInventory(b []byte) (Inventory, error) {
	var i Inventory
	if err := decode(b, &i); err != nil {
		return Inventory{}, fmt.Errorf("inventory: %w", err)
	}
	if err := fleet.ValidateTenant(i.Tenant); err != nil {
		return Inventory{}, fmt.Errorf("inventory: tenant: %w", err)
	}
	if i.Series < 0 || i.LogBytesPerDay < 0 {
		return Inventory{}, errors.New("inventory: series, logBytesPerDay: a quota is not negative")
	}
	for n, s := range i.Sites {
		if err := (fleet.SiteID{Tenant: i.Tenant, Name: s.Name}).Validate(); err != nil {
			return Inventory{}, fmt.Errorf("inventory: sites[%d]: %w", n, err)
		}
		if s.LogPolicy < 0 || (s.LogPolicy > 0 && s.LogPolicy >= len(i.LogPolicies)) {
			return Inventory{}, fmt.Errorf("inventory: sites[%d].logPolicy: %d: there are %d policies", n, s.LogPolicy, len(i.LogPolicies))
		}
	}
	for n, h := range i.Hosts {
		if !vhost.ValidKey(h.Name) {
			return Inventory{}, fmt.Errorf("inventory: hosts[%d].name: %q: want NAMESPACE/NAME", n, h.Name)
		}
	}
	if !slices.IsSortedFunc(i.Sites, func(a, b Site) int { return strings.Compare(a.Name, b.Name) }) {
		return Inventory{}, errors.New("inventory: sites are not in order of their names")
	}
	return i, nil
}

// DecodeRules parses and checks a blob. The rules themselves are for those who
// evaluate them to check.
func DecodeRules(b []byte) (Rules, error) {
	var r Rules
	if err := decode(b, &r); err != nil {
		return Rules{}, fmt.Errorf("rules: %w", err)
	}
	if err := fleet.ValidateTenant(r.Tenant); err != nil {
		return Rules{}, fmt.Errorf("rules: tenant: %w", err)
	}
	return r, nil
}

func decode(b []byte, out any) error {
	if len(b) > MaxBytes {
		return fmt.Errorf("%d bytes, the limit is %d", len(b), MaxBytes)
	}
	return json.Unmarshal(b, out)
}

// VirtualSitesLabel is the value of the alert label virtual_sites: every virtual
// site between bars, as in "|shared/all|shared/europe|", so that a matcher such as
// virtual_sites=~".*[|]shared/europe[|].*" finds one of them. "" for none.
func VirtualSitesLabel(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "|" + strings.Join(names, "|") + "|"
}
