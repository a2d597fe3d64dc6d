package rollout

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/control/rollout/readings"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

const (
	// beforeFor is for how long this process asks the history for what it has not seen
	// itself, and how far back; beforeEvery how often.
	beforeFor   = 15 * time.Minute
	beforeEvery = time.Minute
)

// roster is the fleet as a rollout's names mean it.
type roster struct {
	tenant, namespace string // the latter as users type it
	snapshot          *inventory.Snapshot
}

func (j *job) fleet() roster {
	short, _ := render.Short(j.tenant, j.key.Namespace)
	return roster{j.tenant, short, j.c.o.Inventory.Snapshot()}
}

// key is what a name of a virtual site means; "": nothing.
func (f roster) key(name string) string {
	key, err := render.VirtualSite(name, f.namespace)
	if err != nil {
		return ""
	}
	return key
}

// missing names the first field with a virtual site that isn't there; "": none is.
func (f roster) missing(spec *v1alpha1.RolloutSpec) string {
	named := map[string]string{}
	var order []string
	add := func(field, name string) {
		if name != "" {
			named[field] = name
			order = append(order, field)
		}
	}
	for i, name := range spec.VirtualSites {
		add(fmt.Sprintf("spec.virtualSites[%d]", i), name)
	}
	if spec.Strategy.Type == v1alpha1.StrategyBlueGreen {
		add("spec.strategy.blue", spec.Strategy.Blue)
	}
	for i, w := range spec.Strategy.Waves {
		add(fmt.Sprintf("spec.strategy.waves[%d].virtualSite", i), w.VirtualSite)
	}
	have := map[string]bool{}
	for _, v := range f.snapshot.VirtualSitesOf(f.tenant) {
		have[v.Key()] = true
	}
	for _, field := range order {
		if !have[f.key(named[field])] {
			return fmt.Sprintf("%s: there is no virtual site %s: make it, or name another as NAMESPACE/NAME", field, named[field])
		}
	}
	return ""
}

func (f roster) member(name string, of []string) bool {
	key := f.key(name)
	return key != "" && slices.Contains(of, key)
}

func (f roster) inScope(spec *v1alpha1.RolloutSpec, of []string) bool {
	return len(spec.VirtualSites) == 0 || slices.ContainsFunc(spec.VirtualSites, func(name string) bool { return f.member(name, of) })
}

func (f roster) scope(spec *v1alpha1.RolloutSpec) func(*decide.Site) bool {
	return func(s *decide.Site) bool { return f.inScope(spec, s.VirtualSites) }
}

func (f roster) isMember(name string, s *decide.Site) bool { return f.member(name, s.VirtualSites) }

// sites are those of these names that are known, sorted, with where they belong alone.
func (f roster) sites(names map[string]bool) []decide.Site {
	var out []decide.Site
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if i := f.snapshot.Find(f.tenant, name); i >= 0 {
			at := f.snapshot.Sites[i]
			out = append(out, decide.Site{Name: name, Labels: at.Labels, VirtualSites: at.VirtualSites, Zone: fleet.TimeZone(at.Labels), Pace: at.Pace()})
		}
	}
	return out
}

// subjects are sites whose history is asked.
func (f roster) subjects(names []string) []readings.Subject {
	var out []readings.Subject
	for _, name := range names {
		if i := f.snapshot.Find(f.tenant, name); i >= 0 {
			out = append(out, readings.Subject{Name: name, Born: f.snapshot.Sites[i].CreatedAt, Pace: f.snapshot.Sites[i].Pace()})
		}
	}
	return out
}

// place is where a rollout stands in the line.
func (f roster) place(j *job, carried map[string]bool) place {
	p := place{tenant: f.tenant, created: j.r.CreationTimestamp.Time, begun: j.st != nil && j.st.Spec.Decided != nil, paused: j.r.Spec.Control.Paused, sites: map[string]bool{}, moving: map[string]bool{}}
	for name := range carried {
		if i := f.snapshot.Find(f.tenant, name); i >= 0 && f.inScope(&j.r.Spec, f.snapshot.Sites[i].VirtualSites) {
			p.sites[name] = true
		}
	}
	for _, o := range j.objects {
		p.objects = append(p.objects, objectID(o.kind.Kind, o.kind.Group, j.key.Namespace, o.name))
	}
	if j.st != nil {
		p.moving, p.failed = decide.Moving(&j.st.Spec)
	}
	return p
}

// stepsOf are the steps of a state's sites.
func stepsOf(s *v1alpha1.RolloutStateSpec) map[string]v1alpha1.SiteStep {
	names := strings.Fields(s.Sites)
	out := make(map[string]v1alpha1.SiteStep, len(names))
	for i, name := range names {
		if i < len(s.Steps) {
			out[name] = v1alpha1.SiteStep(s.Steps[i])
		}
	}
	return out
}

// input gathers what a decision depends on; false: something is not known yet.
func (j *job) input(ctx context.Context, supersededBy string) (decide.Input, bool, error) {
	f := j.fleet()
	in := decide.Input{Name: j.key.Name, Spec: j.r.Spec.DeepCopy(), State: j.st.Spec.DeepCopy(), SupersededBy: supersededBy, Memory: j.known.memory, Reach: readings.Reach(j.r.Spec.Gates), Now: j.now, User: j.r.Annotations[v1alpha1.AnnotationControlledBy],
		InScope: f.scope(&j.r.Spec), Member: f.isMember}
	if supersededBy != "" {
		return in, true, nil // what its sites have is the other one's
	}
	said := map[string]Site{}
	for _, o := range j.objects {
		if o.live == nil {
			continue
		}
		list, known := j.c.o.Sites.Of(o.kind, j.key.Namespace, o.name, j.st)
		if !known {
			return in, false, nil
		}
		for _, s := range list {
			if was, ok := said[s.Name]; !ok || rank(s.State) > rank(was.State) {
				said[s.Name] = s
			}
		}
	}
	carried := map[string]bool{}
	for name := range said {
		carried[name] = true
	}
	in.Sites = f.sites(carried)
	for i := range in.Sites {
		s := &in.Sites[i]
		at := f.snapshot.Sites[f.snapshot.Find(f.tenant, s.Name)]
		s.State, s.Why = said[s.Name].State, said[s.Name].Why
		s.Online, s.Maintenance = at.Phase == fleet.PhaseOnline || j.c.o.Online(f.tenant, s.Name), at.MaintenanceAt(j.now) != nil
	}
	mine := f.place(j, carried)
	j.c.stand(j.known, mine)
	if busy := j.c.busy(j.key, mine); len(busy) > 0 {
		for i := range in.Sites {
			h := busy[in.Sites[i].Name]
			in.Sites[i].Busy, in.Sites[i].Later = h.why, h.later
		}
	}
	if j.r.DeletionTimestamp != nil {
		in.Spec.Control.Abort = true
	}
	if j.st.Spec.Decided == nil && !in.Spec.Control.Abort {
		if why := f.missing(&j.r.Spec); why != "" {
			return in, false, j.wait(ctx, why)
		}
	}
	j.read(ctx, &in)
	return in, true, nil
}

// rank orders what sites say of several objects: the worst counts.
func rank(a decide.Applied) int {
	return slices.Index([]decide.Applied{decide.Ready, decide.Progressing, decide.Restarting, decide.NotYet, decide.Waits, decide.Failed}, a)
}

// read asks what gates read.
func (j *job) read(ctx context.Context, in *decide.Input) {
	q := readings.Question{Tenant: j.tenant, Namespace: j.key.Namespace, Rollout: j.key.Name, Gates: decide.GatesOf(&in.Spec.RolloutPlan)}
	in.Parsed = decide.Parse(in.State)
	q.Since = in.Parsed.Since()
	steps := stepsOf(in.State)
	var unchanged []string
	for i := range in.Sites {
		name := in.Sites[i].Name
		switch steps[name] {
		case v1alpha1.StepUpdating, v1alpha1.StepReady, v1alpha1.StepFailed:
			q.Changed = append(q.Changed, name)
		case v1alpha1.StepPassed: // at the end those are left to compare with
			q.Peers = append(q.Peers, name)
		default:
			unchanged = append(unchanged, name)
		}
	}
	q.Peers = append(q.Peers, unchanged...)
	q.Paces = decide.Paces(in.Sites)
	answer := j.c.o.Readings.Read(ctx, q)
	in.Outside = answer.Outside
	for i := range in.Sites {
		s := &in.Sites[i]
		if of, ok := answer.Sites[s.Name]; ok {
			s.Measures, s.Red, s.Alerts, s.AlertsKnown = of.Measures, of.Red, of.Alerts, of.AlertsKnown
		}
	}
	if j.now.Sub(j.known.since) < beforeFor {
		if j.now.Sub(j.known.beforeAt) >= beforeEvery {
			j.known.before, j.known.beforeAt = j.c.o.Readings.Before(ctx, j.tenant, j.fleet().subjects(unchanged), j.now.Add(-beforeFor), j.now), j.now
		}
		in.Before = j.known.before
	}
}
