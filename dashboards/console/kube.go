package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// fieldManager is the console's name in metadata.managedFields.
const fieldManager = "muster-console"

// Rules are the rights that the console's own identity needs, as rules of a
// ClusterRole. Whoever may impersonate any group can do anything: guard the
// identity like an administrator's.
func Rules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"tenants", "virtualkubernetes", "virtualhosts", "advertisepolicies", "savedviews"}, Verbs: []string{"list"}},
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"sites"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"users", "groups", "serviceaccounts"}, Verbs: []string{"impersonate"}},
		// uids and userextras/<key>; RBAC has no wildcard for a subresource of one resource.
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"impersonate"}},
	}
}

// kube talks to the API server: as the console for reviews, the list of tenants
// and the watch of pending sites; as the user for everything else.
type kube struct {
	tokens  authenticationv1.TokenReviewInterface
	reviews authorizationv1.SubjectAccessReviewInterface
	own     rest.Interface // muster.dev/v1alpha1 as the console
	user    rest.Interface // muster.dev/v1alpha1 as the identity in the context
	params  runtime.ParameterCodec
}

func newKube(base *rest.Config) (*kube, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	cfg := rest.CopyConfig(base)
	cfg.UserAgent = fieldManager
	cfg.QPS = -1 // the caches and the API server's own priority and fairness bound us
	cfg.Timeout = 0
	cfg.Impersonate = rest.ImpersonationConfig{}
	// Custom resources have no other form, and reviews are too small to care.
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	ownHTTP, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	authn, err := authenticationv1.NewForConfigAndClient(cfg, ownHTTP)
	if err != nil {
		return nil, err
	}
	authz, err := authorizationv1.NewForConfigAndClient(cfg, ownHTTP)
	if err != nil {
		return nil, err
	}

	group := rest.CopyConfig(cfg)
	group.GroupVersion = &v1alpha1.GroupVersion
	group.APIPath = "/apis"
	group.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	own, err := rest.RESTClientForConfigAndClient(group, ownHTTP)
	if err != nil {
		return nil, err
	}
	asUser := rest.CopyConfig(group)
	asUser.Wrap(func(next http.RoundTripper) http.RoundTripper { return impersonator{next} })
	user, err := rest.RESTClientFor(asUser)
	if err != nil {
		return nil, err
	}
	return &kube{
		tokens: authn.TokenReviews(), reviews: authz.SubjectAccessReviews(),
		own: own, user: user, params: runtime.NewParameterCodec(scheme),
	}, nil
}

// impersonator sends each request in the name of the identity in its context, and
// refuses those without one: forgetting it must not act with the console's rights.
type impersonator struct{ next http.RoundTripper }

var errNobody = errors.New("console: a request on behalf of a user without the user")

func (t impersonator) RoundTrip(r *http.Request) (*http.Response, error) {
	id, ok := identityFrom(r.Context())
	if !ok || id.name == "" {
		return nil, errNobody
	}
	as := transport.ImpersonationConfig{UserName: id.name, UID: id.uid, Groups: id.groups, Extra: id.extra}
	return transport.NewImpersonatingRoundTripper(as, t.next).RoundTrip(r)
}

func (k *kube) listTenants(ctx context.Context) (*v1alpha1.TenantList, error) {
	out := &v1alpha1.TenantList{}
	// Version "0" is answered from the API server's watch cache.
	err := k.own.Get().Resource("tenants").VersionedParams(&metav1.ListOptions{ResourceVersion: "0"}, k.params).Do(ctx).Into(out)
	return out, err
}

// listVirtualKubernetes returns those of all tenants, with what pages show of them.
func (k *kube) listVirtualKubernetes(ctx context.Context) (out []v1alpha1.VirtualKubernetes, err error) {
	err = listPages(ctx, k, k.own, "virtualkubernetes", "", func(list *v1alpha1.VirtualKubernetesList) {
		for _, v := range list.Items {
			out = append(out, v1alpha1.VirtualKubernetes{ObjectMeta: bare(v.ObjectMeta), Spec: v.Spec, Status: v.Status})
		}
	})
	return out, err
}

// A page of a list, whose objects have a megabyte each if somebody likes, should have so
// many bytes; the first has so few of them.
const (
	pageBytes   = 2 << 20
	firstOfList = 5
)

// listPages calls with the pages of a list of muster.dev objects, of a namespace or, with "",
// of all. What of a page is not kept is gone when the next one comes.
func listPages[L any, P interface {
	*L
	metav1.ListInterface
}](ctx context.Context, k *kube, as rest.Interface, resource, namespace string, page func(P)) error {
	o := metav1.ListOptions{Limit: firstOfList}
	for {
		req := as.Get().Resource(resource).VersionedParams(&o, k.params)
		if namespace != "" {
			req = req.Namespace(namespace)
		}
		raw, err := body(ctx, req)
		if err != nil {
			return err
		}
		list := P(new(L))
		if err := json.Unmarshal(raw, list); err != nil {
			return fmt.Errorf("read the list of %s: %w", resource, err)
		}
		page(list)
		if o.Continue = list.GetContinue(); o.Continue == "" {
			return nil
		}
		o.Limit = min(max(1, o.Limit*pageBytes/int64(len(raw))), 500)
	}
}

// bare is what pages show of an object's metadata; annotations may be large.
func bare(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, CreationTimestamp: m.CreationTimestamp}
}

// getSite reads a site as the user in ctx.
func (k *kube) getSite(ctx context.Context, id fleet.SiteID) (*v1alpha1.Site, error) {
	out := &v1alpha1.Site{}
	err := k.user.Get().Namespace(fleet.SystemNamespace(id.Tenant)).Resource("sites").Name(id.Name).Do(ctx).Into(out)
	return out, err
}

// patchSite applies a JSON merge patch as the user in ctx.
func (k *kube) patchSite(ctx context.Context, id fleet.SiteID, patch []byte) (*v1alpha1.Site, error) {
	out := &v1alpha1.Site{}
	err := k.user.Patch(types.MergePatchType).Namespace(fleet.SystemNamespace(id.Tenant)).Resource("sites").Name(id.Name).
		VersionedParams(&metav1.PatchOptions{FieldManager: fieldManager}, k.params).Body(patch).Do(ctx).Into(out)
	return out, err
}

// body asks and returns the answer's body. Unlike Raw's, the error is what the API server
// said.
func body(ctx context.Context, r *rest.Request) ([]byte, error) {
	res := r.Do(ctx)
	if err := res.Error(); err != nil {
		return nil, err
	}
	return res.Raw()
}
