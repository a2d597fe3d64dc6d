package status

import (
	"context"
	"math"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// UsageWindow is over what time the CPU that is used is averaged. It has to have two scrapes
// of a site in it, also of one that is scraped once in two minutes.
const UsageWindow = 5 * time.Minute

// UsageOf is of what it is asked how much it uses: the pods of a tenant's namespace, or the
// nodes of its sites.
type UsageOf struct {
	Tenant, Namespace string
	Nodes             bool
	// Site and Name are of one pod or node, as it is called there; empty: all.
	Site, Name string
}

// Usage is what a container of a pod uses, or a node.
type Usage struct {
	Site, Name string // of the pod or node, as it is called there
	Container  string // empty: a node
	// CPU in cores, over UsageWindow, and working set in bytes; nil: not known.
	CPU, Memory *float64
}

// usage serves PodMetrics or NodeMetrics of what is in a table.
type usage struct{ of *resource }

var (
	_ rest.Getter = &usage{}
	_ rest.Lister = &usage{}
)

// serveUsage serves metrics.k8s.io: what can be read of it in any cluster, which is all.
func (h *server) serveUsage(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, r *resource) error {
	u := &usage{r}
	scope := r.scope()
	scope.Resource, scope.Kind = metricsv1beta1.SchemeGroupVersion.WithResource(r.plural), metricsv1beta1.SchemeGroupVersion.WithKind(r.kind.Kind+"Metrics")
	scope.HubGroupVersion = metricsv1beta1.SchemeGroupVersion
	scope.TableConvertor = rest.NewDefaultTableConvertor(metricsv1beta1.Resource(r.plural))
	switch {
	case h.o.Usage == nil || r.table.kind == events || info.Subresource != "":
		return apierrors.NewNotFound(metricsv1beta1.Resource(r.plural), info.Name)
	case info.Verb == "get":
		handlers.GetResource(u, scope).ServeHTTP(w, req)
	case info.Verb == "list":
		handlers.ListResource(u, nil, scope, false, time.Minute).ServeHTTP(w, req)
	default:
		return apierrors.NewMethodNotSupported(metricsv1beta1.Resource(r.plural), info.Verb)
	}
	return nil
}

// New implements rest.Storage.
func (u *usage) New() runtime.Object { return u.NewList() }

// Destroy implements rest.Storage.
func (u *usage) Destroy() {}

// NewList implements rest.Lister.
func (u *usage) NewList() runtime.Object {
	if u.of.table.kind == nodes {
		return &metricsv1beta1.NodeMetricsList{}
	}
	return &metricsv1beta1.PodMetricsList{}
}

// ConvertToTable implements rest.TableConvertor.
func (u *usage) ConvertToTable(ctx context.Context, o, options runtime.Object) (*metav1.Table, error) {
	return rest.NewDefaultTableConvertor(metricsv1beta1.Resource(u.of.plural)).ConvertToTable(ctx, o, options)
}

// Get implements rest.Getter. Of what nothing is known there is none, as in any cluster.
func (u *usage) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	missing := apierrors.NewNotFound(metricsv1beta1.Resource(u.of.plural), name)
	it, _, err := u.of.find(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil, missing
	}
	if err != nil {
		return nil, err
	}
	list, err := u.measure(ctx, []*item{it}, UsageOf{Site: it.site.id.Name, Name: it.own})
	switch list := list.(type) {
	case *metricsv1beta1.PodMetricsList:
		if len(list.Items) == 1 {
			return &list.Items[0], nil
		}
	case *metricsv1beta1.NodeMetricsList:
		if len(list.Items) == 1 {
			return &list.Items[0], nil
		}
	}
	if err == nil {
		err = missing
	}
	return nil, err
}

// List implements rest.Lister: all in one answer, as metrics are of this moment.
func (u *usage) List(ctx context.Context, o *metainternalversion.ListOptions) (runtime.Object, error) {
	var which metainternalversion.ListOptions
	if o != nil {
		which.LabelSelector, which.FieldSelector = o.LabelSelector, o.FieldSelector
	}
	items, _, _, _, err := u.of.list(ctx, &which, math.MaxInt)
	if err != nil {
		return nil, err
	}
	return u.measure(ctx, items, UsageOf{})
}

// measure is a list of those of the items of which anything is known.
func (u *usage) measure(ctx context.Context, items []*item, of UsageOf) (runtime.Object, error) {
	if len(items) == 0 {
		return u.NewList(), nil
	}
	scope, _ := u.of.server.o.Scope(ctx)
	of.Tenant, of.Namespace, of.Nodes = scope.Tenant, scope.Namespace, u.of.table.kind == nodes
	said, err := u.of.server.o.Usage(ctx, of)
	if err != nil {
		return nil, apierrors.NewServiceUnavailable("what pods and nodes use can't be read now: " + err.Error())
	}
	type place struct{ site, name string }
	by := map[place][]Usage{}
	for _, x := range said {
		if x.CPU != nil || x.Memory != nil {
			by[place{x.Site, x.Name}] = append(by[place{x.Site, x.Name}], x)
		}
	}
	now, window := metav1.Now(), metav1.Duration{Duration: UsageWindow}
	list := u.NewList()
	for _, it := range items {
		uses := by[place{it.site.id.Name, it.own}]
		if len(uses) == 0 {
			continue
		}
		labels := map[string]string{}
		for i := 0; i < len(it.labels); i += 2 {
			labels[it.labels[i]] = it.labels[i+1]
		}
		meta := metav1.ObjectMeta{Name: it.name, Labels: labels, CreationTimestamp: now}
		switch list := list.(type) {
		case *metricsv1beta1.PodMetricsList:
			meta.Namespace = it.namespace
			m := metricsv1beta1.PodMetrics{ObjectMeta: meta, Timestamp: now, Window: window}
			for _, x := range uses {
				m.Containers = append(m.Containers, metricsv1beta1.ContainerMetrics{Name: x.Container, Usage: x.list()})
			}
			list.Items = append(list.Items, m)
		case *metricsv1beta1.NodeMetricsList:
			list.Items = append(list.Items, metricsv1beta1.NodeMetrics{ObjectMeta: meta, Timestamp: now, Window: window, Usage: uses[0].list()})
		}
	}
	return list, nil
}

func (x Usage) list() corev1.ResourceList {
	out := corev1.ResourceList{}
	if x.CPU != nil {
		out[corev1.ResourceCPU] = *quantity.NewScaledQuantity(int64(*x.CPU*1e9), quantity.Nano)
	}
	if x.Memory != nil {
		out[corev1.ResourceMemory] = *quantity.NewQuantity(int64(*x.Memory), quantity.BinarySI)
	}
	return out
}
