package main

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPack(t *testing.T) {
	dist, to := t.TempDir(), filepath.Join(t.TempDir(), "p.zip")
	if err := pack(dist, to); err == nil || !strings.Contains(err.Error(), "build the frontend first") {
		t.Errorf("of nothing: %v", err)
	}
	files := map[string]string{"plugin.json": `{"id":"muster-fleet-datasource","executable":"gpx"}`, "module.js": "x", "module.js.map": "x", "img/logo.svg": "x", "gpx_linux_amd64": "a"}
	for name, content := range files {
		at := filepath.Join(dist, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := pack(dist, to); err == nil || !strings.Contains(err.Error(), "gpx_linux_arm64 is not built") {
		t.Errorf("without a binary: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dist, "gpx_linux_arm64"), []byte("b"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := pack(dist, to); err != nil {
		t.Fatal(err)
	}
	first, _ := os.ReadFile(to)
	z, err := zip.OpenReader(to)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var got []string
	for _, f := range z.File {
		if f.Modified.Year() != 1980 || f.Modified.Month() != 1 {
			t.Errorf("%s is of %s, which some can't unpack", f.Name, f.Modified)
		}
		got = append(got, f.Mode().String()+" "+f.Name)
	}
	const in = "muster-fleet-datasource/"
	want := []string{"-rwxr-xr-x " + in + "gpx_linux_amd64", "-rwxr-xr-x " + in + "gpx_linux_arm64", "-rw-r--r-- " + in + "img/logo.svg", "-rw-r--r-- " + in + "module.js", "-rw-r--r-- " + in + "plugin.json"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := pack(dist, to); err != nil {
		t.Fatal(err)
	}
	if again, _ := os.ReadFile(to); !bytes.Equal(first, again) {
		t.Error("the same files give other bytes")
	}
}
