package deadman

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/runbooks"
)

// Names of the alerts.
const (
	AlertSiteDown           = "SiteDown"
	AlertRegionDown         = "RegionDown"
	AlertRegionalDown       = "RegionalDown"
	AlertSiteNeverConnected = "SiteNeverConnected"
	AlertWatchdog           = "Watchdog"
)

// Site is what the decision needs of one approved site.
type Site struct {
	ID           fleet.SiteID
	Region       string
	Regional     string // that it is or was last connected to
	Connected    bool   // it has been connected at some time
	Created      time.Time
	VirtualSites []string
	// Maintenance is on now. The site's silence is planned and says nothing of its region.
	Maintenance bool
}

// View is what is known of one regional now.
type View struct {
	Name string
	// Reachable: it answered lately. Since is when it last began, or ceased, to answer.
	Reachable bool
	Since     time.Time
	// Sites that it has: whether connected, and when last heard of.
	Sites map[fleet.SiteID]LiveSite
}

// LiveSite is a regional's word on a site.
type LiveSite struct {
	Connected bool
	LastSeen  time.Time
}

// Config of the decision.
type Config struct {
	SiteFor     time.Duration // silent for so long before SiteDown
	RegionalFor time.Duration // not answering for so long before RegionalDown
	// Grace is how long after a regional answers again its sites have to come back
	// before they count as silent. It is also how long, after RegionalFor, a regional's
	// sites may take to appear at another one and in the inventory, and how long a region
	// stays to blame while its sites come back.
	Grace     time.Duration
	NeverFor  time.Duration // approved for so long before SiteNeverConnected
	MinSites  int           // silent at once, before a region is to blame
	MinShare  float64       // of a tenant's sites of the region, silent, before it is
	EndShare  float64       // below which the region is no longer to blame
	Watchdog  bool
	Console   string   // where browsers open it: runbooks begin with it
	Regionals []string // all that there should be
}

// State is what the decision remembers. It is JSON, kept over restarts.
type State struct {
	// Silent is since when sites that were connected are silent, by tenant/site.
	Silent map[string]time.Time `json:"silent"`
	// Regions that are to blame, by tenant/region: since when too few of their sites are
	// silent for that, or zero.
	Regions map[string]time.Time `json:"regions"`
	// Firing is since when alerts fire, by their key.
	Firing map[string]time.Time `json:"firing"`
}

// Alert is one that fires.
type Alert struct {
	Labels, Annotations map[string]string
	StartsAt            time.Time
}

// key names an alert over time. Labels that follow the inventory are not in it.
func (a Alert) key() string {
	return strings.Join([]string{a.Labels["alertname"], a.Labels["tenant"], a.Labels["region"], a.Labels["regional"], a.Labels["site"]}, "\x00")
}

// Decide says which alerts fire. It is a pure function: neither clock nor I/O. The
// result is the same for the same input, and every silent site is covered by exactly
// one of SiteDown and RegionalDown. RegionDown comes beside the SiteDown of each of its
// sites and before them: Alertmanager is to have it first, as it inhibits them, and
// they inhibit what else fires at their sites.
func Decide(c Config, sites []Site, views []View, prev State, now time.Time) ([]Alert, State) {
	d := decision{c: c, now: now, prev: prev, views: map[string]View{}, next: State{Silent: map[string]time.Time{}, Regions: map[string]time.Time{}, Firing: map[string]time.Time{}}}
	for _, v := range views {
		d.views[v.Name] = v
	}
	d.regionals(sites)
	d.regions(sites)
	if c.Watchdog {
		d.fire(map[string]string{"alertname": AlertWatchdog, "tenant": fleet.PlatformTenant, "severity": "info"},
			"always fires, so that somebody notices when it stops", "Route it to a service that alerts when it does not come any more.")
	}
	return d.alerts, d.next
}

type decision struct {
	c      Config
	now    time.Time
	prev   State
	next   State
	views  map[string]View
	down   map[string]bool // regionals
	moving bool            // some are down so lately that their sites may be on the way to others
	alerts []Alert
}

func (d *decision) fire(labels map[string]string, summary, description string) {
	a := Alert{Labels: labels, Annotations: map[string]string{"summary": summary, "description": description, "runbook_url": runbooks.URL(d.c.Console, labels["alertname"])}}
	for k, v := range labels {
		if v == "" {
			delete(labels, k)
		}
	}
	k := a.key()
	a.StartsAt = d.now
	if at, ok := d.prev.Firing[k]; ok {
		a.StartsAt = at
	}
	d.next.Firing[k] = a.StartsAt
	d.alerts = append(d.alerts, a)
}

// regionals finds those that do not answer, and tells the operators and each tenant
// that has sites there.
func (d *decision) regionals(sites []Site) {
	d.down = map[string]bool{}
	tenants := map[string]map[string]int{} // regional → tenant → sites
	for _, s := range sites {
		if s.Regional != "" {
			if tenants[s.Regional] == nil {
				tenants[s.Regional] = map[string]int{}
			}
			tenants[s.Regional][s.ID.Tenant]++
		}
	}
	for _, name := range d.c.Regionals {
		v := d.views[name]
		if v.Reachable {
			continue
		}
		// Its sites are not looked at from the first moment on: whether they are silent is
		// not known.
		d.down[name] = true
		d.moving = d.moving || d.now.Sub(v.Since) < d.c.RegionalFor+d.c.Grace
		if d.now.Sub(v.Since) < d.c.RegionalFor {
			continue
		}
		all := 0
		for _, n := range tenants[name] {
			all += n
		}
		d.fire(map[string]string{"alertname": AlertRegionalDown, "tenant": fleet.PlatformTenant, "regional": name, "severity": "critical"},
			fmt.Sprintf("the regional %s does not answer; %d sites were last seen there", name, all), "Its process, machine or network is gone. Sites keep their data, or use their second regional.")
		for _, t := range slices.Sorted(maps.Keys(tenants[name])) {
			d.fire(map[string]string{"alertname": AlertRegionalDown, "tenant": t, "regional": name, "severity": "critical"},
				fmt.Sprintf("the regional %s does not answer; %d of your sites were last seen there", name, tenants[name][t]), "Its process, machine or network is gone. Sites keep their data, or use their second regional.")
		}
	}
}

// group is a tenant's sites of a region, of which it is known whether they are silent.
type group struct {
	silent []Site // for SiteFor; in maintenance, too
	// The numbers leave out what is in maintenance. Quiet sites will be silent soon: a
	// region's sites don't fall silent in the same second, and the first of them must not
	// alert before the others count.
	all, quiet, ripe int // ripe: silent for SiteFor
}

// regions finds silent sites and blames the region where most of them are silent.
func (d *decision) regions(sites []Site) {
	groups := map[string]*group{} // tenant/region
	for _, s := range sites {
		if !s.Connected && !d.heard(s) {
			if d.now.Sub(s.Created) >= d.c.NeverFor && !d.down[s.Regional] && !d.moving {
				d.fire(d.siteLabels(AlertSiteNeverConnected, "warning", s), s.ID.Name+" was approved but has never connected", "Look at the agent on the machine: muster-edge status.")
			}
			continue
		}
		k := s.ID.Tenant + "/" + s.Region
		g := groups[k]
		if g == nil {
			g = &group{}
			groups[k] = g
		}
		quiet, known := d.silent(s)
		if !known {
			continue // its regional is to blame, if anybody
		}
		ripe := quiet && d.now.Sub(d.next.Silent[s.ID.String()]) >= d.c.SiteFor
		if ripe {
			g.silent = append(g.silent, s)
		}
		if s.Maintenance {
			continue
		}
		g.all++
		if quiet {
			g.quiet++
		}
		if ripe {
			g.ripe++
		}
	}
	for _, k := range slices.Sorted(maps.Keys(groups)) {
		g := groups[k]
		if len(g.silent) == 0 {
			continue
		}
		if s := g.silent[0]; s.Region != "" && d.blamed(k, g) {
			d.fire(map[string]string{"alertname": AlertRegionDown, "tenant": s.ID.Tenant, "region": s.Region, "severity": "critical"},
				fmt.Sprintf("%d of the %d sites of region %s are silent", g.quiet, g.all, s.Region), "Their regional answers: the network of the region is to blame. The alerts of its sites are held back.")
		}
		for _, s := range g.silent {
			at := d.next.Silent[s.ID.String()]
			d.fire(d.siteLabels(AlertSiteDown, "critical", s), fmt.Sprintf("%s has been silent since %s", s.ID.Name, at.UTC().Format(time.RFC3339)),
				"No regional hears of the site. Look at its uplink and power. The collector goes on, and fills the gap later.")
		}
	}
}

// blamed tells whether a region is to blame, and remembers it. It stays so for Grace
// after too many sites are back: the rest of them alert already, and would be notified
// of on their way back if the region let go of them at once.
func (d *decision) blamed(k string, g *group) bool {
	eased, was := d.prev.Regions[k]
	share := d.c.MinShare
	if was {
		share = d.c.EndShare
	}
	enough := g.quiet >= d.c.MinSites && float64(g.quiet)/float64(g.all) >= share
	switch {
	case enough && (was || g.ripe > 0):
		eased = time.Time{}
	case !was:
		return false
	case eased.IsZero():
		eased = d.now
	case d.now.Sub(eased) >= d.c.Grace:
		return false
	}
	d.next.Regions[k] = eased
	return true
}

func (d *decision) siteLabels(name, severity string, s Site) map[string]string {
	return map[string]string{"alertname": name, "tenant": s.ID.Tenant, "site": s.ID.Name, "region": s.Region, "regional": s.Regional, "severity": severity, "virtual_sites": region.VirtualSitesLabel(s.VirtualSites)}
}

// heard tells whether some regional has ever had the site, though the inventory does
// not say so yet.
func (d *decision) heard(s Site) bool {
	for _, v := range d.views {
		if l, ok := v.Sites[s.ID]; ok && (l.Connected || !l.LastSeen.IsZero()) {
			return true
		}
	}
	return false
}

// silent tells whether a site is silent, however shortly, and whether that is known: a
// regional that does not answer, or has only just begun to, knows nothing of its sites.
func (d *decision) silent(s Site) (silent, known bool) {
	key := s.ID.String()
	for _, v := range d.views {
		if v.Reachable && v.Sites[s.ID].Connected {
			return false, true
		}
	}
	since, was := d.prev.Silent[key]
	// The site may be on a regional that does not answer: the one that it was last on, or
	// for a while another one, as the inventory hears late of a move. Not for longer: one
	// dead regional must not hide the silent sites of the others.
	if d.down[s.Regional] || !was && d.moving {
		if was {
			d.next.Silent[key] = since
		}
		return false, false
	}
	if !was {
		since = d.now
		if v, ok := d.views[s.Regional]; ok && v.Reachable && d.now.Sub(v.Since) < d.c.Grace {
			return false, false // it has only just come back, and so may the site
		}
	}
	d.next.Silent[key] = since
	return true, true
}
