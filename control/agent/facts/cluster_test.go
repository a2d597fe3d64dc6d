package facts_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster.dev/muster/control/agent/facts"
)

func TestOfCluster(t *testing.T) {
	big := facts.Node{Arch: "amd64", OSImage: "Debian GNU/Linux 13 (trixie)", Kernel: "6.12.48-amd64", ProviderID: "aws:///eu-west-3a/i-1", CPUs: 4, MemoryMiB: 16000}
	arm := facts.Node{Arch: "arm64", OSImage: "Talos (v1.9.1)", Kernel: "6.12.6-talos", CPUs: 2, MemoryMiB: 4000}
	got := facts.OfCluster([]facts.Node{arm, big, big}, "v1.35.4+k3s1").Labels()
	want := map[string]string{
		"arch": "amd64", "os": "debian", "os-version": "13", "kernel": "6.12.48-amd64", "cloud": "aws", "cpus": "10", "memory": "36Gi",
		"kubernetes": "v1.35.4-k3s1", "distribution": "k3s", "nodes": "3",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := facts.OfCluster([]facts.Node{arm}, "v1.34.1"); got.OS != "talos" || got.OSVersion != "1.9.1" || got.Distribution != "" {
		t.Errorf("one Talos node: %+v", got)
	}
	if got := facts.OfCluster(nil, "").Labels(); len(got) != 0 {
		t.Errorf("of nothing, %v is known", got)
	}
}

func FuzzOfCluster(f *testing.F) {
	f.Add("Ubuntu 24.04.1 LTS", "gce://p/z/i", "v1.33.1-gke.1")
	f.Fuzz(func(_ *testing.T, image, provider, version string) {
		facts.OfCluster([]facts.Node{{OSImage: image, ProviderID: provider}}, version).Labels()
	})
}
