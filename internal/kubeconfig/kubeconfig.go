// Package kubeconfig makes the file by which kubectl and Helm reach a virtual Kubernetes: the CLI's and the
// console's are the same but for whose credentials are in it.
package kubeconfig

import (
	"strings"

	"k8s.io/client-go/tools/clientcmd/api"

	"muster.dev/muster/internal/wire"
)

// Virtual is a kubeconfig of a virtual Kubernetes. cluster is the API server that serves it, or another
// virtual Kubernetes of that; name is what the user is called.
func Virtual(namespace, virtual string, cluster api.Cluster, name string, user *api.AuthInfo) *api.Config {
	server, _, _ := strings.Cut(cluster.Server, wire.VirtualRoot)
	cluster.Server = strings.TrimSuffix(server, "/") + wire.VirtualPath(namespace, virtual)
	as := namespace + "-" + virtual
	out := api.NewConfig()
	out.Clusters[as], out.AuthInfos[name] = &cluster, user
	out.Contexts[as] = &api.Context{Cluster: as, AuthInfo: name, Namespace: namespace}
	out.CurrentContext = as
	return out
}
