package apiserver

import (
	"net/http"

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
		return build(virtual.Handler(vk8s.Stock{Handler: api, Resolver: stock, Authorizer: c.Authorization.Authorizer, Rules: c.RuleResolver, Serializer: c.Serializer}), c)
	}
}
