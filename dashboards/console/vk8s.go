package console

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/wire"
)

// virtualRef names a virtual Kubernetes.
type virtualRef struct {
	tenant    string
	namespace string // as the tenant's users type it
	name      string
}

// kubeNamespace is the namespace on the control plane.
func (r virtualRef) kubeNamespace() string { return r.tenant + "-" + r.namespace }

// path is where the API server serves it, with what comes below. It puts names together
// that were checked, so that none becomes another part of the path.
func (r virtualRef) path(below ...string) []string {
	return append([]string{"/api/vK8s/namespaces", r.kubeNamespace(), r.name}, below...)
}

// What users do in the namespace of a virtual Kubernetes.
var (
	core, apps   = "", "apps"
	readVirtual  = right{verb: "get", resource: "virtualkubernetes"}
	deployApps   = right{verb: "create", resource: "deployments", stock: &apps}
	patchApps    = right{verb: "patch", resource: "deployments", stock: &apps}
	deletePods   = right{verb: "delete", resource: "pods", stock: &core}
	readPodLogs  = right{verb: "get", resource: "pods/log", stock: &core}
	virtualRules = []right{deployApps, patchApps, deletePods, readPodLogs}
)

// virtualView is a virtual Kubernetes.
type virtualView struct {
	Tenant             string    `json:"tenant"`
	Namespace          string    `json:"namespace"`
	Name               string    `json:"name"`
	DefaultVirtualSite string    `json:"defaultVirtualSite"`
	URL                string    `json:"url"`
	Sites              int32     `json:"sites"`
	Online             int32     `json:"online"`
	Objects            int32     `json:"objects"`
	CreatedAt          time.Time `json:"createdAt"`
	Fault              string    `json:"fault"` // why it is not ready; "" when it is, or nobody has looked yet
}

// virtualDetail is a virtual Kubernetes and what the user may do there. The API server
// has the last word; this keeps pages from offering what it would refuse.
type virtualDetail struct {
	virtualView
	Rights virtualRights `json:"rights"`
}

type virtualRights struct {
	Deploy     bool `json:"deploy"`
	DeletePods bool `json:"deletePods"`
	ReadLogs   bool `json:"readLogs"`
}

type virtualListView struct {
	VirtualKubernetes []virtualView `json:"virtualKubernetes"`
}

func viewVirtual(ref virtualRef, v *v1alpha1.VirtualKubernetes) virtualView {
	out := virtualView{Tenant: ref.tenant, Namespace: ref.namespace, Name: ref.name, DefaultVirtualSite: v.Spec.DefaultVirtualSite,
		URL: v.Status.URL, Sites: v.Status.Sites, Online: v.Status.Online, Objects: v.Status.Objects, CreatedAt: v.CreationTimestamp.UTC()}
	if c := meta.FindStatusCondition(v.Status.Conditions, "Ready"); c != nil && c.Status == metav1.ConditionFalse {
		out.Fault = c.Message
	}
	return out
}

// namespaceOwners maps the namespaces of all tenants to whose they are: a tenant's name
// may have a dash, so that a namespace's alone doesn't tell.
func (a *access) namespaceOwners(ctx context.Context) (map[string]virtualRef, error) {
	list, err := a.tenantList(ctx)
	out := map[string]virtualRef{}
	for _, t := range list {
		for _, n := range append([]string{"system", "shared"}, t.Spec.Namespaces...) {
			ref := virtualRef{tenant: t.Name, namespace: n}
			out[ref.kubeNamespace()] = ref
		}
	}
	return out, err
}

// virtualKubernetes returns those that the user may read, of one tenant or, with "", of
// all. It goes by the rights in their own namespaces: who deploys an app need not be
// allowed to see sites.
func (a *access) virtualKubernetes(ctx context.Context, id identity, tenant string) ([]virtualView, error) {
	got, err := a.virtual.get(ctx, "virtualkubernetes", timed(func(ctx context.Context) ([]v1alpha1.VirtualKubernetes, error) {
		list, err := a.kube.listVirtualKubernetes(ctx)
		slices.SortFunc(list, func(a, b v1alpha1.VirtualKubernetes) int {
			return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
		})
		return list, err
	}))
	list := got.value
	if err != nil {
		return nil, unavailable(err, "the API server can't list the virtual Kubernetes; it may be starting")
	}
	owners, err := a.namespaceOwners(ctx)
	if err != nil {
		return nil, err
	}
	views := []virtualView{}
	for i := range list {
		ref, ok := owners[list[i].Namespace]
		if ok && (tenant == "" || ref.tenant == tenant) {
			ref.name = list[i].Name
			views = append(views, viewVirtual(ref, &list[i]))
		}
	}
	if len(views) == 0 {
		return views, nil
	}
	if ok, err := a.may(ctx, id, readVirtual, everyNamespace); err != nil || ok {
		return views, err
	}
	allowed := make([]bool, len(views))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelReviews)
	for i, v := range views {
		g.Go(func() (err error) {
			allowed[i], err = a.may(gctx, id, readVirtual, virtualRef{v.Tenant, v.Namespace, v.Name}.kubeNamespace())
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := []virtualView{}
	for i, v := range views {
		if allowed[i] {
			out = append(out, v)
		}
	}
	return out, nil
}

func (c *Console) listVirtualKubernetes(w http.ResponseWriter, cl *call) error {
	views, err := c.access.virtualKubernetes(cl.Context(), cl.id, cl.q.Get("tenant"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, virtualListView{views})
}

// virtualOf is the virtual Kubernetes that the path and the parameter tenant name. With
// the parameter it is the API server that says whether there is one, to whoever may know.
func (c *Console) virtualOf(cl *call) (virtualRef, error) {
	ref := virtualRef{cl.q.Get("tenant"), cl.PathValue("namespace"), cl.PathValue("vk8s")}
	if ref.tenant != "" {
		return ref, nil
	}
	views, err := c.access.virtualKubernetes(cl.Context(), cl.id, "")
	if err != nil {
		return ref, err
	}
	var tenants []string
	for _, v := range views {
		if v.Namespace == ref.namespace && v.Name == ref.name {
			tenants = append(tenants, v.Tenant)
		}
	}
	switch len(tenants) {
	case 0:
		return ref, notFound("there is no virtual Kubernetes %s/%s that you may read", ref.namespace, ref.name)
	case 1:
		ref.tenant = tenants[0]
		return ref, nil
	}
	p := newProblem(http.StatusConflict, wire.ProblemAmbiguousSite, "several tenants have a virtual Kubernetes %s/%s: name one with the parameter tenant", ref.namespace, ref.name)
	p.Tenants = tenants
	return ref, p
}

// virtual reads a virtual Kubernetes as the user.
func (k *kube) virtual(ctx context.Context, ref virtualRef) (*v1alpha1.VirtualKubernetes, error) {
	v := &v1alpha1.VirtualKubernetes{}
	err := k.user.Get().Namespace(ref.kubeNamespace()).Resource("virtualkubernetes").Name(ref.name).Do(ctx).Into(v)
	return v, err
}

func (c *Console) getVirtualKubernetes(w http.ResponseWriter, cl *call) error {
	ref, err := c.virtualOf(cl)
	if err != nil {
		return err
	}
	v, err := c.kube.virtual(cl.Context(), ref)
	if err != nil {
		return err
	}
	may := make([]bool, len(virtualRules))
	g, ctx := errgroup.WithContext(cl.Context())
	for i, need := range virtualRules {
		g.Go(func() (err error) {
			may[i], err = c.access.may(ctx, cl.id, need, ref.kubeNamespace())
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, virtualDetail{viewVirtual(ref, v), virtualRights{Deploy: may[0] && may[1], DeletePods: may[2], ReadLogs: may[3]}})
}

// siteWorkloads is what one virtual Kubernetes has on a site.
type siteWorkloads struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Items     []wire.Workload `json:"items"` // each with this site alone
}

type siteWorkloadsView struct {
	Tenant            string          `json:"tenant"`
	Site              string          `json:"site"`
	VirtualKubernetes []siteWorkloads `json:"virtualKubernetes"`
}

// listSiteWorkloads lists what is on a site, of the virtual Kubernetes that the user may
// read.
func (c *Console) listSiteWorkloads(w http.ResponseWriter, cl *call) error {
	id, err := c.siteOf(cl)
	if err != nil {
		return err
	}
	views, err := c.access.virtualKubernetes(cl.Context(), cl.id, id.Tenant)
	if err != nil {
		return err
	}
	lists := make([]wire.WorkloadList, len(views))
	g, ctx := errgroup.WithContext(cl.Context())
	g.SetLimit(parallelReviews)
	for i, v := range views {
		g.Go(func() (err error) {
			lists[i], err = c.kube.workloads(ctx, virtualRef{v.Tenant, v.Namespace, v.Name}, id.Name)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	out := siteWorkloadsView{Tenant: id.Tenant, Site: id.Name, VirtualKubernetes: []siteWorkloads{}}
	for i, v := range views {
		items := slices.DeleteFunc(lists[i].Items, func(w wire.Workload) bool { return len(w.Sites) == 0 })
		if len(items) > 0 {
			out.VirtualKubernetes = append(out.VirtualKubernetes, siteWorkloads{v.Namespace, v.Name, items})
		}
	}
	return writeJSON(w, http.StatusOK, out)
}
