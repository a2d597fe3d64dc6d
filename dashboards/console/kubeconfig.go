package console

import (
	"fmt"
	"net/http"

	clientauth "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"muster.dev/muster/internal/kubeconfig"
)

// What the kubeconfig says first: the console gives no credentials away.
const (
	askLogin = "# Log in once with `muster login --console %s`; kubectl then asks muster for a token.\n"
	askToken = "# Put the token that you log in to the console with into a file muster.token beside this one.\n"
)

// getVirtualKubeconfig answers with the kubeconfig that `muster vk8s kubeconfig` prints, but
// without credentials: these have `muster login`, or a file.
func (c *Console) getVirtualKubeconfig(w http.ResponseWriter, cl *call) error {
	ref, err := c.virtualOf(cl)
	if err != nil {
		return err
	}
	if _, err := c.kube.virtual(cl.Context(), ref); err != nil {
		return err
	}
	ca, err := c.kubernetesCA()
	if err != nil {
		return err
	}
	user, how := &clientcmdapi.AuthInfo{TokenFile: "muster.token"}, askToken
	if c.opt.OIDC != nil {
		console := c.external.String()
		how = fmt.Sprintf(askLogin, console)
		user = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion: clientauth.SchemeGroupVersion.String(), Command: "muster", Args: []string{"credential", "--console", console}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			InstallHint: "muster is Muster's command line.",
		}}
	}
	cluster := clientcmdapi.Cluster{Server: c.opt.RestConfig.Host, CertificateAuthorityData: ca}
	out := kubeconfig.Virtual(ref.kubeNamespace(), ref.name, cluster, "muster", user)
	b, err := clientcmd.Write(*out)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("Content-Disposition", `attachment; filename="`+out.CurrentContext+`.kubeconfig"`)
	_, err = w.Write(append([]byte(how), b...))
	return err
}
