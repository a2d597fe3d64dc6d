package control

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/control/pki"
)

// What Bundle writes is, unpacked with tar on another machine, all that a role there needs
// of control's files, and nobody else's.
func TestBundle(t *testing.T) {
	c := config.Default()
	c.DataDir = t.TempDir()
	var b bytes.Buffer
	if err := Bundle(c, "health", &b); err == nil || !strings.Contains(err.Error(), "after control has started") {
		t.Errorf("before control has started: %v", err)
	}
	ca, err := pki.Open(pki.Options{Dir: filepath.Join(c.DataDir, "pki"), TrustDomain: c.TrustDomain})
	if err != nil {
		t.Fatal(err)
	}
	if err := ensureCertificates(ca, c); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(Kubeconfig(c, "health")), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(Kubeconfig(c, "health"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for holder, kubeconfig := range map[string]bool{"health": true, "regional-one": false, config.Operator: false} {
		b.Reset()
		if err := Bundle(c, holder, &b); err != nil {
			t.Fatal(err)
		}
		there := c
		there.DataDir = t.TempDir()
		tar := exec.CommandContext(t.Context(), "tar", "-x", "-C", there.DataDir)
		tar.Stdin = &b
		if out, err := tar.CombinedOutput(); err != nil {
			t.Fatalf("tar: %v %s", err, out)
		}
		if _, err := there.OpenPeers(holder); err != nil {
			t.Errorf("%s: %v", holder, err)
		}
		if _, err := os.Stat(Kubeconfig(there, "health")); (err == nil) != kubeconfig {
			t.Errorf("%s has health's kubeconfig: %v", holder, err == nil)
		}
		if f, err := os.Stat(there.PairFile(holder)); err != nil || f.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", holder, f, err)
		}
		if ids, err := os.ReadDir(filepath.Join(there.DataDir, "control", "identities")); err != nil || len(ids) != 1 {
			t.Errorf("%s: identities %v, %v", holder, ids, err)
		}
	}
	for _, nobody := range []string{"control", "one", "../pki"} {
		b.Reset()
		if err := Bundle(c, nobody, &b); err == nil || b.Len() > 0 || !strings.Contains(err.Error(), "regional-one") {
			t.Errorf("%s: %d bytes, %v", nobody, b.Len(), err)
		}
	}
}
