package kube

import (
	"cmp"
	"errors"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/internal/workload"
)

// item is one object that control wants here.
type item struct {
	name               string
	group, kind        string
	namespace, objName string
	wanted, good       string // digests
	missing            error  // why the wanted content is not at hand

	of    string // digest that facts and bad are of
	facts facts
	bad   error // the content can't be used
	unit  *unit

	// What the last look came to.
	err      *refusal // nil: nothing is wrong
	watchErr *refusal // why its kind can't be watched
	drifted  bool
	changed  []string // the fields that somebody changed, while drifted
	changes  string   // UID and resource version of the object of which these are
	mends    int      // in a row
	mended   time.Time
	by       string // who had changed what was mended
	said     string // what the agent was told last
}

// unit is what moves together: an item, or those of a bundle.
type unit struct {
	key         string
	items       []*item // in the order of their ranks
	rank        int     // of the last
	version     string  // names the wanted digests
	pessimistic bool
	deadline    time.Duration
	unread      string // of a bundle: an item of the namespace that may be of it, too

	due    bool
	fails  int
	counts bool // it is not ready since from, by worker.upTime
	from   time.Duration
	again  time.Time // when to try again what failed
	// It went back since an item was refused, so often in a row, and is tried again then.
	refusals int
	retry    time.Time
	next     time.Time // when to look again; zero: when something happens
	pulled   string    // version whose images are on the nodes
	puller   string    // NAMESPACE/NAME of the DaemonSet that pulls; empty: none
}

// bundlePrefix begins the keys of units that are bundles.
const bundlePrefix = "bundle "

// groupKind of what the item's name says.
func (it *item) groupKind() schema.GroupKind { return schema.GroupKind{Group: it.group, Kind: it.kind} }

// plan is made of a set: its items, and the units of them.
type plan struct {
	items  map[string]*item
	units  []*unit         // in order
	scaled map[string]bool // items whose replicas a HorizontalPodAutoscaler sets
}

// soon has the unit tried again at once, unless it went back.
func (u *unit) soon() { u.due, u.again, u.next = true, time.Time{}, time.Time{} }

// makePlan orders a set. What an item of the old plan knows is kept, and so is how its unit
// stands, if it is of the same version.
func makePlan(s *agent.Set, old plan) plan {
	p := plan{items: make(map[string]*item, len(s.Items)), scaled: map[string]bool{}}
	was := make(map[string]*unit, len(old.units))
	for _, u := range old.units {
		was[u.key] = u
	}
	units := map[string]*unit{}
	for _, si := range s.Items {
		it := old.items[si.Name]
		if it == nil {
			it = &item{name: si.Name, good: si.Good}
			it.group, it.kind, it.namespace, it.objName, it.bad = workload.ParseItemName(si.Name)
		}
		it.wanted, it.missing = si.Digest, si.Err
		if it.missing == nil && it.of != it.wanted && it.kind != "" {
			it.read(s, it.wanted)
		}
		if it.missing != nil && it.of == "" && it.good != "" && it.kind != "" {
			missing := it.missing
			it.read(s, it.good)
			it.missing = missing
		}
		p.items[it.name] = it
		key := it.name
		// One whose content is not here stays in the bundle that it was in, which waits.
		if it.bad == nil && it.facts.bundle != "" && rankOf(it.groupKind()) > rankCRD {
			key = bundlePrefix + it.namespace + "/" + it.facts.bundle
		}
		u := units[key]
		if u == nil {
			u = &unit{key: key}
			units[key] = u
		}
		u.items = append(u.items, it)
		it.unit = u
		if it.of == it.wanted && it.facts.scales != "" {
			p.scaled[it.facts.scales] = true
		}
	}
	unread := map[string]string{}
	for _, it := range p.items {
		if it.of != it.wanted && it.kind != "" && (unread[it.namespace] == "" || it.name < unread[it.namespace]) {
			unread[it.namespace] = it.name
		}
	}
	for _, u := range units {
		u.arrange()
		if strings.HasPrefix(u.key, bundlePrefix) {
			u.unread = unread[u.items[0].namespace]
		}
		if o := was[u.key]; o != nil && o.version == u.version {
			u.fails, u.again, u.next, u.pulled, u.puller = o.fails, o.again, o.next, o.pulled, o.puller
			u.due, u.counts, u.from = o.due, o.counts, o.from
			u.refusals, u.retry = o.refusals, o.retry
			if o.unread != "" && u.unread == "" {
				u.soon()
			}
			if slices.ContainsFunc(u.items, func(it *item) bool { return it.err != nil && it.err.reason == reasonFetch && it.missing == nil }) {
				u.soon()
			}
		} else {
			u.due = true
			if o != nil {
				u.puller = o.puller
			}
		}
	}
	p.units = slices.SortedFunc(maps.Values(units), func(a, b *unit) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.key, b.key))
	})
	return p
}

// read takes the facts of a content.
func (it *item) read(s *agent.Set, digest string) {
	blob, err := s.Blob(digest)
	if err != nil {
		it.missing = err
		return
	}
	it.of, it.facts, it.bad = digest, facts{}, nil
	obj, err := decode(it.name, blob)
	if err == nil {
		it.facts, err = factsOf(obj)
	}
	it.bad = err
}

func (u *unit) arrange() {
	slices.SortFunc(u.items, func(a, b *item) int {
		return cmp.Or(cmp.Compare(rankOf(a.groupKind()), rankOf(b.groupKind())), cmp.Compare(a.name, b.name))
	})
	u.rank = rankOf(u.items[len(u.items)-1].groupKind())
	h := fnv.New64a()
	for _, it := range u.items {
		_, _ = h.Write([]byte(it.name + "=" + it.wanted + "\n"))
		if it.of == it.wanted && it.facts.pessimistic {
			u.pessimistic = true
			u.deadline = max(u.deadline, it.facts.deadline)
		}
	}
	u.version = strconv.FormatUint(h.Sum64(), 16)
}

// kindName is how a kind stands in the state file.
func kindName(gvk schema.GroupVersionKind) string {
	return gvk.Kind + "." + gvk.Version + "." + gvk.Group
}

func parseKindName(s string) (schema.GroupVersionKind, error) {
	gvk, _ := schema.ParseKindArg(s)
	if gvk == nil {
		return schema.GroupVersionKind{}, errors.New("want KIND.VERSION.GROUP")
	}
	return *gvk, nil
}
