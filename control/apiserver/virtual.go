package apiserver

import (
	"errors"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"

	"muster.dev/muster/control/vk8s"
)

// mount puts virtual Kubernetes clusters into the chain of handlers: what a request is
// about is said at its beginning, and it is served at its end.
func mount(config *app.Config, virtual *vk8s.Mount) {
	c := &config.Aggregator.GenericConfig.Config
	stock := c.RequestInfoResolver
	if stock == nil {
		stock = genericapiserver.NewRequestInfoResolver(c)
	}
	c.RequestInfoResolver = virtual.Resolver(stock)
	build := c.BuildHandlerChainFunc
	c.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return virtual.Keep(build(virtual.Handler(vk8s.Stock{
			Handler: api, Resolver: stock, Authorizer: c.Authorization.Authorizer, Rules: c.RuleResolver, Serializer: c.Serializer, Again: again(c),
		}), c))
	}
}

// again is the part of the chain that says whose a request is.
func again(c *genericapiserver.Config) func(*http.Request) (user.Info, error) {
	var chain http.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.(*whose).user, _ = request.UserFrom(req.Context())
	})
	impersonate := impersonation.WithImpersonation
	if c.FeatureGate.Enabled(features.ConstrainedImpersonation) {
		impersonate = impersonation.WithConstrainedImpersonation
	}
	chain = impersonate(chain, c.Authorization.Authorizer, c.Serializer)
	chain = filters.WithAuthentication(chain, c.Authentication.Authenticator, filters.Unauthorized(c.Serializer), c.Authentication.APIAudiences, c.Authentication.RequestHeaderConfig)
	return func(req *http.Request) (user.Info, error) {
		w := &whose{header: http.Header{}}
		chain.ServeHTTP(w, req)
		if w.user == nil {
			return nil, errors.New(http.StatusText(w.code))
		}
		return w.user, nil
	}
}

// whose is the end of that chain: nobody reads what it answers.
type whose struct {
	user   user.Info
	code   int
	header http.Header
}

// Header implements http.ResponseWriter.
func (w *whose) Header() http.Header { return w.header }

// Write implements http.ResponseWriter.
func (w *whose) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader implements http.ResponseWriter.
func (w *whose) WriteHeader(code int) { w.code = code }
