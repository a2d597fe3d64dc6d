package edge

import (
	"bytes"
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
	"time"

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
	"muster.dev/muster/internal/testkit/fakehost"
)

// TestSoftwareThroughAFleet is the whole way: rollouts of versions at a real control, files
// over a real regional, and real agents that replace themselves in waves, one of them as the
// pod of a real cluster; a version that does not come up is left by the first of them, and
// offered to no other. The configuration of their hosts goes the same way. MUSTER names a binary of muster that is built already.
func TestSoftwareThroughAFleet(t *testing.T) {
	if testing.Short() {
		t.Skip("links muster and muster-edge")
	}
	t.Parallel() // it waits most of the time
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
	one, two, broken := build(t, "1.0.0"), build(t, "2.0.0"), []byte("#!/bin/sh\nexit 3\n")
	held := map[string]string{clusterImage: filepath.Join(dir, "one")}
	bundles := map[string][]any{}
	release := func(version, architecture string, file []byte) {
		name := "agent/" + version + "/" + architecture
		f, err := repo.Add(t.Context(), name, bundle.About{Component: "agent", Version: version, Architecture: architecture}, bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		bundles[version] = append(bundles[version], map[string]any{"architecture": architecture, "target": name, "digest": f.Digest, "size": f.Size})
	}
	for version, binary := range map[string][]byte{"2.0.0": two, "3.0.0": broken, "4.0.0": broken} {
		digest, file := reference(t, version)
		held[digest] = filepath.Join(dir, "two")
		release(version, runtime.GOARCH, binary)
		release(version, "kubernetes", file)
	}
	for path, binary := range map[string][]byte{"one": one, "two": two} {
		if err := os.WriteFile(filepath.Join(dir, path), binary, 0o700); err != nil {
			t.Fatal(err)
		}
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
	testkit.EventuallyWithin(t, "control answers", 5*time.Minute, func() error {
		out, err := exec.CommandContext(t.Context(), muster, "token", "create", "--auto-approve", "--max-uses", "0", "--tenant", "main", "--data-dir", data).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		token = string(out)
		return nil
	})
	role("regional", "--name", "one")
	testkit.EventuallyWithin(t, "the gateway listens", 5*time.Minute, func() error {
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
	hosts := map[string]*fakehost.Host{}
	join := func(site string) {
		w := &watched{t: t, dir: filepath.Join(dir, site), within: "150s"}
		w.binary, w.config = filepath.Join(w.dir, "muster-edge"), filepath.Join(w.dir, "edge.yaml")
		if err := os.Mkdir(w.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		edge := fmt.Sprintf("stateDir: %s\nopsListen: %q\ngateways: [%q]\ncaHash: %q\ntoken: %q\nsite: %s\nsoftware: {hold: 1s, within: 2m}\nhostConfiguration: {enabled: true, root: %s, every: 1s}\n",
			w.dir, at(), gateway, flag("--ca-hash"), flag("--token"), site, hosts[site].Root)
		for path, b := range map[string][]byte{w.binary: one, w.config: []byte(edge)} {
			if err := os.WriteFile(path, b, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() {
			w.kill()
			if b, _ := os.ReadFile(filepath.Join(w.dir, "log")); t.Failed() {
				t.Logf("muster-edge of %s:\n%s", site, b[max(0, len(b)-3000):])
			}
		})
		w.start()
	}
	sites := []string{"lyon-01", "paris-07", "turin-03"}
	for _, site := range sites[:2] {
		hosts[site] = fakehost.New(t)
		join(site)
	}
	manifest, err := exec.CommandContext(t.Context(), muster, "site", "manifest", "--token", flag("--token"), "--server", gateway, "--ca-hash", flag("--ca-hash"),
		"--site", sites[2], "--features", "upgrades", "--image", clusterImage).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, manifest)
	}
	cluster := startClusterSite(t, manifest, held)

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
	operator := &fleetClient{t, kind}
	// agents are what sites say of theirs.
	type agent struct{ state, running, wanted string }
	agents := func() (map[string]agent, error) {
		list, err := kind("sites").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		out := map[string]agent{}
		for _, o := range list.Items {
			said, _, _ := unstructured.NestedSlice(o.Object, "status", "software")
			for _, x := range said {
				text := func(field string) string {
					v, _ := x.(map[string]any)[field].(string)
					return v
				}
				if text("component") == "agent" {
					out[o.GetName()] = agent{text("state"), text("running"), text("wanted")}
				}
			}
		}
		return out, nil
	}
	all := func(what string, is agent) {
		t.Helper()
		testkit.EventuallyWithin(t, what, 5*time.Minute, func() error {
			got, err := agents()
			if err != nil {
				return err
			}
			for _, site := range sites {
				if got[site].state != is.state || got[site].running != is.running {
					return fmt.Errorf("%+v", got)
				}
			}
			return nil
		})
	}
	for version, b := range bundles {
		operator.create("SoftwareVersion", "softwareversions", "agent-"+version, map[string]any{"component": "agent", "version": version, "bundles": b})
	}
	operator.create("SoftwarePolicy", "softwarepolicies", "agents", map[string]any{"component": "agent"})
	// rollout takes a version over all sites, one alone in the first wave, and waits for the
	// end. It returns who was ever offered it, and what was said at last.
	rollout := func(version, end string, first map[string]any) (offered map[string]bool, message string) {
		t.Helper()
		name := "agents-" + version
		operator.rollout(name, "SoftwarePolicy", "agents", map[string]any{"component": "agent", "version": version}, first)
		offered = map[string]bool{}
		message = operator.ends(name, end, func() func(int64) {
			got, err := agents()
			if err != nil {
				return func(int64) {}
			}
			for site, a := range got {
				if a.wanted == version {
					offered[site] = true
				}
			}
			// Read before the rollout: what that says now held then, too.
			return func(wave int64) {
				if wave == 1 && len(offered) > 1 {
					t.Fatalf("in its first wave, of one site, %s is offered to %v", version, offered)
				}
			}
		})
		return offered, message
	}

	all("all agents run what they were installed with", agent{"Done", "1.0.0", ""})
	if _, err := kind("sites").Patch(t.Context(), sites[2], types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"cluster"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	operator.rollOutHosts(sites[:2], hosts)
	anyone := map[string]any{"count": int64(1)}
	if offered, said := rollout("2.0.0", "Completed", anyone); len(offered) != len(sites) {
		t.Errorf("2.0.0 went to %v: %s", offered, said)
	}
	all("all run 2.0.0", agent{"Done", "2.0.0", ""})
	good, _ := reference(t, "2.0.0")
	cluster.runs(good)
	cluster.bad("3.0.0")
	if offered, said := rollout("3.0.0", "RolledBack", anyone); len(offered) != 1 || !strings.Contains(said, "it did not come up, 2 times") {
		t.Errorf("3.0.0 went to %v: %s", offered, said)
	}
	cluster.bad("4.0.0")
	if offered, said := rollout("4.0.0", "RolledBack", map[string]any{"label": "a=cluster"}); len(offered) != 1 || !offered[sites[2]] || !strings.Contains(said, "it did not come up, 2 times: no pod of muster-edge-host was ready with it") {
		t.Errorf("4.0.0 went to %v: %s", offered, said)
	}
	cluster.runs(good)
	all("all run 2.0.0 still, and nothing else is wanted of them", agent{"Done", "2.0.0", ""})
	if o, err := kind("softwarepolicies").Get(t.Context(), "agents", metav1.GetOptions{}); err != nil {
		t.Error(err)
	} else if version, _, _ := unstructured.NestedString(o.Object, "spec", "version"); version != "2.0.0" {
		t.Errorf("the policy names %q in the end", version)
	}
}
