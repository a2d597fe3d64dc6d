package elasticsearch

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"muster.dev/muster/internal/testkit"
)

// Version of the Elasticsearch that tests run against.
const Version = "8.19.0"

//go:embed launcher
var launcher embed.FS

const netty = "modules/transport-netty4"

// artifacts returns the directory that holds everything a node's home and module
// path are made of, fetching it with Maven the first time.
func artifacts() (string, error) {
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%s is not installed, and these tests run a real Elasticsearch: run `make tools-elasticsearch` once", tool)
		}
	}
	return testkit.Cached("elasticsearch-"+Version, fetch)
}

func fetch(dir string) error {
	for _, name := range []string{"pom.xml", "plugin-descriptor.properties"} {
		data, err := launcher.ReadFile("launcher/" + name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	cmd := exec.Command("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetch Elasticsearch %s with Maven: %w\n%s", Version, err, out)
	}
	// The transport is a module of Elasticsearch with a class loader of its own; on the
	// module path its jars would be seen twice.
	if err := os.MkdirAll(filepath.Join(dir, netty), 0o755); err != nil {
		return err
	}
	jars, err := os.ReadDir(filepath.Join(dir, "lib"))
	if err != nil {
		return err
	}
	for _, jar := range jars {
		if name := jar.Name(); strings.HasPrefix(name, "netty-") || strings.HasPrefix(name, "transport-netty4-") {
			if err := os.Rename(filepath.Join(dir, "lib", name), filepath.Join(dir, netty, name)); err != nil {
				return err
			}
		}
	}
	return os.Rename(filepath.Join(dir, "plugin-descriptor.properties"), filepath.Join(dir, netty, "plugin-descriptor.properties"))
}
