// Package objectstore runs real servers of the object stores that the centre can keep things in,
// for tests: Versity's gateway for S3, Microsoft's Azurite, and fake-gcs-server, which is what
// there is for Google's. They come from the module proxy and npm, and are kept in the user's
// cache. `make test-buckets` runs the tests that want one; elsewhere they are skipped, for
// building them takes minutes.
package objectstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit"
)

const (
	gateway  = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
	fakeGCS  = "github.com/fsouza/fake-gcs-server@v1.56.1"
	azurite  = "azurite@3.37.0"
	blobName = "azurite-blob"
)

// All are the types that control.software.bucketFile takes, with what starts a server until the
// test ends, or skips the test, makes a bucket, and returns the configuration of who has all
// rights to it, as Thanos and Cortex have it.
var All = map[string]func(t testing.TB, bucket string) []byte{
	"s3":    func(t testing.TB, bucket string) []byte { return StartS3(t).Bucket(t, bucket) },
	"gcs":   gcs,
	"azure": azure,
}

func wanted(t testing.TB) {
	t.Helper()
	if os.Getenv("MUSTER_BUCKETS") == "" {
		t.Skip("real object stores take minutes to build; run make test-buckets")
	}
}

// built is the path of a program of a module, which is built the first time.
func built(t testing.TB, module, name string) string {
	t.Helper()
	return cached(t, filepath.Base(module), func(dir string) *exec.Cmd {
		cmd := exec.Command("go", "install", module)
		cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-mod=mod", "CGO_ENABLED=0")
		return cmd
	}, name)
}

func cached(t testing.TB, name string, fill func(dir string) *exec.Cmd, path ...string) string {
	t.Helper()
	dir, err := testkit.Cached("objectstore-"+name, func(dir string) error {
		cmd := fill(dir)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", cmd, err, out)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, filepath.Join(path...))
}

// address is one that nobody listens at.
func address(t testing.TB) (addr, port string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	addr = ln.Addr().String()
	return addr, addr[strings.LastIndexByte(addr, ':')+1:]
}

// run runs a server until the test ends, and returns when it listens.
func run(t testing.TB, addr, program string, args ...string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &said, &said, 10*time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(program), &said)
		}
	})
	testkit.Eventually(t, filepath.Base(program)+" listens", func() error {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// Keys of who may do everything.
const access, secret = "muster", "muster-secret"

// S3 is a running server.
type S3 struct {
	Addr string // host:port, without TLS
	dir  string
}

// StartS3 runs a server until the test ends, or skips the test.
func StartS3(t testing.TB) *S3 {
	t.Helper()
	wanted(t)
	addr, _ := address(t)
	s := &S3{Addr: addr, dir: t.TempDir()}
	run(t, addr, built(t, gateway, "versitygw"), "--access", access, "--secret", secret, "--region", "us-east-1", "--port", addr, "posix", "--sidecar", t.TempDir(), s.dir)
	return s
}

// Bucket makes a bucket and returns the configuration of who has all rights to it.
func (s *S3) Bucket(t testing.TB, name string) []byte {
	t.Helper()
	if err := os.Mkdir(filepath.Join(s.dir, name), 0o700); err != nil {
		t.Fatal(err)
	}
	return s.Config(name, access, secret)
}

// Config is that of a bucket that need not be there, with any key.
func (s *S3) Config(bucket, access, secret string) []byte {
	return fmt.Appendf(nil, "{bucket: %s, endpoint: %q, region: us-east-1, insecure: true, access_key: %s, secret_key: %s}", bucket, s.Addr, access, secret)
}

func gcs(t testing.TB, bucket string) []byte {
	t.Helper()
	wanted(t)
	addr, port := address(t)
	run(t, addr, built(t, fakeGCS, "fake-gcs-server"), "-scheme", "http", "-host", "127.0.0.1", "-port", port, "-public-host", addr, "-external-url", "http://"+addr, "-backend", "memory", "-log-level", "warn")
	resp, err := http.Post("http://"+addr+"/storage/v1/b?project=acme", "application/json", strings.NewReader(fmt.Sprintf(`{"name":%q}`, bucket)))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("make a bucket: %s", resp.Status)
	}
	t.Setenv("STORAGE_EMULATOR_HOST", addr) // Google's library reads it
	return fmt.Appendf(nil, "{bucket: %s, service_account: %q}", bucket, ServiceAccount(t, http.StatusOK))
}

// ServiceAccount is one whose tokens a server in this process gives, or refuses by another status.
func ServiceAccount(t testing.TB, status int) []byte {
	t.Helper()
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if status != http.StatusOK {
			_, _ = w.Write([]byte(`{"error": "invalid_grant", "error_description": "Invalid JWT Signature."}`))
			return
		}
		_, _ = w.Write([]byte(`{"access_token": "muster", "token_type": "Bearer", "expires_in": 3600}`))
	}))
	t.Cleanup(tokens.Close)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "acme", "private_key_id": "1", "client_email": "muster@acme.example", "token_uri": tokens.URL,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// account is Azurite's own, which has this key everywhere.
const (
	account    = "devstoreaccount1"
	accountKey = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

func azure(t testing.TB, container string) []byte {
	t.Helper()
	wanted(t)
	program := cached(t, azurite, func(dir string) *exec.Cmd {
		return exec.Command("npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--loglevel=error", azurite)
	}, "node_modules", ".bin", blobName)
	addr, port := address(t)
	run(t, addr, program, "--blobHost", "127.0.0.1", "--blobPort", port, "--location", t.TempDir(), "--silent", "--skipApiVersionCheck", "--disableTelemetry")
	return fmt.Appendf(nil, "{storage_account: %s, container: %s, storage_create_container: true, storage_connection_string: %q}", account, container,
		"DefaultEndpointsProtocol=http;AccountName="+account+";AccountKey="+accountKey+";BlobEndpoint=http://"+addr+"/"+account+";")
}
