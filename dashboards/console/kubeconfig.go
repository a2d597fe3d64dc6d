package console

import (
	"fmt"
	"net/http"

	"k8s.io/client-go/tools/clientcmd"
	kubeconfig "k8s.io/client-go/tools/clientcmd/api"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/wire"
)

// What the kubeconfig says first: the console gives no credentials away.
const (
	askLogin = "# Log in once with `muster login --console %s`; kubectl then asks muster for a token.\n"
	askToken = "# Put the token that you log in to the console with into a file muster.token beside this one.\n"
)

// getVirtualKubeconfig answers with a kubeconfig as `muster vk8s kubeconfig` prints it, but
// without credentials: these have `muster login`, or a file.
func (c *Console) getVirtualKubeconfig(w http.ResponseWriter, cl *call) error {
	ref, err := c.virtualOf(cl)
	if err != nil {
		return err
	}
	v := &v1alpha1.VirtualKubernetes{}
	if err := c.kube.user.Get().Namespace(ref.kubeNamespace()).Resource("virtualkubernetes").Name(ref.name).Do(cl.Context()).Into(v); err != nil {
		return err
	}
	ca, err := c.kubernetesCA()
	if err != nil {
		return err
	}
	user, how := &kubeconfig.AuthInfo{TokenFile: "muster.token"}, askToken
	if c.opt.OIDC != nil {
		console := c.external.String()
		how = fmt.Sprintf(askLogin, console)
		user = &kubeconfig.AuthInfo{Exec: &kubeconfig.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: "muster", Args: []string{"credential", "--console", console}, InteractiveMode: kubeconfig.NeverExecInteractiveMode,
			InstallHint: "muster is Muster's command line.",
		}}
	}
	as := ref.kubeNamespace() + "-" + ref.name
	out := kubeconfig.NewConfig()
	out.Clusters[as] = &kubeconfig.Cluster{Server: c.opt.RestConfig.Host + wire.VirtualPath(ref.kubeNamespace(), ref.name), CertificateAuthorityData: ca}
	out.AuthInfos["muster"] = user
	out.Contexts[as] = &kubeconfig.Context{Cluster: as, AuthInfo: "muster", Namespace: ref.kubeNamespace()}
	out.CurrentContext = as
	b, err := clientcmd.Write(*out)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("Content-Disposition", `attachment; filename="`+as+`.kubeconfig"`)
	_, err = w.Write(append([]byte(how), b...))
	return err
}
