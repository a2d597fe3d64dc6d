package engine

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"muster.dev/muster/health"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

const (
	// namedAtOnce is how many sites a query for objects lists; for more, all are asked.
	namedAtOnce = 300
	// renameEvery is how many ticks apart the objects of a signal that goes on losing are
	// asked for again.
	renameEvery = 4
)

// blame remembers which sites' objects were asked for, from tick to tick. It belongs to
// the goroutine that collects, of which there is one at a time.
type blame struct {
	snap *inventory.Snapshot
	plan *plan
	lost []map[int32]bool // of each query for objects, the sites that lost in the last tick
	tick int
}

// wanted are the sites for which each query for objects must be asked: those that lose
// in a signal since this tick, and from time to time those that go on losing.
func (e *Engine) wanted(a *answers) [][]int32 {
	if len(a.plan.objects) == 0 {
		return nil
	}
	b := &e.blame
	if b.snap != a.snap.Snapshot || b.plan != a.plan {
		*b = blame{snap: a.snap.Snapshot, plan: a.plan, lost: make([]map[int32]bool, len(a.plan.objects))}
	}
	b.tick++
	lost := make([]map[int32]bool, len(a.plan.objects))
	out := make([][]int32, len(a.plan.objects))
	for j, site := range a.snap.Sites {
		if !site.Counts() || a.home[j] == homeUnknown {
			continue
		}
		bind := a.plan.binding(a.snap.of[j])
		for i, o := range bind.objects {
			q := bind.query[i]
			if o < 0 || q < 0 || !a.have[q][j] || bind.model.Well(i, a.value[q][j]) || !(bind.model.Signals[i].Score(a.value[q][j]) < 1) {
				continue
			}
			if lost[o] == nil {
				lost[o] = map[int32]bool{}
			}
			lost[o][int32(j)] = true
			if !b.lost[o][int32(j)] || (b.tick+o)%renameEvery == 0 {
				out[o] = append(out[o], int32(j))
			}
		}
	}
	b.lost = lost
	return out
}

// name asks for the objects to blame: for each query that is wanted one question to each
// place where such sites are.
func (e *Engine) name(ctx context.Context, a *answers, targets map[int32]*place) {
	free := make(chan struct{}, e.opts.Concurrency*max(1, len(targets)))
	var wg sync.WaitGroup
	for o, sites := range e.wanted(a) {
		by := map[int32][]int32{}
		for _, j := range sites {
			by[a.home[j]] = append(by[a.home[j]], j)
		}
		for at, sites := range by {
			t := targets[at]
			if t == nil {
				continue
			}
			select {
			case free <- struct{}{}:
			case <-ctx.Done():
				wg.Wait()
				return
			}
			wg.Go(func() {
				defer func() { <-free }()
				e.nameAt(ctx, a, o, sites, t.target)
			})
		}
	}
	wg.Wait()
}

type object struct {
	name  string
	value float64
}

// nameAt asks one query for objects about sites of one place. What fails is left
// unnamed: the reason stands without it.
func (e *Engine) nameAt(ctx context.Context, a *answers, o int, sites []int32, t target) {
	only := a.plan.objects[o].tenant
	ask := make(map[int32][]object, len(sites))
	names := make([]string, 0, len(sites))
	for _, j := range sites {
		ask[j] = nil
		names = append(names, a.snap.Sites[j].ID.Name)
	}
	var ls objectLabels
	add := func(ten, site []byte, v float64) error {
		defer ls.reset()
		j := a.snap.Find(string(ten), string(site))
		if j < 0 || only != "" && string(ten) != only {
			return nil
		}
		if was, asked := ask[int32(j)]; asked && len(was) < maxObjects {
			ask[int32(j)] = append(was, object{ls.name(), v})
		}
		return nil
	}
	if err := e.ask(ctx, t, a.plan.objects[o].about(names), a.at, func(answer []byte) error { return decodeLabelled(answer, ls.add, add) }); err != nil {
		e.metrics.unnamed.Inc()
		return
	}
	out := make(map[int32][]string, len(ask))
	for j, objects := range ask {
		out[j] = e.describe(a, o, j, objects)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.named[o] == nil {
		a.named[o] = out
		return
	}
	for j, names := range out {
		a.named[o][j] = names
	}
}

// describe writes a site's objects for people, the worst first, without those that are
// well.
func (e *Engine) describe(a *answers, o int, j int32, objects []object) []string {
	bind := a.plan.binding(a.snap.of[j])
	sig := &bind.model.Signals[slices.Index(bind.objects, o)]
	slices.SortFunc(objects, func(x, y object) int {
		return cmp.Or(cmp.Compare(sig.Score(x.value), sig.Score(y.value)), cmp.Compare(x.name, y.name))
	})
	out := make([]string, 0, len(objects))
	for _, x := range objects {
		if sig.Score(x.value) == 1 || x.name == "" {
			continue
		}
		if sig.Unit != "" && sig.Unit != "count" {
			x.name += " (" + health.FormatValue(x.value, sig.Unit) + ")"
		}
		out = append(out, x.name)
	}
	return out
}

// objectLabels are the labels of one series that say what it is about.
type objectLabels struct {
	node, instance, job, namespace, pod, container, workload, kind, claim, mount, device, metric, problem, target, service, other string
}

func (l *objectLabels) reset() { *l = objectLabels{} }

// maxLabel bounds what of a label stands in a reason.
const maxLabel = 100

func (l *objectLabels) add(name, value []byte) {
	switch string(name) {
	case fleet.SeriesTenant, fleet.SeriesSite, fleet.SeriesRegion: // whose, and not what
		return
	}
	v := string(value)
	if len(v) > maxLabel {
		v = strings.ToValidUTF8(v[:maxLabel], "") + "…"
	}
	switch string(name) {
	case "node", "nodename":
		l.node = v
	case "instance":
		l.instance = v
	case "job":
		l.job = v
	case "namespace":
		l.namespace = v
	case "pod":
		l.pod = v
	case "container":
		l.container = v
	case "deployment", "statefulset", "daemonset", "cronjob", "job_name":
		l.kind, l.workload = strings.TrimSuffix(string(name), "_name"), v
	case "persistentvolumeclaim", "volume":
		l.claim = v
	case "mountpoint":
		l.mount = v
	case "device", "gpu", "disk":
		l.device = v
	case "service", "ingress", "envoy_cluster_name":
		if l.service == "" || string(name) == "service" {
			l.service = v
		}
	case "metric":
		l.metric = v
	case "problem":
		l.problem = v
	case "target":
		l.target = v
	case "reason", "condition", "name", "state":
		l.other = v
	}
}

// name is what people call it.
func (l *objectLabels) name() string {
	space := func(name string) string {
		if l.namespace != "" {
			return l.namespace + "/" + name
		}
		return name
	}
	on := func(what string) string {
		switch {
		case l.node != "":
			return what + " on " + l.node
		case l.instance != "":
			return what + " on " + l.instance
		}
		return what
	}
	out := ""
	switch {
	case l.metric != "":
		out = l.metric
		if l.target != "" {
			out += " of " + l.target
		}
		if l.problem != "" {
			out += " (" + l.problem + ")"
		}
		return out
	case l.workload != "":
		out = l.kind + " " + space(l.workload)
	case l.claim != "":
		out = "volume " + space(l.claim)
	case l.pod != "" && l.container != "":
		out = space(l.pod) + "/" + l.container
	case l.pod != "":
		out = space(l.pod)
	case l.service != "" && l.instance == "":
		out = "service " + space(l.service)
	case l.mount != "":
		out = on(l.mount)
	case l.device != "":
		out = on(l.device)
	case l.node != "":
		out = "node " + l.node
	case l.job != "" && l.instance != "":
		out = l.job + " at " + l.instance
	case l.instance != "":
		out = l.instance
	case l.job != "":
		out = l.job
	default:
		return l.other
	}
	if l.other != "" {
		out += " " + l.other
	}
	return out
}
