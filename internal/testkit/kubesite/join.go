package kubesite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"muster.dev/muster/internal/atomicfile"
)

// edgeName is the namespace, and in it the service account and the configuration, of muster-edge.
const edgeName = "muster-edge"

// joined is for how long muster-edge of a cluster may use its service account.
const joined = 30 * 24 * time.Hour

// Join makes a cluster a site as its admin would, with what `muster site manifest` printed for a
// token. As no image runs here, muster-edge has to be a process: Join writes into dir what it
// needs, such as a kubeconfig that may do what the manifest grants and no more, and returns the
// file of its configuration. If stateMetrics is the address of a kube-state-metrics of the cluster,
// it scrapes that, and the machine on which all nodes are.
func Join(ctx context.Context, admin *rest.Config, manifest, token, dir, stateMetrics string) (config string, err error) {
	if err := Apply(ctx, admin, manifest); err != nil {
		return "", err
	}
	kube, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return "", err
	}
	settings, err := kube.CoreV1().ConfigMaps(edgeName).Get(ctx, edgeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	account, err := configAs(ctx, admin, edgeName, edgeName, joined)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: account.Host, CertificateAuthorityData: account.CAData}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: account.BearerToken}
	k.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = "c"
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*k, kubeconfig); err != nil {
		return "", err
	}
	edge := settings.Data["edge.yaml"]
	lines := map[string]string{
		`stateDir: .*`:    "stateDir: " + dir,
		`tokenFile: .*`:   "token: " + token,
		`probeListen: .*`: "opsListen: 127.0.0.1:0",
		`kubernetes:`:     "kubernetes:\n  kubeconfig: " + kubeconfig,
	}
	if stateMetrics != "" {
		lines[`hostMetrics: .*`] = "hostMetrics: true\nscrapeConfigs:\n- job_name: kube-state-metrics\n  honor_labels: true\n  static_configs: [{targets: [" + stateMetrics + "]}]"
	}
	for was, is := range lines {
		r := regexp.MustCompile("(?m)^" + was + "$")
		if !r.MatchString(edge) {
			return "", fmt.Errorf("the manifest's configuration has no line %q:\n%s", was, edge)
		}
		edge = r.ReplaceAllString(edge, is)
	}
	config = filepath.Join(dir, "edge.yaml")
	return config, atomicfile.Write(config, []byte(edge), 0o600)
}

// configAs is a client configuration with a token of a service account.
func configAs(ctx context.Context, admin *rest.Config, namespace, account string, expires time.Duration) (*rest.Config, error) {
	kube, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, err
	}
	seconds := int64(expires.Seconds())
	token, err := kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	cfg := rest.AnonymousClientConfig(admin)
	cfg.BearerToken = token.Status.Token
	return cfg, nil
}

// Apply applies all objects of a manifest, as kubectl apply --server-side does.
func Apply(ctx context.Context, cfg *rest.Config, manifest string) error {
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kube.Discovery()))
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	for d := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096); ; {
		var o unstructured.Unstructured
		if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(o.Object) == 0 {
			continue
		}
		gvk := o.GroupVersionKind()
		m, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return err
		}
		var r dynamic.ResourceInterface = c.Resource(m.Resource)
		if m.Scope.Name() == meta.RESTScopeNameNamespace {
			r = c.Resource(m.Resource).Namespace(o.GetNamespace())
		}
		if _, err := r.Apply(ctx, o.GetName(), &o, metav1.ApplyOptions{FieldManager: "kubectl"}); err != nil {
			return fmt.Errorf("%s %s: %w", gvk.Kind, o.GetName(), err)
		}
	}
}
