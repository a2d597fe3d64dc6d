package gatecheck

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/control/rollout/readings"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

// beforeFor is over how long what was before is averaged.
const beforeFor = 30 * time.Minute

// defaultGates are those of a check that names none.
func defaultGates(spec *v1alpha1.GateCheckSpec) []v1alpha1.RolloutGate {
	var out []v1alpha1.RolloutGate
	for _, g := range decide.DefaultGates() {
		switch {
		case g.Ready != nil: // nobody said what is to be ready
		case (g.Before != nil || g.Peers != nil) && spec.Since == nil: // nor what was before
		default:
			out = append(out, g)
		}
	}
	if spec.Since == nil {
		out = append(out, v1alpha1.RolloutGate{Name: "unhealthy", Unhealthy: &v1alpha1.GateUnhealthy{MaxPercent: 0}})
	}
	return out
}

// scope is the fleet as a check's names mean it.
type scope struct {
	tenant, namespace string // the latter as users type it
	snapshot          *inventory.Snapshot
}

// members are the sites of a virtual site that count.
func (s scope) members(field, name string) ([]*inventory.Site, error) {
	key, err := render.VirtualSite(name, s.namespace)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	for _, v := range s.snapshot.VirtualSitesOf(s.tenant) {
		if v.Key() != key {
			continue
		}
		out := make([]*inventory.Site, 0, len(v.Members))
		for _, i := range v.Members {
			out = append(out, s.snapshot.Sites[i])
		}
		return out, nil
	}
	return nil, fmt.Errorf("%s: there is no virtual site %s: make it, or name another as NAMESPACE/NAME", field, key)
}

// changed are the sites that a check is about.
func (s scope) changed(spec *v1alpha1.GateCheckSpec) ([]*inventory.Site, error) {
	if spec.VirtualSite != "" {
		return s.members("spec.virtualSite", spec.VirtualSite)
	}
	var out []*inventory.Site
	for _, name := range slices.Compact(slices.Sorted(slices.Values(spec.Sites))) {
		at := s.snapshot.Find(s.tenant, name)
		if at < 0 || !s.snapshot.Sites[at].Counts() {
			return nil, fmt.Errorf("spec.sites[%d]: tenant %s has no site %.80q that is approved", slices.Index(spec.Sites, name), s.tenant, name)
		}
		out = append(out, s.snapshot.Sites[at])
	}
	return out, nil
}

// left counts the sites that are left out, by why.
type left struct{ offline, maintenance int }

func (l left) String() string {
	var out []string
	if l.offline > 0 {
		out = append(out, fmt.Sprintf("%d offline", l.offline))
	}
	if l.maintenance > 0 {
		out = append(out, fmt.Sprintf("%d in maintenance", l.maintenance))
	}
	return strings.Join(out, " and ")
}

// sites are those that gates are read at. Those in maintenance are left out, and those
// that were offline when the others got the change: neither passes nor fails anything.
func (c *Controller) sites(list []*inventory.Site, since time.Time, now time.Time) (out []decide.Site, l left) {
	for _, s := range list {
		online := s.Phase == fleet.PhaseOnline || c.o.Online(s.ID.Tenant, s.ID.Name)
		switch {
		case s.MaintenanceAt(now) != nil:
			l.maintenance++
		case !online && (since.IsZero() || s.LastSeen.Before(since)):
			l.offline++
		default:
			out = append(out, decide.Site{Name: s.ID.Name, Labels: s.Labels, VirtualSites: s.VirtualSites, Online: online, State: decide.Ready, Pace: s.Pace()})
		}
	}
	return out, l
}

func names(list []decide.Site) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = list[i].Name
	}
	return out
}

// subjects are sites whose history is asked.
func (s scope) subjects(lists ...[]string) []readings.Subject {
	var out []readings.Subject
	for _, name := range slices.Concat(lists...) {
		if at := s.snapshot.Find(s.tenant, name); at >= 0 {
			out = append(out, readings.Subject{Name: name, Born: s.snapshot.Sites[at].CreatedAt, Pace: s.snapshot.Sites[at].Pace()})
		}
	}
	return out
}

// evaluate answers a check.
func (c *Controller) evaluate(ctx context.Context, tenant string, g *v1alpha1.GateCheck) v1alpha1.GateCheckStatus {
	now := c.o.Now()
	spec := &g.Spec
	for _, gate := range spec.Gates {
		if gate.Ready != nil {
			return held(fmt.Sprintf("spec.gates[%s].ready: a GateCheck does not say what is to be ready: leave this gate to the pipeline that asks, or use a Rollout", gate.Name))
		}
		if (gate.Before != nil || gate.Peers != nil) && spec.Since == nil {
			return held(fmt.Sprintf("spec.since: gate %s compares with what was before: say since when the sites have the change", gate.Name))
		}
	}
	short, _ := render.Short(tenant, g.Namespace)
	in := scope{tenant, short, c.o.Inventory.Snapshot()}
	if in.snapshot == nil {
		return held("the sites are not known yet; ask again in a few seconds")
	}
	all, err := in.changed(spec)
	if err != nil {
		return held(err.Error())
	}
	var others []*inventory.Site
	if spec.Peers != "" {
		if others, err = in.members("spec.peers", spec.Peers); err != nil {
			return held(err.Error())
		}
		others = slices.DeleteFunc(others, func(s *inventory.Site) bool { return slices.Contains(all, s) })
	}
	var since time.Time
	if spec.Since != nil {
		since = spec.Since.Time
	}
	changed, l := c.sites(all, since, now)
	peers, _ := c.sites(others, since, now)
	if len(changed) == 0 {
		why := "it has no sites"
		if len(all) > 0 {
			why = fmt.Sprintf("all of %s are left out: %s", howMany(len(all)), l)
		}
		return held("there is nothing to read: " + why)
	}
	gates := spec.Gates
	if len(gates) == 0 {
		gates = defaultGates(spec)
	}
	q := readings.Question{Tenant: tenant, Namespace: g.Namespace, Rollout: g.Name, Gates: gates, Changed: names(changed), Peers: names(peers), Paces: decide.Paces(changed, peers), Since: since}
	var before map[string]map[string]float64
	var wg sync.WaitGroup
	if spec.Since != nil {
		wg.Go(func() {
			sites := in.subjects(q.Changed, q.Peers)
			before = c.o.Readings.Before(ctx, tenant, sites, since.Add(-beforeFor), since)
			if before == nil {
				before = map[string]map[string]float64{}
			}
			c.o.Readings.QueriesAt(ctx, tenant, gates, sites, since, before)
		})
	}
	answer := c.o.Readings.Read(ctx, q)
	wg.Wait()
	for _, list := range [][]decide.Site{changed, peers} {
		for i := range list {
			of := answer.Sites[list[i].Name]
			list[i].Measures, list[i].Red, list[i].Alerts, list[i].AlertsKnown = of.Measures, of.Red, of.Alerts, of.AlertsKnown
		}
	}
	if since.IsZero() {
		since = now.Add(-beforeFor)
	}
	m := c.memories.of(tenant, g, now)
	m.mu.Lock()
	verdict, read := decide.Evaluate(gates, changed, peers, before, m.memory, answer.Outside, since, 0, now)
	m.mu.Unlock()
	return v1alpha1.GateCheckStatus{Verdict: verdict, Gates: read, Message: message(verdict, read, len(changed), l)}
}

// message is the answer in a sentence: what speaks most against it, and what was read.
func message(verdict v1alpha1.GateVerdict, read []v1alpha1.GateReading, sites int, l left) string {
	var text string
	if verdict == v1alpha1.GatePass {
		text = "All gates pass"
	}
	for _, r := range read {
		if text == "" && r.Verdict == verdict {
			text = r.Name + ": " + strings.TrimSuffix(r.Text, ".")
		}
	}
	text += "; read at " + howMany(sites)
	if out := l.String(); out != "" {
		text += ", without " + out
	}
	return text + "."
}

const (
	// rememberFor is how long what a check saw counts for the next one that asks the same.
	rememberFor = 10 * time.Minute
	// maxMemories of a tenant; a pipeline needs one.
	maxMemories = 20
	// sameSince is how far apart two times may be that mean the same change: who says "ten
	// minutes ago" says another time whenever they ask.
	sameSince = 5 * time.Minute
)

// memories are what checks saw of the sites. Gates that have to see something for a while
// need it: a pipeline asks again and again, and what held at each of its checks held.
type memories struct {
	mu sync.Mutex
	by map[string]map[[sha256.Size]byte]*memory // by tenant and question
}

type memory struct {
	mu     sync.Mutex
	memory *decide.Memory
	used   time.Time
	since  time.Time // as it was asked last
}

// of returns what earlier checks with the same question saw.
func (m *memories) of(tenant string, g *v1alpha1.GateCheck, now time.Time) *memory {
	spec := g.Spec
	var since time.Time
	if spec.Since != nil {
		since, spec.Since = spec.Since.Time, nil
	}
	b, err := json.Marshal([]any{g.Namespace, spec})
	if err != nil {
		panic(err) // it came as JSON
	}
	key := sha256.Sum256(b)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil {
		m.by = map[string]map[[sha256.Size]byte]*memory{}
	}
	mine := m.by[tenant]
	if mine == nil {
		mine = map[[sha256.Size]byte]*memory{}
		m.by[tenant] = mine
	}
	x := mine[key]
	if x == nil || since.Sub(x.since).Abs() > sameSince {
		x = &memory{memory: &decide.Memory{}}
		if len(mine) >= maxMemories {
			oldest := key
			for k, y := range mine {
				if old := mine[oldest]; old == nil || y.used.Before(old.used) {
					oldest = k
				}
			}
			delete(mine, oldest)
		}
		mine[key] = x
	}
	x.used, x.since = now, since
	return x
}

// forget drops what nobody has asked for of late.
func (m *memories) forget(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for tenant, mine := range m.by {
		for key, x := range mine {
			if now.Sub(x.used) > rememberFor {
				delete(mine, key)
			}
		}
		if len(mine) == 0 {
			delete(m.by, tenant)
		}
	}
}

func howMany(sites int) string {
	if sites == 1 {
		return "1 site"
	}
	return fmt.Sprintf("%d sites", sites)
}
