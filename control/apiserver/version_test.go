package apiserver_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"

	"muster.dev/muster/internal/testkit/kubeapi"
)

// What kubectl version and a chart's kubeVersion see is what go.mod links.
func TestVersionIsTheLinkedOne(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^\s+k8s\.io/kubernetes (v\S+)$`).FindSubmatch(mod)
	if m == nil {
		t.Fatal("go.mod requires no k8s.io/kubernetes")
	}
	linked := version.MustParseSemantic(string(m[1]))
	got, err := discovery.NewDiscoveryClientForConfigOrDie(kubeapi.Start(t)).ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	v, err := version.ParseSemantic(got.GitVersion)
	if err != nil {
		t.Fatalf("%q is no semantic version: %v", got.GitVersion, err)
	}
	if v.Major() != linked.Major() || v.Minor() != linked.Minor() || v.Patch() != linked.Patch() || v.PreRelease() != linked.PreRelease() {
		t.Errorf("it says %s, go.mod links %s: change kubernetesVersion", got.GitVersion, m[1])
	}
	if !strings.HasPrefix(v.BuildMetadata(), "muster.") {
		t.Errorf("%s does not name the build", got.GitVersion)
	}
	if got.Major != "1" || got.Minor == "" || strings.Contains(got.String()+got.GitCommit, "$Format") {
		t.Errorf("%+v", got)
	}
}
