// Command pack makes the zip that people unpack into Grafana's directory of plugins:
//
//	pack DIST ZIP
//
// It holds one folder, named as the plugin, with the backend's binaries executable. The
// same files give the same bytes. What Grafana's plugin validator would refuse is not packed.
package main

import (
	"archive/zip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: pack DIST ZIP")
		os.Exit(2)
	}
	if err := pack(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func pack(dist, to string) error {
	plugin, err := readPlugin(dist)
	if err != nil {
		return err
	}
	for _, want := range []string{"module.js", plugin.Executable + "_linux_amd64", plugin.Executable + "_linux_arm64"} {
		if _, err := os.Stat(filepath.Join(dist, want)); err != nil {
			return fmt.Errorf("%s is not built: %w", want, err)
		}
	}
	if err := rules(dist, plugin); err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	z := zip.NewWriter(out)
	err = filepath.WalkDir(dist, func(name string, d fs.DirEntry, err error) error { // in the order of names
		if err != nil || d.IsDir() || strings.HasSuffix(name, ".map") {
			return err
		}
		rel, err := filepath.Rel(dist, name)
		if err != nil {
			return err
		}
		h := &zip.FileHeader{Name: path.Join(plugin.ID, filepath.ToSlash(rel)), Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)} // the first that a zip can say
		h.SetMode(0o644)
		if strings.HasPrefix(rel, plugin.Executable+"_") {
			h.SetMode(0o755)
		}
		w, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err := errors.Join(err, z.Close(), out.Close()); err != nil {
		_ = os.Remove(to)
		return fmt.Errorf("%s: %w", to, err)
	}
	return nil
}
