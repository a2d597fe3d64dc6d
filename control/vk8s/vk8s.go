// Package vk8s serves virtual Kubernetes clusters: a tenant's namespace of the stock API
// server, at a path of its own, as if it were all there is. kubectl, Helm and client-go
// can't tell it from a cluster.
//
// It stands in the stock API server's own chain of handlers (control/apiserver puts it
// there), twice: as what tells the chain what a request is about, so that authentication,
// authorization, audit, priority and fairness and time limits are the stock ones, for the
// namespace of the virtual Kubernetes; and behind them, where it hands on what is offered,
// put together anew from the pieces of the path, and refuses the rest. What sites report
// (Pods, Nodes, Events) it has from control/vk8s/status.
//
// The property: through a virtual Kubernetes nothing outside of its namespace is read or
// written, by whomever. What is not named in this package or in control/api/offered is
// refused.
package vk8s

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"muster.dev/muster/internal/workload"
)

// Virtual is one virtual Kubernetes.
type Virtual struct {
	Namespace, Name string
	Tenant          string
}

// Backend is what a Mount serves with.
type Backend struct {
	// Virtual returns the virtual Kubernetes of a name; false: there is none.
	Virtual func(namespace, name string) (Virtual, bool)
	// Offered says whether a resource is carried to sites; nil: the stock kinds.
	Offered func(schema.GroupResource) bool
	// Mirrored serves Pods, Nodes and Events; nil: there are none. Its requests are what the
	// stock API server would get, authorized, and VirtualOf their context tells whose.
	Mirrored http.Handler
	// Usage: Mirrored serves metrics.k8s.io/v1beta1 too, which kubectl top reads.
	Usage bool
	// Report serves what stands below /muster/ of a virtual Kubernetes, which the path of
	// its requests begins with; nil: nothing. Who may get the VirtualKubernetes may get it;
	// MayGet tells what else they may read.
	Report http.Handler
	// Pods are those of a Deployment or StatefulSet on all sites together, and of a Job the
	// completions that they should have, and have; false: it is not carried, or of another kind.
	Pods func(gr schema.GroupResource, namespace, name string) (workload.Pods, bool)
}

// Mount is where the virtual Kubernetes clusters of an API server are.
type Mount struct {
	backend atomic.Pointer[Backend]
	recheck time.Duration // of the right to a session

	mu      sync.Mutex
	catalog *catalog
	made    time.Time
	docs    map[string]*document // of OpenAPI
}

// New returns a Mount that answers that it isn't ready until it is told what to serve.
func New() *Mount { return &Mount{docs: map[string]*document{}, recheck: recheckEvery} }

// Serve has the mount serve with a backend from now on.
func (m *Mount) Serve(b Backend) { m.backend.Store(&b) }

// Stock is what the mount needs of the API server that it stands in.
type Stock struct {
	Handler    http.Handler // behind authentication and authorization
	Resolver   request.RequestInfoResolver
	Authorizer authorizer.Authorizer
	Rules      authorizer.RuleResolver
	// Again says whose a request is, as if it came now: who sent it, or whom they act as.
	Again      func(*http.Request) (user.Info, error)
	Serializer runtime.NegotiatedSerializer
}

type virtualKey struct{}

// VirtualOf is the virtual Kubernetes to which a request came that is served by it.
func VirtualOf(ctx context.Context) (Virtual, bool) {
	v, ok := ctx.Value(virtualKey{}).(Virtual)
	return v, ok
}

type askKey struct{}

// MayGet tells whether who sent a request to Backend.Report may get an object of the virtual
// Kubernetes' namespace.
func MayGet(ctx context.Context, group, version, resource, name string) bool {
	ask, ok := ctx.Value(askKey{}).(func(authorizer.AttributesRecord) bool)
	v, _ := VirtualOf(ctx)
	return ok && ask(authorizer.AttributesRecord{Verb: "get", Namespace: v.Namespace, APIGroup: group, APIVersion: version, Resource: resource, Name: name, ResourceRequest: true})
}

// asking lets MayGet be asked about the user of a request.
func asking(s Stock, req *http.Request) *http.Request {
	ask := func(a authorizer.AttributesRecord) bool {
		u, ok := request.UserFrom(req.Context())
		if !ok {
			return false
		}
		a.User = u
		d, _, _ := s.Authorizer.Authorize(req.Context(), a)
		return d == authorizer.DecisionAllow
	}
	return req.WithContext(context.WithValue(req.Context(), askKey{}, ask))
}

// Resolver tells the chain of handlers what requests to virtual Kubernetes clusters are
// about, and has the stock resolver tell of others.
func (m *Mount) Resolver(stock request.RequestInfoResolver) request.RequestInfoResolver {
	return resolver{m, stock}
}

type resolver struct {
	mount *Mount
	stock request.RequestInfoResolver
}

// NewRequestInfo implements request.RequestInfoResolver. Whatever is asked for is in the
// namespace of the virtual Kubernetes, also nodes and lists across namespaces: an
// ordinary Role in it grants them.
func (r resolver) NewRequestInfo(req *http.Request) (*request.RequestInfo, error) {
	if !under(req.URL) {
		return r.stock.NewRequestInfo(req)
	}
	plain := &request.RequestInfo{Path: req.URL.Path, Verb: strings.ToLower(req.Method)}
	c, err := parse(req.URL)
	if err != nil {
		return plain, nil // the handler says what is wrong, to whom may ask anything at all
	}
	switch c.what {
	case report:
		return &request.RequestInfo{IsResourceRequest: true, Path: req.URL.Path, Verb: plain.Verb, APIPrefix: "apis", APIGroup: "muster.dev", APIVersion: "v1alpha1",
			Resource: "virtualkubernetes", Namespace: c.namespace, Name: c.name, Parts: []string{"virtualkubernetes", c.name}}, nil
	case resource:
		e, known := r.mount.entryOf(c.gvr.GroupResource())
		info, err := r.stock.NewRequestInfo(stockRequest(req, c.path(!known || !e.cluster), req.URL.RawQuery))
		if err != nil {
			return plain, nil
		}
		info.Namespace, info.Path = c.namespace, req.URL.Path
		return info, nil
	}
	plain.Path = c.path(false)
	return plain, nil
}

// Handler is what stands behind the stock handlers' authorization, before the API itself.
func (m *Mount) Handler(s Stock) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !under(req.URL) {
			s.Handler.ServeHTTP(w, req)
			return
		}
		if err := m.serve(s, w, req); err != nil {
			responsewriters.ErrorNegotiated(err, s.Serializer, schema.GroupVersion{Version: "v1"}, w, req)
		}
	})
}

// serve returns an error where nothing has been written yet.
func (m *Mount) serve(s Stock, w http.ResponseWriter, req *http.Request) error {
	b := m.backend.Load()
	if b == nil {
		return apierrors.NewServiceUnavailable("virtual Kubernetes clusters are not served yet; try again in a moment")
	}
	c, err := parse(req.URL)
	if err != nil {
		return err
	}
	if c.what != resource && c.what != report {
		if err := mayKnow(s, req, c); err != nil {
			return err
		}
	}
	v, ok := b.Virtual(c.namespace, c.name)
	if !ok {
		return notFound(fmt.Sprintf("virtualkubernetes.muster.dev %q not found in namespace %q", c.name, c.namespace))
	}
	req = req.WithContext(context.WithValue(req.Context(), virtualKey{}, v))
	if c.what != resource && !reads(req.Method) {
		return notAllowed("/%s can only be read", strings.Join(c.parts, "/"))
	}
	switch c.what {
	case info:
		return m.pass(s, w, req, c.path(false), req.URL.RawQuery)
	case discovery:
		return m.serveDiscovery(s, w, req, c)
	case openapi:
		return m.serveOpenAPI(s, w, req, c)
	case report:
		if b.Report == nil {
			return c.unknown()
		}
		b.Report.ServeHTTP(w, stockRequest(asking(s, req), c.path(false), req.URL.RawQuery))
		return nil
	}
	return m.serveResource(s, *b, w, req, c)
}

// mayKnow: what a virtual Kubernetes offers may be read by whoever has any right in its
// namespace. Others don't learn whether there is one.
func mayKnow(s Stock, req *http.Request, c call) error {
	u, ok := request.UserFrom(req.Context())
	if !ok {
		return apierrors.NewUnauthorized("no user")
	}
	if d, _, _ := s.Authorizer.Authorize(req.Context(), authorizer.AttributesRecord{User: u, Verb: "get", Namespace: c.namespace, APIGroup: "muster.dev", APIVersion: "v1alpha1",
		Resource: "virtualkubernetes", Name: c.name, ResourceRequest: true}); d == authorizer.DecisionAllow {
		return nil
	}
	here, _, _, _ := s.Rules.RulesFor(req.Context(), u, c.namespace)
	everywhere, _, _, _ := s.Rules.RulesFor(req.Context(), u, "")
	if len(here) > len(everywhere) {
		return nil
	}
	return forbidden("user %q has no rights in namespace %q", u.GetName(), c.namespace)
}

// pass hands a request on to the stock API server, for another path.
func (m *Mount) pass(s Stock, w http.ResponseWriter, req *http.Request, path, query string) error {
	req, err := to(s, req, path, query)
	if err != nil {
		return err
	}
	s.Handler.ServeHTTP(w, req)
	return nil
}

// to is the request for another path, with what the stock resolver says of it.
func to(s Stock, req *http.Request, path, query string) (*http.Request, error) {
	out := stockRequest(req, path, query)
	info, err := s.Resolver.NewRequestInfo(out)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return out.WithContext(request.WithRequestInfo(out.Context(), info)), nil
}

func (m *Mount) serveResource(s Stock, b Backend, w http.ResponseWriter, req *http.Request, c call) error {
	gr := c.gvr.GroupResource()
	e, ok := m.entryOf(gr)
	if !ok {
		return notFound(fmt.Sprintf("a virtual Kubernetes does not serve %s: it is not among what is carried to sites, and nothing outside of the namespace %s is reached through it", gr, c.namespace))
	}
	if c.asked != "" && c.asked != c.namespace {
		return forbidden("this virtual Kubernetes is the namespace %q; namespace %q is not reached through it", c.namespace, c.asked)
	}
	if e.cluster && c.asked != "" {
		return notFound(fmt.Sprintf("%s are not in namespaces", gr))
	}
	out, err := to(s, req, c.path(!e.cluster), req.URL.RawQuery)
	if err != nil {
		return err
	}
	inner, _ := request.RequestInfoFrom(out.Context())
	// Everything is in one namespace, so a list across namespaces is one of it; but names
	// need theirs, as in any Kubernetes.
	if !e.cluster && c.asked == "" && (c.object != "" || inner.Verb != "list" && inner.Verb != "watch") {
		return notFound(fmt.Sprintf("want namespaces/%s/%s: %s are in namespaces", c.namespace, gr.Resource, gr))
	}
	if c.sub == "" && !slices.Contains(e.verbs, inner.Verb) {
		return notAllowed("%s", e.refusal(orMethod(inner.Verb, req.Method)))
	}
	if verbs, ok := e.subs[c.sub]; c.sub != "" && !ok {
		return notFound(fmt.Sprintf("a virtual Kubernetes does not serve %s/%s", gr, c.sub))
	} else if c.sub != "" && !slices.Contains(verbs, inner.Verb) {
		return notAllowed("%s is not allowed on %s/%s of a virtual Kubernetes", orMethod(inner.Verb, req.Method), gr, c.sub)
	}
	switch e.own {
	case namespaces:
		return m.serveNamespace(s, w, req, c)
	case review:
		return m.serveReview(s, w, out, c)
	case mirrored:
		if b.Mirrored == nil {
			return apierrors.NewServiceUnavailable("what sites report is not served")
		}
		if lasts(c) {
			ctx, end, err := guard(s, req, c, m.recheck)
			if err != nil {
				return err
			}
			defer end()
			out = out.WithContext(request.WithRequestInfo(ctx, inner))
		}
		b.Mirrored.ServeHTTP(w, out)
		return nil
	}
	w, end := b.fleetTables(w, out, c, inner.Verb == "watch")
	s.Handler.ServeHTTP(w, out)
	end()
	return nil
}

func orMethod(verb, method string) string {
	if verb == "" {
		return method
	}
	return verb
}

// serveNamespace shows the one namespace.
func (m *Mount) serveNamespace(s Stock, w http.ResponseWriter, req *http.Request, c call) error {
	if c.object != "" {
		if c.object != c.namespace {
			return forbidden("this virtual Kubernetes is the namespace %q; namespace %q is not reached through it", c.namespace, c.object)
		}
		return m.pass(s, w, req, "/api/v1/namespaces/"+c.namespace, req.URL.RawQuery)
	}
	// Terms of a selector are all to be met: more of them can only narrow it.
	q := req.URL.Query()
	own := "metadata.name=" + c.namespace
	if more := q.Get("fieldSelector"); more != "" {
		own += "," + more
	}
	q.Set("fieldSelector", own)
	return m.pass(s, w, req, "/api/v1/namespaces", q.Encode())
}

// reader is who reads what the stock API server says of itself.
var reader = &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}}
