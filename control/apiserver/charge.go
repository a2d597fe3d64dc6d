package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"

	flowcontrol "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	fq "k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"

	"muster.dev/muster/control/quota"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/yamlsize"
)

// charge puts what tenants pay for their requests into the chain of handlers: behind
// authorization, since who may not write into a namespace must not use up the budget of its
// tenant, and before anything is decoded. What it refuses holds no seat of the stock fair
// queuing any longer than it takes to say so.
func charge(config *app.Config, ledger *quota.Ledger, known func(addr string)) {
	c := &config.Aggregator.GenericConfig.Config
	if c.FlowControl != nil {
		c.FlowControl = tenantFlows{c.FlowControl, ledger}
	}
	build := c.BuildHandlerChainFunc
	c.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return build(charger{next: api, known: known, ledger: ledger, watches: newWatches(), authorizer: c.Authorization.Authorizer, serializer: c.Serializer}, c)
	}
}

type charger struct {
	next       http.Handler
	known      func(addr string) // says that the peer of a connection is no stranger
	ledger     *quota.Ledger
	watches    *watches
	authorizer authorizer.Authorizer
	serializer runtime.NegotiatedSerializer
}

type paidKey struct{}

// paid is what the request of a context was charged, in bytes.
func paid(ctx context.Context) int64 {
	n, _ := ctx.Value(paidKey{}).(int64)
	return n
}

// reads are the verbs that are not charged: priority and fairness gives them seats by how
// much there is to list, and a watch until it has begun.
var reads = []string{"get", "list", "watch", "head", "options"}

// writes tells whether a request is charged. A session in a pod is, which a WebSocket begins by a
// GET and SPDY by a POST.
func writes(info *request.RequestInfo) bool {
	return !slices.Contains(reads, info.Verb) || info.Resource == "pods" && slices.Contains([]string{"exec", "attach", "portforward"}, info.Subresource)
}

// unknownBody is what a request pays that doesn't say how long it is: the most that the API
// server reads.
const unknownBody = 3 << 20

// ServeHTTP implements http.Handler.
func (c charger) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx := req.Context()
	info, ok := request.RequestInfoFrom(ctx)
	u, ok2 := request.UserFrom(ctx)
	if ok2 { // there is no anonymous one
		c.known(req.RemoteAddr)
	}
	if ok && ok2 && info.Verb == "watch" && !trusted(u) {
		end, err := c.watches.begin(u.GetName(), c.tenantOf(u, info))
		if err != nil {
			responsewriters.ErrorNegotiated(err, c.serializer, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, req)
			return
		}
		defer end()
	}
	if !ok || !ok2 || !writes(info) || trusted(u) {
		c.next.ServeHTTP(w, req)
		return
	}
	cost, err := c.charge(ctx, u, info, req.ContentLength)
	var over *quota.Exceeded
	if errors.As(err, &over) {
		gr := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
		responsewriters.ErrorNegotiated(refusal(gr, info.Name, over), c.serializer, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, req)
		return
	}
	if err := bounded(req); err != nil {
		responsewriters.ErrorNegotiated(apierrors.NewBadRequest("the body "+err.Error()), c.serializer, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, req)
		return
	}
	c.next.ServeHTTP(w, req.WithContext(context.WithValue(ctx, paidKey{}, cost)))
}

// bounded refuses a body of YAML that comes to far more than it is: the stock server makes
// JSON of it.
func bounded(req *http.Request) error {
	if !strings.Contains(strings.ToLower(req.Header.Get("Content-Type")), "yaml") {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(req.Body, unknownBody+1))
	if err != nil {
		return fmt.Errorf("did not come whole: %w", err)
	}
	rest := req.Body // what is longer is refused by who reads it
	req.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), rest), rest}
	return yamlsize.Check(text, unknownBody)
}

// tenantOf is whose a service account or a person is, by their groups; "" is nobody's. Of a
// person of several tenants it is the one whose namespace is asked about, else any.
func (c charger) tenantOf(u user.Info, info *request.RequestInfo) (tenant string) {
	if namespace, _, err := serviceaccount.SplitUsername(u.GetName()); err == nil {
		return c.ledger.TenantOf(namespace)
	}
	at := c.ledger.TenantOf(info.Namespace)
	for _, g := range u.GetGroups() {
		if t, ok := fleet.TenantOfGroup(g); ok && (tenant == "" || t == at) {
			tenant = t
		}
	}
	return tenant
}

// charge returns what was paid for a request of somebody who isn't trusted.
func (c charger) charge(ctx context.Context, u user.Info, info *request.RequestInfo, body int64) (int64, error) {
	if body < 0 {
		body = unknownBody
	}
	r := quota.Request{Resource: storedAs(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}), Namespace: info.Namespace, Name: info.Name, Body: body}
	r.Tenant = c.tenantOf(u, info)
	if r.Tenant == "" { // somebody whom a binding names, or an operator
		all := authorizer.AttributesRecord{User: u, Verb: "*", APIGroup: "*", APIVersion: "*", Resource: "*", ResourceRequest: true}
		if d, _, err := c.authorizer.Authorize(ctx, all); err == nil && d == authorizer.DecisionAllow {
			return math.MaxInt64, nil // a cluster administrator
		}
		r.Tenant, r.Person = c.ledger.TenantOf(info.Namespace), u.GetName()
	}
	return c.ledger.Charge(r)
}

// tenantFlows has the stock priority and fairness take all service accounts of a tenant for
// one flow, where its own flow schemas have one for each, of which a tenant can make as many
// as it likes. People are a flow each: it is the identity provider that makes them.
type tenantFlows struct {
	utilflowcontrol.Interface
	ledger *quota.Ledger
}

// Handle implements utilflowcontrol.Interface.
func (f tenantFlows) Handle(ctx context.Context, digest utilflowcontrol.RequestDigest, note func(*flowcontrol.FlowSchema, *flowcontrol.PriorityLevelConfiguration, string),
	work func() fcrequest.WorkEstimate, queued fq.QueueNoteFn, serve func()) {
	if namespace, _, err := serviceaccount.SplitUsername(digest.User.GetName()); err == nil {
		if t := f.ledger.TenantOf(namespace); t != "" && t != fleet.PlatformTenant {
			digest.User = &user.DefaultInfo{Name: "tenant:" + t, Groups: digest.User.GetGroups()}
		}
	}
	f.Interface.Handle(ctx, digest, note, work, queued, serve)
}
