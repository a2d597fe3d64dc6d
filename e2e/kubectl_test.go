package e2e

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubectl"
)

// testKubectls: what carries bytes or stays open works with each kubectl that users have, since
// they don't all speak the same to a pod: through the site's tunnel, and from the store of status.
func testKubectls(t *testing.T, f *clusters) {
	sites := []string{"paris", "lyon"}
	for i, version := range kubectl.Versions {
		t.Run(version, func(t *testing.T) { testKubectlOn(t, f, version, sites[i%len(sites)]) })
	}
}

func testKubectlOn(t *testing.T, f *clusters, version, site string) {
	f.runs("web", 2, "paris", "lyon")
	k, pod := f.program(t, kubectl.Path(t, version)), f.podOn("web", site)
	f.sites[site].Say(shopNamespace, pod, "before "+version)
	watch := k.begin(t, "get", "pods", "-w", "--output-watch-events", "-l", "app=web")
	logs := k.begin(t, "logs", "-f", pod)
	forward := k.begin(t, "port-forward", pod, ":80")

	execs(t, k, pod)
	copies(t, k, pod, "/tmp/"+version)
	forwards(t, forward, shopNamespace+"/"+pod+" port 80\n")

	logs.says("\nbefore " + version + "\n") // so it follows
	f.sites[site].Say(shopNamespace, pod, "after "+version)
	logs.says("\nbefore " + version + "\nafter " + version + "\n")

	for _, p := range f.pods("web") {
		watch.says("\nADDED " + p.Name + " 1/1 Running ") // so it watches
	}
	k.run(t, "delete", "pod", pod, "--wait=false")
	watch.says("\nDELETED " + pod + " ")
	f.runs("web", 2, "paris", "lyon")
	for _, p := range f.pods("web") { // the one in its place too
		watch.says(" " + p.Name + " 1/1 Running ")
	}
}

// execs: both directions, and how the command ended.
func execs(t *testing.T, k program, pod string) {
	t.Helper()
	cmd := k.command(t, "exec", "-i", pod, "--", "sh", "-c", "cat; hostname; exit 4")
	cmd.Stdin = strings.NewReader("hello ")
	out, err := cmd.Output()
	var ended *exec.ExitError
	if want := "hello " + pod + "\n"; string(out) != want || !errors.As(err, &ended) || ended.ExitCode() != 4 {
		t.Errorf("exec in %s: %q, %v; want %q and exit code 4", pod, out, err, want)
	}
}

// copies: a file that goes into a pod and comes out again is the same, whatever is in it.
func copies(t *testing.T, k program, pod, path string) {
	t.Helper()
	content := make([]byte, 300_000)
	_, _ = rand.Read(content)
	from, to := k.home+"/from", k.home+"/to"
	if err := os.WriteFile(from, content, 0o600); err != nil {
		t.Fatal(err)
	}
	k.run(t, "cp", from, pod+":"+path)
	k.run(t, "cp", pod+":"+path, to)
	if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, content) {
		t.Errorf("cp to %s and back: %d bytes, %v; want the same %d", pod, len(got), err, len(content))
	}
}

var forwardsFrom = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:[0-9]+) -> 80`)

// forwards: the pod's own page comes through the port, once more on another connection.
func forwards(t *testing.T, forward *begun, want string) {
	t.Helper()
	var at []string
	testkit.Eventually(t, "kubectl port-forward has a port", func() error {
		if at = forwardsFrom.FindStringSubmatch(forward.out.String()); at == nil {
			return fmt.Errorf("it says %q", forward.out.String())
		}
		return nil
	})
	for range 2 {
		if got, err := getBody("http://"+at[1]+"/", nil); err != nil || string(got) != want {
			t.Errorf("through kubectl port-forward: %q, %v; want %q", got, err, want)
		}
	}
}

// begun is a program that does not end by itself.
type begun struct {
	t    *testing.T
	what string
	out  *syncBuffer
}

// begin runs it until the test ends.
func (p program) begin(t *testing.T, args ...string) *begun {
	t.Helper()
	b := &begun{t, strings.Join(args, " "), &syncBuffer{}}
	cmd := p.command(t, args...) // which the end of t's context kills
	cmd.Stdout, cmd.Stderr = b.out, b.out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	return b
}

// says waits until it has said what is wanted, however many spaces lie between words.
func (b *begun) says(want string) {
	b.t.Helper()
	testkit.Eventually(b.t, b.what+" says "+want, func() error {
		var said strings.Builder
		for line := range strings.Lines("\n" + b.out.String()) {
			said.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
		}
		if !strings.Contains(said.String(), want) {
			return fmt.Errorf("it has said %q", said.String())
		}
		return nil
	})
}
