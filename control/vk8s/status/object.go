package status

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unique"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// LabelSite is the label of what is shown of a site.
const LabelSite = "muster.dev/site"

// item is an object of a site, as it sent it, and what selectors ask of it. It is never
// changed once it is in a table.
type item struct {
	site            *site
	kind            kind
	namespace, name string // by which it is shown; a Node's namespace is its tenant
	own             string // its name on the site
	version         uint64
	labels          labelSet
	node, phase     string // of a Pod
	offline         bool   // of a Node: its site is not connected
	renamed         bool   // it is shown by another name than it gets by itself
	// aux is, of an Event, the name by which the object that it is about is shown; of what
	// could not be read, why.
	aux     string
	bytes   []byte // nil: it could not be read
	decoded int    // about how many bytes it takes once it is decoded (weigh)
}

func (it *item) key() key {
	if it.kind == nodes {
		return key{nodes, "", it.own}
	}
	return key{it.kind, it.namespace, it.own}
}

// bytesKept is about what it takes as it is kept.
func (it *item) bytesKept() int {
	const own = 320 // the item, where it stands, and what it is called
	n := own + len(it.bytes)
	for _, l := range it.labels {
		n += len(l) + 16
	}
	return n
}

// labelSet are keys and values in turn, in the order of the keys.
type labelSet []string

func newLabelSet(m map[string]string) labelSet {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	out := make(labelSet, 0, 2*len(m))
	for _, k := range keys {
		out = append(out, intern(k), intern(m[k]))
	}
	return out
}

// Lookup implements labels.Labels.
func (l labelSet) Lookup(label string) (string, bool) {
	for i := 0; i < len(l); i += 2 {
		if l[i] == label {
			return l[i+1], true
		}
	}
	return "", false
}

// Has implements labels.Labels.
func (l labelSet) Has(label string) bool { _, ok := l.Lookup(label); return ok }

// Get implements labels.Labels.
func (l labelSet) Get(label string) string { v, _ := l.Lookup(label); return v }

// jobUIDs are the labels by which a Job knows its pods.
var jobUIDs = []string{batchv1.ControllerUidLabel, "controller-uid"}

// shownLabels are those of a pod as it is shown: where it is of a Job of the centre they have
// that one's UID, which its selector asks for, and not the UID that it has on the site.
type shownLabels struct {
	*item
	s *Store
}

// Lookup implements labels.Labels.
func (l shownLabels) Lookup(label string) (string, bool) {
	v, ok := l.labels.Lookup(label)
	if ok && slices.Contains(jobUIDs, label) {
		if uid, known := l.s.o.Workload("batch", "Job", l.namespace, l.labels.Get(batchv1.JobNameLabel)); known {
			v = string(uid)
		}
	}
	return v, ok
}

// Has implements labels.Labels.
func (l shownLabels) Has(label string) bool { return l.labels.Has(label) }

// Get implements labels.Labels.
func (l shownLabels) Get(label string) string { v, _ := l.Lookup(label); return v }

// intern keeps one copy of a string that many objects have.
func intern(s string) string { return unique.Make(s).Value() }

func short(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// object is what Pods, Nodes and Events are.
type object interface {
	runtime.Object
	metav1.Object
	Unmarshal([]byte) error
	Marshal() ([]byte, error)
}

func newObject(k kind) object {
	switch k {
	case pods:
		return &corev1.Pod{}
	case nodes:
		return &corev1.Node{}
	}
	return &corev1.Event{}
}

// read decodes what a site sent. One that can't be taken has no bytes, and says why.
func (s *Store) read(id fleet.SiteID, m *wire.KubernetesStatus) []*item {
	out := make([]*item, 0, len(m.GetMirrored()))
	for _, o := range m.GetMirrored() {
		it, err := s.readOne(id, o)
		if err != nil {
			it = &item{aux: err.Error()}
		}
		out = append(out, it)
	}
	return out
}

func (s *Store) readOne(id fleet.SiteID, o *wire.Mirrored) (*item, error) {
	i := slices.Index(kindNames[:], o.GetKind())
	if i < 0 {
		return nil, fmt.Errorf("of a kind that is not mirrored")
	}
	k := kind(i)
	switch {
	case len(o.GetObject()) > s.o.Limits.ObjectBytes:
		return nil, fmt.Errorf("larger than %d bytes", s.o.Limits.ObjectBytes)
	case len(o.GetObject()) == 0 || len(validation.IsDNS1123Subdomain(o.GetName())) > 0:
		return nil, fmt.Errorf("without content, or with a name that is none")
	case k != nodes && !s.o.MayName(id.Tenant, o.GetNamespace()) || k == nodes && o.GetNamespace() != "":
		return nil, fmt.Errorf("of a namespace that is not the tenant's")
	}
	decoded := weigh(k, o.GetObject())
	if decoded > s.o.Limits.Decoded {
		return nil, fmt.Errorf("larger than %d bytes when it is decoded", s.o.Limits.Decoded)
	}
	obj := newObject(k)
	if err := obj.Unmarshal(o.GetObject()); err != nil {
		return nil, fmt.Errorf("not what its kind is")
	}
	it := &item{kind: k, decoded: decoded, namespace: intern(o.GetNamespace()), own: strings.Clone(o.GetName()), name: o.GetName(), bytes: o.GetObject()}
	if len(obj.GetManagedFields()) > 0 { // nobody here reads them
		obj.SetManagedFields(nil)
		if b, err := obj.Marshal(); err == nil {
			it.bytes = b
		}
	}
	it.bytes = slices.Clip(it.bytes)
	labels := map[string]string{}
	for k, v := range obj.GetLabels() {
		labels[k] = v
	}
	labels[LabelSite] = id.Name
	it.labels = newLabelSet(labels)
	switch obj := obj.(type) {
	case *corev1.Pod:
		if obj.Spec.NodeName != "" {
			it.node = intern(workload.NodeName(id.Name, obj.Spec.NodeName))
		}
		it.phase = intern(string(obj.Status.Phase))
		if !random(obj) {
			it.name += "-" + id.Name
		} else {
			it.name = it.own
		}
	case *corev1.Node:
		it.namespace, it.name = intern(id.Tenant), workload.NodeName(id.Name, it.own)
	case *corev1.Event:
		it.name += "-" + id.Name
	}
	return it, nil
}

// random says whether a pod's name has a part that the site's API server drew, so that it
// is in all likelihood the only one of its name on all sites. Others, such as web-0 of a
// StatefulSet, have a namesake on every site: their names end in the site's. It depends on
// the pod alone, not on what other sites have, so that a pod's name never changes.
func random(p *corev1.Pod) bool {
	rest, ok := strings.CutPrefix(p.Name, p.GenerateName)
	if p.GenerateName == "" || !ok || len(rest) != 5 {
		return false
	}
	return !slices.ContainsFunc(p.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "StatefulSet" })
}

// refLocked is the name by which the object that an Event is about is shown.
func (s *Store) refLocked(st *site, it *item) string {
	var e corev1.Event
	if e.Unmarshal(it.bytes) != nil {
		return ""
	}
	switch ref := e.InvolvedObject; ref.Kind {
	case "Pod":
		if p := st.items[key{pods, it.namespace, ref.Name}]; p != nil {
			return p.name
		}
		if i := strings.LastIndexByte(ref.Name, '-'); len(ref.Name)-i == 6 {
			return ref.Name
		}
		return ref.Name + "-" + st.id.Name
	case "Node":
		if n := st.items[key{nodes, "", ref.Name}]; n != nil {
			return n.name
		}
		return workload.NodeName(st.id.Name, ref.Name)
	default:
		return ref.Name
	}
}

// uidOf is the UID by which an object of a site is shown: a site may be a copy of another,
// with its UIDs.
func uidOf(id fleet.SiteID, own types.UID) types.UID {
	if own == "" {
		return ""
	}
	h := sha256.Sum256([]byte(id.String() + "\x00" + string(own)))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // a UUID of version 8
	x := hex.EncodeToString(h[:16])
	return types.UID(x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:])
}

// object decodes an item to what is shown of it.
func (s *Store) object(it *item, version uint64) object {
	obj := newObject(it.kind)
	if err := obj.Unmarshal(it.bytes); err != nil { // it was decoded once before
		s.o.Logger.Error("a mirrored object can't be read any more", "site", it.site.id, "kind", kindNames[it.kind], "name", it.own, "err", err)
	}
	id := it.site.id
	obj.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kindNames[it.kind]))
	obj.SetName(it.name)
	obj.SetNamespace("")
	if it.kind != nodes {
		obj.SetNamespace(it.namespace)
	}
	obj.SetResourceVersion(strconv.FormatUint(version, 10))
	if it.site == s.centre {
		return obj
	}
	obj.SetUID(uidOf(id, obj.GetUID()))
	labels := obj.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelSite] = id.Name
	obj.SetLabels(labels)
	owners := obj.GetOwnerReferences()
	obj.SetOwnerReferences(nil)
	switch obj := obj.(type) {
	case *corev1.Pod:
		obj.Spec.NodeName = it.node
		obj.Status.NominatedNodeName = ""
		obj.OwnerReferences = s.ownerOf(obj, owners)
		for _, label := range jobUIDs {
			if v, ok := (shownLabels{it, s}).Lookup(label); ok {
				labels[label] = v
			}
		}
	case *corev1.Node:
		if it.offline {
			silence(obj)
		}
	case *corev1.Event:
		ref := &obj.InvolvedObject
		ref.ResourceVersion = ""
		if ref.Namespace != "" {
			ref.Namespace = it.namespace
		}
		group, _, _ := strings.Cut(ref.APIVersion, "/")
		if group == ref.APIVersion {
			group = ""
		}
		ref.Name = it.aux
		if uid, ok := s.o.Workload(group, ref.Kind, it.namespace, ref.Name); ok && ref.Kind != "Pod" && ref.Kind != "Node" {
			ref.UID = uid
		} else {
			ref.UID = uidOf(id, ref.UID)
		}
		obj.Related = nil
	}
	return obj
}

// ownerOf is the centre's object that a pod belongs to. On the site a ReplicaSet or a Job
// may stand between them, which the centre doesn't have. It is the controller, so that
// kubectl describe says who it is; nothing here is in etcd, where garbage is collected.
func (s *Store) ownerOf(p *corev1.Pod, owners []metav1.OwnerReference) []metav1.OwnerReference {
	for _, o := range owners {
		if o.Controller == nil || !*o.Controller {
			continue
		}
		name, kind, version := o.Name, o.Kind, o.APIVersion
		group, _, _ := strings.Cut(version, "/")
		if hash := p.Labels["pod-template-hash"]; kind == "ReplicaSet" && hash != "" {
			if of, ok := strings.CutSuffix(name, "-"+hash); ok {
				name, kind = of, "Deployment"
			}
		}
		uid, ok := s.o.Workload(group, kind, p.Namespace, name)
		if i := strings.LastIndexByte(name, '-'); !ok && kind == "Job" && i > 0 {
			name, kind = name[:i], "CronJob" // its jobs are NAME-MINUTE
			uid, ok = s.o.Workload(group, kind, p.Namespace, name)
		}
		if ok {
			yes := true
			return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, UID: uid, Controller: &yes}}
		}
	}
	return nil
}

// silence makes a node of a site of which nobody hears not ready, as Kubernetes does.
func silence(n *corev1.Node) {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			c.Status, c.Reason, c.Message = corev1.ConditionUnknown, "SiteOffline", "The site is not connected: this is what it said last."
		}
	}
}
