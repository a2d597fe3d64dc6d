package kube

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// Kinds that are mirrored.
const (
	kindPod, kindNode, kindEvent = "Pod", "Node", "Event"
)

// mirror passes on pods and events of Muster's namespaces, and all nodes. It holds no
// object, only which ones were passed on, and what ails pods.
type mirror struct {
	k            *Kube
	out          Mirror
	setCondition func(typ, status, reason, message string)
	limits       map[string]int

	mu       sync.Mutex
	held     map[string]map[string]uint64 // kind → key → digest of what was passed on
	order    []string                     // keys of events, oldest first; some are gone
	refused  map[string]map[string]bool   // kind → keys beyond the limit
	troubles map[string]map[string]trouble
	creates  map[string]creates // by item
	watches  map[string]*objectWatch
}

// trouble is what ails a pod.
type trouble struct {
	labels          map[string]string
	reason, message string
	uid, owner      types.UID // its own, and its controller's
}

func newMirror(k *Kube, out Mirror, setCondition func(typ, status, reason, message string)) *mirror {
	return &mirror{
		k: k, out: out, setCondition: setCondition,
		limits:   map[string]int{kindPod: k.opts.MaxPods, kindEvent: k.opts.MaxEvents, kindNode: k.opts.MaxNodes},
		held:     map[string]map[string]uint64{kindPod: {}, kindEvent: {}, kindNode: {}},
		refused:  map[string]map[string]bool{kindPod: {}, kindEvent: {}, kindNode: {}},
		troubles: map[string]map[string]trouble{}, creates: map[string]creates{}, watches: map[string]*objectWatch{},
	}
}

// ownedNamespaces are those of Muster.
func (m *mirror) ownedNamespaces() map[string]bool {
	owned := map[string]bool{}
	m.k.lives.each(func(item string, l *live) {
		if ns, ok := strings.CutPrefix(item, "Namespace/-/"); ok {
			owned[ns] = true
		}
	})
	return owned
}

// synced tells whether all that is to be mirrored has been listed once.
func (m *mirror) synced() bool {
	owned := m.ownedNamespaces()
	m.mu.Lock()
	defer m.mu.Unlock()
	is := func(name string) bool { w := m.watches[name]; return w != nil && w.synced }
	ok := is(kindNode + "/")
	for ns := range owned {
		ok = ok && is(kindPod+"/"+ns) && is(kindEvent+"/"+ns)
	}
	return ok
}

// run follows which namespaces are Muster's until ctx ends.
func (m *mirror) run(ctx context.Context) {
	m.watch(ctx, kindNode, "")
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		owned := m.ownedNamespaces()
		for ns := range owned {
			m.watch(ctx, kindPod, ns)
			m.watch(ctx, kindEvent, ns)
		}
		m.mu.Lock()
		var gone []*objectWatch
		for name, w := range m.watches {
			if w.namespace != "" && !owned[w.namespace] {
				gone = append(gone, w)
				delete(m.watches, name)
			}
		}
		m.mu.Unlock()
		for _, w := range gone {
			w.stop()
			_ = w.Replace(nil, "")
		}
		m.count(ctx)
		select {
		case <-ctx.Done():
			return
		case <-m.k.namespaces:
		case <-tick.C:
		}
	}
}

// count tells whether there is more than is mirrored, and takes up the rest once there is
// room.
func (m *mirror) count(ctx context.Context) {
	var again []*objectWatch
	var over []string
	left, room := m.out.LeftOut(), m.out.Again()
	m.mu.Lock()
	if room {
		for _, held := range m.held {
			for key := range held {
				held[key] = 0
			}
		}
		again = slices.Collect(maps.Values(m.watches))
		clear(m.watches)
	}
	for _, kind := range []string{kindPod, kindNode, kindEvent} {
		n := len(m.refused[kind])
		if n == 0 {
			continue
		}
		over = append(over, fmt.Sprintf("%d of %d %ss", len(m.held[kind]), len(m.held[kind])+n, strings.ToLower(kind)))
		if len(m.held[kind]) < m.limits[kind]*9/10 {
			clear(m.refused[kind])
			for name, w := range m.watches {
				if w.kind == kind {
					again = append(again, w)
					delete(m.watches, name)
				}
			}
		}
	}
	m.mu.Unlock()
	for _, w := range again { // a new list finds what was left out
		w.stop()
		m.watch(ctx, w.kind, w.namespace)
	}
	if room {
		m.k.putAgain()
	}
	says := ""
	if len(over) > 0 {
		says = "only " + strings.Join(over, " and ") + " are mirrored: that is the limit (kubernetes.maxPods in edge.yaml)"
	}
	if left > 0 {
		says = strings.TrimPrefix(fmt.Sprintf("%s; %d objects or states of workloads are left out: a site tells of %s", says, left, m.out.Limits()), "; ")
	}
	if says != "" {
		m.setCondition(Mirrored, "False", "TooMany", says)
	} else {
		m.setCondition(Mirrored, "True", "All", "")
	}
}

// watch mirrors the objects of a kind in a namespace, if that is not done yet.
func (m *mirror) watch(ctx context.Context, kind, namespace string) {
	name := kind + "/" + namespace
	m.mu.Lock()
	if m.watches[name] != nil {
		m.mu.Unlock()
		return
	}
	ctx, stop := context.WithCancel(ctx)
	w := &objectWatch{mirror: m, kind: kind, namespace: namespace, stop: stop}
	m.watches[name] = w
	m.mu.Unlock()
	core := m.k.cluster.core
	lw := &cache.ListWatch{}
	switch kind {
	case kindPod:
		lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return core.Pods(namespace).List(ctx, o)
		}
		lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return core.Pods(namespace).Watch(ctx, o)
		}
	case kindEvent:
		lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return core.Events(namespace).List(ctx, o)
		}
		lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return core.Events(namespace).Watch(ctx, o)
		}
	case kindNode:
		lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return core.Nodes().List(ctx, o)
		}
		lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return core.Nodes().Watch(ctx, o)
		}
	}
	m.k.cluster.reflect(ctx, "mirrored "+name, lw, w)
}

// objectWatch is the store of a reflector that passes objects on.
type objectWatch struct {
	*mirror
	kind, namespace string
	stop            context.CancelFunc
	synced          bool // under the mirror's lock
}

// Add implements cache.ReflectorStore.
func (w *objectWatch) Add(o any) error {
	if w.k.onlyPulls(o) {
		return nil
	}
	msg, err := trimmed(o)
	if err != nil || msg == nil {
		return err
	}
	w.ail(o)
	w.pass(msg)
	return nil
}

// Update implements cache.ReflectorStore.
func (w *objectWatch) Update(o any) error { return w.Add(o) }

// Delete implements cache.ReflectorStore.
func (w *objectWatch) Delete(o any) error {
	if obj, ok := o.(metav1.Object); ok {
		w.gone(obj.GetName())
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (w *objectWatch) Replace(list []any, _ string) error {
	there := make(map[string]bool, len(list))
	for _, o := range list {
		if obj, ok := o.(metav1.Object); ok {
			there[obj.GetName()] = true
			if err := w.Add(o); err != nil {
				return err
			}
		}
	}
	prefix := w.kind + "/" + w.namespace + "/"
	var gone []string
	w.mu.Lock()
	for key := range w.held[w.kind] {
		if name, ok := strings.CutPrefix(key, prefix); ok && !there[name] {
			gone = append(gone, name)
		}
	}
	first := !w.synced
	w.synced = true
	maps.DeleteFunc(w.refused[w.kind], func(key string, _ bool) bool {
		name, ok := strings.CutPrefix(key, prefix)
		return ok && !there[name]
	})
	w.mu.Unlock()
	for _, name := range gone {
		w.gone(name)
	}
	if first {
		w.k.poke() // the worker waits for all
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (w *objectWatch) Resync() error { return nil }

// trimmed is an object without what nobody at the centre reads; nil: it is not shown.
func trimmed(o any) (*wire.Mirrored, error) {
	meta, ok := o.(metav1.Object)
	if !ok {
		return nil, nil
	}
	msg := &wire.Mirrored{Namespace: meta.GetNamespace(), Name: meta.GetName()}
	var b interface{ Marshal() ([]byte, error) }
	switch o := o.(type) {
	case *corev1.Pod:
		o = o.DeepCopy()
		trimMeta(&o.ObjectMeta)
		msg.Kind, b = kindPod, o
	case *corev1.Event:
		o = o.DeepCopy()
		trimMeta(&o.ObjectMeta)
		msg.Kind, b = kindEvent, o
	case *corev1.Node:
		o = o.DeepCopy()
		trimMeta(&o.ObjectMeta)
		o.Status.Images, o.Status.VolumesInUse, o.Status.VolumesAttached = nil, nil, nil
		for i := range o.Status.Conditions {
			o.Status.Conditions[i].LastHeartbeatTime = metav1.Time{} // else each node changes every few minutes
		}
		msg.Kind, b = kindNode, o
	default:
		return nil, nil
	}
	var err error
	msg.Object, err = b.Marshal()
	return msg, err
}

func trimMeta(m *metav1.ObjectMeta) {
	m.ManagedFields = nil
	delete(m.Annotations, corev1.LastAppliedConfigAnnotation)
}

// pass passes an object on, if it is another than before and there is room for it.
func (m *mirror) pass(msg *wire.Mirrored) {
	h := fnv.New64a()
	_, _ = h.Write(msg.Object)
	digest, key := h.Sum64(), wire.KeyOf(msg)
	m.mu.Lock()
	held := m.held[msg.Kind]
	was, known := held[key]
	if known && was == digest {
		m.mu.Unlock()
		return
	}
	oldest := ""
	if !known && len(held) >= m.limits[msg.Kind] {
		if msg.Kind != kindEvent {
			m.refused[msg.Kind][key] = true
			m.mu.Unlock()
			return
		}
		for oldest == "" && len(m.order) > 0 { // the newest events matter
			if _, there := held[m.order[0]]; there {
				oldest = m.order[0]
				delete(held, oldest)
			}
			m.order = m.order[1:]
		}
	}
	held[key] = digest
	delete(m.refused[msg.Kind], key)
	if msg.Kind == kindEvent && !known {
		m.order = append(m.order, key)
		if len(m.order) > 2*m.limits[kindEvent] {
			kept := make([]string, 0, len(held))
			for _, k := range m.order {
				if _, there := held[k]; there {
					kept = append(kept, k)
				}
			}
			m.order = kept
		}
	}
	m.mu.Unlock()
	if oldest != "" {
		m.out.Drop(oldest)
	}
	m.out.Put(msg)
}

func (w *objectWatch) gone(name string) {
	key := wire.KeyOf(&wire.Mirrored{Kind: w.kind, Namespace: w.namespace, Name: name})
	w.mu.Lock()
	_, known := w.held[w.kind][key]
	delete(w.held[w.kind], key)
	delete(w.refused[w.kind], key)
	ailed := false
	if w.kind == kindPod {
		_, ailed = w.troubles[w.namespace][name]
		delete(w.troubles[w.namespace], name)
	}
	w.mu.Unlock()
	if known {
		w.out.Drop(key)
	}
	if ailed {
		w.k.touch(podsOf(w.namespace))
	}
}

// podsOf marks, among the dirty items, that pods of a namespace fare otherwise.
func podsOf(namespace string) string { return "pods " + namespace }

// ail notes what ails a pod, or why one can't be made.
func (w *objectWatch) ail(o any) {
	touch := ""
	w.mu.Lock()
	switch o := o.(type) {
	case *corev1.Pod:
		of := w.troubles[o.Namespace]
		was := of[o.Name]
		now := troubleOf(o)
		if now.uid = o.UID; metav1.GetControllerOf(o) != nil {
			now.owner = metav1.GetControllerOf(o).UID
		}
		if was.reason == now.reason && was.message == now.message && (was.uid == now.uid || now.reason == "") {
			break
		}
		touch = podsOf(o.Namespace)
		if now.reason == "" {
			delete(of, o.Name)
			break
		}
		if of == nil {
			of = map[string]trouble{}
			w.troubles[o.Namespace] = of
		}
		of[o.Name] = now
	case *corev1.Event:
		if o.Reason != reasonCreate && o.Reason != "SuccessfulCreate" {
			break
		}
		group, _, found := strings.Cut(o.InvolvedObject.APIVersion, "/")
		if !found {
			group = ""
		}
		item := workload.ItemName(group, o.InvolvedObject.Kind, o.Namespace, o.InvolvedObject.Name)
		if len(w.creates) > 1000 {
			clear(w.creates)
		}
		// Events are listed in any order.
		c := w.creates[item]
		was := c
		switch at := o.LastTimestamp.Time; {
		case o.Reason != reasonCreate && at.After(c.made):
			c.made = at
		case o.Reason == reasonCreate && !at.Before(c.failed):
			c.failed, c.message = at, clip(o.Message)
		}
		if w.creates[item] = c; c != was {
			touch = podsOf(o.Namespace)
		}
	}
	w.mu.Unlock()
	if touch != "" {
		w.k.touch(touch)
	}
}

// troubleOf is what keeps a pod from running; the zero value: nothing.
func troubleOf(pod *corev1.Pod) trouble {
	t := trouble{labels: pod.Labels}
	say := func(reason, format string, args ...any) trouble {
		t.reason, t.message = reason, clip("pod "+pod.Name+": "+fmt.Sprintf(format, args...))
		return t
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return say(orWord(c.Reason, "Unschedulable"), "%s", c.Message)
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return say(orWord(pod.Status.Reason, "PodFailed"), "%s", orWord(pod.Status.Message, "it failed"))
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, cs := range list {
			last := cs.LastTerminationState.Terminated
			switch w := cs.State.Waiting; {
			case w == nil:
			case last != nil && last.Reason == "OOMKilled":
				return say("OOMKilled", "container %s used more memory than its limit, %d times", cs.Name, cs.RestartCount)
			case w.Reason == "CrashLoopBackOff" && last != nil:
				return say(w.Reason, "container %s ended with code %d, %d times", cs.Name, last.ExitCode, cs.RestartCount)
			case w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing":
				return say(w.Reason, "container %s: %s", cs.Name, orWord(w.Message, w.Reason))
			}
		}
	}
	return trouble{}
}

// creates are what a controller says of the pods, and claims, that it makes for an object.
type creates struct {
	failed, made time.Time // last
	message      string    // why it failed
}

const reasonCreate = "FailedCreate"

// recently is how long a refusal to make a pod explains that there is none: controllers try
// again the later the more often they failed, after 17 minutes at most.
const recently = 20 * time.Minute

// cantMake says why the controller of a workload can't make its pods; empty: it can, as far as is
// known.
func (m *mirror) cantMake(item string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.creates[item]; !c.made.After(c.failed) && time.Since(c.failed) < recently {
		return c.message
	}
	return ""
}

// trouble is what ails the pods of a workload; empty: nothing that is known.
func (m *mirror) trouble(namespace string, selector map[string]string) (reason, message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sel := labels.SelectorFromSet(selector)
	first := ""
	for name, t := range m.troubles[namespace] {
		if (first == "" || name < first) && sel.Matches(labels.Set(t.labels)) {
			first, reason, message = name, t.reason, t.message
		}
	}
	return reason, message
}
