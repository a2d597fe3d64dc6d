// Package kubeapi starts the real API server with Muster's CRDs for a test binary.
// Whoever imports it links kube-apiserver and etcd, which takes half a minute, so
// only few packages should: those whose subject is the API itself.
package kubeapi

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"muster.dev/muster/control/apiserver"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/control/vk8s"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/oidc"
)

var (
	once   sync.Once
	shared *rest.Config
	home   string
	failed error
	issuer *oidc.Issuer
	server *apiserver.Server
	mount  = vk8s.New()
	held   io.Closer //nolint:unused // an open end of a pipe: it ends with the process
)

// Start returns a client configuration of the administrator of an API server that
// all tests of the binary share: use names of your own. It ends with the process.
func Start(t testing.TB) *rest.Config {
	t.Helper()
	once.Do(func() {
		dir, err := os.MkdirTemp("", "muster-kubeapi-")
		if err != nil {
			failed = err
			return
		}
		if issuer, failed = oidc.New(); failed != nil {
			return
		}
		ca := filepath.Join(dir, "issuer.pem")
		if failed = issuer.WriteCA(ca); failed != nil {
			return
		}
		s, err := Run(context.Background(), dir, slog.New(slog.DiscardHandler), func(o *apiserver.Options) {
			o.OIDC = apiserver.OIDC{IssuerURL: issuer.URL, ClientID: oidc.ClientID, UsernameClaim: "sub", GroupsClaim: "groups", UsernamePrefix: Prefix, GroupsPrefix: Prefix, CAFile: ca}
			o.Virtual = mount
		})
		if err != nil {
			failed = err
			return
		}
		server = s
		shared = s.Config()
		home, failed = dir, removeAfterwards(dir)
	})
	if failed != nil {
		t.Fatalf("start the API server: %v", failed)
	}
	return rest.CopyConfig(shared)
}

// Prefix stands before the users and groups of the identity provider.
const Prefix = "oidc:"

// As returns a client configuration of a user of the identity provider, with these
// groups; the API server sees both with Prefix in front.
func As(t testing.TB, user string, groups ...string) *rest.Config {
	t.Helper()
	cfg := rest.AnonymousClientConfig(Start(t))
	var err error
	if cfg.BearerToken, err = issuer.Token(user, groups...); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// WaitAllowed waits until the API server of admin lets user, with these groups, do verb to
// resource (as "sites.muster.dev") in namespace. Its authorizer reads roles and
// bindings from a watch: what was just granted is refused for a moment.
func WaitAllowed(t testing.TB, admin *rest.Config, user string, groups []string, verb, resource, namespace string) {
	t.Helper()
	reviews := kubernetes.NewForConfigOrDie(admin).AuthorizationV1().SubjectAccessReviews()
	gr := schema.ParseGroupResource(resource)
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: gr.Group, Resource: gr.Resource, Namespace: namespace}}}
	testkit.Eventually(t, fmt.Sprintf("%s may %s %s in %q", user, verb, resource, namespace), func() error {
		got, err := reviews.Create(t.Context(), review, metav1.CreateOptions{})
		if err == nil && !got.Status.Allowed {
			err = fmt.Errorf("refused: %+v", got.Status)
		}
		return err
	})
}

// Server is the API server that Start starts.
func Server(t testing.TB) *apiserver.Server {
	t.Helper()
	Start(t)
	return server
}

// Mount is where the API server that Start starts serves virtual Kubernetes clusters,
// once it is told which.
func Mount(t testing.TB) *vk8s.Mount {
	t.Helper()
	Start(t)
	return mount
}

// Dir is the data directory of the API server that Start starts.
func Dir(t testing.TB) string {
	t.Helper()
	Start(t)
	return home
}

// removeAfterwards removes dir when this process has ended, however it ends: a
// shell waits for the end of a pipe that only this process holds.
func removeAfterwards(dir string) error {
	sh := exec.Command("/bin/sh", "-c", `read -r _; rm -rf -- "$0"`, dir)
	sh.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // not ended by Ctrl-C
	pipe, err := sh.StdinPipe()
	if err != nil {
		return err
	}
	if err := sh.Start(); err != nil {
		return fmt.Errorf("clean up %s: %w", dir, err)
	}
	held = pipe
	return nil
}

// Run starts an API server of one's own on dir, with further changes of its
// options. The process can hold one at a time.
func Run(ctx context.Context, dir string, log *slog.Logger, with ...func(*apiserver.Options)) (*apiserver.Server, error) {
	ca, err := pki.Open(pki.Options{Dir: filepath.Join(dir, "pki"), TrustDomain: "test.local"})
	if err != nil {
		return nil, err
	}
	certs := filepath.Join(dir, "serving")
	if _, err := ca.EnsureControl(certs, []string{"127.0.0.1", "localhost"}); err != nil {
		return nil, err
	}
	began := time.Now()
	pair := filepath.Join(certs, pki.PairFile)
	o := apiserver.Options{
		Dir: filepath.Join(dir, "apiserver"), Listen: "127.0.0.1:0", CertFile: pair, KeyFile: pair, CAPEM: ca.BundlePEM(),
		KubeconfigDir: dir, Users: map[string][]string{"muster:health": {apiserver.SystemGroup}, "muster:control": {"system:masters"}, "muster:nobody": nil}, Logger: log,
	}
	for _, change := range with {
		change(&o)
	}
	s, err := apiserver.Start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("after %s: %w", time.Since(began), err)
	}
	log.Info("API server is ready", "after", time.Since(began))
	return s, nil
}
