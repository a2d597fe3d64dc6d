package edge

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/software"
	"muster.dev/muster/internal/software/bundle"
	"muster.dev/muster/internal/software/bundle/publish"
	"muster.dev/muster/internal/software/delivery"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/fakeregional"
	"muster.dev/muster/internal/wire"
)

// releases is a signed repository of agents, and the regional that serves it.
type releases struct {
	t     *testing.T
	repo  publish.Repository
	root  []byte
	files map[string]software.File
	*fakeregional.Regional
	id   fleet.SiteID
	item string // digest of what is wanted
}

func newReleases(t *testing.T) *releases {
	t.Helper()
	key := func() []signature.Signer {
		b, err := publish.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		s, err := publish.ReadKey(b)
		if err != nil {
			t.Fatal(err)
		}
		return []signature.Signer{s}
	}
	r := &releases{t: t, files: map[string]software.File{}, id: fleet.SiteID{Tenant: "acme", Name: "paris-07"}}
	dir := t.TempDir()
	r.repo = publish.Repository{Store: publish.Dir{Path: dir}, Keys: publish.Keys{Root: key(), Targets: key(), Snapshot: key(), Timestamp: key()}}
	var err error
	if r.root, err = r.repo.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/push", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.Handle("/software/", http.StripPrefix("/software", delivery.Serve(dir)))
	r.Regional = fakeregional.Start(t, fakeregional.Options{HTTP: mux})
	return r
}

func (r *releases) add(version string, binary []byte) {
	r.t.Helper()
	name := "agent/" + version + "/" + runtime.GOARCH
	target, err := r.repo.Add(r.t.Context(), name, bundle.About{Component: "agent", Version: version, Architecture: runtime.GOARCH}, bytes.NewReader(binary))
	if err != nil {
		r.t.Fatal(err)
	}
	r.files[version] = software.File{Architecture: runtime.GOARCH, Target: name, Digest: target.Digest, Size: target.Size}
}

// want is what control would say.
func (r *releases) want(w software.Wanted) {
	r.t.Helper()
	w.Component, w.Root = "agent", r.root
	if f, ok := r.files[w.Version]; ok {
		w.Files = []software.File{f}
	}
	policy := fleet.CollectionPolicy{AllowPatterns: []string{"node_.*"}, SeriesBudget: 1000, Interval: time.Second, SpoolMaxBytes: 64 << 20, SpoolMaxAge: time.Hour}
	r.item = wire.DigestOf(w.Encode())
	r.SetDesired(r.id, fakeregional.Blob{Kind: fleet.KindCollectionPolicy, Name: "effective", Data: policy.Encode()}, fakeregional.Blob{Kind: software.Kind, Name: "agent", Data: w.Encode()})
}

// says waits until the site reports a state.
func (r *releases) says(state, running, message string) {
	r.t.Helper()
	testkit.Eventually(r.t, fmt.Sprintf("%s, and %s runs", state, running), func() error {
		seen := r.Seen(r.id)
		for _, s := range seen.Report.GetSoftware() {
			if s.GetComponent() == "agent" && s.GetState() == state && s.GetRunning() == running && s.GetDigest() == r.item && strings.Contains(s.GetMessage(), message) && seen.Connected && seen.Hello.GetCapability() >= wire.SoftwareCapability {
				return nil
			}
		}
		return fmt.Errorf("connected %v: %v", seen.Connected, seen.Report.GetSoftware())
	})
}

// watched is muster-edge under its watchdog.
type watched struct {
	t       *testing.T
	binary  string
	dir     string
	config  string
	within  string // of the watchdog; empty: 15s
	process *exec.Cmd
}

func (w *watched) start() {
	w.t.Helper()
	log, err := os.OpenFile(filepath.Join(w.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	w.process = exec.Command(w.binary, "watch", "--dir", filepath.Join(w.dir, "bin"), "--within", cmp.Or(w.within, "15s"), "--", "run", "--config", w.config)
	w.process.Stdout, w.process.Stderr = log, log
	if err := w.process.Start(); err != nil {
		w.t.Fatal(err)
	}
}

// kill is a power cut for processes: watchdog and agent at once.
func (w *watched) kill() {
	_ = w.process.Process.Kill()
	_ = w.process.Wait()
}

func (w *watched) load() Config {
	w.t.Helper()
	c, err := LoadConfig(w.config, false)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func build(t *testing.T, version string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "muster-edge")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-tags=slicelabels", "-ldflags=-s -w -X muster.dev/muster/internal/obs.Version=v"+version, "-o", path, "muster.dev/muster/cmd/muster-edge").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// TestSoftwareOfTheAgent is real agents that replace themselves: a good version, one that
// ends at its start, one that never connects, back to what ran before; and the same while
// the power fails.
func TestSoftwareOfTheAgent(t *testing.T) {
	if testing.Short() {
		t.Skip("links muster-edge twice")
	}
	t.Parallel() // it waits most of the time
	r := newReleases(t)
	one, two := build(t, "1.0.0"), build(t, "2.0.0")
	w := &watched{t: t, dir: t.TempDir()}
	w.binary, w.config = filepath.Join(w.dir, "muster-edge"), filepath.Join(w.dir, "edge.yaml")
	if err := os.WriteFile(w.binary, one, 0o700); err != nil {
		t.Fatal(err)
	}
	config := func(gateway string) string {
		return fmt.Sprintf("stateDir: %s\nopsListen: 127.0.0.1:%d\ngateways: [%q]\ncaHash: %q\ntoken: muster1.acme.tok.secret\nsite: paris-07\nsoftware: {hold: 1s, within: 8s}\n",
			w.dir, freePort(t), gateway, r.CAHash())
	}
	lost := filepath.Join(w.dir, "lost.yaml")
	for path, text := range map[string]string{w.config: config(strings.TrimPrefix(r.URL(), "https://")), lost: config("127.0.0.1:1")} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.add("2.0.0", two)
	r.add("3.0.0", []byte("#!/bin/sh\nexit 3\n"))
	r.add("4.0.0", fmt.Appendf(nil, "#!/bin/sh\nexec %s run --config %s\n", w.binary, lost))
	t.Cleanup(func() {
		if t.Failed() {
			b, _ := os.ReadFile(filepath.Join(w.dir, "log"))
			t.Logf("%s", b[max(0, len(b)-6000):])
		}
		w.kill()
	})
	w.start()

	r.want(software.Wanted{}) // what ran before, and nothing else was ever asked for
	r.says("Done", "1.0.0", "")
	var out bytes.Buffer
	if err := AskSoftware(t.Context(), &out, w.load(), "", "now", time.Time{}); err == nil || err.Error() != "nothing is offered" {
		t.Errorf("now, with nothing offered: %v", err)
	}
	later := time.Now().Add(100 * time.Hour)
	r.want(software.Wanted{Version: "2.0.0", Windows: []fleet.Window{{From: later.UTC().Format("15:04"), To: later.Add(time.Minute).UTC().Format("15:04")}}, DeferBy: time.Hour})
	r.says("Scheduled", "1.0.0", "")
	if err := PrintSoftware(t.Context(), &out, w.load(), false); err != nil || !strings.Contains(out.String(), "agent     1.0.0; 2.0.0 is scheduled for") {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := AskSoftware(t.Context(), &out, w.load(), "", "now", time.Time{}); err != nil {
		t.Error(err)
	}
	r.says("Done", "2.0.0", "")
	if got := r.Seen(r.id).Hello.GetAgentVersion(); got != "v2.0.0" {
		t.Errorf("agent %s says hello", got)
	}

	r.want(software.Wanted{Version: "3.0.0"})
	r.says("Failed", "2.0.0", "it did not come up, 2 times; 2.0.0 runs")
	r.want(software.Wanted{Version: "4.0.0"})
	r.says("Failed", "2.0.0", "not connected to a regional")
	out.Reset()
	if err := PrintStatus(context.Background(), &out, w.load(), false); err == nil || !strings.Contains(out.String(), "agent 4.0.0 failed") {
		t.Errorf("%v\n%s", err, out.String())
	}

	r.want(software.Wanted{Version: "5.0.0"})
	r.says("Failed", "2.0.0", "it was not released")
	r.want(software.Wanted{})
	r.says("Failed", "2.0.0", "1.0.0, which ran before, is not in the other slot any more")
	r.add("1.0.0", one)
	r.want(software.Wanted{Version: "1.0.0"})
	r.says("Done", "1.0.0", "")

	for i := range 6 {
		version := []string{"2.0.0", "1.0.0"}[i%2]
		r.want(software.Wanted{Version: version})
		for range 3 {
			time.Sleep(rand.N(1500 * time.Millisecond)) // anywhere on its way; what comes out is the same
			w.kill()
			w.start()
		}
		// Who goes down twice on trial has failed, whoever's fault it is.
		retry := 0
		testkit.Eventually(t, version+" runs after all", func() error {
			seen := r.Seen(r.id)
			for _, s := range seen.Report.GetSoftware() {
				if seen.Connected && s.GetState() == "Done" && s.GetRunning() == version {
					return nil
				}
				if seen.Connected && s.GetState() == "Failed" && strings.Contains(s.GetMessage(), "2 times") && s.GetDigest() == r.item && retry < 3 {
					t.Logf("round %d: %s", i, s.GetMessage())
					retry++
					r.want(software.Wanted{Version: version, Retry: retry})
				}
			}
			return fmt.Errorf("%v", seen.Report.GetSoftware())
		})
	}
	if err := w.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := w.process.Wait(); err != nil {
		t.Errorf("the watchdog: %v", err)
	}
	w.start()
	r.says("Done", "1.0.0", "")
}

func TestNext(t *testing.T) {
	now := time.Date(2026, 11, 22, 22, 30, 0, 0, time.UTC)
	for in, want := range map[string]string{"02:00": "23 02:00", "22:30": "23 22:30", "22:31": "22 22:31"} {
		if got, err := Next(now, in); err != nil || got.Format("2 15:04") != want {
			t.Errorf("%s: %v %v", in, got, err)
		}
	}
	if _, err := Next(now, "25:00"); err == nil {
		t.Error("25:00 is a time of day")
	}
}

func TestSlotOf(t *testing.T) {
	for in, want := range map[string]string{"root=/dev/vda2 muster.slot=b quiet\n": "b", "muster.slots=b": "", "": ""} {
		if got := slotOf(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

// A node that is one of several asks for its turn before it restarts; a machine of its own
// does not.
func TestOperatingSystemTakesItsTurn(t *testing.T) {
	dir := t.TempDir()
	env, head := filepath.Join(dir, "grubenv"), "# GRUB Environment Block\nboot_success=1\n"
	if err := os.WriteFile(env, []byte(head+strings.Repeat("#", 1024-len(head))), 0o600); err != nil {
		t.Fatal(err)
	}
	c := DefaultConfig()
	c.Software.Components.OS.Driver, c.Software.Components.OS.Grub.Env = driverBootc, env
	alone, err := newOS(c, dir)
	if err != nil || alone.Driver == nil || alone.BeforeBoot != nil || alone.AfterTrial != nil {
		t.Fatalf("%+v, %v", alone, err)
	}
	asked := make(chan string, 1)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		w.WriteHeader(http.StatusForbidden)
	}))
	defer api.Close()
	lease := &c.Software.Components.OS.Lease
	lease.Kubeconfig, lease.Node = filepath.Join(dir, "kubeconfig"), "till-2"
	if _, err := newOS(c, dir); err == nil || !strings.Contains(err.Error(), "lease: kubernetes: reach the cluster's API server") {
		t.Errorf("without its kubeconfig: %v", err)
	}
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\nusers: [{name: u, user: {token: x}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\n", api.URL)
	if err := os.WriteFile(lease.Kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	node, err := newOS(c, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := node.BeforeBoot(t.Context()); err == nil || !strings.Contains(err.Error(), "the turn to restart: node till-2") {
		t.Errorf("it restarts without having asked: %v", err)
	}
	if path := <-asked; path != "/api/v1/nodes/till-2" || node.AfterTrial == nil {
		t.Errorf("it asked for %s", path)
	}
}
