package edge

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/agent/software/images"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubesite"
)

// clusterSite is a cluster that the chart made a site. The processes of its pods are real
// ones, with their accounts' rights and a disk that goes with the pod; they live as long as
// their containers do.
type clusterSite struct {
	*kubesite.Cluster
	t    *testing.T
	dir  string
	held map[string]string // binaries by the image's digest, or the name it was installed under

	mu     sync.Mutex
	within time.Duration // of the next guard
}

const clusterImage = "registry.example.com/muster-edge:v1.0.0"

// reference is what is released of a version for clusters.
func reference(t *testing.T, version string) (digest string, file []byte) {
	t.Helper()
	sum := sha256.Sum256([]byte(version))
	digest = "sha256:" + hex.EncodeToString(sum[:])
	file, err := json.Marshal(images.Reference{Digest: digest, Tag: "v" + version})
	if err != nil {
		t.Fatal(err)
	}
	return digest, file
}

// startClusterSite applies what muster printed as the manifest, and starts what it asks for.
func startClusterSite(t *testing.T, manifest []byte, held map[string]string) *clusterSite {
	t.Helper()
	c := &clusterSite{Cluster: kubesite.Start(t, kubesite.Options{}), t: t, dir: t.TempDir(), held: held, within: 10 * time.Minute}
	client, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(c.Client.Discovery())
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	for _, doc := range bytes.Split(manifest, []byte("---\n"))[1:] {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(doc, &o.Object); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		m, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Resource(m.Resource).Namespace(o.GetNamespace()).Create(t.Context(), o, metav1.CreateOptions{FieldValidation: "Strict"}); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, app := range []string{images.AgentName, images.GuardName} {
		kubeconfig := c.kubeconfig(app)
		wg.Go(func() { c.follow(ctx, app, kubeconfig) })
	}
	t.Cleanup(func() {
		stop()
		wg.Wait()
		logs, _ := filepath.Glob(filepath.Join(c.dir, "*.log"))
		for _, path := range logs {
			if b, _ := os.ReadFile(path); t.Failed() {
				t.Logf("%s:\n%s", filepath.Base(path), b[max(0, len(b)-2000):])
			}
		}
	})
	return c
}

// kubeconfig reaches the cluster with an account's rights.
func (c *clusterSite) kubeconfig(account string) string {
	c.t.Helper()
	as, path := c.ConfigAs("muster-edge", account), filepath.Join(c.dir, account+".kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: as.Host, CertificateAuthorityData: as.CAData, CertificateAuthority: as.CAFile, TLSServerName: as.ServerName}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {Token: as.BearerToken}}, Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	}, path); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// follow has a process for each container of an app that runs.
func (c *clusterSite) follow(ctx context.Context, app, kubeconfig string) {
	running := map[string]*exec.Cmd{}
	end := func(id string) {
		_ = running[id].Process.Signal(syscall.SIGTERM)
		_ = running[id].Wait()
		delete(running, id)
	}
	for ctx.Err() == nil {
		pods, err := c.Client.CoreV1().Pods("muster-edge").List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + app})
		seen := map[string]*corev1.Pod{}
		for i := 0; err == nil && i < len(pods.Items); i++ {
			if cs := pods.Items[i].Status.ContainerStatuses; pods.Items[i].DeletionTimestamp == nil && len(cs) == 1 && cs[0].State.Running != nil {
				seen[cs[0].ContainerID] = &pods.Items[i]
			}
		}
		for id := range running { // before others start: a site has one agent
			if err == nil && seen[id] == nil {
				end(id)
			}
		}
		for id, pod := range seen {
			if running[id] != nil {
				continue
			}
			if cmd, err := c.command(app, kubeconfig, pod); err != nil {
				c.t.Errorf("%s: %v", pod.Name, err)
				return
			} else if err := cmd.Start(); err != nil {
				c.t.Errorf("%s: %v", pod.Name, err)
				return
			} else {
				running[id] = cmd
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	for id := range running {
		end(id)
	}
}

// command is what the container of a pod runs.
func (c *clusterSite) command(app, kubeconfig string, pod *corev1.Pod) (*exec.Cmd, error) {
	container := pod.Spec.Containers[0]
	_, _, digest := images.Split(container.Image)
	binary := c.held[container.Image]
	if digest != "" {
		binary = c.held[digest]
	}
	log, err := os.OpenFile(filepath.Join(c.dir, pod.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	args := append([]string{}, container.Args...)
	if app == images.GuardName {
		c.mu.Lock()
		args = append(args, "--within", c.within.String(), "--kubeconfig", kubeconfig)
		c.mu.Unlock()
	} else if args[len(args)-1], err = c.config(kubeconfig, string(pod.UID)); err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), images.EnvMark+"="+pod.Annotations[images.Annotation], images.EnvPod+"="+string(pod.UID))
	cmd.Stdout, cmd.Stderr = log, log
	return cmd, nil
}

// config is that of the ConfigMap, on this machine.
func (c *clusterSite) config(kubeconfig, pod string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cm, err := c.Client.CoreV1().ConfigMaps("muster-edge").Get(ctx, "muster-edge", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	join, err := c.Client.CoreV1().Secrets("muster-edge").Get(ctx, "muster-edge-join", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	state := filepath.Join(c.dir, pod)
	if err := os.MkdirAll(state, 0o700); err != nil {
		return "", err
	}
	token := filepath.Join(state, "token")
	if err := os.WriteFile(token, join.Data["token"], 0o600); err != nil {
		return "", err
	}
	var conf map[string]any
	if err := yaml.Unmarshal([]byte(cm.Data["edge.yaml"]), &conf); err != nil {
		return "", err
	}
	conf["stateDir"], conf["tokenFile"], conf["probeListen"], conf["opsListen"] = state, token, "", "127.0.0.1:0"
	conf["kubernetes"].(map[string]any)["kubeconfig"] = kubeconfig
	conf["software"].(map[string]any)["hold"], conf["software"].(map[string]any)["within"] = "1s", "8m"
	b, err := yaml.Marshal(conf)
	if err != nil {
		return "", err
	}
	path := filepath.Join(state, "edge.yaml")
	return path, os.WriteFile(path, b, 0o600)
}

// bad has an image crash as it starts, and guards lose their patience soon.
func (c *clusterSite) bad(version string) {
	digest, _ := reference(c.t, version)
	c.CrashImage(digest)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.within = 5 * time.Second
}

// runs waits until an image is that of agent and guard, and the guard sleeps.
func (c *clusterSite) runs(image string) {
	c.t.Helper()
	testkit.EventuallyWithin(c.t, "the cluster runs "+image, 5*time.Minute, func() error {
		for _, name := range []string{images.AgentName, images.GuardName} {
			d, err := c.Client.AppsV1().Deployments("muster-edge").Get(c.t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got := d.Spec.Template.Spec.Containers[0].Image; !strings.Contains(got, image) || name == images.GuardName && *d.Spec.Replicas != 0 {
				return fmt.Errorf("%s: %s, %d replicas", name, got, *d.Spec.Replicas)
			}
		}
		// Else the next trial may find it on its way to bed, with the patience of the last one.
		pods, err := c.Client.CoreV1().Pods("muster-edge").List(c.t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + images.GuardName})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("the guard's pod is still there")
		}
		return err
	})
}
