package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const binary = "gpx_muster_fleet"

// sources are the files that webpack.config.js copies, as it does.
func sources(t *testing.T) map[string]string {
	t.Helper()
	read := func(path string) string {
		b, err := os.ReadFile(filepath.Join("..", "..", path))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	var of struct{ Version string }
	if err := json.Unmarshal([]byte(read("package.json")), &of); err != nil {
		t.Fatal(err)
	}
	config := read("webpack.config.js")
	for _, name := range []string{"src/plugin.json", "src/img", "README.md", "CHANGELOG.md"} {
		if !strings.Contains(config, "{ from: '"+name+"'") {
			t.Fatalf("webpack.config.js does not copy %s", name)
		}
	}
	return map[string]string{
		"plugin.json": strings.NewReplacer("%VERSION%", of.Version, "%TODAY%", "2026-01-31").Replace(read("src/plugin.json")),
		"README.md":   read("README.md"), "CHANGELOG.md": read("CHANGELOG.md"), "img/logo.svg": read("src/img/logo.svg"),
	}
}

func put(t *testing.T, dist string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		at := filepath.Join(dist, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The plugin keeps the validator's rules, and what breaks one is refused with its name.
func TestRules(t *testing.T) {
	check := func(change func(map[string]string)) error {
		dist, files := t.TempDir(), sources(t)
		change(files)
		put(t, dist, files)
		p, err := readPlugin(dist)
		if err != nil {
			t.Fatal(err)
		}
		return rules(dist, p)
	}
	if err := check(func(map[string]string) {}); err != nil {
		t.Error(err)
	}
	edit := func(file, old, text string) func(map[string]string) {
		return func(f map[string]string) {
			if !strings.Contains(f[file], old) {
				t.Fatalf("%s has no %s", file, old)
			}
			f[file] = strings.ReplaceAll(f[file], old, text)
		}
	}
	add := func(file, text string) func(map[string]string) {
		return func(f map[string]string) { f[file] += text }
	}
	for want, change := range map[string]func(map[string]string){
		`plugin.json: id "muster-fleet": want ORGANIZATION-NAME-datasource`: edit("plugin.json", `"muster-fleet-datasource"`, `"muster-fleet"`),
		`plugin.json: name "": want one for people`: edit("plugin.json", `"type": "datasource",
  "name": "Muster"`, `"type": "datasource"`),
		"plugin.json: info.description is empty":                                  edit("plugin.json", `"description"`, `"x"`),
		"plugin.json: info.keywords are empty":                                    edit("plugin.json", `"keywords"`, `"x"`),
		"plugin.json: info.author.name is empty":                                  edit("plugin.json", `"author"`, `"x"`),
		`plugin.json: info.updated "today"`:                                       edit("plugin.json", "2026-01-31", "today"),
		`plugin.json: dependencies.grafanaDependency "12.x"`:                      edit("plugin.json", ">=12.0.0", "12.x"),
		`plugin.json: executable "muster_fleet": want gpx_NAME`:                   edit("plugin.json", "gpx_", ""),
		`plugin.json: the picture "../logo.svg" is not in the folder`:             edit("plugin.json", "img/logo.svg", "../logo.svg"),
		`plugin.json: the picture "img/a.png" is not in the folder`:               edit("plugin.json", `"screenshots": []`, `"screenshots": [{"name": "a", "path": "img/a.png"}]`),
		"img/logo.svg: scripts, handlers":                                         edit("img/logo.svg", "<circle", "<circle onload=\"x()\""),
		"README.md: the link ../docs/grafana.md leads nowhere out of the catalog": add("README.md", "[guide](../docs/grafana.md)"),
		"README.md: yarn is for developers":                                       add("README.md", "yarn install"),
		"CHANGELOG.md: says nothing of 9.0.0":                                     edit("plugin.json", `"version": "1.0.0"`, `"version": "9.0.0"`),
		"CHANGELOG.md: there is none":                                             func(f map[string]string) { delete(f, "CHANGELOG.md") },
		"nested/plugin.json: a plugin in the plugin":                              add("nested/plugin.json", "{}"),
		"standalone.txt: of somebody who debugged it":                             add("standalone.txt", "1"),
	} {
		if err := check(change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestPack(t *testing.T) {
	dist, to := t.TempDir(), filepath.Join(t.TempDir(), "p.zip")
	if err := pack(dist, to); err == nil || !strings.Contains(err.Error(), "build the frontend first") {
		t.Errorf("of nothing: %v", err)
	}
	files := sources(t)
	for name, content := range map[string]string{"module.js": "x", "module.js.map": "x", binary + "_linux_amd64": "a"} {
		files[name] = content
	}
	put(t, dist, files)
	if err := pack(dist, to); err == nil || !strings.Contains(err.Error(), binary+"_linux_arm64 is not built") {
		t.Errorf("without a binary: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dist, binary+"_linux_arm64"), []byte("b"), 0o600); err != nil {
		t.Fatal(err)
	}
	put(t, dist, map[string]string{"CHANGELOG.md": "# Changelog\n"})
	if err := pack(dist, to); err == nil || !strings.Contains(err.Error(), "CHANGELOG.md: says nothing of") {
		t.Errorf("against the rules: %v", err)
	}
	put(t, dist, files)
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
	want := []string{"-rw-r--r-- " + in + "CHANGELOG.md", "-rw-r--r-- " + in + "README.md", "-rwxr-xr-x " + in + binary + "_linux_amd64", "-rwxr-xr-x " + in + binary + "_linux_arm64", "-rw-r--r-- " + in + "img/logo.svg", "-rw-r--r-- " + in + "module.js", "-rw-r--r-- " + in + "plugin.json"}
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
