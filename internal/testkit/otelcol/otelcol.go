// Package otelcol builds a real OpenTelemetry Collector for tests, from the Go module proxy
// as a program of its own (see server/), and keeps it in the user's cache.
package otelcol

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"muster.dev/muster/internal/testkit"
)

// Build returns the program's path. The first time takes minutes.
func Build() (string, error) {
	_, self, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("otelcol: the sources are not where they were built")
	}
	src := filepath.Join(filepath.Dir(self), "server")
	sum := sha256.New()
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		b, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			return "", err
		}
		sum.Write(b)
	}
	const name = "otelcol"
	dir, err := testkit.Cached("otelcol-"+hex.EncodeToString(sum.Sum([]byte(runtime.Version())))[:24], func(dir string) error {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), ".")
		cmd.Dir = src
		cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build the OpenTelemetry Collector: %w\n%s", err, out)
		}
		return nil
	})
	return filepath.Join(dir, name), err
}
