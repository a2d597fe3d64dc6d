// Package senders builds for tests what people have at their sites: a real OpenTelemetry Collector
// and a real Prometheus, which push without muster-edge, and a real kube-state-metrics, which it
// scrapes. Each is a Go module of its own, because
// it wants other versions of what Muster uses, and comes from the module proxy; what was built
// stays in the user's cache.
package senders

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"muster.dev/muster/internal/testkit"
)

// Collector returns the path of an OpenTelemetry Collector. The first time takes ten minutes.
func Collector() (string, error) { return build("otelcol", ".") }

// Prometheus returns the path of a Prometheus without its web page. The first time takes ten
// minutes.
func Prometheus() (string, error) {
	return build("prometheus", "github.com/prometheus/prometheus/cmd/prometheus")
}

// KubeStateMetrics returns the path of a kube-state-metrics. The first time takes five minutes.
func KubeStateMetrics() (string, error) {
	return build("kube-state-metrics", "k8s.io/kube-state-metrics/v2")
}

// build makes a program of a package, with the module in the folder of that name.
func build(name, pkg string) (string, error) {
	_, self, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("senders: the sources are not where they were built")
	}
	src := filepath.Join(filepath.Dir(self), name)
	sum := sha256.New()
	err := fs.WalkDir(os.DirFS(src), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(src, path))
		sum.Write(b)
		return err
	})
	if err != nil {
		return "", err
	}
	dir, err := testkit.Cached(name+"-"+hex.EncodeToString(sum.Sum([]byte(runtime.Version())))[:24], func(dir string) error {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), pkg)
		cmd.Dir = src
		cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
		return nil
	})
	return filepath.Join(dir, name), err
}
