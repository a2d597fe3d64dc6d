package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/control/rollout/decide"
)

// place is what others have to know of a rollout that is under way.
type place struct {
	tenant  string
	created time.Time
	objects []string
	// sites that it may change, those that it is changing, since they got something and
	// their wave has not passed, or is putting back, and those that failed with it.
	sites, moving, failed map[string]bool
	begun, paused         bool
}

// stand takes up where a rollout stands in the line.
func (c *Controller) stand(k *known, p place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.place = p
}

// standAll takes up where all stand that have begun, by their states: a new process must not
// have one begin because it has not looked at another yet.
func (c *Controller) standAll(ctx context.Context) error {
	var list v1alpha1.RolloutList
	if err := c.o.Cache.List(ctx, &list); err != nil {
		return fmt.Errorf("list the rollouts: %w", err)
	}
	for i := range list.Items {
		r := &list.Items[i]
		key := client.ObjectKeyFromObject(r)
		if r.Status.Phase.Ended() {
			continue
		}
		st := &v1alpha1.RolloutState{}
		if err := c.o.Cache.Get(ctx, key, st); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("rollout %s: %w", key, err)
		}
		tenant, err := c.tenantOf(ctx, key.Namespace)
		if err != nil {
			return fmt.Errorf("rollout %s: %w", key, err)
		}
		if st.Spec.Decided == nil || tenant == "" {
			continue
		}
		j := &job{c: c, key: key, r: r, st: st, tenant: tenant}
		carried := map[string]bool{}
		for _, name := range strings.Fields(st.Spec.Sites) {
			carried[name] = true
		}
		p := j.fleet().place(j, carried)
		for i := range st.Spec.Objects {
			o := &st.Spec.Objects[i]
			gv, _ := schema.ParseGroupVersion(o.APIVersion)
			p.objects = append(p.objects, objectID(o.Kind, gv.Group, key.Namespace, o.Name))
		}
		c.stand(c.of(key, tenant), p)
	}
	return nil
}

// busy are the sites that a rollout may change and another one is changing, or has failed at.
// The wave of the younger waits for those that an older one is changing; all others are caught
// up, so that no two ever wait for each other. Those that failed may stay so for long.
func (c *Controller) busy(key types.NamespacedName, mine place) map[string]hindrance {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]hindrance{}
	for other, k := range c.known {
		p := k.place
		if other == key || p.tenant != mine.tenant || sameObject(p, mine) {
			continue
		}
		for name := range p.moving {
			if h, ok := out[name]; mine.sites[name] && (!ok || h.later) {
				out[name] = hindrance{"being changed by rollout " + nameFor(mine.tenant, other, key), !before(other, p, key, mine)}
			}
		}
		for name := range p.failed {
			if _, ok := out[name]; mine.sites[name] && !ok {
				out[name] = hindrance{"not well with rollout " + nameFor(mine.tenant, other, key), true}
			}
		}
	}
	return out
}

// hindrance is why a site may not begin; later: nobody waits for it.
type hindrance struct {
	why   string
	later bool
}

// claim takes up what a decision is about to change, unless another rollout has begun to
// change one of these sites since this one has looked.
func (c *Controller) claim(key types.NamespacedName, k *known, before, next *v1alpha1.RolloutStateSpec) bool {
	was, now := before.Assigned(), next.Assigned()
	moving, failed := decide.Moving(next)
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, o := range c.known {
		p := o.place
		if other == key || p.tenant != k.place.tenant || sameObject(p, k.place) {
			continue
		}
		for name := range p.moving {
			if moving[name] && now[name] != was[name] && now[name] != 0 {
				return false
			}
		}
	}
	k.place.moving, k.place.failed = moving, failed
	return true
}

// queued says behind which rollout one that has not begun has to wait; "": behind none.
//
// The rule: rollouts of different objects that share sites begin in the order in which they
// were made, and one begins while another is under way only if that one is changing no site
// of its own at that moment. Else nobody could tell which of the two made a site worse. One
// that has begun goes on, but for sites that another is changing (busy), and one that people paused before it began lets others by. Two
// that move the same object never wait for each other: the newer takes over.
func (c *Controller) queued(key types.NamespacedName, mine place) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first types.NamespacedName
	var why string
	for other, k := range c.known {
		p := k.place
		if other == key || p.tenant != mine.tenant || !before(other, p, key, mine) || sameObject(p, mine) {
			continue
		}
		var text string
		switch n, at := shared(mine.sites, p.moving); {
		case n > 0:
			text = fmt.Sprintf("waits behind rollout %s, which is changing %s", nameFor(mine.tenant, other, key), sitesText(n, at))
		case !p.begun && !p.paused:
			if n, at := shared(mine.sites, p.sites); n > 0 {
				text = fmt.Sprintf("waits behind rollout %s, which is about to change %s", nameFor(mine.tenant, other, key), sitesText(n, at))
			}
		}
		if text != "" && (why == "" || before(other, p, first, c.known[first].place)) {
			first, why = other, text
		}
	}
	return why
}

// before: a rollout that has begun is before one that has not; else the older one is.
func before(a types.NamespacedName, pa place, b types.NamespacedName, pb place) bool {
	if pa.begun != pb.begun {
		return pa.begun
	}
	if !pa.created.Equal(pb.created) {
		return pa.created.Before(pb.created)
	}
	return strings.Compare(a.String(), b.String()) < 0
}

// objectID names an object for sameObject.
func objectID(kind, group, namespace, name string) string {
	return kind + "." + group + "/" + namespace + "/" + name
}

func sameObject(a, b place) bool {
	return slices.ContainsFunc(a.objects, func(o string) bool { return slices.Contains(b.objects, o) })
}

// shared is how many sites are in both, and the first by name.
func shared(a, b map[string]bool) (n int, first string) {
	for name := range b {
		if !a[name] {
			continue
		}
		if n++; first == "" || name < first {
			first = name
		}
	}
	return n, first
}

func sitesText(n int, example string) string {
	if n == 1 {
		return "site " + example + " as well"
	}
	return fmt.Sprintf("%d of the same sites, such as %s", n, example)
}

// nameFor is the other rollout as the tenant's users type it, in messages of mine.
func nameFor(tenant string, other, mine types.NamespacedName) string {
	if other.Namespace == mine.Namespace {
		return other.Name
	}
	short, _ := render.Short(tenant, other.Namespace)
	return short + "/" + other.Name
}
