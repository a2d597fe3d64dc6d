package control

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/cmd/internal/config"
)

// Holders are who has an identity that control keeps: the instances of roles, but for
// control itself, and people.
func Holders(c config.Config) []string {
	var out []string
	for _, r := range config.Roles {
		for _, i := range r.Instances(&c) {
			if r.Name != "control" {
				out = append(out, i.Name)
			}
		}
	}
	return append(out, config.People...)
}

// Bundle writes what a role on another machine needs of this one, as a tar archive to be
// unpacked in the data directory there: its identity, and the kubeconfig of one that has a
// user of the API server. It holds private keys.
func Bundle(c config.Config, holder string, w io.Writer) error {
	if !slices.Contains(Holders(c), holder) {
		return fmt.Errorf("nobody is called %q; want one of %s. A regional is called regional-NAME, after its entry under regionals", holder, strings.Join(Holders(c), ", "))
	}
	files := []string{c.PairFile(holder), c.TrustFile(holder)}
	for _, r := range config.Roles {
		if r.Client && r.Name == holder {
			files = append(files, Kubeconfig(c, r.Name))
		}
	}
	archive := tar.NewWriter(w)
	for _, file := range files {
		b, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is not there: run this where control keeps its data, after control has started with this configuration", file)
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(c.DataDir, file)
		if err != nil {
			return err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: filepath.ToSlash(name), Size: int64(len(b)), Mode: 0o600, ModTime: time.Now()}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		if _, err := archive.Write(b); err != nil {
			return err
		}
	}
	return archive.Close()
}
