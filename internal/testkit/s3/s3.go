// Package s3 runs a real S3 server for tests: Versity's gateway over a directory, built from
// the Go module proxy and kept in the user's cache. `make test-s3` runs the tests that want one;
// elsewhere they are skipped, for building it takes minutes.
package s3

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit"
)

const gateway = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

// Keys of who may do everything.
const access, secret = "muster", "muster-secret"

// Server is a running S3 server.
type Server struct {
	Addr string // host:port, without TLS
	dir  string
}

// Start runs a server until the test ends, or skips the test.
func Start(t testing.TB) *Server {
	t.Helper()
	if os.Getenv("MUSTER_S3") == "" {
		t.Skip("a real S3 server takes minutes to build; run make test-s3")
	}
	dir, err := testkit.Cached("versitygw-"+filepath.Base(gateway), func(dir string) error {
		cmd := exec.Command("go", "install", gateway)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-mod=mod", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go install %s: %w\n%s", gateway, err, out)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Addr: ln.Addr().String(), dir: t.TempDir()}
	ln.Close()
	ctx, stop := context.WithCancel(context.Background())
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "versitygw"), "--access", access, "--secret", secret, "--region", "us-east-1", "--port", s.Addr, "posix", "--sidecar", t.TempDir(), s.dir)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &said, &said, 10*time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the S3 server said:\n%s", &said)
		}
	})
	testkit.Eventually(t, "the S3 server listens", func() error {
		conn, err := net.Dial("tcp", s.Addr)
		if err == nil {
			conn.Close()
		}
		return err
	})
	return s
}

// Bucket makes a bucket and returns the configuration of who has all rights to it, as Thanos,
// Cortex and control.software.bucketFile have it.
func (s *Server) Bucket(t testing.TB, name string) []byte {
	t.Helper()
	if err := os.Mkdir(filepath.Join(s.dir, name), 0o700); err != nil {
		t.Fatal(err)
	}
	return s.Config(name, access, secret)
}

// Config is that of a bucket that need not be there, with any key.
func (s *Server) Config(bucket, access, secret string) []byte {
	return fmt.Appendf(nil, "{bucket: %s, endpoint: %q, region: us-east-1, insecure: true, access_key: %s, secret_key: %s}", bucket, s.Addr, access, secret)
}
