package edge

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/sigstore/sigstore/pkg/signature"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"muster.dev/muster/internal/software/bundle"
	"muster.dev/muster/internal/software/bundle/publish"
	"muster.dev/muster/internal/testkit"
)

// TestSoftwareThroughAFleet is the whole way: a SoftwareVersion and a SoftwarePolicy at a
// real control, files over a real regional, and a real agent that replaces itself. MUSTER
// names a binary of muster that is built already.
func TestSoftwareThroughAFleet(t *testing.T) {
	if testing.Short() {
		t.Skip("links muster and muster-edge")
	}
	dir := t.TempDir()
	muster := os.Getenv("MUSTER")
	if muster == "" {
		muster = filepath.Join(dir, "muster")
		if out, err := exec.Command("go", "build", "-buildvcs=false", "-tags=slicelabels", "-ldflags=-s -w", "-o", muster, "muster.dev/muster/cmd/muster").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}

	// The repository, as muster software makes it.
	keys := filepath.Join(dir, "keys")
	if err := os.Mkdir(keys, 0o700); err != nil {
		t.Fatal(err)
	}
	key := func(name string) []signature.Signer {
		b, err := publish.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(keys, name+".pem"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := publish.ReadKey(b)
		if err != nil {
			t.Fatal(err)
		}
		return []signature.Signer{s}
	}
	repo := publish.Repository{Store: publish.Dir{Path: filepath.Join(dir, "repository")}, Keys: publish.Keys{Root: key("root"), Targets: key("targets"), Snapshot: key("snapshot"), Timestamp: key("timestamp")}}
	if _, err := repo.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	one := build(t, "1.0.0")
	bundles := map[string]map[string]any{}
	for version, binary := range map[string][]byte{"2.0.0": build(t, "2.0.0"), "3.0.0": []byte("#!/bin/sh\nexit 3\n")} {
		name := "agent/" + version + "/" + runtime.GOARCH
		f, err := repo.Add(t.Context(), name, bundle.About{Component: "agent", Version: version, Architecture: runtime.GOARCH}, bytes.NewReader(binary))
		if err != nil {
			t.Fatal(err)
		}
		bundles[version] = map[string]any{"architecture": runtime.GOARCH, "target": name, "digest": f.Digest, "size": f.Size}
	}

	// Control and a regional.
	at := func() string { return fmt.Sprintf("127.0.0.1:%d", freePort(t)) }
	gateway, data, config := at(), filepath.Join(dir, "data"), filepath.Join(dir, "muster.yaml")
	text := fmt.Sprintf("dataDir: %s\ncontrol: {listen: %q, fleetListen: %q, opsListen: %q, software: {dir: %s, onlineKeys: %s}}\nregionals: [{name: one, listen: %q, queryListen: %q, logs: {forwardListen: ''}}]\n",
		data, at(), at(), at(), filepath.Join(dir, "repository"), keys, gateway, at())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	role := func(args ...string) {
		log, err := os.Create(filepath.Join(dir, args[0]+".log"))
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(muster, append(args, "--config", config)...)
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
			if b, _ := os.ReadFile(log.Name()); t.Failed() {
				t.Logf("%s:\n%s", args[0], b[max(0, len(b)-3000):])
			}
		})
	}
	role("control")
	token := ""
	testkit.Eventually(t, "control answers", func() error {
		out, err := exec.CommandContext(t.Context(), muster, "token", "create", "--auto-approve", "--tenant", "main", "--data-dir", data).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		token = string(out)
		return nil
	})
	role("regional", "--name", "one")
	testkit.Eventually(t, "the gateway listens", func() error {
		c, err := net.Dial("tcp", gateway)
		if err == nil {
			_ = c.Close()
		}
		return err
	})

	// The site.
	flag := func(name string) string {
		m := regexp.MustCompile(name + ` (\S+)`).FindStringSubmatch(token)
		if m == nil {
			t.Fatalf("no %s in:\n%s", name, token)
		}
		return m[1]
	}
	w := &watched{t: t, dir: filepath.Join(dir, "site")}
	w.binary, w.config = filepath.Join(w.dir, "muster-edge"), filepath.Join(w.dir, "edge.yaml")
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	edge := fmt.Sprintf("stateDir: %s\nopsListen: %q\ngateways: [%q]\ncaHash: %q\ntoken: %q\nsite: paris-07\nsoftware: {hold: 1s, within: 40s}\n", w.dir, at(), gateway, flag("--ca-hash"), flag("--token"))
	for path, b := range map[string][]byte{w.binary: one, w.config: []byte(edge)} {
		if err := os.WriteFile(path, b, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		w.kill()
		if b, _ := os.ReadFile(filepath.Join(w.dir, "log")); t.Failed() {
			t.Logf("muster-edge:\n%s", b[max(0, len(b)-4000):])
		}
	})
	w.within = "60s"
	w.start()

	// What the fleet's operator does.
	rest, err := clientcmd.BuildConfigFromFlags("", filepath.Join(data, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(rest)
	if err != nil {
		t.Fatal(err)
	}
	kind := func(plural string) dynamic.ResourceInterface {
		return client.Resource(schema.GroupVersionResource{Group: "muster.dev", Version: "v1alpha1", Resource: plural}).Namespace("main-system")
	}
	create := func(kindName, plural, name string, spec map[string]any) {
		t.Helper()
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "muster.dev/v1alpha1", "kind": kindName, "metadata": map[string]any{"name": name}, "spec": spec}}
		if _, err := kind(plural).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	says := func(state, running, message string) {
		t.Helper()
		testkit.Eventually(t, state+", and "+running+" runs", func() error {
			o, err := kind("sites").Get(context.Background(), "paris-07", metav1.GetOptions{})
			if err != nil {
				return err
			}
			list, _, _ := unstructured.NestedSlice(o.Object, "status", "software")
			for _, x := range list {
				s := x.(map[string]any)
				said, _ := s["message"].(string)
				if s["component"] == "agent" && s["state"] == state && s["running"] == running && strings.Contains(said, message) {
					return nil
				}
			}
			return fmt.Errorf("status.software %v, versions %v, conditions %v", list, o.Object["status"].(map[string]any)["versions"], o.Object["status"].(map[string]any)["conditions"])
		})
	}
	for version, b := range bundles {
		create("SoftwareVersion", "softwareversions", "agent-"+version, map[string]any{"component": "agent", "version": version, "bundles": []any{b}})
	}
	policy := func(version string) {
		t.Helper()
		if _, err := kind("softwarepolicies").Patch(t.Context(), "agents", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"version":%q}}`, version), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("SoftwarePolicy", "softwarepolicies", "agents", map[string]any{"component": "agent", "version": "2.0.0"})
	says("Done", "2.0.0", "")
	policy("3.0.0")
	says("Failed", "2.0.0", "it did not come up, 2 times; 2.0.0 runs")
	policy("2.0.0")
	says("Done", "2.0.0", "")
}
