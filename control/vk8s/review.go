package vk8s

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// maxReview bounds the body of a review.
const maxReview = 64 << 10

// reviewCodecs decode what clients send, in whichever form.
var reviewCodecs = sync.OnceValue(func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	utilruntime.Must(authorizationv1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme)
})

// serveReview answers what the user may do here: in this namespace, with what is served.
func (m *Mount) serveReview(s Stock, w http.ResponseWriter, req *http.Request, c call) error {
	body, err := io.ReadAll(io.LimitReader(req.Body, maxReview+1))
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if len(body) > maxReview {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("a review has at most %d bytes", maxReview))
	}
	mediaType, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil {
		mediaType = runtime.ContentTypeJSON
	}
	codec, ok := runtime.SerializerInfoForMediaType(reviewCodecs().SupportedMediaTypes(), mediaType)
	if !ok {
		return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "create", c.gvr.GroupResource(), "", "the media type of the body is not known", 0, false)
	}
	gvk := schema.GroupVersionKind{Group: c.gvr.Group, Version: c.gvr.Version, Kind: "SelfSubjectAccessReview"}
	if c.gvr.Resource == "selfsubjectrulesreviews" {
		gvk.Kind = "SelfSubjectRulesReview"
	}
	obj, _, err := codec.Serializer.Decode(body, &gvk, nil)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	switch r := obj.(type) {
	case *authorizationv1.SelfSubjectAccessReview:
		if refused := m.confine(r, c); refused != "" {
			r.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: false, Denied: true, Reason: refused}
			responsewriters.WriteObjectNegotiated(s.Serializer, negotiation.DefaultEndpointRestrictions, authorizationv1.SchemeGroupVersion, w, req, http.StatusCreated, r, false)
			return nil
		}
	case *authorizationv1.SelfSubjectRulesReview:
		if r.Spec.Namespace != "" && r.Spec.Namespace != c.namespace {
			return forbidden("this virtual Kubernetes is the namespace %q; namespace %q is not reached through it", c.namespace, r.Spec.Namespace)
		}
		r.Spec.Namespace = c.namespace
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("a %T is not what this path takes", obj))
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	if body, err = json.Marshal(obj); err != nil {
		return apierrors.NewInternalError(err)
	}
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	req.Header.Set("Content-Type", runtime.ContentTypeJSON)
	req.Header.Set("Content-Length", strconv.Itoa(len(body)))
	s.Handler.ServeHTTP(w, req)
	return nil
}

// confine puts the namespace into a review, and says why it is refused whoever asks.
func (m *Mount) confine(r *authorizationv1.SelfSubjectAccessReview, c call) string {
	if n := r.Spec.NonResourceAttributes; n != nil {
		first, _, _ := strings.Cut(strings.TrimPrefix(n.Path, "/"), "/")
		if !slices.Contains([]string{"api", "apis", "openapi", "version", "healthz", "livez", "readyz"}, first) {
			return "a virtual Kubernetes does not serve it"
		}
	}
	a := r.Spec.ResourceAttributes
	if a == nil {
		return ""
	}
	if a.Namespace != "" && a.Namespace != c.namespace {
		return fmt.Sprintf("this virtual Kubernetes is the namespace %q", c.namespace)
	}
	if a.Resource != "*" {
		e, ok := m.entryOf(schema.GroupResource{Group: a.Group, Resource: a.Resource})
		if !ok {
			return "a virtual Kubernetes does not serve it"
		}
		if a.Subresource == "" && a.Verb != "*" && !slices.Contains(e.verbs, a.Verb) {
			return e.refusal(a.Verb)
		}
	}
	a.Namespace = c.namespace
	return ""
}
