package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/retry"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/api/validation"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

const maxViews = 50 // of one object, as its schema has it

var shareViews = right{verb: "share", resource: "savedviews"}

// listViews answers with the user's own views and those that are shared in the tenants
// that the user may read.
func (c *Console) listViews(w http.ResponseWriter, cl *call) error {
	set, err := c.access.scope(cl.Context(), cl.id, cl.q.Get("tenant"))
	if err != nil {
		return err
	}
	out := wire.SavedViewList{Views: []wire.SavedView{}, ShareIn: []string{}}
	for _, owner := range []string{"", cl.id.name} {
		list, err := c.kube.listViews(cl.Context(), v1alpha1.ViewsName(owner))
		if err != nil {
			return err
		}
		for _, o := range list.Items {
			tenant, ok := fleet.TenantOfSystemNamespace(o.Namespace)
			if !ok || !set.has(tenant) {
				continue
			}
			for _, v := range o.Spec.Views {
				out.Views = append(out.Views, viewOfSaved(tenant, owner == "", v))
			}
		}
	}
	slices.SortStableFunc(out.Views, func(a, b wire.SavedView) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Tenant, b.Tenant))
	})
	for _, tenant := range set.names {
		ok, err := c.access.may(cl.Context(), cl.id, shareViews, fleet.SystemNamespace(tenant))
		if err != nil {
			return err
		}
		if ok {
			out.ShareIn = append(out.ShareIn, tenant)
		}
	}
	return writeJSON(w, http.StatusOK, out)
}

func viewOfSaved(tenant string, shared bool, v v1alpha1.SavedView) wire.SavedView {
	return wire.SavedView{Name: v.Name, Tenant: tenant, Shared: shared, SavedQuestion: wire.SavedQuestion{Query: v.Query, Sort: v.Sort, Columns: append([]string{}, v.Columns...), Group: v.Group}}
}

// listViews lists the objects of that name of all tenants, as the console.
func (k *kube) listViews(ctx context.Context, name string) (*v1alpha1.SavedViewsList, error) {
	out := &v1alpha1.SavedViewsList{}
	err := k.own.Get().Resource("savedviews").VersionedParams(&metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}, k.params).Do(ctx).Into(out)
	return out, err
}

func (c *Console) putView(w http.ResponseWriter, cl *call) error {
	var in wire.SavedQuestion
	if err := readJSON(cl.Request, &in, false); err != nil {
		return err
	}
	v := v1alpha1.SavedView{Name: cl.PathValue("view"), Query: in.Query, Sort: in.Sort, Columns: in.Columns, Group: in.Group}
	if errs := validation.SavedView(nil, v); len(errs) > 0 {
		return invalidFields(fieldErrors(errs))
	}
	tenant, err := c.editViews(cl, func(have []v1alpha1.SavedView) ([]v1alpha1.SavedView, error) {
		if i := indexOfView(have, v.Name); i >= 0 {
			if cl.q.Get("new") != "" {
				p := newProblem(http.StatusConflict, wire.ProblemConflict, "there is a view %q already; replace it, or choose another name", v.Name)
				p.Errors = []wire.FieldError{{Field: "name", Detail: "there is one of that name"}}
				return nil, p
			}
			have[i] = v
			return have, nil
		}
		if len(have) >= maxViews {
			return nil, newProblem(http.StatusConflict, wire.ProblemConflict, "there are %d views already; delete one that nobody needs", len(have))
		}
		return append(have, v), nil
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, viewOfSaved(tenant, cl.q.Get("shared") != "", v))
}

func (c *Console) deleteView(w http.ResponseWriter, cl *call) error {
	name := cl.PathValue("view")
	_, err := c.editViews(cl, func(have []v1alpha1.SavedView) ([]v1alpha1.SavedView, error) {
		i := indexOfView(have, name)
		if i < 0 {
			return nil, notFound("there is no view %q", printable(name))
		}
		return slices.Delete(have, i, i+1), nil
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func indexOfView(views []v1alpha1.SavedView, name string) int {
	return slices.IndexFunc(views, func(v v1alpha1.SavedView) bool { return v.Name == name })
}

func fieldErrors(errs field.ErrorList) []wire.FieldError {
	out := make([]wire.FieldError, len(errs))
	for i, e := range errs {
		out[i] = wire.FieldError{Field: e.Field, Detail: e.Detail}
	}
	return out
}

// editViews replaces the user's views, or those that are shared, by what change makes of
// exactly these, as the user.
func (c *Console) editViews(cl *call, change func([]v1alpha1.SavedView) ([]v1alpha1.SavedView, error)) (tenant string, err error) {
	set, err := c.access.scope(cl.Context(), cl.id, cl.q.Get("tenant"))
	if err != nil {
		return "", err
	}
	if len(set.names) != 1 {
		return "", manyTenants("a view belongs to one tenant", set)
	}
	tenant = set.names[0]
	owner := cl.id.name
	if cl.q.Get("shared") != "" {
		owner = ""
	}
	// Somebody else may write in between.
	meanwhile := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err = retry.OnError(retry.DefaultRetry, meanwhile, func() error {
		return c.kube.writeViews(cl.Context(), fleet.SystemNamespace(tenant), owner, change)
	})
	return tenant, err
}

func (k *kube) writeViews(ctx context.Context, namespace, owner string, change func([]v1alpha1.SavedView) ([]v1alpha1.SavedView, error)) error {
	name := v1alpha1.ViewsName(owner)
	o := &v1alpha1.SavedViews{}
	err := k.user.Get().Namespace(namespace).Resource("savedviews").Name(name).Do(ctx).Into(o)
	fresh := apierrors.IsNotFound(err)
	if err != nil && !fresh {
		return err
	}
	if fresh {
		*o = v1alpha1.SavedViews{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.SavedViewsSpec{Owner: owner}}
	}
	// The client's encoder leaves out what the type does not know of itself.
	o.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SavedViews"}
	if o.Spec.Views, err = change(o.Spec.Views); err != nil {
		return err
	}
	r := k.user.Put().Name(name)
	if fresh {
		r = k.user.Post()
	}
	return r.Namespace(namespace).Resource("savedviews").VersionedParams(&metav1.UpdateOptions{FieldManager: fieldManager}, k.params).Body(o).Do(ctx).Error()
}
