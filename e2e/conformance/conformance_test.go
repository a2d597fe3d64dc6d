package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"

	_ "k8s.io/kubernetes/test/e2e/apimachinery"
	_ "k8s.io/kubernetes/test/e2e/apps"
	_ "k8s.io/kubernetes/test/e2e/auth"
	_ "k8s.io/kubernetes/test/e2e/common/node"
	_ "k8s.io/kubernetes/test/e2e/common/storage"
	_ "k8s.io/kubernetes/test/e2e/instrumentation"
	_ "k8s.io/kubernetes/test/e2e/network"
)

// TestMain has each case use the kubeconfig's namespace, which stays, instead of one of its own.
func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	if framework.TestContext.KubeConfig == "" {
		fmt.Println("skipped: make test-conformance says which virtual Kubernetes it is run against")
		os.Exit(0)
	}
	namespace, err := namespaceOf(framework.TestContext.KubeConfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	framework.TestContext.DeleteNamespace = false
	framework.TestContext.CreateTestingNS = func(ctx context.Context, _ string, c clientset.Interface, _ map[string]string) (*corev1.Namespace, error) {
		return c.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	}
	framework.AfterReadingAllFlags(&framework.TestContext)
	os.Exit(m.Run())
}

// namespaceOf is the namespace of the context in use.
func namespaceOf(file string) (string, error) {
	cfg, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}
	c := cfg.Contexts[cfg.CurrentContext]
	if c == nil || c.Namespace == "" {
		return "", errors.New("kubeconfig: its context names no namespace; want one of `muster vk8s kubeconfig`")
	}
	return c.Namespace, nil
}

func TestConformance(t *testing.T) {
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	ginkgo.RunSpecs(t, "Kubernetes conformance", suite, reporter)
}
