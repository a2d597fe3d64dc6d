// Package testkit is the small change of tests that several packages need: a free
// address, waiting for a condition, and what is costly to make and kept between test
// binaries. The folders below it are a stand-in or a real part each. Nothing that ships
// imports it.
package testkit

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"muster.dev/muster/internal/disk"
)

// FreeAddr returns a HOST:PORT of the loopback interface that nobody listened on a
// moment ago, for what can't be given a listener. The port is none of those that systems
// give to outgoing connections, of which a busy machine opens many in that moment, and until
// the test ends it is given to no other, in other processes neither.
func FreeAddr(t testing.TB) string {
	t.Helper()
	const first, ephemeral = 10_000, 32_768 // as Linux has it (ip_local_port_range)
	given, err := cacheDir("ports")
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		port := strconv.Itoa(first + rand.IntN(ephemeral-first))
		lock, held := disk.LockFile(filepath.Join(given, port))
		if held != nil {
			continue
		}
		ln, used := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if used != nil {
			_ = lock.Close()
			continue
		}
		defer ln.Close()
		t.Cleanup(func() { _ = lock.Close() })
		return ln.Addr().String()
	}
	t.Fatal("of a hundred ports none is free")
	return ""
}

// OwnAddress is one of this machine that an EndpointSlice may have; "": it has none but loopback.
func OwnAddress(t testing.TB) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return ""
}

// cacheDir is the directory for tests in the user's cache, or one in it.
func cacheDir(elem ...string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(append([]string{cache, "muster-test"}, elem...)...)
	return dir, os.MkdirAll(dir, 0o755)
}

// Cached returns the directory of that name in the user's cache. The first to ask has
// it filled by fill, in a temporary directory that is renamed when fill is done; others,
// in other processes too, wait for that. What fill depends on belongs in the name. A
// file in its place, from a version of the tests that kept one, is replaced.
func Cached(name string, fill func(dir string) error) (string, error) {
	parent, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(parent, name)
	lock, err := disk.WaitLockFile(context.Background(), dir+".lock")
	if err != nil {
		return "", err
	}
	defer lock.Close()
	switch info, err := os.Stat(dir); {
	case err == nil && info.IsDir():
		return dir, nil
	case err == nil:
		if err := os.Remove(dir); err != nil {
			return "", err
		}
	case !errors.Is(err, os.ErrNotExist):
		return "", err
	}
	tmp, err := os.MkdirTemp(parent, "new-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := fill(tmp); err != nil {
		return "", err
	}
	return dir, os.Rename(tmp, dir)
}

// Files lists the files below a folder, in order, each as PATH=CONTENT.
func Files(t testing.TB, root string) string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			b, _ := os.ReadFile(path)
			rel, _ := filepath.Rel(root, path)
			out = append(out, rel+"="+string(b))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, " ")
}
