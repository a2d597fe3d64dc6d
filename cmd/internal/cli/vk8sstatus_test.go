package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	kubeconfig "k8s.io/client-go/tools/clientcmd/api"

	"muster.dev/muster/internal/wire"
)

func TestVirtualKubeconfig(t *testing.T) {
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, []byte("a CA"), 0o600); err != nil {
		t.Fatal(err)
	}
	now := kubeconfig.NewConfig()
	now.Clusters["muster"] = &kubeconfig.Cluster{Server: "https://muster.example.com:6443/", CertificateAuthority: ca}
	now.Clusters["other"] = &kubeconfig.Cluster{Server: "https://other.example.com"}
	now.AuthInfos["me"] = &kubeconfig.AuthInfo{Exec: &kubeconfig.ExecConfig{Command: "muster", Args: []string{"credential"}, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: kubeconfig.NeverExecInteractiveMode}}
	now.AuthInfos["other"] = &kubeconfig.AuthInfo{Token: "not for this"}
	now.Contexts["muster"] = &kubeconfig.Context{Cluster: "muster", AuthInfo: "me"}
	now.Contexts["other"] = &kubeconfig.Context{Cluster: "other", AuthInfo: "other"}
	now.CurrentContext = "muster"
	out, err := virtualKubeconfig(now, "demo-shop", "vk8s")
	if err != nil {
		t.Fatal(err)
	}
	b, err := clientcmd.Write(*out)
	if err != nil || bytes.Contains(b, []byte("not for this")) {
		t.Fatalf("%s, %v", b, err)
	}
	cfg, err := clientcmd.NewClientConfigFromBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	ns, _, err := cfg.Namespace()
	if err != nil || ns != "demo-shop" {
		t.Errorf("namespace %s, %v", ns, err)
	}
	c := out.Clusters["demo-shop-vk8s"]
	if c.Server != "https://muster.example.com:6443/api/vK8s/namespaces/demo-shop/vk8s" || string(c.CertificateAuthorityData) != "a CA" || out.AuthInfos["me"].Exec.Command != "muster" {
		t.Errorf("%+v of\n%s", c, b)
	}
	// From a kubeconfig of one virtual Kubernetes to that of another.
	if again, err := virtualKubeconfig(out, "demo-other", "v"); err != nil || again.Clusters["demo-other-v"].Server != "https://muster.example.com:6443/api/vK8s/namespaces/demo-other/v" {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestWorkloadTables(t *testing.T) {
	w := wire.Workload{Kind: "Deployment", Group: "apps", Name: "web", Counts: wire.WorkloadCounts{Sites: 3, Ready: 1, Failed: 2}, Pods: wire.WorkloadPods{Desired: 9, Ready: 3},
		Reasons: []wire.WorkloadReason{{Reason: "ImagePullBackOff", Sites: 2, Example: "paris"}}}
	if row := strings.Join(workloadTable([]wire.Workload{w}).rows[0], "|"); !strings.HasPrefix(row, "Deployment|web|3|1|0|0|2|0|3/9|ImagePullBackOff (2 sites such as paris)|") {
		t.Error(row)
	}
	for typed, want := range map[string]string{"deployment/web": "Deployment.apps/web", "deploy/web": "Deployment.apps/web", "configmaps/c": "ConfigMap/c", "VirtualMachine.kubevirt.io/vm": "VirtualMachine.kubevirt.io/vm", "virtualmachine/vm": "VirtualMachine.kubevirt.io/vm", "virtualmachines.kubevirt.io/vm": "VirtualMachine.kubevirt.io/vm", "virtualmachine.example.com/vm": "", "virtualmachine/other": "", "web": "", "deployment/": ""} {
		got, err := workloadPath(typed, func() ([]wire.Workload, error) {
			return []wire.Workload{w, {Kind: "VirtualMachine", Group: "kubevirt.io", Name: "vm"}}, nil
		})
		if want == "" != (err != nil) || want != "" && got != want {
			t.Errorf("%s: %s, %v; want %s", typed, got, err, want)
		}
	}
}

// TestStatusTellsWhoIsInSync for kinds without conditions as for others: who has not got an
// object, who has another version, and where somebody changed it are told apart, whatever its
// state.
func TestStatusTellsWhoIsInSync(t *testing.T) {
	for kind, group := range map[string]string{"ConfigMap": "", "Secret": "", "Service": "", "NetworkPolicy": "networking.k8s.io", "Ingress": "networking.k8s.io", "PersistentVolumeClaim": "", "Deployment": "apps"} {
		w := wire.Workload{Kind: kind, Group: group, Name: "x", Sites: []wire.WorkloadSite{
			{Site: "bern", Wanted: "new", Digest: "new", State: "Ready", Online: true},
			{Site: "oslo", Wanted: "new", Digest: "new", State: "Ready", Online: true, Drifted: true},
			{Site: "paris", Wanted: "new", Digest: "old", State: "Ready"},
			{Site: "rome", Wanted: "new", State: "Failed", Online: true}}}
		var got []string
		table := siteTable(w.Sites)
		at := slices.Index(table.header, "IN SYNC")
		if at < 0 || at >= table.wide {
			t.Fatalf("IN SYNC is not shown: %v", table.header)
		}
		for _, row := range table.rows {
			got = append(got, row[0]+" "+row[at])
		}
		if want := []string{"bern yes", "oslo no: changed there", "paris no: another version", "rome no: not there"}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
		for n, want := range []string{"no site is a member of its virtual sites\n", "in sync on 1 of 1 sites\n", "in sync on 1 of 2 sites; not on oslo\n", "in sync on 1 of 3 sites; not on oslo,paris\n"} {
			var out bytes.Buffer
			saySync(&out, wire.Workload{Kind: kind, Group: group, Sites: w.Sites[:n]})
			if out.String() != want {
				t.Errorf("%s: %q, want %q", kind, out.String(), want)
			}
		}
	}
}

// TestDiffTable: sites that differ alike are one line with the fields, others are not taken
// for them, and who is not connected is named whatever comes of the rest.
func TestDiffTable(t *testing.T) {
	var found []difference
	of := func(name, site string, online, drifted bool, has string, fields ...string) {
		found = append(found, difference{"Deployment", "apps", name, wire.WorkloadSite{Site: site, Online: online, Drifted: drifted, Wanted: "new", Digest: has, State: "Ready", Fields: fields}})
	}
	for _, site := range []string{"a", "b", "c", "d", "e"} {
		of("web", site, true, true, "new", "spec.replicas", "metadata.labels.app")
	}
	of("web", "f", true, true, "new", "spec.replicas")
	of("web", "g", false, false, "old", "spec.replicas")
	of("web", "h", true, false, "")
	of("web", "i", true, true, "new")
	of("db", "a", true, true, "new", "spec.replicas")
	of("db", "b", true, true, "new")
	found[len(found)-1].NoFields = wire.FieldsForbidden
	of("db", "c", true, false, "old")
	found[len(found)-1].NoFields = wire.FieldsNotKept
	var got []string
	for _, row := range diffTable(found).rows {
		got = append(got, strings.Join(row, "|"))
	}
	want := []string{
		"Deployment|web|a,b,c and 2 more|yes|new|new|yes|Ready|-|spec.replicas, metadata.labels.app",
		"Deployment|web|f|yes|new|new|yes|Ready|-|spec.replicas",
		"Deployment|web|g|no|new|old|no|Ready|-|spec.replicas",
		"Deployment|web|h|yes|new|-|no|Ready|-|all of it",
		"Deployment|web|i|yes|new|new|yes|Ready|-|not known",
		"Deployment|db|a|yes|new|new|yes|Ready|-|spec.replicas",
		"Deployment|db|b|yes|new|new|yes|Ready|-|left out: you may not get it",
		"Deployment|db|c|yes|new|old|no|Ready|-|older version, no longer kept to compare",
	}
	if !slices.Equal(got, want) {
		t.Errorf("\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var out bytes.Buffer
	sayAway(&out, []string{"g", "z"})
	if out.String() != "not connected, and told of by what they said last: g, z\n" {
		t.Error(out.String())
	}
}

// TestDiffExits as kubectl diff does: what can't be told is not taken for a difference.
func TestDiffExits(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for _, args := range [][]string{{"diff"}, {"diff", "a", "b", "c"}, {"diff", "--nope"}, {"diff", "shop/vk8s", "--kubeconfig", filepath.Join(t.TempDir(), "none")}} {
		cmd := vk8sCmd(&Globals{DataDir: t.TempDir()})
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs(args)
		if err := cmd.ExecuteContext(t.Context()); CodeOf(err) != 2 || err.Error() == "" {
			t.Errorf("%v: %d, %v", args, CodeOf(err), err)
		}
	}
}
