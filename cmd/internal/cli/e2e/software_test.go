package e2e

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"muster.dev/muster/cmd/internal/cli"
	"muster.dev/muster/control/api/v1alpha1"
)

// software makes a repository in the data directory, as `muster software init` does, and a
// version of each tenant. Who releases has its keys by the environment.
func (f *fleetUnderTest) software(t *testing.T) {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "keys")
	t.Setenv("MUSTER_SOFTWARE_REPOSITORY", "")
	t.Setenv("MUSTER_SOFTWARE_KEYS", "")
	root := &cobra.Command{Use: "muster", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(cli.Commands(&cli.Globals{DataDir: f.dir})...)
	root.SetOut(io.Discard)
	root.SetArgs([]string{"software", "init", "--keys", keys})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MUSTER_SOFTWARE_KEYS", keys)
	for _, tenant := range []string{"acme", "acme-eu"} {
		v := &v1alpha1.SoftwareVersion{ObjectMeta: meta(tenant, "system", "os-1.0.0"), Spec: v1alpha1.SoftwareVersionSpec{Component: "os", Version: "1.0.0", Notes: "roman",
			Bundles: []v1alpha1.SoftwareBundle{{Architecture: "any", Target: "os/1.0.0/any", Digest: strings.Repeat("ab", 32), Size: 700 << 20}}}}
		if tenant == "acme" {
			v.Spec.Notes = "first"
		}
		if err := f.admin.Create(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
}
