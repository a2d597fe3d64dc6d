package e2e

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"muster.dev/muster/internal/testkit/guides"
	"muster.dev/muster/internal/testkit/kubectl"
)

// What the guides have people type of kubectl and Helm is there, with its flags. Both check them
// before they show their help.
func TestCommandsOfTheGuides(t *testing.T) {
	if os.Getenv("MUSTER_E2E") == "" {
		t.Skip("set MUSTER_E2E=1, or run make test-e2e: it fetches kubectl and Helm")
	}
	for program, bin := range map[string]string{"kubectl": kubectl.Path(t, kubectl.Versions[len(kubectl.Versions)-1]), "helm": kubectl.Helm(t)} {
		for _, c := range guides.Commands(t, program) {
			args := c.Args
			if i := slices.Index(args, "--"); i >= 0 {
				args = args[:i]
			}
			out, err := exec.Command(bin, append(slices.Clone(args), "--help")...).CombinedOutput()
			switch {
			case err != nil:
				t.Errorf("%s: %s: %v\n%s", c.At, c.Line, err, out)
			case len(args) > 1 && (strings.Contains(string(out), "SUBCOMMAND [options]") || strings.Contains(string(out), "[command]")): // the help of what is above
				t.Errorf("%s: %s: there is no such verb", c.At, c.Line)
			}
		}
	}
}

// The chart takes what the guide sets, which its schema would refuse otherwise.
func TestHelmOfTheGuide(t *testing.T) {
	if os.Getenv("MUSTER_E2E") == "" {
		t.Skip("set MUSTER_E2E=1, or run make test-e2e: it fetches Helm")
	}
	tried := 0
	for _, c := range guides.Commands(t, "helm") {
		if len(c.Args) < 3 || c.Args[0] != "install" {
			continue
		}
		tried++
		args := slices.Clone(c.Args)
		args[0] = "template"
		for i := range args {
			args[i] = strings.NewReplacer("sha256:…", "sha256:"+strings.Repeat("0a", 32), "muster1.acme.…", "muster1.acme.x.secret").Replace(args[i])
		}
		cmd := exec.Command(kubectl.Helm(t), args...)
		cmd.Dir = guides.Root(t)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "paris-07") {
			t.Errorf("%s: %s: %v\n%.2000s", c.At, c.Line, err, out)
		}
	}
	if tried == 0 {
		t.Error("no guide installs the chart")
	}
}
