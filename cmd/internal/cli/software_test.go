package cli

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"muster.dev/muster/control/software/repository"
	"muster.dev/muster/internal/software/bundle"
	"muster.dev/muster/internal/software/bundle/publish"
)

// runSoftware runs a verb as it is typed, in a data directory, without a control plane.
func runSoftware(t *testing.T, dir, args string) (string, error) {
	t.Helper()
	root := &cobra.Command{Use: "muster", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(softwareCmd(&Globals{DataDir: dir}))
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(strings.Fields(strings.ReplaceAll(args, "DIR", dir)))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestSoftwareRepository(t *testing.T) {
	t.Setenv(repositoryEnv, "")
	t.Setenv(keysEnv, "")
	dir := t.TempDir()
	do := func(args, want string) string {
		t.Helper()
		out, err := runSoftware(t, dir, args)
		if err != nil || !regexp.MustCompile(want).MatchString(out) {
			t.Fatalf("%s: %q, %v; want %q", args, out, err, want)
		}
		return out
	}
	refused := func(args, want string) {
		t.Helper()
		if out, err := runSoftware(t, dir, args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %q", args, out, err, want)
		}
	}
	write := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	one := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(one)
	two := bytes.Clone(one)
	copy(two[1<<20:], "something new")
	write("one", one)
	write("two", two)

	refused("software add agent 1.0.0 --file DIR/one --no-object", "muster software init")
	refused("software init", "--keys DIR")
	do("software init --keys DIR/safe --root-keys 3 --root-threshold 2", "software:\n +dir: "+dir)
	refused("software init --keys DIR/other", "a repository at")
	first, err := os.ReadFile(filepath.Join(dir, "software", "1.root.json"))
	if err != nil {
		t.Fatal(err)
	}

	// Errors say what to do, before anything is stored.
	for args, want := range map[string]string{
		"software add agent 1.0 --file DIR/one":                                 "Semantic Versioning",
		"software add agnet 1.0.0 --file DIR/one":                               "want os, agent or platform",
		"software add agent 1.0.0 --file x86=DIR/one":                           "amd64",
		"software add agent 1.0.0 --file amd64=DIR/none":                        "no such file",
		"software add agent 1.0.0 --file DIR/one --file arm64=DIR/two":          "either one file for any",
		"software add agent 1.0.0 --file DIR/one --requires 2.0.0":              "os=2.0.0",
		"software add agent 1.0.0 --file DIR/one --no-object":                   "--keys",
		"software add agent 1.0.0 --no-object":                                  "the repository has no agent 1.0.0",
		"software rotate --keys DIR/safe":                                       "say what to replace",
		"software rotate --root --keys DIR/safe":                                "--to DIR",
		"software add agent 1.0.0 --file DIR/one --no-object --keys DIR/nosuch": "targets.pem",
	} {
		refused(args, want)
	}

	do("software add agent 1.0.0 --file amd64=DIR/one --no-object --keys DIR/safe", "agent/1.0.0/amd64: 3.0MiB")
	do("software add agent 1.1.0 --file amd64=DIR/two --no-object --keys DIR/safe", `from 1.0.0: [0-9.]+(B|KiB) instead of 3.0MiB`)
	do("software add agent 1.1.0 --file amd64=DIR/two --no-object --keys DIR/safe", "in the repository already")
	refused("software add agent 1.1.0 --file amd64=DIR/one --no-object --keys DIR/safe", "choose another name")
	do("software add agent 1.1.0 --no-object", "")

	site := func() *bundle.Trust {
		t.Helper()
		b, err := bundle.Open(bundle.Options{Dir: filepath.Join(dir, "site"), Root: first})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Refresh(t.Context(), dirSource{publish.Dir{Path: filepath.Join(dir, "software")}}); err != nil {
			t.Fatal(err)
		}
		return b
	}
	if _, err := site().Target("agent/1.1.0/amd64", "agent", "1.1.0"); err != nil {
		t.Error(err)
	}

	// A ceremony: two of three people, and a thief of the old keys afterwards.
	if err := os.Mkdir(filepath.Join(dir, "alice"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "safe", "root-1.pem"), filepath.Join(dir, "alice", "root-1.pem")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "safe", "root-3.pem"), filepath.Join(dir, "alice", "lost.pem")); err != nil {
		t.Fatal(err)
	}
	refused("software rotate --targets --keys DIR/safe --to DIR/new", "bring them together")
	refused("software rotate --targets --keys DIR/safe --keys DIR/alice --to DIR/new", "replace them with --root")
	do("software rotate --targets --root --online --keys DIR/safe --keys DIR/alice --to DIR/new", "Root 2 is signed")
	refused("software add agent 1.2.0 --file DIR/one --no-object --keys DIR/safe", "not one that root 2 names")
	site()
	do("software renew", "what is online")
	do("software renew --keys DIR/new", "root, list of files")

	// Who releases has no online keys: what they signed waits for control.
	do("software add agent 1.2.0 --file amd64=DIR/one --no-object --keys DIR/new --online-keys DIR/nowhere", "once control has signed")
	do("software add agent 1.3.0 --file amd64=DIR/two --no-object --keys DIR/new --online-keys DIR/nowhere", "once control has signed")
	if _, err := site().Target("agent/1.2.0/amd64", "agent", "1.2.0"); err == nil {
		t.Error("sites see what the online keys have not signed")
	}
	do("software renew", "what is online")
	for _, v := range []string{"1.2.0", "1.3.0"} {
		if _, err := site().Target("agent/"+v+"/amd64", "agent", v); err != nil {
			t.Error(err)
		}
	}
	if st, err := os.Stat(filepath.Join(dir, "control", "software-keys", repository.TimestampKey)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the timestamp's key: %v, %v", st, err)
	}
}

type dirSource struct{ publish.Dir }

// Metadata implements bundle.Source.
func (d dirSource) Metadata(ctx context.Context, name string, _ int64) ([]byte, error) {
	r, err := d.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
