package status

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/registry/rest"
)

// evictions evicts pods on their sites, where the site's own PodDisruptionBudgets decide.
type evictions struct{ pods *resource }

var _ rest.NamedCreater = &evictions{}

func (e *evictions) scope() (*handlers.RequestScope, error) {
	s := e.pods.scope()
	s.Kind, s.HubGroupVersion, s.Subresource = policyv1.SchemeGroupVersion.WithKind("Eviction"), policyv1.SchemeGroupVersion, "eviction"
	// The stock handler asks for one, though nothing is kept.
	var err error
	s.FieldManager, err = managedfields.NewDefaultFieldManager(managedfields.NewDeducedTypeConverter(), s.Convertor, s.Defaulter, s.Creater, s.Kind, s.HubGroupVersion, s.Subresource, nil)
	return s, err
}

// New implements rest.NamedCreater.
func (e *evictions) New() runtime.Object { return &policyv1.Eviction{} }

// Destroy implements rest.Storage.
func (e *evictions) Destroy() {}

// Create implements rest.NamedCreater: it asks the pod's site once and returns what the
// site says. A refusal has no Retry-After, on which client-go would ask ten times more
// before its caller, which knows when to ask again, hears of it.
func (e *evictions) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, o *metav1.CreateOptions) (runtime.Object, error) {
	eviction, ok := obj.(*policyv1.Eviction)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not an Eviction: %T", obj))
	}
	if eviction.Name != name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	if err := validate(ctx, eviction); err != nil {
		return nil, err
	}
	it, _, err := e.pods.find(ctx, name)
	if err != nil {
		return nil, err
	}
	said := cmp.Or(eviction.DeleteOptions, &metav1.DeleteOptions{})
	send, err := e.pods.siteOptions(it, said)
	if err != nil {
		return nil, err
	}
	// A dry run is the site's too: what its budgets would say is what is asked for.
	if send.DryRun = o.DryRun; len(said.DryRun) > 0 {
		send.DryRun = said.DryRun
	}
	code, answer, err := e.pods.ask(ctx, it, http.MethodPost, "/eviction", &policyv1.Eviction{TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
		ObjectMeta: metav1.ObjectMeta{Namespace: it.namespace, Name: it.own}, DeleteOptions: send})
	if err != nil {
		return nil, err
	}
	if code < 300 {
		return &metav1.Status{Status: metav1.StatusSuccess}, nil
	}
	status := metav1.Status{}
	_ = json.Unmarshal(answer, &status)
	refused := apierrors.NewGenericServerResponse(code, "evict", corev1.Resource("pods"), name, "", 0, false)
	refused.ErrStatus.Message = fmt.Sprintf("site %s: %s", it.site.id.Name, cmp.Or(cut(status.Message, 1024), http.StatusText(code)))
	refused.ErrStatus.Reason = cmp.Or(status.Reason, refused.ErrStatus.Reason)
	if d := status.Details; d != nil { // which budget it was
		for _, c := range d.Causes[:min(len(d.Causes), 16)] {
			refused.ErrStatus.Details.Causes = append(refused.ErrStatus.Details.Causes, metav1.StatusCause{Type: c.Type, Message: cut(c.Message, 1024)})
		}
	}
	return nil, refused
}
