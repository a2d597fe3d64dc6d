package status

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"muster.dev/muster/internal/fairshare"
	"muster.dev/muster/internal/fleet"
)

// Scope is what a request may see.
type Scope struct {
	Namespace, Tenant string
	// Site says whether nodes of a site are seen; nil: of all sites of the tenant.
	Site func(fleet.SiteID) bool
	// Changed is closed when Site says something else than before; nil: never.
	Changed <-chan struct{}
}

// HandlerOptions of a Handler.
type HandlerOptions struct {
	// Scope of a request; false: it is not for the store.
	Scope func(context.Context) (Scope, bool)
	// Tables are kubectl's columns of Pods, Nodes and Events, by kind; those without one
	// have a name and an age.
	Tables map[string]rest.TableConvertor
	// Usage says what pods and nodes use; those of which it says nothing are left out. nil:
	// metrics.k8s.io is not served.
	Usage func(context.Context, UsageOf) ([]Usage, error)
	// Dial connects to what serves a site's Kubernetes API; nil: nothing does.
	Dial Dial
	// Sessions with pods at once (log, exec, attach, port-forward), of which one tenant has
	// as many as it leaves free for others; default 1000.
	Sessions int
	// ListBytes bounds what lists that are being answered take, decoded, shared by tenants
	// in the same way; default 512 MiB. One list has half of them at most.
	ListBytes int
}

// DefaultListBytes are 160 pages of 500 ordinary pods, of 6.5 kB each.
const DefaultListBytes = 512 << 20

// pageShare is the part of ListBytes that one page has at most: it ends before its limit.
const pageShare = 32

// Handler serves what is in the store: requests as the stock API server gets them, behind
// its authorization, with the request.RequestInfo of the stock path in their context.
func (s *Store) Handler(o HandlerOptions) http.Handler {
	h := &server{store: s, o: o, codecs: serializer.NewCodecFactory(scheme()), sessions: fairshare.NewShares(cmp.Or(max(o.Sessions, 0), defaultSessions)),
		listBytes: cmp.Or(max(o.ListBytes, 0), DefaultListBytes)}
	h.lists = fairshare.NewShares(h.listBytes)
	for k, plural := range []string{"pods", "nodes", "events"} {
		h.resources = append(h.resources, &resource{server: h, table: s.tables[k], plural: plural, kind: corev1.SchemeGroupVersion.WithKind(kindNames[k])})
	}
	return h
}

var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(policyv1.AddToScheme(s)) // Eviction
	utilruntime.Must(metricsv1beta1.AddToScheme(s))
	for k := range kinds {
		utilruntime.Must(s.AddFieldLabelConversionFunc(corev1.SchemeGroupVersion.WithKind(kindNames[k]), func(label, value string) (string, string, error) {
			if !slices.Contains(selectable[k], label) {
				return "", "", fmt.Errorf("field label not supported: %s", label)
			}
			return label, value, nil
		}))
	}
	return s
})

// selectable are the fields that a field selector can name, as in the stock API server.
var selectable = [kinds][]string{
	pods:  {"metadata.name", "metadata.namespace", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"},
	nodes: {"metadata.name", "spec.unschedulable"},
	events: {"metadata.name", "metadata.namespace", "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
		"reason", "reportingComponent", "source", "type"},
}

type server struct {
	store     *Store
	o         HandlerOptions
	codecs    serializer.CodecFactory
	sessions  *fairshare.Shares
	lists     *fairshare.Shares // bytes
	listBytes int
	resources []*resource
}

// ServeHTTP implements http.Handler.
func (h *server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if err := h.serve(w, req); err != nil {
		responsewriters.ErrorNegotiated(err, h.codecs, corev1.SchemeGroupVersion, w, req)
	}
}

func (h *server) serve(w http.ResponseWriter, req *http.Request) error {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("a request without its info"))
	}
	if _, ok := h.o.Scope(req.Context()); !ok {
		return apierrors.NewInternalError(fmt.Errorf("a request without a scope"))
	}
	i := slices.IndexFunc(h.resources, func(r *resource) bool { return r.plural == info.Resource })
	if i < 0 {
		return apierrors.NewNotFound(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Name)
	}
	r := h.resources[i]
	if info.APIGroup == metricsv1beta1.GroupName {
		return h.serveUsage(w, req, info, r)
	}
	switch info.Subresource {
	case "", "status":
	case "eviction":
		if info.Verb != "create" || r.table.kind != pods {
			return apierrors.NewMethodNotSupported(corev1.Resource(r.plural+"/eviction"), info.Verb)
		}
		e := &evictions{r}
		scope, err := e.scope()
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		handlers.CreateNamedResource(e, scope, nil).ServeHTTP(w, req)
		return nil
	default:
		return r.tunnel(w, req, info)
	}
	scope := r.scope()
	switch info.Verb {
	case "get":
		handlers.GetResource(r, scope).ServeHTTP(w, req)
	case "list", "watch":
		ctx, end := h.leased(req.Context())
		defer end()
		handlers.ListResource(r, r, scope, false, 30*time.Minute).ServeHTTP(w, req.WithContext(ctx))
	case "delete":
		handlers.DeleteResource(r, true, scope, nil).ServeHTTP(w, req)
	case "deletecollection":
		handlers.DeleteCollection(r, true, scope, nil).ServeHTTP(w, req)
	default:
		return apierrors.NewMethodNotSupported(corev1.Resource(r.plural), info.Verb)
	}
	return nil
}

// resource is Pods, Nodes or Events.
type resource struct {
	server *server
	table  *table
	plural string
	kind   schema.GroupVersionKind
}

var (
	_ rest.Getter            = &resource{}
	_ rest.Lister            = &resource{}
	_ rest.Watcher           = &resource{}
	_ rest.GracefulDeleter   = &resource{}
	_ rest.CollectionDeleter = &resource{}
)

func (r *resource) scope() *handlers.RequestScope {
	s := scheme()
	return &handlers.RequestScope{
		Namer:      handlers.ContextBasedNaming{Namer: runtime.Namer(meta.NewAccessor()), ClusterScoped: r.table.kind == nodes},
		Serializer: r.server.codecs, ParameterCodec: runtime.NewParameterCodec(s),
		Creater: s, Convertor: s, Defaulter: s, Typer: s, UnsafeConvertor: runtime.UnsafeObjectConvertor(s),
		EquivalentResourceMapper: runtime.NewEquivalentResourceRegistry(), TableConvertor: r,
		Resource: corev1.SchemeGroupVersion.WithResource(r.plural), Kind: r.kind,
		MetaGroupVersion: metav1.SchemeGroupVersion, HubGroupVersion: corev1.SchemeGroupVersion, MaxRequestBodyBytes: 1 << 20,
	}
}

// ConvertToTable implements rest.TableConvertor.
func (r *resource) ConvertToTable(ctx context.Context, o, options runtime.Object) (*metav1.Table, error) {
	if c := r.server.o.Tables[r.kind.Kind]; c != nil {
		return c.ConvertToTable(ctx, o, options)
	}
	return rest.NewDefaultTableConvertor(corev1.Resource(r.plural)).ConvertToTable(ctx, o, options)
}

// New implements rest.Storage.
func (r *resource) New() runtime.Object { return newObject(r.table.kind) }

// Destroy implements rest.Storage.
func (r *resource) Destroy() {}

// NewList implements rest.Lister.
func (r *resource) NewList() runtime.Object {
	return [kinds]runtime.Object{&corev1.PodList{}, &corev1.NodeList{}, &corev1.EventList{}}[r.table.kind]
}

// filter is a part of a table.
type filter struct {
	kind   kind
	tenant string
	place  string // the namespace; of Nodes, the tenant
	scope  Scope
	labels labels.Selector
	jobs   *Store // of the pods of a Job; nil: labels are not about that
	fields fields.Selector
	object func(*item) object
}

func (r *resource) filter(ctx context.Context, o *metainternalversion.ListOptions) filter {
	scope, _ := r.server.o.Scope(ctx)
	f := filter{kind: r.table.kind, tenant: scope.Tenant, place: scope.Namespace, object: func(it *item) object { return r.table.store.object(it, it.version) }}
	if f.kind == nodes {
		f.place, f.scope = scope.Tenant, scope
	}
	if o != nil && o.LabelSelector != nil && !o.LabelSelector.Empty() {
		f.labels = o.LabelSelector
		if all, _ := f.labels.Requirements(); f.kind == pods && slices.ContainsFunc(all, func(q labels.Requirement) bool { return slices.Contains(jobUIDs, q.Key()) }) {
			f.jobs = r.table.store
		}
	}
	if o != nil && o.FieldSelector != nil && !o.FieldSelector.Empty() {
		f.fields = o.FieldSelector
	}
	return f
}

func (f filter) matches(it *item) bool {
	if it.namespace != f.place || f.scope.Site != nil && !f.scope.Site(it.site.id) {
		return false
	}
	switch {
	case f.jobs != nil && !f.labels.Matches(shownLabels{it, f.jobs}), f.jobs == nil && f.labels != nil && !f.labels.Matches(it.labels):
		return false
	}
	if f.fields == nil {
		return true
	}
	set := fields.Set{"metadata.name": it.name, "metadata.namespace": it.namespace, "spec.nodeName": it.node, "status.phase": it.phase, "involvedObject.name": it.aux}
	rest := false
	for _, r := range f.fields.Requirements() {
		v, quick := set[r.Field]
		if !quick {
			rest = true
		} else if r.Operator == "!=" && v == r.Value || r.Operator != "!=" && v != r.Value {
			return false
		}
	}
	if !rest {
		return true
	}
	switch o := f.object(it).(type) {
	case *corev1.Pod:
		maps.Copy(set, fields.Set{"spec.restartPolicy": string(o.Spec.RestartPolicy), "spec.schedulerName": o.Spec.SchedulerName, "spec.serviceAccountName": o.Spec.ServiceAccountName,
			"spec.hostNetwork": strconv.FormatBool(o.Spec.HostNetwork), "status.podIP": o.Status.PodIP, "status.nominatedNodeName": ""})
	case *corev1.Node:
		set["spec.unschedulable"] = strconv.FormatBool(o.Spec.Unschedulable)
	case *corev1.Event:
		ref := o.InvolvedObject
		maps.Copy(set, fields.Set{"involvedObject.kind": ref.Kind, "involvedObject.namespace": ref.Namespace, "involvedObject.uid": string(ref.UID), "involvedObject.apiVersion": ref.APIVersion,
			"involvedObject.resourceVersion": ref.ResourceVersion, "involvedObject.fieldPath": ref.FieldPath, "reason": o.Reason, "reportingComponent": o.ReportingController,
			"source": cmp.Or(o.Source.Component, o.ReportingController), "type": o.Type})
	}
	return f.fields.Matches(set)
}

func (r *resource) find(ctx context.Context, name string) (*item, uint64, error) {
	f := r.filter(ctx, nil)
	s := r.table.store
	s.mu.RLock()
	defer s.mu.RUnlock()
	if it := r.table.get(f.place, name); it != nil && f.matches(it) {
		return it, s.version, nil
	}
	return nil, 0, apierrors.NewNotFound(corev1.Resource(r.plural), name)
}

// Get implements rest.Getter.
func (r *resource) Get(ctx context.Context, name string, o *metav1.GetOptions) (runtime.Object, error) {
	it, now, err := r.find(ctx, name)
	if err != nil {
		return nil, err
	}
	if from, err := versionOf(o.ResourceVersion); err != nil || from > now {
		return nil, cmp.Or(err, tooLarge(from, now))
	}
	return r.table.store.object(it, it.version), nil
}

// Watch implements rest.Watcher.
func (r *resource) Watch(ctx context.Context, o *metainternalversion.ListOptions) (watch.Interface, error) {
	return r.table.watch(ctx, r.filter(ctx, o), o)
}

// rangeLocked are the objects of a place, in order, that come after a name; "" is before all.
func (t *table) rangeLocked(place, after string) []*item {
	var out []*item
	t.byName.AscendGreaterOrEqual(&item{namespace: place, name: after}, func(it *item) bool {
		if it.namespace != place {
			return false
		}
		if after == "" || it.name != after {
			out = append(out, it)
		}
		return true
	})
	return out
}

// token is how a list goes on: after a name, as things were at a version.
type token struct {
	Version uint64 `json:"v"`
	After   string `json:"after"`
}

// at are the objects of a filter's place after a name, at a version that is not long ago, and
// that version; 0 is now.
func (t *table) at(f filter, after string, version uint64) ([]*item, uint64, error) {
	s := t.store
	s.mu.RLock()
	now, all := s.version, t.rangeLocked(f.place, after)
	if version == 0 || version == now {
		s.mu.RUnlock()
		return all, now, nil
	}
	changes, ok := t.since(f.tenant, version, math.MaxInt)
	s.mu.RUnlock()
	if version > now {
		return nil, 0, tooLarge(version, now)
	}
	if !ok {
		return nil, 0, apierrors.NewResourceExpired("The provided continue parameter or resource version is too old to display a consistent list result. Start a new list without it.")
	}
	then := map[string]*item{} // nil: there was none
	for _, c := range slices.Backward(changes) {
		if it := cmp.Or(c.is, c.was); it.namespace == f.place && it.name > after {
			then[it.name] = c.was
		}
	}
	all = slices.DeleteFunc(all, func(it *item) bool { _, changed := then[it.name]; return changed })
	for _, it := range then {
		if it != nil {
			all = append(all, it)
		}
	}
	slices.SortFunc(all, func(a, b *item) int { return strings.Compare(a.name, b.name) })
	return all, version, nil
}

// List implements rest.Lister.
func (r *resource) List(ctx context.Context, o *metainternalversion.ListOptions) (runtime.Object, error) {
	items, version, next, remaining, err := r.list(ctx, o, r.server.listBytes)
	if err == nil {
		err = r.server.lease(ctx, items)
	}
	if err != nil {
		return nil, err
	}
	list := r.NewList()
	lm, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	lm.SetResourceVersion(strconv.FormatUint(version, 10))
	lm.SetContinue(next)
	lm.SetRemainingItemCount(remaining)
	s := r.table.store
	switch list := list.(type) {
	case *corev1.PodList:
		list.Items = make([]corev1.Pod, len(items))
		for i, it := range items {
			list.Items[i] = *s.object(it, it.version).(*corev1.Pod)
		}
	case *corev1.NodeList:
		list.Items = make([]corev1.Node, len(items))
		for i, it := range items {
			list.Items[i] = *s.object(it, it.version).(*corev1.Node)
		}
	case *corev1.EventList:
		list.Items = make([]corev1.Event, len(items))
		for i, it := range items {
			list.Items[i] = *s.object(it, it.version).(*corev1.Event)
		}
	}
	return list, nil
}

// list chooses what is asked for. room bounds what it takes, decoded: a page is shorter then,
// and what was asked for without a limit is refused.
func (r *resource) list(ctx context.Context, o *metainternalversion.ListOptions, room int) (page []*item, version uint64, next string, remaining *int64, err error) {
	from, err := versionOf(o.ResourceVersion)
	if err != nil {
		return nil, 0, "", nil, err
	}
	exact := o.ResourceVersionMatch == metav1.ResourceVersionMatchExact || o.ResourceVersionMatch == "" && o.Limit > 0 && from > 0
	var go_ token
	if o.Continue != "" {
		b, err := base64.RawURLEncoding.DecodeString(o.Continue)
		if err != nil || json.Unmarshal(b, &go_) != nil || go_.Version == 0 {
			return nil, 0, "", nil, apierrors.NewBadRequest("continue key is not valid")
		}
	} else if exact {
		go_.Version = from
	}
	f := r.filter(ctx, o)
	all, version, err := r.table.at(f, go_.After, go_.Version)
	if err != nil {
		return nil, 0, "", nil, err
	}
	if o.Continue == "" && from > version {
		return nil, 0, "", nil, tooLarge(from, version)
	}
	plain := f.labels == nil && f.fields == nil && f.scope.Site == nil
	size := 0
	for i, it := range all {
		if !plain && !f.matches(it) {
			continue
		}
		page, size = append(page, it), size+it.decoded
		if o.Limit <= 0 && size > room/2 {
			return nil, 0, "", nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("all %s take more than %d MiB at once: ask for pages of them (limit=500, as kubectl and client-go do), or for fewer by a selector", r.plural, room>>21))
		}
		if o.Limit <= 0 || int64(len(page)) < o.Limit && size < room/pageShare || i == len(all)-1 {
			continue
		}
		b, _ := json.Marshal(token{version, it.name})
		next = base64.RawURLEncoding.EncodeToString(b)
		if n := int64(len(all) - i - 1); plain {
			remaining = &n
		}
		break
	}
	return page, version, next, remaining, nil
}

func versionOf(s string) (uint64, error) {
	if s == "" || s == "0" {
		return 0, nil
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("resource version %.40q: want a number", s))
	}
	return v, nil
}

func tooLarge(want, now uint64) error { return storage.NewTooLargeResourceVersionError(want, now, 1) }
